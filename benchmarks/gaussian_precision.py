"""Errors of the Gaussian engine against 60-digit arithmetic as the condition number grows, dense and low rank.

python -m benchmarks.gaussian_precision

Six random covariances a condition number (four of 7 coordinates, two of 20), and six PPCA models; the worst relative
error over sizes and rows, |a - b| / (1 + |b|).
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

import mpt_bayes as mb
from mpt_bayes.errors import MptBayesWarning
from tests.gaussian_examples import precise_curve, random_orders, with_condition

CASES = [(7, seed) for seed in range(4)] + [(20, seed) for seed in range(2)]


def error(found: Tensor, exact: Tensor) -> float:
    return float(((found - exact).abs() / (1 + exact.abs())).max())


def dense(condition: float, dim: int, seed: int) -> float:
    model, x = with_condition(condition, dim, seed)
    x, orders = x[: 70 // dim], random_orders(1, dim, seed)
    exact = torch.stack([precise_curve(model.covariance, row, orders[0].tolist()) for row in x])
    return error(model.order_curve(x, orders)[:, 0], exact)


def low_rank(condition: float, dim: int, seed: int) -> float:
    """W Wᵀ + I with the largest eigenvalue at about the condition number; its covariance has integer entries, so that
    60 digits start from the same numbers."""
    g = torch.Generator().manual_seed(seed)
    loading = torch.randn(dim, 2, dtype=torch.float64, generator=g)
    loading = (loading * (condition**0.5 / torch.linalg.matrix_norm(loading, 2))).round()
    x = torch.randn(1, 2, dtype=torch.float64, generator=g) @ loading.T
    x = x + torch.randn(1, dim, dtype=torch.float64, generator=g)
    orders = random_orders(1, dim, seed)
    covariance = loading @ loading.T + torch.eye(dim, dtype=torch.float64)
    exact = precise_curve(covariance, x[0], orders[0].tolist())
    return error(mb.models.PPCA(loading, 1.0).order_curve(x, orders)[0, 0], exact)


def main() -> None:
    warnings.simplefilter("ignore", MptBayesWarning)
    for condition in (1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 5e11):
        worst = {f.__name__: max(f(condition, dim, seed) for dim, seed in CASES) for f in (dense, low_rank)}
        print(f"{condition:.0e}", {name: f"{value:.1e}" for name, value in worst.items()}, flush=True)


if __name__ == "__main__":
    main()
