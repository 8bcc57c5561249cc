"""Masks of neighbouring sizes drawn together, from disjoint blocks of one order: what one shows, the others hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mpt_bayes.estimation.allocation import SizeBins, neyman
from mpt_bayes.estimation.rounds import Clusters
from mpt_bayes.numerics.random import Stream


@dataclass(frozen=True)
class Block:
    """Bins of sizes that share orders.

    Attributes:
        bins: their numbers.
        shows: whether the blocks of an order are what its masks show; else what they hide.
    """

    bins: tuple[int, ...]
    shows: bool


@dataclass(frozen=True)
class BlockedBins:
    """Bins of sizes, each in a group; an order of the coordinates gives one mask to every bin of a group.

    Where little is visible, what a mask scores depends on which coordinates are visible, and roughly adds up over them.
    An order is cut into blocks, and each mask of the group shows one: as no coordinate is visible twice, and most are
    visible once, the additive part nearly cancels from the group's sum. Where little is hidden, the masks hide disjoint
    blocks instead. A mask by itself is uniform among those of its size, so nothing is biased; masks of one order depend
    on each other, so they are one cluster of the sample.

    Attributes:
        size_bins: the bins.
        dim: D.
    """

    size_bins: SizeBins
    dim: int

    @cached_property
    def groups(self) -> tuple[Block, ...]:
        """From both ends as many bins as an order has room for; the middle bin is a group of its own."""
        count = self.size_bins.count
        middle = count // 2
        low = [self.size_bins.limits(b)[1] for b in range(middle)]
        high = [self.dim - self.size_bins.limits(b)[0] for b in range(count - 1, middle, -1)]
        hiding = [Block(tuple(part), shows=False) for part in _packed(low, self.dim)]
        showing = [Block(tuple(count - 1 - b for b in part), shows=True) for part in _packed(high, self.dim)]
        return (*hiding, Block((middle,), shows=False), *showing)

    def clusters(self, scale: Tensor, total: int) -> Tensor:
        """(G,) orders a group, at least 2, for about `total` masks; `scale` (H,) is the spread of each bin."""
        squares = torch.stack([scale[list(group.bins)].square().sum() for group in self.groups])
        return neyman(squares.sqrt(), total, torch.tensor([len(group.bins) for group in self.groups]))

    def draw(self, clusters: Tensor, stream: Stream) -> BlockedMasks:
        """The given number of orders of each group; one stream an order."""
        hidden: list[Tensor] = []
        bins: list[int] = []
        cluster: list[int] = []
        strata: list[int] = []
        for g, (group, number) in enumerate(zip(self.groups, clusters.tolist(), strict=True)):
            for _ in range(number):
                one = stream.child(len(strata))
                hidden.append(self._masks(group, one))
                bins += group.bins
                cluster += [len(strata)] * len(group.bins)
                strata.append(g)
        chosen = torch.tensor(bins)
        counts = torch.bincount(chosen, minlength=self.size_bins.count)
        return BlockedMasks(torch.cat(hidden), chosen, counts, Clusters(torch.tensor(cluster), torch.tensor(strata)))

    def _masks(self, group: Block, stream: Stream) -> Tensor:
        offset = stream.child("size").integers(self.size_bins.width, len(group.bins))
        sizes = self.size_bins.sizes(torch.tensor(group.bins), offset)
        length = self.dim - sizes if group.shows else sizes
        end = length.cumsum(0)[:, None]
        place = stream.permutations(1, self.dim)
        inside = (place >= end - length[:, None]) & (place < end)
        return ~inside if group.shows else inside


@dataclass(frozen=True)
class BlockedMasks:
    """Masks with how they were drawn.

    Attributes:
        hidden: (P, D).
        bins, counts: (P,) the bin of each mask, (H,) the number of masks a bin.
        clusters: the orders; groups are their strata.
    """

    hidden: Tensor
    bins: Tensor
    counts: Tensor
    clusters: Clusters


def _packed(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Consecutive places, as many together as fit in the room and are of similar length, one at least.

    A group has as many masks of each of its bins: bins that want very different numbers are better apart.
    """
    parts: list[list[int]] = []
    used, shortest = room + 1, 0
    for place, length in enumerate(lengths):
        if used + length > room or length - shortest > max(2, room / 8):
            parts.append([])
            used, shortest = 0, length
        parts[-1].append(place)
        used += length
    return parts
