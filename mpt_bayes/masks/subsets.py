"""Independent masks: some for every size, or all at one size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks.base import CumulativeDesign, MaskBatch, MaskDesign
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class PerSize(CumulativeDesign):
    """`masks_per_size` independent uniform masks for each size m = 1..D, each of weight 1/`masks_per_size`.

    The estimate is Σ_m mean_k s(M_mk); its variance is Σ_m σ_m² / K. The form used by Moreno-Muñoz, Recasens and
    Hauberg (2023). At least two masks per size are needed for a standard error.

    Example:
        >>> PerSize(2).draw(3, Stream(0)).sampling.sizes.tolist()
        [1, 2, 3, 1, 2, 3]
    """

    masks_per_size: int

    def __post_init__(self) -> None:
        checked_count(self.masks_per_size, "masks_per_size")

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One round of D masks (one of each size) for every draw."""
        sizes = torch.arange(1, dim + 1)
        rounds = [uniform_masks(sizes, dim, stream.child(draw)) for draw in range(self.masks_per_size)]
        count = dim * self.masks_per_size
        return MaskBatch.build(
            torch.cat(rounds),
            log_weight=torch.full((count,), self.masks_per_size, dtype=torch.float64).log().neg(),
            stratum=sizes.repeat(self.masks_per_size),
            cluster=torch.arange(count),
        )


@final
@dataclass(frozen=True)
class FixedRate(MaskDesign):
    """`n_masks` independent uniform masks that all hide round(rate · D) coordinates (ties away from zero, at least 1).

    Estimates S(m) at that one size: a masked score, NOT the cumulative score. D · S(m) is a biased stand-in for the
    log marginal likelihood, and is never labelled as one.

    Raises:
        ArgumentError: if the rate is not in (0, 1].

    Example:
        >>> FixedRate(0.25, 3).draw(8, Stream(0)).sampling.sizes.tolist()
        [2, 2, 2]
    """

    rate: float
    n_masks: int

    def __post_init__(self) -> None:
        if not isinstance(self.rate, (int, float)) or not 0 < self.rate <= 1:
            raise ArgumentError(f"rate is {self.rate!r}: expected a number in (0, 1]")
        checked_count(self.n_masks, "n_masks")

    def size(self, dim: int) -> int:
        """The number of hidden coordinates."""
        return size_at(self.rate, dim)

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """`n_masks` masks, one stream each."""
        size = torch.tensor([self.size(dim)])
        masks = [uniform_masks(size, dim, stream.child(draw)) for draw in range(self.n_masks)]
        return MaskBatch.independent(torch.cat(masks), -math.log(self.n_masks))

    def estimand(self, dim: int) -> str:
        """S(m) at this design's size."""
        return f"masked score at rate {self.rate:g}"


def size_at(rate: float, dim: int) -> int:
    """round(rate · D), ties away from zero, at least 1.

    Example:
        >>> size_at(0.25, 10), size_at(0.0, 10)
        (3, 1)
    """
    return max(1, int(rate * dim + 0.5))


def uniform_masks(sizes: Tensor, dim: int, stream: Stream) -> Tensor:
    """(P, D) bool: for each of the P sizes a mask uniform among the C(D, size) of that size."""
    return stream.permutations(len(sizes), dim) < sizes[:, None]
