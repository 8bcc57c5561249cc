"""The masked-prediction score at every mask size."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError
from mpt_bayes.results.estimate import PER_DATUM, SCHEMA_VERSION, Estimate, finite_or_none

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class ScoreCurve:
    """S(m) for m = 1..D with a standard error for each size. Total nats over the rows (see `per_datum`).

    S(1) is leave-one-out per coordinate, S(D) the mean univariate marginal, and the area Σ_m S(m) the log marginal
    likelihood of a coherent model.

    Attributes:
        scores: (D,) S(m); NaN at sizes the design did not visit (`note` says so).
        standard_errors: (D,), from the choice of masks; 0 where all masks were taken, NaN where there is none.
        total: the cumulative score, Σ_m S(m), with its own standard error (sizes need not be independent).
        partials: (D,) Σ_{m≤P} S(m) for P = 1..D.
        partial_standard_errors, partial_degrees_of_freedom: (D,).
        score_degrees_of_freedom: (D,) of `standard_errors`.
        inner_standard_errors, partial_inner_standard_errors: (D,) of `scores` and `partials`, from a model that is
            itself made of draws; None where it is exact.
    """

    scores: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    total: Estimate
    partials: NDArray[np.float64] = field(repr=False)
    partial_standard_errors: NDArray[np.float64] = field(repr=False)
    partial_degrees_of_freedom: NDArray[np.float64] = field(repr=False)
    score_degrees_of_freedom: NDArray[np.float64] = field(repr=False)
    inner_standard_errors: NDArray[np.float64] | None = field(default=None, repr=False)
    partial_inner_standard_errors: NDArray[np.float64] | None = field(default=None, repr=False)
    note: str = ""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(D,) the mask sizes 1..D."""
        return np.arange(1, len(self.scores) + 1)

    @property
    def rates(self) -> NDArray[np.float64]:
        """(D,) the mask rates m / D."""
        return self.sizes / len(self.scores)

    @property
    def per_datum(self) -> Self:
        """The same curve divided by the number of rows."""
        if self.total.is_per_datum:
            return self
        n = self.total.n_data
        return replace(
            self,
            scores=self.scores / n,
            standard_errors=self.standard_errors / n,
            total=self.total.per_datum,
            partials=self.partials / n,
            partial_standard_errors=self.partial_standard_errors / n,
            inner_standard_errors=_divided(self.inner_standard_errors, n),
            partial_inner_standard_errors=_divided(self.partial_inner_standard_errors, n),
        )

    def partial(self, size: int) -> Estimate:
        """Σ_{m ≤ size} S(m): leave-P-out cumulative cross-validation with P = size.

        For a coherent model this is log p(x) - V(D - P), the conditional marginal likelihood of P coordinates given
        the rest, averaged over all orders (Lotfi et al. 2022).

        Raises:
            ArgumentError: a size outside 1..D.
        """
        columns = (self.partials, self.partial_standard_errors, self.partial_degrees_of_freedom)
        return self._at(
            size,
            columns,
            self.partial_inner_standard_errors,
            f"cumulative score up to size {size} of {len(self.scores)}",
        )

    def score(self, size: int) -> Estimate:
        """S(size) as an estimate, with its interval: leave-one-out per coordinate at 1, the mean marginal at D.

        Raises:
            ArgumentError: a size outside 1..D, or one that no mask of the design had.
        """
        columns = (self.scores, self.standard_errors, self.score_degrees_of_freedom)
        estimand = f"masked score at size {size} of {len(self.scores)}"
        estimate = self._at(size, columns, self.inner_standard_errors, estimand)
        if math.isnan(estimate.value):
            raise ArgumentError(f"no mask of size {size} was drawn: raise the design's number")
        return estimate

    def _at(
        self,
        size: int,
        columns: tuple[NDArray[np.float64], ...],
        inner: NDArray[np.float64] | None,
        estimand: str,
    ) -> Estimate:
        """The entry of this size in columns of values, standard errors, degrees of freedom and inner errors."""
        if checked_count(size, "size") > len(self.scores):
            raise ArgumentError(f"size is {size}: expected 1..{len(self.scores)}")
        value, error, free = (float(column[size - 1]) for column in columns)
        alone = math.isnan(error) and self.total.standard_error is not None
        own = f"size {size} has one mask and so no standard error of its own" if alone else ""
        return replace(
            self.total,
            value=value,
            standard_error=None if math.isnan(error) else error,
            degrees_of_freedom=free,
            estimand=estimand + PER_DATUM * self.total.is_per_datum,
            per_row=None,
            inner_standard_error=None if inner is None else float(inner[size - 1]),
            note="; ".join(filter(None, (own, self.total.note or "per-row values are kept for the total only"))),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version; sizes without a score or an error have null there."""
        inner = np.full(len(self.scores), np.nan) if self.inner_standard_errors is None else self.inner_standard_errors
        columns = zip(self.sizes, self.rates, self.scores, self.standard_errors, inner, strict=True)
        return {
            "schema_version": SCHEMA_VERSION,
            "units": self.total.units,
            "total": self.total.to_dict(),
            "curve": [
                {
                    "size": int(m),
                    "rate": float(r),
                    "score": finite_or_none(s),
                    "standard_error": finite_or_none(e),
                    "inner_standard_error": finite_or_none(i),
                }
                for m, r, s, e, i in columns
            ],
            "note": self.note,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a size: size, rate, score, standard_error, inner_standard_error."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame(self.to_dict()["curve"]).astype("float64").astype({"size": int})

    def __repr__(self) -> str:
        return f"ScoreCurve(D={len(self.scores)}, S(1)={self.scores[0]:.5g}, S(D)={self.scores[-1]:.5g}, {self.total})"


def _divided(errors: NDArray[np.float64] | None, n: int) -> NDArray[np.float64] | None:
    return None if errors is None else errors / n
