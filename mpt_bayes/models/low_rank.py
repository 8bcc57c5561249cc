"""Gaussians whose covariance is low rank plus diagonal: everything through the K × K latent posterior precision."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple, Self

import torch
from torch import Tensor

from mpt_bayes.checks import check_tensors, checked_count, checked_data, checked_hidden, checked_orders, checked_subsets
from mpt_bayes.errors import ArgumentError, ModelError
from mpt_bayes.models.base import JointModel, OrderTotals
from mpt_bayes.numerics.log_space import LOG_2PI
from mpt_bayes.numerics.nested_low_rank import low_rank_row_curves, low_rank_totals
from mpt_bayes.numerics.order_curves import gaussian_totals

DENSE_UP_TO = 512
"""Coordinates up to which forming the covariance costs nothing worth saving."""
ROWS_A_LATENT = 2
"""Rows a latent variable up to which residuals row by row cost less than sums over rows."""


class LowRankParameters(NamedTuple):
    """loading (D, K), noise (D,) and mean (D,)."""

    loading: Tensor
    noise: Tensor
    mean: Tensor


class LowRankGaussian(JointModel):
    """x = mean + loading z + e with z ~ N(0, I_K) and e ~ N(0, diag(noise)); Σ = W Wᵀ + Ψ is never formed.

    Given visible coordinates R the latent posterior has precision Λ = I + Σ_{i∈R} w_i w_iᵀ / ψ_i and mean
    ẑ = Λ⁻¹ Σ_{i∈R} w_i (x_i - μ_i) / ψ_i, so that a hidden coordinate is N(μ_j + w_jᵀ ẑ, ψ_j + w_jᵀ Λ⁻¹ w_j). The
    quadratic form of a marginal is taken in residual form, Σ_{i∈R} (x_i - μ_i - w_iᵀ ẑ)² / ψ_i + ẑᵀ ẑ: a sum of
    positives, where the usual difference of two large numbers would cancel.
    """

    _parameters: LowRankParameters | None
    _latent_dim: int
    _dtype: torch.dtype

    @property
    def loading(self) -> Tensor:
        """W, (D, K)."""
        return self._fitted().loading

    @property
    def noise(self) -> Tensor:
        """ψ, (D,): the variance of each coordinate around W z."""
        return self._fitted().noise

    @property
    def mean(self) -> Tensor:
        """μ, (D,)."""
        return self._fitted().mean

    @abstractmethod
    def restrict(self, keep: Tensor) -> Self:
        """The marginal model of coordinates `keep`: those rows of the loading."""

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return len(self.mean)

    @property
    def latent_dim(self) -> int:
        """K, the number of latent variables."""
        return self._latent_dim

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.mean.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible): one K × K factorisation a mask, shared by all rows."""
        checked_hidden(hidden, self.dim, self.device)
        x = checked_data(x, self.dim, dtype=self.mean.dtype, device=self.device)
        root, latent, _ = self._posterior(x, ~hidden)
        loading = self.loading.T.expand(len(hidden), -1, -1)
        spread = torch.linalg.solve_triangular(root.mT, loading, upper=False).square().sum(1)  # (P, D) w Λ⁻¹ w
        variance = torch.where(hidden, self.noise + spread, 1)[:, None]
        residual = torch.where(hidden[:, None], x - self.mean - latent @ self.loading.T, 0)  # (P, N, D)
        log_prob = -0.5 * (residual.square() / variance + variance.log() + LOG_2PI)
        return torch.where(hidden[:, None], log_prob, 0).transpose(0, 1)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log N(x; mean, W Wᵀ + Ψ)."""
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log N(x_visible; ·), by the matrix determinant lemma and the residual form."""
        checked_subsets(visible, self.dim, "visible", self.device)
        x = checked_data(x, self.dim, dtype=self.mean.dtype, device=self.device)
        root, latent, misfit = self._posterior(x, visible)
        constants = torch.where(visible, self.noise.log() + LOG_2PI, 0).sum(1)
        log_det = 2 * root.diagonal(dim1=1, dim2=2).abs().log().sum(1)
        return -0.5 * (misfit + latent.square().sum(2) + (constants + log_det)[:, None]).T

    def order_curve(self, x: Tensor, orders: Tensor) -> Tensor:
        """(N, n, D) the scores of all nested masks of each order: time grows with D², and no D × D matrix is formed.

        Differentiable in the loading, the noise and the mean.

        Raises:
            IllConditionedError: loadings so large beside the noise that the dtype cannot carry both.
        """
        x = checked_data(x, self.dim, dtype=self.mean.dtype, device=self.device)
        orders = checked_orders(orders, self.dim, self.device)
        return low_rank_row_curves(self.loading, self.noise, x - self.mean, orders)

    def order_totals(self, x: Tensor, orders: Tensor, *, per_row: bool) -> OrderTotals:
        """The curves of `order_curve` summed over rows, by the shortest way.

        With many rows and few coordinates that is the dense engine, whose cost does not depend on N; otherwise the
        K × K square roots, with N D² for the rows if only sums are wanted and N K D² for each row's own total.
        """
        x = checked_data(x, self.dim, dtype=self.mean.dtype, device=self.device)
        orders = checked_orders(orders, self.dim, self.device)
        if self.dim <= DENSE_UP_TO and len(x) * (self.latent_dim + 1) > 4 * self.dim:
            covariance = self.loading @ self.loading.T + self.noise.diag()
            return OrderTotals(*gaussian_totals(covariance, x, self.mean, orders, per_row=per_row))
        if not per_row and len(x) > ROWS_A_LATENT * self.latent_dim:
            return OrderTotals(low_rank_totals(self.loading, self.noise, x - self.mean, len(x), orders), None)
        groups = (x - self.mean).split(64)
        curves = [low_rank_row_curves(self.loading, self.noise, group, orders) for group in groups]
        totals = torch.stack([c.sum(0) for c in curves]).sum(0)
        return OrderTotals(totals, torch.cat([c.sum(2).mean(1) for c in curves]) if per_row else None)

    def _posterior(self, x: Tensor, visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Given each subset: roots R of Λ = RᵀR, (P, K, K) upper; ẑ, (P, N, K); and Σ (x - μ - w ẑ)² / ψ, (P, N).

        By orthogonal factors of the scaled loading over the identity: Λ itself, which squares the condition number,
        is never formed. Hidden coordinates are zero rows, chosen before anything is divided.
        """
        scale = torch.where(visible, self.noise, 1).sqrt()
        scaled = torch.where(visible[..., None], self.loading, 0) / scale[..., None]  # (P, D, K)
        target = torch.where(visible[:, None], x - self.mean, 0) / scale[:, None]  # (P, N, D)
        identity = torch.eye(self.latent_dim, dtype=self.mean.dtype, device=self.device)
        orthogonal, root = torch.linalg.qr(torch.cat([scaled, identity.expand(len(visible), -1, -1)], 1))
        projected = orthogonal[:, : self.dim].mT @ target.mT  # (P, K, N)
        latent = torch.linalg.solve_triangular(root, projected, upper=True).mT
        return root, latent, (target - latent @ scaled.mT).square().sum(2)

    def _initialise(
        self,
        loading: Tensor | None,
        noise: Tensor | None,
        mean: Tensor | None,
        latent_dim: int | None,
        dtype: torch.dtype,
    ) -> None:
        """Hold checked parameters, or no parameters yet and the number of latents to fit."""
        if (loading is None) != (noise is None) or (loading is None) == (latent_dim is None):
            raise ArgumentError(f"give {type(self).__name__} either loading and noise_variance, or latent_dim alone")
        self._dtype = dtype
        self._parameters = None
        self._latent_dim = 0 if latent_dim is None else checked_count(latent_dim, "latent_dim", 0)
        if loading is not None and noise is not None:
            check_tensors(loading=loading, noise_variance=noise, **({} if mean is None else {"mean": mean}))
            self._parameters = checked_parameters(loading, noise, mean, dtype)
            self._latent_dim = loading.shape[1]

    def _check_can_fit(self, dim: int) -> None:
        if not 0 <= self._latent_dim < dim:
            raise ArgumentError(
                f"latent_dim is {self._latent_dim} and the data have {dim} columns: a fit needs "
                f"0 <= latent_dim <= {dim - 1}, so that a direction is left for the noise"
            )

    def _fitted(self) -> LowRankParameters:
        if self._parameters is None:
            raise ModelError(f"{self!r} has no parameters yet: call .fit(x), which returns the fitted model")
        return self._parameters


def checked_parameters(loading: Tensor, noise: Tensor, mean: Tensor | None, dtype: torch.dtype) -> LowRankParameters:
    """The parameters in `dtype`, or an error that names the one that does not define a density.

    Raises:
        ModelError: shapes, devices, entries that are not finite, a noise variance that is not positive.
    """
    if mean is None:
        mean = loading.new_zeros(len(loading))
    if loading.ndim != 2 or mean.shape != loading.shape[:1] or noise.shape != mean.shape:
        raise ModelError(
            f"loading has shape {tuple(loading.shape)}, mean {tuple(mean.shape)} and noise variance "
            f"{tuple(noise.shape)}: expected (D, K), (D,) and one number a coordinate"
        )
    if not loading.device == noise.device == mean.device:
        raise ModelError("loading, noise variance and mean are on different devices: move them to one")
    if not all(bool(parameter.isfinite().all()) for parameter in (loading, noise, mean)):
        raise ModelError("loading, noise variance or mean has entries that are not finite")
    if not bool((noise > 0).all()):
        raise ModelError(
            f"the smallest noise variance is {float(noise.min()):.3g}: expected a positive number (without noise the "
            "distribution has no density)"
        )
    return LowRankParameters(loading.to(dtype), noise.to(dtype), mean.to(dtype))
