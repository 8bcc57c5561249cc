"""The Fourier regression of Lotfi et al. (2022): evidence and conditional evidence prefer different models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mpt_bayes as mb


def fourier_features(x: np.ndarray, order: int) -> np.ndarray:
    """(n, 2·order): all sines, then all cosines."""
    grid = x[:, None] * np.arange(1, order + 1)
    return np.concatenate([np.sin(grid), np.cos(grid)], 1)


def fourier_data(n: int) -> tuple[np.ndarray, Tensor]:
    """Inputs, and the responses as one row of n coordinates."""
    random = np.random.RandomState(15)
    weights = (random.randn(2, 9) / (np.arange(9) + 1) ** 2).ravel()
    random = np.random.RandomState(6)
    x = np.linspace(0, 10, 500)
    random.shuffle(x)
    y = fourier_features(x, 9) @ weights + 0.1 * random.randn(500)
    return x[:n], torch.as_tensor(y[:n])[None]


def fourier_model(x: np.ndarray, order: int, *, decaying: bool = False) -> mb.models.PPCA:
    """y ~ N(0, F diag(prior) Fᵀ + 0.01 I), prior variances 1, or 1 / d⁴ at frequency d."""
    degree = torch.arange(1, order + 1, dtype=torch.float64).repeat(2)
    scale = degree**-2 if decaying else torch.ones_like(degree)
    return mb.models.PPCA(torch.as_tensor(fourier_features(x, order)) * scale, 0.01)


def run(config: dict[str, Any], out: Path) -> None:
    """The three models side by side, and the conditional evidence at every visible share."""
    x, y = fourier_data(config["n"])
    models = {
        "order 3": fourier_model(x, 3),
        "order 9": fourier_model(x, 9),
        "order 9, decaying prior": fourier_model(x, 9, decaying=True),
    }
    design = mb.masks.RandomOrders(config["orders"])
    table = mb.compare_models(models, y, fractions=config["fractions"], design=design)
    (out / "results.json").write_text(json.dumps(table.to_dict(), indent=1), encoding="utf-8")
    _draw(table, out / "figure.png")
    print(table)


def _draw(table: mb.ModelComparison, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 3.8), dpi=100, layout="constrained")
    for name, curve in table.curves.items():
        hidden = curve.sizes[::-1]
        ax.plot(1 - hidden / len(hidden), curve.partials[::-1] / hidden, label=name)
    ax.set_xlabel("visible share of the 100 points")
    ax.set_ylabel("conditional evidence, nats per hidden point")
    ax.legend(frameon=False)
    figure.savefig(path)
