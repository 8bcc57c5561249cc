"""How much work an estimate may cost, and when it may stop."""

from __future__ import annotations

from dataclasses import dataclass

from mpt_bayes.checks import checked_count, checked_positive
from mpt_bayes.errors import ArgumentError


@dataclass(frozen=True)
class Budget:
    """Limits of an adaptive estimate; the first one reached ends it, and at least one must be given.

    Args:
        n_evaluations: masks scored, at most.
        target_standard_error: stop as soon as the standard error is no larger; nats, total over the rows. Stopping
            looks at the scores: where they are skewed that leaves a small bias (0.12 standard errors at most in 2,000
            runs on each of three models, docs/designs.md); a number of evaluations fixed beforehand leaves none.
        time_limit: seconds, about: a round is only begun if the time it is expected to take is left. Results under a
            time limit depend on the machine.

    Raises:
        ArgumentError: no limit, or a limit that is not positive.

    Example:
        >>> Budget(n_evaluations=500)
        Budget(n_evaluations=500)
    """

    n_evaluations: int | None = None
    target_standard_error: float | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        limits = [self.n_evaluations, self.target_standard_error, self.time_limit]
        if all(limit is None for limit in limits):
            raise ArgumentError("no budget: pass n_evaluations, target_standard_error or time_limit")
        if self.n_evaluations is not None:
            checked_count(self.n_evaluations, "n_evaluations")
        for name in ("target_standard_error", "time_limit"):
            if getattr(self, name) is not None:
                checked_positive(getattr(self, name), name)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in vars(self).items() if value is not None)
        return f"Budget({given})"
