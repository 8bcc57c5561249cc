"""`mpt-bayes lm pretrain`: train a configuration, or a study of several, and compare the held-out scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from mpt_bayes.cli import options, output
from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.pretraining import RunComparison, RunFolder, Study, compare_runs
from mpt_bayes.lm.pretraining import pretrain as pretrained
from mpt_bayes.report import number_table

UNITS = "nats, mean per held-out sequence"

Config = Annotated[Path, typer.Argument(help="A TOML file: one configuration, or one with [variants.NAME] tables.")]
Out = Annotated[
    Path,
    typer.Option(help="Folder to record in; each variant gets a folder of its own inside, a lone configuration run/."),
]
Only = Annotated[list[str] | None, typer.Option("--only", help="Train this variant only; may be given repeatedly.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where runs in that folder stopped; skip finished ones.")]
Seed = Annotated[
    int | None, typer.Option(help="Instead of the seed in the file: of weights, examples and masks.", min=0)
]


def pretrain(
    config: Config,
    out: Out,
    only: Only = None,
    seed: Seed = None,
    resume: Resume = False,
    json: options.JsonTo = None,
) -> None:
    """Train masked language models from scratch; record and compare their held-out scores Σ_m S(m)."""
    study = Study.from_toml(config)
    chosen = only or list(study.configs)
    unknown = sorted(set(chosen) - set(study.configs))
    if unknown:
        raise ArgumentError(f"--only {unknown[0]} is no variant of {config}: it has {', '.join(study.configs)}")
    configs = study.configs if seed is None else study.with_seed(seed).configs
    with output.working("training") as clock:
        for name in chosen:
            pretrained(configs[name], out / name, resume=resume)
    if not RunFolder(out).writes:  # of several processes, started by torchrun, one reports
        return
    comparisons = compare_runs({name: out / name for name in chosen})
    for name in chosen:
        _draw(RunFolder(out / name))
    runs = [comparison.row for comparison in comparisons]
    fields = {"units": UNITS, "runs": runs, "seconds": clock.seconds}
    output.deliver("lm pretrain", fields, json, lambda: _report(comparisons))


def _report(comparisons: list[RunComparison]) -> Group:
    """Two tables, since one would lose its numbers on a terminal of 80 columns: the scores, and what they cost."""
    known = "share" in comparisons[0].row
    scores = number_table("run", "area Σ S(m)", "± SE", "over the first", "± SE", "over untrained", "± SE", title=UNITS)
    share = ("share of context", "± SE") if known else ()
    costs = number_table("run", *share, "FLOPs", "weights")
    for comparison in comparisons:
        row = comparison.row
        numbers = [f"{row[key]:.3f}" for key in ("area", "area_standard_error")]
        numbers += [f"{row['difference']:+.3f}", f"{row['difference_standard_error']:.3f}"]
        numbers += [f"{row['gain_over_untrained']:+.3f}", f"{row['gain_standard_error']:.3f}"]
        scores.add_row(comparison.name, *numbers)
        shares = [f"{row[key]:.3f}" for key in ("share", "share_standard_error")] if known else []
        costs.add_row(comparison.name, *shares, f"{row['flops']:.1e}", f"{row['parameters']:,}")
    return Group(scores, costs)


def _draw(run: RunFolder) -> None:
    from mpt_bayes.pretraining_plots import plot_curve_over_training, plot_training

    run.figures.mkdir(exist_ok=True)
    output.save_figure(plot_curve_over_training(run), run.figures / "curve.png")
    output.save_figure(plot_training({run.path.name: run}), run.figures / "training.png")
