"""Distinct masks of every size: small populations of masks taken completely, large ones without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.masks.base import ENUMERATED, CumulativeDesign, MaskBatch
from mpt_bayes.masks.subsets import uniform_masks
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class EnumeratedEnds(CumulativeDesign):
    """`masks_per_size` distinct masks of every size, all of them where there are no more than that.

    At the ends of the curve (m = 1, D - 1, D) there are few masks: they are taken completely and add no variance.
    Elsewhere masks are drawn without replacement, which multiplies the variance of K independent masks among C(D, m)
    by (C(D, m) - K) / (C(D, m) - 1).

    Example:
        >>> batch = EnumeratedEnds(3).draw(3, Stream(0))
        >>> batch.sampling.sizes.tolist(), bool((batch.sampling.stratum == ENUMERATED).all())
        ([1, 1, 1, 2, 2, 2, 3], True)
    """

    masks_per_size: int

    def __post_init__(self) -> None:
        checked_count(self.masks_per_size, "masks_per_size")

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One stream a size."""
        masks = [self._of_size(size, dim, stream.child(size)) for size in range(1, dim + 1)]
        taken = torch.tensor([len(part) for part in masks])
        share = torch.tensor([len(part) / comb(dim, size) for size, part in enumerate(masks, 1)], dtype=torch.float64)
        hidden = torch.cat(masks)
        size = hidden.sum(1)
        return MaskBatch.build(
            hidden,
            log_weight=taken.to(torch.float64).log().neg()[size - 1],
            stratum=torch.where(share[size - 1] == 1, ENUMERATED, size),
            cluster=torch.arange(len(hidden)),
            fraction=share[size - 1],
        )

    def _of_size(self, size: int, dim: int, stream: Stream) -> Tensor:
        return distinct_masks(size, dim, min(self.masks_per_size, comb(dim, size)), stream)


def distinct_masks(size: int, dim: int, count: int, stream: Stream) -> Tensor:
    """(count, D): a uniform set of `count` distinct masks of one size; a uniform permutation of all if they are few.

    Where there are at least four times as many, repeats are drawn again, which leaves the law of the set uniform.
    """
    if comb(dim, size) < 4 * count:
        hidden = masks_of_size(size, dim)
        return hidden[stream.permutations(1, len(hidden))[0, :count]]
    found: dict[tuple[bool, ...], None] = {}
    draw = 0
    while len(found) < count:
        mask = uniform_masks(torch.tensor([size]), dim, stream.child(draw))[0]
        found[tuple(mask.tolist())] = None
        draw += 1
    return torch.tensor(list(found))


def masks_of_size(size: int, dim: int) -> Tensor:
    """(C(D, size), D): all masks of one size.

    Example:
        >>> masks_of_size(2, 3).int().tolist()
        [[1, 1, 0], [1, 0, 1], [0, 1, 1]]
    """
    places = torch.tensor(list(combinations(range(dim), size)))
    return torch.zeros(len(places), dim, dtype=torch.bool).scatter_(1, places, True)
