"""From a small pilot: the standard error a budget will buy, and the budget a standard error will cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpt_bayes.checks import check_complete, checked_count
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError
from mpt_bayes.estimation.adaptive import MOST_EVALUATIONS, AdaptiveScore, pilot_count
from mpt_bayes.estimation.allocation import end_sizes, sampled_range
from mpt_bayes.estimation.budget import Budget
from mpt_bayes.estimation.budgeted import evaluator
from mpt_bayes.estimation.control import prior_scale
from mpt_bayes.estimation.missing import check_doors
from mpt_bayes.models.base import ConditionalModel
from mpt_bayes.numerics.random import Stream, seed_from
from mpt_bayes.results.estimate import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Plan:
    """What the adaptive estimator is expected to reach, from the residuals of a pilot.

    With σ_m the standard deviation left at size m, a pilot of n_0 masks and a main round of n_1 have variances
    (Σ g_m)(Σ σ_m²/g_m) / n_0, g the prior shape that allocates the pilot, and (Σ σ_m)² / n_1; the estimate weights them
    by their numbers. Control variates fitted to more masks leave less, so the prediction errs on the safe side.

    Attributes:
        scale: (D,) σ_m in total nats.
        n_data: rows; budgets count (row, mask) pairs.
        n_evaluations: what the pilot cost.
        seed: replays the pilot.
        data_digest: SHA-256 of the data planned for.
    """

    scale: NDArray[np.float64] = field(repr=False)
    n_data: int
    n_evaluations: int
    seed: int
    data_digest: str

    def standard_error(self, n_evaluations: int) -> float:
        """Of `cumulative_score(model, x, n_evaluations=n_evaluations)`; 0 where every mask is taken.

        Raises:
            ArgumentError: fewer evaluations than a standard error takes.
        """
        dim = len(self.scale)
        masks = n_evaluations // self.n_data
        lowest, highest = sampled_range(dim, masks)
        if lowest > highest:
            return 0.0
        ends = sum(math.comb(dim, m) for m in end_sizes(dim, lowest, highest))
        left = masks - ends
        if left < 4:
            raise ArgumentError(f"n_evaluations is {n_evaluations}: {(ends + 4) * self.n_data} are the fewest")
        sigma, shape = self.scale[lowest - 1 : highest], prior_scale(dim).numpy()[lowest - 1 : highest]
        pilot = pilot_count(left)
        by_shape = float(shape.sum() * (sigma**2 / shape).sum())
        by_scale = float(sigma.sum()) ** 2
        return math.sqrt(pilot * by_shape + (left - pilot) * by_scale) / left

    def evaluations_for(self, standard_error: float) -> int:
        """The smallest budget predicted to reach a standard error, as (row, mask) pairs.

        Raises:
            ArgumentError: a standard error that is not positive, or out of reach of a million masks.
        """
        if not standard_error > 0:
            raise ArgumentError(f"standard_error is {standard_error}: expected a positive number")
        low: int = min(len(self.scale) + 8, 2 ** len(self.scale) + 4)
        high = MOST_EVALUATIONS
        if self.standard_error(high * self.n_data) > standard_error:
            raise ArgumentError(f"standard_error is {standard_error}: out of reach of {MOST_EVALUATIONS} masks")
        while low < high:
            middle = (low + high) // 2
            enough = self.standard_error(middle * self.n_data) <= standard_error
            low, high = (low, middle) if enough else (middle + 1, high)
        return low * self.n_data

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats, total over rows",
            "scale": self.scale.tolist(),
            "n_data": self.n_data,
            "n_evaluations": self.n_evaluations,
            "seed": self.seed,
            "data_digest": self.data_digest,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a size: size, rate, scale."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        sizes = np.arange(1, len(self.scale) + 1)
        return pd.DataFrame({"size": sizes, "rate": sizes / len(sizes), "scale": self.scale})

    def __repr__(self) -> str:
        each = self.n_data * 500
        return f"Plan({self.standard_error(each):.3g} nats at {each} evaluations; pilot of {self.n_evaluations})"


def plan(model: ConditionalModel, x: Tensor, *, n_pilot: int = 300, generator: torch.Generator | None = None) -> Plan:
    """A pilot of `n_pilot` masks of the adaptive estimator, and what it predicts.

    Args:
        n_pilot: masks; more of them predict better; at least 24.
        x, generator: as in `cumulative_score`; x without missing entries.

    Raises:
        ArgumentError: fewer than 24 masks.
        DataError: as `cumulative_score`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(12), torch.eye(12) + 0.5)
        >>> planned = mb.plan(model, torch.arange(12.0).reshape(1, -1) / 6)
        >>> planned.standard_error(1000) < planned.standard_error(300)
        True
    """
    check_doors(model, x)
    checked_count(n_pilot, "n_pilot", 24)
    check_complete(x, "plan")
    seed = seed_from(generator)
    budget = Budget(n_evaluations=n_pilot)
    estimator = AdaptiveScore(model.dim, budget, Stream(seed).child("plan"), pilot=n_pilot)
    hidden = estimator.ask()
    assert hidden is not None
    estimator.tell(evaluator(model, x, most_kept=0)(hidden))
    return Plan(estimator.scale().numpy(), len(x), len(hidden) * len(x), seed, data_digest(x))
