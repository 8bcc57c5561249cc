"""The area under the score curve at D = 200 from 1 and from 100 masks of every size, and one fixed size at K = 50."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import mpt_bayes as mb
from experiments.ppca_data import GENERATORS, ppca_setting


def run(config: dict[str, Any], out: Path) -> None:
    """Score curves from nested masks (a random order holds one of every size); nats per datum."""
    found = []
    for generator in GENERATORS:
        for latent_dim in (5, 50):
            model, x = ppca_setting(generator, config["rows"], config["dim"], latent_dim, 1991)
            exact = float(model.log_marginal_likelihood(x).mean())
            for n_orders in config["orders"]:
                design = mb.masks.RandomOrders(n_orders)
                random = torch.Generator().manual_seed(0)
                curve = mb.score_curve(model, x, design=design, generator=random, per_row=False).per_datum
                size = config["fixed_size"]
                found.append(
                    {
                        "generator": generator,
                        "K": latent_dim,
                        "masks per size": n_orders,
                        "exact": exact,
                        "area": curve.total.value,
                        "area standard error": curve.total.standard_error,
                        "fixed size": size,
                        "D times the score at the fixed size": config["dim"] * float(curve.scores[size - 1]),
                        "curve": curve.scores.tolist(),
                    }
                )
    (out / "results.json").write_text(json.dumps(found), encoding="utf-8")
    _draw(found, out / "figure.png")


def _draw(found: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(GENERATORS), figsize=(8.4, 3.4), dpi=100, layout="constrained")
    for ax, generator in zip(axes, GENERATORS, strict=True):
        for row in (row for row in found if row["generator"] == generator):
            label = f"K = {row['K']}, {row['masks per size']} a size: area {row['area']:.2f} (exact {row['exact']:.2f})"
            ax.plot(range(1, len(row["curve"]) + 1), row["curve"], linewidth=1, label=label)
        ax.set_title(f"{generator} generator", fontsize=9)
        ax.set_xlabel("mask size m")
        ax.set_ylabel("S(m), nats per datum")
        ax.legend(frameon=False, fontsize=6.5)
    figure.savefig(path)
