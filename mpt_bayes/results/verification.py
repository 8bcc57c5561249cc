"""The identities a model was held to, each with its size and its verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from mpt_bayes.results.estimate import SCHEMA_VERSION, finite_or_none

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Check:
    """One identity.

    Attributes:
        name: short.
        identity: the equation that should hold.
        size: the largest deviation found, in `unit`; None when not applicable.
        tolerance: the largest deviation that passes; None when not applicable.
        unit: "nats", or "standard errors".
        verdict: passed, failed, or not applicable.
        reason: why a check does not apply, or what was compared.
    """

    name: str
    identity: str
    size: float | None
    tolerance: float | None
    unit: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Verification:
    """All checks of one model on one table of data.

    Attributes:
        checks: in the order they were made.
        n_rows: rows the checks were made on.
        seed: replays the rows, orders and masks.
        data_digest: SHA-256 of the data given, of which `n_rows` rows were checked.
        note: which rows, where missing entries part the data in groups of which one was checked.
    """

    checks: tuple[Check, ...]
    n_rows: int
    seed: int
    data_digest: str
    note: str = ""

    @property
    def passed(self) -> bool:
        """No check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """The names of the identities that broke."""
        return tuple(check.name for check in self.checks if check.verdict == "failed")

    def __getitem__(self, name: str) -> Check:
        """The check called `name`.

        Raises:
            KeyError: no such check.
        """
        return {check.name: check for check in self.checks}[name]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "passed": self.passed,
            "failures": list(self.failures),
            "checks": [asdict(check) | {"size": finite_or_none(check.size)} for check in self.checks],
            "n_rows": self.n_rows,
            "seed": self.seed,
            "data_digest": self.data_digest,
            "note": self.note,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a check."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame([asdict(check) for check in self.checks])

    def __str__(self) -> str:
        """One line an identity: its name, the deviation found and allowed, the verdict; the rows in the last line."""
        lines = []
        for check in self.checks:
            found = "" if check.size is None else f"{check.size:.3g} of {check.tolerance:.3g} {check.unit}"
            lines.append(f"{check.name:<20}{found:<36}{check.verdict}")
        return "\n".join([*lines, repr(self)])

    def __repr__(self) -> str:
        made = sum(check.verdict != "not applicable" for check in self.checks)
        outcome = f"failed: {', '.join(self.failures)}" if self.failures else "all passed"
        return f"Verification({made} of {len(self.checks)} checks apply, {outcome}, N={self.n_rows})"
