"""From a model and masks to numbers with error bars."""

from mpt_bayes.estimation.adaptive import AdaptiveScore
from mpt_bayes.estimation.attribution import attribution
from mpt_bayes.estimation.budget import Budget
from mpt_bayes.estimation.chain import chain_rule
from mpt_bayes.estimation.compare import compare, log_marginal_likelihood
from mpt_bayes.estimation.curve import cumulative_score, masked_score, score_curve
from mpt_bayes.estimation.difference import score_difference
from mpt_bayes.estimation.model_choice import compare_models
from mpt_bayes.estimation.planner import Plan, plan
from mpt_bayes.estimation.sweep import convergence, sweep
from mpt_bayes.estimation.verify import verify

__all__ = [
    "AdaptiveScore",
    "Budget",
    "Plan",
    "attribution",
    "chain_rule",
    "compare",
    "compare_models",
    "convergence",
    "cumulative_score",
    "log_marginal_likelihood",
    "masked_score",
    "plan",
    "score_curve",
    "score_difference",
    "sweep",
    "verify",
]
