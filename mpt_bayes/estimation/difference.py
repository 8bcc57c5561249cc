"""Paired comparison: two models, or one model on two sets of data, scored with the same masks."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import check_complete, checked_rows
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.estimation.curve import cumulative_score
from mpt_bayes.estimation.missing import checked_model
from mpt_bayes.masks import MaskDesign
from mpt_bayes.models.base import ConditionalModel, HasOrderCurve, HasOrderTotals, OrderTotals, is_made_of_draws
from mpt_bayes.models.checked_calls import checked_masked_log_prob, checked_order_curve, checked_order_totals
from mpt_bayes.results import Estimate


def score_difference(
    first: ConditionalModel,
    second: ConditionalModel,
    x: Tensor,
    *,
    other_x: Tensor | None = None,
    design: MaskDesign | None = None,
    n_evaluations: int | None = None,
    target_standard_error: float | None = None,
    time_limit: float | None = None,
    generator: torch.Generator | None = None,
    per_row: bool = True,
) -> Estimate:
    """Σ_m S(m) of `first` on x minus that of `second` on the same x, or on `other_x`, with common masks.

    The estimator runs on the differences of log-probabilities, so the standard error is that of the difference: what
    both have in common (which coordinates were hidden) cancels. Two training states of a network are two models; two
    sequences are the same model twice with `other_x`, row against row.

    Args:
        first, second: of one dimension; both score every mask, which `n_evaluations` counts once.
        x: (N, D); other_x: (N, D) or None for x.
        design, n_evaluations, target_standard_error, time_limit, generator, per_row: as in `cumulative_score`.

    Raises:
        ArgumentError: different dimensions, or models made of draws (their inner errors would be lost).
        DataError: different shapes, missing entries; otherwise as `cumulative_score`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> a, b = (mb.models.Gaussian(torch.zeros(3), torch.eye(3) + c) for c in (0.5, 0.6))
        >>> estimate = mb.score_difference(a, b, torch.ones(1, 3), design=mb.masks.Exhaustive())
        >>> exact = a.log_marginal_likelihood(torch.ones(1, 3)) - b.log_marginal_likelihood(torch.ones(1, 3))
        >>> abs(estimate.value - float(exact)) < 1e-12, estimate.estimand
        (True, 'difference of cumulative score')
    """
    for name, model in {"first": first, "second": second}.items():
        checked_model(model, name)
    checked_rows(x)
    if other_x is not None:
        checked_rows(other_x, "other_x")
    if first.dim != second.dim:
        raise ArgumentError(f"first has {first.dim} coordinates and second {second.dim}: they share no masks")
    if is_made_of_draws(first) or is_made_of_draws(second):
        raise ArgumentError("a model made of draws has an inner error: score the two apart and subtract the estimates")
    check_complete(x, "score_difference")
    if other_x is not None:
        check_complete(other_x, "score_difference", "other_x")
    if other_x is not None and other_x.shape != x.shape:
        raise DataError(f"x has shape {tuple(x.shape)} and other_x {tuple(other_x.shape)}: rows are compared in pairs")
    estimate = cumulative_score(
        _pair(first, second, other_x),
        x,
        design=design,
        n_evaluations=n_evaluations,
        target_standard_error=target_standard_error,
        time_limit=time_limit,
        generator=generator,
        per_row=per_row,
    )
    digest = estimate.data_digest if other_x is None else f"{estimate.data_digest} / {data_digest(other_x)}"
    return replace(estimate, estimand=f"difference of {estimate.estimand}", data_digest=digest)


def _pair(first: ConditionalModel, second: ConditionalModel, other_x: Tensor | None) -> _Pair:
    """By the shortest way that both models have."""
    both = (first, second)
    if all(isinstance(model, HasOrderTotals) for model in both):
        return _TotalsDifference(first, second, other_x)
    if all(isinstance(model, HasOrderCurve) for model in both):
        return _OrderDifference(first, second, other_x)
    return _Difference(first, second, other_x)


class _Pair(ConditionalModel):
    """Differences of log-probabilities: not a model of anything, but scored like one."""

    def __init__(self, first: ConditionalModel, second: ConditionalModel, other_x: Tensor | None) -> None:
        self._first, self._second, self._other = first, second, other_x

    @property
    def dim(self) -> int:
        return self._first.dim

    @property
    def device(self) -> torch.device:
        return self._first.device

    def _masked(self, x: Tensor, hidden: Tensor) -> Tensor:
        second = checked_masked_log_prob(self._second, self._beside(x), hidden)
        return checked_masked_log_prob(self._first, x, hidden) - second

    def _beside(self, x: Tensor) -> Tensor:
        """The data of the second model."""
        return x if self._other is None else self._other


@final
class _Difference(_Pair):
    """Mask by mask."""

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self._masked(x, hidden)


@final
class _OrderDifference(_Pair):
    """By whole orders, where both models have a fast path."""

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self._masked(x, hidden)

    def order_curve(self, x: Tensor, orders: Tensor) -> Tensor:
        assert isinstance(self._first, HasOrderCurve)
        assert isinstance(self._second, HasOrderCurve)
        return checked_order_curve(self._first, x, orders) - checked_order_curve(self._second, self._beside(x), orders)


@final
class _TotalsDifference(_Pair):
    """By whole orders summed over rows."""

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self._masked(x, hidden)

    def order_totals(self, x: Tensor, orders: Tensor, *, per_row: bool) -> OrderTotals:
        """The first model's totals less the second's; rows only where both gave them."""
        assert isinstance(self._first, HasOrderTotals)
        assert isinstance(self._second, HasOrderTotals)
        first = checked_order_totals(self._first, x, orders, per_row=per_row)
        second = checked_order_totals(self._second, self._beside(x), orders, per_row=per_row)
        rows = None if first.per_row is None or second.per_row is None else first.per_row - second.per_row
        return OrderTotals(first.curves - second.curves, rows)
