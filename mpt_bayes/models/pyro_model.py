"""Any Pyro program whose coordinates are independent, or jointly Gaussian, given its latents."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count, checked_positive, checked_seed, named
from mpt_bayes.errors import ArgumentError
from mpt_bayes.models.base import EstimatedConditionals, JointModel
from mpt_bayes.models.grid_watch import GridFit, GridWatch
from mpt_bayes.models.grids import QuadratureError
from mpt_bayes.models.marginals import restrict
from mpt_bayes.models.mixture import Mixture
from mpt_bayes.models.model_mixture import ModelMixture

if TYPE_CHECKING:
    from mpt_bayes.models.pyro_program import Latent

_NO_POSTERIOR: Mapping[str, Tensor] = {}


@final
class PyroModel(JointModel):
    """A Pyro program as a model: its latents are integrated out, and both sides of the identity computed.

    What is done with each latent is found by running the program: discrete ones are enumerated exactly; normal ones
    that enter the mean of normal data affinely are integrated exactly (autoregressions and multivariate normal data
    too); latents in the plate of the coordinates are summed out at each coordinate; up to three other continuous
    dimensions go on a grid (`quadrature_error` gives its error, and a grid that ends where the posterior of a row is,
    or is too coarse for it, is warned of); more, or sites that can only be sampled, become an importance bank with
    inner standard errors, from `guide` where one is given. A DiscreteHMM site is recognised.
    Parameters are those in Pyro's store now (fitted by SVI, say): build the model again after they change.

    Args:
        program: of one datum: takes a (D,) tensor, or no argument and is then conditioned on it. With `rows`, of a
            table: takes (1, D).
        example: (D,) an admissible datum, in the dtype the program takes.
        observed: the site of the coordinates, or the names of several, in order.
        rows: name of the plate of independent rows, if the program has one.
        posterior: draws (S, ...) of sites (NUTS samples), in place of their prior: the posterior predictive. S ≥ 2.
        guide: of the continuous latents that are not integrated exactly: a guide with their sites, or an
            AutoContinuous; see `mpt_bayes.models.pyro_guides.fit_guide`.
        n_nodes: of the grid, a side: 176, 40 and 16 by default in 1, 2 and 3 dimensions.
        half_width: of the grid, in prior standard deviations: 8, 6 and 6 by default.
        n_samples: draws where no grid is possible.
        seed: of the draws.

    Raises:
        ArgumentError: a program that is no function of one datum; draws or a guide of other sites than the program's
            latents; fewer than two draws.
        DataError: an example, or posterior draws, that are no tensor, not finite, of another shape, or outside the
            support of their site.
        ModelError: a site that is no density of its value (factor, scale, mask), other observed data, random numbers
            outside sample sites; no such site or plate, a plate of rows not named, rows that depend on each other,
            coordinates that depend on each other in a way this bridge cannot integrate, or too many states.

    Example:
        >>> import pyro, pyro.distributions as dist
        >>> def program(x):
        ...     k = pyro.sample("k", dist.Categorical(torch.tensor([0.3, 0.7])))
        ...     pyro.sample("x", dist.Normal(torch.tensor([-1.0, 2.0])[k], 1.0).expand([3]).to_event(1), obs=x)
        >>> model = PyroModel(program, torch.zeros(3))
        >>> model, model.log_marginal_likelihood(torch.zeros(1, 3)).shape
        (PyroModel(D=3, 2 states, exact enumeration), torch.Size([1]))
    """

    def __init__(
        self,
        program: Callable[..., Any],
        example: Tensor,
        *,
        observed: str | tuple[str, ...] = "x",
        rows: str | None = None,
        posterior: Mapping[str, Tensor] = _NO_POSTERIOR,
        guide: Callable[..., Any] | None = None,
        n_nodes: int | None = None,
        half_width: float | None = None,
        n_samples: int = 1000,
        seed: int = 0,
    ) -> None:
        from mpt_bayes.models.pyro_doors import check_datum, check_draws, check_sites, checked_names
        from mpt_bayes.models.pyro_program import Program
        from mpt_bayes.models.pyro_states import local_grid_of, plan_for, states_of

        check_draws(posterior)
        if guide is not None and not callable(guide):
            raise ArgumentError(f"guide is {named(guide)}: expected a Pyro guide, a function with sample statements")
        check_datum(example)
        if example.dtype == torch.bool:  # distributions of bits compute with numbers
            example = example.to(torch.get_default_dtype())
        names = checked_names(observed)
        self._program = Program(program, names, example, rows)
        self._options = {
            "n_nodes": None if n_nodes is None else checked_count(n_nodes, "n_nodes", 2),
            "half_width": None if half_width is None else checked_positive(half_width, "half_width"),
            "n_samples": checked_count(n_samples, "n_samples", 2),
            "posterior": posterior,
            "guide": guide,
            "seed": checked_seed(seed),
        }
        latents = self._program.latents(set(posterior))
        check_sites(posterior, latents)
        whole = self._normals_of_a_whole(latents, set(posterior))
        self._is_whole, self._normals, self._local = whole is not None, whole or [], []
        if whole is None:
            summed = [latent for latent in latents if latent.is_local and latent.kind != "sampled"]
            self._local = [latent for latent in summed if latent.name not in posterior]
        self._outer = [latent for latent in latents if latent not in self._normals + self._local]
        self._plan = plan_for(self._outer, **self._options)  # type: ignore[arg-type]
        self._states = states_of(self._program, self._outer, self._plan)
        self._local_grid = local_grid_of(self._local, len(self._states))
        self.model, self._local_watch = self._built()
        self._keep = torch.arange(self.model.dim, device=self.model.device)

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return self.model.dim

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.model.device

    @property
    def is_estimated(self) -> bool:
        """Whether latents were drawn rather than enumerated or put on a grid."""
        return self._plan.n_samples > 0

    @property
    def n_states(self) -> int:
        """K, the values of the latents that are summed over."""
        return len(self._states)

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible)."""
        return self.model.masked_log_prob(x, hidden)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log p(x_n)."""
        log_prob = self.model.log_marginal_likelihood(x)
        if self._local_watch is not None:
            self._local_watch.look(x, self._local_fit(x))
        return log_prob

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible)."""
        return self.model.marginal_log_prob(x, visible)

    def restrict(self, keep: Tensor) -> Self:
        """The marginal over coordinates `keep`."""
        part = copy.copy(self)
        part.model, part._keep = restrict(self.model, keep), self._keep[keep]
        return part

    @torch.no_grad()
    def quadrature_error(self, x: Tensor) -> QuadratureError:
        """log p(x) of this grid against one a fifth wider with half as many nodes again a side; zero without a grid.

        Infinite for rows whose posterior is beyond that grid too.
        """
        on_grid = [latent for latent in self._outer + self._local if latent.kind != "discrete"]
        if not self._plan.n_nodes and not self._local_grid.n_nodes:
            return QuadratureError.of(torch.zeros(len(x), dtype=torch.float64), self.n_states, self.n_states)
        from mpt_bayes.models.pyro_states import states_of

        finer, reach = copy.copy(self), min(latent.reach for latent in on_grid)
        if self._plan.n_nodes:
            finer._plan = self._plan.finer(reach)
            finer._states = states_of(self._program, self._outer, finer._plan)
        finer._local_grid = self._local_grid.finer(reach)
        whole, finer._local_watch = finer._built()
        finer.model = restrict(whole, self._keep)
        watches = [watch for watch in (getattr(finer.model, "watch", None), finer._local_watch) if watch is not None]
        for watch in watches:
            watch.is_silent = True
        signed = self.log_marginal_likelihood(x) - finer.log_marginal_likelihood(x)
        return QuadratureError.of(signed, self.n_states, finer.n_states, *watches)

    def warn_of_grid(self, x: Tensor) -> None:
        """A warning where the grid ends where a posterior is, or is too coarse for it; computes log p(x)."""
        if self._plan.n_nodes or self._local_grid.n_nodes:
            self.log_marginal_likelihood(x)

    def _local_fit(self, x: Tensor) -> GridFit:
        """How the posteriors of latents of single coordinates lie on their grid."""
        from mpt_bayes.models.pyro_emissions import LocalMixtureEmission

        assert isinstance(self.model, Mixture)
        assert isinstance(self.model.emission, LocalMixtureEmission)
        return self.model.emission.fit(x.to(self.model.dtype), self.model.log_weight)

    def score_influence(self, x: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) derivative of Σ_p weight_pj s(M_p) in the log weights of the draws."""
        return self._estimated().score_influence(x, hidden, weight)

    def log_prob_influence(self, x: Tensor, visible: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) derivative of Σ_p weight_pj log p(x_A_p) in the log weights of the draws."""
        return self._estimated().log_prob_influence(x, visible, weight)

    def inner_variance(self, x: Tensor, influence: Tensor) -> float:
        """The variance of the total over rows, which share their draws."""
        return self._estimated().inner_variance(x, influence)

    def warn_if_poor(self, x: Tensor) -> None:
        """A warning where few draws count."""
        self._estimated().warn_if_poor(x)

    def _estimated(self) -> EstimatedConditionals:
        assert isinstance(self.model, EstimatedConditionals)
        return self.model

    def _normals_of_a_whole(self, latents: list[Latent], fixed: set[str]) -> list[Latent] | None:
        """The normal latents that are integrated exactly, where the program given the others is a Gaussian or a chain.

        All of them if possible, else all but one (the coefficient of an autoregression, say), else none.
        """
        from pyro.distributions import DiscreteHMM

        from mpt_bayes.models.pyro_gaussian import gaussian_of
        from mpt_bayes.models.pyro_program import Assignment

        trace = self._program.run(Assignment())
        if isinstance(trace.nodes[self._program.observed[0]]["fn"], DiscreteHMM):
            return []
        normals = [latent for latent in latents if latent.kind == "normal" and latent.name not in fixed]
        choices = [normals, *([n for n in normals if n is not one] for one in normals), []]
        for chosen in choices:
            value = {latent.name: trace.nodes[latent.name]["value"] for latent in latents if latent not in chosen}
            if gaussian_of(self._program, chosen, Assignment(value=value), n_checks=32) is not None:
                return chosen
        return None

    def _built(self) -> tuple[JointModel, GridWatch | None]:
        """The model of the states, and what looks at the latents of single coordinates on their grid."""
        from mpt_bayes.models.pyro_given import emission_given, whole_model
        from mpt_bayes.models.pyro_states import local_watch_of, watch_of

        weights = torch.tensor([state.log_weight for state in self._states], dtype=torch.float64).softmax(0)
        draws = None
        if self._plan.n_samples:
            draws = torch.tensor([state.draw for state in self._states])
        model: Mixture | ModelMixture
        if self._is_whole:
            models = [whole_model(self._program, self._normals, state) for state in self._states]
            if len(models) == 1:
                return models[0], None
            model = ModelMixture(weights, models, draws=draws)
        else:
            emission = emission_given(self._program, self._states, self._local, self._local_grid)
            model = Mixture(weights, emission, draws=draws)
        model.watch = watch_of(self._outer, self._plan)
        return model, local_watch_of(self._local, self._local_grid)

    def __repr__(self) -> str:
        how = [text for text in (self._plan.describe(), self._local_grid.describe()) if text]
        return f"PyroModel(D={self.dim}, {len(self._states)} states, {', '.join(how) or 'exact enumeration'})"
