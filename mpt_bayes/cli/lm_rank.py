"""`mpt-bayes lm rank`: effective rank of representations by layer, of runs of `lm pretrain` or any masked LM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from mpt_bayes.cli import options, output
from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm import EncodedText, MaskedLM
from mpt_bayes.lm.rank import RankTable, representation_rank
from mpt_bayes.lm.readers import read_lines
from mpt_bayes.report import number_table

Models = Annotated[
    list[str], typer.Argument(help="Run folders of `lm pretrain`, model folders, hub names, or 'antibody'.")
]
Input = Annotated[Path | None, typer.Option("--input", help="Lines of text; by default what a run held out.")]
Rate = Annotated[float, typer.Option(help="Mask rate.")]
Tau = Annotated[float, typer.Option(help="Share of the squared singular values to reach.")]
Center = Annotated[bool, typer.Option("--center", help="Subtract the mean representation first.")]


def rank(
    models: Models,
    input: Input = None,
    rate: Rate = 0.15,
    tau: Tau = 0.9,
    center: Center = False,
    seed: options.Seed = 0,
    json: options.JsonTo = None,
) -> None:
    """Effective rank by layer: visible tokens with and without [MASK] beside them, and [MASK]s themselves."""
    with output.working("representations") as clock:
        tables = []
        for name in models:
            model, texts = _loaded(name, input)
            tables.append(representation_rank(model, texts, rate=rate, tau=tau, center=center, seed=seed))
    fields = {"models": [table.to_dict() for table in tables], "seconds": clock.seconds}
    output.deliver("lm rank", fields, json, lambda: _report(tables))


def _loaded(name: str, source: Path | None) -> tuple[MaskedLM, list[EncodedText]]:
    from mpt_bayes import lm
    from mpt_bayes.lm import pretraining

    folder = pretraining.RunFolder(Path(name))
    texts: list[EncodedText] | None = None
    if folder.finished:
        model = pretraining.load_run(name).model
        model.name = folder.path.name
        texts = pretraining.load_corpus(folder.config().corpus).held_out if source is None else None
    elif name == "antibody":
        model = lm.antibody()
        texts = [model.encode(text, row=row) for row, text in enumerate(lm.antibody_sequences().values())]
    elif folder.why_unfinished is not None:
        raise ArgumentError(folder.why_unfinished)
    else:
        model = lm.load(name)
    if source is None:
        if texts is None:
            raise ArgumentError(f"{name} is not a run of `lm pretrain`: say what text to represent with --input FILE")
        return model, texts
    try:
        lines = read_lines(source).texts
    except OSError as error:
        raise ArgumentError(f"--input {source} cannot be read: {error.strerror}") from error
    return model, [model.encode(line, row=row) for row, line in enumerate(lines) if line.strip()]


def _report(tables: list[RankTable]) -> Table:
    first = tables[0]
    centring = ", centred" if first.center else ""
    title = f"effective rank at τ = {first.tau:g}{centring}; mask rate {first.rate:g}"
    headings = ("without [MASK]", "with", "[MASK] rows", "all without", "all with [MASK] rows")
    report = number_table("model", "layer", *headings, "width", title=title)
    for table in tables:
        for row in table.layers:
            ranks = (row.whole, row.masked, row.mask, row.all_whole, row.all_masked)
            cells = ("none" if rank is None else str(rank) for rank in ranks)
            name = (
                table.name if row.layer == 0 else ""
            )  # once: folded in each row of a narrow terminal, it is all one sees
            report.add_row(name, str(row.layer), *cells, str(table.width), end_section=row is table.layers[-1])
    return report
