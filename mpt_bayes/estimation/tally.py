"""From mask scores to sums and variances: a stratified cluster sample of masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

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
        strata = list(_strata(sampling, contribution, residual, dim))
        score_variances, score_quartics = _summed([s.variance_of_scores() for s in strata], sums)
        partial_variances, partial_quartics = _summed([s.variance_of_partials() for s in strata], sums)
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

    @classmethod
    def of_orders(cls, totals: Tensor, cluster: Tensor, per_row: Tensor) -> Tally:
        """From the (n, D) curves of whole orders summed over rows, and their (n,) clusters: as `sampled`, sooner, since
        every cluster holds every size."""
        n, dim = totals.shape
        scores = totals.mean(0)
        values, residuals = totals / n, (totals - scores) / n
        names, place = cluster.unique(return_inverse=True)
        if len(names) < n:
            values, residuals = (totals.new_zeros(len(names), dim).index_add(0, place, v) for v in (values, residuals))
        sums, count = values.cumsum(1), torch.tensor(len(names))
        score_variances, score_quartics = _variance_of_sum(residuals, count)
        partial_variances, partial_quartics = _variance_of_sum(sums - sums.mean(0), count)
        return cls(
            scores=scores,
            score_variances=score_variances,
            score_quartics=score_quartics,
            partials=scores.cumsum(0),
            partial_variances=partial_variances,
            partial_quartics=partial_quartics,
            per_row=per_row,
            n_evaluations=totals.numel() * len(per_row),
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


def _variance_of_sum(deviations: Tensor, count: Tensor, left: float = 1.0) -> tuple[Tensor, Tensor]:
    """(D,) the variance of a sum of independent terms from their (C, D) deviations, and v² / (n - 1).

    It is n / (n - 1) times the sum of squares, n = `count` of the C terms having a part in each column; NaN for one
    term, which says nothing about its variance. `left` is the share that sampling without replacement leaves.
    """
    free = (count - 1).clamp_min(1)
    v = torch.where(count == 1, torch.nan, count / free * deviations.square().sum(0)) * left
    return v, v.square() / free


class _Stratum(NamedTuple):
    """Independent and identically distributed clusters of masks, C of them.

    Attributes:
        values: (C, D) what each adds to the total, by size.
        residuals: (C, D) what each adds to the error of S(m).
        holds: (D,) clusters with a mask of this size.
        left: the share of the variance that sampling without replacement leaves.
    """

    values: Tensor
    residuals: Tensor
    holds: Tensor
    left: float

    def variance_of_scores(self) -> tuple[Tensor, Tensor]:
        """(D,) the variance of S(m), and v² / (n - 1)."""
        return _variance_of_sum(self.residuals, self.holds, self.left)

    def variance_of_partials(self) -> tuple[Tensor, Tensor]:
        """(D,) the variance of Σ_{m≤P} S(m), and v² / (n - 1)."""
        sums = self.values.cumsum(1)
        return _variance_of_sum(sums - sums.mean(0), torch.where(self.holds.cumsum(0) > 0, len(sums), 0), self.left)


def _strata(sampling: Sampling, contribution: Tensor, residual: Tensor, dim: int) -> Iterator[_Stratum]:
    """All but the enumerated masks, which have no variance."""
    for name in sampling.stratum.unique().tolist():
        if name == ENUMERATED:
            continue
        member = sampling.stratum == name
        names, cluster = sampling.cluster[member].unique(return_inverse=True)
        place = cluster * dim + (sampling.sizes[member] - 1)
        empty = torch.zeros(len(names) * dim, dtype=torch.float64)
        values, residuals = (empty.index_add(0, place, v[member]).view(-1, dim) for v in (contribution, residual))
        holds = empty.index_fill(0, place, 1).view(-1, dim).sum(0).long()
        left = 1.0 if sampling.fraction is None else 1 - float(sampling.fraction[member][0])
        yield _Stratum(values, residuals, holds, left)


def _summed(parts: list[tuple[Tensor, Tensor]], like: Tensor) -> tuple[Tensor, Tensor]:
    """Over independent strata."""
    zero = torch.zeros_like(like)
    return sum((v for v, _ in parts), zero), sum((q for _, q in parts), zero)
