"""The planner's promises kept, and differences with common masks."""

import math

import numpy as np
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError


def factor_model(dim, seed=0, rows=1, rank=2):
    g = torch.Generator().manual_seed(seed)
    loading = torch.randn(dim, rank, generator=g, dtype=torch.float64)
    model = mb.models.Gaussian(torch.zeros(dim), loading @ loading.T + torch.eye(dim) / 5)
    factor = torch.linalg.cholesky(model.covariance)
    return model, torch.randn(rows, dim, generator=g, dtype=torch.float64) @ factor.T


@pytest.mark.parametrize(("dim", "budget"), [(16, 1000), (40, 1000)])
def test_predicted_standard_error_is_within_a_quarter_in_nine_of_ten_trials(dim, budget):
    model, x = factor_model(dim)
    near = 0
    for trial in range(10):
        generator = torch.Generator().manual_seed(trial)
        predicted = mb.plan(model, x, generator=generator).standard_error(budget)
        obtained = mb.cumulative_score(model, x, n_evaluations=budget, generator=generator).standard_error
        near += abs(predicted / obtained - 1) <= 0.25
    assert near >= 9


def test_budget_for_a_standard_error_is_consistent():
    model, x = factor_model(12, rows=2)
    planned = mb.plan(model, x)
    budget = planned.evaluations_for(0.3)
    assert planned.standard_error(budget) <= 0.3 < planned.standard_error(budget - 50)
    assert planned.standard_error(2 * (2**12 - 1)) == 0.0
    assert planned.n_evaluations == 2 * 300
    assert "nats at 1000 evaluations" in repr(planned)
    with pytest.raises(ArgumentError, match="positive"):
        planned.evaluations_for(0.0)
    with pytest.raises(ArgumentError, match="fewest"):
        planned.standard_error(4)
    large, y = factor_model(40)
    with pytest.raises(ArgumentError, match="out of reach"):
        mb.plan(large, y).evaluations_for(1e-7)


def test_common_masks_shrink_the_standard_error():
    """Two close models: the paired standard error is a small part of that of two independent estimates."""
    model, x = factor_model(20)
    close = mb.models.Gaussian(model.mean, model.covariance * 1.05)
    truth = float(model.log_marginal_likelihood(x) - close.log_marginal_likelihood(x))
    errors = []
    for seed in range(30):
        make = torch.Generator().manual_seed
        paired = mb.score_difference(model, close, x, n_evaluations=200, generator=make(seed))
        errors.append((paired.value - truth) / paired.standard_error)
    apart = mb.cumulative_score(model, x, n_evaluations=200, generator=make(1)) - mb.cumulative_score(
        close, x, n_evaluations=200, generator=make(2)
    )
    assert paired.standard_error < apart.standard_error / 10
    assert abs(np.mean(errors)) < 4 / math.sqrt(len(errors))
    assert 0.6 < np.std(errors) < 1.5
    assert paired.estimand == "difference of cumulative score"


@pytest.mark.parametrize("design", [mb.masks.Exhaustive(), mb.masks.RandomOrders(400)])
def test_difference_of_two_data(design):
    model, x = factor_model(6, rows=3)
    other = x + 0.1
    estimate = mb.score_difference(model, model, x, other_x=other, design=design)
    truth = model.log_marginal_likelihood(x) - model.log_marginal_likelihood(other)
    assert abs(estimate.value - float(truth.sum())) <= 4 * estimate.standard_error + 1e-9
    assert "/" in estimate.data_digest
    assert estimate.per_row.shape == (3,)


def test_fast_path_of_both_models_is_used_and_agrees():
    x = factor_model(6)[1]
    ppca = mb.models.PPCA(torch.ones(6, 1, dtype=torch.float64), 0.3)
    table = mb.masks.RandomOrders(5)
    fast = mb.score_difference(ppca, ppca, x, other_x=x + 1, design=table)
    dense = mb.models.Gaussian(torch.zeros(6), torch.ones(6, 6).double() + 0.3 * torch.eye(6).double())
    slow = mb.score_difference(dense, dense, x, other_x=x + 1, design=table)
    assert fast.value == pytest.approx(slow.value, abs=1e-9)


def test_sums_over_rows_serve_a_difference_and_rows_add_up():
    g = torch.Generator().manual_seed(2)
    x = torch.randn(30, 5, dtype=torch.float64, generator=g)
    models = [mb.models.Gaussian(torch.zeros(5), torch.eye(5, dtype=torch.float64) + c) for c in (0.5, 0.6)]
    design = mb.masks.RandomOrders(4)
    whole = mb.score_difference(*models, x, other_x=x.flip(0), design=design)
    alone = mb.score_difference(*models, x, other_x=x.flip(0), design=design, per_row=False)
    by_hand = [mb.cumulative_score(m, d, design=design).value for m, d in zip(models, (x, x.flip(0)), strict=True)]
    assert whole.value == pytest.approx(by_hand[0] - by_hand[1], rel=1e-10)
    assert alone.value == pytest.approx(whole.value, rel=1e-10)
    assert whole.per_row.sum() == pytest.approx(whole.value, rel=1e-10)
    assert alone.per_row is None


def test_comparison_without_rows_agrees():
    x = torch.randn(30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    model = mb.models.Gaussian(torch.zeros(5), torch.eye(5, dtype=torch.float64) + 0.5)
    whole, alone = (mb.compare(model, x, design=mb.masks.RandomOrders(4), per_row=flag) for flag in (True, False))
    assert alone.curve.total.per_row is None
    assert alone.difference == pytest.approx(whole.difference, abs=1e-9)


def test_faults_of_use_are_named():
    model, x = factor_model(6)
    smaller, _ = factor_model(5)
    with pytest.raises(ArgumentError, match="share no masks"):
        mb.score_difference(model, smaller, x)
    with pytest.raises(DataError, match="in pairs"):
        mb.score_difference(model, model, x, other_x=x[:, :5])
