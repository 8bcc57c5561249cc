"""Policies: their probability is that of their own draws, and whole-mask weights mend them, or the label is refused."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from enumerating_stream import outcomes

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, EstimandError
from mpt_bayes.estimation.scores import mask_scores
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.random import Stream

M = mb.masks
SCORES = (0.3, 2.0, 0.1, 1.0)

POLICIES = [
    M.CoordinatePolicy((0.1, 0.5, 0.3, 0.7)),
    M.CoordinatePolicy((1.0, 0.5, 0.0, 0.5)),
    M.SpanPolicy(0.3, 2.0),
    M.SpanPolicy(0.5, 1.0),
    M.WordPolicy((0, 1, 1, 2), 0.4),
    M.WordPolicy((3, 1, 0, 2), 0.2),
    M.TopKPolicy(SCORES, 2),
    M.SizePolicy(M.RateSet((0.25, 0.5))),
    M.SizePolicy(M.RateSet((0.25, 0.5, 0.75, 1.0))),
    M.SizePolicy(M.RateSchedule(0.0, 1.0)),
]


def toy():
    rng = np.random.default_rng(1)
    table = rng.gamma(0.4, size=(3,) * 4)
    model = mb.models.JointTable(torch.tensor(table / table.sum()))
    x = torch.tensor([[2, 0, 1, 2]])
    scores = torch.zeros(16, dtype=torch.float64)
    scores[1:] = mask_scores(model, x, all_subsets(4)[1:])[0]
    return model, x, scores


def code(hidden):
    return (hidden.long() * 2 ** torch.arange(hidden.shape[1])).sum(1)


def law_of_draws(draw):
    law = torch.zeros(16, dtype=torch.float64)
    for p, hidden in outcomes(draw):
        law[code(hidden[None])] += p
    return law


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_probability_is_that_of_the_draws(policy):
    """The law found by enumerating the policy's own code equals its log_probability, and sums to one."""
    stated = policy.log_probability(all_subsets(4)).exp()
    if isinstance(policy, M.SizePolicy):
        stated[0] = 0.0  # sizes start at 1: the empty mask is not asked for
    assert float(stated[1:].sum()) == pytest.approx(1, abs=1e-12)
    assert policy.covers(4) == bool((stated[1:] > 0).all())
    if not isinstance(policy, M.SizePolicy) or isinstance(policy.law, M.RateSet):
        assert torch.allclose(law_of_draws(lambda s: policy.draw_mask(4, s)), stated, atol=1e-12)


def test_schedule_spends_its_time_as_stated():
    """Closed-form size probabilities against a fine grid of times."""
    for shape in ("linear", "cosine"):
        for start, end in ((0.0, 1.0), (0.8, 0.2), (0.15, 0.4)):
            law = M.RateSchedule(start, end, shape)
            times = (torch.arange(100_000) + 0.5) / 100_000
            rates = torch.tensor([law.rate_at(float(t)) for t in times[::50]], dtype=torch.float64)
            sizes = (rates * 7 + 0.5).floor().clamp_min(1).long()
            share = torch.bincount(sizes - 1, minlength=7) / len(sizes)
            assert (share - law.probabilities(7)).abs().max() < 2e-3
            assert float(law.probabilities(7).sum()) == pytest.approx(1, abs=1e-12)
    assert M.RateSchedule(0.8, 0.2).rate_at(0.25) == pytest.approx(0.65)


@pytest.mark.parametrize("policy", POLICIES[:-1], ids=str)  # the time of a schedule is continuous: not enumerated
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_whole_mask_weights_mend_every_policy(policy, share):
    model, x, scores = toy()
    design = M.PolicyMasks(policy, 1, uniform_share=share)

    def value(stream):
        batch = design.draw(4, stream)
        return float((batch.sampling.log_weight.exp() * scores[code(batch.hidden)]).sum())

    expectation = sum(p * v for p, v in outcomes(value, first_stands=0 < share < 1))
    log_prob = float(model.log_marginal_likelihood(x))
    if design.estimand(4) == M.CUMULATIVE_SCORE:
        assert expectation == pytest.approx(log_prob, abs=1e-12)
    else:
        stated = policy.log_probability(all_subsets(4)).exp()[1:]
        assert expectation == pytest.approx(float(stated @ scores[1:]), abs=1e-12)
        assert abs(expectation - log_prob) > 1
        with pytest.raises(EstimandError, match="not the cumulative score"):
            mb.cumulative_score(model, x, design=design)
        own = mb.masked_score(model, x, design=design)
        assert own.estimand == f"mean masked score under {policy.name}"


def test_reference_values_of_the_toy_joint():
    reference = json.loads((Path(__file__).parent / "data" / "reference_values.json").read_text())["toy_joint_D4"]
    _, _, scores = toy()
    hidden = all_subsets(4)[1:]
    own = lambda policy: float(policy.log_probability(hidden).exp() @ scores[1:])  # noqa: E731
    expected = reference["expectations"]
    tolerance = reference["tolerance_abs"]
    uniform_coin, table = M.CoordinatePolicy((0.3,) * 4), M.CoordinatePolicy((0.1, 0.5, 0.3, 0.7))
    assert 4 * own(uniform_coin) == pytest.approx(expected["Bernoulli(.3), non-empty, unweighted"], abs=tolerance)
    named = "token-weighted Bernoulli(.1,.5,.3,.7), unweighted"
    assert 4 * own(table) == pytest.approx(expected[named], abs=tolerance)
    fixed = M.TopKPolicy((0.0, 1.0, 0.0, 1.0), 2)
    mixture = M.PolicyMasks(fixed, 1, uniform_share=0.2)
    size = hidden.sum(1)
    c = torch.tensor([1 / math.comb(4, m) for m in range(1, 5)], dtype=torch.float64)[size - 1]
    q = mixture.log_probability(hidden).exp()
    assert float((q * (c / q) * scores[1:]).sum()) == pytest.approx(expected["mask-level weights c/pi"], abs=tolerance)
    assert float((c / 4 / q).max()) == pytest.approx(expected["largest u/pi of that mixture"], abs=1e-9)
    assert float((c / q).max()) <= mixture.weight_bound(4) * (1 + 1e-12)
    # faults: token-level inverse-probability weights are biased, whole-mask weights are not
    pi = table.log_probability(hidden).exp()
    assert float((pi * (c / pi) * scores[1:]).sum()) == pytest.approx(
        expected["mask-level weights c/pi"], abs=tolerance
    )


def test_token_level_weights_are_biased():
    """The planted fault: each hidden coordinate weighted by 1/p_j leaves a bias, since the context changes too."""
    model, x, _ = toy()
    reference = json.loads((Path(__file__).parent / "data" / "reference_values.json").read_text())["toy_joint_D4"]
    table = torch.tensor([0.1, 0.5, 0.3, 0.7], dtype=torch.float64)
    hidden = all_subsets(4)
    pi = torch.where(hidden, table, 1 - table).prod(1)
    log_prob = torch.zeros(16, 4, dtype=torch.float64)
    log_prob[1:] = model.masked_log_prob(x, hidden[1:])[0]
    expectation = float((pi[:, None] * hidden / table * log_prob).sum())
    assert expectation == pytest.approx(reference["expectations"]["token-level 1/p weights (biased)"], abs=1e-12)
    assert abs(expectation - reference["log_p"]) > 0.5


def test_effective_sample_size():
    assert M.UniformSize(50).draw(6, Stream(0)).sampling.effective_sample_size == pytest.approx(50)
    span = M.PolicyMasks(M.SpanPolicy(0.3, 3.0), 400, uniform_share=0.5).draw(12, Stream(0))
    assert 20 < span.sampling.effective_sample_size < 399
    assert float(span.sampling.log_weight.exp().max()) * 400 <= 24


def test_span_lengths_are_geometric():
    policy = M.SpanPolicy(0.2, 3.0)
    hidden = torch.stack([policy.draw_mask(400, Stream(s)) for s in range(60)])
    starts = (hidden[:, 1:] & ~hidden[:, :-1]).sum()
    assert float(hidden.double().mean()) == pytest.approx(0.2, abs=0.02)
    assert float(hidden[:, 1:].sum() / starts) == pytest.approx(3.0, abs=0.3)


def test_custom_policy():
    def draw(dim, generator):
        return torch.randperm(dim, generator=generator) < 1

    policy = M.CustomPolicy(
        "one at random", draw, lambda h: torch.where(h.sum(1) == 1, 1 / h.shape[1], 0.0).log(), False
    )
    assert M.PolicyMasks(policy, 3).estimand(4) == "mean masked score under one at random"
    assert M.PolicyMasks(policy, 3, uniform_share=0.1).draw(4, Stream(0)).sampling.sizes.tolist() == [1, 1, 1]
    empty = M.CustomPolicy("nothing", lambda dim, g: torch.zeros(dim, dtype=torch.bool), policy.log_prob, False)
    with pytest.raises(ArgumentError, match="hides something"):
        M.PolicyMasks(empty, 1).draw(4, Stream(0))
    liar = M.CustomPolicy("liar", draw, lambda h: torch.full((len(h),), -math.inf), True)
    with pytest.raises(ArgumentError, match="no probability"):
        M.PolicyMasks(liar, 1).draw(4, Stream(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: M.CoordinatePolicy((0.0, 0.0)),
        lambda: M.CoordinatePolicy((1.2,)),
        lambda: M.SpanPolicy(0.9, 1.5),
        lambda: M.SpanPolicy(1.0, 3.0),
        lambda: M.WordPolicy((0, 0), 1.0),
        lambda: M.TopKPolicy((1.0, 2.0), 3),
        lambda: M.RateSet(()),
        lambda: M.RateSet((0.5, 1.5)),
        lambda: M.RateSchedule(0.3, 0.3),
        lambda: M.RateSchedule(0.3, 0.4, "step"),
        lambda: M.PolicyMasks(M.TopKPolicy((1.0,), 1), 1, uniform_share=1.5),
        lambda: M.CoordinatePolicy((0.5, 0.5)).draw_mask(3, Stream(0)),
        lambda: M.WordPolicy((0, 1), 0.5).draw_mask(3, Stream(0)),
        lambda: M.TopKPolicy((0.0, 1.0), 1).draw_mask(3, Stream(0)),
        lambda: M.AntitheticOrders(3),
        lambda: M.StratifiedSizes(4),
    ],
)
def test_impossible_arguments_are_named(make):
    with pytest.raises(ArgumentError):
        make()
