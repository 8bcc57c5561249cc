"""One training loop for every objective: mini-batches, history, early stop, checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from os import PathLike
from statistics import fmean

import torch
from torch import Tensor

from mpt_bayes.checks import check_complete, checked_count, checked_positive
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError, DivergedError, ModelError
from mpt_bayes.models.base import JointModel
from mpt_bayes.numerics.random import Stream, seed_from
from mpt_bayes.objectives import CumulativeScore, Objective, checked_objective
from mpt_bayes.progress import report
from mpt_bayes.training import checkpoint as files
from mpt_bayes.training.parameters import Trainable, frozen, trainable
from mpt_bayes.training.result import Epoch, TrainingResult


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Attributes:
        epochs: passes over the rows, at most.
        learning_rate: of Adam at the first epoch.
        final_learning_rate: at the last epoch, reached by a constant factor an epoch; the same as the first if None.
        batch_size: rows a step, drawn without replacement each epoch; all rows if None.
        patience: stop when the mean objective of this many epochs is not above that of as many before; never if None.
        checkpoint_every: epochs between checkpoints, where there is a file for them.
    """

    epochs: int = 1000
    learning_rate: float = 1e-2
    final_learning_rate: float | None = None
    batch_size: int | None = None
    patience: int | None = None
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        checked_count(self.epochs, "epochs")
        checked_count(self.checkpoint_every, "checkpoint_every")
        for name in ("batch_size", "patience"):
            if getattr(self, name) is not None:
                checked_count(getattr(self, name), name)
        checked_positive(self.learning_rate, "learning_rate")
        if self.final_learning_rate is not None:
            checked_positive(self.final_learning_rate, "final_learning_rate")

    def learning_rate_at(self, epoch: int) -> float:
        """Geometric from first to last."""
        if self.final_learning_rate is None or self.epochs == 1:
            return self.learning_rate
        return float(
            self.learning_rate * (self.final_learning_rate / self.learning_rate) ** (epoch / (self.epochs - 1))
        )


DEFAULT_SETTINGS = TrainingSettings()


def train(
    model: JointModel,
    x: Tensor,
    objective: Objective | None = None,
    *,
    settings: TrainingSettings = DEFAULT_SETTINGS,
    generator: torch.Generator | None = None,
    checkpoint: str | PathLike[str] | None = None,
) -> TrainingResult:
    """Maximise an objective by Adam, with the exact log marginal likelihood on record beside it.

    Masks and mini-batches are functions of (seed, epoch, step): a run that resumes from its checkpoint ends where the
    run that never stopped does.

    Args:
        model: PPCA, FactorAnalysis or GaussianProcess; it stays as it is.
        x: (N, D) data without missing entries.
        objective: of `mpt_bayes.objectives`; CumulativeScore() if not given.
        settings: epochs, learning rate, batch size, patience.
        generator: source of the masks and mini-batches; None means seed 0.
        checkpoint: a file to resume from if it exists, and to write to. NPZ with JSON, no pickle.

    Raises:
        ArgumentError: a model that cannot be trained here, no objective (a mask design, say), no settings, or a
            checkpoint that cannot be read or written, or is that of another training (another starting point, other
            epochs too: the learning rate may fall with them).
        DataError: no tensor, or missing entries.
        DivergedError: the objective or the parameters ceased to be numbers; it carries the history so far.

    Example:
        >>> from mpt_bayes import models
        >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> start = models.PPCA(torch.ones(3, 1), 2.0)
        >>> result = train(start, x, settings=TrainingSettings(epochs=20))
        >>> result.history[-1].log_marginal_likelihood > result.history[0].log_marginal_likelihood
        True
    """
    objective = CumulativeScore() if objective is None else checked_objective(objective)
    if not isinstance(settings, TrainingSettings):
        raise ArgumentError(f"settings is {settings!r}: expected TrainingSettings(epochs=1000, learning_rate=0.01)")
    path = None if checkpoint is None else files.checked_path(checkpoint)
    check_complete(x, "train")
    seed = seed_from(generator)
    moving = trainable(model)
    optimizer = torch.optim.Adam(moving.parameters.values(), lr=settings.learning_rate)
    digest = data_digest(x)
    identity = {
        "model": repr(model),
        "starting point": moving.digest(),
        "objective": repr(objective),
        "settings": asdict(settings),
        "seed": seed,
        "data": digest,
    }
    history: list[Epoch] = []
    if path is not None and path.exists():
        history = [Epoch(**entry) for entry in files.load(path, moving.parameters, optimizer, identity)["history"]]
    stopped = _has_stalled(history, settings.patience)
    while not stopped and len(history) < settings.epochs:
        epoch = len(history)
        stream = Stream(seed).child("training", epoch)
        try:
            history.append(_epoch(moving, x, objective, optimizer, settings, epoch, stream))
        except ModelError as fault:
            raise DivergedError(
                f"training diverged in epoch {epoch} ({fault}): lower learning_rate, or start from another model",
                tuple(history),
            ) from fault
        stopped = _has_stalled(history, settings.patience)
        done = stopped or len(history) == settings.epochs
        if path is not None and (done or len(history) % settings.checkpoint_every == 0):
            meta = identity | {"history": [vars(entry) for entry in history]}
            files.save(path, moving.parameters, optimizer, meta)
        report(settings.epochs if done else len(history), settings.epochs)
    return TrainingResult(frozen(moving.build()), tuple(history), objective.estimand, stopped, seed, digest)


def _epoch(
    moving: Trainable,
    x: Tensor,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    settings: TrainingSettings,
    epoch: int,
    stream: Stream,
) -> Epoch:
    """One pass over the rows, then the exact log marginal likelihood of all of them."""
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate_at(epoch)
    rows = torch.randperm(len(x), generator=stream.child("rows").generator()).to(x.device)
    total = 0.0
    for step, part in enumerate(rows.split(settings.batch_size or len(x))):
        optimizer.zero_grad()
        batch = x if len(part) == len(x) else x[part]
        value = objective.value(moving.build(), batch, stream.child("masks", step))
        if not bool(value.isfinite()):
            raise ModelError("the objective is not finite")
        (-value / len(part)).backward()
        optimizer.step()
        total += float(value.detach())
    with torch.no_grad():
        exact = float(moving.build().log_marginal_likelihood(x).sum())
    return Epoch(epoch, total / len(x), exact / len(x))


def _has_stalled(history: list[Epoch], patience: int | None) -> bool:
    """Whether the mean objective of the last `patience` epochs is not above that of those before."""
    if patience is None or len(history) < 2 * patience:
        return False
    values = [entry.objective for entry in history[-2 * patience :]]
    return fmean(values[patience:]) <= fmean(values[:patience])
