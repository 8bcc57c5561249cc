"""Balanced masks of one size: consecutive or evenly spaced windows on a random circle of the coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.masks.base import CumulativeDesign, MaskBatch
from mpt_bayes.masks.orders import spaced
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class Partitions(CumulativeDesign):
    """For every size m, `n_partitions` independent random partitions into ceil(D/m) masks of m coordinates.

    Every coordinate is hidden at least once, and exactly once where m divides D ("fully explored" masking, Zheng et
    al. 2020); where it does not, the last block wraps around to the first, so that every mask is uniform of size m.
    The masks of a partition are one cluster. It lowers the variance on average over models, not for every model.

    Example:
        >>> Partitions(1).draw(4, Stream(0)).sampling.sizes.tolist()
        [1, 1, 1, 1, 2, 2, 3, 3, 4]
    """

    n_partitions: int

    def __post_init__(self) -> None:
        checked_count(self.n_partitions, "n_partitions")

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One stream for each partition and size."""
        starts = [torch.arange(0, dim, size) for size in range(1, dim + 1)]
        return _windows(starts, dim, self.n_partitions, stream)


@final
@dataclass(frozen=True)
class CyclicWindows(CumulativeDesign):
    """For every size m, `n_cycles` random circles of the coordinates with `windows` evenly spaced windows of length m.

    Every coordinate is hidden in floor(K m / D) or ceil(K m / D) of the K windows of a circle ("balanced cyclic,
    independent for each size"). The windows of a circle are one cluster; two circles are needed for a standard error.

    Example:
        >>> CyclicWindows(2, 4).draw(4, Stream(0)).hidden[:4].sum(0).tolist()
        [1, 1, 1, 1]
    """

    n_cycles: int
    windows: int = 4

    def __post_init__(self) -> None:
        checked_count(self.n_cycles, "n_cycles")
        checked_count(self.windows, "windows", 2)

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One stream for each circle and size."""
        starts = [spaced(min(self.windows, dim), dim)] * dim
        return _windows(starts, dim, self.n_cycles, stream)


def _windows(starts: list[Tensor], dim: int, circles: int, stream: Stream) -> MaskBatch:
    """For each size, masks that hide as many consecutive places of a random circle, one from each start."""
    masks, weights, clusters = [], [], []
    for size, start in enumerate(starts, 1):
        for circle in range(circles):
            place = stream.child(circle, size).permutations(1, dim)
            masks.append((place - start[:, None]) % dim < size)
            weights.append(torch.full((len(start),), circles * len(start), dtype=torch.float64).log().neg())
            clusters.append(torch.full((len(start),), circle))
    hidden = torch.cat(masks)
    return MaskBatch.build(hidden, log_weight=torch.cat(weights), stratum=hidden.sum(1), cluster=torch.cat(clusters))
