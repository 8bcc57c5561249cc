"""Gaussian conditionals given any subset: one Cholesky factorisation a subset, its visible coordinates first."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mpt_bayes.numerics.cholesky import cholesky


class VisibleFirst(NamedTuple):
    """P subsets of D coordinates, N rows.

    Attributes:
        order: (P, D) coordinates, visible ones first.
        is_hidden: (P, D, 1), in that order.
        factor: (P, D, D) Cholesky factors L.
        alpha: (P, D, N) L⁻¹ of the centred rows.
    """

    order: Tensor
    is_hidden: Tensor
    factor: Tensor
    alpha: Tensor

    def hidden_moments(self) -> tuple[Tensor, Tensor]:
        """Residuals (P, D, N) and variances (P, D, 1) of hidden steps: sums over the hidden tail of each row of L.

        Sums of positives, so that no variance cancels. Visible steps have variance 1.
        """
        tail = torch.where(self.is_hidden.mT, self.factor, 0)
        variance = torch.where(self.is_hidden, tail.square().sum(2, keepdim=True), 1)
        return tail @ self.alpha, variance

    def hidden_only(self, values: Tensor) -> Tensor:
        """(N, P, D) from (P, D, N): values of hidden steps put back at their coordinates, 0 where visible."""
        back = self.order.argsort(1)[..., None].expand(-1, -1, values.shape[2])
        return torch.where(self.is_hidden, values, 0).gather(1, back).permute(2, 0, 1)

    def visible_sum(self, values: Tensor) -> Tensor:
        """(N, P) from (P, D, N) or (P, D, 1): the sum over visible steps."""
        return torch.where(self.is_hidden, 0, values).sum(1).T


def visible_first(covariance: Tensor, centred: Tensor, visible: Tensor, what: str) -> VisibleFirst:
    """A (D, D) covariance factored for each of the (P, D) subsets; `centred` holds the (N, D) rows minus the mean."""
    order = (~visible).to(torch.int8).argsort(dim=1, stable=True)
    factor = cholesky(covariance[order[:, :, None], order[:, None, :]], what)
    alpha = torch.linalg.solve_triangular(factor, centred.T[order], upper=False)
    steps = torch.arange(visible.shape[1], device=visible.device)
    return VisibleFirst(order, (steps >= visible.sum(1)[:, None])[..., None], factor, alpha)
