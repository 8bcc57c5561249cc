"""Mask designs: which coordinates are hidden, with what weight. True = hidden, everywhere."""

from mpt_bayes.masks.base import CUMULATIVE_SCORE, ENUMERATED, MaskBatch, MaskDesign, OrderBatch, OrderDesign, Sampling
from mpt_bayes.masks.ends import EnumeratedEnds
from mpt_bayes.masks.exhaustive import Exhaustive
from mpt_bayes.masks.orders import AntitheticOrders, CyclicOrders, RandomOrders
from mpt_bayes.masks.partitions import CyclicWindows, Partitions
from mpt_bayes.masks.sizes import RandomRate, StratifiedSizes, UniformSize
from mpt_bayes.masks.subsets import FixedRate, PerSize

__all__ = [
    "CUMULATIVE_SCORE",
    "ENUMERATED",
    "AntitheticOrders",
    "CyclicOrders",
    "CyclicWindows",
    "EnumeratedEnds",
    "Exhaustive",
    "FixedRate",
    "MaskBatch",
    "MaskDesign",
    "OrderBatch",
    "OrderDesign",
    "Partitions",
    "PerSize",
    "RandomOrders",
    "RandomRate",
    "Sampling",
    "StratifiedSizes",
    "UniformSize",
]
