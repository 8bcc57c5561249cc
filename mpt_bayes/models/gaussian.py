"""The multivariate Gaussian with a dense covariance."""

from __future__ import annotations

from typing import Self, final

import torch
from torch import Tensor
from torch.distributions import Distribution

from mpt_bayes.checks import check_tensors, checked_data, checked_hidden, checked_orders, checked_subsets
from mpt_bayes.errors import ModelError
from mpt_bayes.models.base import JointModel, OrderTotals
from mpt_bayes.numerics.cholesky import cholesky
from mpt_bayes.numerics.log_space import LOG_2PI
from mpt_bayes.numerics.order_curves import gaussian_totals, row_curves
from mpt_bayes.numerics.visible import VisibleFirst, visible_first


@final
class Gaussian(JointModel):
    """x ~ N(mean, covariance), computed in float64 unless `dtype` says otherwise.

    With the visible coordinates first, L = chol(Σ) and α = L⁻¹(x - μ), the conditional of a hidden j given r visible
    ones has variance Σ_{s>r} L_js² and residual Σ_{s>r} L_js α_s: sums of positives, so no cancellation.

    Args:
        mean: (D,).
        covariance: (D, D), symmetric positive definite.
        dtype: of the computation; the parameters and the data are converted to it.

    Raises:
        ModelError: shapes that disagree, or a covariance that is not symmetric.
        NotPositiveDefiniteError: gives the smallest eigenvalue, and coordinates that are constant or repeat each other.

    Example:
        >>> model = Gaussian(torch.zeros(2), torch.eye(2))
        >>> model.masked_log_prob(torch.zeros(1, 2), torch.tensor([[True, False]]))
        tensor([[[-0.9189,  0.0000]]], dtype=torch.float64)
    """

    def __init__(self, mean: Tensor, covariance: Tensor, *, dtype: torch.dtype = torch.float64) -> None:
        check_tensors(mean=mean, covariance=covariance)
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
            raise ModelError(
                f"mean has shape {tuple(mean.shape)} and covariance {tuple(covariance.shape)}: expected (D,) and (D, D)"
            )
        if mean.device != covariance.device:
            raise ModelError(f"mean is on {mean.device} but covariance on {covariance.device}: move one of them")
        self.mean = mean.to(dtype)
        self.covariance = covariance.to(dtype)
        asymmetry = (self.covariance - self.covariance.T).abs().max()
        if bool(asymmetry > 1e-6 * self.covariance.abs().max()):
            raise ModelError(f"covariance is not symmetric (largest difference {float(asymmetry):.3g})")
        cholesky(self.covariance, "covariance", name_repeats=True)

    @classmethod
    def from_distribution(cls, distribution: Distribution) -> Self:
        """From a torch or gpytorch MultivariateNormal without batch dimensions.

        Raises:
            ModelError: a batch, or a distribution that has no covariance matrix.
        """
        covariance = getattr(distribution, "covariance_matrix", None)
        if covariance is None:
            raise ModelError(f"{type(distribution).__name__} has no covariance matrix: expected a MultivariateNormal")
        return cls(distribution.mean, covariance)

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return len(self.mean)

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.mean.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible): one Cholesky factorisation a mask, shared by all rows."""
        checked_hidden(hidden, self.dim, self.device)
        split = self._split(x, ~hidden)
        residual, variance = split.hidden_moments()
        return split.hidden_only(-0.5 * (residual.square() / variance + variance.log() + LOG_2PI))

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log N(x; mean, covariance)."""
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log N(x_visible; ·): the first |visible| terms of the same factorisation."""
        checked_subsets(visible, self.dim, "visible", self.device)
        split = self._split(x, visible)
        log_scale = split.factor.diagonal(dim1=1, dim2=2).log()[..., None]
        return split.visible_sum(-0.5 * (split.alpha.square() + LOG_2PI) - log_scale)

    def order_curve(self, x: Tensor, orders: Tensor) -> Tensor:
        """(N, n, D) the scores of all nested masks of each order: one Cholesky factorisation an order.

        Differentiable in the mean and the covariance.

        Raises:
            IllConditionedError: a covariance too nearly singular for the dtype of the computation.
        """
        x = checked_data(x, self.dim, dtype=self.mean.dtype, device=self.device)
        orders = checked_orders(orders, self.dim, self.device)
        return row_curves(self.covariance, x - self.mean, orders)

    def order_totals(self, x: Tensor, orders: Tensor, *, per_row: bool) -> OrderTotals:
        """The curves of `order_curve` summed over rows, which enter by their second moments: time flat in N."""
        x = checked_data(x, self.dim, dtype=self.mean.dtype, device=self.device)
        orders = checked_orders(orders, self.dim, self.device)
        return OrderTotals(*gaussian_totals(self.covariance, x, self.mean, orders, per_row=per_row))

    def restrict(self, keep: Tensor) -> Self:
        """The marginal Gaussian of coordinates `keep`."""
        return type(self)(self.mean[keep], self.covariance[keep][:, keep], dtype=self.mean.dtype)

    def __repr__(self) -> str:
        return f"Gaussian(D={self.dim})"

    def _split(self, x: Tensor, visible: Tensor) -> VisibleFirst:
        x = checked_data(x, self.dim, dtype=self.mean.dtype, device=self.device)
        return visible_first(self.covariance, x - self.mean, visible, "covariance")
