"""Masked pre-training and the log marginal likelihood, computed on both sides."""

from mpt_bayes import errors, masks, models
from mpt_bayes.estimation import compare, cumulative_score, log_marginal_likelihood, masked_score, score_curve
from mpt_bayes.results import Comparison, Estimate, ScoreCurve

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Estimate",
    "ScoreCurve",
    "compare",
    "cumulative_score",
    "errors",
    "log_marginal_likelihood",
    "masked_score",
    "masks",
    "models",
    "score_curve",
]
