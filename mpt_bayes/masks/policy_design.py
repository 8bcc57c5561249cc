"""Masks of any policy with the weights that make them estimate Σ_m S(m), or without them under the policy's name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks.base import CUMULATIVE_SCORE, MaskBatch, MaskDesign
from mpt_bayes.masks.policy import MaskPolicy
from mpt_bayes.masks.subsets import uniform_masks
from mpt_bayes.numerics.combinatorics import log_binomial
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class PolicyMasks(MaskDesign):
    """`n_masks` independent masks of a policy π, a share of them replaced by uniform ones as a defence.

    A mask has the weight c(M) / (n q(M)) with c(M) = 1 / C(D, |M|), q = (1 - ε) π + ε u, ε = `uniform_share`, and u the
    law of `UniformSize`, u = c / D: no weight is above D / (n ε) (defensive mixture, Hesterberg 1995; Owen and Zhou
    2000). The weight belongs to the whole mask; weights of single coordinates would leave a bias.

    If q leaves some mask without probability, no weights estimate Σ_m S(m): the masks then have equal weights, the
    estimand is the policy's own mean score, and functions for the cumulative score refuse the design.

    Raises:
        ArgumentError: a share outside [0, 1].

    Example:
        >>> from mpt_bayes.masks import TopKPolicy
        >>> policy = TopKPolicy((3.0, 1.0, 2.0), 2)
        >>> PolicyMasks(policy, 8).estimand(3), PolicyMasks(policy, 8, uniform_share=0.2).estimand(3)
        ('mean masked score under the top 2 by score', 'cumulative score')
    """

    policy: MaskPolicy
    n_masks: int
    uniform_share: float = 0.0

    def __post_init__(self) -> None:
        checked_count(self.n_masks, "n_masks")
        if not 0 <= self.uniform_share <= 1:
            raise ArgumentError(f"uniform_share is {self.uniform_share}: expected a number in [0, 1]")

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """One stream a mask.

        Raises:
            ArgumentError: a mask drawn by the policy to which it gives no probability.
        """
        hidden = torch.stack([self._one(dim, stream.child(draw)) for draw in range(self.n_masks)])
        log_weight = torch.zeros(self.n_masks, dtype=torch.float64)
        if self.estimand(dim) == CUMULATIVE_SCORE:
            log_weight = -log_binomial(dim)[hidden.sum(1)] - self.log_probability(hidden)
        if not bool(log_weight.isfinite().all()):
            raise ArgumentError(
                f"the policy '{self.policy.name}' drew a mask to which it gives no probability: mend it"
            )
        return MaskBatch.independent(hidden, log_weight - math.log(self.n_masks))

    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) log q(M)."""
        dim = hidden.shape[1]
        share = torch.tensor(self.uniform_share, dtype=torch.float64)
        uniform = (share / dim).log() - log_binomial(dim)[hidden.sum(1)]
        return torch.logaddexp(self.policy.log_probability(hidden) + torch.log1p(-share), uniform)

    def weight_bound(self, dim: int) -> float:
        """The largest n times weight a mask can have, D / ε; infinite without uniform masks.

        Example:
            >>> from mpt_bayes.masks import TopKPolicy
            >>> PolicyMasks(TopKPolicy((3.0, 1.0, 2.0), 2), 8, uniform_share=0.2).weight_bound(3)
            15.0
        """
        return dim / self.uniform_share if self.uniform_share > 0 else math.inf

    def estimand(self, dim: int) -> str:
        """Σ_m S(m) where every mask has probability, else the policy's own mean score."""
        if self.uniform_share > 0 or self.policy.covers(dim):
            return CUMULATIVE_SCORE
        return f"mean masked score under {self.policy.name}"

    def _one(self, dim: int, stream: Stream) -> Tensor:
        if 0 < self.uniform_share < 1:
            chance = torch.tensor([self.uniform_share], dtype=torch.float64)
            uniform = bool(stream.child("which").bernoulli(chance))
        else:
            uniform = self.uniform_share == 1
        if not uniform:
            return self.policy.draw_mask(dim, stream.child("policy"))
        size = stream.child("size").integers(dim, 1) + 1
        return uniform_masks(size, dim, stream.child("mask"))[0]
