"""From the log-probabilities of one text's masks to its curve, its total and its tokens' shares."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks.base import ENUMERATED, MaskBatch, Sampling
from mpt_bayes.results import Estimate
from mpt_bayes.results.estimate import satterthwaite


@dataclass(frozen=True, eq=False)
class PieceScore:
    """One window of text under one draw of a design.

    Attributes:
        digest: of the text.
        mask_scores: (P,) s(M) of each mask.
        tally: curve, partial sums and variances.
        shares, share_variances: (D,) Σ_p w_p log p(x_j | visible) / |M_p|, which sum to the total.
    """

    digest: str
    sampling: Sampling = field(repr=False)
    mask_scores: Tensor = field(repr=False)
    tally: Tally = field(repr=False)
    shares: Tensor = field(repr=False)
    share_variances: Tensor = field(repr=False)

    @classmethod
    def of(cls, digest: str, batch: MaskBatch, log_probs: Tensor) -> PieceScore:
        """From the (P, D) log-probabilities of a drawn design."""
        sampling = batch.sampling
        contributions = (sampling.log_weight.exp() / sampling.sizes)[:, None] * log_probs
        return cls(
            digest=digest,
            sampling=sampling,
            mask_scores=log_probs.sum(1) / sampling.sizes,
            tally=_tally(sampling, log_probs.sum(1) / sampling.sizes, log_probs.shape[1]),
            shares=contributions.sum(0),
            share_variances=column_variances(sampling, contributions),
        )

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
        quartic = float(self.tally.partial_quartics[-1])
        return self.variance**2 / quartic if quartic > 0 else math.inf

    def minus(self, other: PieceScore) -> PieceScore:
        """The difference mask by mask, of two scores with the same masks."""
        scores = self.mask_scores - other.mask_scores
        return replace(self, mask_scores=scores, tally=_tally(self.sampling, scores, len(self.shares)))


def _tally(sampling: Sampling, mask_scores: Tensor, dim: int) -> Tally:
    return Tally.sampled(sampling, mask_scores, (sampling.log_weight.exp() @ mask_scores)[None], dim)


def column_variances(sampling: Sampling, contributions: Tensor) -> Tensor:
    """(D,) variance of each column's sum over masks, from the stratified cluster sample; NaN where it cannot be had."""
    variance = torch.zeros(contributions.shape[1], dtype=torch.float64)
    for stratum in sampling.stratum[sampling.stratum != ENUMERATED].unique():
        member = sampling.stratum == stratum
        names, cluster = sampling.cluster[member].unique(return_inverse=True)
        sums = variance.new_zeros(len(names), len(variance)).index_add_(0, cluster, contributions[member])
        if len(names) == 1:
            return variance + torch.nan
        left = 1.0 if sampling.fraction is None else 1 - float(sampling.fraction[member][0])
        variance += left * len(names) / (len(names) - 1) * (sums - sums.mean(0)).square().sum(0)
    return variance


def pooled(groups: list[list[PieceScore]], per_text: NDArray[np.float64], like: Estimate, *, estimand: str) -> Estimate:
    """The sum over texts. Pieces of one group share text and masks: their errors add before squaring."""
    known = all(not math.isnan(group[0].variance) for group in groups)
    variances = [len(group) ** 2 * group[0].variance for group in groups]
    frees = [group[0].degrees_of_freedom for group in groups]
    return Estimate(
        value=float(np.sum(per_text)),
        standard_error=math.sqrt(sum(variances)) if known else None,
        degrees_of_freedom=satterthwaite(variances, frees) if known else math.inf,
        estimand=estimand,
        n_data=len(per_text),
        n_evaluations=sum(len(group[0].mask_scores) for group in groups),
        seed=like.seed,
        design=like.design,
        data_digest=hashlib.sha256("".join(g[0].digest * len(g) for g in groups).encode()).hexdigest(),
        per_row=per_text,
        note="" if known else "a standard error needs at least two independent draws a text: raise the budget",
    )
