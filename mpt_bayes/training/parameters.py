"""Models as functions of unconstrained parameters that an optimiser can move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mpt_bayes.checks import checked_seed
from mpt_bayes.digest import tensors_digest
from mpt_bayes.errors import ArgumentError
from mpt_bayes.models import PPCA, FactorAnalysis, GaussianProcess
from mpt_bayes.models.base import JointModel


@dataclass(frozen=True)
class Trainable:
    """Leaf tensors by name, and the model they stand for at their present values, with gradients."""

    parameters: dict[str, Tensor]
    build: Callable[[], JointModel]

    def digest(self) -> str:
        """What tells one start from another: the parameters, and the moments of a GaussianProcess, which depend on more
        than its parameters (inputs, a fixed noise)."""
        model = self.build()
        if not isinstance(model, GaussianProcess):
            return tensors_digest(self.parameters)
        mean, covariance = model.moments()
        return tensors_digest(self.parameters | {"mean of outputs": mean, "covariance of outputs": covariance})


def trainable(model: JointModel) -> Trainable:
    """The free parameters of a copy of the model; the model itself stays as it is.

    Raises:
        ArgumentError: a model whose parameters this library does not train.
    """
    if isinstance(model, GaussianProcess):
        process = model.copied()
        return Trainable(process.raw_parameters, lambda: process)
    if isinstance(model, PPCA):
        leaves = _leaves(loading=model.loading, log_noise=model.noise_variance.log(), mean=model.mean)
        return Trainable(
            leaves, lambda: PPCA(leaves["loading"], leaves["log_noise"].exp(), leaves["mean"], dtype=model.mean.dtype)
        )
    if isinstance(model, FactorAnalysis):
        leaves = _leaves(loading=model.loading, log_noise=model.noise.log(), mean=model.mean)
        return Trainable(
            leaves,
            lambda: FactorAnalysis(
                leaves["loading"], leaves["log_noise"].exp(), leaves["mean"], dtype=model.mean.dtype
            ),
        )
    raise ArgumentError(
        f"{type(model).__name__} cannot be trained here: expected PPCA, FactorAnalysis or GaussianProcess; any other "
        "model is differentiable in its own parameters, so write the loop with mpt_bayes.objectives"
    )


def frozen(model: JointModel) -> JointModel:
    """The trained model, its tensors detached; a GaussianProcess as it is, since its parameters are its module's."""
    if isinstance(model, PPCA):
        noise = model.noise_variance.detach()
        return PPCA(model.loading.detach().clone(), noise.clone(), model.mean.detach().clone(), dtype=model.mean.dtype)
    if isinstance(model, FactorAnalysis):
        parts = (model.loading, model.noise, model.mean)
        return FactorAnalysis(*(part.detach().clone() for part in parts), dtype=model.mean.dtype)
    return model


def _leaves(**values: Tensor) -> dict[str, Tensor]:
    return {name: value.detach().clone().requires_grad_() for name, value in values.items()}


def initial_ppca(x: Tensor, latent_dim: int, seed: int = 0) -> PPCA:
    """A random starting point: small Gaussian loadings, the column means, the mean variance as noise."""
    generator = torch.Generator().manual_seed(checked_seed(seed))
    x = x.to(torch.float64)
    variance = x.var(0, correction=0).mean()
    loading = torch.randn(x.shape[1], latent_dim, dtype=torch.float64, generator=generator).to(x.device)
    return PPCA(0.1 * variance.sqrt() * loading, variance, x.mean(0))
