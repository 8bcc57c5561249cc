"""A study: one configuration and its variants, trained one after the other and compared on the same masks."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.lm.pretraining.config import PretrainConfig
from mpt_bayes.lm.pretraining.held_out import HeldOutScores
from mpt_bayes.lm.pretraining.records import RunFolder


@dataclass(frozen=True)
class Study:
    """Named configurations that differ in what is studied.

    In TOML: a configuration as usual, then for each variant a table `[variants.NAME]` with the fields that differ.

    Example:
        >>> study = Study.from_dict({"corpus": {"kind": "hmm"}, "variants": {"wide": {"model": {"width": 128}}}})
        >>> study.configs["wide"].model.width
        128
    """

    configs: Mapping[str, PretrainConfig]

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read a file; one without variants is a study of one run, called "run".

        Raises:
            ArgumentError: not there, not TOML, or a field that is unknown, missing or of the wrong type (named).
        """
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ArgumentError(f"{path} is not TOML: {error}") from error
        return cls.from_dict(table)

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Self:
        """From nested tables, as TOML has them.

        Raises:
            ArgumentError: as `PretrainConfig.from_dict`, or a variant whose name is no name of a folder.
        """
        base = {name: value for name, value in table.items() if name != "variants"}
        variants = table.get("variants", {"run": {}})
        if not isinstance(variants, dict) or not all(isinstance(v, dict) for v in variants.values()) or not variants:
            raise ArgumentError("variants is not a table of tables: write [variants.NAME] for each variant")
        for name in variants:
            if name in ("", ".", "..") or set(name) & set("/\\"):
                raise ArgumentError(f"variants has a variant {name!r}: its name is that of its folder")
        return cls({name: PretrainConfig.from_dict(_merged(base, own)) for name, own in variants.items()})

    def with_seed(self, seed: int) -> Study:
        """The same study repeated with other weights, examples and training masks; what is held out stays."""
        return Study({name: replace(config, seed=seed) for name, config in self.configs.items()})


@dataclass(frozen=True, eq=False)
class RunComparison:
    """One run of a study beside the first.

    Attributes:
        name: of the run.
        scores: its held-out scores at every mask size; their total is the area Σ_m S(m), nats per sequence.
        difference: this run minus the first, sequence by sequence with the same masks, so that its standard errors are
            those of a paired comparison.
        result: the record that the finished run wrote.
    """

    name: str
    scores: HeldOutScores
    difference: HeldOutScores
    result: dict[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        """For a table."""
        return {
            "run": self.name,
            "area": self.scores.total,
            "area_standard_error": self.scores.total_standard_error,
            "difference": self.difference.total,
            "difference_standard_error": self.difference.total_standard_error,
            "gain_over_untrained": self.result["gain_over_untrained"],
            "gain_standard_error": self.result["gain_standard_error"],
            **{key: self.result[key] for key in ("share", "share_standard_error") if key in self.result},
            "flops": self.result["flops"],
            "parameters": self.result["parameters"],
            "seconds": self.result["seconds"],
        }


def compare_runs(folders: Mapping[str, Path]) -> list[RunComparison]:
    """Finished runs against the first of them, on their common held-out sequences and masks.

    Raises:
        DataError: runs with different held-out sets, whose difference would mean nothing.
        ArgumentError: a folder without a finished run.
    """
    if not folders:
        raise ArgumentError("folders is empty: give at least one finished run")
    runs = {name: RunFolder(path) for name, path in folders.items()}
    results = {name: run.result() for name, run in runs.items()}
    digests = {result["held_out_digest"] for result in results.values()}
    if len(digests) > 1:
        raise DataError("the runs were scored on different held-out sets or masks: compare runs of one corpus")
    scores = {name: HeldOutScores(np.load(run.path / "held_out.npy")) for name, run in runs.items()}
    first = scores[next(iter(scores))]
    return [RunComparison(name, own, own.minus(first), results[name]) for name, own in scores.items()]


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`base` with the fields of `own` put over it, table by table."""
    merged = dict(base)
    for name, value in own.items():
        nested = isinstance(value, dict) and isinstance(base.get(name), dict)
        merged[name] = _merged(base[name], value) if nested else value
    return merged
