"""Pyro programs with guides, MCMC draws, nested plates and no argument."""

import itertools
import math

import pyro
import pyro.distributions as dist
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.models.pyro_guides import fit_guide


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    pyro.clear_param_store()
    yield
    torch.set_default_dtype(torch.float32)


def draws(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def log_evidence(model, x):
    inner = model.inner_variance(
        x, *model.log_prob_influence(x, torch.ones(1, x.shape[1], dtype=bool), torch.ones(1, 1))
    )
    return float(model.log_marginal_likelihood(x).sum()), math.sqrt(inner)


def test_a_guide_of_ones_own_is_weighted_by_its_density():
    loading = draws(0, 6, 4)

    def program(x):
        z = pyro.sample("z", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        pyro.sample("x", dist.StudentT(8.0, loading @ z, 1.0).to_event(1), obs=x)

    def guide(x):
        centre = torch.linalg.solve(loading.T @ loading + torch.eye(4), loading.T @ x)
        pyro.sample("z", dist.Normal(centre, 0.6).to_event(1))

    x = draws(1, 6)
    with_guide, error = log_evidence(mb.models.PyroModel(program, x, guide=guide, n_samples=400), x[None])
    prior, prior_error = log_evidence(mb.models.PyroModel(program, x, n_samples=800), x[None])
    assert error < prior_error
    assert abs(with_guide - prior) < 5 * math.hypot(error, prior_error)


def test_a_fitted_guide_leaves_the_discrete_latents_to_enumeration():
    loading = draws(2, 5, 4)

    def program(x):
        sign = pyro.sample("sign", dist.Bernoulli(0.3))
        z = pyro.sample("z", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        mean = z @ loading.T + 2 * sign[..., None] - 1
        pyro.sample("x", dist.Laplace(mean, 1.0).to_event(1), obs=x)

    x = draws(3, 5)
    guide = fit_guide(program, x, n_steps=60)
    model = mb.models.PyroModel(program, x, guide=guide, n_samples=200)
    assert len(model._states) == 400
    value, error = log_evidence(model, x[None])
    prior, prior_error = log_evidence(mb.models.PyroModel(program, x, n_samples=400), x[None])
    assert abs(value - prior) < 5 * math.hypot(error, prior_error)


def test_nuts_draws_give_the_posterior_predictive():
    seen = 3.0 + draws(4, 12)

    def program(x):
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("x", dist.Normal(mu[..., None].expand(len(x), 2), 1.0).to_event(1), obs=x)

    rows = seen.reshape(6, 2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sampler = pyro.infer.MCMC(pyro.infer.NUTS(program), num_samples=150, warmup_steps=50, disable_progbar=True)
        sampler.run(rows)
    new = torch.tensor([[3.2, 2.5]])
    model = mb.models.PyroModel(program, new[0], rows="rows", posterior=sampler.get_samples())
    precision = 12 + 0.01
    centre, spread = float(seen.sum()) / precision, 1 / precision
    exact = mb.models.Gaussian(torch.full((2,), centre), torch.eye(2) + spread)
    value, error = log_evidence(model, new)
    assert model.is_estimated
    assert abs(value - float(exact.log_marginal_likelihood(new))) < 6 * error + 0.01  # draws of a chain are correlated


def test_rows_of_words_with_their_own_proportions():
    words = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])

    def program(x):
        with pyro.plate("rows", len(x), dim=-2):
            kind = pyro.sample("kind", dist.Categorical(torch.tensor([0.5, 0.5])))
            with pyro.plate("words", 4, dim=-1):
                chance = torch.where(kind == 0, 0.9, 0.2)
                topic = pyro.sample("topic", dist.Bernoulli(chance)).long()
                pyro.sample("x", dist.Categorical(words[topic]), obs=x)

    x = torch.tensor(list(itertools.product(range(3), repeat=4)))[::10]
    model = mb.models.PyroModel(program, x[0], rows="rows")
    expected = torch.zeros(len(x))
    for chance in (0.9, 0.2):
        mixed = chance * words[1] + (1 - chance) * words[0]
        expected += 0.5 * mixed[x].prod(1)
    torch.testing.assert_close(model.log_marginal_likelihood(x).exp(), expected)
    assert mb.verify(model, x).passed


def test_a_program_without_an_argument_is_conditioned():
    def program():
        scale = pyro.sample("scale", dist.HalfNormal(1.0))
        pyro.sample("x", dist.Laplace(0.0, 0.1 + scale).expand([3]).to_event(1))

    x = draws(5, 2, 3)
    model = mb.models.PyroModel(program, x[0])

    def with_argument(x):
        scale = pyro.sample("scale", dist.HalfNormal(1.0))
        pyro.sample("x", dist.Laplace(0.0, 0.1 + scale).expand([3]).to_event(1), obs=x)

    again = mb.models.PyroModel(with_argument, x[0])
    torch.testing.assert_close(model.log_marginal_likelihood(x), again.log_marginal_likelihood(x))
    assert model.quadrature_error(x).largest < 1e-6


def test_values_outside_the_support_name_their_row():
    def program(x):
        rate = pyro.sample("rate", dist.LogNormal(0.0, 0.3))
        pyro.sample("x", dist.Exponential(rate).expand([2]).to_event(1), obs=x)

    model = mb.models.PyroModel(program, torch.ones(2))
    with pytest.raises(mb.errors.DataError, match="outside the support of Exponential in row 1"):
        model.log_marginal_likelihood(torch.tensor([[1.0, 2.0], [1.0, -2.0]]))
    keep = torch.tensor([1])
    part = mb.models.restrict(model, keep)
    expected = model.marginal_log_prob(torch.ones(1, 2), torch.tensor([[False, True]]))[:, 0]
    torch.testing.assert_close(part.log_marginal_likelihood(torch.ones(1, 1)), expected)


def test_the_global_random_state_is_left_alone():
    def program(x):
        theta = pyro.sample("theta", dist.Dirichlet(torch.ones(2)))
        pyro.sample("x", dist.Categorical(theta).expand([3]).to_event(1), obs=x)

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = mb.models.PyroModel(program, torch.tensor([0, 1, 1]), n_samples=50)
    assert torch.equal(torch.rand(2), expected)
    second = mb.models.PyroModel(program, torch.tensor([0, 1, 1]), n_samples=50)
    x = torch.tensor([[0, 0, 1]])
    assert torch.equal(first.log_marginal_likelihood(x), second.log_marginal_likelihood(x))
