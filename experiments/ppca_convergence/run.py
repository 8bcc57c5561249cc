"""The estimate of the total against the number of masks a size, 5 seeds, D = 5 and 50."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from experiments.ppca_data import GENERATORS, ppca_setting
from mpt_bayes.masks import PerSize
from mpt_bayes.numerics.random import Stream


def run(config: dict[str, Any], out: Path) -> None:
    """Running means over rounds of one mask a size, beside the exact log marginal likelihood; nats per datum."""
    found = []
    for generator in GENERATORS:
        for dim in config["dims"]:
            for seed in range(config["seeds"]):
                model, x = ppca_setting(generator, config["rows"], dim, config["latent_dim"], 4 + seed)
                totals = []
                for draw in range(config["masks_per_size"]):
                    hidden = PerSize(1).draw(dim, Stream(seed).child(draw)).hidden
                    scores = model.masked_log_prob(x, hidden).sum(2) / hidden.sum(1)
                    totals.append(float(scores.sum(1).mean()))
                running = torch.tensor(totals).cumsum(0) / torch.arange(1, len(totals) + 1)
                exact = float(model.log_marginal_likelihood(x).mean())
                found.append(
                    {"generator": generator, "D": dim, "seed": seed, "exact": exact, "running": running.tolist()}
                )
    (out / "results.json").write_text(json.dumps(found), encoding="utf-8")
    _draw(found, out / "figure.png")


def _draw(found: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot as plt

    dims = sorted({row["D"] for row in found})
    figure, axes = plt.subplots(2, len(dims), figsize=(8, 5), dpi=100, layout="constrained", squeeze=False)
    for line, generator in zip(axes, GENERATORS, strict=True):
        for ax, dim in zip(line, dims, strict=True):
            for row in found:
                if (row["generator"], row["D"]) == (generator, dim):
                    gaps = [value - row["exact"] for value in row["running"]]
                    ax.plot(range(1, len(gaps) + 1), gaps, linewidth=0.9)
            ax.axhline(0, color="#2b2d33", linewidth=0.8)
            ax.set_title(f"{generator} generator, D = {dim}", fontsize=9)
            ax.set_xlabel("masks per size")
            ax.set_ylabel("estimate - exact, nats per datum")
    figure.savefig(path)
