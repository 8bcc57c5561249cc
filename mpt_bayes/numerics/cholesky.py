"""Cholesky factorisation without silent jitter."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.errors import NotPositiveDefiniteError
from mpt_bayes.numerics.condition import repeats


def cholesky(matrices: Tensor, what: str, *, upper: bool = False, name_repeats: bool = False) -> Tensor:
    """Lower (or upper) Cholesky factors of (..., D, D) matrices, or an error that gives the smallest eigenvalue.

    `name_repeats` has the error name the coordinates that are constant or repeat each other: of one (D, D) matrix in
    the order of the user's coordinates.
    Nothing is ever added to the diagonal: a caller that wants jitter adds it, and records it.

    Raises:
        NotPositiveDefiniteError: names `what` and the smallest eigenvalue of the first matrix that failed.
    """
    factors: Tensor
    factors, info = torch.linalg.cholesky_ex(matrices, upper=upper)
    if bool(info.any()):
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
            "each other"
            + ("" if matrices.dtype == torch.float64 else ", or use float64")
            + (repeats(failed) if name_repeats else ""),
            smallest,
        )
    return factors
