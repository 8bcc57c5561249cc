"""Masked prediction as a GPyTorch marginal log likelihood. Importing this module loads GPyTorch."""

from __future__ import annotations

from typing import Any, final

import gpytorch
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from torch import Tensor

from mpt_bayes.checks import check_complete, check_infinite, checked_tensor
from mpt_bayes.errors import DataError, DivergedError, ModelError
from mpt_bayes.models.gaussian import Gaussian
from mpt_bayes.numerics.random import Stream, seed_from
from mpt_bayes.objectives import CumulativeScore, Objective, checked_objective


@final
class MaskedPredictionMLL(gpytorch.mlls.MarginalLogLikelihood):  # type: ignore[misc]
    """Stands where ExactMarginalLogLikelihood or LeaveOneOutPseudoLikelihood stands in a training loop.

    `mll(model(train_x), train_y)` is one draw of the objective for the noisy outputs, in GPyTorch's convention: divided
    by the number of points, log priors of hyper-parameters and added loss terms included (likewise divided), so that
    learning rates carry over. The evidence itself, in total nats and without priors, is
    `GaussianProcess(model).log_marginal_likelihood`. Every call draws new masks; the same seed gives the same sequence.

    Args:
        likelihood: GaussianLikelihood or FixedNoiseGaussianLikelihood.
        model: an ExactGP.
        objective: of `mpt_bayes.objectives`; CumulativeScore(4), unbiased for the evidence, if not given.
        generator: source of the masks; None means seed 0.

    Raises:
        ArgumentError: no objective (a mask design, say).
        ModelError: a non-Gaussian likelihood, an approximate GP, batch or multitask outputs.
        DataError: targets that are no tensor, have missing or infinite entries or another shape.
        DivergedError: a value that is no number, or beyond the range of the output's dtype.

    Example:
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood()
        >>> MaskedPredictionMLL(likelihood, None)
        Traceback (most recent call last):
        mpt_bayes.errors.ModelError: NoneType is not a gpytorch ExactGP: its outputs have no exact joint distribution
    """

    def __init__(
        self,
        likelihood: Any,
        model: Any,
        objective: Objective | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        if not isinstance(likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood):
            raise ModelError(
                f"likelihood is {type(likelihood).__name__}: masked prediction needs exact conditionals, which "
                "GaussianLikelihood and FixedNoiseGaussianLikelihood have"
            )
        if not isinstance(model, gpytorch.models.ExactGP):
            raise ModelError(
                f"{type(model).__name__} is not a gpytorch ExactGP: its outputs have no exact joint distribution"
            )
        super().__init__(likelihood, model)
        self.objective = CumulativeScore(4) if objective is None else checked_objective(objective)
        self._stream = Stream(seed_from(generator)).child("gpytorch")
        self._calls = 0

    def forward(self, function_dist: MultivariateNormal, target: Tensor, *params: Any) -> Tensor:
        """One draw, divided by the number of points."""
        if not isinstance(function_dist, MultivariateNormal) or isinstance(function_dist, MultitaskMultivariateNormal):
            raise ModelError(
                f"the model's output is a {type(function_dist).__name__}: expected a MultivariateNormal of one output"
            )
        _check_targets(function_dist, target)
        noisy = self.likelihood(function_dist, *params)
        joint = Gaussian(noisy.mean, noisy.covariance_matrix)
        self._calls += 1
        value = self.objective.value(joint, target[None].to(torch.float64), self._stream.child(self._calls))
        result = ((value + self._other_terms()) / len(target)).to(function_dist.mean.dtype)
        if not bool(result.isfinite()):
            raise DivergedError(
                f"the objective is {float(result.detach())} in {str(result.dtype).removeprefix('torch.')}: scale the "
                "targets, lower the learning rate or mend the hyper-parameters",
                (),
            )
        return result

    def _other_terms(self) -> Tensor | float:
        """Added losses and log priors, as the other objectives of GPyTorch count them."""
        added = sum((term.loss().sum() for term in self.model.added_loss_terms()), 0.0)
        priors = sum(
            (prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in self.model.named_priors()), 0.0
        )
        total: Tensor | float = added + priors
        return total


def _check_targets(output: MultivariateNormal, target: Any) -> None:
    """(n,) finite targets for one output of n points."""
    checked_tensor(target, "target")
    if len(output.batch_shape):
        raise DataError(
            f"the model's output is a batch of shape {tuple(output.batch_shape)}: batch models are not supported; make "
            "one model and one loss for each"
        )
    if output.mean.shape != target.shape:
        raise DataError(
            f"targets have shape {tuple(target.shape)} and the model's output {tuple(output.mean.shape)}: expected "
            "(n,) for both"
        )
    check_complete(target[:, None], "MaskedPredictionMLL", "target")
    check_infinite(target[:, None], "target")
