"""Expectation-maximisation for low-rank Gaussians from incomplete data."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import Missing, check_infinite, checked_data, checked_missing, checked_tensor
from mpt_bayes.errors import DataError
from mpt_bayes.models.em_settings import EMSettings
from mpt_bayes.models.low_rank import LowRankParameters
from mpt_bayes.numerics.log_space import LOG_2PI

DEFAULT_EM = EMSettings()


def checked_training_data(x: Tensor, dtype: torch.dtype, missing: Missing) -> tuple[Tensor, bool]:
    """The rows of x that have an observed entry, in `dtype`, and whether entries are missing.

    Raises:
        DataError: fewer than two rows, infinite entries, NaN under missing="error", a column with nothing observed.
    """
    checked_missing(missing)
    checked_tensor(x)
    if missing == "error" or x.ndim != 2 or not x.is_floating_point():
        x = checked_data(x, x.shape[-1], dtype=dtype, device=x.device)
    check_infinite(x)
    present = ~x.isnan()
    if not bool(present.any(0).all()):
        column = int((~present.any(0)).nonzero()[0])
        raise DataError(f"column {column} of x has no observed entry: drop the column")
    x = x[present.any(1)].to(dtype)
    if len(x) < 2:
        raise DataError(f"x has {len(x)} row with observed entries: fitting needs at least two")
    return x, bool(x.isnan().any())


def filled_with_means(x: Tensor) -> Tensor:
    """Missing entries replaced by the mean of their column: a place for EM to start, never a result."""
    return torch.where(x.isnan(), x.nanmean(0), x)


def expectation_maximisation(
    x: Tensor, start: LowRankParameters, *, shared_noise: bool, settings: EMSettings
) -> LowRankParameters:
    """Maximum likelihood of the observed entries from `start`: loading, mean and noise.

    The complete data are the observed entries and the latents, so each step is a regression of every column on the
    posterior latents of the rows that observed it (Rubin and Thayer 1982; Ilin and Raiko 2010 for missing entries).
    The likelihood never falls. `shared_noise` ties the noise variances (PPCA).
    """
    present = ~x.isnan()
    parameters, before = start, -torch.inf
    for _ in range(settings.max_iterations):
        means, covariances, value = _expectation(x, present, parameters)
        if value - before < settings.tolerance:
            return parameters
        before = value
        parameters = _maximisation(x, present, means, covariances, shared_noise)
    settings.warn_unfinished("EM")
    return parameters


def _expectation(x: Tensor, present: Tensor, parameters: LowRankParameters) -> tuple[Tensor, Tensor, float]:
    """Posterior means (N, K) and covariances (N, K, K) of the latents, and the mean log-likelihood at `parameters`."""
    loading, noise, mean = parameters
    weighted = torch.where(present[..., None], loading / noise[:, None], 0)  # (N, D, K)
    identity = torch.eye(loading.shape[1], dtype=x.dtype, device=x.device)
    factor = torch.linalg.cholesky(identity + loading.T @ weighted)
    centred = torch.where(present, x - mean, 0)
    means = torch.cholesky_solve((centred[:, None] @ weighted).transpose(1, 2), factor)[..., 0]
    misfit = torch.where(present, (centred - means @ loading.T).square() / noise + noise.log() + LOG_2PI, 0).sum(1)
    log_det = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    value = -0.5 * (misfit + means.square().sum(1) + log_det)
    return means, torch.cholesky_inverse(factor), float(value.mean())


def _maximisation(
    x: Tensor, present: Tensor, means: Tensor, covariances: Tensor, shared_noise: bool
) -> LowRankParameters:
    """Each column regressed on (latents, 1) over the rows that observed it, uncertainty of the latents included."""
    latent_dim = means.shape[1]
    design = torch.cat([means, torch.ones_like(means[:, :1])], 1)  # (N, K + 1)
    second = design[:, :, None] * design[:, None, :]
    second[:, :latent_dim, :latent_dim] += covariances
    weight = present.to(x.dtype)
    observed = torch.where(present, x, 0)
    gram = torch.einsum("nd,nkl->dkl", weight, second)
    coefficients = torch.linalg.solve(gram, (observed.T @ design)[..., None])[..., 0]  # (D, K + 1)
    loading, mean = coefficients[:, :latent_dim], coefficients[:, latent_dim]
    residual = torch.where(present, x - design @ coefficients.T, 0).square().sum(0)
    spread = torch.einsum("nd,dk,nkl,dl->d", weight, loading, covariances, loading)
    total = residual + spread
    count = weight.sum(0)
    noise = (total.sum() / count.sum()).expand(len(total)) if shared_noise else total / count
    return LowRankParameters(loading, noise, mean)
