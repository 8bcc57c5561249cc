"""Texts as given, row by row: encoded, cut to the model's window, or left out with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mpt_bayes.errors import ArgumentError, DataError, MptBayesWarning
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.text import EncodedText, LongText, fitted, has_tokens

EmptyText = Literal["error", "skip"]
Text = str | EncodedText


@dataclass(frozen=True, eq=False)
class Row:
    """A text as given: its pieces, or why there are none."""

    row: int
    name: str
    pieces: tuple[EncodedText, ...]
    reason: str = ""
    note: str = ""


def encoded_rows(
    model: MaskedLM,
    texts: Sequence[Text],
    prompts: Sequence[str] | None,
    names: Sequence[str] | None,
    long_text: LongText,
    empty: EmptyText,
) -> list[Row]:
    """Every text as pieces that fit the model, in the order given; the first fault is named with its row."""
    if not isinstance(model, MaskedLM):
        raise ArgumentError(f"model is a {type(model).__name__}: pass what load, adapt or masked_diffusion returns")
    if empty not in ("error", "skip"):
        raise ArgumentError(f"empty is {empty!r}: expected 'error' or 'skip'")
    if isinstance(texts, Mapping):
        raise ArgumentError(f"texts is a {type(texts).__name__}: pass its values as the texts, its keys as names")
    if hasattr(texts, "columns"):
        raise ArgumentError(f"texts is a {type(texts).__name__}: pass one column of it, as a list")
    if isinstance(texts, str) or not hasattr(texts, "__len__") or not len(texts):
        raise ArgumentError("texts must be a list of at least one text: for a single one pass [text]")
    for label, other in (("prompts", prompts), ("names", names)):
        if other is not None and len(other) != len(texts):
            raise ArgumentError(f"{label} has {len(other)} entries for {len(texts)} texts: give one each")
    rows = []
    unknown = {}
    for row, text in enumerate(texts):
        name = names[row] if names is not None else str(row)
        if isinstance(text, str) and empty == "skip" and not (text.strip() and has_tokens(model.tokenizer, text)):
            rows.append(Row(row, name, (), reason="the text is empty"))
            continue
        if not isinstance(text, Text):
            raise DataError(f"row {row} is a {type(text).__name__}: expected a text, or an EncodedText")
        if isinstance(text, EncodedText):
            encoded = model.checked(text, row)
        else:
            encoded = model.encode(text, prompt="" if prompts is None else prompts[row], row=row)
        if encoded.n_unknown == encoded.dim:
            raise DataError(
                f"row {row}: none of its {encoded.dim} tokens is known to the tokenizer: check the letter case, "
                "and that text and tokenizer belong together"
            )
        if encoded.n_unknown:
            unknown[name] = encoded.n_unknown
        pieces = tuple(fitted(encoded, model.max_length, long_text, row))
        notes = [f"{encoded.n_unknown} tokens are unknown to the tokenizer"] * bool(encoded.n_unknown)
        dropped = encoded.dim - sum(piece.dim for piece in pieces)
        notes += [f"truncated: the last {dropped} tokens are not scored"] * bool(dropped)
        notes += [f"the sum of {len(pieces)} windows scored apart"] * (len(pieces) > 1)
        rows.append(Row(row, name, pieces, note="; ".join(notes)))
    _warn_of_unknown(unknown)
    if not any(row.pieces for row in rows):
        raise DataError(f"none of the {len(rows)} texts has tokens to score")
    return rows


def _warn_of_unknown(counts: Mapping[str, int]) -> None:
    """A letter or word that a model never saw can outweigh the rest of its text."""
    if counts:
        named = ", ".join(f"{name} ({count})" for name, count in [*counts.items()][:3])
        more = f" and {len(counts) - 3} more" if len(counts) > 3 else ""
        warnings.warn(
            f"tokens unknown to the tokenizer are scored as such, in text {named}{more}: check the letters",
            MptBayesWarning,
            stacklevel=4,
        )
