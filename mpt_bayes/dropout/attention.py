"""Masked tokens left out of the attention: columns set to zero and rows renormalised, and its average over masks."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import check_tensors
from mpt_bayes.errors import ArgumentError, BudgetError, DataError
from mpt_bayes.numerics.combinatorics import all_subsets, log_bernoulli


def mask_columns(attention: Tensor, hidden: Tensor) -> Tensor:
    """(…, n, n) Norm(A ε): the columns of hidden tokens set to zero, every row divided by what is left of it.

    The same as leaving the hidden tokens' keys out of the softmax. A row with every column hidden is 0/0 and is DEFINED
    as zero: such a token reads nothing, and its residual stream passes unchanged.

    Args:
        attention: (…, n, n) non-negative, rows summing to one.
        hidden: (…, n) bool, True = hidden, broadcast over the leading dimensions.

    Raises:
        ArgumentError: hidden of another shape or dtype.
        DataError: attention of another shape, negative or not finite.

    Example:
        >>> mask_columns(torch.full((2, 2), 0.5), torch.tensor([False, True]))
        tensor([[1., 0.],
                [1., 0.]])
    """
    check_tensors(attention=attention, hidden=hidden)
    if attention.ndim < 2 or attention.shape[-1] != attention.shape[-2]:
        raise DataError(f"attention has shape {tuple(attention.shape)}: expected (…, n, n)")
    if hidden.dtype != torch.bool or hidden.shape[-1:] != attention.shape[-1:]:
        raise ArgumentError(
            f"hidden has shape {tuple(hidden.shape)} and dtype {hidden.dtype}: expected (…, {attention.shape[-1]}) bool"
        )
    if not bool(((attention >= 0) & attention.isfinite()).all()):
        raise DataError("attention has negative, infinite or NaN entries: expected the output of a softmax")
    left = attention.masked_fill(hidden.unsqueeze(-2), 0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total > 0, left / torch.where(total > 0, total, 1), 0)


def average_over_masks(attention: Tensor, keep: float, *, max_masks: int = 2**16) -> Tensor:
    """(n, n) E_ε Norm(A ε), ε_j ~ Bernoulli(keep) independent: model averaging of the attention. Exact, over 2^n masks.

    Weight averaging says Norm(keep · A) = A: nothing to correct. This average is not A: a column's share of a row grows
    less than in proportion, so attention moves from large entries to small ones. With probability (1 - keep)^n nothing
    is kept and the row is zero (see `mask_columns`); rows therefore sum to 1 - (1 - keep)^n.

    Args:
        attention: (n, n) non-negative, rows summing to one.
        keep: probability of keeping a column, in (0, 1].
        max_masks: refuse above this number of masks.

    Raises:
        BudgetError: 2^n exceeds `max_masks`.

    Source: Su (2021).

    Example:
        >>> average = average_over_masks(torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64), keep=0.5)
        >>> average.sum(1)
        tensor([0.7500, 0.7500], dtype=torch.float64)
    """
    check_tensors(attention=attention)
    if attention.ndim != 2 or attention.shape[0] != attention.shape[1]:
        raise DataError(f"attention has shape {tuple(attention.shape)}: expected (n, n)")
    if not 0 < keep <= 1:
        raise ArgumentError(f"keep is {keep}: expected a probability in (0, 1]")
    n = len(attention)
    if 2**n > max_masks:
        raise BudgetError(f"{n} columns have 2^{n} masks, above the budget max_masks={max_masks}: raise max_masks")
    hidden = all_subsets(n).to(attention.device)
    weight = log_bernoulli(hidden, 1 - keep).exp().to(attention.dtype)
    return torch.einsum("p,pij->ij", weight, mask_columns(attention, hidden))
