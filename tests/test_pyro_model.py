"""Pyro programs as users write them, against enumeration, SciPy quadrature and Pyro's own inference."""

import itertools
import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy import integrate, special, stats

import mpt_bayes as mb
from mpt_bayes.models.pyro_guides import fit_guide
from mpt_bayes.numerics.combinatorics import all_subsets


@pytest.fixture(autouse=True)
def double():
    """Programs run in their own dtype; float64 lets them be held to tight tolerances."""
    torch.set_default_dtype(torch.float64)
    pyro.clear_param_store()
    yield
    torch.set_default_dtype(torch.float32)


def draws(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_identity(model, x):
    assert abs(mb.compare(model, x, design=mb.masks.Exhaustive()).difference) < 1e-9


def test_mixture_equals_trace_enum_elbo():
    means = draws(0, 3, 4)

    def program(x):
        with pyro.plate("rows", len(x)):
            z = pyro.sample("z", dist.Categorical(torch.tensor([0.2, 0.5, 0.3])))
            pyro.sample("x", dist.Normal(means[z], 0.7).to_event(1), obs=x)

    x = draws(1, 5, 4)
    model = mb.models.PyroModel(program, x[0], rows="rows")
    elbo = pyro.infer.TraceEnum_ELBO(max_plate_nesting=1)
    theirs = -elbo.loss(pyro.infer.config_enumerate(program), lambda x: None, x)
    assert float(model.log_marginal_likelihood(x).sum()) == pytest.approx(theirs, abs=1e-10)
    expected = mb.models.Mixture.gaussian(torch.tensor([0.2, 0.5, 0.3]), means, torch.full((3, 4), 0.7))
    hidden = all_subsets(4)[1:]
    torch.testing.assert_close(model.masked_log_prob(x, hidden), expected.masked_log_prob(x, hidden))
    assert not model.is_estimated


def test_topic_model_covers_the_enumeration_of_all_topics():
    words = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    concentration = torch.tensor([0.8, 1.5])

    def program(x):
        theta = pyro.sample("theta", dist.Dirichlet(concentration))
        with pyro.plate("words", 5):
            topic = pyro.sample("topic", dist.Categorical(theta))
            pyro.sample("x", dist.Categorical(words[topic]), obs=x)

    x = torch.tensor([[0, 2, 2, 1, 0], [2, 2, 2, 1, 2]])
    total = torch.zeros(2)
    for topics in itertools.product(range(2), repeat=5):
        counts = np.bincount(topics, minlength=2)
        a = concentration.numpy()
        prior = special.gammaln(a.sum()) - special.gammaln(a.sum() + 5)
        prior += (special.gammaln(a + counts) - special.gammaln(a)).sum()
        total += math.exp(prior) * words[torch.tensor(topics), x].prod(1)
    model = mb.models.PyroModel(program, x[0], n_samples=400)
    assert model.is_estimated
    result = mb.compare(model, x, design=mb.masks.Exhaustive())
    error = result.log_marginal_likelihood_inner_standard_error
    assert 0 < error < 0.1
    assert abs(result.log_marginal_likelihood - float(total.log().sum())) < 4.5 * error
    assert abs(result.difference) < 1e-9


def test_bayesian_pca_is_exact_given_loadings_and_averages_over_nuts_draws():
    loadings = draws(3, 6, 4, 2)

    def program(x):
        loading = pyro.sample("W", dist.Normal(torch.zeros(4, 2), 1.0).to_event(2))
        with pyro.plate("rows", len(x)):
            z = pyro.sample("z", dist.Normal(torch.zeros(2), 1.0).to_event(1))
            pyro.sample("x", dist.Normal(z @ loading.T, 0.5).to_event(1), obs=x)

    x = draws(4, 3, 4)
    model = mb.models.PyroModel(program, x[0], rows="rows", posterior={"W": loadings})
    parts = [mb.models.Gaussian(torch.zeros(4), w @ w.T + 0.25 * torch.eye(4)) for w in loadings]
    expected = torch.stack([p.log_marginal_likelihood(x) for p in parts]).logsumexp(0) - math.log(6)
    torch.testing.assert_close(model.log_marginal_likelihood(x), expected, atol=1e-10, rtol=0)
    with pytest.warns(mb.errors.MptBayesWarning, match="of 6 draws"):
        assert_identity(model, x)
    with pytest.raises(mb.errors.ModelError, match="latent 'W' is outside the plate 'rows'"):
        mb.models.PyroModel(program, x[0], rows="rows")


def test_logistic_factors_equal_the_quadrature_model():
    loading, bias = draws(5, 5, 2), draws(6, 5)

    def program(x):
        z = pyro.sample("z", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        pyro.sample("x", dist.Bernoulli(logits=z @ loading.T + bias).to_event(1), obs=x)

    x = (draws(7, 4, 5) > 0).double()
    model = mb.models.PyroModel(program, x[0], n_nodes=24)
    expected = mb.models.LatentQuadrature.bernoulli(lambda z: z @ loading.T + bias, 2, n_nodes=200)
    torch.testing.assert_close(model.log_marginal_likelihood(x), expected.log_marginal_likelihood(x), atol=1e-7, rtol=0)
    found = model.quadrature_error(x)
    assert found.largest < 1e-6
    assert (found.n_nodes, found.finer) == (24**2, 36**2)
    keep = torch.tensor([4, 0, 2])
    part = model.restrict(keep).restrict(torch.tensor([2, 0]))
    again = model.restrict(keep[[2, 0]])
    error = part.quadrature_error(x[:, [2, 4]])
    torch.testing.assert_close(error.per_row, again.quadrature_error(x[:, [2, 4]]).per_row, rtol=0, atol=1e-14)
    assert error.largest < 1e-6
    assert_identity(model, x)


def test_discrete_hmm_is_a_chain_in_pyros_convention():
    start, step = torch.tensor([0.6, 0.4]), torch.tensor([[0.9, 0.1], [0.2, 0.8]])

    def program(x):
        emission = dist.Categorical(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]))
        pyro.sample("x", dist.DiscreteHMM(start.log(), step.log(), emission, duration=5), obs=x)

    x = torch.tensor([[0, 1, 2, 2, 0], [2, 2, 2, 1, 1]])
    model = mb.models.PyroModel(program, x[0])
    theirs = torch.stack([poutine.trace(program).get_trace(row).log_prob_sum() for row in x])
    torch.testing.assert_close(model.log_marginal_likelihood(x), theirs, atol=1e-10, rtol=0)
    assert isinstance(model.model, mb.models.HiddenMarkov)


def test_a_loop_of_states_is_enumerated():
    step, emission = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.7, 0.3], [0.1, 0.9]])

    def program(x):
        state = 0
        for t in pyro.markov(range(5)):
            state = pyro.sample(f"z{t}", dist.Categorical(step[state]))
            pyro.sample(f"x{t}", dist.Categorical(emission[state]), obs=x[t])

    x = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 1, 0]])
    model = mb.models.PyroModel(program, x[0], observed=tuple(f"x{t}" for t in range(5)))
    chain = mb.models.HiddenMarkov(step[0], step, emission, length=5)
    torch.testing.assert_close(model.log_marginal_likelihood(x), chain.log_marginal_likelihood(x))
    elbo = pyro.infer.TraceEnum_ELBO(max_plate_nesting=0)
    theirs = [-elbo.loss(pyro.infer.config_enumerate(program), lambda x: None, row) for row in x]
    np.testing.assert_allclose(model.log_marginal_likelihood(x), theirs, atol=1e-10)


def test_eight_schools_equals_scipy():
    y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def program(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
        tau = pyro.sample("tau", dist.HalfNormal(5.0))
        with pyro.plate("schools", 8):
            theta = pyro.sample("theta", dist.Normal(mu, tau))
            pyro.sample("y", dist.Normal(theta, sigma), obs=y)

    model = mb.models.PyroModel(program, y, observed="y", n_nodes=64)

    def integrand(tau):
        covariance = 25 * np.ones((8, 8)) + tau**2 * np.eye(8) + np.diag(sigma.numpy() ** 2)
        return stats.multivariate_normal(np.zeros(8), covariance).pdf(y.numpy()) * stats.halfnorm.pdf(tau, scale=5)

    value, _ = integrate.quad(integrand, 0, 60, epsabs=1e-25, epsrel=1e-11)
    assert float(model.log_marginal_likelihood(y[None])) == pytest.approx(math.log(value), abs=1e-6)
    assert model.quadrature_error(y[None]).largest < 1e-5
    assert_identity(model, y[None])


def test_zero_inflated_counts_equal_scipy():
    def program(x):
        rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
        with pyro.plate("counts", 5):
            gate = pyro.sample("gate", dist.Bernoulli(0.3))
            pyro.sample("x", dist.Poisson(rate * (1 - gate) + 1e-300 * gate), obs=x)

    x = torch.tensor([0.0, 3.0, 0.0, 1.0, 4.0])
    model = mb.models.PyroModel(program, x)

    def integrand(rate):
        return stats.gamma.pdf(rate, 2) * np.prod(0.3 * (x.numpy() == 0) + 0.7 * stats.poisson.pmf(x.numpy(), rate))

    value, _ = integrate.quad(integrand, 0, 60, epsabs=1e-14, limit=200)
    assert float(model.log_marginal_likelihood(x[None])) == pytest.approx(math.log(value), abs=1e-7)
    assert_identity(model, x[None])


def test_linear_regression_equals_scipy():
    inputs, y = draws(8, 7, 3), draws(9, 7)

    def program(y):
        weights = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        sigma = pyro.sample("sigma", dist.LogNormal(0.0, 0.5))
        pyro.sample("y", dist.Normal(inputs @ weights, sigma).to_event(1), obs=y)

    model = mb.models.PyroModel(program, y, observed="y")

    def integrand(sigma):
        covariance = (inputs @ inputs.T).numpy() + sigma**2 * np.eye(7)
        return stats.multivariate_normal(np.zeros(7), covariance).pdf(y.numpy()) * stats.lognorm.pdf(sigma, 0.5)

    value, _ = integrate.quad(integrand, 1e-6, 40, epsabs=1e-16, epsrel=1e-11, limit=300)
    assert float(model.log_marginal_likelihood(y[None])) == pytest.approx(math.log(value), abs=1e-8)
    assert_identity(model, y[None])


def test_autoregression_with_an_unknown_coefficient_equals_scipy():
    def program(x):
        phi = pyro.sample("phi", dist.Normal(0.0, 0.5))
        pyro.sample("x0", dist.Normal(0.0, 1.0), obs=x[0])
        for t in range(1, 6):
            pyro.sample(f"x{t}", dist.Normal(phi * x[t - 1], 0.6), obs=x[t])

    x = draws(10, 6)
    model = mb.models.PyroModel(program, x, observed=tuple(f"x{t}" for t in range(6)), n_nodes=96)

    def integrand(phi):
        density = stats.norm.pdf(float(x[0])) * stats.norm.pdf(x[1:].numpy(), phi * x[:-1].numpy(), 0.6).prod()
        return density * stats.norm.pdf(phi, 0, 0.5)

    value, _ = integrate.quad(integrand, -4, 4, epsabs=1e-16, epsrel=1e-11)
    assert float(model.log_marginal_likelihood(x[None])) == pytest.approx(math.log(value), abs=1e-7)
    assert_identity(model, x[None])


def test_dependent_coordinates_are_refused_with_what_to_do():
    def program(x):
        bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
        before = torch.cat([torch.zeros(1), x[:-1]])
        pyro.sample("x", dist.Bernoulli(logits=bias + 2 * before).to_event(1), obs=x)

    with pytest.raises(mb.errors.ModelError, match=r"changes with the data themselves.*as a DiscreteHMM, or as a"):
        mb.models.PyroModel(program, torch.tensor([0.0, 1.0, 1.0]))


def test_a_distribution_over_several_values_is_refused():
    def program(x):
        pyro.sample("x", dist.Multinomial(5, torch.ones(3)), obs=x)

    with pytest.raises(mb.errors.ModelError, match="Multinomial, one distribution over several values"):
        mb.models.PyroModel(program, torch.tensor([1.0, 2.0, 2.0]))


def test_a_guide_shrinks_the_inner_error():
    loading = draws(11, 30, 5)

    def program(x):
        z = pyro.sample("z", dist.Normal(torch.zeros(5), 1.0).to_event(1))
        pyro.sample("x", dist.Bernoulli(logits=z @ loading.T).to_event(1), obs=x)

    x = (draws(12, 30) > 0).double()
    guide = fit_guide(program, x, n_steps=150)
    errors, values = [], []
    for option in (None, guide):
        model = mb.models.PyroModel(program, x, guide=option, n_samples=500)
        variance = model.inner_variance(
            x[None], *model.log_prob_influence(x[None], torch.ones(1, 30, dtype=bool), torch.ones(1, 1))
        )
        errors.append(math.sqrt(variance))
        values.append(float(model.log_marginal_likelihood(x[None])))
    assert errors[1] < 0.5 * errors[0]
    assert abs(values[0] - values[1]) < 5 * math.hypot(*errors)


def test_row_32_poor_draws_of_a_program_are_flagged():
    loading = 3 * draws(13, 60, 6)

    def program(x):
        z = pyro.sample("z", dist.Normal(torch.zeros(6), 1.0).to_event(1))
        pyro.sample("x", dist.Bernoulli(logits=z @ loading.T).to_event(1), obs=x)

    x = (draws(14, 60) > 0).double()
    model = mb.models.PyroModel(program, x, n_samples=100)
    with pytest.warns(mb.errors.MptBayesWarning, match="give a guide closer to the posterior"):
        mb.masked_score(model, x[None], rate=0.5, n_masks=2)


def test_fitted_parameters_are_those_of_the_store():
    def program(x):
        mean = pyro.param("mean", torch.tensor(0.0))
        pyro.sample("x", dist.Normal(mean, 1.0).expand([2]).to_event(1), obs=x)

    x = torch.tensor([[1.0, 2.0]])
    before = mb.models.PyroModel(program, x[0]).log_marginal_likelihood(x)
    pyro.param("mean").data.fill_(1.5)
    after = mb.models.PyroModel(program, x[0]).log_marginal_likelihood(x)
    assert float(before) == pytest.approx(-math.log(2 * math.pi) - 2.5)
    assert float(after) == pytest.approx(-math.log(2 * math.pi) - 0.25)


def test_other_families_are_asked_as_they_are():
    def program(x):
        k = pyro.sample("k", dist.Bernoulli(0.4))
        pyro.sample("x", dist.StudentT(3.0, 2.0 * k, 1.0).expand([3]).to_event(1), obs=x)

    x = draws(15, 4, 3)
    model = mb.models.PyroModel(program, x[0])
    density = 0.6 * stats.t.pdf(x, 3).prod(1) + 0.4 * stats.t.pdf(x, 3, loc=2).prod(1)
    np.testing.assert_allclose(model.log_marginal_likelihood(x), np.log(density), atol=1e-10)
    assert mb.verify(model, x).passed


def test_wrong_names_and_missing_coordinates_are_named():
    def program(x):
        pyro.sample("y", dist.Normal(0.0, 1.0).expand([2]).to_event(1), obs=x[1:])

    with pytest.raises(mb.errors.ModelError, match=r"no observed site called 'x' .its sites: y"):
        mb.models.PyroModel(program, torch.zeros(3))
    with pytest.raises(mb.errors.ModelError, match="hold 2 values, not the 3"):
        mb.models.PyroModel(program, torch.zeros(3), observed="y")


def test_too_many_states_say_what_to_do():
    def program(x):
        z = [pyro.sample(f"z{t}", dist.Categorical(torch.ones(4) / 4)) for t in range(9)]
        pyro.sample("x", dist.Normal(torch.stack(z).double(), 1.0).to_event(1), obs=x)

    with pytest.raises(mb.errors.ModelError, match=r"262144 combinations.*DiscreteHMM"):
        mb.models.PyroModel(program, torch.zeros(9))


@pytest.mark.parametrize(
    ("mean", "scale", "value"),
    [
        (lambda z: z.clamp(-2, 2), lambda z: torch.tensor(0.2), 1.5),
        (lambda z: z + 4 * (z - 2.5).relu(), lambda z: torch.tensor(0.5), 8.0),
        (lambda z: torch.nn.functional.leaky_relu(0.7 * z + 3), lambda z: torch.tensor(0.5), -2.0),
        (lambda z: z, lambda z: 1 + (z - 2).relu(), 3.0),
    ],
)
def test_a_mean_or_scale_that_bends_far_out_is_not_taken_for_affine(mean, scale, value):
    def program(x):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("x", dist.Normal(mean(z), scale(z)).expand([1]).to_event(1), obs=x)

    x = torch.tensor([[value]])
    model = mb.models.PyroModel(program, x[0], n_nodes=800)
    assert "exact" not in repr(model)
    z = torch.linspace(-12, 12, 400_001)
    log_joint = dist.Normal(mean(z), scale(z)).log_prob(x[0]) + dist.Normal(0.0, 1.0).log_prob(z)
    expected = log_joint.logsumexp(0) + math.log(24 / 400_000)
    assert float(model.log_marginal_likelihood(x)) == pytest.approx(float(expected), abs=2e-4)
