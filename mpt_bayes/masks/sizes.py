"""Masks whose size is drawn too: uniform, stratified by a lattice, or by a random rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks.base import CumulativeDesign, MaskBatch
from mpt_bayes.masks.subsets import uniform_masks
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class UniformSize(CumulativeDesign):
    """`n_masks` independent masks: a size m uniform on 1..D, then a uniform mask of that size; weight D / n each.

    The plain estimator, and the form of the bound of masked diffusion models (LLaDA, Nie et al. 2025). Its variance
    holds the spread of S(m) over sizes, which every stratified design removes.

    Example:
        >>> len(UniformSize(5).draw(3, Stream(0)))
        5
    """

    n_masks: int

    def __post_init__(self) -> None:
        checked_count(self.n_masks, "n_masks")

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One stream a mask."""
        draws = [stream.child(draw) for draw in range(self.n_masks)]
        sizes = torch.cat([draw.child("size").integers(dim, 1) + 1 for draw in draws])
        return MaskBatch.independent(masks_of_sizes(sizes, dim, draws), math.log(dim / self.n_masks))


@final
@dataclass(frozen=True)
class RandomRate(CumulativeDesign):
    """`n_masks` independent masks by coin flips: a rate t uniform on (0, 1), then every coordinate hidden with
    probability t; a draw that hides nothing is drawn again. Weight D / n each.

    The integral of C(D, m) t^m (1-t)^(D-m) is 1 / (D+1) for every m: sizes are uniform on 0..D, and on 1..D once the
    empty draw is refused, so the law is that of `UniformSize`. (Kept, the empty draws would count as 0 with weight
    D + 1: the same expectation, more variance.)

    Example:
        >>> bool(RandomRate(100).draw(4, Stream(0)).hidden.any(1).all())
        True
    """

    n_masks: int

    def __post_init__(self) -> None:
        checked_count(self.n_masks, "n_masks")

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One stream a mask."""
        rows = [self._one(dim, stream.child(draw)) for draw in range(self.n_masks)]
        return MaskBatch.independent(torch.stack(rows), math.log(dim / self.n_masks))

    @staticmethod
    def _one(dim: int, stream: Stream) -> Tensor:
        attempt = 0
        while True:
            rate = stream.child("rate", attempt).uniform()
            hidden = stream.child("coins", attempt).bernoulli(torch.full((dim,), rate, dtype=torch.float64))
            if bool(hidden.any()):
                return hidden
            attempt += 1


@final
@dataclass(frozen=True)
class StratifiedSizes(CumulativeDesign):
    """`n_masks` masks whose sizes lie on a lattice over 1..D with a random offset; the masks of a size are uniform.

    A lattice of k points has sizes 1 + (i D + r) div k, i = 0..k-1, with r uniform on 0..D-1: in integers, so that
    every size has probability exactly 1/D for EVERY D and k (a rounded lattice favours some sizes). The points of one
    lattice are dependent, so the masks come from `replicates` independent lattices, whose totals give the standard
    error with replicates - 1 degrees of freedom. Rows are permuted: each row's own size is uniform on 1..D.

    Args:
        n_masks: in all.
        replicates: independent lattices; at least 8 for a standard error worth having, 1 for none.

    Raises:
        ArgumentError: fewer masks than replicates.

    Example:
        >>> sorted(StratifiedSizes(4, replicates=1).draw(4, Stream(0)).sampling.sizes.tolist())
        [1, 2, 3, 4]
    """

    n_masks: int
    replicates: int = 8

    def __post_init__(self) -> None:
        checked_count(self.replicates, "replicates")
        if self.n_masks < self.replicates:
            raise ArgumentError(
                f"n_masks is {self.n_masks}, below replicates={self.replicates}: each lattice needs a mask"
            )

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One stream a lattice, one a mask, one for the permutation of rows."""
        counts = [len(part) for part in torch.arange(self.n_masks).tensor_split(self.replicates)]
        sizes = torch.cat(
            [
                lattice_sizes(dim, count, int(stream.child("offset", i).integers(dim, 1)))
                for i, count in enumerate(counts)
            ]
        )
        cluster = torch.arange(self.replicates).repeat_interleave(torch.tensor(counts))
        rows = stream.child("rows").permutations(1, self.n_masks)[0]
        sizes, cluster = sizes[rows], cluster[rows]
        draws = [stream.child(draw) for draw in range(self.n_masks)]
        return MaskBatch.build(
            masks_of_sizes(sizes, dim, draws),
            log_weight=math.log(dim / self.replicates) - torch.tensor(counts, dtype=torch.float64).log()[cluster],
            stratum=torch.zeros_like(cluster),
            cluster=cluster,
        )


def lattice_sizes(dim: int, count: int, offset: int) -> Tensor:
    """(count,) sizes 1 + (i D + offset) div count: over the offsets 0..D-1 every size occurs exactly `count` times.

    i D + offset takes each of 0..count·D - 1 once, and div count takes each of 0..D-1 `count` times.

    Example:
        >>> lattice_sizes(4, 8, 0).tolist()
        [1, 1, 2, 2, 3, 3, 4, 4]
    """
    return 1 + (torch.arange(count) * dim + offset) // count


def masks_of_sizes(sizes: Tensor, dim: int, draws: list[Stream]) -> Tensor:
    """(P, D): a uniform mask of each size, each from its own stream."""
    return torch.cat(
        [uniform_masks(size.reshape(1), dim, draw.child("mask")) for size, draw in zip(sizes, draws, strict=True)]
    )
