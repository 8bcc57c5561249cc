"""Score curve, cumulative score and the score at one rate."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpt_bayes.checks import Missing
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError, EstimandError
from mpt_bayes.estimation.budget import Budget
from mpt_bayes.estimation.budgeted import workload
from mpt_bayes.estimation.missing import check_doors
from mpt_bayes.estimation.realisation import run_design
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks import CUMULATIVE_SCORE, Exhaustive, FixedRate, MaskDesign
from mpt_bayes.models.base import ConditionalModel
from mpt_bayes.numerics.random import seed_from
from mpt_bayes.results import Estimate, ScoreCurve


def score_curve(
    model: ConditionalModel,
    x: Tensor,
    *,
    design: MaskDesign | None = None,
    n_evaluations: int | None = None,
    target_standard_error: float | None = None,
    time_limit: float | None = None,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
    per_row: bool = True,
) -> ScoreCurve:
    """The masked-prediction score S(m) at every mask size, with standard errors.

    S(m) is the average, over masks M of size m, of (1/m) Σ_{j∈M} log p(x_j | x_visible); Σ_m S(m) = log p(x) for a
    coherent model (Fong and Holmes 2020, Proposition 2; Moreno-Muñoz, Recasens and Hauberg 2023, Proposition 1).

    Args:
        model: any conditional model.
        x: (N, D) data; the same masks serve every row.
        design: which masks; its estimand must be the cumulative score. None, without a budget, is RandomOrders(64).
        n_evaluations: a budget of (row, mask) pairs instead of a design: the adaptive estimator spends it (cheap ends
            enumerated, Neyman allocation after a pilot, cross-fitted control variates; see `Budget`).
        target_standard_error: of the total, in nats: the adaptive estimator stops as soon as it is reached.
        time_limit: seconds, about; the adaptive estimator stops in time.
        generator: source of the masks; None means seed 0. The result's `seed` replays it.
        missing: "error", or "marginalise" to integrate NaN entries out exactly (joint models).
        per_row: False leaves out each row's own total where sums over rows cost less (Gaussians with many rows).

    Returns:
        A ScoreCurve, in total nats over the rows.

    Raises:
        EstimandError: a design that does not estimate the cumulative score.
        ArgumentError: a design and a budget together; a target with rows that miss different entries.
        BudgetError: too few evaluations for a standard error.
        DataError: wrong shape, missing or infinite entries, a score that is not finite (row named).
        ModelError: a model of your own whose `dim` or results are of another kind or shape; nothing is broadcast.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
        >>> curve = mb.score_curve(model, torch.zeros(5, 3), design=mb.masks.Exhaustive())
        >>> curve.scores.shape, curve.total.standard_error
        ((3,), 0.0)
    """
    check_doors(model, x)
    work = workload(
        design,
        n_evaluations=n_evaluations,
        target_standard_error=target_standard_error,
        time_limit=time_limit,
        n_rows=len(x),
    )
    if isinstance(work, MaskDesign) and work.estimand(model.dim) != CUMULATIVE_SCORE:
        raise EstimandError(
            f"{work!r} estimates the '{work.estimand(model.dim)}', not the cumulative score: use masked_score for "
            "one rate or such a design, or a design that visits every mask, e.g. RandomOrders(64)"
        )
    seed = seed_from(generator)
    tally = run_design(model, x, work, seed, missing, per_row=per_row)
    return curve_of(tally, _estimate(tally, x, work, seed, CUMULATIVE_SCORE))


def curve_of(tally: Tally, total: Estimate) -> ScoreCurve:
    """The curve of a tally, with its total; sizes without a score or an error of their own are counted in its note."""
    deviations = tally.score_variances.sqrt().numpy()
    unvisited = int(tally.scores.isnan().sum())
    alone = int(tally.score_variances.isnan().sum()) - unvisited
    notes = [f"{unvisited} sizes were not visited"] * bool(unvisited) + [
        f"{alone} sizes have one mask and so no standard error of their own"
    ] * bool(alone)
    return ScoreCurve(
        scores=tally.scores.numpy(),
        standard_errors=deviations,
        total=total,
        partials=tally.partials.numpy(),
        partial_standard_errors=tally.partial_variances.sqrt().numpy(),
        partial_degrees_of_freedom=_degrees_of_freedom(tally.partial_variances, tally.partial_quartics).numpy(),
        score_degrees_of_freedom=_degrees_of_freedom(tally.score_variances, tally.score_quartics).numpy(),
        inner_standard_errors=_roots(tally.score_inner_variances),
        partial_inner_standard_errors=_roots(tally.partial_inner_variances),
        note="; ".join(notes),
    )


def _roots(variances: Tensor | None) -> NDArray[np.float64] | None:
    return None if variances is None else variances.sqrt().numpy()


def cumulative_score(
    model: ConditionalModel,
    x: Tensor,
    *,
    design: MaskDesign | None = None,
    n_evaluations: int | None = None,
    target_standard_error: float | None = None,
    time_limit: float | None = None,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
    per_row: bool = True,
) -> Estimate:
    """Σ_m S(m) with its standard error: the total of `score_curve`, whose arguments and errors it shares.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(2), torch.eye(2))
        >>> mb.cumulative_score(model, torch.zeros(1, 2), design=mb.masks.Exhaustive())
        Estimate(cumulative score: -1.83788 ± 0 nats, N=1, Exhaustive(max_masks=1048576))
    """
    return score_curve(
        model,
        x,
        design=design,
        n_evaluations=n_evaluations,
        target_standard_error=target_standard_error,
        time_limit=time_limit,
        generator=generator,
        missing=missing,
        per_row=per_row,
    ).total


def masked_score(
    model: ConditionalModel,
    x: Tensor,
    *,
    rate: float | None = None,
    n_masks: int = 64,
    design: MaskDesign | None = None,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
) -> Estimate:
    """S(m) at the single size m = round(rate · D), labelled as such. Total nats over the rows, per hidden coordinate.

    This is what masked pre-training at one mask rate measures. D · S(m) is a biased estimate of log p(x), and no
    function of this library treats it as one. With `design` instead of `rate`, the weighted mean score of any design
    under that design's own name: a policy that leaves masks without probability is scored here, and only here.

    Raises:
        ArgumentError: neither or both of rate and design.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(4), torch.eye(4))
        >>> mb.masked_score(model, torch.zeros(1, 4), rate=0.5, n_masks=8).estimand
        'masked score at rate 0.5'
    """
    check_doors(model, x)
    if (rate is None) == (design is None):
        raise ArgumentError("masked_score takes a rate or a design: pass one of the two")
    design = FixedRate(rate, n_masks) if rate is not None else design
    assert design is not None
    seed = seed_from(generator)
    tally = run_design(model, x, design, seed, missing)
    return _estimate(tally, x, design, seed, design.estimand(model.dim))


def _estimate(tally: Tally, x: Tensor, design: MaskDesign | Budget, seed: int, estimand: str) -> Estimate:
    error, inner = math.sqrt(float(tally.partial_variances[-1])), _roots(tally.partial_inner_variances)
    target = design.target_standard_error if isinstance(design, Budget) else None
    notes = ["a standard error needs at least two independent draws: raise the design's number"] * math.isnan(error)
    if target is not None and error > target:
        notes.append(f"the budget ended before the standard error reached {target:g}")
    per_row = None if bool(tally.per_row.isnan().any()) else tally.per_row.numpy()
    if per_row is None:
        notes.append("no per-row values: not asked for, or too many to keep")
    return Estimate(
        value=float(tally.partials[-1]),
        standard_error=None if math.isnan(error) else error,
        degrees_of_freedom=float(_degrees_of_freedom(tally.partial_variances, tally.partial_quartics)[-1]),
        estimand=estimand,
        n_data=len(x),
        n_evaluations=tally.n_evaluations,
        seed=None if isinstance(design, Exhaustive) else seed,
        design=repr(design),
        data_digest=data_digest(x),
        per_row=per_row,
        inner_standard_error=None if inner is None else float(inner[-1]),
        note="; ".join(notes),
    )


def _degrees_of_freedom(variances: Tensor, quartics: Tensor) -> Tensor:
    return torch.where(quartics == 0, torch.inf, variances.square() / quartics)
