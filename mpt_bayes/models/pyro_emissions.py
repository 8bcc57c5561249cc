"""From torch or Pyro distributions to emissions of this library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, final

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal, Poisson

from mpt_bayes.errors import DataError, ModelError
from mpt_bayes.models.emission_families import BernoulliEmission, CategoricalEmission, NormalEmission, PoissonEmission
from mpt_bayes.models.emissions import Emission
from mpt_bayes.models.grid_watch import GridFit
from mpt_bayes.models.latent_terms import DenseTerms, LatentTerms

_WORKING_NUMBERS = 2**23


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


@torch.no_grad()
def stacked_emission(states: Sequence[Sequence[Distribution]], example: Tensor) -> Emission:
    """The emission of K states, each given by the distributions of its observed sites, D coordinates in all.

    One of this library's families where every site is of the same known one, else the distributions themselves.
    """
    rows = [[_flat(fn) for fn in sites] for sites in states]
    families = {type(fn) for sites in rows for fn in sites}
    for family, names in _PARAMETERS.items():
        if len(families) == 1 and issubclass(families.pop(), family):
            columns = {
                name: torch.stack([torch.cat([getattr(fn, name) for fn in sites]) for sites in rows]) for name in names
            }
            return emission_of(family(**columns, validate_args=False))
        families = {type(fn) for sites in rows for fn in sites}
    return DistributionEmission(states, example)


_PARAMETERS: dict[Any, tuple[str, ...]] = {
    Bernoulli: ("logits",),
    Categorical: ("logits",),
    Normal: ("loc", "scale"),
    Poisson: ("rate",),
}


def _flat(fn: Any) -> Any:
    """A known family with its batch in one dimension; other distributions as they are."""
    while isinstance(fn, Independent):
        fn = fn.base_dist
    for family, names in _PARAMETERS.items():
        if isinstance(fn, family):
            batch = fn.batch_shape
            tail = 1 if family is Categorical else 0
            parameters = {n: getattr(fn, n) for n in names}
            return family(
                **{n: p.reshape(batch.numel(), *p.shape[p.ndim - tail :]) for n, p in parameters.items()},
                validate_args=False,
            )
    return fn


@final
class DistributionEmission(Emission):
    """Any univariate distributions, one list of observed sites a state; asked one state after the other.

    Args:
        states: for each of K states the distributions of its observed sites.
        example: (D,) an admissible datum, put where a restricted emission has no value to ask about.
    """

    def __init__(self, states: Sequence[Sequence[Distribution]], example: Tensor, keep: Tensor | None = None) -> None:
        self._states, self._example = states, example
        self._keep = torch.arange(len(example)) if keep is None else keep
        self._parameter = torch.zeros(len(states), len(self._keep), dtype=torch.float64)

    @property
    def parameter(self) -> Tensor:
        """Zeros of the shape and dtype of the computation: the parameters are the distributions' own."""
        return self._parameter

    @property
    def is_tabled(self) -> bool:
        """No: nothing is known of the values."""
        return False

    def log_prob(self, x: Tensor) -> Tensor:
        """(N, K, D), in float64."""
        whole = self._example.expand(len(x), -1).clone()
        whole[:, self._keep] = self._checked(x).to(whole)
        log_probs = []
        for sites in self._states:
            shapes = [fn.batch_shape + fn.event_shape for fn in sites]
            parts = whole.split([shape.numel() for shape in shapes], 1)
            each = [self._site_log_prob(fn, p.reshape(-1, *s)) for fn, p, s in zip(sites, parts, shapes, strict=True)]
            log_probs.append(torch.cat(each, 1)[:, self._keep])
        return torch.stack(log_probs, 1).to(torch.float64)

    def _site_log_prob(self, fn: Any, values: Tensor) -> Tensor:
        while isinstance(fn, Independent):
            fn = fn.base_dist
        admissible = fn.support.check(values).reshape(len(values), -1).all(1)
        if not bool(admissible.all()):
            row = int((~admissible).nonzero()[0])
            raise DataError(f"x has a value outside the support of {type(fn).__name__} in row {row}: check that row")
        log_prob: Tensor = fn.log_prob(values)
        return log_prob.reshape(len(values), -1)

    def terms(self, x: Tensor) -> LatentTerms:
        """The (N, K, D) array."""
        return DenseTerms(self.log_prob(x))

    def restrict(self, keep: Tensor) -> Self:
        """Coordinates `keep`."""
        return type(self)(self._states, self._example, self._keep[keep])


@final
class LocalMixtureEmission(Emission):
    """p(x_j | k) = Σ_c v_kcj p(x_j | k, c): a latent of its own at every coordinate, summed out there.

    Args:
        log_weight: (K, C, D).
        emission: of K·C states, c fastest.
        shape: values of each such latent, C in all, the last fastest.
        on_grid: which of the latents are on a grid.
    """

    def __init__(
        self, log_weight: Tensor, emission: Emission, shape: tuple[int, ...], on_grid: tuple[bool, ...]
    ) -> None:
        self._log_weight, self._emission, self._shape, self._on_grid = log_weight, emission, shape, on_grid

    @property
    def parameter(self) -> Tensor:
        """(K, D, C) the weights."""
        return self._log_weight.transpose(1, 2)

    @property
    def is_tabled(self) -> bool:
        """No: the sum over c is an array."""
        return False

    def log_prob(self, x: Tensor) -> Tensor:
        """(N, K, D)."""
        return self._log_joint(x).logsumexp(2)

    def _log_joint(self, x: Tensor) -> Tensor:
        """(N, K, C, D)."""
        return self._emission.log_prob(x).reshape(len(x), *self._log_weight.shape) + self._log_weight

    def fit(self, x: Tensor, log_state: Tensor) -> GridFit:
        """How the posteriors of the latents on a grid lie on it, at the worst coordinate of each row.

        Args:
            x: (N, D).
            log_state: (K,) prior log-probabilities of the states, over which the fit is averaged a posteriori.
        """
        length = max(1, _WORKING_NUMBERS // self._log_weight.numel())
        return GridFit.joined([self._fit_of(block, log_state) for block in x.split(length)])

    def _fit_of(self, x: Tensor, log_state: Tensor) -> GridFit:
        log_joint = self._log_joint(x)
        n, k, _, d = log_joint.shape
        state = (log_joint.logsumexp(2).sum(2) + log_state).softmax(1)[..., None, None]
        axes = [axis for axis, is_on in enumerate(self._on_grid) if is_on]
        others = [axis for axis in range(len(self._shape)) if axis not in axes]
        apart = log_joint.transpose(2, 3).reshape(n * k * d, *self._shape)
        ordered = apart.permute(0, *(1 + axis for axis in others + axes)).flatten(1)
        fit = GridFit.of(ordered, tuple(self._shape[axis] for axis in axes))
        edge, overlap = ((state * part.reshape(n, k, d, -1)).sum(1) for part in (fit.edge, fit.overlap))
        return GridFit(edge.amax(1), overlap.amin(1))

    def terms(self, x: Tensor) -> LatentTerms:
        """The (N, K, D) array."""
        return DenseTerms(self.log_prob(x))

    def restrict(self, keep: Tensor) -> Self:
        """Coordinates `keep`."""
        return type(self)(self._log_weight[..., keep], self._emission.restrict(keep), self._shape, self._on_grid)
