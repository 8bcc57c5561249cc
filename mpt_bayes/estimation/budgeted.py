"""A budget spent on a model and a table of data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError, BudgetError
from mpt_bayes.estimation.adaptive import adaptive_tally
from mpt_bayes.estimation.budget import Budget
from mpt_bayes.estimation.scores import check_finite, chunk_length
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks import MaskDesign, RandomOrders
from mpt_bayes.models.base import ConditionalModel
from mpt_bayes.models.checked_calls import checked_masked_log_prob
from mpt_bayes.numerics.random import Stream
from mpt_bayes.progress import spans_of

DEFAULT_DESIGN = RandomOrders(64)
LARGEST_KEPT = 2**26
"""Log-probabilities kept row by row, half a gigabyte of them, with which fits take a few times as much; above it only
their sums over rows are, and there are no per-row values."""


def workload(
    design: MaskDesign | None,
    *,
    n_evaluations: int | None,
    target_standard_error: float | None,
    time_limit: float | None,
    n_rows: int,
) -> MaskDesign | Budget:
    """What the caller asked for: a design, or a budget in masks for (row, mask) pairs, or the default design.

    Raises:
        ArgumentError: both a design and a budget, or less than one mask for all rows.
    """
    limits = (n_evaluations, target_standard_error, time_limit)
    if all(limit is None for limit in limits):
        return DEFAULT_DESIGN if design is None else design
    if design is not None:
        raise ArgumentError(
            f"design={design!r} and a budget: a design has its own number of masks, so pass one or the other"
        )
    if n_evaluations is not None and checked_count(n_evaluations, "n_evaluations") < n_rows:
        raise ArgumentError(f"n_evaluations is {n_evaluations} for {n_rows} rows: one mask costs {n_rows} evaluations")
    masks = None if n_evaluations is None else n_evaluations // n_rows
    return Budget(masks, target_standard_error, time_limit)


def tally_budget(model: ConditionalModel, x: Tensor, budget: Budget, stream: Stream) -> Tally:
    """The adaptive estimator on a model: the same masks serve every row, control variates are fitted row by row."""
    try:
        tally = adaptive_tally(evaluator(model, x, most_kept=LARGEST_KEPT), model.dim, budget, stream)
    except BudgetError as error:
        raise BudgetError(
            f"{error}; n_evaluations counts a mask once a row, {len(x)} times (command line: --budget counts it once)"
        ) from None
    if len(tally.per_row) == len(x):
        return tally
    unknown = torch.full((len(x),), torch.nan, dtype=torch.float64)
    return replace(tally, per_row=unknown, n_evaluations=tally.n_evaluations * len(x))


def evaluator(model: ConditionalModel, x: Tensor, *, most_kept: int) -> Callable[[Tensor], Tensor]:
    """From masks (P, D) to log-probabilities (N, P, D), chunk by chunk; to their sum over rows (1, P, D) from the call
    on that would make them more than `most_kept` numbers in all calls together."""
    n_masks = 0

    @torch.no_grad()
    def evaluate(hidden: Tensor) -> Tensor:
        """The log-probabilities of some masks more."""
        nonlocal n_masks
        n_masks += len(hidden)
        keep_rows = len(x) * model.dim * n_masks <= most_kept
        parts = []
        for part in spans_of(len(hidden), chunk_length(len(x), model.dim)):
            log_prob = check_finite(checked_masked_log_prob(model, x, hidden[part].to(x.device)))
            log_prob = log_prob.to("cpu", torch.float64)
            parts.append(log_prob if keep_rows else log_prob.sum(0, keepdim=True))
        return torch.cat(parts, 1)

    return evaluate
