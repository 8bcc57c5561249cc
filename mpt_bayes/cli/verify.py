"""`mpt-bayes verify`: the identities of a coherent model, each with its size and its verdict."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

import mpt_bayes as mb
from mpt_bayes.cli import builders, options, output
from mpt_bayes.report import verification_report

CHECK_FAILED = 1


def verify(
    model: options.ModelName,
    data: options.DataName,
    orders: Annotated[int, typer.Option(help="Random orders of the chain rule and the identity.", min=2)] = 16,
    masks: Annotated[int, typer.Option(help="Random masks of the other checks.", min=1)] = 32,
    rows: Annotated[int, typer.Option(help="Rows to check, a random choice.", min=1)] = 32,
    latent_dim: options.LatentDim = 2,
    components: options.Components = 3,
    kernel: options.Kernel = "rbf",
    ridge: options.Ridge = 0.0,
    standardise: options.Standardise = False,
    missing: options.MissingPolicy = "error",
    seed: options.Seed = 0,
    json: options.JsonTo = None,
) -> None:
    """Hold a fitted model to the identities of a coherent joint; exit code 1 if one is broken."""
    table = options.data_from(data, standardise)
    with output.working("verifying") as clock:
        fitted = builders.fit(model, table, builders.ModelOptions(latent_dim, kernel, ridge, missing, components))
        result = mb.verify(
            fitted.model,
            fitted.x,
            n_orders=orders,
            n_masks=masks,
            max_rows=rows,
            generator=torch.Generator().manual_seed(seed),
            missing=missing,
        )
    fields = result.to_dict() | fitted.fields(table) | {"seconds": clock.seconds}
    output.deliver("verify", fields, json, lambda: verification_report(result, title=fitted.title(table)))
    if not result.passed:
        raise typer.Exit(CHECK_FAILED)
