"""Any Pyro program whose coordinates are independent, or jointly Gaussian, given its latents."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_seed, checked_tensor
from mpt_bayes.errors import ModelError
from mpt_bayes.models.base import EstimatedConditionals, JointModel
from mpt_bayes.models.emissions import Emission
from mpt_bayes.models.grids import QuadratureError
from mpt_bayes.models.hidden_markov import HiddenMarkov
from mpt_bayes.models.marginals import restrict
from mpt_bayes.models.mixture import Mixture
from mpt_bayes.models.model_mixture import ModelMixture

if TYPE_CHECKING:
    from mpt_bayes.models.pyro_program import Latent, Program
    from mpt_bayes.models.pyro_states import State

_NO_POSTERIOR: Mapping[str, Tensor] = {}


@final
class PyroModel(JointModel):
    """A Pyro program as a model: its latents are integrated out, and both sides of the identity computed.

    What is done with each latent is found by running the program: discrete ones are enumerated exactly; normal ones
    that enter the mean of normal data affinely are integrated exactly (autoregressions and multivariate normal data
    too); latents in the plate of the coordinates are summed out at each coordinate; up to three other continuous
    dimensions go on a grid (`quadrature_error` gives its error); more, or sites that can only be sampled, become an
    importance bank with inner standard errors, from `guide` where one is given. A DiscreteHMM site is recognised.
    Parameters are those in Pyro's store now (fitted by SVI, say): build the model again after they change.

    Args:
        program: of one datum: takes a (D,) tensor, or no argument and is then conditioned on it. With `rows`, of a
            table: takes (1, D).
        example: (D,) an admissible datum, in the dtype the program takes.
        observed: the site of the coordinates, or the names of several, in order.
        rows: name of the plate of independent rows, if the program has one.
        posterior: draws (S, ...) of sites (NUTS samples), in place of their prior: the posterior predictive.
        guide: of the other continuous latents: any guide with their sites, or an AutoContinuous; see
            `mpt_bayes.models.pyro_guides.fit_guide`.
        n_nodes: of the grid, a side: 128, 40 and 16 by default in 1, 2 and 3 dimensions.
        n_samples: draws where no grid is possible.
        seed: of the draws.

    Raises:
        ArgumentError: a program that is no function of one datum.
        DataError: an example, or posterior draws, that are no tensor; an example of another shape than (D,), or with
            missing entries.
        ModelError: no such site or plate, a plate of rows not named, rows that depend on each other, coordinates
            that depend on each other in a way this bridge cannot integrate, or too many states; each says what to do.

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
        n_samples: int = 1000,
        seed: int = 0,
    ) -> None:
        from mpt_bayes.models.pyro_program import Program, check_datum
        from mpt_bayes.models.pyro_states import plan_for, states_of

        for name, draws in posterior.items():
            checked_tensor(draws, f"posterior[{name!r}]")
        check_datum(example)
        names = (observed,) if isinstance(observed, str) else tuple(observed)
        self._program = Program(program, names, example, rows)
        self._options = {
            "n_nodes": n_nodes,
            "n_samples": n_samples,
            "posterior": posterior,
            "guide": guide,
            "seed": checked_seed(seed),
        }
        latents = self._program.latents(set(posterior))
        whole = self._normals_of_a_whole(latents, set(posterior))
        self._is_whole, self._normals, self._local = whole is not None, whole or [], []
        if whole is None:
            self._local = [latent for latent in latents if latent.is_local and latent.kind != "sampled"]
        self._outer = [latent for latent in latents if latent not in self._normals + self._local]
        self._plan = plan_for(self._outer, **self._options)  # type: ignore[arg-type]
        self._states = states_of(self._program, self._outer, self._plan)
        self.model = self._built()
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
        return self.model.log_marginal_likelihood(x)

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
        """log p(x) of this grid against one of half as many nodes again a side; zero without a grid."""
        if not self._plan.n_nodes:
            return QuadratureError.of(torch.zeros(len(x), dtype=torch.float64), self.n_states, self.n_states)
        from mpt_bayes.models.pyro_states import plan_for, states_of

        finer = copy.copy(self)
        finer._plan = plan_for(self._outer, **(self._options | {"n_nodes": 3 * self._plan.n_nodes // 2}))  # type: ignore[arg-type]
        finer._states = states_of(self._program, self._outer, finer._plan)
        there = restrict(finer._built(), self._keep).log_marginal_likelihood(x)
        return QuadratureError.of(self.log_marginal_likelihood(x) - there, self.n_states, finer.n_states)

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
            if gaussian_of(self._program, chosen, Assignment(value=value)) is not None:
                return chosen
        return None

    def _built(self) -> JointModel:
        """The model of the states."""
        weights = torch.tensor([state.log_weight for state in self._states], dtype=torch.float64).softmax(0)
        draws = None
        if self._plan.n_samples:
            draws = torch.tensor([state.draw for state in self._states])
        if not self._is_whole:
            return Mixture(weights, _emission(self._program, self._states, self._local), draws=draws)
        models = [_whole(self._program, self._normals, state) for state in self._states]
        return models[0] if len(models) == 1 else ModelMixture(weights, models, draws=draws)

    def __repr__(self) -> str:
        return f"PyroModel(D={self.dim}, {len(self._states)} states, {self._plan.describe()})"


def _whole(program: Program, normals: list[Latent], state: State) -> JointModel:
    """The joint model of all coordinates given the other latents."""
    from pyro.distributions import DiscreteHMM

    from mpt_bayes.models.pyro_gaussian import gaussian_of

    fn = program.run(state.assignment).nodes[program.observed[0]]["fn"]
    if isinstance(fn, DiscreteHMM):
        return HiddenMarkov.from_pyro(fn, length=len(program.example))
    model = gaussian_of(program, normals, state.assignment)
    if model is None:
        raise ModelError(
            "the program is Gaussian for some values of its other latents and not for others: give it a form that "
            "does not change with them"
        )
    return model


def _emission(program: Program, states: list[State], local: list[Latent]) -> Emission:
    """The emission of all states, latents of single coordinates summed out."""
    from mpt_bayes.models.pyro_emissions import LocalMixtureEmission, stacked_emission
    from mpt_bayes.models.pyro_program import Assignment
    from mpt_bayes.models.pyro_states import local_parts

    _check_independence(program, states[0])
    parts = list(local_parts(program, local))
    sites, log_weights = [], []
    for state in states:
        base = state.assignment
        for part, given in parts:
            assignment = Assignment({**base.standard, **part.standard}, {**base.index, **part.index}, base.value)
            trace = program.run(assignment)
            sites.append([trace.nodes[name]["fn"] for name in program.observed])
            log_weight = torch.full((len(program.example),), sum(given.values()), dtype=torch.float64)
            for latent in local:
                if latent.kind == "discrete":
                    node = trace.nodes[latent.name]
                    log_weight = log_weight + node["fn"].log_prob(node["value"]).reshape(-1).double()
            log_weights.append(log_weight)
    emission = stacked_emission(sites, program.example)
    if not local:
        return emission
    return LocalMixtureEmission(torch.stack(log_weights).reshape(len(states), len(parts), -1), emission)


def _check_independence(program: Program, state: State) -> None:
    """Refuse programs whose coordinates depend on each other beyond the latents, and say what can be done."""
    from mpt_bayes.models.pyro_program import base_of

    trace = program.run(state.assignment)
    nodes = [trace.nodes[name] for name in program.observed]
    remedy = (
        "given its latents the coordinates must be independent, or normal with means affine in the latents and in "
        "earlier coordinates. Write the dependence through latents (a mixture, factors), as a DiscreteHMM, or as a "
        "JointModel of your own with marginal_log_prob"
    )
    for name, node in zip(program.observed, nodes, strict=True):
        base = base_of(node["fn"])
        if base.event_shape:
            raise ModelError(f"site '{name}' is {type(base).__name__}, one distribution over several values: {remedy}")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for _ in range(3):
            other = torch.cat([node["fn"].sample().reshape(-1) for node in nodes]).to(program.example)
            again = program.run(state.assignment, other)
            for name, node in zip(program.observed, nodes, strict=True):
                moved = base_of(again.nodes[name]["fn"]).log_prob(node["value"])
                if not torch.allclose(moved, base_of(node["fn"]).log_prob(node["value"]), equal_nan=True):
                    raise ModelError(f"the distribution at site '{name}' changes with the data themselves: {remedy}")
