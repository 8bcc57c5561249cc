"""The folder a run leaves: configuration, versions, metrics, checkpoints, the trained model."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.pretraining.config import PretrainConfig

COMPLETE = "complete"
"""Written into a checkpoint folder after everything else: a folder without it was being written when the run died."""


def process() -> tuple[int, int]:
    """This process's number, and how many train together: as torchrun tells them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class RunFolder:
    """Paths and records of one run.

    Attributes:
        path: the folder. It holds `config.json`, `versions.json`, `metrics.jsonl` (a line a step or evaluation),
            `steps.parquet`, `evaluations.parquet`, `held_out.npy` (N, D),
            `result.json`, `model/` (safetensors, tokenizer) and `figures/`.
        writes: whether this process writes it: the first of those that train together.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writes = process()[0] == 0

    @property
    def model(self) -> Path:
        """Where the trained model is saved."""
        return self.path / "model"

    @property
    def figures(self) -> Path:
        """Where figures go."""
        return self.path / "figures"

    def start(self, config: PretrainConfig, *, resume: bool) -> int:
        """Prepare the folder; the step to resume from, 0 for a new run.

        Raises:
            ArgumentError: a new run in a folder that holds one, or a resumed run with another configuration.
        """
        if not self.writes:
            return max(self._complete_steps(), default=0)
        written = self.path / "config.json"
        if written.exists():
            if not resume:
                raise ArgumentError(
                    f"{self.path} holds a run already: pass resume to go on with it, or choose another folder"
                )
            self.check_config(config)
        self.path.mkdir(parents=True, exist_ok=True)
        self._write("config.json", config.to_dict())
        self._write("versions.json", _versions())
        step = max(self._complete_steps(), default=0)
        rows = [row for row in self.rows() if row["step"] <= step and step > 0]
        self._metrics.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return step

    def check_config(self, config: PretrainConfig) -> None:
        """The run recorded here is of this configuration.

        Raises:
            ArgumentError: it is of another; names the first field that differs.
        """
        here, given = _flat(self.config().to_dict()), _flat(config.to_dict())
        for name, value in given.items():
            if here[name] != value:
                raise ArgumentError(
                    f"{self.path} holds a run of another configuration: {name} is {here[name]!r} there and {value!r} "
                    "now; put it back to resume that run, or choose another folder"
                )

    def checkpoint(self, step: int) -> Path:
        """The Trainer's own folder of that step."""
        return self.path / f"checkpoint-{step}"

    def mark_complete(self, step: int) -> None:
        """All of the checkpoint has been written."""
        if self.writes:
            (self.checkpoint(step) / COMPLETE).touch()

    def add(self, row: dict[str, Any]) -> None:
        """One line of metrics, on disk at once."""
        if self.writes:
            with self._metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def rows(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The lines of metrics, of one kind or all; a last line cut short by a kill is left out."""
        if not self._metrics.exists():
            return []
        text = self._metrics.read_text(encoding="utf-8")
        lines = text[: text.rfind("\n") + 1].splitlines()
        rows = [json.loads(line) for line in lines]
        return [row for row in rows if kind in (None, row["kind"])]

    def finish(self, result: dict[str, Any], scores: NDArray[np.float64]) -> None:
        """Metrics as tables, the held-out scores row by row, and last of all the result."""
        import pandas as pd

        np.save(self.path / "held_out.npy", scores)
        for kind in ("step", "evaluation"):
            pd.DataFrame(self.rows(kind)).drop(columns="kind").to_parquet(self.path / f"{kind}s.parquet")
        self._write("result.json", result)

    @property
    def finished(self) -> bool:
        """Whether the run went to its end."""
        return (self.path / "result.json").exists()

    @property
    def why_unfinished(self) -> str | None:
        """That the run here did not go to its end, in words; None where it did, or where there is no run."""
        begun = (self.path / "versions.json").exists()  # any folder of a Hugging Face model has a config.json
        if self.finished or not begun:
            return None
        return f"{self.path} holds a run that did not go to its end: pretrain it with resume"

    def result(self) -> dict[str, Any]:
        """The result of a finished run.

        Raises:
            ArgumentError: no finished run there.
        """
        if not self.finished:
            raise ArgumentError(self.why_unfinished or f"there is no finished run in {self.path}")
        return self._read("result.json")

    def config(self) -> PretrainConfig:
        """The configuration of the run.

        Raises:
            ArgumentError: no run there.
        """
        return PretrainConfig.from_dict(self._read("config.json"))

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def _complete_steps(self) -> list[int]:
        found = self.path.glob(f"checkpoint-*/{COMPLETE}")
        return [int(marker.parent.name.removeprefix("checkpoint-")) for marker in found]

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self.path / name).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except OSError as error:
            raise ArgumentError(f"{self.path / name} cannot be read: {error.strerror}") from error
        return content


def _flat(table: dict[str, Any], where: str = "") -> dict[str, Any]:
    """The fields of nested tables by their dotted names."""
    fields: dict[str, Any] = {}
    for name, value in table.items():
        fields |= _flat(value, f"{where}{name}.") if isinstance(value, dict) else {f"{where}{name}": value}
    return fields


def _versions() -> dict[str, str]:
    packages = ("mpt_bayes", "torch", "transformers", "tokenizers", "accelerate", "safetensors", "numpy")
    return {"python": platform.python_version(), **{package: _version(package) for package in packages}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "used from a source tree, not installed"
