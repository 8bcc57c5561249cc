"""Work cut into (text, mask) units, sorted by length, run in batches that shrink by themselves when memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import BudgetError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.text import EncodedText


@dataclass(frozen=True)
class BatchLimits:
    """What one forward pass may take.

    Attributes:
        tokens: positions, padding included (rows × longest row).
        logits: entries of the vocabulary projection (scored tokens × vocabulary), 4 bytes each and as much again for
            the log-softmax.
        rows: rows, None for no limit of their own.
    """

    tokens: int
    logits: int = 2**25
    rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "logits") + ("rows",) * (self.rows is not None):
            checked_count(getattr(self, name), name)

    @classmethod
    def for_device(cls, device: torch.device, rows: int | None = None) -> BatchLimits:
        """Enough to keep the device busy: more on an accelerator than on a CPU."""
        return cls(tokens=2048, rows=rows) if device.type == "cpu" else cls(tokens=2**16, logits=2**28, rows=rows)


@dataclass(frozen=True, eq=False)
class Work:
    """Masks of one text: `hidden` (P, D), and which of the hidden tokens are scored, `scored` (P, D).

    `key` names the text and how its masks were drawn: (key, mask index) names a unit in the store.
    """

    text: EncodedText
    hidden: Tensor
    scored: Tensor
    key: str = ""


@dataclass(frozen=True)
class Batch:
    """Units run together: (work, mask) index pairs in order of length."""

    units: tuple[tuple[int, int], ...]


def batched(works: Sequence[Work], limits: BatchLimits, vocabulary_size: int) -> list[Batch]:
    """All units in order of length, cut so that each batch is within the limits (one unit at least).

    The cut depends on the works and the limits alone, so a resumed run has the same batches.
    """
    by_length = sorted(range(len(works)), key=lambda w: len(works[w].text.ids))
    batches: list[Batch] = []
    units: list[tuple[int, int]] = []
    n_scored = 0
    for w in by_length:
        length = len(works[w].text.ids)
        for mask, count in enumerate(works[w].scored.sum(1).tolist()):
            full = (len(units) + 1) * length > limits.tokens or (n_scored + count) * vocabulary_size > limits.logits
            if units and (full or len(units) == limits.rows):
                batches.append(Batch(tuple(units)))
                units, n_scored = [], 0
            units.append((w, mask))
            n_scored += count
    return [*batches, Batch(tuple(units))] if units else batches


class Runner:
    """Runs batches of a model. Its limits halve whenever memory runs out, and stay so."""

    def __init__(self, model: MaskedLM, limits: BatchLimits) -> None:
        self.model = model
        self.limits = limits

    def run(self, works: Sequence[Work], batches: Sequence[Batch]) -> Iterator[tuple[Batch, list[Tensor]]]:
        """Each batch with, for each of its units, the (n_scored,) float32 log-probabilities on the CPU.

        A batch is handed over while the next one is already under way, so that a GPU is not kept waiting.

        Raises:
            BudgetError: a single unit does not fit in memory.
        """
        waiting: tuple[Batch, list[Tensor]] | None = None
        for batch in batches:
            with self.model.evaluating():
                running = batch, self._launched(works, batch.units)
            if waiting is not None:
                yield _handed_over(works, *waiting)
            waiting = running
        if waiting is not None:
            yield _handed_over(works, *waiting)

    def _launched(self, works: Sequence[Work], units: Sequence[tuple[int, int]]) -> list[Tensor]:
        """The units' log-probabilities, still on the device, in pieces that fit."""
        length = max(len(works[w].text.ids) for w, _ in units)
        step = max(1, self.limits.tokens // length)
        done: list[Tensor] = []
        start = 0
        while start < len(units):
            piece = units[start : start + step]
            try:
                done.append(self._forward(works, piece))
                start += len(piece)
                continue
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                if len(piece) == 1:
                    raise BudgetError(
                        f"one text of {length} tokens does not fit in memory on {self.model.device}: use a smaller "
                        "dtype, long_text='windows', or a machine with more memory"
                    ) from error
            step = len(piece) // 2
            self.limits = replace(self.limits, tokens=max(1, step * length))
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return done

    def _forward(self, works: Sequence[Work], units: Sequence[tuple[int, int]]) -> Tensor:
        ids, attention, places, targets = assembled(works, units, self.model)
        device = self.model.device
        moved = [None if t is None else t.to(device, non_blocking=True) for t in (ids, attention, places, targets)]
        return self.model.log_probs(*moved)  # type: ignore[arg-type]


def assembled(
    works: Sequence[Work], units: Sequence[tuple[int, int]], model: MaskedLM
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Ids (B, L) with the hidden tokens masked, attention (B, L) or None without padding, and what to score."""
    lengths = [len(works[w].text.ids) for w, _ in units]
    longest = max(lengths)
    ids = torch.full((len(units), longest), model.pad_token_id)
    attention = None if min(lengths) == longest else torch.zeros(len(units), longest, dtype=torch.int64)
    score = torch.zeros(len(units), longest, dtype=torch.bool)
    true = ids.clone()
    row = 0
    for w, run in groupby(units, key=lambda unit: unit[0]):
        text, masks = works[w].text, [mask for _, mask in run]
        rows, length = slice(row, row + len(masks)), len(text.ids)
        true[rows, :length] = text.ids
        hide = torch.zeros(len(masks), length, dtype=torch.bool)
        hide[:, text.scored] = works[w].hidden[masks]
        ids[rows, :length] = text.ids.masked_fill(hide, model.mask_token_id)
        if attention is not None:
            attention[rows, :length] = 1
        score[rows, text.scored] = works[w].scored[masks]
        row += len(masks)
    return ids, attention, score.nonzero(), true[score]


def _handed_over(works: Sequence[Work], batch: Batch, done: list[Tensor]) -> tuple[Batch, list[Tensor]]:
    values = torch.cat([part.cpu() for part in done]).clone()
    counts = [int(works[w].scored[mask].sum()) for w, mask in batch.units]
    return batch, list(values.split(counts))


def _is_out_of_memory(error: RuntimeError) -> bool:
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in words or "not enough memory" in words
