"""Mask designs: which coordinates are hidden, with what weight. True = hidden, everywhere."""

from mpt_bayes.masks.base import CUMULATIVE_SCORE, ENUMERATED, MaskBatch, MaskDesign, OrderBatch, OrderDesign, Sampling
from mpt_bayes.masks.exhaustive import Exhaustive
from mpt_bayes.masks.orders import RandomOrders
from mpt_bayes.masks.subsets import FixedRate, PerSize

__all__ = [
    "CUMULATIVE_SCORE",
    "ENUMERATED",
    "Exhaustive",
    "FixedRate",
    "MaskBatch",
    "MaskDesign",
    "OrderBatch",
    "OrderDesign",
    "PerSize",
    "RandomOrders",
    "Sampling",
]
