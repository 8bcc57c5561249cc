"""Pre-training with masks: laws of mask rate, architectures, and held-out evidence over training."""

from mpt_bayes.lm.pretraining.config import (
    CorpusConfig,
    EvaluationConfig,
    MaskConfig,
    ModelConfig,
    PretrainConfig,
    TrainingConfig,
)
from mpt_bayes.lm.pretraining.corpora import Corpus, load_corpus
from mpt_bayes.lm.pretraining.held_out import HeldOut, HeldOutScores, Share, share_of_context
from mpt_bayes.lm.pretraining.languages import Language, cyclic_language, table_language
from mpt_bayes.lm.pretraining.records import RunFolder
from mpt_bayes.lm.pretraining.run import PretrainedRun, load_run, pretrain
from mpt_bayes.lm.pretraining.study import RunComparison, Study, compare_runs

__all__ = [
    "Corpus",
    "CorpusConfig",
    "EvaluationConfig",
    "HeldOut",
    "HeldOutScores",
    "Language",
    "MaskConfig",
    "ModelConfig",
    "PretrainConfig",
    "PretrainedRun",
    "RunComparison",
    "RunFolder",
    "Share",
    "Study",
    "TrainingConfig",
    "compare_runs",
    "cyclic_language",
    "load_corpus",
    "load_run",
    "pretrain",
    "share_of_context",
    "table_language",
]
