"""Figures: functions from results to matplotlib Axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mpt_bayes.checks import check_result
from mpt_bayes.errors import ArgumentError
from mpt_bayes.results import Attribution, Comparison, Convergence, ModelComparison, ScoreCurve, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mpt_bayes.lm.twin import TwinCurves

INK, SCORE, EXACT, BIAS = "#2b2d33", "#2a6f97", "#d1495b", "#e09f3e"
BAND = 1.96
"""Half-width of error bands in standard errors: about 95%."""
LEAST_ERROR = 1e-12
"""Nats per datum below which a standard error is rounding."""
STEPS_UP_TO = 30
"""Curves of up to this many sizes are drawn as bars of width one, whose areas add up to the total."""


def plot_curve(curve: ScoreCurve, *, log_marginal_likelihood: float | None = None, ax: Axes | None = None) -> Axes:
    """S(m) per datum against the mask size m, its 95% band, and the area under it: the cumulative score.

    Args:
        curve: in total nats; the figure divides by the number of rows.
        log_marginal_likelihood: exact, total over the rows, to be named beside the area.
        ax: where to draw; a new figure if not given.

    Raises:
        ArgumentError: another result, or a curve already divided by the number of rows.
    """
    check_result(curve, ScoreCurve, "plot_curve")
    if curve.total.is_per_datum:
        raise ArgumentError("pass the curve in total nats, not curve.per_datum: the figure divides it itself")
    from matplotlib.ticker import MaxNLocator

    ax = axes_or_new(ax)
    n, sizes = curve.total.n_data, curve.sizes
    scores, band = curve.scores / n, BAND * np.nan_to_num(curve.standard_errors) / n
    small = len(sizes) <= STEPS_UP_TO
    if small:
        ax.bar(sizes, scores, width=1.0, color=SCORE, alpha=0.25, edgecolor="white", linewidth=1.6)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=15))
    else:
        ax.fill_between(sizes, 0, scores, color=SCORE, alpha=0.18, linewidth=0)
    ax.fill_between(sizes, scores - band, scores + band, color=SCORE, alpha=0.35, linewidth=0)
    ax.plot(sizes, scores, color=SCORE, linewidth=1.8, marker="o" if small else None, markersize=4)
    ax.axhline(0, color=INK, linewidth=0.8)
    _name_area(ax, curve, log_marginal_likelihood)
    ax.set_xlim(0.5, len(sizes) + 0.5)
    ax.set_xlabel("hidden coordinates m")
    ax.set_ylabel("score S(m), nats per datum" if n > 1 else "score S(m), nats")
    return tidied(ax)


def plot_comparison(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """The score curve with both sides of the identity named."""
    check_result(comparison, Comparison, "plot_comparison")
    return plot_curve(comparison.curve, log_marginal_likelihood=comparison.log_marginal_likelihood, ax=ax)


def plot_convergence(result: Convergence, *, ax: Axes | None = None) -> Axes:
    """The cumulative score per datum against the number of orders or masks, with 95% intervals."""
    check_result(result, Convergence, "plot_convergence")
    ax = axes_or_new(ax)
    n = result.estimates[0].n_data
    known = [e for e in result.estimates if e.standard_error is not None]
    ends = np.array([np.subtract(e.interval(), e.value) for e in known]).reshape(-1, 2) / n
    numbers = [m for m, e in zip(result.numbers, result.estimates, strict=True) if e.standard_error is not None]
    values = np.array([e.value for e in known]) / n
    ax.errorbar(numbers, values, yerr=np.abs(ends).T, color=SCORE, marker="o", capsize=3, label="cumulative score, 95%")
    if result.log_marginal_likelihood is not None:
        exact = result.log_marginal_likelihood / n
        ax.axhline(exact, color=EXACT, linewidth=1.6, zorder=0, label=f"exact log p(x) = {exact:.5g}")
    ax.legend(frameon=False)
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(result.numbers), [str(number) for number in result.numbers])
    ax.minorticks_off()
    ax.set_xlabel(f"n in {result.estimates[-1].design.split('(')[0]}(n)")
    ax.set_ylabel("cumulative score, nats per datum" if n > 1 else "cumulative score, nats")
    return tidied(ax)


def plot_sweep(result: Sweep, *, mark: float = 0.15, ax: Axes | None = None) -> Axes:
    """D · S(m) per datum against the mask rate beside the exact log p(x); the bias at the rate `mark` is drawn.

    Args:
        result: of `mb.sweep`.
        mark: the rate, of those swept, nearest to which the bias is marked.
        ax: where to draw; a new figure if not given.
    """
    check_result(result, Sweep, "plot_sweep")
    ax = axes_or_new(ax)
    n = result.n_data
    values, band = result.scaled / n, BAND * np.nan_to_num(result.scaled_standard_errors) / n
    ax.fill_between(result.rates, values - band, values + band, color=SCORE, alpha=0.3, linewidth=0)
    ax.plot(result.rates, values, color=SCORE, marker="o", markersize=4, linewidth=1.8, label="D · S(m) at one rate")
    if result.bias is not None and result.log_marginal_likelihood is not None:
        exact = result.log_marginal_likelihood / n
        ax.axhline(exact, color=EXACT, linewidth=1.6, label=f"exact log p(x) = {exact:.5g}")
        i = int(np.abs(result.rates - mark).argmin())
        x, y = result.rates[i], values[i]
        ax.annotate("", xy=(x, y), xytext=(x, exact), arrowprops={"arrowstyle": "<->", "color": BIAS, "linewidth": 1.8})
        left = x > result.rates.mean()
        ax.annotate(
            f"bias {result.bias[i] / n:+.3g}\nat rate {x:.2g}",
            (x, (y + exact) / 2),
            xytext=(-8 if left else 8, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            color=BIAS,
            fontweight="bold",
        )
    ax.legend(frameon=False)
    ax.set_xlabel("mask rate m / D")
    ax.set_ylabel("nats per datum" if n > 1 else "nats")
    return tidied(ax)


def plot_attribution(result: Attribution, *, names: list[str] | None = None, ax: Axes | None = None) -> Axes:
    """The mean share of each coordinate per datum, with 95% error bars."""
    check_result(result, Attribution, "plot_attribution")
    ax = axes_or_new(ax)
    n, dim = result.shares.shape
    errors = BAND * np.nan_to_num(result.coordinate_standard_errors) / n
    ax.barh(np.arange(dim), result.per_coordinate / n, xerr=errors, color=SCORE, alpha=0.8, ecolor=INK)
    ax.set_yticks(np.arange(dim) if dim <= STEPS_UP_TO else [], names if dim <= STEPS_UP_TO else None)
    ax.invert_yaxis()
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_xlabel("share of log p(x), nats per datum")
    ax.set_ylabel("coordinate")
    tidied(ax)
    ax.grid(visible=False, axis="y")
    return ax


def plot_twin_curves(result: TwinCurves, *, n_bins: int = 20, ax: Axes | None = None) -> Axes:
    """Mean log-probability of a hidden token against the mask rate: the model above, its random twin below; 95% bands.

    Averaged over sizes, the curve is the score per token; the gap between the two is what pre-training gained.
    """
    from mpt_bayes.lm.twin import TwinCurves  # only where language models are

    check_result(result, TwinCurves, "plot_twin_curves")
    ax = axes_or_new(ax)
    for scores, colour, name in ((result.model, SCORE, result.model.model), (result.twin, BIAS, "random weights")):
        frame = scores.rate_curve(n_bins)
        rates, values = frame.rate.to_numpy(), frame.score.to_numpy()
        band = BAND * np.nan_to_num(frame.standard_error.to_numpy())
        per_token = scores.perplexity.mean_nats_per_token
        ax.fill_between(rates, values - band, values + band, color=colour, alpha=0.3, linewidth=0)
        ax.plot(rates, values, color=colour, linewidth=1.8, marker="o", markersize=4)
        place = int(np.nanargmin(np.abs(rates - 0.3)))
        ax.annotate(
            f"{name}: {per_token:.3f} nats a token",
            (rates[place], values[place]),
            xytext=(0, 12),
            textcoords="offset points",
            color=colour,
        )
    ax.set_xlim(0, 1)
    ax.set_ylim(top=0)
    ax.set_xlabel("mask rate m / D")
    ax.set_ylabel("nats per hidden token")
    return tidied(ax)


def plot_models(result: ModelComparison, *, ax: Axes | None = None) -> Axes:
    """The score curve of every model per datum, with 95% bands; the legend names each area, Σ_m S(m)."""
    check_result(result, ModelComparison, "plot_models")
    ax = axes_or_new(ax)
    for name, total in result.curves.items():
        curve = total.per_datum
        (line,) = ax.plot(curve.rates, curve.scores, label=f"{name}: {curve.total.value:,.2f} nats")
        spread = BAND * np.nan_to_num(curve.standard_errors)
        ax.fill_between(
            curve.rates, curve.scores - spread, curve.scores + spread, color=line.get_color(), alpha=0.2, linewidth=0
        )
    ax.set_xlabel("mask rate m / D")
    ax.set_ylabel("S(m), nats per datum")
    ax.legend(frameon=False, title="cumulative score per datum")
    return tidied(ax)


def _name_area(ax: Axes, curve: ScoreCurve, log_marginal_likelihood: float | None) -> None:
    """The total per datum with its standard error, and the exact value below: inside the area if that is roomy."""
    n, scores = curve.total.n_data, curve.scores / curve.total.n_data
    places, error = 4, curve.total.standard_error
    if error is None:
        precision = ", no standard error"
    elif error / n <= LEAST_ERROR:
        precision = ", exact"
    else:
        places = max(0, 1 - math.floor(math.log10(error / n)))
        precision = f" ± {error / n:.{places}f}"
    lines = [f"area  Σ S(m) = {curve.total.value / n:.{places}f}{precision}"]
    if log_marginal_likelihood is not None:
        lines.append(f"exact  log p(x) = {log_marginal_likelihood / n:.{places}f}")
    middle = 0.5 * float(np.nanmedian(scores))
    roomy = abs(middle) > 0.15 * float(np.nanmax(np.append(scores, 0)) - np.nanmin(np.append(scores, 0)))
    if roomy:
        ax.text(1 + 0.06 * len(scores), middle, "\n".join(lines), va="center", color=INK, bbox=_paper())
    else:
        ax.text(0.05, 0.08, "\n".join(lines), transform=ax.transAxes, va="bottom", color=INK, bbox=_paper())


def axes_or_new(ax: Axes | None) -> Axes:
    """Where to draw: the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt  # slow to load, so only when a figure is drawn

    _, new = plt.subplots(figsize=(6.4, 4.0), dpi=120, layout="constrained")
    return new


def _paper() -> dict[str, object]:
    return {"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": "#d0d3da", "alpha": 0.92}


def tidied(ax: Axes) -> Axes:
    """The house style: no frame, a light horizontal grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#e3e5ea", linewidth=0.7)
    ax.set_axisbelow(True)
    return ax
