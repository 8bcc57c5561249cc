"""Sums of exponentials by matrix products, without underflow and without NaN from zero probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)

_BLOCK = 2**22
"""Numbers in one block of the slow exact path."""


def subset_sums(values: Tensor, subsets: Tensor) -> Tensor:
    """Σ_{j∈A} values_j for every subset A, with -∞ entries counted only where they belong to A.

    A matrix product would give -∞ · 0 = NaN, so infinite entries are counted apart.

    Args:
        values: (..., K, D), finite or -∞.
        subsets: (P, D) bool.

    Returns:
        (..., K, P).

    Example:
        >>> subset_sums(torch.tensor([[-1.0, -math.inf]]), torch.tensor([[True, False], [True, True]]))
        tensor([[-1., -inf]])
    """
    indicator = subsets.T.to(values.dtype)
    impossible = values.isneginf()
    if not bool(impossible.any()):
        return values @ indicator
    sums = torch.where(impossible, 0, values) @ indicator
    return torch.where(impossible.to(values.dtype) @ indicator > 0, -math.inf, sums)


def log_matmul(left: Tensor, right: Tensor) -> Tensor:
    """log(exp(left) @ exp(right)), one matrix product, exact where that product underflows.

    Rows of `left` and columns of `right` are shifted by their largest entry first. Elements whose product falls so
    low that lost terms could matter are summed again in log space.

    Args:
        left: (B, P, K), finite or -∞.
        right: (B, K, D) or (K, D), finite or -∞.

    Returns:
        (B, P, D); -∞ where every term is.

    Example:
        >>> log_matmul(torch.tensor([[[0.0, -2000.0]]]), torch.tensor([[[-2000.0], [-1.0]]]))
        tensor([[[-1999.6868]]])
    """
    right = right.expand(len(left), *right.shape[-2:])
    top_left = _finite_max(left, 2)
    top_right = _finite_max(right, 1)
    product = (left - top_left).exp() @ (right - top_right).exp()
    info = torch.finfo(left.dtype)
    low = product < left.shape[2] * info.tiny / info.eps
    result = torch.where(low, 1, product).log() + top_left + top_right
    if not bool(low.any()):
        return result
    b, p, d = low.nonzero(as_tuple=True)
    block = max(1, _BLOCK // left.shape[2])
    again = [
        (left[b[i : i + block], p[i : i + block]] + right[b[i : i + block], :, d[i : i + block]]).logsumexp(1)
        for i in range(0, len(b), block)
    ]
    return result.index_put((b, p, d), torch.cat(again))


def _finite_max(values: Tensor, dim: int) -> Tensor:
    """The largest entry along `dim`, or 0 where every entry is -∞: a constant, no gradient needed."""
    top = values.detach().amax(dim, keepdim=True)
    return torch.where(top.isneginf(), 0, top)
