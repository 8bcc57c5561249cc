"""The adaptive estimator: unbiased, its standard error right, budgets kept."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, BudgetError, MptBayesWarning
from mpt_bayes.estimation.adaptive import AdaptiveScore, adaptive_tally
from mpt_bayes.estimation.allocation import SizeBins, neyman, sampled_range
from mpt_bayes.estimation.budget import Budget
from mpt_bayes.estimation.control import ControlVariate
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.random import Stream


def gaussian(dim, seed=0):
    g = torch.Generator().manual_seed(seed)
    loading = torch.randn(dim, 2, generator=g, dtype=torch.float64)
    model = mb.models.Gaussian(torch.zeros(dim), loading @ loading.T + torch.eye(dim) / 5)
    return model, torch.randn(3, dim, generator=g, dtype=torch.float64)


def looked_up(model, x):
    """evaluate(hidden) -> (R, P, D) from one table of all masks."""
    dim = model.dim
    table = torch.zeros(len(x), 2**dim, dim, dtype=torch.float64)
    table[:, 1:] = model.masked_log_prob(x, all_subsets(dim)[1:])
    return lambda hidden: table[:, (hidden.long() * 2 ** torch.arange(dim)).sum(1)]


def test_control_variates_have_mean_zero_over_the_masks_of_each_size():
    model, x = gaussian(6)
    hidden = all_subsets(6)[1:]
    scored = hidden[::3]
    fit = ControlVariate.fit(scored, model.masked_log_prob(x, scored))
    centred = fit.centred(hidden)
    assert centred.abs().max() > 0.1
    for size in range(1, 7):
        assert centred[:, hidden.sum(1) == size].mean(1).abs().max() < 1e-12


def test_fit_of_a_sum_of_rows_is_the_sum_of_fits():
    model, x = gaussian(6)
    scored = all_subsets(6)[1::2]
    log_prob = model.masked_log_prob(x, scored)
    each, total = ControlVariate.fit(scored, log_prob), ControlVariate.fit(scored, log_prob.sum(0, keepdim=True))
    assert torch.allclose(each.centred(scored).sum(0), total.centred(scored)[0], atol=1e-10)


def test_additive_scores_are_learnt():
    """Coordinates with their own constant log-probability: after the fit next to nothing is left."""
    effect = torch.linspace(-3, 0, 12, dtype=torch.float64)
    masks = mb.masks.UniformSize(400).draw(12, Stream(0)).hidden
    fit = ControlVariate.fit(masks[:300], (masks[:300] * effect)[None])
    test = masks[300:]
    plain = (test * effect).sum(1) / test.sum(1) - effect.mean()
    assert (plain - fit.centred(test)[0]).square().mean() < 1e-2 * plain.square().mean()


@pytest.mark.parametrize(("lowest", "highest", "count"), [(1, 9, 4), (2, 8, 7), (1, 20, 3), (3, 5, 1), (1, 7, 11)])
def test_bins_average_to_the_uniform_law(lowest, highest, count):
    bins = SizeBins(lowest, highest, count)
    law = bins.law(20)
    assert torch.allclose(law.sum(1), torch.ones(count, dtype=torch.float64), atol=1e-14)
    expected = torch.zeros(20, dtype=torch.float64)
    expected[lowest - 1 : highest] = 1 / bins.width
    assert torch.allclose(law.mean(0), expected, atol=1e-14)
    member = torch.arange(count).repeat_interleave(400)
    sizes = bins.draw_sizes(member, [Stream(0).child(i) for i in range(len(member))])
    assert (law[member, sizes - 1] > 0).all()
    seen = torch.zeros(count, 20, dtype=torch.float64).index_put_(
        (member, sizes - 1), torch.tensor(1 / 400.0).double(), True
    )
    assert (seen - law).abs().max() < 0.13


def test_neyman_is_optimal_for_whole_numbers():
    scale = torch.tensor([0.6, 1.0, 2.5, 1.4])
    counts = neyman(scale, 17)
    assert counts.sum() == 17
    best = min(
        sum(float(s) ** 2 / n for s, n in zip(scale, (a, b, c, 17 - a - b - c), strict=True))
        for a in range(2, 12)
        for b in range(2, 12)
        for c in range(2, 12)
        if 17 - a - b - c >= 2
    )
    assert float((scale.square() / counts).sum()) == pytest.approx(best, rel=1e-6)


def test_everything_is_enumerated_when_the_budget_allows():
    model, x = gaussian(5)
    estimate = mb.cumulative_score(model, x, n_evaluations=31 * 3)
    assert estimate.standard_error == 0
    assert estimate.n_evaluations == 93
    assert estimate.value == pytest.approx(float(model.log_marginal_likelihood(x).sum()), abs=1e-10)
    assert sampled_range(10, 200) == (2, 8)


@pytest.mark.parametrize("n_masks", [24, 60, 200])
def test_unbiased_with_honest_intervals(n_masks):
    """z of the mean over runs, and coverage of 95% intervals, on a table of all masks."""
    model, x = gaussian(8)
    evaluate, truth = looked_up(model, x), float(model.log_marginal_likelihood(x).sum())
    runs = [adaptive_tally(evaluate, 8, Budget(n_masks), Stream(seed)) for seed in range(120)]
    error = np.array([float(t.partials[-1]) - truth for t in runs])
    variance = np.array([float(t.partial_variances[-1]) for t in runs])
    free = variance**2 / np.array([float(t.partial_quartics[-1]) for t in runs])
    assert abs(error.mean()) < 4 * error.std() / math.sqrt(len(runs))
    assert variance.mean() == pytest.approx(error.var(), rel=0.35)
    covered = np.abs(error) <= stats.t.ppf(0.975, free) * np.sqrt(variance)
    assert stats.binom.cdf(covered.sum(), len(runs), 0.95) > 1e-4
    assert all(t.n_evaluations == 3 * n_masks for t in runs)


def test_whole_curve_is_unbiased():
    model, x = gaussian(8)
    evaluate = looked_up(model, x)
    exact = mb.score_curve(model, x, design=mb.masks.Exhaustive())
    runs = [adaptive_tally(evaluate, 8, Budget(40), Stream(seed)) for seed in range(200)]
    for name, truth in (("scores", exact.scores), ("partials", exact.partials)):
        values = torch.stack([getattr(t, name) for t in runs])
        z = (values.mean(0) - torch.tensor(truth)) / (values.std(0) / math.sqrt(len(runs))).clamp_min(1e-12)
        assert z.abs().max() < 4.5, name
    variances = torch.stack([t.score_variances for t in runs]).mean(0)
    spread = torch.stack([t.scores for t in runs]).var(0)
    assert ((variances / spread)[1:-2] - 1).abs().max() < 0.6


def test_rows_sum_to_the_total_and_are_unbiased():
    model, x = gaussian(8)
    estimates = [
        mb.cumulative_score(model, x, n_evaluations=180, generator=torch.Generator().manual_seed(s)) for s in range(60)
    ]
    for e in estimates:
        assert e.per_row.sum() == pytest.approx(e.value, abs=1e-9)
    rows = np.stack([e.per_row for e in estimates])
    z = (rows.mean(0) - model.log_marginal_likelihood(x).numpy()) / (rows.std(0) / math.sqrt(len(rows)))
    assert np.abs(z).max() < 4


def test_twice_better_than_independent_masks_per_size():
    """Acceptance: at D = 10 and 20 masks a size the variance of the total falls by at least half."""
    torch.manual_seed(1991)
    loading, latent, noise = torch.randn(10, 2), torch.randn(200, 2), torch.randn(200, 1) / 5
    model = mb.models.Gaussian(torch.zeros(10), (loading @ loading.T + torch.eye(10) / 5).double())
    x = (latent @ loading.T + noise).double()
    hidden = all_subsets(10)[1:]
    table = torch.zeros(1024, 10, dtype=torch.float64)
    table[1:] = model.masked_log_prob(x, hidden).mean(0)
    score, size = table[1:].sum(1) / hidden.sum(1), hidden.sum(1)
    per_size = sum(float(score[size == m].var(correction=0)) / 20 for m in range(1, 11))
    code = 2 ** torch.arange(10)
    runs = [adaptive_tally(lambda h: table[(h.long() * code).sum(1)], 10, Budget(200), Stream(s)) for s in range(150)]
    variance = float(torch.stack([t.partials[-1] for t in runs]).var())
    assert per_size > 2 * variance


@pytest.mark.parametrize("target", [0.3, 0.1])
def test_stops_at_a_target_standard_error(target):
    model, x = gaussian(8)
    evaluate = looked_up(model, x)
    runs = [adaptive_tally(evaluate, 8, Budget(target_standard_error=target), Stream(seed)) for seed in range(20)]
    assert all(float(t.partial_variances[-1]) ** 0.5 <= target for t in runs)
    estimate = mb.cumulative_score(model, x, target_standard_error=target)
    assert estimate.standard_error <= target
    assert estimate.note == ""


def test_a_target_out_of_reach_of_the_budget_is_said():
    model, x = gaussian(8)
    with pytest.warns(MptBayesWarning, match=r"nats and the target was 0\.0001: sampling stopped after 50 masks"):
        estimate = mb.cumulative_score(model, x, target_standard_error=1e-4, n_evaluations=3 * 50)
    assert estimate.n_evaluations == 150
    assert "before the standard error reached 0.0001" in estimate.note


def test_a_target_that_needs_all_masks_takes_each_once_and_is_exact():
    model, x = gaussian(10)
    result = mb.compare(model, x, target_standard_error=1e-9)
    assert abs(result.difference) < 1e-9
    assert result.cumulative_score.standard_error == 0
    assert result.cumulative_score.n_evaluations < 3 * 2 * (2**10 - 1)  # a pilot, one small round, and all


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"n_evaluations": "5"}, "n_evaluations is '5': expected an integer"),
        ({"n_evaluations": 12}, "budget is 4 masks: 8 coordinates need at least .* counts a mask once a row, 3 times"),
        ({"target_standard_error": "a"}, "target_standard_error is 'a': expected a positive number"),
        ({"time_limit": "a"}, "time_limit is 'a': expected a positive number"),
        ({"time_limit": math.nan}, "time_limit is nan: expected a positive number"),
    ],
)
def test_a_budget_of_another_kind_is_one_line(budget, message):
    model, x = gaussian(8)
    with pytest.raises((ArgumentError, BudgetError), match=message):
        mb.compare(model, x, **budget)


def test_a_time_limit_ends_the_work():
    model, x = gaussian(12)
    estimator = AdaptiveScore(12, Budget(time_limit=1e-9), Stream(0))
    evaluate = looked_up(model, x)
    rounds = 0
    while (hidden := estimator.ask()) is not None:
        estimator.tell(evaluate(hidden))
        rounds += 1
    assert rounds == 1
    assert float(estimator.tally().partial_variances[-1]) > 0


def test_same_seed_same_result_whatever_the_chunks(monkeypatch):
    model, x = gaussian(8)
    whole = mb.cumulative_score(model, x, n_evaluations=150)
    monkeypatch.setattr("mpt_bayes.estimation.budgeted.chunk_length", lambda rows, dim: 7)
    assert mb.cumulative_score(model, x, n_evaluations=150).value == pytest.approx(whole.value, abs=1e-9)


@pytest.mark.parametrize("budget", [{"target_standard_error": 0.3}, {"n_evaluations": 900}], ids=["error", "known"])
def test_rows_that_become_too_many_to_keep_are_summed_and_nothing_else_changes(budget, monkeypatch):
    model, x = gaussian(12)
    whole = mb.cumulative_score(model, x, **budget)
    assert len(whole.per_row) == 3
    seen = []
    tell = AdaptiveScore.tell
    monkeypatch.setattr(AdaptiveScore, "tell", lambda self, rows: (seen.append(rows.shape), tell(self, rows))[1])
    monkeypatch.setattr("mpt_bayes.estimation.budgeted.LARGEST_KEPT", 3 * 12 * 100)
    part = mb.cumulative_score(model, x, **budget)
    if "n_evaluations" not in budget:
        assert seen[0][0] == 3, "the first round fits"
    assert seen[-1][0] == 1
    assert sum(rows * masks for rows, masks, _ in seen if rows > 1) <= 3 * 100, "no more is kept than was allowed"
    assert part.per_row is None
    assert "too many to keep" in part.note
    assert part.n_evaluations == whole.n_evaluations == 3 * sum(masks for _, masks, _ in seen)
    assert part.value == pytest.approx(whole.value, rel=1e-12)
    assert part.standard_error == pytest.approx(whole.standard_error, rel=1e-9)


def test_faults_of_use_are_named():
    model, x = gaussian(8)
    with pytest.raises(ArgumentError, match="one or the other"):
        mb.cumulative_score(model, x, design=mb.masks.RandomOrders(4), n_evaluations=100)
    with pytest.raises(BudgetError, match="at least"):
        mb.cumulative_score(model, x, n_evaluations=3 * 4)
    with pytest.raises(ArgumentError, match="one mask costs 3"):
        mb.cumulative_score(model, x, n_evaluations=2)
    with pytest.raises(ArgumentError, match="no budget"):
        Budget()
    with pytest.raises(ArgumentError, match="positive"):
        Budget(target_standard_error=0.0)
    estimator = AdaptiveScore(8, Budget(50), Stream(0))
    with pytest.raises(ArgumentError, match="ask"):
        estimator.tell(torch.zeros(3, 8))
    with pytest.raises(ArgumentError, match="nothing was scored"):
        estimator.tally()
    estimator.ask()
    with pytest.raises(ArgumentError, match="shape"):
        estimator.tell(torch.zeros(3, 8))
