"""When expectation-maximisation stops, for every model that is fitted by it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError, MptBayesWarning


@dataclass(frozen=True)
class EMSettings:
    """When EM stops: a gain per datum below `tolerance` nats, or `max_iterations` (with a warning).

    Raises:
        ArgumentError: a tolerance that is not positive, or no iterations.
    """

    tolerance: float = 1e-8
    max_iterations: int = 5000

    def __post_init__(self) -> None:
        checked_count(self.max_iterations, "max_iterations")
        if not self.tolerance > 0:
            raise ArgumentError(f"tolerance is {self.tolerance}: expected a positive number of nats per datum")

    def warn_unfinished(self, what: str, *, stacklevel: int = 5) -> None:
        """Say that the iterations ran out before the gain fell below the tolerance."""
        warnings.warn(
            f"{what} still gained more than {self.tolerance:.3g} nats per datum after {self.max_iterations} "
            "iterations: raise max_iterations or the tolerance, or fit a model of fewer parameters",
            MptBayesWarning,
            stacklevel=stacklevel,
        )
