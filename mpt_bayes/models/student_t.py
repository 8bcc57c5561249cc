"""The multivariate Student-t: a Gaussian whose scale is itself unknown."""

from __future__ import annotations

import math
from typing import Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import check_tensors, checked_data, checked_hidden, checked_orders, checked_subsets
from mpt_bayes.errors import ModelError
from mpt_bayes.models.base import JointModel
from mpt_bayes.models.gaussian import Gaussian
from mpt_bayes.numerics.log_space import LOG_2PI
from mpt_bayes.numerics.nested import Columns, sum_after
from mpt_bayes.numerics.order_curves import row_curves
from mpt_bayes.numerics.visible import VisibleFirst, visible_first


@final
class StudentT(JointModel):
    """x ~ t_ν(location, scale): a Gaussian with covariance scale · s, where ν / s ~ χ²(ν).

    Given r visible coordinates with quadratic form q = (x_R - μ_R)ᵀ S_RR⁻¹ (x_R - μ_R), a hidden one is Student-t with
    ν + r degrees of freedom, the mean of the Gaussian case, and its variance times (ν + q) / (ν + r) as the squared
    scale (Ding 2016, On the conditional distribution of the multivariate t distribution). The responses of a Bayesian
    linear regression with a normal-inverse-gamma prior are such a vector.

    Args:
        location: (D,).
        scale: (D, D), symmetric positive definite: the covariance is ν / (ν - 2) times it, for ν > 2.
        degrees_of_freedom: ν > 0; a number, or a tensor of shape () that may carry gradients.
        dtype: of the computation; the parameters and the data are converted to it.

    Raises:
        DataError: a location or scale that is no tensor.
        ModelError: shapes that disagree, a scale that is not symmetric, ν that is not positive.
        NotPositiveDefiniteError: gives the smallest eigenvalue.

    Example:
        >>> model = StudentT(torch.zeros(1), torch.eye(1), 1.0)  # Cauchy
        >>> float(model.log_marginal_likelihood(torch.zeros(1, 1)).exp()) * math.pi
        1.0
    """

    def __init__(
        self,
        location: Tensor,
        scale: Tensor,
        degrees_of_freedom: float | Tensor,
        *,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        check_tensors(location=location, scale=scale)
        self._shape = Gaussian(location, scale, dtype=dtype)
        self.degrees_of_freedom = torch.as_tensor(degrees_of_freedom, dtype=dtype, device=location.device)
        if self.degrees_of_freedom.ndim != 0 or not bool(self.degrees_of_freedom > 0):
            raise ModelError(f"degrees_of_freedom is {degrees_of_freedom}: expected one positive number")

    @property
    def location(self) -> Tensor:
        """(D,)."""
        return self._shape.mean

    @property
    def scale(self) -> Tensor:
        """(D, D)."""
        return self._shape.covariance

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return self._shape.dim

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self._shape.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible): one Cholesky factorisation a mask, shared by all rows."""
        checked_hidden(hidden, self.dim, self.device)
        split = self._split(x, ~hidden)
        residual, variance = split.hidden_moments()
        n_visible = (~hidden).sum(1)[:, None, None].to(residual.dtype)
        mass = self.degrees_of_freedom + split.visible_sum(split.alpha.square()).T[:, None]  # ν + q, (P, 1, N)
        log_prob = self._constant(n_visible, 1) - 0.5 * (
            (mass * variance).log()
            + (self.degrees_of_freedom + n_visible + 1) * (residual.square() / (mass * variance)).log1p()
        )
        return split.hidden_only(log_prob)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log t_ν(x; location, scale)."""
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log t_ν(x_visible; ·): every marginal is a Student-t with the same ν."""
        checked_subsets(visible, self.dim, "visible", self.device)
        split = self._split(x, visible)
        nu = self.degrees_of_freedom
        size = visible.sum(1).to(nu.dtype)
        log_det = split.visible_sum(split.factor.diagonal(dim1=1, dim2=2).log()[..., None])  # (1, P)
        misfit = split.visible_sum(split.alpha.square()) / nu
        kernel = -log_det - 0.5 * (size * nu.log() + (nu + size) * misfit.log1p())
        return kernel + self._constant(torch.zeros_like(size), size)

    def order_curve(self, x: Tensor, orders: Tensor) -> Tensor:
        """(N, n, D) the scores of all nested masks of each order: one Cholesky factorisation an order.

        Differentiable in the location, the scale and the degrees of freedom.

        Raises:
            IllConditionedError: a scale too nearly singular for the dtype of the computation.
        """
        x = checked_data(x, self.dim, dtype=self.location.dtype, device=self.device)
        orders = checked_orders(orders, self.dim, self.device)
        return row_curves(self.scale, x - self.location, orders, self._data_term)

    def restrict(self, keep: Tensor) -> Self:
        """The marginal Student-t of coordinates `keep`."""
        scale = self.scale[keep][:, keep]
        return type(self)(self.location[keep], scale, self.degrees_of_freedom, dtype=self.location.dtype)

    def _data_term(self, quadratic: Tensor, alpha: Tensor, at: Columns) -> Tensor:
        """What a Student-t adds to -½ log(2π variance), summed over hidden coordinates."""
        n_visible = self.dim - at.sizes
        seen = sum_after(alpha.square())  # in reversed order: over the steps revealed before
        mass = self.degrees_of_freedom + seen[..., at.lo : at.hi]  # (n, r, width)
        tail = (quadratic / mass[..., None, :]).log1p().sum(-2)
        constant = self._constant(n_visible, 1) + 0.5 * LOG_2PI
        return at.sizes * (constant - 0.5 * mass.log()) - 0.5 * (self.degrees_of_freedom + n_visible + 1) * tail

    def _constant(self, n_visible: Tensor, n_hidden: Tensor | float) -> Tensor:
        """log Γ((ν + r + h) / 2) - log Γ((ν + r) / 2) - h / 2 · log π, for r visible and h hidden coordinates."""
        half = (self.degrees_of_freedom + n_visible) / 2
        return torch.lgamma(half + n_hidden / 2) - torch.lgamma(half) - n_hidden / 2 * math.log(math.pi)

    def _split(self, x: Tensor, visible: Tensor) -> VisibleFirst:
        x = checked_data(x, self.dim, dtype=self.location.dtype, device=self.device)
        return visible_first(self.scale, x - self.location, visible, "scale")
