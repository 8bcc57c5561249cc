"""The commands there are. A new command, or group of commands, is one module and one line here."""

from __future__ import annotations

from typing import Annotated

import typer

from mpt_bayes import __version__
from mpt_bayes.cli import attribution, compare, data, demo, lm, models, reproduce, sweep, verify

app = typer.Typer(
    help="Masked-prediction scores beside the log marginal likelihood.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Add --debug to any command for the full traceback of an error.",
)

app.command("attribution")(attribution.attribution)
app.command("compare")(compare.compare)
app.command("data")(data.data)
app.command("demo")(demo.demo)
app.command("models")(models.models)
app.command("reproduce")(reproduce.reproduce)
app.command("sweep")(sweep.sweep)
app.command("verify")(verify.verify)
app.add_typer(lm.app, name="lm")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mpt-bayes {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Masked-prediction scores beside the log marginal likelihood."""
