"""Factor analysis: low rank plus a noise variance of its own for each coordinate."""

from __future__ import annotations

import warnings
from typing import Self, final, overload

import torch
from torch import Tensor

from mpt_bayes.checks import Missing
from mpt_bayes.errors import DataError, MptBayesWarning
from mpt_bayes.models.em import (
    DEFAULT_EM,
    checked_training_data,
    expectation_maximisation,
    filled_with_means,
)
from mpt_bayes.models.em_settings import EMSettings
from mpt_bayes.models.low_rank import LowRankGaussian, LowRankParameters

IMPROPER = 1e-6
"""A share of the column's variance below which its noise variance is called an improper solution (Heywood case)."""

ROUGH = EMSettings(tolerance=1e-3)
"""Where EM starts need not be a maximum of anything."""


@final
class FactorAnalysis(LowRankGaussian):
    """x ~ N(mean, W Wᵀ + diag(ψ)) with W = `loading` (D, K) and ψ = `noise_variance` (D,); no D × D matrix is formed.

    Args:
        loading: (D, K); K may be 0 (independent coordinates).
        noise_variance: (D,), positive.
        mean: (D,); zeros if not given.
        latent_dim: K, instead of the parameters: a model without parameters yet, to call `fit` on.
        dtype: of the computation; the parameters and the data are converted to it.

    Raises:
        ArgumentError: both or neither of the parameters and `latent_dim`.
        ModelError: shapes that disagree, or a noise variance that is not positive.

    Example:
        >>> model = FactorAnalysis(torch.ones(2, 1), torch.tensor([1.0, 2.0]), torch.zeros(2))
        >>> model.log_marginal_likelihood(torch.zeros(1, 2))
        tensor([-2.6426], dtype=torch.float64)
    """

    @overload
    def __init__(
        self,
        loading: Tensor,
        noise_variance: Tensor,
        mean: Tensor | None = None,
        *,
        dtype: torch.dtype = torch.float64,
    ) -> None: ...
    @overload
    def __init__(self, *, latent_dim: int, dtype: torch.dtype = torch.float64) -> None: ...
    def __init__(
        self,
        loading: Tensor | None = None,
        noise_variance: Tensor | None = None,
        mean: Tensor | None = None,
        *,
        latent_dim: int | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self._initialise(loading, noise_variance, mean, latent_dim, dtype)

    @property
    def noise_variance(self) -> Tensor:
        """ψ, (D,)."""
        return self.noise

    def restrict(self, keep: Tensor) -> Self:
        """The marginal model of coordinates `keep`: those rows of the loading and of the noise."""
        return type(self)(self.loading[keep], self.noise[keep], self.mean[keep], dtype=self._dtype)

    @torch.no_grad()
    def fit(self, x: Tensor, *, missing: Missing = "error", em: EMSettings = DEFAULT_EM) -> Self:
        """The maximum likelihood model with this latent dimension; this model stays as it is.

        Without missing entries by scikit-learn's FactorAnalysis; with missing entries by EM on the observed ones,
        started there on the data filled with column means.

        Args:
            x: (N, D) data.
            missing: "error", or "marginalise" to integrate NaN entries out exactly.
            em: when the iterations stop, in either case.

        Raises:
            ArgumentError: K ≥ D.
            DataError: missing or infinite entries (row named); a constant column, whose likelihood is unbounded.
        """
        x, has_missing = checked_training_data(x, self._dtype, missing)
        self._check_can_fit(x.shape[1])
        filled = filled_with_means(x)
        variance = filled.var(0, correction=0)
        constant = variance <= len(x) * torch.finfo(x.dtype).eps ** 2 * filled.square().mean(0)
        if bool(constant.any()):
            raise DataError(
                f"columns {constant.nonzero()[:, 0].tolist()} of x are constant: their noise variance would be zero "
                "and the likelihood unbounded; drop them"
            )
        parameters = _by_scikit_learn(filled, self.latent_dim, ROUGH if has_missing else em)
        if has_missing:
            parameters = expectation_maximisation(x, parameters, shared_noise=False, settings=em)
        improper = parameters.noise < IMPROPER * variance
        if bool(improper.any()):
            warnings.warn(
                f"improper solution (Heywood case): columns {improper.nonzero()[:, 0].tolist()} are explained without "
                "noise, so the fit is at the edge of the model; use a smaller latent_dim",
                MptBayesWarning,
                stacklevel=3,
            )
        return type(self)(*parameters, dtype=self._dtype)

    def __repr__(self) -> str:
        if self._parameters is None:
            return f"FactorAnalysis(latent_dim={self.latent_dim})"
        return f"FactorAnalysis(D={self.dim}, K={self.latent_dim})"


def _by_scikit_learn(x: Tensor, latent_dim: int, settings: EMSettings) -> LowRankParameters:
    """Alternates the closed forms of W given ψ and ψ given W, by the full singular value decomposition."""
    from sklearn.decomposition import FactorAnalysis as ScikitLearn
    from sklearn.exceptions import ConvergenceWarning

    solver = ScikitLearn(
        latent_dim, tol=settings.tolerance * len(x), max_iter=settings.max_iterations, svd_method="lapack"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said below, with what to do
        fitted = solver.fit(x.cpu().numpy())
    if fitted.n_iter_ >= settings.max_iterations:
        settings.warn_unfinished("factor analysis")
    columns = (fitted.components_.T, fitted.noise_variance_, fitted.mean_)
    return LowRankParameters(*(torch.as_tensor(column.copy(), dtype=x.dtype, device=x.device) for column in columns))
