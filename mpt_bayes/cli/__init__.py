"""The command `mpt-bayes`: exit code 0 done, 1 a check failed, 2 bad input (one line on standard error says what)."""

from __future__ import annotations

import io
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TextIO

from mpt_bayes.errors import MptBayesError

BAD_INPUT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `--debug`, anywhere, shows the traceback of an error."""
    import typer  # with rich, half a second to load: only when the command line is used

    from mpt_bayes.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Σ shows a question mark, not a traceback
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = [word for word in given if word != "--debug"]
    plain_warning = warnings.showwarning
    warnings.showwarning = _one_line_warning
    try:
        code = app(words, prog_name="mpt-bayes", standalone_mode=False)
    except (MptBayesError, OSError, typer.TyperException) as error:
        if "--debug" in given:
            traceback.print_exc()
        text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        if text:  # no arguments at all: the help has been shown
            print("mpt-bayes:", " ".join(text.split()), file=sys.stderr)
        return BAD_INPUT
    finally:
        warnings.showwarning = plain_warning
    if code == INTERRUPTED:  # what typer makes of Ctrl-C
        print("mpt-bayes: interrupted", file=sys.stderr)
    return int(code or 0)


def _one_line_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print("mpt-bayes: warning:", " ".join(str(message).split()), file=sys.stderr)
