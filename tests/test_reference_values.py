"""Every number of the reference file about exact models and toy joints, through the public interface."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import datasets

import mpt_bayes as mb
from mpt_bayes.numerics.combinatorics import all_subsets

REFERENCE = json.loads((Path(__file__).parent / "data" / "reference_values.json").read_text())
PUBLISHED = REFERENCE["ppca_published_settings"]
D4, D6 = REFERENCE["toy_joint_D4"], REFERENCE["toy_joint_D6"]
EXACT = mb.masks.Exhaustive()


def published(dim, latent_dim, n, seed):
    """Model and data of the published settings: float32 draws, noise shared across coordinates."""
    generator = torch.Generator().manual_seed(seed)
    loading = torch.randn(dim, latent_dim, generator=generator)
    latent = torch.randn(n, latent_dim, generator=generator)
    x = latent @ loading.T + (1 / 5) * torch.randn(n, 1, generator=generator)
    return mb.models.PPCA(loading, 0.2), x


@pytest.mark.parametrize(("key", "expected"), PUBLISHED["N100_K2"].items())
def test_published_log_marginal_likelihoods(key, expected):
    dim, seed = (int(part.lstrip("Dsed")) for part in key.split("_"))
    model, x = published(dim, 2, 100, seed)
    comparison = mb.compare(model, x, design=EXACT)
    tolerance = PUBLISHED["tolerance_abs"]
    assert comparison.log_marginal_likelihood / 100 == pytest.approx(expected, abs=tolerance)
    assert comparison.cumulative_score.per_datum.value == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    ("key", "settings"),
    [("curve_S(1..5)_D5_seed4_N100", (5, 2, 100, 4)), ("curve_S(1..10)_D10_seed1991_N2000", (10, 2, 2000, 1991))],
)
def test_published_curves(key, settings):
    curve = mb.score_curve(*published(*settings), design=EXACT).per_datum
    np.testing.assert_allclose(curve.scores, PUBLISHED[key], rtol=0, atol=PUBLISHED["tolerance_abs"])


def test_published_log_marginal_likelihood_in_200_dimensions():
    model, x = published(200, 5, 1000, 1991)
    mean = float(mb.log_marginal_likelihood(model, x).mean())
    assert mean == pytest.approx(PUBLISHED["lml_N1000_D200_K5_seed1991"], abs=PUBLISHED["tolerance_abs"])


@pytest.fixture(scope="module")
def toy_4():
    joint = np.random.default_rng(1).gamma(0.4, size=(3,) * 4)
    return mb.models.JointTable(torch.from_numpy(joint / joint.sum())), torch.tensor([[2, 0, 1, 2]])


@pytest.fixture(scope="module")
def toy_6():
    rng = np.random.default_rng(0)
    joint = rng.gamma(0.3, size=(3,) * 6)
    joint /= joint.sum()
    x = np.stack(np.unravel_index([joint.ravel().argsort()[-20]], joint.shape), 1)
    return mb.models.JointTable(torch.from_numpy(joint)), torch.from_numpy(x)


def every_mask(model, x):
    """All masks, s(M) of each, and the log-probabilities of their hidden coordinates."""
    hidden = all_subsets(model.dim)[1:]
    log_prob = model.masked_log_prob(x, hidden)[0]
    return hidden, log_prob.sum(1) / hidden.sum(1), log_prob


def within(expected):
    return pytest.approx(expected, abs=D4["tolerance_abs"])


def test_toy_4_identity_and_the_bias_of_each_fixed_rate(toy_4):
    comparison = mb.compare(*toy_4, design=EXACT)
    assert comparison.log_marginal_likelihood == within(D4["log_p"])
    assert comparison.cumulative_score.value == within(D4["log_p"])
    for size, expected in D4["bias_of_D_times_S(m)"].items():
        assert 4 * comparison.curve.scores[int(size) - 1] - D4["log_p"] == within(expected)


def test_toy_4_expectations_of_right_and_wrong_weights(toy_4):
    hidden, score, log_prob = every_mask(*toy_4)
    size = hidden.sum(1)
    c = 1 / torch.tensor([math.comb(4, int(m)) for m in size], dtype=torch.float64)
    expected = D4["expectations"]

    def bernoulli(*rates):
        rates = torch.tensor(rates, dtype=torch.float64)
        return torch.where(hidden, rates, 1 - rates).prod(1)

    uniform_size = c / 4
    assert float((uniform_size * 4 * score).sum()) == within(expected["uniform size, weight D"])
    plain, varied = bernoulli(0.3, 0.3, 0.3, 0.3), bernoulli(0.1, 0.5, 0.3, 0.7)
    unweighted = float((plain * 4 * score).sum() / plain.sum())
    assert unweighted == within(expected["Bernoulli(.3), non-empty, unweighted"])
    unweighted = float((varied * 4 * score).sum() / varied.sum())
    assert unweighted == within(expected["token-weighted Bernoulli(.1,.5,.3,.7), unweighted"])
    rates = torch.tensor([0.1, 0.5, 0.3, 0.7], dtype=torch.float64)
    by_token = float((varied * (log_prob / rates).sum(1)).sum())
    assert by_token == within(expected["token-level 1/p weights (biased)"])
    assert float((varied * (c / varied) * score).sum()) == within(expected["mask-level weights c/pi"])
    fixed = (hidden == torch.tensor([False, True, False, True])).all(1).double()
    mixed = 0.2 * uniform_size + 0.8 * fixed
    of_mixture = float((mixed * (c / mixed) * score).sum())
    assert of_mixture == within(expected["0.2*uniform + 0.8*fixed mask {1,3}, mask-level weights"])
    assert float((uniform_size / mixed).max()) == within(expected["largest u/pi of that mixture"])


def test_toy_4_variance_of_two_masks_of_size_2(toy_4):
    hidden, score, _ = every_mask(*toy_4)
    pairs, values = hidden[hidden.sum(1) == 2], score[hidden.sum(1) == 2]
    rest = torch.tensor([int((pairs == ~mask).all(1).nonzero()) for mask in pairs])
    expected = D4["variance_of_mean_of_two_masks_of_size_2"]
    assert float(values.var(correction=0) / 2) == within(expected["independent"])
    assert float(((values + values[rest]) / 2).var(correction=0)) == within(expected["partition"])


def test_toy_6_identity_pseudo_log_likelihood_and_variances(toy_6):
    comparison = mb.compare(*toy_6, design=EXACT)
    assert comparison.log_marginal_likelihood == within(D6["log_p"])
    assert comparison.cumulative_score.value == within(D6["log_p"])
    assert 6 * comparison.curve.scores[0] == within(D6["pseudo_log_likelihood"])
    hidden, score, _ = every_mask(*toy_6)
    size = hidden.sum(1)
    c = 1 / torch.tensor([math.comb(6, int(m)) for m in size], dtype=torch.float64)
    for name, weight in [("uniform size", torch.ones(7)), ("size proportional to 1/m", 1 / torch.arange(7.0).double())]:
        law = weight.double()[1:] / weight.double()[1:].sum()
        probability = law[size - 1] * c
        one_draw = c / probability * score
        mean = float((probability * one_draw).sum())
        variance = float((probability * one_draw.square()).sum()) - mean**2
        assert mean == within(D6["log_p"])
        assert variance == pytest.approx(D6["one_draw_variance"][name], abs=1e-10)


def test_toy_6_variance_of_bernoulli_masks_weighted_by_their_rate(toy_6):
    """Coins at a rate t ~ U(1e-3, 1), weight 1/t on the sum: by Gauss-Legendre quadrature in log t."""
    hidden, score, _ = every_mask(*toy_6)
    size = hidden.sum(1)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    span = math.log(1e3)
    rate = torch.from_numpy(np.exp((nodes - 1) * span / 2))
    measure = torch.from_numpy(weights) * span / 2 * rate / (1 - 1e-3)
    probability = rate[:, None] ** size * (1 - rate[:, None]) ** (6 - size)
    one_draw = size * score / rate[:, None]
    mean, square = (float(measure @ (probability * one_draw**power).sum(1)) for power in (1, 2))
    # the stated value carries the error of its own quadrature, 1.4e-6
    assert square - mean**2 == pytest.approx(D6["one_draw_variance"]["Bernoulli 1/t, cut at 1e-3"], abs=1e-5)


def test_ppca_and_factor_analysis_on_wine():
    x = torch.from_numpy(datasets.load_wine().data)
    x = (x - x.mean(0)) / x.std(0, correction=0)
    expected = REFERENCE["ppca_wine"]
    for latent_dim in (2, 5):
        model = mb.models.PPCA(latent_dim=latent_dim).fit(x)
        mean = float(mb.log_marginal_likelihood(model, x).mean())
        target = expected[f"latent_dim_{latent_dim}"]["maximum_likelihood_ppca_per_datum"]
        assert mean == pytest.approx(target, abs=1e-12)
    two = expected["latent_dim_2"]
    settings = mb.models.EMSettings(tolerance=1e-8 / len(x))
    analysed = mb.models.FactorAnalysis(latent_dim=2).fit(x, em=settings)
    mean = float(mb.log_marginal_likelihood(analysed, x).mean())
    reference = two["factor_analysis_per_datum (tol 1e-8)"]  # an iteration that stopped 4e-8 short of the maximum
    assert reference < mean < reference + 1e-7
    best = float(mb.log_marginal_likelihood(mb.models.PPCA(latent_dim=2).fit(x), x).mean())
    assert best > two["sklearn_PCA_score (divisor N-1)"]  # a maximum is not reached with the wrong divisor
    fitted, inflation = mb.models.PPCA(latent_dim=2).fit(x), len(x) / (len(x) - 1)
    other = mb.models.PPCA(fitted.loading * inflation**0.5, fitted.noise_variance * inflation, fitted.mean)
    wrong_divisor = float(mb.log_marginal_likelihood(other, x).mean())
    assert wrong_divisor == pytest.approx(two["sklearn_PCA_score (divisor N-1)"], abs=1e-12)


def test_bayesian_ridge_on_diabetes_as_a_low_rank_gaussian_and_as_a_process():
    import gpytorch

    expected = REFERENCE["bayesian_ridge_diabetes"]
    data = datasets.load_diabetes()
    inputs = torch.from_numpy(data.data - data.data.mean(0))
    y = torch.from_numpy(data.target - data.target.mean())
    target = pytest.approx(expected["log_marginal_likelihood_total"], rel=expected["tolerance_rel"])
    model = mb.models.PPCA(inputs / math.sqrt(expected["lambda"]), 1 / expected["alpha"])
    assert mb.compare(model, y[None], design=mb.masks.RandomOrders(1)).log_marginal_likelihood == target

    class Linear(gpytorch.models.ExactGP):
        def __init__(self):
            likelihood = gpytorch.likelihoods.GaussianLikelihood()
            super().__init__(inputs, y, likelihood)
            self.covar_module = gpytorch.kernels.LinearKernel()
            self.double()
            likelihood.noise = 1 / expected["alpha"]
            self.covar_module.variance = 1 / expected["lambda"]

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(torch.zeros_like(x[:, 0]), self.covar_module(x))

    process = mb.models.GaussianProcess(Linear())
    assert float(mb.log_marginal_likelihood(process, process.targets)) == target
