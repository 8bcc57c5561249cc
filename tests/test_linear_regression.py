"""Bayesian linear regression against quadrature, normalising constants, scikit-learn and the reference value."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

import mpt_bayes as mb


@pytest.fixture
def data():
    rng = np.random.default_rng(7)
    inputs = rng.normal(size=(6, 2))
    return torch.from_numpy(inputs), torch.from_numpy(inputs @ [1.0, -2.0] + rng.normal(size=6))


def test_evidence_equals_scipy_quadrature_over_the_noise(data):
    inputs, y = data
    mean, covariance = torch.tensor([0.3, -0.1]).double(), torch.tensor([[2.0, 0.4], [0.4, 1.0]]).double()
    model = mb.models.linear_regression(inputs, mean, covariance, shape=2.5, rate=1.5)

    def integrand(log_variance):
        variance = math.exp(log_variance)
        spread = variance * (np.eye(6) + (inputs @ covariance @ inputs.T).numpy())
        density = stats.multivariate_normal((inputs @ mean).numpy(), spread).pdf(y.numpy())
        return density * stats.invgamma.pdf(variance, 2.5, scale=1.5) * variance

    value, _ = integrate.quad(integrand, -12, 12, epsabs=1e-20, epsrel=1e-12, limit=300)
    assert float(model.log_marginal_likelihood(y[None])) == pytest.approx(math.log(value), abs=1e-8)


def test_evidence_equals_the_ratio_of_normalising_constants(data):
    inputs, y = data
    model = mb.models.ridge_regression(inputs, 0.7, shape=2.0, rate=3.0)
    precision = inputs.T @ inputs + 0.7 * torch.eye(2).double()
    centre = torch.linalg.solve(precision, inputs.T @ y)
    rate = 3.0 + 0.5 * float(y @ y - centre @ precision @ centre)
    expected = (
        -3 * math.log(2 * math.pi)
        + 0.5 * (2 * math.log(0.7) - float(torch.logdet(precision)))
        + 2 * math.log(3.0)
        - 5 * math.log(rate)
        + special.gammaln(5)
        - special.gammaln(2)
    )
    assert float(model.log_marginal_likelihood(y[None])) == pytest.approx(expected, abs=1e-10)


def test_g_prior_is_the_general_prior_with_its_covariance(data):
    inputs, y = data
    covariance = 5.0 * torch.linalg.inv(inputs.T @ inputs)
    general = mb.models.linear_regression(inputs, torch.zeros(2), covariance, shape=1.0, rate=2.0)
    model = mb.models.g_prior_regression(inputs, 5.0, shape=1.0, rate=2.0)
    torch.testing.assert_close(model.log_marginal_likelihood(y[None]), general.log_marginal_likelihood(y[None]))


def test_both_sides_agree_and_verify_passes(data):
    inputs, y = data
    for model in (
        mb.models.g_prior_regression(inputs, 6.0, shape=1.0, rate=1.0),
        mb.models.fixed_noise_regression(inputs, 1.0, 0.5),
    ):
        assert abs(mb.compare(model, y[None], design=mb.masks.Exhaustive()).difference) < 1e-10
        assert mb.verify(model, y[None]).passed


def test_leave_one_out_is_the_first_point_of_the_curve(data):
    inputs, y = data
    model = mb.models.ridge_regression(inputs, 0.7, shape=2.0, rate=3.0)
    curve = mb.score_curve(model, y[None], design=mb.masks.Exhaustive())
    held_out = []
    for i in range(6):
        rest = [j for j in range(6) if j != i]
        part = mb.models.ridge_regression(inputs[rest], 0.7, shape=2.0, rate=3.0)
        whole = model.log_marginal_likelihood(y[None])
        held_out.append(float(whole - part.log_marginal_likelihood(y[None, rest])))
    assert curve.scores[0] == pytest.approx(np.mean(held_out), abs=1e-10)


def test_diabetes_equals_the_reference_value():
    from sklearn.datasets import load_diabetes

    inputs, y = map(torch.from_numpy, load_diabetes(return_X_y=True))
    inputs, y = inputs - inputs.mean(0), y - y.mean()
    model = mb.models.fixed_noise_regression(inputs, 0.00034101950569864954, 1.1462293303115917e-05)
    assert float(model.log_marginal_likelihood(y[None])) == pytest.approx(-2405.7713076053747, rel=1e-9)


def test_scikit_learn_bayesian_ridge_is_taken_with_its_centring():
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import BayesianRidge

    inputs, y = load_diabetes(return_X_y=True)
    fitted = BayesianRidge(alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, compute_score=True, tol=1e-10, max_iter=2000)
    fitted.fit(inputs, y)
    model = mb.models.regression_from_sklearn(fitted, torch.from_numpy(inputs))
    value = float(model.log_marginal_likelihood(torch.from_numpy(y)[None]))
    assert value == pytest.approx(fitted.scores_[-1], abs=1e-3)  # its last score is one update of the precisions behind


def test_faults_are_named(data):
    inputs, _ = data
    with pytest.raises(mb.errors.ModelError, match="depend on each other"):
        mb.models.g_prior_regression(torch.cat([inputs, inputs], 1), 5.0, shape=1.0, rate=1.0)
    with pytest.raises(mb.errors.ModelError, match="penalty is 0"):
        mb.models.ridge_regression(inputs, 0.0, shape=1.0, rate=1.0)
    with pytest.raises(mb.errors.ModelError, match="shape and rate"):
        mb.models.ridge_regression(inputs, 1.0, shape=-1.0, rate=1.0)
    with pytest.raises(mb.errors.ModelError, match="prior_mean has shape"):
        mb.models.linear_regression(inputs, torch.zeros(3), torch.eye(2), shape=1.0, rate=1.0)
    with pytest.raises(mb.errors.NotPositiveDefiniteError, match="prior_covariance"):
        mb.models.linear_regression(inputs, torch.zeros(2), -torch.eye(2), shape=1.0, rate=1.0)
