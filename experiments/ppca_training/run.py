"""PPCA trained by the cumulative score, a random rate, and two fixed rates; the exact evidence on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.ppca_data import GENERATORS, ppca_setting
from mpt_bayes import datasets
from mpt_bayes.models import PPCA
from mpt_bayes.objectives import CumulativeScore, FixedRate, RandomRate
from mpt_bayes.training import TrainingSettings, train
from mpt_bayes.training.parameters import initial_ppca

OBJECTIVES = {
    "cumulative score": CumulativeScore(1),
    "random rate": RandomRate(1),
    "fixed rate 20%": FixedRate(0.2),
    "fixed rate 80%": FixedRate(0.8),
}


def run(config: dict[str, Any], out: Path) -> None:
    """History of the exact log marginal likelihood, and its gap to the closed-form maximum; nats per datum."""
    found = []
    for name, x, latent_dim in _data(config):
        maximum = float(PPCA(latent_dim=latent_dim).fit(x).log_marginal_likelihood(x).mean())
        for objective_name, objective in OBJECTIVES.items():
            settings = TrainingSettings(
                epochs=config["epochs"],
                learning_rate=config["learning_rate"],
                final_learning_rate=config["final_learning_rate"],
            )
            result = train(initial_ppca(x, latent_dim), x, objective, settings=settings)
            reached = result.log_marginal_likelihood
            found.append(
                {
                    "data": name,
                    "objective": objective_name,
                    "maximum": maximum,
                    "reached": reached,
                    "gap": maximum - reached,
                    "history": [entry.log_marginal_likelihood for entry in result.history],
                }
            )
            (out / "results.json").write_text(json.dumps(found), encoding="utf-8")
    _draw(found, out / "figure.png")


def _data(config: dict[str, Any]) -> list[tuple[str, Tensor, int]]:
    sets = []
    for generator in GENERATORS:
        _, x = ppca_setting(generator, config["rows"], 10, 2, 1991)
        sets.append((f"{generator} generator", x, 2))
    if config["digits"]:
        digits = datasets.load("digits").x
        varying = digits[:, digits.var(0) > 0]  # a pixel that never changes has no finite maximum
        sets.append(("digits", (varying - varying.mean(0)) / varying.std(), 10))
    return sets


def _draw(found: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in found))
    figure, axes = plt.subplots(
        1, len(names), figsize=(3.4 * len(names), 3.2), dpi=100, layout="constrained", squeeze=False
    )
    for ax, name in zip(axes[0], names, strict=True):
        for row in (row for row in found if row["data"] == name):
            gaps = row["maximum"] - torch.tensor(row["history"])
            ax.plot(gaps.clamp_min(1e-6), linewidth=1, label=f"{row['objective']}: {row['gap']:.4f}")
        ax.set(yscale="log", xlabel="epoch", ylabel="maximum - evidence, nats per datum", title=name)
        ax.legend(frameon=False, fontsize=7, title="gap at the end", title_fontsize=7)
    figure.savefig(path)
