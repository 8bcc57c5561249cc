"""The exact log marginal likelihood beside the cumulative score."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import Missing
from mpt_bayes.errors import ArgumentError
from mpt_bayes.estimation.curve import score_curve
from mpt_bayes.estimation.inner import inner_standard_error
from mpt_bayes.estimation.missing import check_doors, observed_parts
from mpt_bayes.estimation.scores import check_finite
from mpt_bayes.masks import MaskDesign
from mpt_bayes.models.base import ConditionalModel, JointModel
from mpt_bayes.models.checked_calls import checked_log_marginal_likelihood
from mpt_bayes.results import Comparison


@torch.no_grad()
def log_marginal_likelihood(model: JointModel, x: Tensor, *, missing: Missing = "error") -> Tensor:
    """(N,) exact log p(x_n) in nats, row by row; an entry that is missing is integrated out when asked.

    Args:
        model, x, missing: as for `score_curve`; a row with nothing observed has log p = 0.

    Raises:
        ArgumentError: a model that is a set of conditionals without a joint distribution.
        DataError: as `score_curve`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(2), torch.eye(2))
        >>> x = torch.tensor([[0.0, float("nan")]])
        >>> mb.log_marginal_likelihood(model, x, missing="marginalise")
        tensor([-0.9189], dtype=torch.float64)
    """
    check_doors(model, x)
    result = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for part in observed_parts(model, x, missing):
        if not isinstance(part.model, JointModel):
            raise ArgumentError(
                f"{type(model).__name__} is a set of conditionals without a joint distribution, so it has no "
                "log marginal likelihood: use score_curve or cumulative_score"
            )
        result[part.rows] = checked_log_marginal_likelihood(part.model, part.x).to(torch.float64)
    return check_finite(result)


def known_log_marginal_likelihood(model: ConditionalModel, x: Tensor, missing: Missing) -> float | None:
    """Total over the rows, or None for a set of conditionals without a joint distribution."""
    return float(log_marginal_likelihood(model, x, missing=missing).sum()) if isinstance(model, JointModel) else None


def compare(
    model: JointModel,
    x: Tensor,
    *,
    design: MaskDesign | None = None,
    n_evaluations: int | None = None,
    target_standard_error: float | None = None,
    time_limit: float | None = None,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
    per_row: bool = True,
) -> Comparison:
    """Both sides of log p(x) = Σ_m S(m): the exact log marginal likelihood beside the cumulative score.

    Fong and Holmes (2020), Proposition 2; Moreno-Muñoz, Recasens and Hauberg (2023), Proposition 1. Total nats.

    Args:
        model: with an exact log marginal likelihood.
        x, design, n_evaluations, target_standard_error, time_limit, generator, missing, per_row: as for `score_curve`.

    Raises:
        ArgumentError: a model that is a set of conditionals without a joint distribution; otherwise as `score_curve`.
        EstimandError, BudgetError, DataError: as `score_curve`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
        >>> abs(mb.compare(model, torch.ones(1, 3), design=mb.masks.Exhaustive()).difference) < 1e-12
        True
    """
    log_prob = log_marginal_likelihood(model, x, missing=missing)
    curve = score_curve(
        model,
        x,
        design=design,
        n_evaluations=n_evaluations,
        target_standard_error=target_standard_error,
        time_limit=time_limit,
        generator=generator,
        missing=missing,
        per_row=per_row,
    )
    inner = inner_standard_error(model, x, missing)
    return Comparison(float(log_prob.sum()), log_prob.cpu().numpy(), curve, inner)
