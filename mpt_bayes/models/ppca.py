"""Probabilistic principal component analysis, given its parameters or fitted by maximum likelihood."""

from __future__ import annotations

from typing import Self, final, overload

import torch
from torch import Tensor

from mpt_bayes.checks import Missing, checked_tensor
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models.em import (
    DEFAULT_EM,
    checked_training_data,
    expectation_maximisation,
    filled_with_means,
)
from mpt_bayes.models.em_settings import EMSettings
from mpt_bayes.models.low_rank import LowRankGaussian, LowRankParameters


@final
class PPCA(LowRankGaussian):
    """x ~ N(mean, W Wᵀ + σ² I) with W = `loading` (D, K); no D × D matrix is formed.

    Tipping and Bishop (1999), "Probabilistic principal component analysis".

    Args:
        loading: (D, K); K may be 0 (isotropic noise only) or exceed D.
        noise_variance: σ², positive.
        mean: (D,); zeros if not given.
        latent_dim: K, instead of the parameters: a model without parameters yet, to call `fit` on.
        dtype: of the computation; the parameters and the data are converted to it.

    Raises:
        ArgumentError: both or neither of the parameters and `latent_dim`.
        ModelError: shapes that disagree, or a noise variance that is not positive.

    Example:
        >>> model = PPCA(torch.ones(3, 1), 0.5, torch.zeros(3))
        >>> model.log_marginal_likelihood(torch.zeros(1, 3))
        tensor([-2.6900], dtype=torch.float64)
        >>> PPCA(latent_dim=1).fit(torch.eye(3))
        PPCA(D=3, K=1, noise_variance=0.166667)
    """

    @overload
    def __init__(
        self,
        loading: Tensor,
        noise_variance: float | Tensor,
        mean: Tensor | None = None,
        *,
        dtype: torch.dtype = torch.float64,
    ) -> None: ...
    @overload
    def __init__(self, *, latent_dim: int, dtype: torch.dtype = torch.float64) -> None: ...
    def __init__(
        self,
        loading: Tensor | None = None,
        noise_variance: float | Tensor | None = None,
        mean: Tensor | None = None,
        *,
        latent_dim: int | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        noise = None
        if loading is not None and noise_variance is not None:
            checked_tensor(loading, "loading")
            noise = torch.as_tensor(noise_variance, dtype=dtype, device=loading.device)
            if noise.ndim:
                raise ArgumentError(
                    f"noise_variance has shape {tuple(noise.shape)}: PPCA shares one number among the coordinates; "
                    "FactorAnalysis has one for each"
                )
            noise = noise.expand(len(loading))
        elif noise_variance is not None:
            raise ArgumentError("noise_variance without a loading: give PPCA both, or latent_dim alone")
        self._initialise(loading, noise, mean, latent_dim, dtype)

    @property
    def noise_variance(self) -> Tensor:
        """σ², a scalar tensor."""
        return self.noise[0]

    def restrict(self, keep: Tensor) -> Self:
        """The marginal model of coordinates `keep`: those rows of the loading, the same noise."""
        return type(self)(self.loading[keep], self.noise_variance, self.mean[keep], dtype=self._dtype)

    @torch.no_grad()
    def fit(self, x: Tensor, *, missing: Missing = "error", em: EMSettings = DEFAULT_EM) -> Self:
        """The maximum likelihood model with this latent dimension; this model stays as it is.

        Without missing entries in closed form: σ² = mean of the D - K discarded eigenvalues of the covariance with
        divisor N, W = U_K (Λ_K - σ² I)^{1/2}, unique up to a rotation of the latents. With missing entries, EM on the
        observed ones, started at the closed form of the data filled with column means.

        Args:
            x: (N, D) data.
            missing: "error", or "marginalise" to integrate NaN entries out exactly.
            em: when EM stops.

        Raises:
            ArgumentError: K ≥ D, where no eigenvalue is left for the noise.
            DataError: missing or infinite entries (row named); data of rank K or less, whose likelihood is unbounded.
        """
        x, has_missing = checked_training_data(x, self._dtype, missing)
        self._check_can_fit(x.shape[1])
        parameters = _closed_form(filled_with_means(x), self.latent_dim)
        if has_missing:
            parameters = expectation_maximisation(x, parameters, shared_noise=True, settings=em)
        return type(self)(parameters.loading, parameters.noise[0], parameters.mean, dtype=self._dtype)

    def __repr__(self) -> str:
        if self._parameters is None:
            return f"PPCA(latent_dim={self.latent_dim})"
        return f"PPCA(D={self.dim}, K={self.latent_dim}, noise_variance={float(self.noise_variance):.6g})"


def _closed_form(x: Tensor, latent_dim: int) -> LowRankParameters:
    """Maximum likelihood from the singular values of the centred data; no covariance is formed when N < D."""
    n, dim = x.shape
    mean = x.mean(0)
    _, singular, axes = torch.linalg.svd(x - mean, full_matrices=False)
    eigenvalues = singular.square() / n  # the other D - min(N, D) are zero
    discarded = eigenvalues[latent_dim:].sum() / (dim - latent_dim)
    rank = int((singular > max(n, dim) * torch.finfo(x.dtype).eps * singular[0]).sum())
    if rank <= latent_dim:
        raise DataError(
            f"the data have rank {rank} around their mean and latent_dim is {latent_dim}: the noise variance would be "
            "zero and the likelihood unbounded; use a smaller latent_dim or more rows"
        )
    loading = axes[:latent_dim].T * (eigenvalues[:latent_dim] - discarded).clamp_min(0).sqrt()
    return LowRankParameters(loading, discarded.expand(dim), mean)
