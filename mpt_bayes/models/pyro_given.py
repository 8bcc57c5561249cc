"""The model of the coordinates of a Pyro program given the states of its other latents."""

from __future__ import annotations

import torch
from pyro.distributions import DiscreteHMM

from mpt_bayes.errors import ModelError
from mpt_bayes.models.base import JointModel
from mpt_bayes.models.emissions import Emission
from mpt_bayes.models.hidden_markov import HiddenMarkov
from mpt_bayes.models.pyro_emissions import LocalMixtureEmission, stacked_emission
from mpt_bayes.models.pyro_gaussian import gaussian_of
from mpt_bayes.models.pyro_program import Assignment, Latent, Program
from mpt_bayes.models.pyro_quantiles import base_of
from mpt_bayes.models.pyro_states import LocalGrid, State, local_parts


def whole_model(program: Program, normals: list[Latent], state: State) -> JointModel:
    """The joint model of all coordinates given the other latents."""
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


def emission_given(program: Program, states: list[State], local: list[Latent], grid: LocalGrid) -> Emission:
    """The emission of all states, latents of single coordinates summed out."""
    _check_independence(program, states[0])
    parts = list(local_parts(local, grid))
    sites, log_weights = [], []
    for state in states:
        base = state.assignment
        for part, given in parts:
            assignment = Assignment({**base.standard, **part.standard}, {**base.index, **part.index}, base.value)
            trace = program.run(assignment)
            sites.append([trace.nodes[name]["fn"] for name in program.observed])
            log_weight = torch.full((len(program.example),), given, dtype=torch.float64)
            for latent in local:
                if latent.kind == "discrete":
                    node = trace.nodes[latent.name]
                    log_weight = log_weight + node["fn"].log_prob(node["value"]).reshape(-1).double()
            log_weights.append(log_weight)
    emission = stacked_emission(sites, program.example)
    if not local:
        return emission
    on_grid = tuple(latent.kind != "discrete" for latent in local)
    shape = tuple(grid.n_nodes if latent.kind != "discrete" else latent.n_values for latent in local)
    log_weight = torch.stack(log_weights).reshape(len(states), len(parts), -1)
    return LocalMixtureEmission(log_weight, emission, shape, on_grid)


def _check_independence(program: Program, state: State) -> None:
    """Refuse programs whose coordinates depend on each other beyond the latents, and say what can be done."""
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
