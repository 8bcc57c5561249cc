"""`mpt-bayes lm curve`: the score against the mask rate, beside that of a randomly initialised twin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from mpt_bayes import lm
from mpt_bayes.cli import lm_options as choices
from mpt_bayes.cli import options, output
from mpt_bayes.lm.twin import TwinCurves
from mpt_bayes.plots import plot_twin_curves
from mpt_bayes.report import number_table

if TYPE_CHECKING:
    import pandas as pd

Bins = Annotated[int, typer.Option(help="Bins of the mask rate.", min=1)]


def curve(
    model: choices.Model,
    text: choices.Text = None,
    input: choices.Input = None,
    column: choices.Column = "text",
    prompt_column: choices.PromptColumn = None,
    budget: choices.Passes = None,
    target_standard_error: choices.TargetError = None,
    bins: Bins = 20,
    seed: options.Seed = 0,
    long_text: choices.Long = "error",
    empty: choices.Empty = "error",
    device: choices.Device = "cpu",
    dtype: choices.Dtype = "float32",
    batch_size: choices.BatchSize = None,
    compile: choices.Compile = False,
    trust_remote_code: choices.RemoteCode = False,
    store: choices.Store = None,
    json: options.JsonTo = None,
    plot: options.PlotTo = None,
) -> None:
    """Mean log-probability of a hidden token by mask rate, its area, and both again with random weights."""
    texts = choices.texts_from(text, input, column, prompt_column)
    chosen = choices.ModelChoice(model, device, dtype, compile, trust_remote_code)
    with choices.shared_work() as reports, output.working("scoring", unit="tokens") as clock:
        loaded = chosen.load()
        scores = lm.score_alike(
            [loaded, lm.random_twin(loaded)],
            texts.texts,
            prompts=texts.prompts,
            names=texts.names,
            budget=budget,
            target_standard_error=target_standard_error,
            seed=seed,
            long_text=long_text,
            empty=empty,
            batch=choices.batch_limits(loaded.device, batch_size),
            store=store,
        )
        result = TwinCurves(*scores)
    if not reports:
        return
    if plot is not None:
        output.save_figure(plot_twin_curves(result, n_bins=bins), plot)
    fields = result.to_dict(bins) | {"model": chosen.to_dict(loaded), "seconds": clock.seconds}
    output.deliver("lm curve", fields, json, lambda: _report(result, bins))


def _report(result: TwinCurves, bins: int) -> Table:
    title = f"nats per hidden token by mask rate ({result.model.model})"
    table = number_table("mask rate", "model", "random twin", title=title, words=0)
    frames = [result.model.rate_curve(bins), result.twin.rate_curve(bins)]
    for (_, ours), (_, theirs) in zip(frames[0].iterrows(), frames[1].iterrows(), strict=True):
        table.add_row(f"{ours.rate:.3f}", _cell(ours), _cell(theirs))
    table.add_section()
    table.add_row("area, nats", _area(result.model), _area(result.twin))
    return table


def _cell(row: pd.Series) -> str:
    return "none" if math.isnan(row.score) else f"{row.score:.3f} ± {row.standard_error:.2g}"


def _area(result: lm.CorpusScore) -> str:
    error = result.total.standard_error
    return f"{result.total.value:.2f}" + ("" if error is None else f" ± {error:.2g}")
