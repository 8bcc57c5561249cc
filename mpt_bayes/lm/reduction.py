"""From the log-probabilities of one text's masks to its curve, its total and its tokens' shares."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks.base import ENUMERATED, MaskBatch, Sampling
from mpt_bayes.results import Estimate
from mpt_bayes.results.estimate import satterthwaite


class Uncertain(Protocol):
    """The error of one window of text."""

    @property
    def digest(self) -> str: ...
    @property
    def variance(self) -> float: ...
    @property
    def degrees_of_freedom(self) -> float: ...
    @property
    def n_evaluations(self) -> int: ...
    @property
    def note(self) -> str: ...


@dataclass(frozen=True)
class PieceDifference:
    """The error of a difference of two scores of one window, mask by mask."""

    digest: str
    variance: float
    degrees_of_freedom: float
    n_evaluations: int
    note: str


@dataclass(frozen=True, eq=False)
class PieceScore:
    """One window of text under one draw of masks.

    Attributes:
        digest: of the text.
        contributions: (P,) what each mask adds to the total.
        tally: curve, partial sums and variances.
        shares, share_variances: (D,) the tokens' parts of the total.
        note: what the draw of masks says about the error.
    """

    digest: str
    sampling: Sampling = field(repr=False)
    contributions: Tensor = field(repr=False)
    tally: Tally = field(repr=False)
    shares: Tensor = field(repr=False)
    share_variances: Tensor = field(repr=False)
    note: str = ""

    @classmethod
    def of(cls, digest: str, batch: MaskBatch, log_probs: Tensor, note: str = "") -> PieceScore:
        """From the (P, D) log-probabilities of a drawn design: plain weighted sums."""
        sampling = batch.sampling
        scores = log_probs.sum(1) / sampling.sizes
        contributions = sampling.log_weight.exp() * scores
        tally = Tally.sampled(sampling, scores, contributions.sum()[None], log_probs.shape[1])
        return cls(digest, sampling, contributions, tally, *token_shares(sampling, log_probs), note)

    @property
    def total(self) -> float:
        """Σ_m S(m), in nats."""
        return float(self.tally.partials[-1])

    @property
    def variance(self) -> float:
        """Of the total, from the choice of masks; NaN when it cannot be had."""
        return float(self.tally.partial_variances[-1])

    @property
    def degrees_of_freedom(self) -> float:
        """Of the variance (Welch-Satterthwaite)."""
        return _degrees_of_freedom(self.variance, float(self.tally.partial_quartics[-1]))

    @property
    def n_evaluations(self) -> int:
        """Masks scored."""
        return len(self.sampling)

    def shares_masks_with(self, other: PieceScore) -> bool:
        """Whether both scored the same text with the same draw of masks."""
        return self.digest == other.digest and torch.equal(self.sampling.sizes, other.sampling.sizes)

    def minus(self, other: PieceScore) -> PieceDifference:
        """The error of the difference of two scores with the same masks."""
        difference = (self.contributions - other.contributions)[:, None]
        variance, quartic = (float(v) for v in stratified_variance(self.sampling, difference))
        degrees = _degrees_of_freedom(variance, quartic)
        return PieceDifference(self.digest, variance, degrees, self.n_evaluations, self.note)


def token_shares(sampling: Sampling, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """(D,) Σ_p w_p log p(x_j | visible) / |M_p|, which sum to the plain weighted total, and their variances."""
    contributions = (sampling.log_weight.exp() / sampling.sizes)[:, None] * log_probs
    return contributions.sum(0), stratified_variance(sampling, contributions)[0]


def stratified_variance(sampling: Sampling, contributions: Tensor) -> tuple[Tensor, Tensor]:
    """(C,) variance of the sums over masks of contributions (P, C), and Σ_h v_h² / (n_h - 1).

    Masks are a stratified cluster sample; NaN where a stratum has one cluster.
    """
    variance = contributions.new_zeros(contributions.shape[1])
    quartic = torch.zeros_like(variance)
    for stratum in sampling.stratum[sampling.stratum != ENUMERATED].unique():
        member = sampling.stratum == stratum
        names, cluster = sampling.cluster[member].unique(return_inverse=True)
        n = len(names)
        if n == 1:
            return variance + torch.nan, quartic
        sums = variance.new_zeros(n, len(variance)).index_add_(0, cluster, contributions[member])
        left = 1.0 if sampling.fraction is None else 1 - float(sampling.fraction[member][0])
        v = left * n / (n - 1) * (sums - sums.mean(0)).square().sum(0)
        variance += v
        quartic += v.square() / (n - 1)
    return variance, quartic


def pooled(
    groups: Sequence[Sequence[Uncertain]],
    per_text: NDArray[np.float64],
    like: Estimate,
    *,
    estimand: str,
    note: str = "",
) -> Estimate:
    """The sum over texts. Pieces of one group share text and masks: their errors add before squaring."""
    known = all(not math.isnan(group[0].variance) for group in groups)
    notes = [note, *(group[0].note for group in groups)]
    if not known:
        notes.append("a standard error needs at least two independent draws a text: raise the budget")
    variances = [len(group) ** 2 * group[0].variance for group in groups]
    frees = [group[0].degrees_of_freedom for group in groups]
    return Estimate(
        value=float(np.sum(per_text)),
        standard_error=math.sqrt(sum(variances)) if known else None,
        degrees_of_freedom=satterthwaite(variances, frees) if known else math.inf,
        estimand=estimand,
        n_data=len(per_text),
        n_evaluations=sum(group[0].n_evaluations for group in groups),
        seed=like.seed,
        design=like.design,
        data_digest=hashlib.sha256("".join(g[0].digest * len(g) for g in groups).encode()).hexdigest(),
        per_row=per_text,
        note="; ".join(filter(None, dict.fromkeys(notes))),
    )


def _degrees_of_freedom(variance: float, quartic: float) -> float:
    return variance**2 / quartic if quartic > 0 else math.inf
