"""Models trained by masked prediction, or by the exact log marginal likelihood, with both on record."""

from mpt_bayes.training.loop import TrainingSettings, train
from mpt_bayes.training.result import Epoch, TrainingResult

__all__ = ["Epoch", "TrainingResult", "TrainingSettings", "train"]
