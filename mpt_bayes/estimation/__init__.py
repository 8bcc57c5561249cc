"""From a model and masks to numbers with error bars."""

from mpt_bayes.estimation.compare import compare, log_marginal_likelihood
from mpt_bayes.estimation.curve import cumulative_score, masked_score, score_curve

__all__ = ["compare", "cumulative_score", "log_marginal_likelihood", "masked_score", "score_curve"]
