"""Linear-Gaussian state space models against statsmodels and a direct simulation of the recursions."""

import math

import numpy as np
import pytest
import torch

import mpt_bayes as mb


@pytest.fixture(scope="module")
def nile():
    return mb.datasets.load("nile").x[0]


def theirs(y, level, noise, mean, variance):
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    model = UnobservedComponents(np.asarray(y), "local level")
    model.ssm.loglikelihood_burn = 0  # it drops the first observation otherwise
    model.ssm.initialize_known(np.array([mean]), np.array([[variance]]))
    return model.smooth([noise, level])


def test_local_level_on_nile_equals_statsmodels(nile):
    result = theirs(nile, 1469.1, 15098.5, 1000.0, 1e6)
    model = mb.models.local_level(1469.1, 15098.5, len(nile), initial_mean=1000.0, initial_variance=1e6)
    assert float(model.log_marginal_likelihood(nile[None])) == pytest.approx(result.llf, abs=1e-8)


def test_predictions_of_hidden_years_equal_the_smoother(nile):
    hidden = torch.zeros(1, len(nile), dtype=torch.bool)
    hidden[0, [3, 4, 50, 99]] = True
    gaps = nile.clone()
    gaps[hidden[0]] = math.nan
    result = theirs(gaps, 1469.1, 15098.5, 1000.0, 1e6)
    level, variance = result.smoothed_state[0], result.smoothed_state_cov[0, 0] + 15098.5
    expected = -0.5 * ((nile.numpy() - level) ** 2 / variance + np.log(2 * np.pi * variance))
    model = mb.models.local_level(1469.1, 15098.5, len(nile), initial_mean=1000.0, initial_variance=1e6)
    scores = model.masked_log_prob(nile[None], hidden)[0, 0, hidden[0]]
    np.testing.assert_allclose(scores, expected[hidden[0].numpy()], atol=1e-8)
    observed = mb.log_marginal_likelihood(model, gaps[None], missing="marginalise")
    assert float(observed) == pytest.approx(result.llf, abs=1e-8)


def test_both_sides_agree_on_nile(nile):
    model = mb.models.local_level(1469.1, 15098.5, len(nile), initial_mean=1000.0, initial_variance=1e6)
    result = mb.compare(model, nile[None], design=mb.masks.RandomOrders(32))
    assert abs(result.z) < 4.5
    assert mb.verify(model, nile[None]).passed


def test_maximum_likelihood_equals_statsmodels(nile):
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    fitted = mb.models.fitted_local_level(nile)
    reference = UnobservedComponents(nile.numpy(), "local level")
    reference.ssm.loglikelihood_burn = 0
    reference.ssm.initialize_known(np.array([float(nile[0])]), np.array([[10 * float(nile.var(correction=0))]]))
    best = reference.fit(disp=False, method="powell", maxiter=1000)
    ours = float(fitted.log_marginal_likelihood(nile[None]))
    assert best.llf - 1e-6 < ours < best.llf + 0.01  # Powell's method stops a little short of the maximum


def test_two_dimensional_states_equal_the_stacked_recursion():
    rng = np.random.default_rng(0)
    transition, factor, start = rng.normal(0, 0.6, (2, 2)), rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
    observation, mean, length = rng.normal(size=2), rng.normal(size=2), 5
    # y = A (a_1, η_1, …, η_4) + ε with the powers of T written out
    blocks = np.zeros((length, 2 * length))
    for t in range(length):
        for s in range(t + 1):
            blocks[t, 2 * s : 2 * s + 2] = observation @ np.linalg.matrix_power(transition, t - s)
    noise = np.kron(np.eye(length), factor @ factor.T)
    noise[:2, :2] = start @ start.T
    model = mb.models.linear_gaussian_state_space(
        *map(torch.from_numpy, (transition, observation, factor @ factor.T)),
        0.3,
        *map(torch.from_numpy, (mean, start @ start.T)),
        length,
    )
    np.testing.assert_allclose(model.covariance, blocks @ noise @ blocks.T + 0.3 * np.eye(length), atol=1e-12)
    np.testing.assert_allclose(model.mean, blocks[:, :2] @ mean, atol=1e-12)


def test_faults_are_named():
    eye = torch.eye(2)
    with pytest.raises(mb.errors.ModelError, match="have shapes"):
        mb.models.linear_gaussian_state_space(eye, torch.ones(1), eye, 1.0, torch.zeros(2), eye, 3)
    with pytest.raises(mb.errors.ModelError, match="constant"):
        mb.models.fitted_local_level(torch.ones(5))
