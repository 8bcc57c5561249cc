"""Subsets, sizes and binomial coefficients in log space."""

from __future__ import annotations

import torch
from torch import Tensor


def log_binomial(n: int) -> Tensor:
    """(n + 1,) float64: log C(n, k) for k = 0..n."""
    k = torch.arange(n + 1, dtype=torch.float64)
    top = torch.tensor(n + 1, dtype=torch.float64)
    return torch.lgamma(top) - torch.lgamma(k + 1) - torch.lgamma(top - k)


def log_bernoulli(subsets: Tensor, probability: Tensor | float) -> Tensor:
    """(P,) float64: log probability of each (P, D) bool subset, coordinate i being in it with probability_i.

    Example:
        >>> log_bernoulli(all_subsets(2), 0.25).exp()
        tensor([0.5625, 0.1875, 0.1875, 0.0625], dtype=torch.float64)
    """
    inside = torch.as_tensor(probability, dtype=torch.float64, device=subsets.device)
    return torch.where(subsets, inside.log(), (1 - inside).log()).sum(1)


def all_subsets(dim: int) -> Tensor:
    """(2^D, D) bool: every subset of D coordinates, in binary counting order; the first row is empty.

    Example:
        >>> all_subsets(2).int().tolist()
        [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    return (torch.arange(2**dim)[:, None] >> torch.arange(dim)) & 1 != 0
