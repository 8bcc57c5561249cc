"""What the benchmarks of the Gaussian engine share: the clock, the published setting, orders."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import mpt_bayes as mb

NOISE = 0.2


def best(contenders: dict[str, Callable[[], object]], clock: Callable[[], float], runs: int) -> dict[str, float]:
    """Seconds of each, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(runs + 1):  # the first warms up
        for name, work in contenders.items():
            start = clock()
            work()
            if run:
                times[name].append(clock() - start)
    return {name: min(values) for name, values in times.items()}


def setting(n: int, dim: int, latent_dim: int) -> tuple[mb.models.PPCA, Tensor]:
    g = torch.Generator().manual_seed(1991)
    loading = torch.randn(dim, latent_dim, generator=g, dtype=torch.float64)
    x = torch.randn(n, latent_dim, generator=g, dtype=torch.float64) @ loading.T
    return mb.models.PPCA(loading, NOISE), x + NOISE**0.5 * torch.randn(n, dim, generator=g, dtype=torch.float64)


def orders_of(n: int, dim: int) -> Tensor:
    g = torch.Generator().manual_seed(7)
    return torch.stack([torch.randperm(dim, generator=g) for _ in range(n)])
