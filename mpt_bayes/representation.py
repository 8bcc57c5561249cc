"""How many directions a set of representations uses."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import checked_tensor
from mpt_bayes.errors import ArgumentError, DataError


def effective_rank(vectors: Tensor, *, tau: float = 0.9, center: bool = False) -> int:
    """The smallest k with Σ_{i≤k} σ_i² ≥ τ Σ_i σ_i², σ the singular values of the matrix in descending order.

    Args:
        vectors: (n, d), one representation a row; computed in float64.
        tau: share of the squared norm to be reached, in (0, 1].
        center: subtract the mean row first. The mean is often the largest direction by far, so centring can change
            1 into 28: say which was used.

    Returns:
        k in 1..min(n, d); 0 for a matrix of zeros (after centring, if asked).

    Raises:
        DataError: not a matrix, no rows, or entries that are not finite.
        ArgumentError: τ outside (0, 1].

    Source: Meng et al. (2023), "Representation deficiency in masked language modeling".

    Example:
        >>> effective_rank(torch.diag(torch.tensor([3.0, 2.0, 1.0])), tau=0.9)
        2
    """
    if checked_tensor(vectors, "vectors").ndim != 2 or len(vectors) == 0:
        raise DataError(f"vectors has shape {tuple(vectors.shape)}: expected (n, d) with at least one row")
    if not 0 < tau <= 1:
        raise ArgumentError(f"tau is {tau}: expected a number in (0, 1]")
    matrix = vectors.to(torch.float64)
    if not bool(matrix.isfinite().all()):
        raise DataError("vectors has entries that are not finite: remove those rows")
    if center:
        matrix = matrix - matrix.mean(0)
    energy = torch.linalg.svdvals(matrix).square()
    shares = energy.cumsum(0)
    if float(shares[-1]) <= 1e-30 * float(vectors.to(torch.float64).square().sum()):  # nothing but rounding is left
        return 0
    reached = shares >= tau * shares[-1] * (1 - 1e-12)  # rounding must not ask for one direction more
    return int(reached.to(torch.int8).argmax()) + 1
