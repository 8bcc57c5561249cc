"""Chain-rule sums over random orders: one is exact for a coherent joint, and their spread measures incoherence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.results.estimate import SCHEMA_VERSION, finite_or_none

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class ChainRule:
    """Σ_t log p(x_π(t) | x_π(1..t-1)) for n random orders π, in nats.

    Attributes:
        sums: (N, n) for each row and order.
        log_marginal_likelihood: exact, total over the rows; None for a model that has none.
        n_evaluations: (row, mask) pairs scored.
        seed: replays the orders.
        data_digest: SHA-256 of the data walked.
    """

    sums: NDArray[np.float64] = field(repr=False)
    log_marginal_likelihood: float | None
    n_evaluations: int
    seed: int
    data_digest: str

    @property
    def n_data(self) -> int:
        """N, the number of rows."""
        return len(self.sums)

    @property
    def per_order(self) -> NDArray[np.float64]:
        """(n,) totals over the rows, one an order."""
        total: NDArray[np.float64] = self.sums.sum(0)
        return total

    @property
    def value(self) -> float:
        """Their mean: an unbiased estimate of Σ_m S(m), and log p(x) itself when the spread is zero."""
        return float(self.per_order.mean())

    @property
    def spread(self) -> float:
        """Standard deviation over orders of the total: zero for a coherent joint, else its incoherence."""
        return float(self.per_order.std(ddof=1)) if self.sums.shape[1] > 1 else math.nan

    @property
    def standard_error(self) -> float:
        """Of `value`, from the choice of orders."""
        return self.spread / math.sqrt(self.sums.shape[1])

    @property
    def order_mixture(self) -> float:
        """log (1/n) Σ_π p_π(x), summed over rows: at least `value` (Jensen), and the tighter bound for conditionals
        that are not derived from one joint."""
        top = self.sums.max(1, keepdims=True)
        return float((top[:, 0] + np.log(np.exp(self.sums - top).mean(1))).sum())

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats, total over rows",
            "value": self.value,
            "standard_error": finite_or_none(self.standard_error),
            "spread": finite_or_none(self.spread),
            "order_mixture": self.order_mixture,
            "log_marginal_likelihood": self.log_marginal_likelihood,
            "per_order": self.per_order.tolist(),
            "n_data": self.n_data,
            "n_evaluations": self.n_evaluations,
            "seed": self.seed,
            "data_digest": self.data_digest,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a (datum, order): row, order, log_prob."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        row, order = np.indices(self.sums.shape)
        return pd.DataFrame({"row": row.ravel(), "order": order.ravel(), "log_prob": self.sums.ravel()})

    def __repr__(self) -> str:
        return f"ChainRule({self.value:.6g} nats, spread over {self.sums.shape[1]} orders {self.spread:.3g})"
