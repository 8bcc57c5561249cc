"""Whole score curves of Gaussians over random orders: every row's, or sums over rows that enter by second moments.

Orders are worked on in chunks whose matrices stay in cache. All of it is differentiable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mpt_bayes.numerics.log_space import LOG_2PI
from mpt_bayes.numerics.nested import (
    WIDTH,
    Columns,
    column_blocks,
    keep_freed_memory,
    moment_quadratics,
    row_form,
    row_quadratics,
    sum_logs,
    tails,
    whitened,
)

FEW_ROWS = 8
"""Up to here residuals row by row cost less than the matrix products of the second moments."""
_MEMORY_ELEMENTS = 2**26


def chunks_of(orders: Tensor) -> tuple[Tensor, ...]:
    """Orders to work on together: half a gigabyte of D × D matrices; on a CPU as many as stay in cache, in pairs for
    its threads (found by trial from D = 50 to 400)."""
    dim = orders.shape[1]
    most = 2 * max(2**16 // dim**2, 640 // dim) if orders.device.type == "cpu" else _MEMORY_ELEMENTS // dim**2
    parts: tuple[Tensor, ...] = orders.tensor_split(math.ceil(len(orders) / max(1, most)))
    return parts


def compressed_rows(x: Tensor, mean: Tensor, *, with_basis: bool) -> tuple[Tensor, Tensor | None]:
    """At most D + 1 rows (r, D) with the same second moments about the mean as the N of x, and the (N, r) basis.

    x - mean = basis @ rows, from a QR factorisation, which keeps the precision that forming (x - mean)ᵀ(x - mean)
    would square away. None stands for the identity; it is empty where not asked for, and has no gradient to the mean.
    """
    if len(x) <= x.shape[1] + 1:
        return x - mean, None
    centre = mean.detach()
    if not mean.requires_grad:
        basis, rows = torch.linalg.qr(x - centre, mode="reduced" if with_basis or x.requires_grad else "r")
        return rows, basis
    basis, rows = torch.linalg.qr(torch.cat([x - centre, x.new_ones(len(x), 1)], 1))
    return rows[:, :-1] - rows[:, -1:] * (mean - centre), basis


DataTerm = Callable[[Tensor, Tensor, Columns], Tensor]
"""From (n, r, hi, width) squared residuals over variances, the (n, r, D) α of the rows and the columns: (n, r, width),
the sum over hidden coordinates of the part of the log-density that depends on the data."""


def gaussian_term(quadratic: Tensor, alpha: Tensor, at: Columns) -> Tensor:
    """-½ Σ_j residual² / variance."""
    return -0.5 * quadratic.sum(-2)


def row_curves(covariance: Tensor, centred: Tensor, orders: Tensor, data_term: DataTerm = gaussian_term) -> Tensor:
    """(N, n, D) mean log-density of the last m coordinates of each order, each given the visible ones, row by row.

    The rest of the log-density is that of a Gaussian, -½ log(2π variance).
    """
    keep_freed_memory()
    problem = _Problem.of(covariance, centred)
    parts = [problem.row_sums(part, data_term, first=not i) for i, part in enumerate(chunks_of(orders))]
    data, logs = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return (data / problem.sizes - problem.normaliser(logs, orders)[:, None]).transpose(0, 1)


def gaussian_totals(
    covariance: Tensor, x: Tensor, mean: Tensor, orders: Tensor, *, per_row: bool
) -> tuple[Tensor, Tensor | None]:
    """(n, D) curves summed over rows, and (N,) the mean over orders of each row's Σ_m s(M) if `per_row`.

    More than a few rows enter by their second moments: the time is flat in N beyond one QR factorisation.
    """
    if len(x) <= FEW_ROWS:
        each = row_curves(covariance, x - mean, orders)
        return each.sum(0), each.sum(2).mean(1) if per_row else None
    keep_freed_memory()
    rows, basis = compressed_rows(x, mean, with_basis=per_row)
    problem = _Problem.of(covariance, rows)
    parts = [problem.moment_sums(part, first=not i, form=per_row) for i, part in enumerate(chunks_of(orders))]
    normaliser = problem.normaliser(torch.cat([part.logs for part in parts]), orders)
    curves = -(torch.cat([part.quadratics for part in parts]) / problem.sizes) - len(x) * normaliser
    forms = [part.form for part in parts if part.form is not None]
    if not forms:
        return curves, None
    form = torch.stack(forms).sum(0)
    quadratic = form.diagonal() if basis is None else (basis @ form * basis).sum(1)
    return curves, -(0.5 * quadratic / len(orders) + normaliser.sum(1).mean())


class _MomentSums(NamedTuple):
    """Of a chunk of orders: (n, D) ½ Σ residual²/variance over rows and hidden coordinates, (n, D) Σ log variance over
    hidden coordinates, and the (r, r) form of `row_form` where asked for."""

    quadratics: Tensor
    logs: Tensor
    form: Tensor | None


@dataclass(frozen=True)
class _Problem:
    """A covariance as scales and correlations: conditional variances then lie between 1 / condition number and 1.

    Attributes:
        correlation: (D, D).
        scale: (D,).
        rows: (D, r) the centred rows in units of the scales, transposed.
        blocks: of columns.
    """

    correlation: Tensor
    scale: Tensor
    rows: Tensor
    blocks: list[Columns]

    @classmethod
    def of(cls, covariance: Tensor, centred: Tensor) -> _Problem:
        scale = covariance.diagonal().sqrt()
        rows = (centred / scale).T.contiguous()
        return cls(covariance / scale / scale[:, None], scale, rows, column_blocks(len(scale), covariance))

    @property
    def sizes(self) -> Tensor:
        """(D,) 1..D."""
        return torch.cat([at.sizes for at in self.blocks])

    def normaliser(self, logs: Tensor, orders: Tensor) -> Tensor:
        """(n, D) mean over the hidden coordinates of ½ log(2π variance), in the units of the data."""
        log_scale = self.scale.log()[orders.flip(1)].cumsum(1)
        return (0.5 * logs + log_scale) / self.sizes + 0.5 * LOG_2PI

    def row_sums(self, orders: Tensor, data_term: DataTerm, *, first: bool) -> tuple[Tensor, Tensor]:
        """(n, N, D) the data term of each row, rows in groups that fit the cache; (n, D) Σ log variance."""
        factor, alpha = whitened(self.correlation, self.rows, orders, "covariance", check=first)
        n_together = max(1, WIDTH * 2**12 // (len(orders) * len(self.scale) * min(WIDTH, len(self.scale))))
        groups = alpha.mT.split(n_together, 1)
        carries = [group[..., :0] for group in groups]
        data, logs = [], []
        for block in tails(factor, self.blocks):
            terms = []
            for i, group in enumerate(groups):
                quadratic, carries[i] = row_quadratics(block, group, carries[i])
                terms.append(data_term(quadratic, group, block.at))
            data.append(torch.cat(terms, 1))
            logs.append(sum_logs(block.variance))
        return torch.cat(data, -1), torch.cat(logs, -1)

    def moment_sums(self, orders: Tensor, *, first: bool, form: bool) -> _MomentSums:
        """Many rows: they enter by their second moments alone."""
        factor, alpha = whitened(self.correlation, self.rows, orders, "covariance", check=first)
        carry = factor.new_zeros(len(factor), 0)
        blocks, quadratics, logs = [], [], []
        for block in tails(factor, self.blocks):
            half, carry = moment_quadratics(block, factor, alpha, carry)
            quadratics.append(half.sum(-2))
            logs.append(sum_logs(block.variance))
            if form:
                blocks.append(block)
        summed = row_form(factor, blocks, alpha) if form else None
        return _MomentSums(torch.cat(quadratics, -1), torch.cat(logs, -1), summed)
