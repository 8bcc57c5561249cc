"""Latents by quadrature against SciPy, a Gaussian and finer grids; importance banks against quadrature, with errors."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import mpt_bayes as mb
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.random import Stream


@pytest.fixture
def rng():
    return np.random.default_rng(1982)


def linear(rng, dim, latent_dim, scale=1.0):
    layer = torch.nn.Linear(latent_dim, dim).double()
    layer.weight.data = torch.from_numpy(rng.normal(0, scale, (dim, latent_dim)))
    layer.bias.data = torch.from_numpy(rng.normal(0, 0.5, dim))
    return layer.requires_grad_(False)


def log_density(layer, x, z):
    """log N(z; 0, I) p(x | z) by SciPy, for one latent vector."""
    probability = 1 / (1 + np.exp(-(layer.weight.numpy() @ z + layer.bias.numpy())))
    return stats.norm.logpdf(z).sum() + stats.bernoulli.logpmf(x, probability).sum()


@pytest.mark.parametrize("rule", ["trapezoid", "gauss-hermite"])
def test_one_latent_equals_scipy_quadrature(rng, rule):
    layer = linear(rng, 5, 1)
    model = mb.models.LatentQuadrature.bernoulli(layer, 1, rule=rule, half_width=8.0)
    x = torch.from_numpy(rng.integers(0, 2, (4, 5))).double()
    expected = [
        math.log(integrate.quad(lambda z: math.exp(log_density(layer, row, np.array([z]))), -9, 9, epsabs=1e-14)[0])  # noqa: B023
        for row in x.numpy()
    ]
    np.testing.assert_allclose(model.log_marginal_likelihood(x), expected, atol=1e-8)


def test_two_latents_equal_scipy_quadrature(rng):
    layer = linear(rng, 4, 2)
    model = mb.models.LatentQuadrature.bernoulli(layer, 2, half_width=8.0)
    x = torch.from_numpy(rng.integers(0, 2, (1, 4))).double()
    value, _ = integrate.dblquad(
        lambda a, b: math.exp(log_density(layer, x[0].numpy(), np.array([a, b]))), -8, 8, -8, 8, epsabs=1e-10
    )
    assert float(model.log_marginal_likelihood(x)) == pytest.approx(math.log(value), abs=1e-8)
    assert abs(mb.compare(model, x, design=mb.masks.Exhaustive()).difference) < 1e-10


def test_normal_decoder_equals_ppca(rng):
    layer = linear(rng, 4, 2)
    model = mb.models.LatentQuadrature.normal(layer, 0.7, 2, half_width=8.0)
    exact = mb.models.Gaussian(layer.bias, layer.weight @ layer.weight.T + 0.49 * torch.eye(4, dtype=torch.float64))
    x, hidden = torch.from_numpy(rng.normal(size=(5, 4))), all_subsets(4)[1:]
    torch.testing.assert_close(model.masked_log_prob(x, hidden), exact.masked_log_prob(x, hidden), atol=1e-8, rtol=0)


def test_deep_decoder_is_the_mixture_of_its_nodes(rng):
    torch.manual_seed(0)
    deep = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5)).double()
    model = mb.models.LatentQuadrature.bernoulli(deep.requires_grad_(False), 3, n_nodes=24)
    x = torch.from_numpy(rng.integers(0, 2, (3, 5))).double()
    assert model.n_states == 24**3
    assert model.quadrature_error(x).largest < 1e-6
    assert abs(mb.compare(model, x, design=mb.masks.Exhaustive()).difference) < 1e-10


def test_the_grid_of_the_published_script_is_flagged():
    side = torch.linspace(-5, 5, 4, dtype=torch.float64)
    nodes = torch.cartesian_prod(side, side)
    density = torch.exp(-nodes.square().sum(1) / 2) / (2 * math.pi)
    with pytest.raises(mb.errors.ModelError, match=r"prior mass 0\.247, not 1"):
        mb.models.Grid(nodes, density * (10 / 4) ** 2)
    with pytest.raises(mb.errors.ModelError, match="prior mass"):
        mb.models.prior_grid(2, 4)


def test_order_doubling_finds_a_grid_too_coarse_for_a_sharp_posterior(rng):
    layer = linear(rng, 200, 1, scale=3.0)
    x = (torch.rand(20, 200, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    coarse = mb.models.LatentQuadrature.bernoulli(layer, 1, n_nodes=16)
    fine = mb.models.LatentQuadrature.bernoulli(layer, 1, n_nodes=512)
    truth = fine.log_marginal_likelihood(x)
    with pytest.warns(
        mb.errors.MptBayesWarning, match=r"too coarse for the posterior of row .* .20 of 20 rows.: raise n_"
    ):
        error = coarse.quadrature_error(x)
    assert error.largest > 0.1
    assert fine.quadrature_error(x).largest < 1e-8
    true_error = (coarse.marginal_log_prob(x, torch.ones(1, 200, dtype=bool))[:, 0] - truth).abs()
    assert float((error.per_row - true_error).abs().mean()) < 0.5 * float(true_error.mean())


def test_gradient_of_the_score_reaches_the_decoder(rng):
    layer = linear(rng, 4, 1).requires_grad_(True)
    model = mb.models.LatentQuadrature.bernoulli(layer, 1, n_nodes=32)
    x, batch = torch.from_numpy(rng.integers(0, 2, (3, 4))).double(), mb.masks.Exhaustive().draw(4, None)
    scores = model.masked_log_prob(x, batch.hidden).sum(2) / batch.hidden.sum(1)
    (by_masks,) = torch.autograd.grad((scores @ batch.sampling.log_weight.exp()).sum(), layer.weight)
    (exact,) = torch.autograd.grad(model.log_marginal_likelihood(x).sum(), layer.weight)
    torch.testing.assert_close(by_masks, exact, atol=1e-10, rtol=0)


def test_float32_stays_close(rng):
    layer = linear(rng, 50, 1)
    double = mb.models.LatentQuadrature.bernoulli(layer, 1)
    x, hidden = torch.from_numpy(rng.integers(0, 2, (6, 50))).double(), torch.rand(9, 50) < 0.5
    expected = double.masked_log_prob(x, hidden)
    single = mb.models.LatentQuadrature.bernoulli(layer.float(), 1, dtype=torch.float32)
    torch.testing.assert_close(single.masked_log_prob(x, hidden).double(), expected, atol=2e-4, rtol=0)


def exact_and_encoder(rng):
    """A binary model with 1 latent, its fine quadrature, and a normal guide by Laplace's method."""
    layer = linear(rng, 6, 1)
    exact = mb.models.LatentQuadrature.bernoulli(layer, 1, n_nodes=256, half_width=8.0)

    def encoder(x):
        z = torch.zeros(len(x), 1, dtype=torch.float64)
        for _ in range(20):
            p = torch.sigmoid(layer(z))
            precision = 1 + (p * (1 - p)) @ layer.weight.square()
            z = z + ((x - p) @ layer.weight - z) / precision
        return z, 1.2 * precision.rsqrt()

    return layer, exact, encoder


EVERYTHING = torch.ones(1, 6, dtype=bool), torch.ones(1, 1)
"""The subset of all coordinates, with weight 1."""


def bank_of(layer, encoder, **options):
    return mb.models.ImportanceBank(lambda z: mb.models.BernoulliEmission.from_logits(layer(z)), encoder, 1, **options)


@pytest.mark.parametrize("with_encoder", [False, True])
def test_row_32_inner_standard_error_covers_the_quadrature_value(rng, with_encoder):
    layer, exact, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (8, 6))).double()
    truth = mb.compare(exact, x, design=mb.masks.RandomOrders(4))
    z_scores, z_evidence = [], []
    for seed in range(60):
        bank = bank_of(layer, encoder if with_encoder else None, n_samples=400, seed=seed)
        result = mb.compare(bank, x, design=mb.masks.RandomOrders(4))
        score, inner = result.cumulative_score, result.cumulative_score.inner_standard_error
        assert 0 < inner < 0.5
        z_scores.append((score.value - truth.cumulative_score.value) / inner)
        difference = result.log_marginal_likelihood - truth.log_marginal_likelihood
        z_evidence.append(difference / result.log_marginal_likelihood_inner_standard_error)
    for z in (z_scores, z_evidence):  # 60 draws of about N(0, 1): mean within 5/√60, variance within its 1e-4 quantiles
        assert abs(np.mean(z)) < 5 / math.sqrt(60)
        assert stats.chi2.ppf(1e-4, 59) / 59 < np.var(z, ddof=1) < stats.chi2.ppf(1 - 1e-4, 59) / 59


def test_row_32_poor_draws_are_flagged_with_a_remedy(rng):
    layer = linear(rng, 100, 4, scale=2.0)
    bank = mb.models.ImportanceBank(
        lambda z: mb.models.BernoulliEmission.from_logits(layer(z)), None, latent_dim=4, n_samples=50
    )
    x = (torch.rand(3, 100, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    with pytest.warns(mb.errors.MptBayesWarning, match=r"effective sample size .* of 50 draws .* raise n_samples"):
        mb.masked_score(bank, x, rate=0.5, n_masks=4)


def test_good_draws_are_not_flagged(rng):
    layer, _, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (3, 6))).double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mb.cumulative_score(bank_of(layer, encoder), x, design=mb.masks.Exhaustive())


def test_identity_holds_for_the_bank_itself_and_exhaustive_errors_agree(rng):
    layer, _, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (3, 6))).double()
    bank = bank_of(layer, encoder)
    result = mb.compare(bank, x, design=mb.masks.Exhaustive())
    assert abs(result.difference) < 1e-10
    batch = mb.masks.Exhaustive().draw(6, None)
    influence = bank.score_influence(x, batch.hidden, batch.sampling.log_weight.exp()[:, None])
    torch.testing.assert_close(influence, bank.log_prob_influence(x, *EVERYTHING), atol=1e-12, rtol=0)


def test_draws_depend_on_the_row_alone(rng):
    layer, _, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (5, 6))).double()
    bank, hidden = bank_of(layer, encoder), all_subsets(6)[1:]
    whole = bank.masked_log_prob(x, hidden)
    alone = torch.cat([bank.masked_log_prob(row[None], hidden) for row in x.flip(0)]).flip(0)
    torch.testing.assert_close(alone, whole, atol=1e-12, rtol=0)


def test_repeated_rows_share_their_error(rng):
    layer, _, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (1, 6))).double()
    bank = bank_of(layer, encoder)
    once = mb.compare(bank, x, design=mb.masks.Exhaustive()).log_marginal_likelihood_inner_standard_error
    four = mb.compare(bank, x.repeat(4, 1), design=mb.masks.Exhaustive()).log_marginal_likelihood_inner_standard_error
    assert four == pytest.approx(4 * once)


def test_missing_entries_keep_the_inner_error(rng):
    layer, exact, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (3, 6))).double()
    x[0, 2] = math.nan
    result = mb.compare(bank_of(layer, encoder), x, missing="marginalise", design=mb.masks.RandomOrders(2))
    truth = mb.log_marginal_likelihood(exact, x, missing="marginalise").sum()
    error = result.log_marginal_likelihood_inner_standard_error
    assert abs(result.log_marginal_likelihood - float(truth)) < 5 * error
    assert result.cumulative_score.inner_standard_error > 0


@pytest.mark.parametrize("with_encoder", [False, True])
def test_verify_passes_on_importance_banks(rng, with_encoder):
    layer, _, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (5, 6))).double()
    report = mb.verify(bank_of(layer, encoder if with_encoder else None), x)
    assert report.passed


def test_row_32_draws_are_printed_with_their_error(rng):
    layer, exact, encoder = exact_and_encoder(rng)
    x = torch.from_numpy(rng.integers(0, 2, (3, 6))).double()
    first = mb.compare(bank_of(layer, encoder), x, design=mb.masks.RandomOrders(4))
    second = mb.cumulative_score(
        bank_of(layer, None), x, design=mb.masks.RandomOrders(4), generator=torch.Generator().manual_seed(9)
    )
    assert repr(first).count("(draws of the model)") == 1
    assert "(draws of the model)" in repr(first.cumulative_score)
    assert "(draws of the model)" not in repr(mb.compare(exact, x))
    both = (first.cumulative_score - second).inner_standard_error
    assert both == first.cumulative_score.inner_standard_error + second.inner_standard_error


def test_inner_error_of_whole_models_equals_that_of_their_mixture(rng):
    means, draws = torch.from_numpy(rng.normal(size=(50, 4))), torch.arange(50)
    weights, eye = torch.full((50,), 0.02).double(), torch.eye(4).double()
    whole = mb.models.ModelMixture(weights, [mb.models.Gaussian(m, eye) for m in means], draws=draws)
    bank = mb.models.Mixture(weights, mb.models.NormalEmission(means, torch.ones(50, 4).double()), draws=draws)
    x, batch = torch.from_numpy(rng.normal(size=(3, 4))), mb.masks.RandomOrders(3).draw(4, Stream(0))
    share = batch.sampling.log_weight.exp()[:, None] * (batch.sampling.sizes[:, None] == torch.arange(1, 5))
    torch.testing.assert_close(
        whole.score_influence(x, batch.hidden, share), bank.score_influence(x, batch.hidden, share)
    )
    some = all_subsets(4), torch.from_numpy(rng.normal(size=(16, 3)))
    torch.testing.assert_close(whole.log_prob_influence(x, *some), bank.log_prob_influence(x, *some))
