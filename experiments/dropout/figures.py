"""The figures of docs/dropout.md, from the records in experiments/dropout/results.

python -m experiments.dropout.figures             writes docs/figures/dropout_*.png
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
FIGURES = Path("docs/figures")
COLOURS = ["#4477aa", "#ee6677", "#228833", "#aa7700", "#66ccee", "#aa3377"]


def pair(width: float = 9.6, height: float = 3.7) -> tuple[Figure, list[Axes]]:
    """Two panels side by side, without the box's upper and right sides."""
    figure, axes = plt.subplots(1, 2, figsize=(width, height), layout="constrained")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, list(axes)


def averaging(record: dict[str, Any]) -> Figure:
    """Gap between the averages by depth and rate, and what it does to held-out log-likelihood."""
    figure, (left, right) = pair()
    depths = sorted({row["depth"] for row in record["gaps"]})
    for colour, depth in zip(COLOURS, depths, strict=False):
        rows = [row for row in record["gaps"] if row["depth"] == depth]
        rates = [row["rate"] for row in rows]
        label = f"{depth} layer{'s' * (depth > 1)}"
        if depth > 1:
            gap = np.array([row["relative_gap"] for row in rows])
            left.errorbar(rates, gap[:, 0], gap[:, 1], marker="o", ms=4, color=colour, label=label)
        difference = np.array([row["arithmetic - weight_scaled"] for row in rows])
        right.errorbar(rates, difference[:, 0], difference[:, 1], marker="o", ms=4, color=colour, label=label)
    left.set(xlabel="dropout rate q", ylabel="relative difference of the logits", ylim=(0, None))
    left.set_title("Model average − weight average (1 layer: 0)", fontsize=10)
    right.axhline(0, color="0.6", lw=0.8)
    right.set(xlabel="dropout rate q", ylabel="nats per held-out datum")
    right.set_title("Held-out: arithmetic mean − weight scaling", fontsize=10)
    left.legend(frameon=False, fontsize=9)
    right.legend(frameon=False, fontsize=9)
    return figure


def penalty(record: dict[str, Any]) -> Figure:
    """The quadratic penalty as a share of the exact one, and the order of what it leaves."""
    figure, (left, right) = pair()
    for colour, rate in zip(COLOURS, [0.01, 0.1, 0.5], strict=False):
        rows = [row for row in record["penalties"] if row["rate"] == rate]
        scale = np.array([row["scale"] for row in rows])
        exact = np.array([row["exact"] for row in rows])
        quadratic = np.array([row["quadratic"] for row in rows])
        left.plot(scale, quadratic / exact, "o-", ms=4, color=colour, label=f"q = {rate:g}")
        right.loglog(scale, np.abs(quadratic - exact), "o-", ms=4, color=colour, label=f"q = {rate:g}")
    guide = scale[scale <= 0.2]
    right.loglog(guide, 2e-6 * (guide / guide[-1]) ** 4, "--", color="0.5", label="fourth order")
    left.axhline(1, color="0.6", lw=0.8)
    left.set(xlabel="size of the weights (1 = fitted)", ylabel="quadratic / exact penalty", xscale="log")
    left.set_title("A smaller q does not make it better, smaller weights do", fontsize=10)
    right.set(xlabel="size of the weights (1 = fitted)", ylabel="|quadratic − exact| (nats)")
    right.set_title("What is left, against fourth order", fontsize=10)
    left.legend(frameon=False, fontsize=9)
    right.legend(frameon=False, fontsize=9)
    return figure


def attention(record: dict[str, Any], removal: list[dict[str, Any]]) -> Figure:
    """Average over masks against A, and column masking against removal by layer."""
    figure, (left, right) = pair()
    for colour, n in zip(COLOURS, [2, 4, 8], strict=False):
        rows = [row for row in record["attention"] if row["n"] == n]
        gap = np.array([row["gap"] for row in rows])
        left.errorbar([row["keep"] for row in rows], gap[:, 0], gap[:, 1], marker="o", color=colour, label=f"n = {n}")
    left.set(xlabel="probability of keeping a token", ylabel="max |E Norm(Aε) − A|, something kept", ylim=(0, None))
    left.set_title("Model averaging changes attention", fontsize=10)
    left.legend(frameon=False, fontsize=9)
    for colour, kind in zip(COLOURS, ["BERT", "ModernBERT"], strict=False):
        for kept, style in ((True, "o-"), (False, "s--")):
            rows = [row for row in removal if row["model"] == kind and row["positions_kept"] is kept]
            gaps = np.array([row["gaps"] for row in rows]).max(0)
            label = f"{kind}, positions {'kept' if kept else 'renumbered'}"
            right.plot(np.arange(len(gaps)), np.maximum(gaps, 1e-8), style, ms=4, color=colour, label=label)
    right.axhline(1e-5, color="0.6", lw=0.8)
    right.set(xlabel="layer (0 = embeddings)", ylabel="max difference (zeros drawn at 1e-8)", yscale="log")
    right.set_title("Masked columns against removed tokens, float32", fontsize=10)
    right.legend(frameon=False, fontsize=8, loc="center right")
    return figure


def embeddings(record: dict[str, Any]) -> Figure:
    """What the correction does to masked scores by mask rate, and to effective rank by layer."""
    figure, (left, right) = pair()
    names = {"antibody": "antibody BERT", "docstrings": "docstring BERT"}
    for colour, (key, label) in zip(COLOURS, names.items(), strict=False):
        for row, style in zip(record[key]["scores"][1:], ("o-", "s--"), strict=True):
            curve = np.array(row["curve_difference"], dtype=float)
            rates = (np.arange(len(curve)) + 0.5) / len(curve)
            left.plot(rates, curve, style, ms=4, color=colour, label=f"{label}, {row['variant']}")
        for variant, style in (("original", "o-"), ("corrected", "s--")):
            rows = [r for r in record[key]["ranks"] if r["variant"] == variant and r["place"] != "table"]
            right.plot([r["centred_rank"] for r in rows], style, ms=4, color=colour, label=f"{label}, {variant}")
    left.axhline(0, color="0.6", lw=0.8)
    left.set(xlabel="mask rate", ylabel="corrected − original (nats per hidden token)")
    left.set_title("Masked scores after correcting the embeddings", fontsize=10)
    left.legend(frameon=False, fontsize=8)
    right.set(xlabel="layer (0 = embeddings)", ylabel="effective rank (τ = .9, centred)", ylim=(0, None))
    right.set_title("Effective rank of states, nothing masked", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    return figure


def fine_tuning(record: dict[str, Any]) -> Figure:
    """Paired differences from the baseline, with 95% intervals."""
    figure, axes = pair(9.6, 3.4)
    rows = record["table"][1:]
    place = np.arange(len(rows))[::-1]
    labels = {"accuracy": "accuracy (percentage points)", "log_likelihood": "log-likelihood (nats per paragraph)"}
    from scipy import stats

    for ax, (name, label) in zip(axes, labels.items(), strict=True):
        factor = 100 if name == "accuracy" else 1
        values = factor * np.array([row[f"{name}_difference"] for row in rows])
        half = stats.t.ppf(0.975, rows[0]["seeds"] - 1) * values[:, 1]
        ax.errorbar(values[:, 0], place, xerr=half, fmt="o", ms=5, color=COLOURS[0], capsize=3)
        ax.axvline(0, color="0.6", lw=0.8)
        ax.set_yticks(place, [row["condition"] for row in rows] if name == "accuracy" else [""] * len(rows))
        ax.set(xlabel=f"difference in {label}", ylim=(-0.6, len(rows) - 0.4))
    figure.suptitle(f"Paired differences from the baseline, {rows[0]['seeds']} seeds, 95% intervals", fontsize=10)
    return figure


def main() -> None:
    records = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    figures = {
        "averages": averaging(records["averages"]),
        "penalty": penalty(records["averages"]),
        "attention": attention(records["averages"], records["removal"]),
        "embeddings": embeddings({name: records[f"embeddings_{name}"] for name in ("antibody", "docstrings")}),
        "fine_tuning": fine_tuning(records["fine_tuning"]),
    }
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(FIGURES / f"dropout_{name}.png", dpi=110)


if __name__ == "__main__":
    main()
