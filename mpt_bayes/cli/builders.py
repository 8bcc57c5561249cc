"""MODEL on the command line: how each name is fitted to the data. A new name is one function and one entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.checks import Missing
from mpt_bayes.cli.inputs import Table
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models import PPCA, FactorAnalysis, Gaussian, GaussianProcess, JointModel


@dataclass(frozen=True)
class ModelOptions:
    """What the command line says about a model; each name uses what it needs."""

    latent_dim: int
    kernel: str
    ridge: float
    missing: Missing


@dataclass(frozen=True)
class Fitted:
    """A fitted model with the data in the shape it scores.

    Attributes:
        name: as on the command line.
        x: (N, D); one row for a Gaussian process, whose outputs are the coordinates.
        parameters: what was fitted or chosen, for the JSON output.
    """

    name: str
    model: JointModel
    x: Tensor
    parameters: dict[str, Any] = field(default_factory=dict)

    def fields(self, table: Table) -> dict[str, Any]:
        """The `model` and `data` fields of the JSON output."""
        return {"model": {"name": self.name, "parameters": self.parameters}, "data": table.to_dict()}

    def title(self, table: Table) -> str:
        """What was scored, for a person."""
        return f"{self.name} on {table.name} (N = {len(self.x)}, D = {self.x.shape[1]})"


def fit(name: str, table: Table, options: ModelOptions) -> Fitted:
    """Fit the model called `name` by maximum likelihood.

    Raises:
        ArgumentError: no such model.
        DataError: data the model cannot be fitted to.
    """
    if name not in MODELS:
        raise ArgumentError(f"no model called '{name}': choose one of {', '.join(MODELS)}")
    return MODELS[name](table, options)


def _gaussian(table: Table, options: ModelOptions) -> Fitted:
    if bool(table.x.isnan().any()):
        raise DataError(f"{table.name} has missing entries and gaussian has no fit for them: use ppca")
    if options.ridge < 0:
        raise ArgumentError(f"--ridge is {options.ridge:g}: expected 0 or more")
    covariance = torch.cov(table.x.T, correction=0).reshape(table.x.shape[1], -1)
    model = Gaussian(table.x.mean(0), covariance + options.ridge * torch.eye(len(covariance), dtype=torch.float64))
    return Fitted("gaussian", model, table.x, {"covariance": "maximum likelihood, divisor N", "ridge": options.ridge})


def _ppca(table: Table, options: ModelOptions) -> Fitted:
    model = PPCA(latent_dim=options.latent_dim).fit(table.x, missing=options.missing)
    found = {"latent_dim": options.latent_dim, "noise_variance": float(model.noise_variance)}
    return Fitted("ppca", model, table.x, found)


def _factor_analysis(table: Table, options: ModelOptions) -> Fitted:
    model = FactorAnalysis(latent_dim=options.latent_dim).fit(table.x, missing=options.missing)
    return Fitted("factor-analysis", model, table.x, {"latent_dim": options.latent_dim})


def _gaussian_process(table: Table, options: ModelOptions) -> Fitted:
    inputs, targets = table.regression()
    model = GaussianProcess.from_kernel(options.kernel, inputs, targets).fit(missing=options.missing)
    return Fitted("gp", model, model.targets, {"kernel": options.kernel, **model.hyperparameters})


MODELS: dict[str, Callable[[Table, ModelOptions], Fitted]] = {
    "factor-analysis": _factor_analysis,
    "gaussian": _gaussian,
    "gp": _gaussian_process,
    "ppca": _ppca,
}
