"""The recommended estimator of one text: cheap ends enumerated, stratified sizes, cross-fitted control variates.

Its masks depend on (seed, text, draw) alone, not on what the model says, so that two models see the same masks and a
resumed run draws them again; the estimator of `mpt_bayes.estimation.adaptive`, which also learns how many masks each
size needs, gives that up for a somewhat smaller error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mpt_bayes.estimation.adaptive import exact_curve
from mpt_bayes.estimation.allocation import SizeBins, end_masks, sampled_range
from mpt_bayes.estimation.blocks import BlockedBins, BlockedMasks
from mpt_bayes.estimation.control import prior_scale
from mpt_bayes.estimation.rounds import Round, Scored, pooled
from mpt_bayes.lm.reduction import PieceScore, token_shares
from mpt_bayes.masks import Exhaustive, MaskBatch, MaskDesign, StratifiedSizes, UniformSize
from mpt_bayes.masks.base import ENUMERATED, Sampling
from mpt_bayes.numerics.combinatorics import log_binomial
from mpt_bayes.numerics.random import Stream

FEWEST = 16
"""Below this number of passes there is too little to fit control variates to, or to see how far masks scatter."""


@dataclass(frozen=True)
class DesignDraw:
    """A draw of a mask design, summed plainly; `note` goes with its score."""

    batch: MaskBatch
    note: str = ""

    @property
    def hidden(self) -> Tensor:
        """(P, D)."""
        return self.batch.hidden

    def reduced(self, digest: str, log_probs: Tensor) -> PieceScore:
        """The score of the text from its (P, D) log-probabilities."""
        return PieceScore.of(digest, self.batch, log_probs, self.note)


@dataclass(frozen=True)
class ControlledDraw:
    """Masks of the cheap ends, all of them, then masks of bins of the other sizes, in blocks, at least two a bin.

    Attributes:
        ends: (E, D).
        size_bins: the bins of the other sizes.
        sampled: their masks.
    """

    ends: Tensor
    size_bins: SizeBins
    sampled: BlockedMasks

    @classmethod
    def of(cls, dim: int, n_masks: int, stream: Stream) -> ControlledDraw:
        """Numbers of masks in proportion to how the spread of s(M) usually goes with the size (Neyman 1934)."""
        lowest, highest = sampled_range(dim, n_masks)
        ends = end_masks(dim, lowest, highest)
        left = n_masks - len(ends)
        size_bins = SizeBins(lowest, highest, min(highest - lowest + 1, max(1, left // 4)))
        scale = _usual_spread(dim)[lowest - 1 : highest]
        spread = (size_bins.law(dim)[:, lowest - 1 : highest] @ scale.square()).sqrt()
        blocks = BlockedBins(size_bins, dim)
        return cls(ends, size_bins, blocks.draw(blocks.clusters(spread, left), stream))

    @property
    def hidden(self) -> Tensor:
        """(P, D), the ends first."""
        return torch.cat([self.ends, self.sampled.hidden])

    @property
    def sampling(self) -> Sampling:
        """The plain weights, without control variates."""
        sizes, n_ends, clusters = self.hidden.sum(1), len(self.ends), self.sampled.clusters
        ends = -log_binomial(self.hidden.shape[1])[sizes[:n_ends]]
        weight = self.size_bins.width / (self.size_bins.count * self.sampled.counts.to(torch.float64))
        return Sampling(
            sizes,
            torch.cat([ends, weight.log()[self.sampled.bins]]),
            torch.cat([torch.full((n_ends,), ENUMERATED), clusters.strata[clusters.member]]),
            torch.cat([torch.arange(n_ends), n_ends + clusters.member]),
        )

    def reduced(self, digest: str, log_probs: Tensor) -> PieceScore:
        """The score of the text from its (P, D) log-probabilities.

        Shares are the plain ones; the difference of the adjusted total from theirs, whose expectation is zero, is
        spread evenly, so that they sum to the total.
        """
        whole, n_ends, drawn = Scored(self.hidden, log_probs[None]), len(self.ends), self.sampled
        ends, sampled = whole[:n_ends], whole[n_ends:]
        part = Round.adjusted(sampled, ends, self.size_bins, drawn.bins, drawn.counts, drawn.clusters)
        tally = pooled(exact_curve(ends), [part], len(whole))
        sampling = self.sampling
        plain = sampling.log_weight.exp() * log_probs.sum(1) / sampling.sizes
        contributions = torch.cat([plain[:n_ends], part.values.sum(1)])
        shares, variances = token_shares(sampling, log_probs)
        shares = shares + (tally.partials[-1] - shares.sum()) / len(shares)
        return PieceScore(digest, sampling, contributions, tally, shares, variances)


def _usual_spread(dim: int) -> Tensor:
    """(D,) how the spread of s(M), controlled, usually goes with the size m in a language model.

    That of any model, times 1 + 5 (m / D)^6: where little is visible, what it is matters most. Seen on a protein BERT;
    any other shape would be as unbiased, and here costs up to a sixth more error.
    """
    rate = torch.arange(1, dim + 1, dtype=torch.float64) / dim
    return prior_scale(dim) * (1 + 5 * rate**6)


@dataclass(frozen=True)
class Passes:
    """What a number of forward passes buys for a text: every mask if they are enough, else the best estimator.

    Example:
        >>> len(Passes(40).draw(20, Stream(0)).hidden), len(Passes(40).draw(5, Stream(0)).hidden)
        (40, 31)
    """

    number: int

    def enumerates(self, dim: int) -> bool:
        """Whether every mask is taken."""
        return dim < 20 and 2**dim - 1 <= self.number

    @property
    def note(self) -> str:
        """Where so few passes give a standard error, but none to be trusted, unless every mask is taken."""
        if not 1 < self.number < FEWEST:
            return ""
        return f"its standard error tends to be too small: {self.number} passes a text, fewer than {FEWEST}"

    def draw(self, dim: int, stream: Stream) -> DesignDraw | ControlledDraw:
        """The masks, a function of the stream alone."""
        if self.enumerates(dim):
            return DesignDraw(Exhaustive().draw(dim, stream))
        if self.number < FEWEST:
            few: MaskDesign = StratifiedSizes(self.number) if self.number >= 8 else UniformSize(self.number)
            return DesignDraw(few.draw(dim, stream), self.note)
        return ControlledDraw.of(dim, self.number, stream)


def passes_for(deviations: dict[str, float], target: float, fewest: int) -> dict[str, int]:
    """Passes a text so that Σ_t d_t² / n_t is target² at the least Σ n_t: n_t = d_t Σ d / target².

    Example:
        >>> passes_for({"a": 1.0, "b": 3.0}, 0.5, 2)
        {'a': 16, 'b': 48}
    """
    together = sum(deviations.values())
    return {key: max(fewest, math.ceil(d * together / target**2)) for key, d in deviations.items()}
