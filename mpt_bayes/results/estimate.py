"""One number with its error bars."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.errors import ArgumentError, DataError, EstimandError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
PER_DATUM = " per datum"
"""Ends the estimand of what was divided by the number of rows: it never mixes with totals."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate over a table of data, in total nats.

    Attributes:
        value: total over the rows, in nats.
        standard_error: of `value`, from the choice of masks given the data; 0 when every mask was taken; None when it
            cannot be had, with the reason in `note`.
        degrees_of_freedom: of the Student-t interval (Welch-Satterthwaite over strata).
        estimand: what is estimated; estimates of different things never mix.
        per_row: (N,) the same estimate row by row, or None with the reason in `note`.
        inner_standard_error: from conditionals that are themselves estimated; None where they are exact.
        n_evaluations: (row, mask) pairs scored.
        seed: replays the masks, with `torch.Generator().manual_seed(seed)`.
        design: the mask design, in words.
        data_digest: SHA-256 of the data scored; results on different data are never compared.
    """

    value: float
    standard_error: float | None
    degrees_of_freedom: float
    estimand: str
    n_data: int
    n_evaluations: int
    seed: int | None
    design: str
    data_digest: str
    per_row: NDArray[np.float64] | None = field(default=None, repr=False)
    inner_standard_error: float | None = None
    note: str = ""

    @property
    def data_standard_error(self) -> float | None:
        """Standard error of `value` from which rows were observed, sqrt(N) · sd(per_row); None for fewer than 2 rows.

        It speaks of new data from the same source, and is never added to the mask standard error.
        """
        if self.per_row is None or len(self.per_row) < 2:
            return None
        return float(np.std(self.per_row, ddof=1) * math.sqrt(len(self.per_row)))

    @property
    def is_per_datum(self) -> bool:
        """Whether the value was divided by the number of rows."""
        return self.estimand.endswith(PER_DATUM)

    @property
    def units(self) -> str:
        """Of the value and its standard errors."""
        return "nats per datum" if self.is_per_datum else "nats, total over rows"

    @property
    def per_datum(self) -> Self:
        """The same estimate divided by the number of rows, its estimand renamed to say so."""
        if self.is_per_datum:
            return self
        n = self.n_data
        return replace(
            self,
            value=self.value / n,
            standard_error=None if self.standard_error is None else self.standard_error / n,
            inner_standard_error=None if self.inner_standard_error is None else self.inner_standard_error / n,
            estimand=self.estimand + PER_DATUM,
            per_row=None,
            note=self.note or "divided by the number of rows; per-row values are those of the total",
        )

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Two-sided Student-t interval for the estimand given the data, from the mask standard error.

        Raises:
            ArgumentError: a level outside (0, 1), or no standard error (the reason is given).
        """
        if not 0 < level < 1:
            raise ArgumentError(f"level is {level}: expected a number in (0, 1)")
        if self.standard_error is None:
            raise ArgumentError(f"no interval: {self.note}")
        from scipy import special  # slow to load, so only when an interval is asked for

        half = float(special.stdtrit(self.degrees_of_freedom, (1 + level) / 2)) * self.standard_error
        return self.value - half, self.value + half

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference of two independent estimates of one estimand on the same data.

        Inner standard errors add up in full, an upper bound: two models may be made of the same draws.

        Raises:
            EstimandError: different estimands.
            DataError: different data.
        """
        if not isinstance(other, Estimate):
            return NotImplemented
        if self.estimand != other.estimand:
            raise EstimandError(
                f"cannot combine '{self.estimand}' with '{other.estimand}': they are different quantities"
            )
        if self.data_digest != other.data_digest:
            raise DataError("cannot compare estimates on different data: score both models on the same rows")
        shared = self.seed is not None and self.seed == other.seed
        known = self.standard_error is not None and other.standard_error is not None and not shared
        variances = [(e.standard_error or 0.0) ** 2 for e in (self, other)]
        frees = [e.degrees_of_freedom for e in (self, other)]
        inner = [e.inner_standard_error for e in (self, other) if e.inner_standard_error is not None]
        both_rows = self.per_row is not None and other.per_row is not None
        reasons = ["the two share their masks: compare them pairwise for a standard error"] if shared else []
        reasons += [e.note for e in (self, other) if e.standard_error is None or e.per_row is None]
        return Estimate(
            value=self.value - other.value,
            standard_error=math.sqrt(sum(variances)) if known else None,
            degrees_of_freedom=satterthwaite(variances, frees),
            estimand=f"difference of {self.estimand}",
            n_data=self.n_data,
            n_evaluations=self.n_evaluations + other.n_evaluations,
            seed=self.seed if shared else None,
            design=self.design if self.design == other.design else f"{self.design} / {other.design}",
            data_digest=self.data_digest,
            per_row=self.per_row - other.per_row if both_rows else None,  # type: ignore[operator]
            inner_standard_error=sum(inner) if inner else None,
            note="; ".join(dict.fromkeys(reasons)),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version; infinite degrees of freedom become null."""
        return {
            "schema_version": SCHEMA_VERSION,
            "estimand": self.estimand,
            "units": self.units,
            "value": self.value,
            "standard_error": self.standard_error,
            "data_standard_error": self.data_standard_error,
            "inner_standard_error": self.inner_standard_error,
            "degrees_of_freedom": finite_or_none(self.degrees_of_freedom),
            "per_datum": self.per_datum.value,
            "n_data": self.n_data,
            "n_evaluations": self.n_evaluations,
            "design": self.design,
            "seed": self.seed,
            "data_digest": self.data_digest,
            "note": self.note,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row, the columns of `to_dict`."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame([self.to_dict()])

    def __repr__(self) -> str:
        error = f"± {self.standard_error:.4g}" if self.standard_error is not None else f"(no SE: {self.note})"
        if self.inner_standard_error is not None:
            error += f" (masks) ± {self.inner_standard_error:.4g} (draws of the model)"
        return f"Estimate({self.estimand}: {self.value:.6g} {error} nats, N={self.n_data}, {self.design})"


def satterthwaite(variances: list[float], degrees_of_freedom: list[float]) -> float:
    """Degrees of freedom of a sum of independent variance estimates (Welch 1947, Satterthwaite 1946).

    Example:
        >>> satterthwaite([1.0, 1.0], [5.0, 5.0])
        10.0
    """
    total = sum(variances)
    denominator = sum(v**2 / f for v, f in zip(variances, degrees_of_freedom, strict=True) if v > 0)
    return total**2 / denominator if denominator > 0 else math.inf


def finite_or_none(value: float | None) -> float | None:
    """JSON has no NaN: a number that is not there is null."""
    return float(value) if value is not None and math.isfinite(value) else None
