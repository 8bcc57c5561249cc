"""Cholesky factorisation without silent jitter."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpt_bayes.errors import IllConditionedError, NotPositiveDefiniteError


def cholesky(matrices: Tensor, what: str, *, upper: bool = False) -> Tensor:
    """Lower (or upper) Cholesky factors of (..., D, D) matrices, or an error that gives the smallest eigenvalue.

    Nothing is ever added to the diagonal: a caller that wants jitter adds it, and records it.

    Raises:
        NotPositiveDefiniteError: names `what` and the smallest eigenvalue of the first matrix that failed.
    """
    factors: Tensor
    factors, info = torch.linalg.cholesky_ex(matrices, upper=upper)
    if bool((info != 0).any()):
        failed = matrices.reshape(-1, *matrices.shape[-2:])[int((info.reshape(-1) != 0).nonzero()[0])].detach()
        if not bool(failed.isfinite().all()):
            raise NotPositiveDefiniteError(
                f"{what} has entries that are not finite: check the parameters and inputs it was built from",
                float("nan"),
            )
        smallest = float(torch.linalg.eigvalsh(failed)[0])
        raise NotPositiveDefiniteError(
            f"{what} is not positive definite in {str(matrices.dtype).removeprefix('torch.')} "
            f"(smallest eigenvalue {smallest:.3g}): add noise variance, remove coordinates that are constant or repeat "
            "each other" + ("" if matrices.dtype == torch.float64 else ", or use float64"),
            smallest,
        )
    return factors


CONDITION_LIMIT = 2e-4
"""Largest product of condition number and rounding unit that fast sums are trusted with: 9e11 in float64."""


@torch.no_grad()
def check_condition(factor: Tensor, what: str) -> None:
    """Refuse a correlation matrix too nearly singular for its type, from one (D, D) upper factor F, FFᵀ = matrix.

    The largest eigenvalue is bounded by the largest row sum, the smallest found by three steps of inverse iteration:
    six triangular solves, small beside the factorisation.

    Raises:
        IllConditionedError: with the condition number.
    """
    dim = len(factor)
    ones = torch.ones(dim, 1, dtype=factor.dtype, device=factor.device)
    largest = float((factor.abs() @ (factor.abs().T @ ones)).max())
    vector = torch.arange(1, dim + 1, dtype=factor.dtype, device=factor.device).mul(math.sqrt(2)).cos()[:, None]
    growth = 1.0
    for _ in range(3):
        vector = vector / vector.norm()
        vector = torch.linalg.solve_triangular(factor, vector, upper=True)
        vector = torch.linalg.solve_triangular(factor.T, vector, upper=False)
        growth = float(vector.norm())
    refuse_condition(largest * growth, factor.dtype, f"{what} as a correlation matrix")


def refuse_condition(condition: float, dtype: torch.dtype, what: str) -> None:
    """Refuse a condition number above what the type can be trusted with.

    Raises:
        IllConditionedError: with the condition number.
    """
    limit = CONDITION_LIMIT / torch.finfo(dtype).eps
    if not condition <= limit:
        raise IllConditionedError(
            f"{what} has condition number about {condition:.2g}, above the {limit:.2g} that "
            f"{str(dtype).removeprefix('torch.')} can be trusted with: add noise variance, remove coordinates "
            "that repeat each other" + ("" if dtype == torch.float64 else ", or use float64"),
            condition,
        )
