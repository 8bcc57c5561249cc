"""How far a condition number can be trusted: nothing said, a warning, an error. The only home of these limits."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from mpt_bayes.errors import IllConditionedError, MptBayesWarning

PROMISED_CONDITION = 1e8
"""Condition number up to which fast sums in float64 keep `PROMISED_ERROR`, relative; nothing is said. Beyond it errors
grow in proportion (the worst measured against 60-digit arithmetic; most are ten times smaller)."""
PROMISED_ERROR = 1e-9
REFUSED = 2e-4
"""Product of condition number and rounding unit above which nothing is computed: 9e11 in float64."""

_NAMED = 3
_ADVICE = "add noise variance, remove coordinates that repeat each other"


@torch.no_grad()
def check_condition(correlation: Tensor, factor: Tensor, what: str) -> None:
    """Judge a correlation matrix from itself and its (D, D) lower Cholesky factor.

    The largest eigenvalue is bounded by the largest row sum, the smallest found by two steps of inverse iteration:
    two solves, small beside the factorisation. Other types than float64 promise nothing and are not warned.

    Raises:
        IllConditionedError: with the condition number.
    """
    start = torch.arange(1, len(factor) + 1, dtype=factor.dtype, device=factor.device).mul_(math.sqrt(2)).cos_()
    once = torch.cholesky_solve(start[:, None], factor)
    growth = torch.cholesky_solve(once, factor).norm() / once.norm()
    condition = float(correlation.abs().sum(1).max() * growth)
    refuse_condition(condition, factor.dtype, f"{what} as a correlation matrix", correlation)
    if factor.dtype == torch.float64 and condition > PROMISED_CONDITION:
        warnings.warn(
            f"{what} as a correlation matrix has condition number about {condition:.0e}: relative errors of its scores "
            f"may reach {PROMISED_ERROR * condition / PROMISED_CONDITION:.0e}, not the usual {PROMISED_ERROR:.0e}; "
            f"{_ADVICE}",
            MptBayesWarning,
            stacklevel=2,
        )


def refuse_condition(condition: float, dtype: torch.dtype, what: str, covariance: Tensor | None = None) -> None:
    """Refuse a condition number above what the type can be trusted with; of a covariance, what repeats is named.

    Raises:
        IllConditionedError: with the condition number.
    """
    limit = REFUSED / torch.finfo(dtype).eps
    if not condition <= limit:
        raise IllConditionedError(
            f"{what} has condition number about {condition:.2g}, above the {limit:.2g} that "
            f"{str(dtype).removeprefix('torch.')} can be trusted with: {_ADVICE}"
            + ("" if dtype == torch.float64 else ", or use float64")
            + ("" if covariance is None else repeats(covariance)),
            condition,
        )


def repeats(covariance: Tensor) -> str:
    """The end of a message: coordinates without variance, and pairs so correlated that they alone would be refused.

    Empty if there are none. Two coordinates of correlation r have condition number (1 + |r|) / (1 - |r|).
    """
    variance = covariance.diagonal()
    eps = torch.finfo(covariance.dtype).eps
    is_constant = variance <= eps**2 * variance.max()
    scale = variance.where(~is_constant, torch.inf).sqrt()
    correlation = (covariance / scale / scale[:, None]).abs().tril(-1)
    pairs = (correlation > 1 - 2 * eps / REFUSED).nonzero().flip(1).tolist()
    found = [f"coordinate {j} is constant" for j in is_constant.nonzero()[:, 0].tolist()]
    found += [f"coordinates {i} and {j} repeat each other" for i, j in pairs]
    more = [f"{len(found) - _NAMED} more"] * (len(found) > _NAMED)
    return "; here " * bool(found) + ", ".join(found[:_NAMED] + more)
