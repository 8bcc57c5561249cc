"""Exchangeable conjugate models: closed-form curves against every mask, SciPy and quadrature."""

import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

import mpt_bayes as mb
from mpt_bayes.numerics.combinatorics import all_subsets


@pytest.fixture
def rng():
    return np.random.default_rng(20231)


def test_beta_bernoulli_equals_its_table_on_every_mask():
    model = mb.models.BetaBernoulli(0.7, 2.1, dim=4)
    cells = torch.tensor(list(itertools.product((0, 1), repeat=4)))
    ones = cells.sum(1).numpy()
    beta = special.betaln(0.7 + ones, 2.1 + 4 - ones) - special.betaln(0.7, 2.1)
    np.testing.assert_allclose(model.log_marginal_likelihood(cells), beta, atol=1e-12)
    table = mb.models.JointTable(torch.from_numpy(np.exp(beta)).reshape(2, 2, 2, 2))
    hidden = all_subsets(4)[1:]
    torch.testing.assert_close(
        model.masked_log_prob(cells, hidden), table.masked_log_prob(cells, hidden), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize(
    "model",
    [mb.models.BetaBernoulli(0.7, 2.1, dim=9), mb.models.DirichletCategorical(torch.tensor([0.3, 1.0, 4.0]), dim=9)],
)
def test_closed_form_curve_equals_the_average_over_every_mask(model, rng):
    x = torch.from_numpy(rng.integers(0, len(model.concentration), (6, 9)))
    hidden = all_subsets(9)[1:]
    scores = model.masked_log_prob(x, hidden).sum(2) / hidden.sum(1)
    expected = torch.stack([scores[:, hidden.sum(1) == m].mean(1) for m in range(1, 10)], 1)
    torch.testing.assert_close(model.exact_curve(x), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(model.exact_curve(x).sum(1), model.log_marginal_likelihood(x), atol=1e-12, rtol=0)


def test_exhaustive_design_of_a_thousand_coordinates_takes_the_closed_form(rng):
    model = mb.models.BetaBernoulli(1.5, 0.5, dim=1000)
    x = torch.from_numpy(rng.integers(0, 2, (5, 1000)))
    result = mb.compare(model, x, design=mb.masks.Exhaustive())
    assert abs(result.difference) < 1e-8
    assert result.cumulative_score.standard_error == 0


def test_large_concentrations_keep_their_digits():
    model = mb.models.BetaBernoulli(1e12, 1e12, dim=50)
    x = torch.zeros(1, 50, dtype=torch.int64)
    assert float(model.log_marginal_likelihood(x)) == pytest.approx(50 * np.log(0.5), abs=1e-9)


def test_dirichlet_categorical_equals_scipy(rng):
    alpha = np.array([0.5, 1.5, 2.0])
    x = rng.integers(0, 3, (4, 8))
    counts = np.stack([np.bincount(row, minlength=3) for row in x])
    sequence = [
        stats.dirichlet_multinomial.logpmf(c, alpha, 8) - special.gammaln(9) + special.gammaln(c + 1).sum()
        for c in counts
    ]
    model = mb.models.DirichletCategorical(torch.from_numpy(alpha), dim=8)
    np.testing.assert_allclose(model.log_marginal_likelihood(torch.from_numpy(x)), sequence, atol=1e-10)


def test_normal_inverse_gamma_equals_the_multivariate_student(rng):
    model = mb.models.NormalInverseGamma(0.3, 0.8, 1.7, 2.2, dim=5)
    x = rng.normal(1, 2, (6, 5))
    scale = 2.2 / 1.7 * (np.eye(5) + np.ones((5, 5)) / 0.8)
    expected = stats.multivariate_t(np.full(5, 0.3), scale, df=2 * 1.7).logpdf(x)
    np.testing.assert_allclose(model.log_marginal_likelihood(torch.from_numpy(x)), expected, atol=1e-10)
    result = mb.compare(model, torch.from_numpy(x), design=mb.masks.Exhaustive())
    assert abs(result.difference) < 1e-10
    hidden = all_subsets(5)[1:]
    torch.testing.assert_close(
        model.masked_log_prob(torch.from_numpy(x), hidden),
        mb.models.marginals.conditionals_from_marginals(model, torch.from_numpy(x), hidden),
        atol=1e-10,
        rtol=0,
    )


def test_normal_inverse_gamma_equals_quadrature():
    model = mb.models.NormalInverseGamma(0.3, 0.8, 1.7, 2.2, dim=2)
    x = np.array([0.4, -1.0])

    def integrand(log_variance):
        variance = np.exp(log_variance)
        data = stats.multivariate_normal(np.full(2, 0.3), variance * (np.eye(2) + np.ones((2, 2)) / 0.8)).pdf(x)
        return data * stats.invgamma(1.7, scale=2.2).pdf(variance) * variance

    value, _ = integrate.quad(integrand, -15, 15, epsabs=1e-13, limit=200)
    assert float(model.log_marginal_likelihood(torch.from_numpy(x)[None])) == pytest.approx(np.log(value), abs=1e-8)


def test_a_large_common_offset_keeps_its_digits(rng):
    x = torch.from_numpy(rng.normal(size=(3, 6)))
    near = mb.models.NormalInverseGamma(0.0, 0.5, 2.0, 1.0, dim=6)
    far = mb.models.NormalInverseGamma(1e8, 0.5, 2.0, 1.0, dim=6)
    torch.testing.assert_close(far.log_marginal_likelihood(x + 1e8), near.log_marginal_likelihood(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: mb.models.BetaBernoulli(0.0, 1.0, dim=3),
        lambda: mb.models.DirichletCategorical(torch.tensor([1.0, float("inf")]), dim=3),
        lambda: mb.models.NormalInverseGamma(0.0, 0.0, 1.0, 1.0, dim=3),
    ],
)
def test_improper_priors_are_refused(build):
    with pytest.raises(mb.errors.ModelError, match="positive"):
        build()


def test_a_category_outside_is_named():
    with pytest.raises(mb.errors.DataError, match="row 1"):
        mb.models.BetaBernoulli(1.0, 1.0, dim=2).log_marginal_likelihood(torch.tensor([[0, 1], [2, 0]]))


def test_large_alphabets_cost_only_the_categories_that_occur(rng):
    model = mb.models.DirichletCategorical(torch.full((30_000,), 0.01, dtype=torch.float64), dim=6)
    x = torch.from_numpy(rng.integers(0, 30_000, (4, 6)))
    x[:, 1] = x[:, 0]
    total = mb.cumulative_score(model, x, design=mb.masks.Exhaustive()).value
    assert total == pytest.approx(float(model.log_marginal_likelihood(x).sum()), abs=1e-9)
    torch.testing.assert_close(model.exact_curve(x).sum(1), model.log_marginal_likelihood(x), atol=1e-10, rtol=0)
