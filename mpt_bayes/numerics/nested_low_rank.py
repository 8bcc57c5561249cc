"""Whole score curves of Σ = W Wᵀ + Ψ through K × K square roots: no D × D matrix is ever formed.

In units of the noise (w_j / √ψ_j, x_j / √ψ_j) the latent posterior given the first t coordinates has precision RᵀR, R
found by an orthogonal update a step (square-root information filter, Bierman 1977), which keeps the precision that
forming I + Σ w wᵀ would square away; S_t = R⁻¹. With ẑ and e = x - W ẑ the posterior mean and the residuals given
EVERYTHING, and g_t = ẑ - Σ_{s<t} w_s e_s,

    variance_{j|t} = 1 + |S_tᵀ w_j|²            residual_{j|t} = e_j + w_jᵀ S_t S_tᵀ g_t,

where rounding in g_t lies along coordinates already visible, which S_t damps. Coordinates are in reversed order, as in
`nested`: column m - 1 belongs to mask size m.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mpt_bayes.numerics.condition import refuse_condition
from mpt_bayes.numerics.log_space import LOG_2PI
from mpt_bayes.numerics.nested import keep_freed_memory, sum_after, sum_logs

_ELEMENTS = 2**18
"""Numbers in one working array: blocks of columns and groups of orders are cut to this."""


def low_rank_row_curves(loading: Tensor, noise: Tensor, centred: Tensor, orders: Tensor) -> Tensor:
    """(N, n, D) mean log-density of the last m coordinates of each order, each given the visible ones, row by row."""
    keep_freed_memory()
    groups = orders.split(_orders_together(loading, len(centred)))
    return torch.cat([_Chain.of(loading, noise, centred, group).row_curves() for group in groups], 1)


def low_rank_totals(loading: Tensor, noise: Tensor, centred: Tensor, n_rows: int, orders: Tensor) -> Tensor:
    """(n, D) curves of `n_rows` rows summed, from (r, D) rows with the same second moments: r D² + K² D² an order."""
    keep_freed_memory()
    groups = orders.split(_orders_together(loading, 1))
    return torch.cat([_Chain.of(loading, noise, centred, group).totals(n_rows) for group in groups])


def _orders_together(loading: Tensor, n_rows: int) -> int:
    dim, latent_dim = loading.shape
    return max(1, _ELEMENTS // (dim * max(latent_dim**2, latent_dim * n_rows, 1)))


@dataclass(frozen=True)
class _Chain:
    """A group of orders, everything in reversed order.

    Attributes:
        loading: (n, D, K) w_j / √ψ_j.
        roots: (n, D, K, K) S of the coordinates with a larger index, those revealed before.
        latent: (K, r) ẑ, the posterior mean given everything.
        residual: (n, r, D) e.
        log_scale: (n, D) running sums of ½ log ψ.
    """

    loading: Tensor
    roots: Tensor
    latent: Tensor
    residual: Tensor
    log_scale: Tensor

    @classmethod
    def of(cls, loading: Tensor, noise: Tensor, centred: Tensor, orders: Tensor) -> _Chain:
        """All square roots by QR updates, and the posterior of every row, for a group of orders."""
        reverse = orders.flip(1)
        scale = noise.sqrt()
        scaled = loading / scale[:, None]
        refuse_condition(1 + float(torch.linalg.matrix_norm(scaled.detach(), 2)) ** 2, loading.dtype, "W Wᵀ + Ψ")
        steps = scaled[reverse]
        identity = torch.eye(loading.shape[1], dtype=loading.dtype, device=loading.device)
        triangle = identity.expand(len(orders), -1, -1)
        triangles = []
        for step in steps.unbind(1)[::-1]:
            triangles.append(triangle)
            triangle = torch.linalg.qr(torch.cat([triangle, step[:, None]], 1)).R
        roots = torch.linalg.solve_triangular(torch.stack(triangles[::-1], 1), identity, upper=True)
        orthogonal, triangle = torch.linalg.qr(torch.cat([scaled, identity]))  # normal equations would lose e
        rows = centred / scale
        latent = torch.linalg.solve_triangular(triangle, orthogonal[: len(scale)].T @ rows.T, upper=True)
        residual = (rows - (scaled @ latent).T)[:, reverse].transpose(0, 1)
        return cls(steps, roots, latent, residual, scale.log()[reverse].cumsum(1))

    def row_curves(self) -> Tensor:
        """(r, n, D)."""
        columns = []
        pulls = self.residual[:, :, None] * self.loading[:, None].mT  # (n, r, K, D)
        gaps = self.latent.T[:, :, None] - sum_after(pulls)
        for lo, hi, spread, variance in self._blocks(self.residual.shape[1]):
            posterior = gaps[..., lo:hi].permute(0, 3, 1, 2) @ self.roots[:, lo:hi]  # (n, width, r, K)
            residual = self.residual[:, None, :, :hi] + posterior @ spread  # (n, width, r, hi)
            hidden = _hidden(lo, hi, residual.device)[:, None]
            quadratic = torch.where(hidden, residual.square() / variance[:, :, None], 0).sum(-1)
            mean_term = -0.5 * quadratic.transpose(1, 2) / self._sizes(lo, hi)
            columns.append(mean_term - self._normaliser(lo, variance)[:, None])
        return torch.cat(columns[::-1], -1).transpose(0, 1)

    def totals(self, n_rows: int) -> Tensor:
        """(n, D): rows enter by E = eᵀe, of which only a block of columns exists at a time."""
        columns = []
        energy = self.residual.square().sum(1)  # (n, D)
        cross = self.latent @ self.residual  # (n, K, D): Σ_rows g_t e_j
        moment = (self.latent @ self.latent.T)[..., None]  # (K, K, 1): Σ_rows g_t g_tᵀ
        for lo, hi, spread, variance in self._blocks(1):
            steps = self.loading[:, lo:hi].mT  # (n, K, width)
            shared = self.residual[:, :, :hi].mT @ self.residual[:, :, lo:hi]  # (n, hi, width) of E
            products = steps[:, :, None] * shared[:, None]  # (n, K, hi, width)
            crossed = cross[:, :, :hi, None] - sum_after(products)
            cross = cross[:, :, :hi] - products.sum(-1)
            own = crossed[:, :, lo:hi].diagonal(dim1=2, dim2=3)  # (n, K, width)
            change = steps[:, :, None] * (steps * energy[:, None, lo:hi] - own)[:, None]
            change = change - own[:, :, None] * steps[:, None]
            moments = moment + sum_after(change)
            moment = moment + change.sum(-1, keepdim=True)
            shift = self.roots[:, lo:hi] @ spread  # (n, width, K, hi)
            inner = 2 * crossed.permute(0, 3, 1, 2) + moments.permute(0, 3, 1, 2) @ shift
            summed = energy[:, None, :hi] + (shift * inner).sum(2)
            quadratic = torch.where(_hidden(lo, hi, summed.device), summed / variance, 0).sum(-1)
            columns.append(-0.5 * quadratic / self._sizes(lo, hi) - n_rows * self._normaliser(lo, variance))
        return torch.cat(columns[::-1], -1)

    def _blocks(self, n_rows: int) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """lo, hi, Sᵀw (n, width, K, hi) and the variances (n, width, hi), 1 where visible; last columns first."""
        n, dim, latent_dim = self.loading.shape
        width = max(1, _ELEMENTS // (n * dim * max(latent_dim, n_rows, 1)))
        for lo in reversed(range(0, dim, width)):
            hi = min(dim, lo + width)
            spread = self.roots[:, lo:hi].mT @ self.loading[:, None, :hi].mT
            variance = 1 + spread.square().sum(2)
            yield lo, hi, spread, torch.where(_hidden(lo, hi, variance.device), variance, 1)

    def _sizes(self, lo: int, hi: int) -> Tensor:
        return torch.arange(lo + 1, hi + 1, dtype=self.loading.dtype, device=self.loading.device)

    def _normaliser(self, lo: int, variance: Tensor) -> Tensor:
        """(n, width) mean over hidden coordinates of ½ log(2π variance), in the units of the data."""
        hi = lo + variance.shape[1]
        return (0.5 * sum_logs(variance.mT) + self.log_scale[:, lo:hi]) / self._sizes(lo, hi) + 0.5 * LOG_2PI


def _hidden(lo: int, hi: int, device: torch.device) -> Tensor:
    """(width, hi) whether coordinate j ≤ s is hidden when the mask is that of column s."""
    return torch.ones(hi - lo, hi, dtype=torch.bool, device=device).tril(lo)
