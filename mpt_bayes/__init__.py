"""Masked pre-training and the log marginal likelihood, computed on both sides."""

from mpt_bayes import datasets, dropout, errors, lm, masks, models, representation
from mpt_bayes.estimation import (
    attribution,
    chain_rule,
    compare,
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
    ScoreCurve,
    Sweep,
    Verification,
)

__version__ = "0.1.0"

__all__ = [
    "Attribution",
    "ChainRule",
    "Check",
    "Comparison",
    "Convergence",
    "Estimate",
    "ScoreCurve",
    "Sweep",
    "Verification",
    "attribution",
    "chain_rule",
    "compare",
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
    "plan",
    "representation",
    "score_curve",
    "score_difference",
    "sweep",
    "verify",
]
