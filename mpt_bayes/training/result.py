"""What training did: the model, and the objective beside the exact log marginal likelihood at every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mpt_bayes.models.base import JointModel
from mpt_bayes.results.estimate import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Epoch:
    """Both in nats per datum: the draws of the objective during the epoch, and the exact value after it."""

    epoch: int
    objective: float
    log_marginal_likelihood: float


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The trained model with its history.

    Attributes:
        model: trained; a PPCA or FactorAnalysis without gradients, a GaussianProcess with those of its module.
        history: one entry an epoch.
        estimand: what the objective's draws average to.
        stopped_early: whether the objective had ceased to rise.
        seed: of masks and mini-batches.
        data_digest: SHA-256 of the data trained on.
    """

    model: JointModel
    history: tuple[Epoch, ...] = field(repr=False)
    estimand: str
    stopped_early: bool
    seed: int
    data_digest: str

    @property
    def log_marginal_likelihood(self) -> float:
        """Exact, of the trained model, nats per datum."""
        return self.history[-1].log_marginal_likelihood

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "schema_version": SCHEMA_VERSION,
            "units": "nats per datum",
            "estimand": self.estimand,
            "stopped_early": self.stopped_early,
            "seed": self.seed,
            "data_digest": self.data_digest,
            "history": [vars(epoch) for epoch in self.history],
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row an epoch: epoch, objective, log_marginal_likelihood; nats per datum."""
        import pandas as pd  # slow to load, so only when a frame is asked for

        return pd.DataFrame([vars(epoch) for epoch in self.history])
