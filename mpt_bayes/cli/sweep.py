"""`mpt-bayes sweep`: the masked score over rates, and the bias of taking one rate for the evidence."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

import mpt_bayes as mb
from mpt_bayes.cli import builders, options, output
from mpt_bayes.plots import plot_sweep
from mpt_bayes.report import sweep_report

Rates = Annotated[str, typer.Option(help="first:last:step, or rates joined by commas.", metavar="RATES")]
Masks = Annotated[int, typer.Option(help="Masks a rate.", min=1)]


def sweep(
    model: options.ModelName,
    data: options.DataName,
    rates: Rates = "0.05:0.95:0.05",
    masks: Masks = 64,
    exhaustive: options.ExhaustiveFlag = False,
    latent_dim: options.LatentDim = 2,
    components: options.Components = 3,
    kernel: options.Kernel = "rbf",
    ridge: options.Ridge = 0.0,
    standardise: options.Standardise = False,
    missing: options.MissingPolicy = "error",
    seed: options.Seed = 0,
    json: options.JsonTo = None,
    plot: options.PlotTo = None,
) -> None:
    """The masked score at each mask rate, and the bias of D times it for the log marginal likelihood."""
    chosen = options.rates_from(rates)
    table = options.data_from(data, standardise)
    with output.working("sweeping") as clock:
        fitted = builders.fit(model, table, builders.ModelOptions(latent_dim, kernel, ridge, missing, components))
        generator = torch.Generator().manual_seed(seed)
        n_masks = None if exhaustive else masks
        result = mb.sweep(fitted.model, fitted.x, chosen, n_masks=n_masks, generator=generator, missing=missing)
    fields = result.to_dict() | fitted.fields(table) | {"seconds": clock.seconds}
    output.deliver("sweep", fields, json, lambda: sweep_report(result, title=fitted.title(table)))
    if plot is not None:
        output.save_figure(plot_sweep(result), plot)
