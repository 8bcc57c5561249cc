"""How far a condition number can be trusted: nothing, a warning, an error. The only home of these limits."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from mpt_bayes.errors import IllConditionedError, MptBayesWarning

REFUSED = 2e-4
"""Largest product of condition number and rounding unit that fast sums are made with: 9e11 in float64."""
PROMISED = 1e-9
"""Relative error of fast sums in float64, up to which nothing is said."""
ERROR_PER_CONDITION = 0.01
"""Relative error of fast sums over (condition number x rounding unit), measured against 60-digit arithmetic."""


@torch.no_grad()
def check_condition(correlation: Tensor, factor: Tensor, what: str) -> None:
    """Judge a correlation matrix from itself and its (D, D) lower Cholesky factor.

    The largest eigenvalue is bounded by the largest row sum, the smallest found by two steps of inverse iteration:
    four triangular solves, small beside the factorisation.

    Raises:
        IllConditionedError: as `judge_condition`.
    """
    start = torch.arange(1, len(factor) + 1, dtype=factor.dtype, device=factor.device).mul_(math.sqrt(2)).cos_()
    once = _solve(factor, start[:, None])
    growth = _solve(factor, once).norm() / once.norm()
    judge_condition(float(correlation.abs().sum(1).max() * growth), factor.dtype, f"{what} as a correlation matrix")


def _solve(factor: Tensor, vector: Tensor) -> Tensor:
    inner = torch.linalg.solve_triangular(factor, vector, upper=False)
    return torch.linalg.solve_triangular(factor.T, inner, upper=True)


def judge_condition(
    condition: float, dtype: torch.dtype, what: str, *, error_per_condition: float = ERROR_PER_CONDITION
) -> None:
    """Nothing up to where fast sums in float64 keep 1e-9; beyond, a warning; an error above what the type can carry.

    Raises:
        IllConditionedError: with the condition number.
    """
    rounding = torch.finfo(dtype).eps
    name = str(dtype).removeprefix("torch.")
    advice = "add noise variance, remove coordinates that repeat each other"
    if not condition <= REFUSED / rounding:
        raise IllConditionedError(
            f"{what} has condition number about {condition:.2g}, above the {REFUSED / rounding:.2g} that "
            f"{name} can be trusted with: {advice}" + ("" if dtype == torch.float64 else ", or use float64"),
            condition,
        )
    expected = error_per_condition * condition * rounding
    if dtype == torch.float64 and expected > PROMISED:
        warnings.warn(
            f"{what} has condition number about {condition:.0e}: expect relative errors of about {expected:.0e} in its "
            f"scores, above the usual {PROMISED:.0e}; {advice}",
            MptBayesWarning,
            stacklevel=2,
        )
