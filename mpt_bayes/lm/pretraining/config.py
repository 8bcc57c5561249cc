"""What a pre-training run is: one frozen record, with nothing unknown and nothing left out."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from mpt_bayes.checks import checked_count, checked_positive, checked_seed
from mpt_bayes.errors import ArgumentError

CorpusKind = Literal["docstrings", "fasta", "hmm", "pydoc", "table", "text"]
Weighting = Literal["mask", "token"]


@dataclass(frozen=True)
class CorpusConfig:
    """Where the sequences come from.

    Attributes:
        kind: "text" (lines of `path`), "pydoc" (the help topics that ship with Python), "docstrings" (of Python's own
            library), "fasta" (of `path`), "hmm" and "table" (languages with a known evidence, drawn for ever).
        length: tokens of a block, special tokens not counted.
        held_out: blocks kept for evaluation, never trained on.
        vocabulary: size of the tokenizer trained on text.
        states, letters, seed: of the synthetic language.
    """

    kind: CorpusKind
    path: str = ""
    length: int = 32
    held_out: int = 128
    vocabulary: int = 4000
    states: int = 6
    letters: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        for name, minimum in (("length", 2), ("held_out", 2), ("vocabulary", 1), ("states", 2), ("letters", 2)):
            checked_count(getattr(self, name), f"corpus.{name}", minimum)
        checked_seed(self.seed)
        if self.kind in ("fasta", "text") and not self.path:
            raise ArgumentError(f"corpus.path is missing: a corpus of kind {self.kind!r} is read from a file")


@dataclass(frozen=True)
class ModelConfig:
    """Architecture and sizes, as `mpt_bayes.lm.architectures.build` takes them."""

    architecture: str = "bert"
    layers: int = 2
    decoder_layers: int = 1
    width: int = 64
    heads: int = 4
    dropout: float = 0.0
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for name, minimum in (("layers", 1), ("decoder_layers", 0), ("width", 1), ("heads", 1)):
            checked_count(getattr(self, name), f"model.{name}", minimum)
        _check_between(self.dropout, "model.dropout", 1)
        checked_positive(self.initializer_range, "model.initializer_range")


@dataclass(frozen=True)
class MaskConfig:
    """Which tokens are hidden in training, and how a mask weighs.

    Attributes:
        law: "uniform" (every size equally likely: unbiased for Σ_m S(m)), "fixed" (one of `rates`), "rates" (one of
            several at random), "linear" and "cosine" (from the first to the last of `rates` over training), "spans"
            and "words" (whole spans or words, at the rate of `rates`).
        rates: one or more mask rates in (0, 1].
        span: mean length of a span.
        random, keep: shares of hidden tokens replaced by a random token, or left as they are (BERT: 0.1 and 0.1).
        drop: share of visible tokens dropped from attention in training (DropToken).
        weighting: "mask" (each mask's mean counts the same: D times it is unbiased for Σ_m S(m) under the uniform
            law), or "token" (each hidden token counts the same, as BERT's training does).
    """

    law: str = "uniform"
    rates: tuple[float, ...] = ()
    span: float = 3.0
    random: float = 0.0
    keep: float = 0.0
    drop: float = 0.0
    weighting: Weighting = "mask"

    def __post_init__(self) -> None:
        _check_between(self.drop, "masks.drop", 1)
        if not (min(self.random, self.keep) >= 0 and self.random + self.keep <= 1 + 1e-9):
            raise ArgumentError(
                f"masks.random and masks.keep are {self.random} and {self.keep}: expected probabilities that sum to at "
                "most 1"
            )


@dataclass(frozen=True)
class TrainingConfig:
    """The optimiser's part, handed to the Hugging Face Trainer.

    Attributes:
        steps: optimiser steps.
        batch: sequences a step on each device.
        warmup: steps to the full learning rate; it then falls linearly to 0 over the last `decay` of the steps.
        precision: "float32", "bfloat16" or "float16" (mixed precision).
        device: "cpu", or "auto" for an accelerator where there is one.
        save_every: steps between checkpoints.
    """

    steps: int = 1000
    batch: int = 64
    learning_rate: float = 1e-3
    warmup: int = 100
    decay: float = 0.3
    weight_decay: float = 0.01
    clip: float = 1.0
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    device: Literal["cpu", "auto"] = "cpu"
    save_every: int = 500

    def __post_init__(self) -> None:
        for name, minimum in (("steps", 1), ("batch", 1), ("warmup", 0), ("save_every", 1)):
            checked_count(getattr(self, name), f"training.{name}", minimum)
        checked_positive(self.learning_rate, "training.learning_rate")
        _check_between(self.decay, "training.decay", 1)
        for name in ("weight_decay", "clip"):
            _check_between(getattr(self, name), f"training.{name}")


@dataclass(frozen=True)
class EvaluationConfig:
    """Held-out evaluation during training: `rows` of the held-out sequences, one mask of every size for each.

    Attributes:
        every: steps between evaluations; the first and the last step are always evaluated.
    """

    every: int = 250
    rows: int = 128

    def __post_init__(self) -> None:
        checked_count(self.every, "evaluation.every")
        checked_count(self.rows, "evaluation.rows", 2)


@dataclass(frozen=True)
class PretrainConfig:
    """A whole run.

    Raises:
        ArgumentError: a number outside its range, here or in any of the parts (named), or more `evaluation.rows` than
            `corpus.held_out`.

    Example:
        >>> config = PretrainConfig.from_dict({"corpus": {"kind": "hmm"}, "masks": {"law": "fixed", "rates": [0.15]}})
        >>> config.masks.rates, config.model.architecture
        ((0.15,), 'bert')
    """

    corpus: CorpusConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    masks: MaskConfig = field(default_factory=MaskConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        checked_seed(self.seed)
        if self.evaluation.rows > self.corpus.held_out:
            raise ArgumentError(
                f"evaluation.rows is {self.evaluation.rows}, but corpus.held_out is {self.corpus.held_out}: hold out "
                "as many, or evaluate fewer"
            )

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Self:
        """From nested tables, as TOML has them.

        Raises:
            ArgumentError: a field that is unknown, missing, of the wrong type or out of range, by its dotted name.
        """
        return typing.cast(Self, _read(cls, table, ""))

    def to_dict(self) -> dict[str, Any]:
        """Nested tables, every default written out."""
        return dataclasses.asdict(self)


def _check_between(value: float, name: str, high: float = math.inf) -> None:
    """A finite number from 0 to `high`."""
    if not (0 <= value <= high and math.isfinite(value)):
        expected = "a number of 0 or more" if high == math.inf else f"a number from 0 to {high:g}"
        raise ArgumentError(f"{name} is {value!r}: expected {expected}")


def _read(kind: Any, table: Any, where: str) -> Any:
    """A frozen record of class `kind` from a table; errors name the field by its dotted path."""
    if not isinstance(table, dict):
        raise ArgumentError(f"{where} is {table!r}: expected a table")
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(table) - set(hints))
    if unknown:
        raise ArgumentError(f"{where}{unknown[0]} is not a field: expected one of {', '.join(sorted(hints))}")
    missing = [
        f.name
        for f in dataclasses.fields(kind)
        if f.name not in table and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ArgumentError(f"{where}{missing[0]} is missing")
    return kind(**{name: _value(hints[name], value, f"{where}{name}") for name, value in table.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _read(hint, value, f"{where}.")
    origin = typing.get_origin(hint)
    if origin is Literal:
        allowed = typing.get_args(hint)
        if value not in allowed:
            raise ArgumentError(f"{where} is {value!r}: expected one of {', '.join(map(str, allowed))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ArgumentError(f"{where} is {value!r}: expected a list")
        return tuple(_value(typing.get_args(hint)[0], entry, where) for entry in value)
    wanted: type | types.UnionType = int | float if hint is float else hint
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ArgumentError(f"{where} is {value!r}: expected {'a number' if hint is float else hint.__name__}")
    return hint(value)
