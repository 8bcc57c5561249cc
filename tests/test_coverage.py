"""Statistical tests: intervals cover the exact value, and the standard errors are of the right size.

The full study, with thousands of seeds, is benchmarks/coverage.py; its table is in docs/coverage.md.
"""

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage import LEVEL, MODELS, measure

RUNS, NUMBER = 200, 64
FALSE_ALARM = 1e-3
"""Chance that a sound library fails one of these tests, all lines and models together."""


@pytest.fixture(scope="module", params=list(MODELS))
def lines(request):
    return measure(request.param, NUMBER, RUNS)


def test_intervals_cover(lines):
    """Binomial bounds around 95%, one unit of percent given for skewness, corrected for the number of lines."""
    chance = FALSE_ALARM / (2 * len(lines) * len(MODELS))
    low = stats.binom.ppf(chance, RUNS, LEVEL - 0.01)
    for line in lines:
        assert line.covered >= low, line


def test_estimates_are_unbiased(lines):
    bound = stats.norm.isf(FALSE_ALARM / (2 * len(lines) * len(MODELS)))
    for line in lines:
        assert abs(line.bias_in_standard_errors) < bound, line


def test_standard_errors_are_the_spread_and_no_larger(lines):
    """A standard error that covers by being too large is a fault as well: the mean is capped at the spread."""
    slack = stats.norm.isf(FALSE_ALARM / (2 * len(lines) * len(MODELS))) / np.sqrt(2 * RUNS)
    for line in lines:
        assert abs(line.mean_standard_error / line.spread - 1) < slack + 0.05, line


def test_an_interval_with_half_the_standard_error_would_be_caught(lines):
    """The bounds bite: normal intervals from half the standard error cover about two thirds."""
    low = stats.binom.ppf(FALSE_ALARM / (2 * len(lines) * len(MODELS)), RUNS, LEVEL - 0.01)
    halved = stats.norm.cdf(1.96 / 2) - stats.norm.cdf(-1.96 / 2)
    assert stats.binom.isf(0.01, RUNS, halved) < low
