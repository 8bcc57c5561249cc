"""`mpt-bayes data`: what data sets are at hand."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from mpt_bayes import datasets
from mpt_bayes.cli import options, output


def data(json: options.JsonTo = None) -> None:
    """The data sets that ship in installed packages; CSV, Parquet and NPY files are named by their path."""
    with output.working("reading"):
        found = [_described(name, recipe) for name, recipe in datasets.CATALOGUE.items()]
    output.deliver("data", {"data": found}, json, lambda: _report(found))


def _described(name: str, recipe: datasets.Recipe) -> dict[str, Any]:
    loaded = datasets.load(name) if recipe.is_installed else None
    return {
        "name": name,
        "source": recipe.source,
        "installed": recipe.is_installed,
        "shape": None if loaded is None else list(loaded.x.shape),
        "missing_entries": None if loaded is None else int(loaded.x.isnan().sum()),
    }


def _report(found: list[dict[str, Any]]) -> RenderableType:
    table = Table("name", "rows × columns", "missing", "what it is")
    for entry in found:
        shape = " × ".join(f"{size:,}" for size in entry["shape"]) if entry["installed"] else "not installed"
        table.add_row(entry["name"], shape, str(entry["missing_entries"] or ""), entry["source"])
    return table
