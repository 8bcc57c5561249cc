"""`mpt-bayes compare`: the exact log marginal likelihood beside the cumulative score."""

from __future__ import annotations

import torch

import mpt_bayes as mb
from mpt_bayes.cli import builders, options, output
from mpt_bayes.plots import plot_comparison
from mpt_bayes.report import comparison_report


def compare(
    model: options.ModelName,
    data: options.DataName,
    orders: options.Orders = None,
    masks_per_size: options.MasksPerSize = None,
    exhaustive: options.ExhaustiveFlag = False,
    budget: options.Budget = None,
    target_standard_error: options.TargetError = None,
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
    """The exact log marginal likelihood beside the cumulative masked-prediction score, per mask size and in total."""
    has_budget = budget is not None or target_standard_error is not None
    design = options.design_from(orders, masks_per_size, exhaustive, has_budget=has_budget)
    table = options.data_from(data, standardise)
    with output.working("scoring") as clock:
        fitted = builders.fit(model, table, builders.ModelOptions(latent_dim, kernel, ridge, missing, components))
        result = mb.compare(
            fitted.model,
            fitted.x,
            design=design,
            n_evaluations=None if budget is None else budget * len(fitted.x),
            target_standard_error=target_standard_error,
            generator=torch.Generator().manual_seed(seed),
            missing=missing,
        )
    fields = result.to_dict() | fitted.fields(table) | {"seconds": clock.seconds}
    output.deliver("compare", fields, json, lambda: comparison_report(result, title=fitted.title(table)))
    if plot is not None:
        output.save_figure(plot_comparison(result), plot)
