"""Guides of Pyro programs: fitted by SVI, and their density at draws, for importance banks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from mpt_bayes.checks import checked_seed


@dataclass(frozen=True)
class GuideDensity:
    """Draws from a guide and their density, for guides with the program's own sites and for Pyro's AutoContinuous."""

    guide: Callable[..., Any]
    arguments: tuple[Tensor, ...]

    @torch.no_grad()
    def draw(self, seed: int) -> dict[str, Tensor]:
        """Values of the latent sites."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            trace = poutine.trace(self.guide).get_trace(*self.arguments)
        return {
            name: node["value"]
            for name, node in trace.nodes.items()
            if node["type"] == "sample" and not node["infer"].get("is_auxiliary") and not site_is_subsample(node)
        }

    @torch.no_grad()
    def log_prob(self, values: Mapping[str, Tensor]) -> float:
        """log q(values), in the values' own units."""
        if not isinstance(self.guide, pyro.infer.autoguide.AutoContinuous):
            trace = poutine.trace(poutine.condition(self.guide, data=dict(values))).get_trace(*self.arguments)
            return float(trace.log_prob_sum(lambda name, _: name in values))
        parts, log_jacobian = [], 0.0
        for name, site in self.guide.prototype_trace.iter_stochastic_nodes():
            transform = torch.distributions.biject_to(site["fn"].support)
            free = transform.inv(values[name])
            log_jacobian += float(transform.log_abs_det_jacobian(free, values[name]).sum())
            parts.append(free.reshape(-1))
        return float(self.guide.get_posterior(*self.arguments).log_prob(torch.cat(parts)).sum()) - log_jacobian


def fit_guide(
    program: Callable[..., Any], *arguments: Tensor, n_steps: int = 1000, learning_rate: float = 0.02, seed: int = 0
) -> Any:
    """Pyro's AutoMultivariateNormal fitted by SVI, its discrete sites enumerated: a guide for an importance bank."""
    discrete = [
        name
        for name, node in poutine.trace(program).get_trace(*arguments).nodes.items()
        if node["type"] == "sample" and getattr(node["fn"], "has_enumerate_support", False) and not node["is_observed"]
    ]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(checked_seed(seed))
        guide = pyro.infer.autoguide.AutoMultivariateNormal(poutine.block(program, hide=discrete))
        loss = pyro.infer.TraceEnum_ELBO(max_plate_nesting=3) if discrete else pyro.infer.Trace_ELBO(num_particles=4)
        model = pyro.infer.config_enumerate(program) if discrete else program
        svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": learning_rate}), loss)
        for _ in range(n_steps):
            svi.step(*arguments)
    return guide
