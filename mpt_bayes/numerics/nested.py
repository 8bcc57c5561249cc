"""The nested masks of an order, all at once: one Cholesky factor, then sums over the tails of its rows.

With L = chol of the correlation matrix in the order of revelation and α = L⁻¹z, the conditional of coordinate j given
the first t ones has variance Σ_{s≥t} L_js² and residual Σ_{s≥t} L_js α_s. Everything here works on F = JLJ, rows and
columns reversed: tail sums become running sums along contiguous rows, and column m - 1 belongs to mask size m.

Columns are taken in blocks, which skip the zero half of every triangle. All of it is differentiable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from mpt_bayes.numerics.cholesky import cholesky
from mpt_bayes.numerics.condition import check_condition

WIDTH = 128
"""Columns of a block: wide enough for matrix products, narrow enough to skip most of the empty triangle."""


_KEPT_ELEMENTS = 2**21


def keep_freed_memory() -> None:
    """Allocate and free one large block, untouched.

    glibc returns smaller blocks than the largest one freed so far to its own lists, not to the system; without this,
    chunk after chunk is given back and faulted in again, for half of the time at D = 50.
    """
    torch.empty(_KEPT_ELEMENTS, dtype=torch.float64)


@dataclass(frozen=True)
class Columns:
    """Columns lo..hi - 1 of F, those of mask sizes lo + 1..hi.

    Attributes:
        sizes: (width,) the mask size of each.
        half: (width, width) upper triangle of ones, half its diagonal.
        before: (width, width) 1 below the diagonal, at steps before a row's own.
    """

    lo: int
    hi: int
    sizes: Tensor
    half: Tensor
    before: Tensor


@dataclass(frozen=True)
class Tails:
    """Columns of F (n, hi, width) and the conditional variances there: 1 above a row's own step."""

    at: Columns
    factor: Tensor
    variance: Tensor


def column_blocks(dim: int, like: Tensor) -> list[Columns]:
    """The blocks that cover D columns, with constants of the type and on the device of `like`."""
    blocks = []
    for lo in range(0, dim, WIDTH):
        hi = min(dim, lo + WIDTH)
        ones = torch.ones(hi - lo, hi - lo, dtype=like.dtype, device=like.device)
        half = ones.triu()
        half.diagonal().mul_(0.5)
        sizes = torch.arange(lo + 1, hi + 1, dtype=like.dtype, device=like.device)
        blocks.append(Columns(lo, hi, sizes, half, ones.tril_(-1)))
    return blocks


def whitened(correlation: Tensor, rows: Tensor, orders: Tensor, what: str, *, check: bool) -> tuple[Tensor, Tensor]:
    """F (n, D, D) in each order, and α = F⁻¹ of the rows in reversed order, (n, D, r) from their transpose (D, r).

    `check` judges whether the matrix is too nearly singular for its type; one chunk of orders is enough.
    """
    dim = len(correlation)
    permuted = _rows_of(correlation, orders).gather(2, orders[:, None, :].expand(-1, dim, -1))
    lower = cholesky(permuted.mT, what, upper=True).mT  # both transpositions spare LAPACK's column order a copy
    del permuted  # at N = 5,000 every matrix counts
    if check:
        check_condition(correlation.detach(), lower[0].detach(), what)
    alpha = torch.linalg.solve_triangular(lower, _rows_of(rows, orders), upper=False).flip(1)
    return lower.flatten(1).flip(1).view_as(lower), alpha


def _rows_of(matrix: Tensor, orders: Tensor) -> Tensor:
    """matrix[orders], copied row by row."""
    rows: Tensor = matrix.index_select(0, orders.flatten()).unflatten(0, orders.shape)
    return rows


def tails(factor: Tensor, blocks: list[Columns]) -> Iterator[Tails]:
    """The conditional variances of every (size, hidden coordinate), block of columns by block of columns."""
    carry = factor.new_zeros(len(factor), 0)
    for at in blocks:
        columns = factor[:, : at.hi, at.lo : at.hi]
        variance = _running(columns.square(), carry)
        carry = variance[..., -1]
        variance[:, at.lo :] += at.before  # steps before a row's own hide nothing of it
        yield Tails(at, columns, variance)


def _running(increments: Tensor, carry: Tensor) -> Tensor:
    """Running sums along the last axis, going on from `carry` (the rows that earlier blocks had)."""
    if carry.shape[-1]:
        increments[..., : carry.shape[-1], 0] += carry
    return increments.cumsum_(-1)


def sum_after(values: Tensor) -> Tensor:
    """Sums over the later entries of the last axis, each entry itself left out."""
    return pad(values.flip(-1).cumsum(-1).flip(-1)[..., 1:], (0, 1))


def sum_logs(values: Tensor) -> Tensor:
    """Σ log over the second last axis of positive numbers, one logarithm for every eight of them.

    Products of eight conditional variances of a correlation matrix stay far inside the range of the type whenever the
    matrix passes the condition check.
    """
    by_eights, rest = values.tensor_split([values.shape[-2] // 8 * 8], -2)
    logs: Tensor = by_eights.unflatten(-2, (-1, 8)).prod(-2).log().sum(-2) + rest.prod(-2).log()
    return logs


def row_quadratics(block: Tails, alpha: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
    """(n, r, hi, width) squared residuals over variances of r rows with α (n, r, D); the carry for the next block."""
    increments = block.factor[:, None] * alpha[:, :, None, block.at.lo : block.at.hi]
    residual = _running(increments, carry)
    return residual.square() / block.variance[:, None], residual[..., -1]


def moment_quadratics(block: Tails, factor: Tensor, alpha: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
    """½ Σ over rows of squared residuals over variances (n, hi, width), and the carry for the next block.

    With C = Σ_rows α αᵀ half the summed squared residual is the running sum over s of F_js (F E)_js, E the upper
    triangle of C with half its diagonal: two matrix products, whatever the number of rows.
    """
    lo, hi = block.at.lo, block.at.hi
    moments = torch.bmm(alpha[:, :hi], alpha[:, lo:hi].mT)
    moments[:, lo:] *= block.at.half
    product = torch.bmm(factor[:, lo:hi, lo:hi], moments[:, lo:])  # the rows below have no earlier columns
    if lo:
        product = torch.cat([torch.bmm(factor[:, :lo, :hi], moments), product], 1)
    residual = _running(product.mul_(block.factor), carry)
    return residual / block.variance, residual[..., -1]


def row_form(factor: Tensor, blocks: list[Tails], alpha: Tensor) -> Tensor:
    """(r, r) G with G_rr the sum over orders and sizes of one row's mean quadratic, Σ_m (1/m) Σ_j residual²/variance.

    That sum is a quadratic form αᵀMα with M_ss' = Σ_j F_js F_js' Σ_{t≥max(s,s')} 1/((t + 1) variance_jt); G is
    summed over orders in the space of the rows, so the value of every row costs no more than those of D rows.
    """
    weighted = torch.zeros_like(factor)
    for b in blocks:
        weighted[:, : b.at.hi, b.at.lo : b.at.hi] = 1 / (b.variance * b.at.sizes)
    weighted = weighted.flip(-1).cumsum(-1).flip(-1) * factor
    products = []
    for b in blocks:
        lo, hi = b.at.lo, b.at.hi
        product = factor[:, :hi, :hi].mT @ weighted[:, :hi, lo:hi]
        product[:, lo:] *= b.at.half
        products.append(product.mT @ alpha[:, :hi])
    form = torch.cat(products, 1).flatten(0, 1).T @ alpha.flatten(0, 1)
    return form + form.T
