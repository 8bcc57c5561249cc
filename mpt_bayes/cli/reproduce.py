"""`mpt-bayes reproduce`: a published figure again, from the source checkout."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from mpt_bayes.cli import output
from mpt_bayes.errors import ArgumentError

ROOT = Path(__file__).parents[2]
"""Of a source checkout. Python found mpt_bayes there, so it finds experiments/ too."""

Name = Annotated[str, typer.Argument(help="A folder of experiments/ with a config.toml.", metavar="NAME")]
Quick = Annotated[bool, typer.Option("--quick", help="A small version, seconds instead of minutes.")]
Out = Annotated[Path, typer.Option(help="Folder for results.json and figure.png.")]


def reproduce(name: Name, quick: Quick = False, out: Out = Path("runs")) -> None:
    """Run an experiment; its README says what was claimed and what this code obtained."""
    known = sorted(path.parent.name for path in (ROOT / "experiments").glob("*/config.toml"))
    if name not in known:
        found = f"choose one of {', '.join(known)}" if known else "experiments/ comes with a source checkout only"
        raise ArgumentError(f"no experiment called '{name}': {found}")
    config = tomllib.loads((ROOT / "experiments" / name / "config.toml").read_text(encoding="utf-8"))
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    with output.working(name):
        importlib.import_module(f"experiments.{name}.run").run(config["quick" if quick else "full"], target)
    print(f"written: {target}", file=sys.stderr)
