"""Options that the scoring commands of `mpt-bayes lm` share: which model, which texts, how much work, where it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import torch.distributed as dist
import typer

from mpt_bayes import lm
from mpt_bayes.cli.options import target_error
from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.readers import Texts, read_texts
from mpt_bayes.lm.rows import EmptyText
from mpt_bayes.lm.text import LongText

Precision = Literal["float32", "bfloat16", "float16"]

Model = Annotated[
    str,
    typer.Option("--model", help="A hub name, a folder, or 'antibody' (the BERT inside antiberty).", metavar="MODEL"),
]
Text = Annotated[list[str] | None, typer.Option("--text", help="A text; may be repeated.")]
Input = Annotated[
    Path | None,
    typer.Option("--input", help="A .txt, .jsonl, .csv, .parquet or .fasta file, or a saved data set.", metavar="FILE"),
]
Column = Annotated[str, typer.Option(help="The column or field of --input that holds the text.")]
PromptColumn = Annotated[str | None, typer.Option(help="The one that holds a prompt: visible, not scored.")]
Passes = Annotated[int | None, typer.Option("--budget", help="Forward passes a text (default 128).", min=1)]
TargetError = Annotated[float | None, target_error("Instead: standard error of the total over texts, in nats.")]
Long = Annotated[LongText, typer.Option("--long-text", help="Texts longer than the model's window.")]
Empty = Annotated[EmptyText, typer.Option("--empty", help="Texts without tokens: an error, or skipped with a reason.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")]
Dtype = Annotated[Precision, typer.Option(help="Of the forward pass; sums are double either way.")]
BatchSize = Annotated[int | None, typer.Option(help="Most rows a forward pass; memory sets it by default.", min=1)]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the encoder with torch.compile.")]
Store = Annotated[
    Path | None,
    typer.Option("--store", "--resume", help="A file of finished work: made if new, taken up if not.", metavar="FILE"),
]
RemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Let the checkpoint run its own code.")]


@dataclass(frozen=True)
class ModelChoice:
    """The model and where it runs."""

    name: str
    device: str
    dtype: Precision
    compiled: bool
    trust_remote_code: bool

    def load(self) -> lm.MaskedLM:
        """The model, checked."""
        device = checked_device(self.device)
        if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        dtype: torch.dtype = getattr(torch, self.dtype)
        if self.name == "antibody":
            model = lm.antibody(device=device, dtype=dtype)
        else:
            model = lm.load(self.name, device=device, dtype=dtype, trust_remote_code=self.trust_remote_code)
        return model.compiled() if self.compiled else model

    def to_dict(self, model: lm.MaskedLM) -> dict[str, Any]:
        """The `model` field of the JSON output."""
        return {"name": model.name, "sha256": model.digest, "device": str(model.device), "dtype": self.dtype}


@contextmanager
def shared_work() -> Iterator[bool]:
    """Under torchrun or accelerate the processes share the work; True in the one that reports.

    Only lists of finished numbers are exchanged, so the backend is gloo whatever the device.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or dist.is_initialized():
        yield True
        return
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank() == 0
    finally:
        dist.destroy_process_group()


def checked_device(name: str) -> torch.device:
    """A device that is there.

    Raises:
        ArgumentError: no such device.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ArgumentError(f"--device {name} is no device: expected cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ArgumentError(f"--device {name}, but this machine has no usable GPU: use --device cpu")
    return device


def texts_from(text: list[str] | None, source: Path | None, column: str, prompt_column: str | None) -> Texts:
    """The texts asked for, by exactly one of the two ways.

    Raises:
        ArgumentError: both or neither.
    """
    if (text is None) == (source is None):
        raise ArgumentError("give the texts by --text (may be repeated) or by --input FILE, one of the two")
    if source is not None:
        return read_texts(source, column=column, prompt_column=prompt_column)
    assert text is not None
    return Texts(tuple(text), tuple(str(row) for row in range(len(text))))


def batch_limits(device: torch.device, rows: int | None) -> lm.BatchLimits:
    """What a forward pass may take."""
    return lm.BatchLimits.for_device(device, rows)
