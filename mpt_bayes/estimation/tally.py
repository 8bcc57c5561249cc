"""From mask scores to sums and variances: a stratified cluster sample of masks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.masks.base import ENUMERATED, Sampling


@dataclass(frozen=True)
class Tally:
    """Sums over rows with their sampling variances, all indexed by mask size m = 1..D.

    Attributes:
        scores, score_variances, score_quartics: (D,) S(m); the quartic term Σ_h v_h² / f_h gives the
            Welch-Satterthwaite degrees of freedom v² / quartic.
        partials, partial_variances, partial_quartics: (D,) Σ_{m≤P} S(m).
        per_row: (N,) the total row by row; NaN where it was not computed.
        score_inner_variances, partial_inner_variances: (D,) from a model that is itself made of draws; None where it is
            exact.
    """

    scores: Tensor
    score_variances: Tensor
    score_quartics: Tensor
    partials: Tensor
    partial_variances: Tensor
    partial_quartics: Tensor
    per_row: Tensor
    n_evaluations: int
    score_inner_variances: Tensor | None = None
    partial_inner_variances: Tensor | None = None

    @classmethod
    def exact(cls, row_curves: Tensor, n_evaluations: int) -> Tally:
        """From (N, D) exact S(m) of every row: no sampling variance."""
        scores = row_curves.sum(0)
        zero = torch.zeros_like(scores)
        return cls(scores, zero, zero, scores.cumsum(0), zero, zero, row_curves.sum(1), n_evaluations)

    @classmethod
    def sampled(cls, sampling: Sampling, mask_totals: Tensor, per_row: Tensor, dim: int) -> Tally:
        """From the score of each mask summed over rows (P,) and the weighted total of each row (N,)."""
        weight, size = sampling.log_weight.exp(), sampling.sizes - 1
        zero = torch.zeros(dim, dtype=torch.float64)
        weight_at = zero.index_add(0, size, weight)
        contribution = weight * mask_totals
        sums = zero.index_add(0, size, contribution)
        scores = sums / weight_at
        residual = weight * (mask_totals - scores[size]) / weight_at[size]
        score_variances, score_quartics = _variances(sampling, residual, dim, cumulative=False)
        partial_variances, partial_quartics = _variances(sampling, contribution, dim, cumulative=True)
        return cls(
            scores=scores,
            score_variances=torch.where(weight_at > 0, score_variances, torch.nan),
            score_quartics=score_quartics,
            partials=sums.cumsum(0),
            partial_variances=partial_variances,
            partial_quartics=partial_quartics,
            per_row=per_row,
            n_evaluations=len(sampling) * len(per_row),
        )

    def __add__(self, other: Tally) -> Tally:
        """The sum over independent groups of rows, which may have different numbers of observed coordinates.

        Groups may share the draws of a model, so their inner errors add up in full: an upper bound.
        """
        dim = max(len(self.scores), len(other.scores))
        a, b = self._padded(dim), other._padded(dim)
        sums = {name: getattr(a, name) + getattr(b, name) for name in _BY_SIZE}
        per_row = torch.cat([a.per_row, b.per_row])
        for name in _INNER:
            mine, theirs = getattr(a, name), getattr(b, name)
            sums[name] = None if mine is None or theirs is None else (mine.sqrt() + theirs.sqrt()).square()
        return Tally(**sums, per_row=per_row, n_evaluations=a.n_evaluations + b.n_evaluations)

    def with_rows(self, rows: Tensor, n_rows: int) -> Tally:
        """Per-row values put back at their rows; rows not named contribute 0."""
        per_row = self.per_row.new_zeros(n_rows)
        per_row[rows] = self.per_row
        return replace(self, per_row=per_row)

    def _padded(self, dim: int) -> Tally:
        """As a curve over more sizes: no score there, and partial sums that stay where they are."""
        extra = dim - len(self.scores)
        columns: dict[str, Any] = {}
        for name in (*_BY_SIZE, *_INNER):
            column: Tensor | None = getattr(self, name)
            if column is None:
                continue
            tail = column[-1:].expand(extra) if name.startswith("partial") else column.new_zeros(extra)
            columns[name] = torch.cat([column, tail])
        return replace(self, **columns)


_BY_SIZE = (
    "scores",
    "score_variances",
    "score_quartics",
    "partials",
    "partial_variances",
    "partial_quartics",
)
_INNER = ("score_inner_variances", "partial_inner_variances")


def combined(tallies: list[Tally]) -> Tally:
    """The sum of tallies of independent groups of rows."""
    return reduce(Tally.__add__, tallies)


def _variances(sampling: Sampling, contribution: Tensor, dim: int, *, cumulative: bool) -> tuple[Tensor, Tensor]:
    """Variance of Σ contributions by size, or of its cumulative sums over sizes, and Σ_h v_h² / (n_h - 1).

    Clusters of a stratum are independent and identically distributed: the variance of their sum is n / (n - 1) times
    the sum of squared deviations. One cluster alone says nothing about its variance: NaN. Enumerated masks have none.
    """
    variance = torch.zeros(dim, dtype=torch.float64)
    quartic = torch.zeros(dim, dtype=torch.float64)
    for stratum in sampling.stratum[sampling.stratum != ENUMERATED].unique():
        member = sampling.stratum == stratum
        names, cluster = sampling.cluster[member].unique(return_inverse=True)
        place = (cluster, sampling.sizes[member] - 1)
        values = torch.zeros(len(names), dim, dtype=torch.float64)
        values.index_put_(place, contribution[member], accumulate=True)
        holds = torch.zeros(len(names), dim, dtype=torch.bool)
        holds[place] = True
        count = holds.sum(0)  # clusters that hold a mask of this size
        if cumulative:
            values = values.cumsum(1)
            count = torch.where(count.cumsum(0) > 0, len(names), 0)
            values = values - values.mean(0)
        free = (count - 1).clamp_min(1)
        v = torch.where(count == 1, torch.nan, count / free * values.square().sum(0))
        if sampling.fraction is not None:
            v = v * (1 - sampling.fraction[member][0])
        variance += v
        quartic += v.square() / free
    return variance, quartic
