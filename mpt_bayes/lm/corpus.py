"""Piece scores put together: text by text, aligned with the rows given, and their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mpt_bayes.estimation.curve import curve_of
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.reduction import PieceScore, pooled
from mpt_bayes.lm.results import CorpusScore, Skipped, TextScore
from mpt_bayes.lm.rows import Row
from mpt_bayes.results import Estimate


@dataclass(frozen=True)
class Label:
    """What was measured and how, in words; `has_curve` where S(m) is part of it."""

    estimand: str
    design: str
    seed: int | None
    has_curve: bool = True


def corpus_score(model: MaskedLM, rows: Sequence[Row], scores: dict[str, PieceScore], label: Label) -> CorpusScore:
    """The results row by row, and their sum."""
    results: list[TextScore | Skipped] = []
    groups: dict[str, list[PieceScore]] = {}
    for row in rows:
        if not row.pieces:
            results.append(Skipped(row.row, row.name, row.reason))
            continue
        pieces = tuple(scores[piece.digest] for piece in row.pieces)
        for piece in pieces:
            groups.setdefault(piece.digest, []).append(piece)
        results.append(_text_score(row, pieces, label))
    scored = [result for result in results if isinstance(result, TextScore)]
    values = np.array([text.total.value for text in scored])
    total = pooled(list(groups.values()), values, scored[0].total, estimand=label.estimand)
    return CorpusScore(tuple(results), total, model.name, model.digest)


def _text_score(row: Row, pieces: tuple[PieceScore, ...], label: Label) -> TextScore:
    repeats: dict[str, list[PieceScore]] = {}
    for piece in pieces:
        repeats.setdefault(piece.digest, []).append(piece)
    template = Estimate(0.0, None, math.inf, label.estimand, 1, 0, label.seed, label.design, "")
    value = np.array([sum(piece.total for piece in pieces)])
    total = pooled(list(repeats.values()), value, template, estimand=label.estimand, note=row.note)
    words = [piece.words for piece in row.pieces]
    return TextScore(
        row=row.row,
        name=row.name,
        tokens=tuple(token for piece in row.pieces for token in piece.tokens),
        total=total,
        curve=curve_of(pieces[0].tally, total) if label.has_curve and len(pieces) == 1 else None,
        shares=torch.cat([piece.shares for piece in pieces]).numpy(),
        share_standard_errors=torch.cat([piece.share_variances for piece in pieces]).sqrt().numpy(),
        n_words=None if any(w is None for w in words) else sum(len(w.unique()) for w in words if w is not None),
        pieces=pieces,
    )
