"""`mpt-bayes attribution`: which coordinates the evidence comes from."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

import mpt_bayes as mb
from mpt_bayes.cli import builders, options, output
from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks import Exhaustive, MaskDesign, RandomOrders
from mpt_bayes.plots import plot_attribution
from mpt_bayes.report import attribution_report

Orders = Annotated[
    int | None, typer.Option(help="Random orders; by default every subset up to D = 12, else 64 orders.", min=1)
]


def attribution(
    model: options.ModelName,
    data: options.DataName,
    orders: Orders = None,
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
    """The share of each coordinate in the log marginal likelihood: its Shapley value; the shares add up to it."""
    if exhaustive and orders is not None:
        raise ArgumentError("--orders and --exhaustive are two designs: choose one")
    design: MaskDesign | None = Exhaustive() if exhaustive else None
    if orders is not None:
        design = RandomOrders(orders)
    table = options.data_from(data, standardise)
    with output.working("attributing") as clock:
        fitted = builders.fit(model, table, builders.ModelOptions(latent_dim, kernel, ridge, missing, components))
        generator = torch.Generator().manual_seed(seed)
        result = mb.attribution(fitted.model, fitted.x, design=design, generator=generator, missing=missing)
    fields = result.to_dict() | fitted.fields(table) | {"seconds": clock.seconds}
    output.deliver("attribution", fields, json, lambda: attribution_report(result, title=fitted.title(table)))
    if plot is not None:
        output.save_figure(plot_attribution(result), plot)
