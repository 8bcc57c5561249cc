"""A model beside its randomly initialised twin, on the same texts with the same masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.batches import BatchLimits
from mpt_bayes.lm.loading import random_twin
from mpt_bayes.lm.results import CorpusScore
from mpt_bayes.lm.rows import EmptyText, Text
from mpt_bayes.lm.scoring import score_alike
from mpt_bayes.lm.text import LongText
from mpt_bayes.masks import MaskDesign
from mpt_bayes.results import Estimate
from mpt_bayes.results.estimate import finite_or_none

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class TwinCurves:
    """Scores of a model and of the same architecture before any training."""

    model: CorpusScore
    twin: CorpusScore

    @property
    def difference(self) -> Estimate:
        """What pre-training gained, in nats over all texts, from shared masks."""
        return self.model.minus(self.twin)

    def to_dict(self, n_bins: int = 20) -> dict[str, Any]:
        """JSON-ready: totals, perplexities and curves by mask rate."""
        whole = self.model.to_dict()
        return {
            "units": "nats; curves per hidden token, totals over scored tokens",
            "total": whole["total"],
            "perplexity": whole["perplexity"],
            "curve": _records(self.model.rate_curve(n_bins)),
            "twin": {
                "total": self.twin.total.to_dict(),
                "perplexity": self.twin.perplexity.to_dict(),
                "curve": _records(self.twin.rate_curve(n_bins)),
            },
            "difference": self.difference.to_dict(),
            "skipped": whole["skipped"],
        }


def twin_curves(
    model: MaskedLM,
    texts: Sequence[Text],
    *,
    prompts: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    budget: int | None = None,
    target_standard_error: float | None = None,
    design: MaskDesign | None = None,
    seed: int = 0,
    long_text: LongText = "error",
    empty: EmptyText = "error",
    batch: BatchLimits | None = None,
    store: str | Path | None = None,
) -> TwinCurves:
    """`score` of a model and of its randomly initialised twin with the same masks; the arguments are those of `score`.

    Raises:
        ModelError: a model whose initialisation is not known.
        ArgumentError, DataError, EstimandError: as `score`.
    """
    return TwinCurves(
        *score_alike(
            [model, random_twin(model)],
            texts,
            prompts=prompts,
            names=names,
            budget=budget,
            target_standard_error=target_standard_error,
            design=design,
            seed=seed,
            long_text=long_text,
            empty=empty,
            batch=batch,
            store=store,
        )
    )


def _records(frame: pd.DataFrame) -> list[dict[str, float | None]]:
    return [{str(key): finite_or_none(value) for key, value in record.items()} for record in frame.to_dict("records")]
