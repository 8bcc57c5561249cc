"""`mpt-bayes demo`: the identity on three real data sets, and a protein BERT; tables, a figure each, JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import RenderableType

import mpt_bayes as mb
from mpt_bayes import datasets
from mpt_bayes.cli import builders, demo_antibody, output
from mpt_bayes.masks import MaskDesign, RandomOrders
from mpt_bayes.plots import plot_comparison
from mpt_bayes.report import number_table


@dataclass(frozen=True)
class Case:
    """One model on one data set: `title` for its figure, `label` for the table."""

    title: str
    label: str
    model: str
    data: Callable[[], datasets.Dataset]
    options: builders.ModelOptions
    design: MaskDesign

    @property
    def stem(self) -> str:
        """Of the names of its files."""
        return self.model.replace("-", "_")


CASES = (
    Case(
        "PPCA, 10 latents, on 1,797 handwritten digits",
        "PPCA, digits",
        "ppca",
        lambda: datasets.load("digits"),
        builders.ModelOptions(latent_dim=10),
        RandomOrders(64),
    ),
    Case(
        "Factor analysis, 2 factors, on 178 wines (standardised)",
        "FA, wine",
        "factor-analysis",
        lambda: datasets.load("wine").standardised(),
        builders.ModelOptions(latent_dim=2),
        RandomOrders(64),
    ),
    Case(
        "Gaussian process on monthly CO2, missing months marginalised",
        "GP, CO2",
        "gp",
        lambda: datasets.load("co2"),
        builders.ModelOptions(kernel="co2", missing="marginalise"),
        RandomOrders(64),
    ),
)


def demo(
    folder: Annotated[Path, typer.Option("--output", help="Where the figures and the JSON go.")] = Path("demo_output"),
) -> None:
    """The exact log marginal likelihood beside the cumulative score on real data, and a protein BERT's score."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in CASES:
        data = case.data()
        with output.working(case.title) as clock:
            fitted = builders.fit(case.model, data, case.options)
            result = mb.compare(
                fitted.model,
                fitted.x,
                design=case.design,
                generator=torch.Generator().manual_seed(0),
                missing=case.options.missing,
            )
        fields = result.to_dict() | fitted.fields(data) | {"seconds": clock.seconds}
        output.write_json(output.document("compare", **fields), str(folder / f"{case.stem}.json"))
        _draw(result, case, folder)
        rows.append((case, result, clock.seconds))
    output.show(_report(rows))
    output.show(demo_antibody.antibody(folder))


def _draw(result: mb.Comparison, case: Case, folder: Path) -> None:
    axes = plot_comparison(result)
    axes.set_title(case.title, loc="left", fontsize=11)
    output.save_figure(axes, folder / f"{case.stem}.png")


def _report(rows: list[Any]) -> RenderableType:
    title = "Exact log p(x) beside the cumulative score, nats, total over the data"
    table = number_table("", "log p(x)", "Σ S(m)", "± SE", "difference", "seconds", title=title)
    table.columns[0].no_wrap = True
    for case, result, seconds in rows:
        score = result.cumulative_score
        table.add_row(
            case.label,
            f"{result.log_marginal_likelihood:,.2f}",
            f"{score.value:,.2f}",
            f"{score.standard_error:,.2f}",
            f"{result.z:+.2f} SE",
            f"{seconds:.1f}",
        )
    return table
