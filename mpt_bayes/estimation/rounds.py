"""Rounds of a sampled estimate: masks drawn with counts fixed beforehand, adjusted by cross-fitted control variates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from mpt_bayes.estimation.allocation import SizeBins
from mpt_bayes.estimation.control import ControlVariate, local_scale
from mpt_bayes.estimation.tally import Tally

FOLDS = 5


@dataclass(frozen=True)
class Scored:
    """Masks with the log-probabilities of what they hide: hidden (P, D) bool, log_prob (R, P, D), 0 where visible."""

    hidden: Tensor
    log_prob: Tensor

    def __len__(self) -> int:
        return len(self.hidden)

    def __add__(self, other: Self) -> Scored:
        return Scored(torch.cat([self.hidden, other.hidden]), torch.cat([self.log_prob, other.log_prob], 1))

    def __getitem__(self, which: Tensor | slice) -> Scored:
        return Scored(self.hidden[which], self.log_prob[:, which])

    def summed(self) -> Scored:
        """The sums over rows in place of the rows."""
        return Scored(self.hidden, self.log_prob.sum(0, keepdim=True))


@dataclass(frozen=True)
class Clusters:
    """Which masks were drawn together.

    Attributes:
        member: (P,) the cluster of each mask.
        strata: (C,) the stratum of each cluster: clusters of one stratum are independent and identically distributed.
    """

    member: Tensor
    strata: Tensor

    @classmethod
    def single(cls, strata: Tensor) -> Self:
        """Each mask by itself."""
        return cls(torch.arange(len(strata)), strata)


@dataclass(frozen=True)
class Round:
    """An unbiased estimate of the sampled sizes by itself, given the rounds before it.

    Attributes:
        values: (P, D) contributions of each mask to S(m), m = 1..D, summed over rows; the errors come from these alone.
        curves: (R, D) the estimated curve of each row.
        clusters: which masks were drawn together.
        residual: (P,) what the control variates and the trend left of s(M), summed over rows.
        sizes: (P,).
    """

    values: Tensor
    curves: Tensor
    clusters: Clusters
    residual: Tensor
    sizes: Tensor

    @classmethod
    def adjusted(
        cls,
        scored: Scored,
        known: Scored,
        size_bins: SizeBins,
        bins: Tensor,
        counts: Tensor,
        clusters: Clusters | None = None,
    ) -> Self:
        """Cross-fitted: a mask is adjusted by a fit to the masks known before and to the other folds of its own round.

        Given what was known before, the folds are independent and the counts fixed, so every fold's adjusted mean is
        unbiased. Masks that were drawn together are in one fold. (A fit to later rounds would not do: how many masks
        those draw depends on this one.)

        With w = W / (H n_h) the weight of a mask of bin h and law_h(m) the probability of a size in it, a mask adds
        w [1[m = |M|] (s(M) - centred(M) - trend(m)) + law_h(m) trend(m)] to S(m).

        Args:
            scored: the masks of the round; known: those before it.
            size_bins, bins, counts: how sizes were drawn, the bin of each mask (P,), the number of masks a bin (H,).
            clusters: masks drawn together; by default each mask was drawn by itself, and bins are the strata.
        """
        clusters = clusters or Clusters.single(bins)
        dim = scored.hidden.shape[1]
        sizes = scored.hidden.sum(1)
        score = scored.log_prob.sum(2) / sizes
        law = size_bins.law(dim)
        weight = size_bins.width / (size_bins.count * counts.to(torch.float64))[bins]
        values = torch.empty_like(scored.log_prob)
        residual = torch.empty_like(score)
        for mine, fit in cross_fits(scored, known, clusters.member):
            trend = fit.trend_at(torch.arange(1, dim + 1))  # (R, D)
            left = score[:, mine] - fit.centred(scored.hidden[mine]) - trend[:, sizes[mine] - 1]
            part = law[bins[mine]] * trend[:, None, :]
            place = (sizes[mine] - 1).expand(len(left), -1)[..., None]
            values[:, mine] = weight[mine, None] * part.scatter_add(2, place, left[..., None])
            residual[:, mine] = left
        return cls(values.sum(0), values.sum(1), clusters, residual.sum(0), sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def summed(self) -> Self:
        """The sums over rows in place of the rows."""
        return replace(self, curves=self.curves.sum(0, keepdim=True))

    def moments(self, *, cumulative: bool) -> tuple[Tensor, Tensor]:
        """(D,) variances of the curve, or of its partial sums, and Σ_h v_h² / (n_h - 1)."""
        strata = self.clusters.strata
        values = self.values.cumsum(1) if cumulative else self.values
        sums = values.new_zeros(len(strata), values.shape[1]).index_add(0, self.clusters.member, values)
        n = torch.bincount(strata).to(torch.float64)[:, None]
        zero = torch.zeros(len(n), values.shape[1], dtype=torch.float64)
        centred = sums - (zero.index_add(0, strata, sums) / n)[strata]
        each = n / (n - 1) * zero.index_add(0, strata, centred.square())
        return each.sum(0), (each.square() / (n - 1)).sum(0) * self._tails

    @property
    def _tails(self) -> float:
        """How much more a variance estimate varies than among normal residuals: 1 + excess kurtosis / 2, at least 1.

        The variance of a sample variance is v² (2 / (n - 1) + excess / n); bins are too small to tell, so the kurtosis
        is that of all residuals over their smoothed scale.
        """
        dim = self.values.shape[1]
        ratio = (self.residual / local_scale(self.sizes, self.residual, dim)[self.sizes - 1]).square()
        mean = float(ratio.mean())
        return max(1.0, 1 + (float(ratio.square().mean()) / mean**2 - 3) / 2) if mean > 0 else 1.0


def cross_fits(scored: Scored, known: Scored, cluster: Tensor) -> Iterator[tuple[Tensor, ControlVariate]]:
    """For each fold which masks are in it, (P,) bool, and the fit to all that is known and to the other folds."""
    fold = cluster % FOLDS
    for f in fold.unique():
        others = known + scored[fold != f]
        yield fold == f, ControlVariate.fit(others.hidden, others.log_prob)


def pooled(exact: Tensor, rounds: list[Round], n_evaluations: int) -> Tally:
    """The curve from exact sizes (R, D) and rounds weighted by their numbers of masks."""
    total = sum(len(part) for part in rounds)
    curve = exact.clone()
    columns = {c: (exact.new_zeros(exact.shape[1]), exact.new_zeros(exact.shape[1])) for c in (False, True)}
    for part in rounds:
        share = len(part) / total
        curve += share * part.curves
        for cumulative, (variance, quartic) in columns.items():
            v, q = part.moments(cumulative=cumulative)
            columns[cumulative] = (variance + share**2 * v, quartic + share**4 * q)
    scores = curve.sum(0)
    return Tally(
        scores=scores,
        score_variances=columns[False][0],
        score_quartics=columns[False][1],
        partials=scores.cumsum(0),
        partial_variances=columns[True][0],
        partial_quartics=columns[True][1],
        per_row=curve.sum(1),
        n_evaluations=n_evaluations,
    )
