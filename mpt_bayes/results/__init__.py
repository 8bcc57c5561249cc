"""Frozen results: every number with its unit, its estimand, its standard errors, its cost and its seed."""

from mpt_bayes.results.comparison import Comparison
from mpt_bayes.results.curve import ScoreCurve
from mpt_bayes.results.estimate import Estimate

__all__ = ["Comparison", "Estimate", "ScoreCurve"]
