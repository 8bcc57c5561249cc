"""MODEL on the command line: how each name is fitted to the data. A new name is one function and one entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.checks import Missing, counted
from mpt_bayes.datasets import Dataset
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models import (
    PPCA,
    BetaBernoulli,
    FactorAnalysis,
    Gaussian,
    GaussianProcess,
    JointModel,
    Mixture,
    fit_hidden_markov,
    fitted_local_level,
)
from mpt_bayes.models.mixture import Family


@dataclass(frozen=True)
class ModelOptions:
    """What the command line says about a model; each name uses what it needs."""

    latent_dim: int = 2
    kernel: str = "rbf"
    ridge: float = 0.0
    missing: Missing = "error"
    components: int = 3


@dataclass(frozen=True)
class Fitted:
    """A fitted model with the data in the shape it scores.

    Attributes:
        name: as on the command line.
        x: (N, D); one row for a Gaussian process, whose outputs are the coordinates.
        parameters: what was fitted or chosen, for the JSON output.
        log_jacobian: of the entries the model is a density of, where these are not all of the table.
    """

    name: str
    model: JointModel
    x: Tensor
    parameters: dict[str, Any] = field(default_factory=dict)
    log_jacobian: float | None = None

    def fields(self, data: Dataset) -> dict[str, Any]:
        """The `model` and `data` fields of the JSON output."""
        described = {
            "name": data.name,
            "shape": list(data.x.shape),
            "sha256": data.sha256,
            "source": data.source,
            "log_jacobian": float(data.log_derivative.sum()) if self.log_jacobian is None else self.log_jacobian,
        }
        return {"model": {"name": self.name, "parameters": self.parameters}, "data": described}

    def title(self, data: Dataset) -> str:
        """What was scored, for a person."""
        return f"{self.name} on {data.name} (N = {len(self.x)}, D = {self.x.shape[1]})"


def fit(name: str, data: Dataset, options: ModelOptions) -> Fitted:
    """Fit the model called `name` by maximum likelihood.

    Raises:
        ArgumentError: no such model.
        DataError: data the model cannot be fitted to.
    """
    if name not in MODELS:
        raise ArgumentError(f"no model called '{name}': choose one of {', '.join(MODELS)}")
    return MODELS[name](data, options)


def _complete(data: Dataset, name: str) -> Tensor:
    """The table, refused where entries are missing."""
    if bool(data.x.isnan().any()):
        raise DataError(f"{data.name} has missing entries and {name} has no fit for them: drop those rows, or use ppca")
    return data.x


def _sequences(data: Dataset, name: str) -> Tensor:
    """The rows of a complete table; a table of one column is one series."""
    x = _complete(data, name)
    return x.T if x.shape[1] == 1 else x


def _regression(data: Dataset) -> tuple[Tensor, Tensor]:
    """Inputs (n, d) and targets (n,): a series by its own inputs; of a table the last column from those before it.

    A table of one column is a series observed at 0, 1, 2, …
    """
    if data.inputs is not None:
        return data.inputs, data.x[0]
    n, dim = data.x.shape
    return data.x[:, :-1] if dim > 1 else torch.arange(n, dtype=torch.float64)[:, None], data.x[:, -1]


def _gaussian(data: Dataset, options: ModelOptions) -> Fitted:
    x = _complete(data, "gaussian")
    if not 0 <= options.ridge < float("inf"):
        raise ArgumentError(f"--ridge is {options.ridge:g}: expected a finite number, 0 or more")
    n, dim = x.shape
    if n <= dim and options.ridge == 0:
        raise DataError(
            f"{data.name} has {counted(n, 'row')} and {counted(dim, 'column')}, so the maximum likelihood "
            "covariance is singular: give --ridge, or use ppca"
        )
    constant = [data.columns[j] for j in range(dim) if bool((x[:, j] == x[0, j]).all())]
    if constant and options.ridge == 0:
        raise DataError(
            f"{data.name}: column {constant[0]!r} is constant ({len(constant)} in all), so the maximum likelihood "
            "covariance is singular: drop the column, or give --ridge"
        )
    covariance = torch.cov(x.T, correction=0).reshape(dim, dim)
    model = Gaussian(x.mean(0), covariance + options.ridge * torch.eye(len(covariance), dtype=torch.float64))
    return Fitted("gaussian", model, x, {"covariance": "maximum likelihood, divisor N", "ridge": options.ridge})


def _ppca(data: Dataset, options: ModelOptions) -> Fitted:
    model = PPCA(latent_dim=options.latent_dim).fit(data.x, missing=options.missing)
    found = {"latent_dim": options.latent_dim, "noise_variance": float(model.noise_variance)}
    return Fitted("ppca", model, data.x, found)


def _factor_analysis(data: Dataset, options: ModelOptions) -> Fitted:
    model = FactorAnalysis(latent_dim=options.latent_dim).fit(data.x, missing=options.missing)
    return Fitted("factor-analysis", model, data.x, {"latent_dim": options.latent_dim})


def _gaussian_process(data: Dataset, options: ModelOptions) -> Fitted:
    inputs, targets = _regression(data)
    model = GaussianProcess.from_kernel(options.kernel, inputs, targets).fit(missing=options.missing)
    scored = data.log_derivative if data.inputs is not None else data.log_derivative[:, -1]  # the targets alone
    found = {"kernel": options.kernel, **model.hyperparameters}
    return Fitted("gp", model, model.targets, found, float(scored.sum()))


def _mixture_of(family: Family) -> Callable[[Dataset, ModelOptions], Fitted]:
    name = "mixture" if family == "gaussian" else f"{family}-mixture"

    def build(data: Dataset, options: ModelOptions) -> Fitted:
        x = _complete(data, name)
        model = Mixture.fit(x, family, options.components)
        return Fitted(name, model, x, {"components": options.components, "weights": model.weights.tolist()})

    return build


def _beta_bernoulli(data: Dataset, options: ModelOptions) -> Fitted:
    model = BetaBernoulli(1.0, 1.0, data.x.shape[1])
    return Fitted("beta-bernoulli", model, data.x, {"alpha": 1.0, "beta": 1.0, "prior": "uniform"})


def _hidden_markov(data: Dataset, options: ModelOptions) -> Fitted:
    x = _sequences(data, "hmm")
    model = fit_hidden_markov(x, "gaussian", options.components)
    found = {"states": options.components, "emission": "gaussian", "convention": "textbook"}
    return Fitted("hmm", model, x, found | {"transition": model.transition[:1].tolist()})


def _local_level(data: Dataset, options: ModelOptions) -> Fitted:
    y = _sequences(data, "local-level")
    if len(y) > 1:
        raise DataError(f"{data.name} has {len(y)} rows of {y.shape[1]} columns: local-level takes one series")
    return Fitted("local-level", fitted_local_level(y[0]), y, {"variances": "maximum likelihood"})


MODELS: dict[str, Callable[[Dataset, ModelOptions], Fitted]] = {
    "bernoulli-mixture": _mixture_of("bernoulli"),
    "beta-bernoulli": _beta_bernoulli,
    "categorical-mixture": _mixture_of("categorical"),
    "factor-analysis": _factor_analysis,
    "gaussian": _gaussian,
    "gp": _gaussian_process,
    "hmm": _hidden_markov,
    "local-level": _local_level,
    "mixture": _mixture_of("gaussian"),
    "poisson-mixture": _mixture_of("poisson"),
    "ppca": _ppca,
}
