"""From torch or Pyro distributions to emissions of this library."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal, Poisson

from mpt_bayes.errors import ModelError
from mpt_bayes.models.emissions import (
    BernoulliEmission,
    CategoricalEmission,
    Emission,
    NormalEmission,
    PoissonEmission,
)


def emission_of(distribution: Distribution) -> Emission:
    """The emission with the same parameters, in float64: a batch of S states, and D coordinates where there are any.

    Raises:
        ModelError: a family without an emission here.
    """
    if isinstance(distribution, Independent):
        return emission_of(distribution.base_dist)
    if isinstance(distribution, Categorical):
        log_probabilities: Tensor = distribution.logits.to(torch.float64)
        if log_probabilities.ndim == 2:
            log_probabilities = log_probabilities[:, None]
        return CategoricalEmission(log_probabilities)
    if isinstance(distribution, Bernoulli):
        return BernoulliEmission.from_logits(_matrix(distribution.logits))
    if isinstance(distribution, Normal):
        return NormalEmission(_matrix(distribution.loc), _matrix(distribution.scale))
    if isinstance(distribution, Poisson):
        return PoissonEmission(_matrix(distribution.rate))
    raise ModelError(
        f"observations are {type(distribution).__name__}: Categorical, Bernoulli, Normal and Poisson are known here"
    )


def _matrix(parameter: Tensor) -> Tensor:
    """(S, D) from (S,) or (S, D), in float64."""
    return parameter.reshape(len(parameter), -1).to(torch.float64)
