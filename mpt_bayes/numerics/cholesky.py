"""Cholesky factorisation without silent jitter."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.errors import NotPositiveDefiniteError
from mpt_bayes.numerics.condition import repeats


def cholesky(matrices: Tensor, what: str, *, upper: bool = False, source: Tensor | None = None) -> Tensor:
    """Lower (or upper) Cholesky factors of (..., D, D) matrices, or an error that gives the smallest eigenvalue.

    `source` is the (D, D) matrix that they were rearranged from, whose coordinates the error names; without it, theirs.
    Nothing is ever added to the diagonal: a caller that wants jitter adds it, and records it.

    Raises:
        NotPositiveDefiniteError: names `what`, the smallest eigenvalue of the first matrix that failed, and coordinates
            that are constant or repeat each other.
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
            + repeats(failed if source is None else source.detach()),
            smallest,
        )
    return factors
