"""What is measured of a network at each evaluation."""

from __future__ import annotations

from typing import Any

from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.pretraining.config import PretrainConfig
from mpt_bayes.lm.pretraining.corpora import Corpus
from mpt_bayes.lm.pretraining.held_out import HeldOut, share_of_context


class Evaluator:
    """The held-out set of a run with what its language says about it, worked out once."""

    def __init__(self, corpus: Corpus, config: PretrainConfig) -> None:
        self.held_out = HeldOut(corpus.held_out[: config.evaluation.rows], seed=config.corpus.seed)
        language = corpus.language
        self.references = (
            None if language is None else (self.held_out.exact(language), self.held_out.context_free(language))
        )

    def reference_curves(self) -> dict[str, list[float]]:
        """S(m) per sequence of the exact joint and of the best prediction without context; nothing for a text."""
        if self.references is None:
            return {}
        exact, context_free = self.references
        return {"exact_curve": exact.curve.tolist(), "context_free_curve": context_free.curve.tolist()}

    def evaluate(self, model: MaskedLM) -> dict[str, Any]:
        """Curve and area per sequence with standard errors; for a language also the share of what context is worth."""
        scores = self.held_out.score(model)
        measured: dict[str, Any] = {
            "total": scores.total,
            "total_standard_error": scores.total_standard_error,
            "curve": scores.curve.tolist(),
            "curve_standard_errors": scores.curve_standard_errors.tolist(),
        }
        if self.references is not None:
            exact, context_free = self.references
            share = share_of_context(scores, exact, context_free)
            measured |= {
                "exact_total": exact.total,
                "context_free_total": context_free.total,
                "share": share.value,
                "share_standard_error": share.standard_error,
                "share_by_size": share.by_size[:-1].tolist(),
                "share_by_size_standard_errors": share.by_size_standard_errors[:-1].tolist(),
                "context_worth_per_token": share.worth,
            }
        return measured
