"""Finite mixtures of whole models: coordinates may depend on each other within a component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_hidden, checked_subsets, checked_tensor
from mpt_bayes.errors import ModelError
from mpt_bayes.models.base import JointModel
from mpt_bayes.models.checked_calls import checked_marginal_log_prob, checked_masked_log_prob
from mpt_bayes.models.gaussian import Gaussian
from mpt_bayes.models.grid_watch import GridFit, GridWatch
from mpt_bayes.models.inner_error import log_prob_influence, shared_draws_variance, warn_if_poor
from mpt_bayes.models.marginals import restrict

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture


@final
class ModelMixture(JointModel):
    """p(x) = Σ_k w_k p_k(x) with components that are joint models of their own: full Gaussians, chains, tables.

    log p(x_R) = logsumexp_k(log w_k + log p_k(x_R)), and log p(x_j | x_R) weighs the components' conditionals by the
    probabilities of the components given x_R. Cost: the sum of the components'.

    Args:
        weights: (K,), non-negative, summing to 1 within 1e-6.
        components: K joint models of the same coordinates.
        draws: (K,) int64, where the components come from random draws of a continuous latent: which draw, 0, 1, ….
            All numbers are then estimates, with inner standard errors. None: the mixture is what it is.

    Raises:
        ModelError: weights that are not a distribution, or components of different dimensions.

    Example:
        >>> from mpt_bayes.models import Gaussian
        >>> parts = [Gaussian(torch.full((2,), m), torch.eye(2)) for m in (-1.0, 1.0)]
        >>> ModelMixture(torch.tensor([0.5, 0.5]), parts).log_marginal_likelihood(torch.zeros(1, 2))
        tensor([-2.8379], dtype=torch.float64)
    """

    watch: GridWatch | None = None
    """Of the grid that the components are, if they are one: `log_marginal_likelihood` warns where it does not serve."""

    def __init__(self, weights: Tensor, components: Sequence[JointModel], *, draws: Tensor | None = None) -> None:
        checked_tensor(weights, "weights")
        if weights.shape != (len(components),) or len(components) == 0:
            raise ModelError(f"weights has shape {tuple(weights.shape)}: expected one for each of the components")
        if len({model.dim for model in components}) > 1:
            raise ModelError("the components have different dimensions: they must share their coordinates")
        weights = weights.to(torch.float64)
        total = float(weights.sum())
        if not bool((weights >= 0).all()) or not abs(total - 1) <= 1e-6:
            raise ModelError(f"weights must be non-negative and sum to 1: they sum to {total:.6g}")
        self.components, self._draws = tuple(components), draws
        self.log_weight = (weights / total).log()

    @classmethod
    def from_sklearn(cls, fitted: GaussianMixture) -> Self:
        """From a fitted scikit-learn GaussianMixture, its covariances of any type ('full', 'tied', 'diag', …)."""
        means = torch.as_tensor(fitted.means_)
        covariances = torch.as_tensor(fitted.covariances_)
        if fitted.covariance_type == "tied":
            covariances = covariances.expand(len(means), -1, -1)
        elif fitted.covariance_type != "full":  # a variance a component, or one a coordinate
            covariances = covariances.reshape(len(means), -1).expand_as(means).diag_embed()
        models = [Gaussian(mean, covariance) for mean, covariance in zip(means, covariances, strict=True)]
        return cls(torch.as_tensor(fitted.weights_), models)

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return self.components[0].dim

    @property
    def device(self) -> torch.device:
        """Where the components live."""
        return self.components[0].device

    @property
    def n_states(self) -> int:
        """K, the number of components."""
        return len(self.components)

    @property
    def is_estimated(self) -> bool:
        """Whether the components come from random draws."""
        return self._draws is not None

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible), one component after the other."""
        checked_hidden(hidden, self.dim, self.device)
        log_state = self._log_joint(x, ~hidden).log_softmax(0)
        total = torch.full((), -torch.inf, dtype=torch.float64, device=self.device)
        for state, model in zip(log_state, self.components, strict=True):
            total = torch.logaddexp(total, state[..., None] + checked_masked_log_prob(model, x, hidden))
        return torch.where(hidden, total, 0)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log p(x_n)."""
        log_joint = self._log_joint(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, :, 0]
        if self.watch is not None and not log_joint.requires_grad:
            self.watch.look(x, GridFit.of(log_joint.T, self.watch.shape))
        return log_joint.logsumexp(0)

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible)."""
        checked_subsets(visible, self.dim, "visible", self.device)
        return self._log_joint(x, visible).logsumexp(0)

    def restrict(self, keep: Tensor) -> Self:
        """The mixture of the components' marginals."""
        components = [restrict(model, keep) for model in self.components]
        part = type(self)(self.log_weight.exp(), components, draws=self._draws)
        part.watch = self.watch
        return part

    def state_probabilities(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P, K) probabilities of the components given x_visible."""
        return self._log_joint(x, visible).softmax(0).permute(1, 2, 0)

    def score_influence(self, x: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) derivative of Σ_p weight_pj s(M_p) in the log weights: of each log p(x_j | x_R) it is
        p(k | x_j, x_R) - p(k | x_R)."""
        log_state = self._log_joint(x, ~hidden).log_softmax(0)
        log_prob = self.masked_log_prob(x, hidden)
        share = weight.to(log_prob) / hidden.sum(1, keepdim=True)
        columns = []
        for state, model in zip(log_state, self.components, strict=True):
            gain = (checked_masked_log_prob(model, x, hidden) - log_prob).exp()  # 1 where visible
            columns.append((state.exp() * (gain - 1).sum(2)) @ share)
        return torch.stack(columns, 2).transpose(0, 1)

    def log_prob_influence(self, x: Tensor, visible: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) Σ_p weight_pj (p(k | x_A_p) - w_k)."""
        return log_prob_influence(self, x, visible, weight)

    def inner_variance(self, x: Tensor, influence: Tensor) -> float:
        """The variance of the total over rows, which share their draws."""
        return 0.0 if self._draws is None else shared_draws_variance(influence, self._draws)

    def warn_if_poor(self, x: Tensor) -> None:
        """A warning where few draws count for a row with all, or nothing, visible."""
        if self._draws is not None:
            warn_if_poor(self, x, "raise n_samples, or give a guide closer to the posterior")

    def _log_joint(self, x: Tensor, visible: Tensor) -> Tensor:
        """(K, N, P) log w_k + log p_k(x_R)."""
        each = torch.stack([checked_marginal_log_prob(model, x, visible) for model in self.components])
        return self.log_weight[:, None, None] + each
