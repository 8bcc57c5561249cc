"""The cumulative score against the number of masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.results.estimate import SCHEMA_VERSION, Estimate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Convergence:
    """Cumulative scores from designs of growing number; total nats over the rows.

    Attributes:
        numbers: (R,) the design's number: orders, or masks per size.
        estimates: the R cumulative scores.
        log_marginal_likelihood: exact, total over the rows; None for a model that has none.
    """

    numbers: tuple[int, ...]
    estimates: tuple[Estimate, ...]
    log_marginal_likelihood: float | None

    @property
    def values(self) -> NDArray[np.float64]:
        """(R,) the estimates' values."""
        return np.array([estimate.value for estimate in self.estimates])

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """(R,) their standard errors, NaN where there is none."""
        return np.array([e.standard_error if e.standard_error is not None else np.nan for e in self.estimates])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats, total over rows",
            "log_marginal_likelihood": self.log_marginal_likelihood,
            "numbers": list(self.numbers),
            "estimates": [estimate.to_dict() for estimate in self.estimates],
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a number: number, value, standard_error, n_evaluations."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame(
            {
                "number": self.numbers,
                "value": self.values,
                "standard_error": self.standard_errors,
                "n_evaluations": [estimate.n_evaluations for estimate in self.estimates],
            }
        )

    def __repr__(self) -> str:
        return f"Convergence(numbers {self.numbers[0]} to {self.numbers[-1]}, last {self.estimates[-1]})"
