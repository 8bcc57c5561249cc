"""Intervals of designs and budgets cover, stopping at a target included: a smaller benchmarks/design_coverage.py."""

import pytest
from scipy import stats

from benchmarks.design_coverage import Scores, designs, label, measured, models
from mpt_bayes.estimation import Budget

RUNS = 300
BUDGETS = [Budget(n_evaluations=60), Budget(n_evaluations=200), Budget(target_standard_error=0.05)]


@pytest.fixture(scope="module")
def scores():
    return Scores(*models()["mixture D=10"])


@pytest.mark.slow
@pytest.mark.parametrize("work", [*designs(), *BUDGETS], ids=label)
def test_intervals_cover_without_bias(scores, work):
    """One in ten thousand a line of failing by chance, with two points given for skewness."""
    line = measured("mixture", scores, work, RUNS)
    assert line.coverage * RUNS >= stats.binom.ppf(1e-4, RUNS, 0.93)
    assert line.coverage * RUNS <= stats.binom.ppf(1 - 1e-4, RUNS, 0.97)
    assert abs(line.bias_in_standard_errors) < 4.5
    assert 0.6 < line.mean_square_error_ratio < 1.6
