"""Arguments and options that commands share, each defined once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mpt_bayes import datasets
from mpt_bayes.checks import Missing
from mpt_bayes.cli.builders import MODELS
from mpt_bayes.datasets import Dataset
from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks import Exhaustive, MaskDesign, PerSize, RandomOrders

ModelName = Annotated[str, typer.Argument(help=f"One of {', '.join(MODELS)}.", metavar="MODEL")]
DataName = Annotated[
    str, typer.Option("--data", help="A name from `mpt-bayes data`, or a CSV, Parquet or NPY file.", metavar="DATA")
]
LatentDim = Annotated[int, typer.Option(help="Latent dimensions of ppca and factor-analysis.", min=0)]
Components = Annotated[int, typer.Option(help="Components of the mixtures, states of hmm.", min=1)]
Kernel = Annotated[str, typer.Option(help="Kernel of gp, by name.")]
Ridge = Annotated[float, typer.Option(help="Added to the diagonal of the covariance of gaussian; recorded.")]
Standardise = Annotated[
    bool, typer.Option("--standardise", help="Score data scaled to mean 0, variance 1; the log-Jacobian is reported.")
]
MissingPolicy = Annotated[Missing, typer.Option(help="Missing entries: an error, or integrated out exactly.")]
Orders = Annotated[int | None, typer.Option(help="Random orders (default 64), each with a mask of every size.", min=1)]
MasksPerSize = Annotated[int | None, typer.Option(help="Independent masks for every size, instead of orders.", min=1)]
ExhaustiveFlag = Annotated[bool, typer.Option("--exhaustive", help="Every mask, exactly; up to about D = 20.")]
Budget = Annotated[
    int | None,
    typer.Option(help="Masks chosen adaptively, instead of orders: for models without a fast path for these.", min=1),
]


def _positive(target: float | None) -> float | None:
    if target is not None and not 0 < target < float("inf"):
        raise ArgumentError(f"--target-standard-error is {target:g}: expected a positive number of nats")
    return target


def target_error(help: str) -> Any:
    """The option --target-standard-error; what it replaces differs between commands."""
    return typer.Option("--target-standard-error", "--target-se", help=help, callback=_positive)


TargetError = Annotated[float | None, target_error("Instead: as many as give the total this standard error, in nats.")]
Seed = Annotated[int, typer.Option(help="Seed of the masks.", min=0, max=2**63 - 1)]


def _writable(target: str | None) -> str | None:
    """What could not be written after the work is refused before it."""
    if target is not None and target != "-":
        path = Path(target)
        if path.is_dir():
            raise ArgumentError(f"cannot write {target}: it is a folder; name a file in it")
        if not path.parent.is_dir():
            raise ArgumentError(f"cannot write {target}: there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ArgumentError(f"cannot write {target}: no permission")
    return target


def _figure_file(target: Path | None) -> Path | None:
    if target is not None and target.suffix.lower() not in FIGURE_FORMATS:
        raise ArgumentError(f"cannot write {target}: a figure is a {', '.join(FIGURE_FORMATS)} file")
    _writable(None if target is None else str(target))
    return target


def _table_file(target: Path | None) -> Path | None:
    _writable(None if target is None else str(target))
    return target


FIGURE_FORMATS = (".png", ".pdf", ".svg")
JsonTo = Annotated[
    str | None, typer.Option("--json", help="Write JSON to a file, or to standard output with -.", callback=_writable)
]
ParquetTo = Annotated[
    Path | None,
    typer.Option("--parquet", help="Write the table to a Parquet file.", metavar="FILE", callback=_table_file),
]
PlotTo = Annotated[Path | None, typer.Option("--plot", help="Write a figure (PNG, PDF or SVG).", callback=_figure_file)]


def data_from(name: str, standardise: bool) -> Dataset:
    """The data set or file called `name`.

    Raises:
        ArgumentError, DataError, DependencyError: as `datasets.load`.
    """
    data = datasets.load(name)
    return data.standardised() if standardise else data


MOST_RATES = 1000


def rates_from(text: str, option: str = "--rates") -> list[float]:
    """Rates from first:last:step (the last included) or from a list joined by commas, given by `option`.

    Raises:
        ArgumentError: neither.

    Example:
        >>> rates_from("0.1:0.3:0.1"), rates_from("0.15,0.5")
        ([0.1, 0.2, 0.3], [0.15, 0.5])
    """
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        first, last, step = (float(part) for part in text.split(":"))
        count = round((last - first) / step) + 1
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ArgumentError(f"{option} is {text}: expected first:last:step or a list, 0.15,0.5") from None
    if not 1 <= count <= MOST_RATES:
        raise ArgumentError(f"{option} is {text}: that is {count} rates, expected 1 to {MOST_RATES}")
    return [round(first + step * i, 12) for i in range(count)]


def design_from(
    orders: int | None, masks_per_size: int | None, exhaustive: bool, *, has_budget: bool = False
) -> MaskDesign | None:
    """The one mask design asked for; None where a budget chooses the masks.

    Raises:
        ArgumentError: more than one was asked for.
    """
    chosen = sum([orders is not None, masks_per_size is not None, exhaustive])
    if chosen > 1:
        raise ArgumentError("--orders, --masks-per-size and --exhaustive are three designs: choose one")
    if has_budget:
        if chosen:
            raise ArgumentError(
                "--budget and --target-se choose their own masks: give them, or a design (--orders, --masks-per-size "
                "or --exhaustive)"
            )
        return None
    if exhaustive:
        return Exhaustive()
    return RandomOrders(64 if orders is None else orders) if masks_per_size is None else PerSize(masks_per_size)
