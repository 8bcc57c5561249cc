"""Frozen results: every number with its unit, its estimand, its standard errors, its cost and its seed."""

from mpt_bayes.results.attribution import Attribution
from mpt_bayes.results.chain import ChainRule
from mpt_bayes.results.comparison import Comparison
from mpt_bayes.results.convergence import Convergence
from mpt_bayes.results.curve import ScoreCurve
from mpt_bayes.results.estimate import Estimate
from mpt_bayes.results.model_comparison import ModelComparison
from mpt_bayes.results.sweep import Sweep
from mpt_bayes.results.verification import Check, Verification

__all__ = [
    "Attribution",
    "ChainRule",
    "Check",
    "Comparison",
    "Convergence",
    "Estimate",
    "ModelComparison",
    "ScoreCurve",
    "Sweep",
    "Verification",
]
