"""Random orders, alone or balanced: D nested masks from one permutation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks.base import OrderBatch, OrderDesign
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class RandomOrders(OrderDesign):
    """`n_orders` independent uniform orders; each gives one mask of every size, nested.

    The estimate is the mean over orders of Σ_m s(M_m); its standard error is sd(per-order sums) / sqrt(n), whatever
    the dependence inside an order. At least two orders are needed for a standard error.

    Example:
        >>> RandomOrders(2).draw(3, Stream(0)).sampling.sizes.tolist()
        [1, 2, 3, 1, 2, 3]
    """

    n_orders: int

    def __post_init__(self) -> None:
        checked_count(self.n_orders, "n_orders")

    def draw_orders(self, dim: int, stream: Stream) -> OrderBatch:
        """Order k is the same whatever `n_orders`."""
        return OrderBatch(
            orders=stream.permutations(self.n_orders, dim),
            cluster=torch.arange(self.n_orders),
        )


@final
@dataclass(frozen=True)
class AntitheticOrders(OrderDesign):
    """`n_orders` orders in pairs, an order and its reverse.

    What is revealed early in an order is revealed late in its reverse, so a pair is balanced over the coordinates.
    The two are one cluster: the standard error comes from the spread of the pairs' means, n_orders / 2 of them.

    Raises:
        ArgumentError: an odd number of orders.

    Example:
        >>> AntitheticOrders(2).draw_orders(3, Stream(0)).orders.tolist()
        [[2, 1, 0], [0, 1, 2]]
    """

    n_orders: int

    def __post_init__(self) -> None:
        checked_count(self.n_orders, "n_orders", 2)
        if self.n_orders % 2:
            raise ArgumentError(f"n_orders is {self.n_orders}: antithetic orders come in pairs, pass an even number")

    def draw_orders(self, dim: int, stream: Stream) -> OrderBatch:
        """A pair is the same whatever `n_orders`."""
        first = stream.permutations(self.n_orders // 2, dim)
        return OrderBatch(
            orders=torch.stack([first, first.flip(1)], 1).reshape(-1, dim),
            cluster=torch.arange(len(first)).repeat_interleave(2),
        )


@final
@dataclass(frozen=True)
class CyclicOrders(OrderDesign):
    """`n_cycles` independent orders, each with `rotations` evenly spaced rotations of itself.

    With K rotations every coordinate is hidden in floor(K m / D) or ceil(K m / D) of the K masks of size m: nearly
    balanced for any K, exactly for K = D. The rotations of a cycle are one cluster. At most D rotations are taken.

    Example:
        >>> CyclicOrders(1, 3).draw_orders(3, Stream(0)).orders.tolist()
        [[2, 1, 0], [1, 0, 2], [0, 2, 1]]
    """

    n_cycles: int
    rotations: int = 4

    def __post_init__(self) -> None:
        checked_count(self.n_cycles, "n_cycles")
        checked_count(self.rotations, "rotations", 2)

    def draw_orders(self, dim: int, stream: Stream) -> OrderBatch:
        """A cycle is the same whatever `n_cycles`."""
        shifts = spaced(min(self.rotations, dim), dim)
        places = (torch.arange(dim) + shifts[:, None]) % dim
        return OrderBatch(
            orders=stream.permutations(self.n_cycles, dim)[:, places].reshape(-1, dim),
            cluster=torch.arange(self.n_cycles).repeat_interleave(len(shifts)),
        )


def spaced(count: int, dim: int) -> Tensor:
    """(count,) int64: evenly spaced places floor(k D / count) on a circle of D."""
    return torch.arange(count) * dim // count
