"""Masked pre-training and the log marginal likelihood, computed on both sides."""

import importlib
from types import ModuleType

from mpt_bayes import datasets, dropout, errors, lm, masks, models, objectives, representation, training
from mpt_bayes.estimation import (
    Plan,
    attribution,
    chain_rule,
    compare,
    compare_models,
    convergence,
    cumulative_score,
    log_marginal_likelihood,
    masked_score,
    plan,
    score_curve,
    score_difference,
    sweep,
    verify,
)
from mpt_bayes.results import (
    Attribution,
    ChainRule,
    Check,
    Comparison,
    Convergence,
    Estimate,
    ModelComparison,
    ScoreCurve,
    Sweep,
    Verification,
)

__version__ = "0.1.0"

_ON_DEMAND = ("gpytorch_mll", "plots", "pretraining_plots", "report")
"""Submodules that load an optional package: imported when first asked for."""


def __getattr__(name: str) -> ModuleType:
    if name in _ON_DEMAND:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Attribution",
    "ChainRule",
    "Check",
    "Comparison",
    "Convergence",
    "Estimate",
    "ModelComparison",
    "Plan",
    "ScoreCurve",
    "Sweep",
    "Verification",
    "attribution",
    "chain_rule",
    "compare",
    "compare_models",
    "convergence",
    "cumulative_score",
    "datasets",
    "dropout",
    "errors",
    "lm",
    "log_marginal_likelihood",
    "masked_score",
    "masks",
    "models",
    "objectives",
    "plan",
    "representation",
    "score_curve",
    "score_difference",
    "sweep",
    "training",
    "verify",
]
