"""Whole score curves of Gaussian conditionals: one Cholesky factor an order, then sums over the tails of its rows.

With L = chol of the correlation matrix in the order of revelation and α = L⁻¹z, the conditional of coordinate j given
the first t ones has variance Σ_{s≥t} L_js² and residual Σ_{s≥t} L_js α_s. Everything here works on F = JLJ, rows and
columns reversed: tail sums become running sums along contiguous rows, and column m - 1 belongs to mask size m.

Work is cut twice: into chunks of orders whose matrices stay in cache, and into blocks of columns, which skip the zero
half of every triangle. All of it is differentiable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from mpt_bayes.numerics.cholesky import check_condition, cholesky
from mpt_bayes.numerics.log_space import LOG_2PI

WIDTH = 128
"""Columns of a block: wide enough for matrix products, narrow enough to skip most of the empty triangle."""
FEW_ROWS = 8
"""Up to here residuals row by row cost less than the matrix products of the second moments."""
_CACHE_ELEMENTS = {"cpu": 2**18}
_MEMORY_ELEMENTS = 2**26


def orders_per_chunk(dim: int, device: torch.device) -> int:
    """How many D × D matrices to work on at once: what stays in cache on a CPU, half a gigabyte elsewhere."""
    return max(1, _CACHE_ELEMENTS.get(device.type, _MEMORY_ELEMENTS) // dim**2)


@dataclass(frozen=True)
class Tails:
    """Columns lo..hi - 1 of F (n, hi, hi - lo) and the conditional variances there: 1 above a row's own step."""

    lo: int
    hi: int
    factor: Tensor
    variance: Tensor

    @property
    def sizes(self) -> Tensor:
        """(width,) the mask size of each column."""
        return torch.arange(self.lo + 1, self.hi + 1, dtype=self.factor.dtype, device=self.factor.device)


def reversed_factor(covariance: Tensor, orders: Tensor, what: str, *, check: bool) -> Tensor:
    """(n, D, D) upper triangular F = JLJ with L the Cholesky factor of the (D, D) covariance in each order.

    `check` refuses a matrix too nearly singular for its type; one chunk of orders is enough.
    """
    dim = covariance.shape[-1]
    rows = covariance[orders]
    permuted = rows.gather(2, orders[:, None, :].expand(-1, dim, -1))
    del rows  # at N = 5,000 every matrix counts
    lower = cholesky(permuted.mT, what, upper=True).mT  # both transpositions spare LAPACK's column order a copy
    factor: Tensor = lower.flatten(1).flip(1).view_as(permuted)
    if check:
        check_condition(factor[0].detach(), what)
    return factor


def whitened(factor: Tensor, rows: Tensor, orders: Tensor) -> Tensor:
    """(n, D, r) α of each of the r rows (r, D), in reversed order: F⁻¹ applied to the rows as they are revealed."""
    revealed = rows.T.contiguous()[orders.flip(1)]
    alpha: Tensor = torch.linalg.solve_triangular(factor.mT, revealed.mT, upper=False, left=False)  # in memory order
    return alpha.mT


def tails(factor: Tensor) -> Iterator[Tails]:
    """The conditional variances of every (size, hidden coordinate), block of columns by block of columns."""
    dim = factor.shape[-1]
    carry = factor.new_zeros(len(factor), 0)
    for lo in range(0, dim, WIDTH):
        hi = min(dim, lo + WIDTH)
        block = factor[:, :hi, lo:hi]
        variance = _running(block.square(), carry)
        carry = variance[..., -1]
        variance[:, lo:] += torch.ones_like(variance[0, lo:]).tril(-1)  # steps before a row's own hide nothing of it
        yield Tails(lo, hi, block, variance)


def _running(increments: Tensor, carry: Tensor) -> Tensor:
    """Running sums along the last axis, going on from `carry` (the rows that earlier blocks had)."""
    increments[..., : carry.shape[-1], 0] += carry
    return increments.cumsum(-1)


def sum_after(values: Tensor) -> Tensor:
    """Sums over the later entries of the last axis, each entry itself left out."""
    return pad(values.flip(-1).cumsum(-1).flip(-1)[..., 1:], (0, 1))


def sum_logs(values: Tensor) -> Tensor:
    """Σ log over the second last axis of positive numbers, one logarithm for every eight of them.

    Products of eight conditional variances of a correlation matrix stay far inside the range of the type whenever the
    matrix passes the condition check.
    """
    total = values.new_zeros(())
    for _ in range(3):
        half = values.shape[-2] // 2
        if values.shape[-2] % 2:
            total = total + values[..., -1, :].log()
        values = values[..., :half, :] * values[..., half : 2 * half, :]
    return total + values.log().sum(-2)


def row_quadratics(block: Tails, alpha: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
    """(n, r, hi, width) squared residuals over variances of r rows with α (n, r, D); the carry for the next block."""
    increments = block.factor[:, None] * alpha[:, :, None, block.lo : block.hi]
    residual = _running(increments, carry)
    return residual.square() / block.variance[:, None], residual[..., -1]


def moment_quadratics(block: Tails, factor: Tensor, alpha: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
    """½ Σ over rows of squared residuals over variances (n, hi, width), and the carry for the next block.

    With C = Σ_rows α αᵀ half the summed squared residual is the running sum over s of F_js (F E)_js, E the upper
    triangle of C with half its diagonal: two matrix products, whatever the number of rows.
    """
    lo, hi = block.lo, block.hi
    moments = alpha[:, :hi] @ alpha[:, lo:hi].mT
    half = torch.ones(hi - lo, hi - lo, dtype=moments.dtype, device=moments.device).triu()
    half.diagonal().mul_(0.5)
    moments[:, lo:] *= half
    product = factor[:, lo:hi, lo:hi] @ moments[:, lo:]  # the rows below have no earlier columns
    if lo:
        product = torch.cat([factor[:, :lo, :hi] @ moments, product], 1)
    residual = _running(block.factor * product, carry)
    return residual / block.variance, residual[..., -1]


def row_form(factor: Tensor, blocks: list[Tails], alpha: Tensor) -> Tensor:
    """(r, r) G with G_rr the sum over orders and sizes of one row's mean quadratic, Σ_m (1/m) Σ_j residual²/variance.

    That sum is a quadratic form αᵀMα with M_ss' = Σ_j F_js F_js' Σ_{t≥max(s,s')} 1/((t + 1) variance_jt); G is
    summed over orders in the space of the rows, so the value of every row costs no more than those of D rows.
    """
    dim = factor.shape[-1]
    weighted = torch.zeros_like(factor)
    for b in blocks:
        weighted[:, : b.hi, b.lo : b.hi] = 1 / (b.variance * b.sizes)
    weighted = weighted.flip(-1).cumsum(-1).flip(-1) * factor
    products = []
    for lo in range(0, dim, WIDTH):
        hi = min(dim, lo + WIDTH)
        half = torch.ones(hi, hi - lo, dtype=factor.dtype, device=factor.device).triu(-lo)
        half.diagonal(-lo).mul_(0.5)
        products.append((factor[:, :hi, :hi].mT @ weighted[:, :hi, lo:hi] * half).mT @ alpha[:, :hi])
    form = torch.cat(products, 1).flatten(0, 1).T @ alpha.flatten(0, 1)
    return form + form.T


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


DataTerm = Callable[[Tensor, Tensor, Tails], Tensor]
"""From (n, r, hi, width) squared residuals over variances, the (n, r, D) α of the rows and the block: (n, r, width),
the sum over hidden coordinates of the part of the log-density that depends on the data."""


def gaussian_term(quadratic: Tensor, alpha: Tensor, block: Tails) -> Tensor:
    """-½ Σ_j residual² / variance."""
    return -0.5 * quadratic.sum(-2)


def row_curves(covariance: Tensor, centred: Tensor, orders: Tensor, data_term: DataTerm = gaussian_term) -> Tensor:
    """(N, n, D) mean log-density of the last m coordinates of each order, each given the visible ones, row by row.

    The rest of the log-density is that of a Gaussian, -½ log(2π variance).
    """
    problem = _Standardised.of(covariance)
    parts = orders.split(orders_per_chunk(len(covariance), covariance.device))
    return torch.cat([problem.row_curves(centred, part, data_term, first=not i) for i, part in enumerate(parts)], 1)


def gaussian_totals(
    covariance: Tensor, x: Tensor, mean: Tensor, orders: Tensor, *, per_row: bool
) -> tuple[Tensor, Tensor | None]:
    """(n, D) curves summed over rows, and (N,) the mean over orders of each row's Σ_m s(M) if `per_row`.

    More than a few rows enter by their second moments: the time is flat in N beyond one QR factorisation.
    """
    if len(x) <= FEW_ROWS:
        each = row_curves(covariance, x - mean, orders)
        return each.sum(0), each.sum(2).mean(1) if per_row else None
    problem = _Standardised.of(covariance)
    parts = orders.split(orders_per_chunk(len(covariance), covariance.device))
    rows, basis = compressed_rows(x, mean, with_basis=per_row)
    rows = rows / problem.scale
    curves, normalisers, forms = [], [], []
    for i, part in enumerate(parts):
        moments = _Moments.of(problem, rows, part, first=not i)
        curve, normaliser = moments.curves(len(x))
        curves.append(curve)
        normalisers.append(normaliser)
        if per_row:
            forms.append(moments.form())
    if not per_row:
        return torch.cat(curves), None
    form = torch.stack(forms).sum(0)
    quadratic = form.diagonal() if basis is None else (basis @ form * basis).sum(1)
    return torch.cat(curves), -(0.5 * quadratic / len(orders) + torch.cat(normalisers).sum(1).mean())


@dataclass(frozen=True)
class _Standardised:
    """A covariance as scales and correlations: conditional variances then lie between 1 / condition number and 1."""

    correlation: Tensor
    scale: Tensor

    @classmethod
    def of(cls, covariance: Tensor) -> _Standardised:
        scale = covariance.diagonal().sqrt()
        return cls(covariance / scale / scale[:, None], scale)

    def row_curves(self, centred: Tensor, orders: Tensor, data_term: DataTerm, *, first: bool) -> Tensor:
        """(N, n, D), rows in groups that fit the cache."""
        factor = reversed_factor(self.correlation, orders, "covariance", check=first)
        alpha = whitened(factor, centred / self.scale, orders).mT  # (n, N, D)
        n_together = max(1, WIDTH * 2**12 // (len(orders) * len(self.scale) * min(WIDTH, len(self.scale))))
        groups = alpha.split(n_together, 1)
        carries = [group[..., :0] for group in groups]
        columns = []
        for block in tails(factor):
            terms = []
            for i, group in enumerate(groups):
                quadratic, carries[i] = row_quadratics(block, group, carries[i])
                terms.append(data_term(quadratic, group, block))
            columns.append(torch.cat(terms, 1) / block.sizes - self.normaliser(block, orders)[:, None])
        return torch.cat(columns, -1).transpose(0, 1)

    def normaliser(self, block: Tails, orders: Tensor) -> Tensor:
        """(n, width) mean over the hidden coordinates of ½ log(2π variance), in the units of the data."""
        log_scale = self.scale.log()[orders.flip(1)].cumsum(1)[:, block.lo : block.hi]
        return (0.5 * sum_logs(block.variance) + log_scale) / block.sizes + 0.5 * LOG_2PI


@dataclass(frozen=True)
class _Moments:
    """Many rows on a chunk of orders: they enter by their second moments alone."""

    problem: _Standardised
    orders: Tensor
    factor: Tensor
    alpha: Tensor
    blocks: list[Tails]

    @classmethod
    def of(cls, problem: _Standardised, rows: Tensor, orders: Tensor, *, first: bool) -> _Moments:
        factor = reversed_factor(problem.correlation, orders, "covariance", check=first)
        return cls(problem, orders, factor, whitened(factor, rows, orders), list(tails(factor)))

    def curves(self, n_rows: int) -> tuple[Tensor, Tensor]:
        """(n, D) curves summed over the rows, and the (n, D) part of one row that does not depend on its data."""
        carry = self.factor.new_zeros(len(self.factor), 0)
        columns, normalisers = [], []
        for block in self.blocks:
            half, carry = moment_quadratics(block, self.factor, self.alpha, carry)
            normalisers.append(self.problem.normaliser(block, self.orders))
            columns.append(-half.sum(-2) / block.sizes - n_rows * normalisers[-1])
        return torch.cat(columns, -1), torch.cat(normalisers, -1)

    def form(self) -> Tensor:
        """(r, r) sum over orders of the quadratic form that gives each row's total."""
        return row_form(self.factor, self.blocks, self.alpha)
