"""Grids that do not serve the posterior of a row: warned of, not vouched for, and mended by what the warning says."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, special, stats

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, MptBayesWarning
from mpt_bayes.models import LatentQuadrature, PyroModel
from mpt_bayes.models.grid_watch import GridFit
from mpt_bayes.models.pyro_quantiles import from_standard


def prior(family, *parameters):
    """In double precision, whatever the default is when the tests are collected."""
    return family(*(torch.tensor(value, dtype=torch.float64) for value in parameters))


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def counts(over):
    def program(x):
        rate = pyro.sample("rate", over)
        pyro.sample("x", dist.Poisson(rate).expand([4]).to_event(1), obs=x)

    return program


def gamma_evidence(shape, rate, value):
    """log p of four equal counts under a Gamma prior."""
    total = shape + 4 * value
    constant = shape * math.log(rate) - special.gammaln(shape) - 4 * special.gammaln(value + 1)
    return constant + special.gammaln(total) - total * math.log(rate + 4)


def model_of(over, value, **options):
    x = torch.full((1, 4), float(value))
    return PyroModel(counts(over), x[0], **options), x


@pytest.mark.parametrize(
    ("over", "value", "expected"),
    [
        (prior(dist.Gamma, 2.0, 1.0), 2, gamma_evidence(2, 1, 2)),
        (prior(dist.Gamma, 2.0, 1.0), 30, gamma_evidence(2, 1, 30)),
        (prior(dist.Exponential, 0.1), 300, gamma_evidence(1, 0.1, 300)),
    ],
)
def test_counts_far_above_the_prior_are_on_the_default_grid(over, value, expected):
    model, x = model_of(over, value)
    assert float(model.log_marginal_likelihood(x)) == pytest.approx(expected, abs=1e-6)
    assert model.quadrature_error(x).largest < 1e-6


def test_a_grid_that_ends_too_early_is_named_and_mended_by_a_wider_one():
    model, x = model_of(prior(dist.Gamma, 2.0, 1.0), 50)
    with pytest.warns(
        MptBayesWarning, match=r"grid of 'rate' ends where .* row 0 is .* pass half_width=16, n_nodes=352"
    ):
        model.log_marginal_likelihood(x)
    wider, _ = model_of(prior(dist.Gamma, 2.0, 1.0), 50, half_width=16, n_nodes=352)
    assert float(wider.log_marginal_likelihood(x)) == pytest.approx(gamma_evidence(2, 1, 50), abs=1e-6)


def test_two_grids_that_both_end_too_early_do_not_vouch_for_each_other():
    model, x = model_of(prior(dist.Gamma, 2.0, 1.0), 90, n_nodes=1000)
    with pytest.warns(MptBayesWarning, match="ends where"):
        error = model.quadrature_error(x)
    assert error.largest == math.inf


@pytest.mark.parametrize(
    ("over", "value", "density", "around", "n_nodes"),
    [
        (prior(dist.HalfCauchy, 5.0), 100, stats.halfcauchy(scale=5).logpdf, (50, 180), 1000),
        (prior(dist.LogNormal, 0.0, 1.0), 1000, stats.lognorm(1).logpdf, (850, 1150), 1000),
    ],
)
def test_a_grid_too_coarse_is_named_and_mended_by_more_nodes(over, value, density, around, n_nodes):
    top = 4 * stats.poisson.logpmf(value, value)
    mass, _ = integrate.quad(
        lambda rate: math.exp(density(rate) + 4 * stats.poisson.logpmf(value, rate) - top), *around, epsabs=0
    )
    model, x = model_of(over, value)
    with pytest.warns(MptBayesWarning, match="grid of 'rate' is too coarse for the posterior of row 0: raise n_nodes"):
        model.log_marginal_likelihood(x)
    finer, _ = model_of(over, value, n_nodes=n_nodes)
    assert float(finer.log_marginal_likelihood(x)) == pytest.approx(top + math.log(mass), abs=1e-6)
    assert finer.quadrature_error(x).largest < 1e-6


def test_one_warning_a_call_names_the_worst_row():
    def program(x):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("x", dist.Normal(torch.sinh(z), 0.01).expand([4]).to_event(1), obs=x)

    x = torch.tensor([[5.0, 5.0, 5.0, 5.0], [0.05, 0.051, 0.049, 0.052]])
    with pytest.warns(MptBayesWarning, match=r"the posterior of row \d \(2 of 2 rows\)") as caught:
        mb.compare(PyroModel(program, x[0]), x, design=mb.masks.Exhaustive())
    assert len(caught) == 1
    model = PyroModel(program, x[0])
    with pytest.warns(MptBayesWarning, match="too coarse") as caught:
        mb.cumulative_score(model, x, design=mb.masks.RandomOrders(2))
    assert len(caught) == 1


def test_a_quadrature_of_a_decoder_is_watched_too():
    weight = torch.full((2, 6), 3.0)
    x = torch.full((3, 6), 30.0)
    x[0] = 0.1
    model = LatentQuadrature.normal(lambda z: z @ weight, 0.5, 2)
    with pytest.warns(MptBayesWarning, match=r"of latent [01] ends where .* row \d \(2 of 3 rows\).* raise half_width"):
        model.log_marginal_likelihood(x)
    with pytest.warns(MptBayesWarning, match="ends where"):
        mb.models.restrict(model, torch.arange(5)).log_marginal_likelihood(x[:, :5])
    coarse = LatentQuadrature.normal(lambda z: z @ weight[:1], 0.1, 1, n_nodes=16)
    with pytest.warns(MptBayesWarning, match="of the latent is too coarse .* row 0: raise n_nodes .now 16 a side"):
        mb.score_curve(coarse, x[:1], design=mb.masks.Exhaustive())
    weights = weight.clone().requires_grad_()
    LatentQuadrature.normal(lambda z: z @ weights, 0.5, 2).log_marginal_likelihood(x).sum().backward()


def overdispersed(x):
    with pyro.plate("counts", 3):
        kind = pyro.sample("kind", dist.Bernoulli(0.5))
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("x", dist.Poisson((1 + kind + z).exp()), obs=x)


def test_latents_of_single_coordinates_are_on_a_grid_of_their_own_that_is_watched():
    x = torch.tensor([[3.0, 20.0, 100.0]])
    model = PyroModel(overdispersed, x[0])
    assert repr(model) == "PyroModel(D=3, 1 states, 256 quadrature nodes a coordinate)"
    z = torch.linspace(-12, 12, 20_001)[:, None]
    each = [(dist.Poisson((1 + k + z).exp()).log_prob(x) + dist.Normal(0.0, 1.0).log_prob(z)) for k in (0, 1)]
    expected = (torch.cat(each).logsumexp(0) + math.log(0.5 * 24 / 20_000)).sum()
    assert float(model.log_marginal_likelihood(x)) == pytest.approx(float(expected), abs=1e-6)
    assert model.quadrature_error(x).largest < 1e-6
    many = torch.tensor([[3.0, 20.0, 100.0], [3.0, 2000.0, 100.0]])
    with pytest.warns(MptBayesWarning, match=r"grid of 'z' is too coarse for the posterior of row 1 \(1 of 2 rows\)"):
        mb.cumulative_score(model, many, design=mb.masks.RandomOrders(2))
    far = torch.tensor([[3.0, 20.0, 1e6]])
    with pytest.warns(MptBayesWarning, match="grid of 'z' ends where the posterior of row 0 is"):
        assert model.quadrature_error(far).largest == math.inf


@pytest.mark.parametrize("centre", [0.0, 0.25, 0.5])
@pytest.mark.parametrize(
    ("width", "is_resolved"), [(0.05, False), (0.3, False), (0.55, False), (0.75, True), (3, True)]
)
def test_the_overlap_tells_whether_a_sum_resolves_a_normal(centre, width, is_resolved):
    node = torch.arange(-40.0, 41.0)
    log_joint = -0.5 * ((node - centre) / width).square()
    log_joint = torch.logaddexp(log_joint, -0.5 * ((node - centre - 20) / width).square())  # two modes hide nothing
    fit = GridFit.of(log_joint[None], (81,))
    assert bool(fit.unresolved()) is not is_resolved
    assert not bool(fit.beyond_edge())


@pytest.mark.parametrize(
    ("site", "theirs"),
    [
        (prior(dist.Gamma, 2.0, 3.0), stats.gamma(2, scale=1 / 3)),
        (prior(dist.Beta, 2.0, 3.0), stats.beta(2, 3)),
        (prior(dist.Exponential, 0.1), stats.expon(scale=10)),
        (prior(dist.HalfNormal, 2.0), stats.halfnorm(scale=2)),
        (prior(dist.HalfCauchy, 5.0), stats.halfcauchy(scale=5)),
        (prior(dist.Cauchy, 1.0, 2.0), stats.cauchy(1, 2)),
        (prior(dist.Laplace, 1.0, 2.0), stats.laplace(1, 2)),
        (prior(dist.Uniform, 0.0, 3.0), stats.uniform(0, 3)),
        (prior(dist.LogNormal, 0.0, 1.0), stats.lognorm(1)),
        (prior(dist.Weibull, 1.0, 2.0), stats.weibull_min(2)),
    ],
)
def test_quantiles_are_those_of_scipy_in_both_tails(site, theirs):
    z = torch.tensor([-7.5, -3.0, -0.4, 0.0, 0.7, 3.0, 7.5])
    low, high = theirs.ppf(stats.norm.cdf(z[:4])), theirs.isf(stats.norm.sf(z[4:]))
    expected = torch.as_tensor([*low, *high])
    exact = not isinstance(site, dist.Weibull)
    torch.testing.assert_close(from_standard(site.expand([7]), z), expected, rtol=1e-6 if exact else 0.05, atol=1e-12)


def test_a_width_beyond_the_reach_of_a_quantile_function_is_refused():
    with pytest.raises(ArgumentError, match=r"quantiles of site 'rate' cannot be told apart beyond 8 standard"):
        model_of(prior(dist.Weibull, 1.0, 2.0), 3, half_width=9)
