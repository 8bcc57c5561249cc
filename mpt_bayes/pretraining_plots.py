"""Figures of pre-training: functions from the folders of runs to matplotlib Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from mpt_bayes.plots import BAND, BIAS, EXACT, INK, SCORE, axes_or_new, tidied

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mpt_bayes.lm.pretraining import RunComparison, RunFolder

COLORS = (SCORE, EXACT, BIAS, "#588157", "#7b5ea7", INK)


def plot_curve_over_training(run: RunFolder, *, ax: Axes | None = None) -> Axes:
    """From noise to evidence: the held-out curve S(m) of a run at several moments of training, per sequence.

    The area under each curve is its cumulative score. For a language with known evidence the exact curve, and that
    of the best prediction without context, are drawn beside it.

    Args:
        run: a finished run of `mpt_bayes.lm.pretraining.pretrain`.
        ax: where to draw; a new figure if not given.
    """
    ax = axes_or_new(ax)
    evaluations, result = run.rows("evaluation"), run.result()
    shown = np.unique(np.geomspace(1, len(evaluations), min(5, len(evaluations))).round().astype(int)) - 1
    for i in shown:
        row, depth = evaluations[i], (i + 1) / len(evaluations)
        curve, error = np.array(row["curve"]), np.array(row["curve_standard_errors"])
        sizes = np.arange(1, len(curve) + 1)
        ax.fill_between(sizes, curve - BAND * error, curve + BAND * error, color=SCORE, alpha=0.2 * depth, linewidth=0)
        label = f"step {row['step']:,}: area {row['total']:.1f}"
        ax.plot(sizes, curve, color=SCORE, alpha=0.25 + 0.75 * depth, linewidth=1 + depth, label=label)
    for name, color, style in (("exact", EXACT, "-"), ("context_free", INK, ":")):
        if f"{name}_curve" in result:
            curve = result[f"{name}_curve"]
            label = f"{name.replace('_', '-')}: area {result[f'{name}_total']:.1f}"
            ax.plot(np.arange(1, len(curve) + 1), curve, color=color, linestyle=style, linewidth=1.6, label=label)
    ax.legend(frameon=False)
    ax.set_xlabel("hidden tokens m")
    ax.set_ylabel("score S(m), nats per token")
    return tidied(ax)


def plot_training(
    runs: Mapping[str, RunFolder],
    *,
    quantity: Literal["total", "share"] = "total",
    against: Literal["flops", "step"] = "flops",
    ax: Axes | None = None,
) -> Axes:
    """The held-out area Σ_m S(m) of runs, or the share of context it captures, against training compute or steps.

    Args:
        runs: name → run, finished or not.
        quantity: "total", or "share" for languages with known evidence.
        against: "flops" of training by the formula (the untrained model has none, and is left out), or "step".
        ax: where to draw; a new figure if not given.
    """
    ax = axes_or_new(ax)
    styles = ["-", "--", ":"]
    for i, (name, run) in enumerate(runs.items()):
        rows = [row for row in run.rows("evaluation") if row[against] > 0]
        x, y = (np.array([row[key] for row in rows]) for key in (against, quantity))
        band = BAND * np.array([row[f"{quantity}_standard_error"] for row in rows])
        color, style = COLORS[i % len(COLORS)], styles[i // len(COLORS) % len(styles)]
        ax.fill_between(x, y - band, y + band, color=color, alpha=0.15, linewidth=0)
        ax.plot(x, y, color=color, linestyle=style, linewidth=1.6, label=name)
    first = next(iter(runs.values())).rows("evaluation")[0]
    if quantity == "total" and "exact_total" in first:
        ax.axhline(first["exact_total"], color=INK, linewidth=1.2)
        ax.axhline(first["context_free_total"], color=INK, linewidth=1.0, linestyle=":")
    if against == "flops":
        ax.set_xscale("log")
    ax.legend(frameon=False, fontsize=8)
    ax.set_xlabel("training FLOPs" if against == "flops" else "training steps")
    ax.set_ylabel(
        "held-out area Σ S(m), nats per sequence" if quantity == "total" else "share of what context is worth"
    )
    return tidied(ax)


def plot_share_by_size(runs: Mapping[str, RunFolder], *, ax: Axes | None = None) -> Axes:
    """The share of what context is worth that each finished run captures at each mask size, with 95% bands."""
    ax = axes_or_new(ax)
    for (name, run), color in zip(runs.items(), COLORS * len(runs), strict=False):
        result = run.result()
        share, error = np.array(result["share_by_size"]), np.array(result["share_by_size_standard_errors"])
        sizes = np.arange(1, len(share) + 1)
        ax.fill_between(sizes, share - BAND * error, share + BAND * error, color=color, alpha=0.2, linewidth=0)
        ax.plot(sizes, share, color=color, linewidth=1.6, label=f"{name}: {result['share']:.3f} of the whole area")
    ax.axhline(1, color=INK, linewidth=0.8)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_ylim(max(-1.5, ax.get_ylim()[0]), 1.1)
    ax.legend(frameon=False, fontsize=8)
    ax.set_xlabel("hidden tokens m")
    ax.set_ylabel("share of what context is worth")
    return tidied(ax)


def plot_differences_by_size(comparisons: Sequence[RunComparison], *, ax: Axes | None = None) -> Axes:
    """How much better or worse than the first each run predicts at each mask size, paired, with 95% bands.

    Args:
        comparisons: from `mpt_bayes.lm.pretraining.compare_runs`, the first run at the head.
        ax: where to draw; a new figure if not given.
    """
    ax = axes_or_new(ax)
    first, *others = comparisons
    for other, color in zip(others, COLORS * len(others), strict=False):
        curve, error = other.difference.curve, other.difference.curve_standard_errors
        sizes = np.arange(1, len(curve) + 1)
        ax.fill_between(sizes, curve - BAND * error, curve + BAND * error, color=color, alpha=0.15, linewidth=0)
        total = f"{other.difference.total:+.1f} ± {other.difference.total_standard_error:.1f}"
        ax.plot(sizes, curve, color=color, linewidth=1.6, label=f"{other.name}: area {total}")
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.legend(frameon=False, fontsize=8)
    ax.set_xlabel("hidden tokens m")
    ax.set_ylabel(f"S(m) less that of {first.name}, nats per token")
    return tidied(ax)
