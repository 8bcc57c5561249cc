"""Figures and tables say what the results say."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from rich.console import Console

import mpt_bayes as mb
from mpt_bayes import plots, report
from mpt_bayes.errors import ArgumentError

mpl.use("Agg")


@pytest.fixture(scope="module")
def model():
    return mb.models.Gaussian(torch.zeros(4), torch.eye(4) + 0.5)


@pytest.fixture(scope="module")
def x():
    return torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def words(axes):
    return " ".join(text.get_text() for text in axes.texts)


def printed(renderable):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_the_bars_of_a_curve_add_up_to_the_area_it_names(model, x):
    result = mb.compare(model, x, design=mb.masks.Exhaustive())
    axes = plots.plot_comparison(result)
    area = sum(bar.get_height() * bar.get_width() for bar in axes.patches)
    assert area == pytest.approx(result.log_marginal_likelihood / 6, rel=1e-12)
    assert f"{area:.4f}, exact" in words(axes)


def test_the_band_of_a_curve_is_its_standard_error(model, x):
    curve = mb.score_curve(model, x, design=mb.masks.RandomOrders(8))
    band = plots.plot_curve(curve).collections[0].get_paths()[0].vertices
    for size, score, error in zip(curve.sizes, curve.scores / 6, curve.standard_errors / 6, strict=True):
        heights = band[band[:, 0] == size, 1]
        assert heights.max() == pytest.approx(score + 1.96 * error, abs=1e-3 * error)
        assert heights.min() == pytest.approx(score - 1.96 * error, abs=1e-3 * error)


def test_a_long_curve_is_filled(x):
    model = mb.models.Gaussian(torch.zeros(40), torch.eye(40) + 0.5)
    axes = plots.plot_curve(mb.score_curve(model, torch.linspace(-1, 1, 40)[None], design=mb.masks.RandomOrders(4)))
    assert len(axes.patches) == 0
    assert "±" in words(axes)


def test_a_curve_per_datum_is_refused_because_the_figure_divides(model, x):
    with pytest.raises(mb.errors.ArgumentError, match="total nats"):
        plots.plot_curve(mb.score_curve(model, x).per_datum)


def test_a_sweep_marks_the_bias_at_the_nearest_rate(model, x):
    result = mb.sweep(model, x, [0.25, 0.5, 1.0], n_masks=None)
    axes = plots.plot_sweep(result, mark=0.3)
    assert f"bias {result.bias[0] / 6:+.3g}\nat rate 0.25" in words(axes)


def test_convergence_draws_where_there_is_a_standard_error(model, x):
    result = mb.convergence(model, x, numbers=[1, 4, 16])
    axes = plots.plot_convergence(result)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [4, 16])


def test_attribution_has_a_bar_for_each_coordinate(model, x):
    axes = plots.plot_attribution(mb.attribution(model, x), names=list("abcd"))
    assert len(axes.patches) == 4
    assert [label.get_text() for label in axes.get_yticklabels()] == list("abcd")


def test_figures_are_drawn_where_they_are_told(model, x):
    from matplotlib.figure import Figure

    given = Figure().subplots()
    assert plots.plot_curve(mb.score_curve(model, x), ax=given) is given


def test_a_report_names_the_check_that_does_not_apply(model, x):
    text = printed(report.verification_report(mb.verify(model, x[:1])))  # one row lends no hidden values
    assert "not applicable" in text
    assert "All identities that apply hold" in text


def test_a_difference_of_rounding_is_not_counted_in_standard_errors():
    model = mb.models.Gaussian(torch.zeros(3), torch.eye(3))
    result = mb.compare(model, torch.full((5, 3), 0.3))  # every mask scores the same
    assert result.z is None
    assert "exact" in line_of("in standard errors", result)


def line_of(name, result):
    return next(line for line in printed(report.comparison_report(result)).splitlines() if name in line)


def test_a_single_order_is_not_called_exact(model, x):
    result = mb.compare(model, x, design=mb.masks.RandomOrders(1))
    assert "no SE" in line_of("in standard errors", result)
    assert repr(result).endswith("(no SE))")
    assert "no standard error" in words(plots.plot_comparison(result))


def test_row_21_what_was_divided_by_the_number_of_rows_says_so_and_is_divided_once(model, x):
    curve = mb.score_curve(model, x, design=mb.masks.Exhaustive())
    estimate = curve.per_datum.partial(2)
    assert estimate.to_dict()["units"] == "nats per datum"
    assert estimate.per_datum.value == estimate.to_dict()["per_datum"] == pytest.approx(curve.partial(2).value / 6)
    with pytest.raises(mb.errors.EstimandError):
        estimate - curve.partial(2)


TAKERS = {
    "plot_curve": "ScoreCurve",
    "plot_comparison": "Comparison",
    "plot_convergence": "Convergence",
    "plot_sweep": "Sweep",
    "plot_attribution": "Attribution",
    "plot_twin_curves": "TwinCurves",
    "plot_models": "ModelComparison",
    "comparison_report": "Comparison",
    "curve_table": "ScoreCurve",
    "sweep_report": "Sweep",
    "attribution_report": "Attribution",
    "verification_report": "Verification",
}


def test_every_figure_and_table_is_here():
    made = [
        name for module in (plots, report) for name in vars(module) if name.startswith("plot_") or "_report" in name
    ]
    assert {*made, "curve_table"} == TAKERS.keys()


@pytest.mark.parametrize(("name", "kind"), TAKERS.items())
def test_figures_and_tables_of_another_result_are_refused(name, kind, model, x):
    take = getattr(plots, name, None) or getattr(report, name)
    estimate = mb.cumulative_score(model, x)
    for other, found in ((estimate, "Estimate"), ("wine", "str"), (None, "NoneType")):
        with pytest.raises(ArgumentError, match=f"^{name} takes a result of the kind {kind}: found {found}$"):
            take(other)


def test_a_comparison_without_a_standard_error_shows_none(model, x):
    shown = repr(mb.compare(model, x, design=mb.masks.RandomOrders(1)))
    assert "nan" not in shown
    assert "±" not in shown
    assert shown.endswith("(no SE))")
