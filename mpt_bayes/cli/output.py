"""What a command prints: tables for people, JSON for programs, a progress bar on a terminal only."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

import mpt_bayes
from mpt_bayes.progress import reported_to
from mpt_bayes.results.estimate import SCHEMA_VERSION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STANDARD_OUTPUT = "-"


@dataclass
class Clock:
    """Seconds of the work inside `working`."""

    seconds: float = 0.0


@contextmanager
def working(what: str, unit: str | None = None) -> Iterator[Clock]:
    """Times the block, and shows its progress on standard error where that is a terminal; `unit` adds a rate."""
    clock = Clock()
    console = Console(stderr=True)
    start = time.perf_counter()
    columns = [*Progress.get_default_columns(), *([_Rate(unit)] if unit else [])]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        with reported_to(lambda done, total: bar.update(task, completed=done, total=total)):
            yield clock
    clock.seconds = time.perf_counter() - start


class _Rate(ProgressColumn):
    """Steps a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} {self.unit}/s")


def show(*items: RenderableType) -> None:
    """Print for a person, on standard output."""
    console = Console()
    for item in items:
        console.print(item)


def deliver(command: str, fields: dict[str, Any], json_to: str | None, report: Callable[[], RenderableType]) -> None:
    """JSON where it was asked for, and the report for people unless JSON takes standard output."""
    if json_to is not None:
        write_json(document(command, **fields), json_to)
    if json_to != STANDARD_OUTPUT:
        show(report())


def save_figure(axes: Axes, path: Path) -> None:
    """Write the figure of these axes; the suffix says the format."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(path)
    print(f"written: {path}", file=sys.stderr)


def document(command: str, **fields: Any) -> dict[str, Any]:
    """The JSON document of a command: its fields with the schema version and the versions of the software."""
    head = {"schema_version": SCHEMA_VERSION, "command": command}
    versions = {
        "mpt_bayes": mpt_bayes.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }
    return head | fields | {"versions": versions}


def write_json(content: dict[str, Any], target: str) -> None:
    """To a file, or to standard output for `-`. NaN cannot be written: it is a fault, not a number."""
    text = json.dumps(content, indent=2, allow_nan=False)
    if target == STANDARD_OUTPUT:
        print(text)
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")
        print(f"written: {target}", file=sys.stderr)
