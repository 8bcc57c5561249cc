"""The masked score at several rates, and what a fixed rate gets wrong about the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.results.estimate import SCHEMA_VERSION, finite_or_none

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """S(m) at each of R rates, total nats over the rows, per hidden coordinate.

    Attributes:
        rates: (R,) as asked for.
        sizes: (R,) hidden coordinates of a complete row, round(rate · D).
        scores, standard_errors: (R,) of S(m); errors are 0 when every mask was taken, NaN for a single mask.
        scaled, scaled_standard_errors: (R,) of D · S(m), the biased stand-in for log p(x) that one rate offers.
        log_marginal_likelihood: exact, total over the rows; None for a model that has none.
        n_evaluations: (row, mask) pairs scored.
        inner_standard_errors, scaled_inner_standard_errors: (R,) of both, and
            log_marginal_likelihood_inner_standard_error: from a model that is itself made of draws; None where it is
            exact. All come from the same draws: the inner error of the bias is at most the sum of those of its terms.
        seed: the same masks, cut at each size, serve every rate; None when every mask was taken.
    """

    rates: NDArray[np.float64]
    sizes: NDArray[np.int64]
    scores: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    scaled: NDArray[np.float64] = field(repr=False)
    scaled_standard_errors: NDArray[np.float64] = field(repr=False)
    log_marginal_likelihood: float | None
    n_data: int
    n_evaluations: int
    seed: int | None
    data_digest: str
    inner_standard_errors: NDArray[np.float64] | None = field(default=None, repr=False)
    scaled_inner_standard_errors: NDArray[np.float64] | None = field(default=None, repr=False)
    log_marginal_likelihood_inner_standard_error: float | None = None

    @property
    def bias(self) -> NDArray[np.float64] | None:
        """(R,) D · S(m) - log p(x), its standard error in `scaled_standard_errors`; None without an exact log p(x)."""
        return None if self.log_marginal_likelihood is None else self.scaled - self.log_marginal_likelihood

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version; errors that cannot be had are null."""
        none = np.full(len(self.rates), np.nan)
        bias = none if self.bias is None else self.bias
        inner = none if self.inner_standard_errors is None else self.inner_standard_errors
        columns = (self.rates, self.sizes, self.scores, self.standard_errors, inner, bias, self.scaled_standard_errors)
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats, total over rows; bias is that of D times the score",
            "log_marginal_likelihood": self.log_marginal_likelihood,
            "log_marginal_likelihood_inner_standard_error": self.log_marginal_likelihood_inner_standard_error,
            "rates": [
                {
                    "rate": float(rate),
                    "size": int(size),
                    "score": float(score),
                    "standard_error": finite_or_none(error),
                    "inner_standard_error": finite_or_none(drawn),
                    "bias": finite_or_none(difference),
                    "bias_standard_error": None if self.bias is None else finite_or_none(scaled_error),
                }
                for rate, size, score, error, drawn, difference, scaled_error in zip(*columns, strict=True)
            ],
            "n_data": self.n_data,
            "n_evaluations": self.n_evaluations,
            "seed": self.seed,
            "data_digest": self.data_digest,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a rate: rate, size, score, standard_error, inner_standard_error, bias, bias_standard_error."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame(self.to_dict()["rates"])

    def __repr__(self) -> str:
        bias = self.bias
        worst = "no exact log p(x)" if bias is None else f"largest bias {float(bias[np.abs(bias).argmax()]):+.4g} nats"
        return f"Sweep({len(self.rates)} rates from {self.rates[0]:g} to {self.rates[-1]:g}, N={self.n_data}, {worst})"
