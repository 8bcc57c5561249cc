"""Models: what predicts a hidden coordinate given the visible ones."""

from mpt_bayes.models.base import ConditionalModel, HasOrderCurve, JointModel, Restrictable, restrict
from mpt_bayes.models.gaussian import Gaussian
from mpt_bayes.models.table import JointTable

__all__ = [
    "ConditionalModel",
    "Gaussian",
    "HasOrderCurve",
    "JointModel",
    "JointTable",
    "Restrictable",
    "restrict",
]
