"""Mask designs: which coordinates are hidden, with what weight. True = hidden, everywhere."""

from mpt_bayes.masks.base import CUMULATIVE_SCORE, ENUMERATED, MaskBatch, MaskDesign, OrderBatch, OrderDesign, Sampling
from mpt_bayes.masks.coin_policies import CoordinatePolicy, SpanPolicy, WordPolicy
from mpt_bayes.masks.ends import EnumeratedEnds
from mpt_bayes.masks.exhaustive import Exhaustive
from mpt_bayes.masks.orders import AntitheticOrders, CyclicOrders, RandomOrders
from mpt_bayes.masks.partitions import CyclicWindows, Partitions
from mpt_bayes.masks.policies import CustomPolicy, SizePolicy, TopKPolicy
from mpt_bayes.masks.policy import MaskPolicy
from mpt_bayes.masks.policy_design import PolicyMasks
from mpt_bayes.masks.size_laws import RateSchedule, RateSet, SizeLaw
from mpt_bayes.masks.sizes import RandomRate, StratifiedSizes, UniformSize
from mpt_bayes.masks.subsets import FixedRate, PerSize

__all__ = [
    "CUMULATIVE_SCORE",
    "ENUMERATED",
    "AntitheticOrders",
    "CoordinatePolicy",
    "CustomPolicy",
    "CyclicOrders",
    "CyclicWindows",
    "EnumeratedEnds",
    "Exhaustive",
    "FixedRate",
    "MaskBatch",
    "MaskDesign",
    "MaskPolicy",
    "OrderBatch",
    "OrderDesign",
    "Partitions",
    "PerSize",
    "PolicyMasks",
    "RandomOrders",
    "RandomRate",
    "RateSchedule",
    "RateSet",
    "Sampling",
    "SizeLaw",
    "SizePolicy",
    "SpanPolicy",
    "StratifiedSizes",
    "TopKPolicy",
    "UniformSize",
    "WordPolicy",
]
