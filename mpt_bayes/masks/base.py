"""What a mask design draws, and what every design promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import named
from mpt_bayes.errors import ArgumentError
from mpt_bayes.numerics.random import Stream

CUMULATIVE_SCORE: Final = "cumulative score"
"""The estimand Σ_m S(m): the log marginal likelihood of a coherent model, the expected order-agnostic
log-likelihood of an incoherent set of conditionals."""

ENUMERATED: Final = -1
"""Stratum of masks that are taken completely: they add nothing to the sampling variance."""


@final
@dataclass(frozen=True)
class Sampling:
    """How masks were sampled: all that sums and standard errors have to know, whatever the masks are.

    Masks that share a `cluster` were drawn together; clusters of one `stratum` are independent and identically
    distributed, and strata are independent: a stratified cluster sample.

    Attributes:
        sizes: (P,) int64, hidden coordinates of each mask, at least 1.
        log_weight: (P,) float64; the estimate is Σ_p exp(log_weight_p) s(M_p). A weight belongs to a whole mask.
        stratum: (P,) int64; `ENUMERATED` marks masks taken completely.
        cluster: (P,) int64.
        fraction: (P,) float64, the share of its stratum's masks that was drawn, where the draws of a stratum are
            distinct (each its own cluster): the variance is 1 - fraction times that of independent draws. None
            stands for 0 everywhere: independent draws.
    """

    sizes: Tensor
    log_weight: Tensor
    stratum: Tensor
    cluster: Tensor
    fraction: Tensor | None = None

    def __post_init__(self) -> None:
        if not len(self.sizes) == len(self.log_weight) == len(self.stratum) == len(self.cluster):
            raise ArgumentError(f"a sampling needs one weight, stratum and cluster for each of {len(self.sizes)} masks")

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def effective_sample_size(self) -> float:
        """(Σ w)² / Σ w²: how many masks of equal weight these are worth, whatever the scores (Kish 1965)."""
        weight = (self.log_weight - self.log_weight.max()).exp()
        return float(weight.sum() ** 2 / weight.square().sum())


@final
@dataclass(frozen=True)
class MaskBatch:
    """Masks with how they were sampled.

    Attributes:
        hidden: (P, D) bool, True = hidden; every row hides at least one coordinate.
        sampling: sizes, weights, strata and clusters of the P masks.
    """

    hidden: Tensor
    sampling: Sampling

    @classmethod
    def build(
        cls, hidden: Tensor, *, log_weight: Tensor, stratum: Tensor, cluster: Tensor, fraction: Tensor | None = None
    ) -> Self:
        """From masks and the columns of their sampling; the sizes are counted."""
        return cls(hidden, Sampling(hidden.sum(1), log_weight, stratum, cluster, fraction))

    @classmethod
    def independent(cls, hidden: Tensor, log_weight: Tensor | float) -> Self:
        """Independent masks of one law, with a weight each or one for all."""
        count = len(hidden)
        return cls.build(
            hidden,
            log_weight=torch.as_tensor(log_weight, dtype=torch.float64).expand(count),
            stratum=torch.zeros(count, dtype=torch.int64),
            cluster=torch.arange(count),
        )

    def __len__(self) -> int:
        return len(self.hidden)


@final
@dataclass(frozen=True)
class OrderBatch:
    """Orders of the coordinates, each standing for D nested masks, one of every size.

    In `orders` the first coordinate is revealed first: the mask of size m of an order hides its last m coordinates.
    Orders that share a `cluster` were drawn together (an order and its reverse, say).

    Attributes:
        orders: (n, D) int64, each row a permutation of 0..D-1.
        cluster: (n,) int64.
    """

    orders: Tensor
    cluster: Tensor

    @property
    def sampling(self) -> Sampling:
        """Of the n·D nested masks, order by order, sizes 1..D within each; weight 1/n each."""
        n, dim = self.orders.shape
        return Sampling(
            sizes=torch.arange(1, dim + 1).repeat(n),
            log_weight=torch.full((n * dim,), n, dtype=torch.float64).log().neg(),
            stratum=torch.zeros(n * dim, dtype=torch.int64),
            cluster=self.cluster.repeat_interleave(dim),
        )

    def masks(self) -> MaskBatch:
        """The nested masks themselves."""
        n, dim = self.orders.shape
        revealed_at = self.orders.argsort(1)
        n_visible = dim - torch.arange(1, dim + 1)
        hidden = revealed_at[:, None, :] >= n_visible[:, None]
        return MaskBatch(hidden.reshape(n * dim, dim), self.sampling)


class MaskDesign(ABC):
    """A probability law over sets of masks of D coordinates."""

    @abstractmethod
    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One realisation of the design for `dim` coordinates: a function of the stream alone."""

    @abstractmethod
    def estimand(self, dim: int) -> str:
        """What the weighted sum of scores estimates without bias; results with different estimands never mix."""


def checked_design(design: Any) -> MaskDesign:
    """The design itself, or one line that says what was passed in its place.

    Raises:
        ArgumentError: a number, the class instead of an object, an objective of the same name, anything else.
    """
    if not isinstance(design, MaskDesign):
        raise ArgumentError(f"design is {named(design)}: expected a design of mpt_bayes.masks, e.g. RandomOrders(64)")
    return design


class CumulativeDesign(MaskDesign):
    """A design whose weighted sum of scores is Σ_m S(m) on average, for every number of coordinates."""

    def estimand(self, dim: int) -> str:
        """Σ_m S(m)."""
        return CUMULATIVE_SCORE


class OrderDesign(CumulativeDesign):
    """A design made of whole orders, each with one mask of every size: models with `order_curve` score an order at the
    price of one factorisation."""

    @abstractmethod
    def draw_orders(self, dim: int, stream: Stream) -> OrderBatch:
        """The orders, a function of the stream alone."""

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """The nested masks of the drawn orders."""
        return self.draw_orders(dim, stream).masks()
