"""The language-model part of `mpt-bayes demo`: a protein BERT beside its randomly initialised twin."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from mpt_bayes import lm
from mpt_bayes.cli import output
from mpt_bayes.cli.lm_options import ModelChoice
from mpt_bayes.lm.twin import TwinCurves
from mpt_bayes.plots import plot_twin_curves
from mpt_bayes.report import number_table

N_SEQUENCES = 14
PASSES = 32
"""Forward passes a sequence and model: about a minute of one core for all of them."""
STEM = "antibody"


def antibody(folder: Path) -> Table:
    """The score curve of the pre-trained antibody BERT and of its twin: writes a figure and JSON, returns the table.

    Raises:
        DependencyError: the package antiberty is not installed.
    """
    sequences = dict(list(lm.antibody_sequences().items())[:N_SEQUENCES])
    choice = ModelChoice("antibody", device="cpu", dtype="float32", compiled=False, trust_remote_code=False)
    with output.working("antibody BERT", unit="tokens") as clock:
        model = choice.load()
        pair = [model, lm.random_twin(model)]
        result = TwinCurves(*lm.score_alike(pair, list(sequences.values()), names=list(sequences), budget=PASSES))
    fields = result.to_dict() | {"model": choice.to_dict(model), "seconds": clock.seconds}
    output.write_json(output.document("lm curve", **fields), str(folder / f"{STEM}.json"))
    _draw(result, folder)
    return _report(result, clock.seconds)


def _draw(result: TwinCurves, folder: Path) -> None:
    axes = plot_twin_curves(result)
    axes.set_title(f"A protein BERT on {len(result.model)} antibody domains", loc="left", fontsize=11)
    output.save_figure(axes, folder / f"{STEM}.png")


def _report(result: TwinCurves, seconds: float) -> Table:
    title = f"Expected order-agnostic log-likelihood of {len(result.model)} antibody domains, nats"
    table = number_table("", "Σ S(m)", "± SE", "per token", "seconds", title=title)
    for name, score in (("antibody BERT", result.model), ("same, random weights", result.twin)):
        error = score.total.standard_error or 0.0
        per_token = score.perplexity.mean_nats_per_token
        table.add_row(name, f"{score.total.value:,.1f}", f"{error:,.1f}", f"{per_token:.3f}", "")
    gained = result.difference
    table.add_row("gained", f"{gained.value:,.1f}", f"{gained.standard_error or 0.0:,.1f}", "", f"{seconds:.1f}")
    return table
