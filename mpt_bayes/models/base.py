"""What predicts a hidden coordinate: the two interfaces, and the capabilities a model may add to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, Self, TypeGuard, final, runtime_checkable

import torch
from torch import Tensor

from mpt_bayes.checks import checked_hidden, checked_subsets, checked_tensor
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models.answers import marginal_log_probs


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
class Restrictable(Protocol):
    """A joint model whose marginal over some coordinates is a model of the same kind."""

    def restrict(self, keep: Tensor) -> Self:
        """The marginal model of coordinates `keep` (int64, distinct), in that order."""


def restrict(model: JointModel, keep: Tensor) -> JointModel:
    """The marginal model over the coordinates `keep`, in that order: missing coordinates integrated out exactly.

    With `keep` a permutation this relabels the coordinates. Models that can, return their own kind.

    Raises:
        ArgumentError: if `keep` is empty or repeats a coordinate.
    """
    checked_tensor(keep, "keep")
    if keep.numel() == 0 or keep.unique().numel() != keep.numel():
        raise ArgumentError(f"keep must name at least one coordinate, each once: got {keep.tolist()}")
    return model.restrict(keep) if isinstance(model, Restrictable) else _Marginal(model, keep)


def conditionals_from_marginals(model: JointModel, x: Tensor, hidden: Tensor) -> Tensor:
    """masked_log_prob by its definition, log p(x_j | x_R) = log p(x_R, x_j) - log p(x_R); each subset evaluated once.

    For joint models that have no shorter way from marginals to conditionals.
    """
    checked_hidden(hidden, model.dim, model.device)
    mask, coordinate = hidden.nonzero(as_tuple=True)
    larger = ~hidden[mask]
    larger[torch.arange(len(mask)), coordinate] = True
    subsets, index = torch.cat([~hidden, larger]).unique(dim=0, return_inverse=True)
    log_prob = marginal_log_probs(model, x, subsets)
    result = log_prob.new_zeros(len(x), *hidden.shape)
    result[:, mask, coordinate] = log_prob[:, index[len(hidden) :]] - log_prob[:, index[mask]]
    return result


@final
class _Marginal(JointModel):
    """The marginal of any joint model over some of its coordinates, by asking it for subsets of those only."""

    def __init__(self, model: JointModel, keep: Tensor) -> None:
        self._model = model
        self._keep = keep

    @property
    def dim(self) -> int:
        return len(self._keep)

    @property
    def device(self) -> torch.device:
        return self._model.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        return conditionals_from_marginals(self, x, hidden)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        checked_subsets(visible, self.dim, "visible", self.device)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise DataError(f"x has shape {tuple(x.shape)}: expected (N, {self.dim})")
        whole = x.new_zeros(len(x), self._model.dim)  # any admissible value serves where nothing is asked
        whole[:, self._keep] = x
        subsets = visible.new_zeros(len(visible), self._model.dim)
        subsets[:, self._keep] = visible
        return marginal_log_probs(self._model, whole, subsets)
