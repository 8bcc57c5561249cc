"""The states of a bank from a Pyro program: its shared latents enumerated, on a grid, drawn, or from a guide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from mpt_bayes.errors import ModelError
from mpt_bayes.models.grids import prior_grid
from mpt_bayes.models.pyro_guides import GuideDensity
from mpt_bayes.models.pyro_program import Assignment, Latent, Program, log_prob_of
from mpt_bayes.numerics.random import Stream

MAX_STATES = 20_000
N_NODES = {1: 128, 2: 40, 3: 16}
LOCAL_NODES = 32


@dataclass(frozen=True)
class State:
    """One state of the bank: values for all shared latents, its weight, and the draw it comes from (None: no draws)."""

    assignment: Assignment
    log_weight: float
    draw: int | None


@dataclass(frozen=True)
class Plan:
    """How the shared latents are handled.

    Attributes:
        n_nodes: of a grid, a side; 0 for none.
        n_samples: draws where there is no grid; 0 for none.
        posterior: draws of some sites, in place of their prior.
    """

    n_nodes: int
    n_samples: int
    posterior: Mapping[str, Tensor]
    guide: Callable[..., Any] | None
    seed: int

    def describe(self) -> str:
        """In words, for a repr."""
        if self.n_samples:
            source = "posterior" if self.posterior else "guide and prior" if self.guide else "prior"
            return f"{self.n_samples} draws from the {source}"
        return f"{self.n_nodes} quadrature nodes a dimension" if self.n_nodes else "exact enumeration"


def plan_for(
    outer: list[Latent],
    *,
    n_nodes: int | None,
    n_samples: int,
    posterior: Mapping[str, Tensor],
    guide: Callable[..., Any] | None,
    seed: int,
) -> Plan:
    """A grid for up to three continuous dimensions without a guide, else draws; only enumeration where all is discrete.

    Raises:
        ModelError: posterior draws of different lengths.
    """
    lengths = {len(draws) for draws in posterior.values()}
    if len(lengths) > 1:
        raise ModelError(f"posterior has sites with {sorted(lengths)} draws: give the same draws of every site")
    continuous = [latent for latent in outer if latent.kind != "discrete" and latent.name not in posterior]
    dim = sum(latent.size for latent in continuous)
    drawn = any(latent.kind == "sampled" for latent in continuous) or dim > max(N_NODES) or guide is not None
    if posterior:
        return Plan(0, lengths.pop(), posterior, None, seed)
    if drawn:
        return Plan(0, n_samples, {}, guide, seed)
    return Plan((n_nodes or N_NODES[dim]) if dim else 0, 0, {}, None, seed)


def states_of(program: Program, outer: list[Latent], plan: Plan) -> list[State]:
    """All states: every combination of the discrete latents with every node or draw of the continuous ones.

    Raises:
        ModelError: more than 20,000 states.
    """
    discrete = [latent for latent in outer if latent.kind == "discrete" and latent.name not in plan.posterior]
    continuous = [latent for latent in outer if latent.kind != "discrete" and latent.name not in plan.posterior]
    combinations = math.prod(latent.n_values**latent.size for latent in discrete)
    points = plan.n_samples or (plan.n_nodes ** sum(latent.size for latent in continuous) if continuous else 1)
    if combinations * points > MAX_STATES:
        names = ", ".join(f"'{latent.name}' ({latent.n_values}^{latent.size})" for latent in discrete)
        raise ModelError(
            f"{combinations} combinations of {names or 'no discrete latents'} times {points} points of the continuous "
            f"ones are above {MAX_STATES} states: put latents of one coordinate in its plate, write chains as "
            "DiscreteHMM (or mpt_bayes.models.HiddenMarkov), or lower n_nodes or n_samples"
        )
    states = []
    for index in _combinations(discrete):
        for assignment, log_weight, draw in _points(program, continuous, Assignment(index=index), plan):
            own = log_prob_of(program.run(assignment), set(index))
            states.append(State(assignment, log_weight + own, draw))
    return states


def _combinations(discrete: list[Latent]) -> Iterator[dict[str, Tensor]]:
    ranges = [range(latent.n_values) for latent in discrete for _ in range(latent.size)]
    for combination in itertools.product(*ranges):
        values = torch.tensor(combination, dtype=torch.int64).split([latent.size for latent in discrete])
        yield {latent.name: v.reshape(latent.shape) for latent, v in zip(discrete, values, strict=True)}


def _points(
    program: Program, continuous: list[Latent], base: Assignment, plan: Plan
) -> Iterator[tuple[Assignment, float, int | None]]:
    """Values of the continuous latents with their log weights, for one combination of the discrete ones."""
    if plan.posterior:
        for draw in range(plan.n_samples):
            value = {name: draws[draw] for name, draws in plan.posterior.items()}
            trace = program.run(Assignment(index=base.index, value=value), seed=_seed(plan, draw))
            value |= {latent.name: trace.nodes[latent.name]["value"] for latent in continuous}
            yield Assignment(index=base.index, value=value), -math.log(plan.n_samples), draw
    elif plan.n_samples:
        yield from _drawn(program, continuous, base, plan)
    elif continuous:
        sizes = [latent.size for latent in continuous]
        grid = prior_grid(sum(sizes), plan.n_nodes)
        log_weights = (grid.weights / grid.weights.sum()).log().tolist()
        for node, log_weight in zip(grid.nodes, log_weights, strict=True):
            standard = {latent.name: z for latent, z in zip(continuous, node.split(sizes), strict=True)}
            yield Assignment(standard=standard, index=base.index), log_weight, None
    else:
        yield base, 0.0, None


def _drawn(
    program: Program, continuous: list[Latent], base: Assignment, plan: Plan
) -> Iterator[tuple[Assignment, float, int]]:
    """Draws from the prior; with a guide, half from each, weighted by prior over the mixture of both."""
    names = {latent.name for latent in continuous}
    guide = None if plan.guide is None else GuideDensity(plan.guide, program.arguments(program.example))
    for draw in range(plan.n_samples):
        seed = _seed(plan, draw)
        value = {} if guide is None or draw % 2 == 0 else guide.draw(seed)
        trace = program.run(Assignment(index=base.index, value=value), seed=seed)
        value = {name: trace.nodes[name]["value"] for name in names}
        log_weight = -math.log(plan.n_samples)
        if guide is not None:
            log_prior = log_prob_of(trace, names)
            log_weight += log_prior - float(
                torch.logaddexp(torch.tensor(log_prior), torch.tensor(guide.log_prob(value))) - math.log(2)
            )
        yield Assignment(index=base.index, value=value), log_weight, draw


def _seed(plan: Plan, draw: int) -> int:
    return Stream(plan.seed).child("pyro", draw).generator().initial_seed()


def local_parts(program: Program, local: list[Latent]) -> Iterator[tuple[Assignment, dict[str, float]]]:
    """Every combination of the latents of single coordinates: all coordinates take it at once.

    Yields the assignment and the log weights of the continuous ones (those of discrete ones are the program's own).
    """
    nodes, weights = roots_hermitenorm(LOCAL_NODES)
    choices: list[list[tuple[str, float, float]]] = []
    for latent in local:
        if latent.kind == "discrete":
            choices.append([(latent.name, float(v), math.nan) for v in range(latent.n_values)])
        else:
            total = float(weights.sum())
            choices.append(
                [(latent.name, z, math.log(w / total)) for z, w in zip(nodes, weights, strict=True) if w > 0]
            )
    kinds = {latent.name: latent for latent in local}
    for combination in itertools.product(*choices):
        index, standard, given = {}, {}, {}
        for name, value, log_weight in combination:
            if kinds[name].kind == "discrete":
                index[name] = torch.tensor(int(value))
            else:
                standard[name] = torch.full(kinds[name].shape, value, dtype=torch.float64)
                given[name] = log_weight
        yield Assignment(standard=standard, index=index), given
