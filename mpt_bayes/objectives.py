"""What to maximise: the exact log marginal likelihood, or masked prediction that estimates it, with or without bias.

`RandomRate` and `FixedRate` share their names with mask designs: `masks.FixedRate` estimates what
`objectives.FixedRate` maximises. Write them with their module; where one is passed for the other, an error says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes import masks
from mpt_bayes.checks import checked_count, named
from mpt_bayes.errors import ArgumentError
from mpt_bayes.estimation.missing import checked_model
from mpt_bayes.masks.subsets import uniform_masks
from mpt_bayes.models.base import ConditionalModel, HasOrderCurve, HasOrderTotals, JointModel
from mpt_bayes.models.checked_calls import (
    checked_log_marginal_likelihood,
    checked_masked_log_prob,
    checked_order_curve,
    checked_order_totals,
)
from mpt_bayes.numerics.random import Stream, seed_from


class Objective(ABC):
    """A number to maximise, with gradients to the model's parameters. Total nats over the rows given."""

    def value(self, model: ConditionalModel, x: Tensor, stream: Stream | torch.Generator) -> Tensor:
        """One draw of the objective: a scalar, differentiable; a function of the stream alone.

        Args:
            model: anything that scores masks, built anew from its parameters at every step, so that it has their graph.
            x: (N, D).
            stream: of the masks. A generator serves too: it moves on, so that every call draws others.

        Raises:
            ArgumentError: no model, or neither a stream nor a generator.
            ModelError: a model whose results have another shape or kind.
        """
        checked_model(model)
        if isinstance(stream, torch.Generator):
            stream = Stream(seed_from(stream))
        if not isinstance(stream, Stream):
            raise ArgumentError(
                f"stream is {stream!r}: pass a torch.Generator().manual_seed(seed), kept from call to call"
            )
        return self._value(model, x, stream)

    @abstractmethod
    def _value(self, model: ConditionalModel, x: Tensor, stream: Stream) -> Tensor:
        """`value` of a model by the masks of a stream."""

    @property
    @abstractmethod
    def estimand(self) -> str:
        """What the draws average to; a bias is named."""


def checked_objective(objective: Objective) -> Objective:
    """An objective, or an error that says what was passed instead: a mask design of the same name, say.

    Raises:
        ArgumentError: anything else.
    """
    if not isinstance(objective, Objective):
        raise ArgumentError(f"objective is {named(objective)}: expected one of mpt_bayes.objectives, CumulativeScore()")
    return objective


@final
@dataclass(frozen=True)
class ExactLML(Objective):
    """log p(x) itself, where the model has it.

    Example:
        >>> from mpt_bayes import models
        >>> model = models.PPCA(torch.ones(3, 1), 0.5)
        >>> float(ExactLML().value(model, torch.zeros(1, 3), Stream(0)))
        -2.6900...
    """

    def _value(self, model: ConditionalModel, x: Tensor, stream: Stream) -> Tensor:
        """Σ_n log p(x_n)."""
        if not isinstance(model, JointModel):
            raise ArgumentError(f"{type(model).__name__} has no log marginal likelihood: use CumulativeScore")
        return checked_log_marginal_likelihood(model, x).sum()

    @property
    def estimand(self) -> str:
        """Exact."""
        return "log marginal likelihood"


@final
@dataclass(frozen=True)
class CumulativeScore(Objective):
    """Σ_m S(m) from `n_orders` random orders, each of which holds a mask of every size: unbiased for log p(x).

    Moreno-Muñoz, Recasens and Hauberg (2023), with nested masks.

    Example:
        >>> from mpt_bayes import models
        >>> model = models.PPCA(torch.zeros(3, 1), 0.5)  # independent coordinates: every order gives log p(x)
        >>> draws = [o.value(model, torch.zeros(1, 3), Stream(0)) for o in (CumulativeScore(), ExactLML())]
        >>> bool((draws[0] - draws[1]).abs() < 1e-12)
        True
    """

    n_orders: int = 1

    def __post_init__(self) -> None:
        checked_count(self.n_orders, "n_orders")

    def _value(self, model: ConditionalModel, x: Tensor, stream: Stream) -> Tensor:
        """The mean over orders of Σ_m s(M_m), by the model's own fast path if it has one."""
        batch = masks.RandomOrders(self.n_orders).draw_orders(model.dim, stream)
        orders = batch.orders.to(x.device)
        if isinstance(model, HasOrderTotals):
            return checked_order_totals(model, x, orders, per_row=False).curves.sum() / self.n_orders
        if isinstance(model, HasOrderCurve):
            return checked_order_curve(model, x, orders).sum() / self.n_orders
        return _weighted(model, x, batch.masks().hidden.to(x.device), 1 / self.n_orders)

    @property
    def estimand(self) -> str:
        """Unbiased."""
        return masks.CUMULATIVE_SCORE


@final
@dataclass(frozen=True)
class RandomRate(Objective):
    """D · s(M), with the size of M uniform on 1..D and M uniform of that size: unbiased for log p(x) and its gradient.

    The cheapest unbiased draw: one mask for the whole batch of rows. `n_masks` masks are averaged.

    Example:
        >>> RandomRate().estimand
        'cumulative score'
    """

    n_masks: int = 1

    def __post_init__(self) -> None:
        checked_count(self.n_masks, "n_masks")

    def _value(self, model: ConditionalModel, x: Tensor, stream: Stream) -> Tensor:
        """(D / n) Σ s(M)."""
        hidden = masks.UniformSize(self.n_masks).draw(model.dim, stream).hidden.to(x.device)
        return _weighted(model, x, hidden, model.dim / self.n_masks)

    @property
    def estimand(self) -> str:
        """Unbiased."""
        return masks.CUMULATIVE_SCORE


@final
@dataclass(frozen=True)
class FixedRate(Objective):
    """D · s(M) at one mask rate, what masked pre-training at that rate maximises: BIASED for log p(x).

    Example:
        >>> FixedRate(0.2).estimand
        'D times the masked score at rate 0.2 (biased for the log marginal likelihood)'
    """

    rate: float
    n_masks: int = 1

    def __post_init__(self) -> None:
        masks.FixedRate(self.rate, self.n_masks)  # its own checks of both

    def _value(self, model: ConditionalModel, x: Tensor, stream: Stream) -> Tensor:
        """(D / n) Σ s(M), every M of size round(rate · D)."""
        size = masks.FixedRate(self.rate, self.n_masks).size(model.dim)
        hidden = uniform_masks(torch.full((self.n_masks,), size), model.dim, stream).to(x.device)
        return _weighted(model, x, hidden, model.dim / self.n_masks)

    @property
    def estimand(self) -> str:
        """Says that it is biased."""
        return f"D times the masked score at rate {self.rate:g} (biased for the log marginal likelihood)"


def _weighted(model: ConditionalModel, x: Tensor, hidden: Tensor, weight: float) -> Tensor:
    scores = checked_masked_log_prob(model, x, hidden).sum(2) / hidden.sum(1)
    return weight * scores.sum()
