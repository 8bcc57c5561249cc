"""Subsets, sizes and binomial coefficients in log space."""

from __future__ import annotations

import torch
from torch import Tensor


def log_binomial(n: int) -> Tensor:
    """(n + 1,) float64: log C(n, k) for k = 0..n."""
    k = torch.arange(n + 1, dtype=torch.float64)
    top = torch.tensor(n + 1, dtype=torch.float64)
    return torch.lgamma(top) - torch.lgamma(k + 1) - torch.lgamma(top - k)


def all_subsets(dim: int) -> Tensor:
    """(2^D, D) bool: every subset of D coordinates, in binary counting order; the first row is empty.

    Example:
        >>> all_subsets(2).int().tolist()
        [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    return (torch.arange(2**dim)[:, None] >> torch.arange(dim)) & 1 != 0
