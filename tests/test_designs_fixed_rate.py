"""The fixed rate: S(m) at one size without bias, its standard error too, and never the cumulative score."""

import pytest
import torch
from enumerating_stream import outcomes
from model_examples import letters, table

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, EstimandError
from mpt_bayes.estimation.tally import Tally


@pytest.mark.parametrize(("rate", "size"), [(0.01, 1), (0.25, 1), (0.375, 2), (0.5, 2), (0.8, 3), (1.0, 4)])
def test_unbiased_for_the_score_at_its_size_with_an_unbiased_squared_error(rate, size):
    model, x = table(3, 3, 2, 3, 2), letters(4, 2, 4, 2)
    design = mb.masks.FixedRate(rate, 2)
    exact = mb.score_curve(model, x, design=mb.masks.Exhaustive()).scores[size - 1]

    def estimate(stream):
        batch = design.draw(4, stream)
        scores = model.masked_log_prob(x, batch.hidden).sum((0, 2)) / size
        tally = Tally.sampled(batch.sampling, scores, torch.zeros(2), 4)
        return float(tally.partials[-1]), float(tally.partial_variances[-1])

    law = outcomes(estimate)
    mean = sum(p * value for p, (value, _) in law)
    variance = sum(p * (value - mean) ** 2 for p, (value, _) in law)
    assert mean == pytest.approx(float(exact), rel=1e-12)
    assert sum(p * squared for p, (_, squared) in law) == pytest.approx(variance, rel=1e-10, abs=1e-25)


def test_a_rate_is_labelled_and_never_taken_for_the_evidence():
    model, x = table(3, 3, 2, 3, 2), letters(4, 2, 4, 2)
    estimate = mb.masked_score(model, x, rate=0.5)
    assert estimate.estimand == "masked score at rate 0.5"
    with pytest.raises(EstimandError, match="not the cumulative score"):
        mb.score_curve(model, x, design=mb.masks.FixedRate(0.5, 8))
    with pytest.raises(EstimandError, match="cannot combine"):
        estimate - mb.cumulative_score(model, x)
    for rate in (0, -0.1, 1.1):
        with pytest.raises(ArgumentError, match="rate is"):
            mb.masks.FixedRate(rate, 2)
