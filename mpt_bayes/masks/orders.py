"""Random orders: D nested masks from one permutation."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mpt_bayes.checks import checked_count
from mpt_bayes.masks.base import OrderBatch, OrderDesign
from mpt_bayes.numerics.random import Stream


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
        """One stream an order: order k is the same whatever `n_orders`."""
        return OrderBatch(
            orders=torch.stack(
                [torch.randperm(dim, generator=stream.child(draw).generator()) for draw in range(self.n_orders)]
            ),
            cluster=torch.arange(self.n_orders),
        )
