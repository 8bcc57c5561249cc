"""Scores of texts and of a corpus: frozen, aligned with the texts given, every number with its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.perplexity import Perplexity
from mpt_bayes.lm.reduction import PieceDifference, PieceScore, pooled
from mpt_bayes.results import Estimate, ScoreCurve
from mpt_bayes.results.estimate import SCHEMA_VERSION, finite_or_none

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Skipped:
    """A row that was not scored, and why. It keeps its place among the results."""

    row: int
    name: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class TextScore:
    """The score of one text.

    Attributes:
        row, name: its place and name among the texts given.
        tokens: the scored tokens; special tokens and the prompt are visible context and not among them.
        total: the sum over tokens, with its estimand and standard error. Nats.
        curve: S(m) for m = 1..D; None for a text scored in several windows and for pseudo-log-likelihoods.
        shares: (D,) each token's part of the total, which they sum to: its Shapley share, or its pseudo-log-likelihood.
        share_standard_errors: (D,) from the choice of masks; NaN where there is none.
        pieces: the windows, one unless the text was longer than the model's.
    """

    row: int
    name: str
    tokens: tuple[str, ...]
    total: Estimate
    curve: ScoreCurve | None
    shares: NDArray[np.float64]
    share_standard_errors: NDArray[np.float64]
    n_words: int | None
    pieces: tuple[PieceScore, ...] = field(repr=False)

    @property
    def standard_error(self) -> float | None:
        """Of the total, from the choice of masks."""
        return self.total.standard_error

    @property
    def perplexity(self) -> Perplexity:
        """The total as a sum, a mean and perplexities."""
        return Perplexity(self.total.value, len(self.tokens), self.n_words)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "row": self.row,
            "name": self.name,
            "total": self.total.to_dict(),
            "perplexity": self.perplexity.to_dict(),
            "n_windows": len(self.pieces),
            "tokens": [
                {"token": token, "share": float(share), "standard_error": finite_or_none(error)}
                for token, share, error in zip(self.tokens, self.shares, self.share_standard_errors, strict=True)
            ],
            "curve": None if self.curve is None else self.curve.to_dict()["curve"],
        }

    def __repr__(self) -> str:
        return f"TextScore({self.name!r}, D={len(self.tokens)}, {self.total})"


@dataclass(frozen=True, eq=False, repr=False)
class CorpusScore:
    """Scores of a list of texts: `len`, indexing and iteration go row by row, in the order given.

    Attributes:
        rows: a TextScore or a Skipped for every text given.
        total: the sum over scored texts; `standard_error` from the choice of masks, `data_standard_error` from the
            choice of texts, never added together.
    """

    rows: tuple[TextScore | Skipped, ...]
    total: Estimate
    model: str
    model_digest: str

    @property
    def texts(self) -> tuple[TextScore, ...]:
        """The rows that were scored."""
        return tuple(row for row in self.rows if isinstance(row, TextScore))

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The rows that were not, with their reasons."""
        return tuple(row for row in self.rows if isinstance(row, Skipped))

    @property
    def perplexity(self) -> Perplexity:
        """The total as a sum, a mean and perplexities."""
        words = [text.n_words for text in self.texts]
        n_words = None if None in words else sum(count for count in words if count)
        return Perplexity(self.total.value, sum(len(text.tokens) for text in self.texts), n_words)

    def rate_curve(self, n_bins: int = 20) -> pd.DataFrame:
        """Mean score a hidden token by mask rate, averaged over texts: columns rate, score, standard_error (nats).

        Bin b holds the sizes with b < (m / D) · n_bins <= b + 1. A text's S(m) are averaged in a bin, then texts are.
        """
        import pandas as pd

        curves = [text.curve for text in self.texts if text.curve is not None]
        binned = np.array([_binned(curve.rates, curve.scores, n_bins) for curve in curves]).reshape(-1, n_bins)
        variance = np.array([_binned_variance(curve, n_bins) for curve in curves]).reshape(-1, n_bins)
        seen = (~np.isnan(binned)).sum(0)
        with np.errstate(invalid="ignore"):
            return pd.DataFrame(
                {
                    "rate": (np.arange(n_bins) + 0.5) / n_bins,
                    "score": np.nansum(binned, 0) / np.where(seen, seen, np.nan),
                    "standard_error": np.sqrt(np.nansum(variance, 0)) / np.where(seen, seen, np.nan),
                }
            )

    def minus(self, other: CorpusScore) -> Estimate:
        """This corpus score less another of the same texts under another model, its error from the shared masks.

        Mask by mask differences have a far smaller standard error than two separate scores. Both must have used the
        same tokens, design and seed.

        Raises:
            ArgumentError: they did not.
        """
        pairs = list(zip(self.texts, other.texts, strict=False))
        same = len(self.texts) == len(other.texts) and all(_share_masks(a, b) for a, b in pairs)
        if not same or self.total.estimand != other.total.estimand:
            raise ArgumentError(
                "the two scores do not share texts, masks and estimand: score both with one design and seed"
            )
        unique: dict[str, list[PieceDifference]] = {}
        for a, b in pairs:
            for ours, theirs in zip(a.pieces, b.pieces, strict=True):
                unique.setdefault(ours.digest, []).append(ours.minus(theirs))
        differences = np.array([a.total.value - b.total.value for a, b in pairs])
        estimand = f"difference of {self.total.estimand}"
        return pooled(list(unique.values()), differences, self.total, estimand=estimand)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": {"name": self.model, "sha256": self.model_digest},
            "units": "nats, total over scored tokens",
            "total": self.total.to_dict(),
            "perplexity": self.perplexity.to_dict(),
            "texts": [text.to_dict() for text in self.texts],
            "skipped": [{"row": s.row, "name": s.name, "reason": s.reason} for s in self.skipped],
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a text given: row, name, n_tokens, total, standard_error, mean_nats_per_token, perplexity_per_token,
        reason."""
        import pandas as pd

        records = []
        for row in self.rows:
            record: dict[str, Any] = {"row": row.row, "name": row.name, "n_tokens": 0, "reason": ""}
            if isinstance(row, TextScore):
                record |= {
                    "n_tokens": len(row.tokens),
                    "total": row.total.value,
                    "standard_error": row.standard_error,
                    "mean_nats_per_token": row.perplexity.mean_nats_per_token,
                    "perplexity_per_token": row.perplexity.perplexity_per_token,
                }
            else:
                record["reason"] = row.reason
            records.append(record)
        return pd.DataFrame(records)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> TextScore | Skipped:
        return self.rows[row]

    def __iter__(self) -> Iterator[TextScore | Skipped]:
        return iter(self.rows)

    def __repr__(self) -> str:
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"CorpusScore({self.model}: {len(self.texts)} texts{skipped}, {self.total})"


def _share_masks(a: TextScore, b: TextScore) -> bool:
    same = a.total.design == b.total.design and a.total.seed == b.total.seed and len(a.pieces) == len(b.pieces)
    return same and all(ours.shares_masks_with(theirs) for ours, theirs in zip(a.pieces, b.pieces, strict=True))


def _binned(rates: NDArray[np.float64], values: NDArray[np.float64], n_bins: int) -> NDArray[np.float64]:
    """Means of the values that are there, bin by bin; NaN in bins without any."""
    place = np.ceil(rates * n_bins - 1e-9).astype(int) - 1
    there = ~np.isnan(values)
    count = np.bincount(place[there], minlength=n_bins)
    total = np.bincount(place[there], weights=values[there], minlength=n_bins)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _binned_variance(curve: ScoreCurve, n_bins: int) -> NDArray[np.float64]:
    """Variance of the bin means, from independent sizes; sizes without an error of their own get the bin's mean."""
    place = np.ceil(curve.rates * n_bins - 1e-9).astype(int) - 1
    count = np.bincount(place[~np.isnan(curve.scores)], minlength=n_bins)
    mean_variance = _binned(curve.rates, curve.standard_errors**2, n_bins)
    return mean_variance / np.maximum(count, 1)
