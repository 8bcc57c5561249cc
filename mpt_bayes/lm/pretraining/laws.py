"""Training mask laws: which tokens are hidden in each training sequence."""

from __future__ import annotations

import math

from torch import Tensor

from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.pretraining.config import MaskConfig
from mpt_bayes.masks import FixedRate, MaskDesign, UniformSize
from mpt_bayes.numerics.random import Stream

LAWS = ("uniform", "fixed", "rates", "linear", "cosine")


class MaskLaw:
    """One mask at a time, from the design in force at that moment of training.

    Args:
        config: the law and its rates.

    Raises:
        ArgumentError: an unknown law, rates outside (0, 1], or as many rates as the law does not take.

    Example:
        >>> law = MaskLaw(MaskConfig(law="cosine", rates=(0.8, 0.2)))
        >>> [round(law.rate_at(time), 2) for time in (0.0, 0.5, 1.0)]
        [0.8, 0.5, 0.2]
    """

    def __init__(self, config: MaskConfig) -> None:
        if config.law not in LAWS:
            raise ArgumentError(f"masks.law is {config.law!r}: expected one of {', '.join(LAWS)}")
        wanted = {"uniform": (0, 0), "rates": (2, 99), "linear": (2, 2), "cosine": (2, 2)}.get(config.law, (1, 1))
        if not wanted[0] <= len(config.rates) <= wanted[1]:
            raise ArgumentError(f"masks.rates has {len(config.rates)} entries: law {config.law!r} takes {wanted[0]}")
        if not all(0 < rate <= 1 for rate in config.rates):
            raise ArgumentError(f"masks.rates is {list(config.rates)}: expected numbers in (0, 1]")
        self.config = config

    def draw(self, dim: int, time: float, stream: Stream, words: Tensor | None = None) -> Tensor:
        """(D,) bool, one mask at a moment `time` in [0, 1) of training; a function of its arguments alone."""
        return self._design(time, stream).draw(dim, stream).hidden[0]

    def rate_at(self, time: float) -> float:
        """The rate in force, for laws that have one."""
        first, last = self.config.rates[0], self.config.rates[-1]
        if self.config.law == "linear":
            return first + (last - first) * time
        if self.config.law == "cosine":
            return last + (first - last) * (1 + math.cos(math.pi * time)) / 2
        return first

    def _design(self, time: float, stream: Stream) -> MaskDesign:
        config = self.config
        if config.law == "uniform":
            return UniformSize(1)
        if config.law == "rates":
            return FixedRate(config.rates[int(stream.child("rate").integers(len(config.rates), 1))], 1)
        return FixedRate(self.rate_at(time), 1)
