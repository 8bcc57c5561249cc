"""Gaussians of a given condition number, and their curves in 60-digit arithmetic."""

import mpmath
import torch

import mpt_bayes as mb


def random_orders(n, dim, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(dim, generator=g) for _ in range(n)])


def precise_curve(covariance, x, order):
    """One curve in 60-digit arithmetic, by the definition: a solve for every mask."""
    mpmath.mp.dps = 60
    a = mpmath.matrix(covariance.tolist())
    value = [mpmath.mpf(v) for v in x.tolist()]
    dim = len(order)
    curve = []
    for size in range(1, dim + 1):
        seen, hidden = order[: dim - size], order[dim - size :]
        inner = mpmath.matrix([[a[i, j] for j in seen] for i in seen]) if seen else None
        total = mpmath.mpf(0)
        for j in hidden:
            mean, variance = mpmath.mpf(0), a[j, j]
            if seen:
                cross = mpmath.matrix([a[j, i] for i in seen])
                weights = mpmath.lu_solve(inner, cross)
                mean = sum(w * value[i] for w, i in zip(weights, seen, strict=True))
                variance -= sum(w * c for w, c in zip(weights, cross, strict=True))
            total -= ((value[j] - mean) ** 2 / variance + mpmath.log(2 * mpmath.pi * variance)) / 2
        curve.append(float(total / size))
    return torch.tensor(curve, dtype=torch.float64)


def with_condition(condition, dim=7, seed=7):
    """A model whose covariance has this condition number, and ten rows of its law."""
    g = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64, generator=g)).Q
    spectrum = torch.logspace(0, -torch.tensor(condition).log10().item(), dim, dtype=torch.float64)
    covariance = basis * spectrum @ basis.T
    covariance = (covariance + covariance.T) / 2
    x = torch.randn(10, dim, dtype=torch.float64, generator=g) * spectrum.sqrt() @ basis.T
    return mb.models.Gaussian(torch.zeros(dim), covariance), x
