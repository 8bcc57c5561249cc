"""Finite mixtures of products of univariate densities, and EM for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import check_tensors, checked_count, checked_table, checked_tensor
from mpt_bayes.errors import ArgumentError, ModelError
from mpt_bayes.models.em_settings import EMSettings
from mpt_bayes.models.emission_families import BernoulliEmission, CategoricalEmission, NormalEmission, PoissonEmission
from mpt_bayes.models.emissions import Emission, FittedEmission
from mpt_bayes.models.inner_error import (
    log_prob_influence,
    score_influence,
    shared_draws_variance,
    warn_if_poor,
)
from mpt_bayes.models.latent_bank import LatentBank, LatentTermsOf
from mpt_bayes.numerics.random import Stream, seed_from

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

DEFAULT_EM = EMSettings(tolerance=1e-9, max_iterations=500)

Family = Literal["gaussian", "bernoulli", "categorical", "poisson"]

EMISSIONS: dict[Family, type[FittedEmission]] = {
    "gaussian": NormalEmission,
    "bernoulli": BernoulliEmission,
    "categorical": CategoricalEmission,
    "poisson": PoissonEmission,
}


@final
class Mixture(LatentBank):
    """p(x) = Σ_k w_k Π_j p(x_j | k): a finite mixture with independent coordinates given the component.

    Args:
        weights: (K,), non-negative, summing to 1 within 1e-6.
        emission: the densities of the K components; see the constructors `gaussian`, `bernoulli`, `categorical`,
            `poisson`, and `fit` for maximum likelihood by EM.
        draws: (K,) int64, where the components come from random draws of a continuous latent: which draw, 0, 1, ….
            All numbers are then estimates, with inner standard errors. None: the mixture is what it is.

    Raises:
        ModelError: weights that are not a distribution over the components.

    Example:
        >>> model = Mixture.bernoulli(torch.tensor([0.5, 0.5]), torch.tensor([[0.9, 0.9], [0.1, 0.1]]))
        >>> model.masked_log_prob(torch.tensor([[1.0, 1.0]]), torch.tensor([[False, True]])).exp()
        tensor([[[1.0000, 0.8200]]], dtype=torch.float64)
    """

    def __init__(self, weights: Tensor, emission: Emission, *, draws: Tensor | None = None) -> None:
        checked_tensor(weights, "weights")
        if weights.shape != (emission.n_states,):
            raise ModelError(
                f"weights has shape {tuple(weights.shape)}: expected ({emission.n_states},), one a component"
            )
        weights = weights.to(emission.parameter)
        total = float(weights.sum())
        if not bool((weights >= 0).all()) or not abs(total - 1) <= 1e-6:
            raise ModelError(f"weights must be non-negative and sum to 1: they sum to {total:.6g}")
        self.emission, self._draws = emission, draws
        self.log_weight = (weights / weights.sum()).log()

    @classmethod
    def gaussian(cls, weights: Tensor, means: Tensor, scales: Tensor) -> Self:
        """Normal components with (K, D) means and standard deviations, in float64."""
        check_tensors(means=means, scales=scales)
        return cls(weights, NormalEmission(means.to(torch.float64), scales.to(torch.float64)))

    @classmethod
    def bernoulli(cls, weights: Tensor, probabilities: Tensor) -> Self:
        """Bernoulli components with (K, D) probabilities of 1, in float64."""
        checked_tensor(probabilities, "probabilities")
        return cls(weights, BernoulliEmission.from_probabilities(probabilities.to(torch.float64)))

    @classmethod
    def categorical(cls, weights: Tensor, probabilities: Tensor) -> Self:
        """Categorical components with (K, D, A) probabilities, in float64."""
        checked_tensor(probabilities, "probabilities")
        return cls(weights, CategoricalEmission.from_probabilities(probabilities.to(torch.float64)))

    @classmethod
    def poisson(cls, weights: Tensor, rates: Tensor) -> Self:
        """Poisson components with (K, D) rates, in float64."""
        checked_tensor(rates, "rates")
        return cls(weights, PoissonEmission(rates.to(torch.float64)))

    @classmethod
    def from_sklearn(cls, fitted: GaussianMixture) -> Self:
        """From a fitted scikit-learn GaussianMixture with covariance_type 'diag' or 'spherical'.

        Raises:
            ModelError: another covariance type, whose coordinates are dependent within a component.
        """
        kind = fitted.covariance_type
        if kind not in ("diag", "spherical"):
            raise ModelError(
                f"covariance_type is '{kind}': the coordinates of a component must be independent; fit with "
                "covariance_type='diag', or use ModelMixture.from_sklearn"
            )
        means = torch.as_tensor(fitted.means_)
        variances = torch.as_tensor(fitted.covariances_).reshape(len(means), -1).expand_as(means)
        return cls.gaussian(torch.as_tensor(fitted.weights_), means, variances.sqrt())

    @classmethod
    def fit(
        cls,
        x: Tensor,
        family: Family,
        n_components: int,
        *,
        n_starts: int = 4,
        em: EMSettings = DEFAULT_EM,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Maximum likelihood by EM (Dempster, Laird and Rubin 1977), the best of several starts from random rows.

        Args:
            x: (N, D) data; computed in float64.
            family: of the components.
            n_components: K.
            n_starts: independent starts.
            em: when the iterations of a start stop; a warning if they run out for the best start.
            generator: of the starts.

        Raises:
            ArgumentError: an unknown family, or more components than rows.
            DataError: no (N, D) tensor, missing or infinite entries, values outside the family's support, a constant
                column (where the likelihood of normal components is unbounded).

        Example:
            >>> x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
            >>> fitted = Mixture.fit(x, "bernoulli", 2)
            >>> round(float(fitted.log_marginal_likelihood(x).exp().sum()), 6)
            2.0
        """
        checked_family(family)
        x = checked_table(x)
        if checked_count(n_components, "n_components") > len(x):
            raise ArgumentError(f"n_components is {n_components} but there are {len(x)} rows: ask for fewer")
        stream = Stream(seed_from(generator)).child("em")
        starts = [
            _em(x, EMISSIONS[family], n_components, stream.child(s), em)
            for s in range(checked_count(n_starts, "n_starts"))
        ]
        _, responsibility, is_finished = max(starts, key=lambda start: start[0])
        if not is_finished:
            em.warn_unfinished("EM of the mixture", stacklevel=3)
        return cls(responsibility.mean(0), EMISSIONS[family].fitted(x, responsibility))

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return self.emission.dim

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.emission.device

    @property
    def dtype(self) -> torch.dtype:
        """That of the component parameters."""
        return self.emission.parameter.dtype

    @property
    def n_states(self) -> int:
        """K, the number of components."""
        return self.emission.n_states

    @property
    def weights(self) -> Tensor:
        """(K,) the mixing proportions."""
        return self.log_weight.exp()

    @property
    def is_tabled(self) -> bool:
        """As the component densities are."""
        return self.emission.is_tabled

    def latent_terms(self) -> LatentTermsOf:
        """The mixing proportions and the component densities."""
        return lambda x: (self.log_weight[None], self.emission.terms(x))

    def restrict(self, keep: Tensor) -> Self:
        """The mixture of coordinates `keep`."""
        part = type(self)(self.weights, self.emission.restrict(keep), draws=self._draws)
        part.watch = self.watch
        return part

    @property
    def is_estimated(self) -> bool:
        """Whether the components come from random draws."""
        return self._draws is not None

    def score_influence(self, x: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) derivative of Σ_p weight_pj s(M_p) in the log weights."""
        return score_influence(self, x, hidden, weight)

    def log_prob_influence(self, x: Tensor, visible: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) Σ_p weight_pj (p(z_k | x_A_p) - w_k)."""
        return log_prob_influence(self, x, visible, weight)

    def inner_variance(self, x: Tensor, influence: Tensor) -> float:
        """The variance of the total over rows, which share their draws."""
        return 0.0 if self._draws is None else shared_draws_variance(influence, self._draws)

    def warn_if_poor(self, x: Tensor) -> None:
        """A warning where few draws count for a row with all, or nothing, visible."""
        if self._draws is not None:
            warn_if_poor(self, x, "raise n_samples, or give a guide closer to the posterior")


def checked_family(family: Family) -> None:
    """Refuse names of families that are not there."""
    if family not in EMISSIONS:
        raise ArgumentError(f"family is {family!r}: expected one of {', '.join(EMISSIONS)}")


def _em(
    x: Tensor, family: type[FittedEmission], n_components: int, stream: Stream, em: EMSettings
) -> tuple[float, Tensor, bool]:
    """One EM run: its final log-likelihood per datum, responsibilities, and whether it gained less than the tolerance.

    It starts from responsibilities that lean towards one random row each, so that no component starts empty.
    """
    chosen = torch.randperm(len(x), generator=stream.generator())[:n_components].to(x.device)
    spread = x.var(0, correction=0).clamp_min(1e-12)
    distance = ((x[:, None] - x[chosen]).square() / spread).mean(2)
    responsibility = (-distance).softmax(1)
    value = previous = -torch.inf
    for _ in range(em.max_iterations):
        emission = family.fitted(x, responsibility)
        joint = responsibility.mean(0).log() + emission.log_prob(x).sum(2)
        value = float(joint.logsumexp(1).mean())
        responsibility = joint.softmax(1)
        if bool((responsibility.sum(0) < 1e-10).any()):  # an empty component has no parameters: start it again evenly
            responsibility = 0.99 * responsibility + 0.01 / n_components
        if value - previous < em.tolerance:
            return value, responsibility, True
        previous = value
    return value, responsibility, False
