"""Training mask laws: which tokens are hidden in each training sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.pretraining.config import MaskConfig
from mpt_bayes.masks import FixedRate, RateSchedule, RateSet, SpanPolicy, UniformSize, WordPolicy
from mpt_bayes.masks.subsets import size_at, uniform_masks
from mpt_bayes.numerics.random import Stream

N_RATES = {"uniform": 0, "fixed": 1, "rates": 2, "linear": 2, "cosine": 2, "spans": 1, "words": 1}
"""How many rates each law takes (at least, for "rates")."""


class MaskLaw:
    """One mask at a time, from the law in force at that moment of training.

    Args:
        config: the law and its rates.

    Raises:
        ArgumentError: an unknown law, rates outside (0, 1], or as many rates as the law does not take.

    Example:
        >>> law = MaskLaw(MaskConfig(law="cosine", rates=(0.8, 0.2)))
        >>> [int(law.draw(10, time, Stream(0)).sum()) for time in (0.0, 0.5, 1.0)]
        [8, 5, 2]
    """

    def __init__(self, config: MaskConfig) -> None:
        if config.law not in N_RATES:
            raise ArgumentError(f"masks.law is {config.law!r}: expected one of {', '.join(N_RATES)}")
        wanted, given = N_RATES[config.law], len(config.rates)
        if given < wanted or (given > wanted and config.law != "rates"):
            raise ArgumentError(f"masks.rates has {given} entries: law {config.law!r} takes {wanted}")
        if not all(0 < rate <= 1 for rate in config.rates):
            raise ArgumentError(f"masks.rates is {list(config.rates)}: expected numbers in (0, 1]")
        self.law, self.rates, self.span = config.law, config.rates, config.span

    def draw(self, dim: int, time: float, stream: Stream, words: Tensor | None = None) -> Tensor:
        """(D,) bool, one mask at a moment `time` in [0, 1) of training; a function of its arguments alone.

        Raises:
            ArgumentError: whole words asked for where there are none.
        """
        if self.law == "uniform":
            return UniformSize(1).draw(dim, stream).hidden[0]
        if self.law == "spans":
            return SpanPolicy(self.rates[0], self.span).draw_mask(dim, stream)
        if self.law == "words":
            if words is None:
                raise ArgumentError("masks.law is 'words', but the sequences of this corpus have no words")
            return WordPolicy(tuple(words.tolist()), self.rates[0]).draw_mask(dim, stream)
        if self.law == "rates":
            size = RateSet(self.rates).draw_size(dim, stream.child("rate"))
        elif self.law == "fixed":
            size = FixedRate(self.rates[0], 1).size(dim)
        else:
            size = size_at(RateSchedule(self.rates[0], self.rates[1], self.law).rate_at(time), dim)
        return uniform_masks(torch.tensor([size]), dim, stream.child(0))[0]
