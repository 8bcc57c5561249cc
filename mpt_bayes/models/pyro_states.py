"""The states of a bank from a Pyro program: its shared latents enumerated, on a grid, drawn, or from a guide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError, ModelError
from mpt_bayes.models.grid_watch import GridWatch
from mpt_bayes.models.grids import prior_grid
from mpt_bayes.models.pyro_doors import check_guide
from mpt_bayes.models.pyro_guides import GuideDensity
from mpt_bayes.models.pyro_program import Assignment, Latent, Program, log_prob_of
from mpt_bayes.numerics.random import Stream

MAX_STATES = 20_000
N_NODES = {1: 176, 2: 40, 3: 16}
HALF_WIDTH = {1: 8.0, 2: 6.0, 3: 6.0}
_LOCAL_RUNS = 2**12


@dataclass(frozen=True)
class State:
    """One state of the bank: values for all shared latents, its weight, and the draw it comes from (None: no draws)."""

    assignment: Assignment
    log_weight: float
    draw: int | None


@dataclass(frozen=True)
class LocalGrid:
    """Of each continuous latent of single coordinates: nodes, 0 without such latents, and half width."""

    n_nodes: int
    half_width: float

    def describe(self) -> str:
        """In words, for a repr."""
        return f"{self.n_nodes} quadrature nodes a coordinate" if self.n_nodes else ""

    def finer(self, reach: float) -> LocalGrid:
        """Half as many nodes again, a fifth wider where quantiles reach as far."""
        return LocalGrid(3 * self.n_nodes // 2, max(self.half_width, min(1.2 * self.half_width, reach)))


@dataclass(frozen=True)
class Plan:
    """How the shared latents are handled.

    Attributes:
        n_nodes: of a grid, a side; 0 for none.
        half_width: of a grid, in prior standard deviations.
        n_samples: draws where there is no grid; 0 for none.
        posterior: draws of some sites, in place of their prior.
    """

    n_nodes: int
    half_width: float
    n_samples: int
    posterior: Mapping[str, Tensor]
    guide: Callable[..., Any] | None
    seed: int

    def describe(self) -> str:
        """In words, for a repr."""
        if self.n_samples:
            source = "posterior" if self.posterior else "guide and prior" if self.guide else "prior"
            return f"{self.n_samples} draws from the {source}"
        return f"{self.n_nodes} quadrature nodes a dimension" if self.n_nodes else ""

    def finer(self, reach: float) -> Plan:
        """Half as many nodes again a side, a fifth wider where quantiles reach as far."""
        width = max(self.half_width, min(1.2 * self.half_width, reach))
        return replace(self, n_nodes=3 * self.n_nodes // 2, half_width=width)


def plan_for(
    outer: list[Latent],
    *,
    n_nodes: int | None,
    half_width: float | None,
    n_samples: int,
    posterior: Mapping[str, Tensor],
    guide: Callable[..., Any] | None,
    seed: int,
) -> Plan:
    """A grid for up to three continuous dimensions without a guide, else draws; only enumeration where all is discrete.

    Raises:
        ArgumentError: a grid wider than the quantiles of a site can be told apart.
    """
    continuous = [latent for latent in outer if latent.kind != "discrete" and latent.name not in posterior]
    dim = sum(latent.size for latent in continuous)
    drawn = any(latent.kind == "sampled" for latent in continuous) or dim > max(N_NODES) or guide is not None
    if posterior:
        return Plan(0, 0, len(next(iter(posterior.values()))), posterior, None, seed)
    if drawn:
        return Plan(0, 0, n_samples, {}, guide, seed)
    if not dim:
        return Plan(0, 0, 0, {}, None, seed)
    nearest = min(continuous, key=lambda latent: latent.reach)
    if half_width is not None and half_width > nearest.reach:
        raise ArgumentError(
            f"half_width is {half_width}: the quantiles of site '{nearest.name}' cannot be told apart beyond "
            f"{nearest.reach:g} standard deviations; write it as a function of a Normal, Gamma or Exponential site"
        )
    return Plan(n_nodes or N_NODES[dim], half_width or HALF_WIDTH[dim], 0, {}, None, seed)


def watch_of(outer: list[Latent], plan: Plan) -> GridWatch | None:
    """What looks at the posteriors of data on the grid of a plan; None without a grid."""
    if not plan.n_nodes:
        return None
    continuous = [latent for latent in outer if latent.kind != "discrete"]
    names = [f"'{latent.name}'" for latent in continuous for _ in range(latent.size)]
    wider = (
        f"pass half_width={2 * plan.half_width:g}, n_nodes={2 * plan.n_nodes} (now {plan.half_width:g}, {plan.n_nodes})"
    )
    if min(latent.reach for latent in continuous) < 2 * plan.half_width:
        wider = "give that site a prior that reaches the data, or pass guide=..."
    finer = f"raise n_nodes (now {plan.n_nodes} a side), or pass guide=..."
    return GridWatch((plan.n_nodes,) * len(names), tuple(names), wider, finer)


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
        grid = prior_grid(sum(sizes), plan.n_nodes, half_width=plan.half_width)
        log_weights = (grid.weights / grid.weights.sum()).log().tolist()
        for node, log_weight in zip(grid.nodes, log_weights, strict=True):
            standard = {latent.name: z for latent, z in zip(continuous, node.split(sizes), strict=True)}
            yield Assignment(standard=standard, index=base.index), log_weight, None
    else:
        yield base, 0.0, None


def _drawn(
    program: Program, continuous: list[Latent], base: Assignment, plan: Plan
) -> Iterator[tuple[Assignment, float, int]]:
    """Draws from the prior; with a guide, half from each, weighted by prior over the mixture of both.

    Raises:
        ArgumentError: a guide of other sites.
    """
    names = {latent.name for latent in continuous}
    guide = None
    if plan.guide is not None:
        guide = GuideDensity(plan.guide, program.arguments(program.example))
        check_guide(set(guide.draw(plan.seed)), names)
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


def local_grid_of(local: list[Latent], n_states: int) -> LocalGrid:
    """48 to 256 nodes for each continuous latent of single coordinates: as many as a few thousand runs allow."""
    n_continuous = sum(latent.kind != "discrete" for latent in local)
    if not n_continuous:
        return LocalGrid(0, 0.0)
    affordable = (_LOCAL_RUNS / n_states) ** (1 / n_continuous)
    return LocalGrid(int(min(256, max(48, affordable))), HALF_WIDTH[1])


def local_watch_of(local: list[Latent], grid: LocalGrid) -> GridWatch | None:
    """What looks at the posteriors of latents of single coordinates; None where they are all discrete."""
    names = tuple(f"'{latent.name}'" for latent in local if latent.kind != "discrete")
    remedy = (
        "make it one site of D values outside the plate of the coordinates, with guide=..., or use an ImportanceBank"
    )
    return GridWatch((grid.n_nodes,) * len(names), names, remedy, remedy) if names else None


def local_parts(local: list[Latent], grid: LocalGrid) -> Iterator[tuple[Assignment, float]]:
    """Every combination of the latents of single coordinates: all coordinates take it at once.

    Yields the assignment and the log weight of the continuous ones (those of discrete ones are the program's own).
    """
    nodes: list[tuple[float, float]] = []
    if grid.n_nodes:
        side = prior_grid(1, grid.n_nodes, half_width=grid.half_width)
        nodes = list(zip(side.nodes[:, 0].tolist(), (side.weights / side.weights.sum()).log().tolist(), strict=True))
    choices = [nodes if latent.kind != "discrete" else [(v, 0.0) for v in range(latent.n_values)] for latent in local]
    for combination in itertools.product(*choices):
        index, standard = {}, {}
        for latent, (value, _) in zip(local, combination, strict=True):
            if latent.kind == "discrete":
                index[latent.name] = torch.tensor(int(value))
            else:
                standard[latent.name] = torch.full(latent.shape, value, dtype=torch.float64)
        yield Assignment(standard=standard, index=index), math.fsum(log_weight for _, log_weight in combination)
