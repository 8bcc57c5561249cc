"""Tables for people, as rich renderables: `rich.print(mpt_bayes.report.comparison_report(result))`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mpt_bayes.checks import check_result
from mpt_bayes.results import Attribution, Comparison, ScoreCurve, Sweep, Verification

SHOWN_SIZES = 12
SHOWN_SHARES = 20

POSITIVE = (
    "A log density can be positive: a density has the inverse units of the data, and is above 1 where the data are "
    "concentrated in less than one unit per coordinate. Rescaling x by c moves log p(x) by -D·log c; only differences "
    "between models on the same data mean something."
)


def comparison_report(result: Comparison, *, title: str = "") -> RenderableType:
    """Both sides of the identity in total and per datum, and the curve."""
    check_result(result, Comparison, "comparison_report")
    score = result.cumulative_score
    n = score.n_data
    both = number_table("", "total, nats", "per datum, nats", title=title)
    exact = result.log_marginal_likelihood
    inner = result.log_marginal_likelihood_inner_standard_error
    name = "log marginal likelihood" + (" (exact)" if inner is None else "")
    both.add_row(name, f"{exact:.6f}", f"{exact / n:.6f}")
    if inner is not None:
        both.add_row("  its standard error (draws of the model)", number(inner), number(inner / n))
    error = score.standard_error
    both.add_row("cumulative score Σ S(m)", f"{score.value:.6f}", f"{score.value / n:.6f}")
    both.add_row("  its standard error (masks)", number(error), number(None if error is None else error / n))
    drawn = score.inner_standard_error
    if drawn is not None:
        both.add_row("  its standard error (draws of the model)", number(drawn), number(drawn / n))
    both.add_row("difference", f"{result.difference:+.6f}", f"{result.difference / n:+.6f}")
    both.add_row("  in standard errors", result.z_in_words, "")
    source = f"{score.design}, seed {score.seed}, {score.n_evaluations:,} (row, mask) pairs"
    notes = [note for note in (score.note, result.curve.note) if note]
    if exact > 0 or bool((result.curve.scores > 0).any()):
        notes.append(POSITIVE)
    return Group(both, curve_table(result.curve), source, *notes)


def curve_table(curve: ScoreCurve) -> Table:
    """S(m) per datum; of long curves about a dozen sizes, the first and last among them."""
    check_result(curve, ScoreCurve, "curve_table")
    table = number_table("hidden m", "rate", "S(m) per datum", "± SE", "partial sum per datum", words=0)
    n, dim = curve.total.n_data, len(curve.scores)
    shown = np.unique(np.linspace(0, dim - 1, min(dim, SHOWN_SIZES)).round().astype(int))
    for i in shown:
        table.add_row(
            str(i + 1),
            f"{curve.rates[i]:.2f}",
            f"{curve.scores[i] / n:.4f}",
            errors_at(i, n, curve.standard_errors, curve.inner_standard_errors),
            f"{curve.partials[i] / n:.4f}",
        )
    return table


def sweep_report(result: Sweep, *, title: str = "") -> RenderableType:
    """The score at each rate, and what D times it misses log p(x) by."""
    check_result(result, Sweep, "sweep_report")
    n = result.n_data
    headings = ("rate", "hidden m", "S(m) per datum", "± SE", "bias of D·S(m)", "± SE")
    table = number_table(*headings, title=title, words=0)
    for i, rate in enumerate(result.rates):
        table.add_row(
            f"{rate:g}",
            str(result.sizes[i]),
            f"{result.scores[i] / n:.4f}",
            errors_at(i, n, result.standard_errors, result.inner_standard_errors),
            "no exact log p(x)" if result.bias is None else f"{result.bias[i] / n:+.4f}",
            "" if result.bias is None else number(result.scaled_standard_errors[i] / n),
        )
    exact = result.log_marginal_likelihood
    drawn = result.log_marginal_likelihood_inner_standard_error
    kind = "exact log p(x)" if drawn is None else "log p(x) of the draws"
    notes = [] if exact is None else [f"{kind} per datum: {exact / n:.6f} nats; biases are per datum too"]
    return Group(table, *notes, *([POSITIVE] if bool((result.scores > 0).any()) else []))


def attribution_report(result: Attribution, *, title: str = "") -> RenderableType:
    """The share of each coordinate per datum and of the total, the largest first, and their sum."""
    check_result(result, Attribution, "attribution_report")
    n = len(result.shares)
    table = number_table("coordinate", "share per datum, nats", "± SE", "of the total", title=title)
    for j in np.argsort(-np.abs(result.per_coordinate), kind="stable")[:SHOWN_SHARES]:
        share = result.per_coordinate[j]
        part = f"{share / result.total:.1%}" if result.total else "—"
        error = errors_at(j, n, result.coordinate_standard_errors, result.coordinate_inner_standard_errors)
        table.add_row(str(j), f"{share / n:+.4f}", error, part)
    dim = result.shares.shape[1]
    notes = [f"the {SHOWN_SHARES} largest of {dim} shares"] if dim > SHOWN_SHARES else []
    if bool((result.shares > 0).any()):
        notes.append(POSITIVE)
    return Group(table, f"sum of the shares: {result.total:.6f} nats over {n} rows ({result.design})", *notes)


def verification_report(result: Verification, *, title: str = "") -> RenderableType:
    """Each identity with its deviation, the largest that passes, and the verdict."""
    check_result(result, Verification, "verification_report")
    table = Table("check", "deviation", "allowed", "verdict", title=Text(title), title_justify="left")
    colours = {"passed": "green", "failed": "bold red", "not applicable": "dim"}
    for check in result.checks:
        unit = "SE" if check.unit == "standard errors" else check.unit
        table.add_row(
            check.name,
            "" if check.size is None else f"{check.size:.3g} {unit}",
            "" if check.tolerance is None else f"{check.tolerance:.3g} {unit}",
            f"[{colours[check.verdict]}]{check.verdict}[/]",
        )
    broken = [Text(f"BROKEN  {c.name}: {c.identity}  ({c.reason})") for c in result.checks if c.verdict == "failed"]
    outcome = broken or [Text("All identities that apply hold.")]
    notes = [result.note] if result.note else []
    return Group(table, *outcome, f"{result.n_rows} rows, seed {result.seed}", *notes)


def number_table(*headings: str, title: str = "", words: int = 1) -> Table:
    """A table whose first `words` columns hold words and whose others hold numbers; what is too wide is folded, not
    cut."""
    table = Table(title=Text(title) if title else None, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < words else "right", overflow="fold")
    return table


def errors_at(i: int, n: int, masks: NDArray[np.float64], draws: NDArray[np.float64] | None) -> str:
    """The standard error of entry i per datum, from the masks and, where there is one, from the model's draws."""
    drawn = "" if draws is None else f", draws {number(draws[i] / n)}"
    return number(masks[i] / n) + drawn


def number(value: float | None) -> str:
    """A standard error in three digits, or a dash where there is none."""
    return "—" if value is None or not np.isfinite(value) else f"{value:.3g}"
