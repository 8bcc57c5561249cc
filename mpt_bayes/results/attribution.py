"""Which coordinates the evidence comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mpt_bayes.results.estimate import SCHEMA_VERSION, finite_or_none

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """Shapley shares of log p(x): how much each coordinate adds, averaged over all orders of adding them. Nats.

    A share is not a probability: it may be positive (a density above 1), and coordinates that repeat each other split
    their common surprise. `numpy.asarray(result)` is `result.shares`.

    Attributes:
        shares: (N, D); a missing entry has share 0. Each row sums to `per_row`.
        standard_errors: (N, D), from the choice of orders; 0 where every subset was taken, NaN for a single order.
        coordinate_standard_errors: (D,) of `per_coordinate`: rows share their orders, so they do not add in squares.
        coordinate_inner_standard_errors: (D,) of `per_coordinate`, from a model that is itself made of draws; None
            where it is exact.
        estimand: what the rows sum to.
        n_evaluations: (row, subset) pairs scored.
        seed: replays the orders; None when every subset was taken.
    """

    shares: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    coordinate_standard_errors: NDArray[np.float64] = field(repr=False)
    estimand: str
    design: str
    n_evaluations: int
    seed: int | None
    data_digest: str
    coordinate_inner_standard_errors: NDArray[np.float64] | None = field(default=None, repr=False)

    @property
    def per_row(self) -> NDArray[np.float64]:
        """(N,) sums of shares: log p(x_n) of a coherent model."""
        total: NDArray[np.float64] = self.shares.sum(1)
        return total

    @property
    def per_coordinate(self) -> NDArray[np.float64]:
        """(D,) shares summed over the rows."""
        total: NDArray[np.float64] = self.shares.sum(0)
        return total

    @property
    def total(self) -> float:
        """Over rows and coordinates, in nats."""
        return float(self.shares.sum())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.shares, dtype=dtype, copy=copy)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version: shares per coordinate (total over rows) and row by row."""
        inner = self.coordinate_inner_standard_errors
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats",
            "estimand": self.estimand,
            "total": self.total,
            "per_coordinate": self.per_coordinate.tolist(),
            "per_coordinate_standard_error": [finite_or_none(error) for error in self.coordinate_standard_errors],
            "per_coordinate_inner_standard_error": None if inner is None else inner.tolist(),
            "shares": self.shares.tolist(),
            "design": self.design,
            "n_evaluations": self.n_evaluations,
            "seed": self.seed,
            "data_digest": self.data_digest,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a coordinate: coordinate, share (total over rows), standard_error."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame(
            {
                "coordinate": np.arange(self.shares.shape[1]),
                "share": self.per_coordinate,
                "standard_error": self.coordinate_standard_errors,
            }
        )

    def __repr__(self) -> str:
        n, dim = self.shares.shape
        return f"Attribution({self.estimand}: {self.total:.6g} nats over N={n}, D={dim}, {self.design})"
