"""`mpt-bayes lm score`: the expected order-agnostic log-likelihood of texts, or their pseudo-log-likelihood."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from mpt_bayes import lm
from mpt_bayes.cli import lm_options as choices
from mpt_bayes.cli import options, output
from mpt_bayes.errors import ArgumentError
from mpt_bayes.report import number_table

Variant = Annotated[
    lm.Variant | None, typer.Option("--variant", help="Instead of the score: this pseudo-log-likelihood.")
]
SHOWN = 20


def score(
    model: choices.Model,
    text: choices.Text = None,
    input: choices.Input = None,
    column: choices.Column = "text",
    prompt_column: choices.PromptColumn = None,
    variant: Variant = None,
    budget: choices.Passes = None,
    target_standard_error: choices.TargetError = None,
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
    parquet: options.ParquetTo = None,
) -> None:
    """The score of each text and of all together, with standard errors: a table, JSON, Parquet."""
    texts = choices.texts_from(text, input, column, prompt_column)
    if variant is not None and (budget is not None or target_standard_error is not None):
        raise ArgumentError(
            f"--variant {variant} takes every token once: it has no --budget and no --target-standard-error"
        )
    chosen = choices.ModelChoice(model, device, dtype, compile, trust_remote_code)
    with choices.shared_work() as reports, output.working("scoring", unit="tokens") as clock:
        loaded = chosen.load()
        common: dict[str, Any] = {
            "prompts": texts.prompts,
            "names": texts.names,
            "long_text": long_text,
            "empty": empty,
            "batch": choices.batch_limits(loaded.device, batch_size),
            "store": store,
        }
        if variant is None:
            work: dict[str, Any] = {"budget": budget, "target_standard_error": target_standard_error, "seed": seed}
            result = lm.score(loaded, texts.texts, **work, **common)
        else:
            result = lm.pseudo_log_likelihood(loaded, texts.texts, variant=variant, **common)
    if not reports:
        return
    if parquet is not None:
        result.to_dataframe().to_parquet(parquet)
    fields = result.to_dict() | {"model": chosen.to_dict(loaded), "seconds": clock.seconds}
    output.deliver("lm score", fields, json, lambda: _report(result))


def _report(result: lm.CorpusScore) -> Table:
    title = f"{result.total.estimand}, nats ({result.model})"
    table = number_table("text", "tokens", "total", "± SE", "per token", "perplexity", title=title)
    for row in result.rows[:SHOWN]:
        if isinstance(row, lm.Skipped):
            table.add_row(row.name, "", f"skipped: {row.reason}", "", "", "")
        else:
            table.add_row(row.name, *_numbers(row.total.value, row.standard_error, row.perplexity))
    if len(result) > SHOWN:
        table.add_row(f"… {len(result) - SHOWN} more", "", "", "", "", "")
    table.add_section()
    table.add_row("all", *_numbers(result.total.value, result.total.standard_error, result.perplexity))
    data_error = result.total.data_standard_error
    if data_error is not None:
        table.caption = f"± {data_error:.4g} nats from the choice of texts, apart from the masks' standard error"
    return table


def _numbers(value: float, error: float | None, form: lm.Perplexity) -> list[str]:
    shown = "none" if error is None else f"{error:.3g}"
    return [
        str(form.n_tokens),
        f"{value:.3f}",
        shown,
        f"{form.mean_nats_per_token:.4f}",
        f"{form.perplexity_per_token:.3f}",
    ]
