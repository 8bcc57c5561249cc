"""The exact log marginal likelihood beside the cumulative masked score."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.results.curve import ScoreCurve
from mpt_bayes.results.estimate import SCHEMA_VERSION, Estimate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Both sides of log p(x) = Σ_m S(m), in total nats.

    Attributes:
        log_marginal_likelihood: exact, total over the rows.
        log_marginal_likelihood_per_row: (N,).
        curve: the score curve; its `total` is the cumulative score.
        log_marginal_likelihood_inner_standard_error: of a model made of draws, whose log marginal likelihood is an
            estimate; None where it is exact. Both sides come from the same draws, so it is no error of `difference`.
    """

    log_marginal_likelihood: float
    log_marginal_likelihood_per_row: NDArray[np.float64] = field(repr=False)
    curve: ScoreCurve
    log_marginal_likelihood_inner_standard_error: float | None = None

    @property
    def cumulative_score(self) -> Estimate:
        """Σ_m S(m) with its standard error."""
        return self.curve.total

    @property
    def difference(self) -> float:
        """Cumulative score minus log marginal likelihood, total nats."""
        return self.cumulative_score.value - self.log_marginal_likelihood

    @property
    def z(self) -> float | None:
        """The difference in standard errors; None where the score has none, every mask was taken, or masks that all
        score alike (equal independent coordinates, say) leave a standard error of rounding only."""
        error = self.cumulative_score.standard_error
        rounding = 100 * float(np.finfo(np.float64).eps) * abs(self.log_marginal_likelihood)
        return self.difference / error if error and error > rounding else None

    @property
    def z_in_words(self) -> str:
        """`z`, or why there is none."""
        if self.z is not None:
            return f"{self.z:+.2f} SE"
        return "no SE" if self.cumulative_score.standard_error is None else "exact"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: both totals, per datum, the curve, and in `note` why an error of either is null."""
        n = self.cumulative_score.n_data
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats",
            "log_marginal_likelihood": {
                "total": self.log_marginal_likelihood,
                "per_datum": self.log_marginal_likelihood / n,
                "inner_standard_error": self.log_marginal_likelihood_inner_standard_error,
            },
            "cumulative_score": {
                "total": self.cumulative_score.value,
                "per_datum": self.cumulative_score.value / n,
                "standard_error": self.cumulative_score.standard_error,
                "inner_standard_error": self.cumulative_score.inner_standard_error,
                "z": self.z,
            },
            "curve": self.curve.to_dict()["curve"],
            "design": self.cumulative_score.design,
            "seed": self.cumulative_score.seed,
            "n_data": n,
            "n_evaluations": self.cumulative_score.n_evaluations,
            "data_digest": self.cumulative_score.data_digest,
            "note": "; ".join(filter(None, (self.cumulative_score.note, self.curve.note))),
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a datum: its exact log marginal likelihood and its estimated cumulative score."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame(
            {
                "log_marginal_likelihood": self.log_marginal_likelihood_per_row,
                "cumulative_score": self.cumulative_score.per_row,
            }
        )

    def __repr__(self) -> str:
        error = self.cumulative_score.standard_error
        inner = self.log_marginal_likelihood_inner_standard_error
        drawn = "" if inner is None else f" ± {inner:.3g} (draws of the model)"
        return (
            f"Comparison(log marginal likelihood {self.log_marginal_likelihood:.6g}{drawn}, cumulative score "
            f"{self.cumulative_score.value:.6g}{'' if error is None else f' ± {error:.3g}'} nats, "
            f"difference {self.difference:+.3g} ({self.z_in_words}))"
        )
