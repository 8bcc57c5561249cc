"""A GPyTorch loop on Mauna Loa CO2 with three kernels; masked prediction replaces the exact evidence in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpytorch
import torch
from torch import Tensor

import mpt_bayes as mb
from mpt_bayes.gpytorch_mll import MaskedPredictionMLL


class Process(gpytorch.models.ExactGP):
    """An ordinary ExactGP."""

    def __init__(self, inputs: Tensor, targets: Tensor, likelihood: Any, kernel: Any) -> None:
        super().__init__(inputs, targets, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def kernels() -> dict[str, Any]:
    """Three kernels, each with its own scale."""
    from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

    season = PeriodicKernel()
    season.period_length = 1.0
    decay = RBFKernel()
    decay.lengthscale = 30.0
    trend = RBFKernel()
    trend.lengthscale = 30.0
    return {
        "rbf": ScaleKernel(RBFKernel()),
        "matern52": ScaleKernel(MaternKernel(nu=2.5)),
        "trend + season": ScaleKernel(trend) + ScaleKernel(season * decay),
    }


OBJECTIVES = {
    "exact evidence": gpytorch.mlls.ExactMarginalLogLikelihood,
    "masked prediction": MaskedPredictionMLL,
}


def trained(
    kernel: Any, inputs: Tensor, targets: Tensor, objective: Any, steps: int, learning_rate: float
) -> mb.models.GaussianProcess:
    """The loop of GPyTorch's own regression tutorial."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(inputs, targets, likelihood, kernel).double()
    model.train()
    mll = objective(likelihood, model)  # the one line that differs
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -mll(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return mb.models.GaussianProcess(model)


def run(config: dict[str, Any], out: Path) -> None:
    """Exact evidence of every kernel, trained either way, and the criteria of the models trained by masks."""
    series = mb.datasets.load("co2")
    assert series.inputs is not None
    present = ~series.x[0].isnan()
    inputs, targets = series.inputs[present, 0][:: config["every"]], series.x[0][present][:: config["every"]]
    inputs, targets = inputs - inputs[0], (targets - targets.mean()) / targets.std()
    processes = {
        (name, objective): trained(kernels()[name], inputs, targets, make, config["steps"], config["learning_rate"])
        for name in kernels()
        for objective, make in OBJECTIVES.items()
    }
    evidence = {
        f"{name}, by {objective}": float(process.log_marginal_likelihood(targets[None]).detach())
        for (name, objective), process in processes.items()
    }
    by_masks = {name: process for (name, objective), process in processes.items() if objective == "masked prediction"}
    table = mb.compare_models(by_masks, targets[None], fractions=[0.8], design=mb.masks.RandomOrders(config["orders"]))
    (out / "results.json").write_text(
        json.dumps({"n": len(targets), "evidence": evidence, "table": table.to_dict()}, indent=1), encoding="utf-8"
    )
    print(len(targets), evidence)
    print(table)
    from mpt_bayes.plots import plot_models

    ax = plot_models(table)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.savefig(out / "figure.png")
