"""`mpt-bayes compare`: the exact log marginal likelihood beside the cumulative score."""

from __future__ import annotations

import torch

import mpt_bayes as mb
from mpt_bayes.cli import builders, inputs, options, output


def compare(
    model: options.ModelName,
    data: options.DataName,
    latent_dim: options.LatentDim = 2,
    kernel: options.Kernel = "rbf",
    ridge: options.Ridge = 0.0,
    standardise: options.Standardise = False,
    missing: options.MissingPolicy = "error",
    orders: options.Orders = None,
    masks_per_size: options.MasksPerSize = None,
    exhaustive: options.ExhaustiveFlag = False,
    seed: options.Seed = 0,
    json: options.JsonTo = None,
    plot: options.PlotTo = None,
) -> None:
    """The exact log marginal likelihood beside the cumulative masked-prediction score, per mask size and in total."""
    design = options.design_from(orders, masks_per_size, exhaustive)
    table = inputs.load(data, standardise=standardise)
    with output.working("scoring") as clock:
        fitted = builders.fit(model, table, builders.ModelOptions(latent_dim, kernel, ridge))
        generator = torch.Generator().manual_seed(seed)
        result = mb.compare(fitted.model, fitted.x, design=design, generator=generator, missing=missing)
    if json is not None:
        content = result.to_dict()
        fields = {"model": fitted.to_dict(), "data": table.to_dict(), "seconds": clock.seconds}
        output.write_json(output.document("compare", **(content | fields)), json)
    if json != output.STANDARD_OUTPUT:
        output.show(repr(result))
