"""Several models on the same data, by every criterion the score curve holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.results.curve import ScoreCurve
from mpt_bayes.results.estimate import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd

LOG_MARGINAL_LIKELIHOOD = "log marginal likelihood"


@dataclass(frozen=True)
class Criterion:
    """One number of one model, total nats.

    Attributes:
        standard_error: from the choice of masks; 0 where all were taken, None where it cannot be had.
        inner_standard_error: from a model that is itself made of draws; None where it is exact.
    """

    value: float
    standard_error: float | None
    inner_standard_error: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison:
    """One row a model, one column a criterion; larger is better for every one. Total nats over the rows.

    Attributes:
        criteria: by model, then by criterion, in the order of the columns.
        curves: the score curve of each model, from common masks.
        data_digest: of the data that every model scored.
        test_digest: of the held-out data, if any.
        seed: of the common masks.
    """

    criteria: Mapping[str, Mapping[str, Criterion]]
    curves: Mapping[str, ScoreCurve] = field(repr=False)
    data_digest: str
    test_digest: str | None
    seed: int | None

    def ranks(self) -> dict[str, dict[str, int]]:
        """By criterion, then by model: 1 is best."""
        columns = next(iter(self.criteria.values()))
        result = {}
        for column in columns:
            ordered = sorted(self.criteria, key=lambda name: -self.criteria[name][column].value)
            result[column] = {name: ordered.index(name) + 1 for name in self.criteria}
        return result

    def disagreements(self) -> dict[str, str]:
        """Criteria whose best model is not that of the first (log p(x) of joint models), with the model they prefer."""
        ranks = self.ranks()
        best = {column: min(by_model, key=by_model.__getitem__) for column, by_model in ranks.items()}
        reference = best[next(iter(best))]
        return {column: name for column, name in best.items() if name != reference}

    def __add__(self, other: ModelComparison) -> Self:
        """Both sets of models in one table.

        Raises:
            DataError: they scored different data.
            ArgumentError: a model's name, or criteria, that differ or occur twice.
        """
        if (self.data_digest, self.test_digest) != (other.data_digest, other.test_digest):
            raise DataError("cannot compare models on different data: score all of them on the same rows")
        if self.seed != other.seed:
            raise ArgumentError(f"cannot compare models with different masks (seeds {self.seed} and {other.seed})")
        both = set(self.criteria) & set(other.criteria)
        if both:
            raise ArgumentError(f"model name(s) {', '.join(sorted(both))} in both tables: rename one")
        if next(iter(self.criteria.values())).keys() != next(iter(other.criteria.values())).keys():
            raise ArgumentError("the tables have different criteria: ask for the same rates and fractions")
        criteria, curves = {**self.criteria, **other.criteria}, {**self.curves, **other.curves}
        return type(self)(criteria, curves, self.data_digest, self.test_digest, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats, total over rows",
            "models": {
                name: {column: asdict(criterion) for column, criterion in row.items()}
                for name, row in self.criteria.items()
            },
            "ranks": self.ranks(),
            "disagreements": self.disagreements(),
            "data_digest": self.data_digest,
            "test_digest": self.test_digest,
            "seed": self.seed,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a model: every criterion, its standard errors where it is not exact, and its rank."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        ranks = self.ranks()
        rows = {}
        for name, row in self.criteria.items():
            cells: dict[str, float] = {}
            for column, criterion in row.items():
                cells[column] = criterion.value
                if criterion.standard_error != 0:
                    cells[f"{column} SE"] = np.nan if criterion.standard_error is None else criterion.standard_error
                if criterion.inner_standard_error is not None:
                    cells[f"{column} inner SE"] = criterion.inner_standard_error
                cells[f"{column} rank"] = ranks[column][name]
            rows[name] = cells
        return pd.DataFrame.from_dict(rows, orient="index")

    def __repr__(self) -> str:
        lines = [
            f"{name}: " + ", ".join(f"{column} {criterion.value:.6g}" for column, criterion in row.items())
            for name, row in self.criteria.items()
        ]
        differing = ", ".join(f"{column} prefers {name}" for column, name in self.disagreements().items())
        return "\n".join([*lines, f"against the first criterion: {differing or 'no other best model'}"])
