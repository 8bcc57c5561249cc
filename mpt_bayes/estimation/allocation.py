"""Bins of mask sizes, and how many masks each receives."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import comb

import torch
from torch import Tensor

from mpt_bayes.masks.ends import masks_of_size
from mpt_bayes.masks.sizes import masks_of_sizes
from mpt_bayes.numerics.random import Stream


@dataclass(frozen=True)
class SizeBins:
    """The sizes lowest..highest cut into `count` bins of equal width, a width that need not be whole.

    A draw from bin h has size lowest + (h·W + r) div count with r uniform on 0..W-1 and W = highest - lowest + 1: in
    integers, so that the average of the bins is exactly the uniform law on the sizes.
    """

    lowest: int
    highest: int
    count: int

    @property
    def width(self) -> int:
        """W, the number of sizes."""
        return self.highest - self.lowest + 1

    def draw_sizes(self, bins: Tensor, draws: list[Stream]) -> Tensor:
        """A size from each of the given bins."""
        return self.sizes(bins, torch.cat([draw.child("size").integers(self.width, 1) for draw in draws]))

    def sizes(self, bins: Tensor, offset: Tensor) -> Tensor:
        """The sizes at the given offsets r of bins."""
        return self.lowest + (bins * self.width + offset) // self.count

    def limits(self, number: int) -> tuple[int, int]:
        """The smallest and the largest size of a bin."""
        first = number * self.width
        return self.lowest + first // self.count, self.lowest + (first + self.width - 1) // self.count

    def law(self, dim: int) -> Tensor:
        """(count, D) probability of each size within each bin."""
        places = torch.arange(self.count * self.width).reshape(self.count, self.width) // self.count
        law = torch.zeros(self.count, dim, dtype=torch.float64)
        share = torch.full_like(places, 1, dtype=torch.float64) / self.width
        return law.scatter_add_(1, places + self.lowest - 1, share)

    def draw_masks(self, counts: Tensor, dim: int, stream: Stream) -> tuple[Tensor, Tensor]:
        """(P, D) uniform masks with the given number from each bin, and their bins (P,); one stream a mask."""
        bins = torch.arange(self.count).repeat_interleave(counts)
        draws = [stream.child(draw) for draw in range(len(bins))]
        return masks_of_sizes(self.draw_sizes(bins, draws), dim, draws), bins


def sampled_range(dim: int, budget: int) -> tuple[int, int]:
    """Lowest and highest of the sizes left to sample, once the cheap ends are taken completely; lowest > highest where
    every mask is taken.

    A size is taken completely if that costs no more than twice its even share of the budget, ends first, as long as
    half of the budget is left.

    Example:
        >>> sampled_range(10, 200), sampled_range(120, 500), sampled_range(3, 50)
        ((2, 8), (1, 119), (4, 3))
    """
    if 2**dim - 1 <= budget:
        return dim + 1, dim
    lowest, highest, spare = 1, dim, budget // 2
    while lowest <= highest:
        size = highest if comb(dim, highest) <= comb(dim, lowest) else lowest
        count = comb(dim, size)
        if count > spare or count * dim > 2 * budget:
            break
        spare -= count
        lowest, highest = (lowest, highest - 1) if size == highest else (lowest + 1, highest)
    return lowest, highest


def end_sizes(dim: int, lowest: int, highest: int) -> list[int]:
    """The sizes outside `sampled_range`, whose masks are all taken.

    Example:
        >>> end_sizes(10, *sampled_range(10, 200))
        [1, 9, 10]
    """
    return [size for size in range(1, dim + 1) if not lowest <= size <= highest]


def end_masks(dim: int, lowest: int, highest: int) -> Tensor:
    """(E, D): all masks of `end_sizes`, size by size.

    Example:
        >>> end_masks(3, *sampled_range(3, 5)).int().tolist()
        [[1, 1, 1]]
    """
    masks = [masks_of_size(size, dim) for size in end_sizes(dim, lowest, highest)]
    return torch.cat([torch.zeros(0, dim, dtype=torch.bool), *masks])


def neyman(scale: Tensor, total: int, cost: Tensor | None = None) -> Tensor:
    """(H,) whole numbers of draws, at least 2 each whatever the total, that minimise Σ_h scale_h² / n_h.

    One draw at a time to where it lowers the variance most for its cost, which for equal costs is optimal for whole
    numbers (Neyman 1934 gives n_h ∝ scale_h / √cost_h in the limit). Scales are kept above a quarter of their mean: an
    estimate from a few masks does not starve a stratum.

    Args:
        scale: (H,) standard deviation of one draw.
        total: what may be spent.
        cost: (H,) masks that one draw takes; 1 each by default.

    Example:
        >>> neyman(torch.tensor([1.0, 1.0, 4.0]), 12).tolist()
        [2, 2, 8]
        >>> neyman(torch.tensor([1.0, 4.0]), 12, torch.tensor([1, 4])).tolist()
        [4, 2]
    """
    prices = [1] * len(scale) if cost is None else cost.tolist()
    each = scale / torch.tensor(prices, dtype=scale.dtype).sqrt()
    kept = each.clamp_min(float(each.mean()) / 4).tolist()
    counts = [2] * len(kept)
    left = total - 2 * sum(prices)
    gains = [(-(s**2) / 6, h) for h, s in enumerate(kept)]
    heapq.heapify(gains)
    while gains and left > 0:
        _, h = heapq.heappop(gains)
        if prices[h] <= left:
            left -= prices[h]
            counts[h] += 1
            heapq.heappush(gains, (-(kept[h] ** 2) / (counts[h] * (counts[h] + 1)), h))
    return torch.tensor(counts)
