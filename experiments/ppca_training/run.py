"""PPCA trained by the cumulative score, a random rate, and two fixed rates; the exact evidence on record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.ppca_data import GENERATORS, ppca_setting
from mpt_bayes import datasets
from mpt_bayes.models import PPCA
from mpt_bayes.objectives import CumulativeScore, FixedRate, Objective, RandomRate
from mpt_bayes.training import TrainingSettings, train
from mpt_bayes.training.parameters import initial_ppca

OBJECTIVES: dict[str, Callable[[int], Objective]] = {
    "cumulative score": lambda masks: CumulativeScore(1),  # one order holds a mask of every size
    "random rate": RandomRate,
    "fixed rate 20%": partial(FixedRate, 0.2),
    "fixed rate 80%": partial(FixedRate, 0.8),
}
"""From the number of masks a step."""

EVERY = 10
"""Epochs between the entries of the recorded histories."""


def run(config: dict[str, Any], out: Path) -> None:
    """History of the exact log marginal likelihood, and its gap to the closed-form maximum; nats per datum."""
    found = []
    for name, x, latent_dim in _data(config):
        maximum = float(PPCA(latent_dim=latent_dim).fit(x).log_marginal_likelihood(x).mean())
        for schedule in config["schedules"]:
            settings = TrainingSettings(**{"epochs": config["epochs"]} | schedule["settings"])
            for objective_name in schedule.get("objectives", OBJECTIVES):
                start = time.perf_counter()
                objective = OBJECTIVES[objective_name](schedule["masks"])
                result = train(initial_ppca(x, latent_dim), x, objective, settings=settings)
                reached = result.log_marginal_likelihood
                found.append(
                    {
                        "data": name,
                        "schedule": schedule["name"],
                        "objective": objective_name,
                        "maximum": maximum,
                        "reached": reached,
                        "gap": maximum - reached,
                        "seconds": round(time.perf_counter() - start, 1),
                        "history": [round(entry.log_marginal_likelihood, 5) for entry in result.history[::EVERY]],
                    }
                )
                (out / "results.json").write_text(json.dumps(found), encoding="utf-8")
                print(f"{name}, {schedule['name']}, {objective_name}: gap {maximum - reached:.5f}", flush=True)
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

    names, schedules = (list(dict.fromkeys(row[key] for row in found)) for key in ("data", "schedule"))
    figure, axes = plt.subplots(
        len(schedules),
        len(names),
        figsize=(3.4 * len(names), 3 * len(schedules)),
        dpi=60,
        layout="constrained",
        squeeze=False,
    )
    for line, schedule in zip(axes, schedules, strict=True):
        for ax, name in zip(line, names, strict=True):
            for row in (row for row in found if (row["data"], row["schedule"]) == (name, schedule)):
                gaps = row["maximum"] - torch.tensor(row["history"], dtype=torch.float64)
                ax.plot(
                    range(0, EVERY * len(gaps), EVERY),
                    gaps.clamp_min(1e-5),
                    color=f"C{list(OBJECTIVES).index(row['objective'])}",
                    linewidth=0.8,
                    label=f"{row['objective']}: {row['gap']:.4f}",
                )
            ax.axhline(0.01, color="#2b2d33", linewidth=0.6, linestyle=":")
            ax.set_yscale("log")
            ax.set_title(f"{name}, {schedule}", fontsize=9)
            ax.legend(loc="upper right", frameon=False, fontsize=7, title="gap at the end", title_fontsize=7)
    figure.supxlabel("epoch")
    figure.supylabel("maximum - evidence, nats per datum")
    figure.savefig(path)
