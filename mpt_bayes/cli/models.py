"""`mpt-bayes models`: several models on one data set, by every criterion."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
import typer
from rich.console import Group, RenderableType

import mpt_bayes as mb
from mpt_bayes.checks import check_complete
from mpt_bayes.cli import builders, options, output
from mpt_bayes.datasets import Dataset
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.plots import plot_models
from mpt_bayes.report import number_table

ModelNames = Annotated[
    list[str],
    typer.Argument(
        help="Two or more; NAME:K sets latent dimensions or components, gp:KERNEL a kernel.", metavar="MODEL..."
    ),
]
Fractions = Annotated[str, typer.Option(help="Visible shares of conditional marginal likelihoods.", metavar="LIST")]
Rates = Annotated[str, typer.Option(help="Mask rates, joined by commas.", metavar="LIST")]
SIZED = (
    "bernoulli-mixture",
    "categorical-mixture",
    "factor-analysis",
    "hmm",
    "mixture",
    "poisson-mixture",
    "ppca",
)
"""Models that take NAME:K."""


def models(
    names: ModelNames,
    data: options.DataName,
    rates: Rates = "0.15,0.5",
    fractions: Fractions = "0.5,0.8",
    orders: options.Orders = None,
    masks_per_size: options.MasksPerSize = None,
    exhaustive: options.ExhaustiveFlag = False,
    latent_dim: options.LatentDim = 2,
    components: options.Components = 3,
    kernel: options.Kernel = "rbf",
    ridge: options.Ridge = 0.0,
    standardise: options.Standardise = False,
    test: Annotated[str | None, typer.Option(help="Held-out data, scored by each model.", metavar="DATA")] = None,
    seed: options.Seed = 0,
    json: options.JsonTo = None,
    plot: options.PlotTo = None,
) -> None:
    """Evidence, leave-one-out, rates and conditional marginal likelihood side by side, and where they disagree."""
    _check_names(names)
    design = options.design_from(orders, masks_per_size, exhaustive)
    table = options.data_from(data, standardise)
    check_complete(table.x, "mpt-bayes models", data)
    held_out = None if test is None else _held_out(test, standardise, table)
    with output.working("comparing models") as clock:
        settings = builders.ModelOptions(latent_dim, kernel, ridge, components=components)
        fitted = {name: _fitted(name, table, settings) for name in names}
        x = next(iter(fitted.values())).x
        for name, entry in fitted.items():
            if entry.x.shape != x.shape:
                raise DataError(f"{name} scores data of shape {tuple(entry.x.shape)}, the others {tuple(x.shape)}")
        result = mb.compare_models(
            {name: entry.model for name, entry in fitted.items()},
            x,
            rates=options.rates_from(rates),
            fractions=options.rates_from(fractions, "--fractions"),
            test=held_out,
            design=design,
            generator=torch.Generator().manual_seed(seed),
        )
    described = next(iter(fitted.values())).fields(table)["data"]
    parameters = {name: entry.parameters for name, entry in fitted.items()}
    extra = {"data": described, "parameters": parameters, "design": repr(design), "seconds": clock.seconds}
    output.deliver("models", result.to_dict() | extra, json, lambda: _report(result, table.name))
    if plot is not None:
        output.save_figure(plot_models(result), plot)


def _check_names(names: list[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ArgumentError(f"{twice[0]} is named twice: name each model once")
    if len(names) < 2:
        raise ArgumentError(f"{names[0]} is the only model: name two or more, or use mpt-bayes compare {names[0]}")


def _held_out(name: str, standardise: bool, data: Dataset) -> torch.Tensor:
    if standardise:
        raise ArgumentError("--standardise would scale --test by itself: standardise both beforehand")
    x = options.data_from(name, False).x
    if x.shape[1] != data.x.shape[1]:
        raise DataError(
            f"--test {name} has {x.shape[1]} columns and {data.name} has {data.x.shape[1]}: name held-out rows of the "
            "same table"
        )
    return x


def _fitted(name: str, data: Dataset, settings: builders.ModelOptions) -> builders.Fitted:
    """`ppca:5` has five latent dimensions, `mixture:5` five components, `gp:matern52` that kernel."""
    kind, _, detail = name.partition(":")
    if not detail:
        return builders.fit(kind, data, settings)
    if kind == "gp":
        return builders.fit(kind, data, replace(settings, kernel=detail))
    if kind not in SIZED or not detail.isdigit():
        raise ArgumentError(f"{name}: expected gp:KERNEL, or K, a whole number, after one of {', '.join(SIZED)}")
    size = int(detail)
    return builders.fit(kind, data, replace(settings, latent_dim=size, components=size))


def _report(result: mb.ModelComparison, data: str) -> RenderableType:
    table = number_table("criterion", *result.criteria, title=f"Models on {data}: nats, total over rows (rank)")
    ranks = result.ranks()
    for column, by_model in ranks.items():
        cells = []
        for name, rank in by_model.items():
            criterion = result.criteria[name][column]
            error = f" ± {criterion.standard_error:.2g}" if criterion.standard_error else ""
            if criterion.inner_standard_error is not None:
                error += f" ± {criterion.inner_standard_error:.2g} (draws of the model)"
            cells.append(f"{criterion.value:,.2f}{error} ({rank})")
        table.add_row(column, *cells)
    reference = next(iter(ranks))
    lines = [f"{column} prefers {name}" for column, name in result.disagreements().items()]
    return Group(table, f"Against {reference}: {'; '.join(lines) or 'every criterion has the same best model'}.")
