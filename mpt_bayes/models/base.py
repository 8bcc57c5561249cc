"""What predicts a hidden coordinate: the two interfaces, and the capabilities a model may add to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, Self, TypeGuard, runtime_checkable

import torch
from torch import Tensor


class ConditionalModel(ABC):
    """Anything that gives log p(x_j | x_visible) for hidden coordinates j, one at a time, never the block jointly.

    A set of conditionals need not come from one joint distribution (a masked language model's do not), so a
    conditional model has no log marginal likelihood and cannot be compared with one.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """D, the number of coordinates of one datum."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the parameters live; data and masks must be there too."""

    @abstractmethod
    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """log p(x_j | x_visible) where hidden, 0 where visible. Nats.

        Args:
            x: (N, D) data, no missing entries.
            hidden: (P, D) bool, True = hidden; the same masks for every row.

        Returns:
            (N, P, D), floating point. Estimators do not look at what stands at visible coordinates.
        """


class JointModel(ConditionalModel):
    """A model whose conditionals come from one joint with an exact density: latent variables and parameters with a
    prior are integrated out."""

    @abstractmethod
    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) exact log p(x_n), in nats, one per row."""

    @abstractmethod
    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible) for each of the (P, D) bool subsets; the empty subset gives 0."""


@runtime_checkable
class HasOrderCurve(Protocol):
    """A model that scores the D nested masks of an order at the price of about one factorisation."""

    def order_curve(self, x: Tensor, orders: Tensor) -> Tensor:
        """(N, n, D): entry m - 1 is s(M), the mean masked log-probability when the last m of the order are hidden.

        Args:
            x: (N, D) data.
            orders: (n, D) int64 permutations, first revealed first.
        """


@dataclass(frozen=True)
class OrderTotals:
    """Curves of whole orders, summed over rows.

    Attributes:
        curves: (n, D); entry m - 1 is s(M) summed over the rows when the last m of the order are hidden.
        per_row: (N,) the mean over orders of Σ_m s(M), row by row; None when not asked for.
    """

    curves: Tensor
    per_row: Tensor | None


@runtime_checkable
class HasOrderTotals(Protocol):
    """A model whose curves summed over rows cost less than the curve of every row: from second moments, say."""

    def order_totals(self, x: Tensor, orders: Tensor, *, per_row: bool) -> OrderTotals:
        """The curves of `order_curve` summed over rows; each row's total only where `per_row`."""


@runtime_checkable
class HasExactCurve(Protocol):
    """A model whose whole curve has a closed form: the exhaustive design costs no masks."""

    def exact_curve(self, x: Tensor) -> Tensor:
        """(N, D) S(m) of each row, m = 1..D."""


@runtime_checkable
class EstimatedConditionals(Protocol):
    """A model made of random draws, whose numbers have an error of their own beside that of the choice of masks."""

    @property
    def dim(self) -> int:
        """D, the number of coordinates of one datum."""

    @property
    def is_estimated(self) -> bool:
        """Whether this very model is made of draws."""

    @property
    def n_states(self) -> int:
        """K, the states made of the draws."""

    def score_influence(self, x: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) derivative of the J sums Σ_p weight_pj s(M_p) of each row in the log weight of each state.

        Args:
            hidden: (P, D) masks.
            weight: (P, J).
        """

    def log_prob_influence(self, x: Tensor, visible: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) the same derivative of Σ_p weight_pj log p(x_A_p), for (P, D) subsets A_p."""

    def inner_variance(self, x: Tensor, influence: Tensor) -> float:
        """The variance of the total over rows, from the influence of the draws."""

    def warn_if_poor(self, x: Tensor) -> None:
        """An MptBayesWarning that says what to do where the draws are too few to be trusted."""


def is_made_of_draws(model: ConditionalModel) -> TypeGuard[EstimatedConditionals]:
    """Whether this very model has an inner error beside that of the choice of masks."""
    return isinstance(model, EstimatedConditionals) and model.is_estimated


@runtime_checkable
class OnGrid(Protocol):
    """A model whose latents are summed on a grid, which may not serve the posteriors of some data."""

    def warn_of_grid(self, x: Tensor) -> None:
        """An MptBayesWarning that names a row and what to pass; the same finding on the same data is told once."""


@runtime_checkable
class Restrictable(Protocol):
    """A joint model whose marginal over some coordinates is a model of the same kind."""

    def restrict(self, keep: Tensor) -> Self:
        """The marginal model of coordinates `keep` (int64, distinct), in that order."""
