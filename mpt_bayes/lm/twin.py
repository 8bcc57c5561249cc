"""A model beside its randomly initialised twin, on the same texts with the same masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpt_bayes.lm.results import CorpusScore
from mpt_bayes.results import Estimate
from mpt_bayes.results.estimate import finite_or_none

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class TwinCurves:
    """Scores of a model and of the same architecture before any training, with the same masks: of `score_alike`.

    Example:
        >>> import mpt_bayes as mb
        >>> model = mb.lm.antibody()
        >>> TwinCurves(*mb.lm.score_alike([model, mb.lm.random_twin(model)], ["EVQLVES"])).difference
        Estimate(difference of expected order-agnostic log-likelihood: -0.77... ± 0 nats, N=1, ...)
    """

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


def _records(frame: pd.DataFrame) -> list[dict[str, float | None]]:
    return [{str(key): finite_or_none(value) for key, value in record.items()} for record in frame.to_dict("records")]
