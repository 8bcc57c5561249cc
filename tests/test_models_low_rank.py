"""PPCA and factor analysis against dense Gaussians, scikit-learn and each other."""

import math

import pytest
import torch
from sklearn import datasets, decomposition

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError, ModelError, MptBayesWarning
from mpt_bayes.models import PPCA, EMSettings, FactorAnalysis, Gaussian
from mpt_bayes.numerics.combinatorics import all_subsets


def normals(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def wine():
    x = torch.tensor(datasets.load_wine().data)
    return (x - x.mean(0)) / x.std(0, correction=0)


@pytest.mark.parametrize("latent_dim", [0, 1, 3, 5, 8])
@pytest.mark.parametrize("kind", ["ppca", "factor analysis"])
def test_low_rank_equals_dense_gaussian(kind, latent_dim):
    loading, mean, x = normals(1, 5, latent_dim), normals(2, 5), normals(3, 4, 5)
    noise = torch.full((5,), 0.3, dtype=torch.float64) if kind == "ppca" else normals(4, 5).square() + 0.1
    model = PPCA(loading, 0.3, mean) if kind == "ppca" else FactorAnalysis(loading, noise, mean)
    dense = Gaussian(mean, loading @ loading.T + noise.diag())
    subsets = all_subsets(5)
    torch.testing.assert_close(
        model.marginal_log_prob(x, subsets), dense.marginal_log_prob(x, subsets), rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(
        model.masked_log_prob(x, subsets[1:]), dense.masked_log_prob(x, subsets[1:]), rtol=1e-12, atol=1e-12
    )
    expected = torch.distributions.MultivariateNormal(mean, dense.covariance).log_prob(x)
    torch.testing.assert_close(model.log_marginal_likelihood(x), expected, rtol=1e-12, atol=1e-12)


def test_low_rank_gradients_equal_dense_gradients():
    loading, x = normals(1, 5, 2).requires_grad_(), normals(3, 4, 5)
    PPCA(loading, 0.3).log_marginal_likelihood(x).sum().backward()
    fast, loading.grad = loading.grad.clone(), None
    covariance = loading @ loading.T + 0.3 * torch.eye(5, dtype=torch.float64)
    torch.distributions.MultivariateNormal(torch.zeros(5).double(), covariance).log_prob(x).sum().backward()
    torch.testing.assert_close(fast, loading.grad, rtol=1e-11, atol=1e-11)


def test_row_27_ppca_noise_is_the_mean_of_the_discarded_eigenvalues_with_divisor_n(wine):
    model = PPCA(latent_dim=5).fit(wine)
    eigenvalues = torch.linalg.eigvalsh(torch.cov(wine.T, correction=0)).flip(0)
    assert float(model.noise_variance) == pytest.approx(float(eigenvalues[5:].mean()), rel=1e-12)
    covariance = model.loading @ model.loading.T + model.noise.diag()
    top = torch.linalg.eigvalsh(covariance).flip(0)[:5]
    torch.testing.assert_close(top, eigenvalues[:5], rtol=1e-12, atol=0)


def test_row_27_more_columns_than_rows():
    x = normals(5, 4, 9)
    model = PPCA(latent_dim=2).fit(x)
    assert model.log_marginal_likelihood(x).isfinite().all()
    with pytest.raises(DataError, match="rank 3"):
        PPCA(latent_dim=3).fit(x)


@pytest.mark.parametrize("estimator", [PPCA, FactorAnalysis])
def test_row_27_latent_dim_zero_and_at_least_d(estimator, wine):
    independent = estimator(latent_dim=0).fit(wine)
    variance = wine.var(0, correction=0)
    expected = torch.distributions.Normal(wine.mean(0), variance.sqrt()).log_prob(wine).sum(1)
    torch.testing.assert_close(independent.log_marginal_likelihood(wine), expected, rtol=1e-10, atol=0)
    for latent_dim in (13, 20, -1):
        with pytest.raises(ArgumentError, match=f"latent_dim is {latent_dim}"):
            estimator(latent_dim=latent_dim).fit(wine)
    for latent_dim in (2.0, "2"):
        with pytest.raises(ArgumentError, match=f"latent_dim is {latent_dim!r}: expected an integer"):
            estimator(latent_dim=latent_dim)


def test_row_27_rank_deficient_data_are_named(wine):
    repeated = torch.cat([wine[:, :2], wine[:, :2].sum(1, keepdim=True)], 1)
    with pytest.raises(DataError, match="rank 2"):
        PPCA(latent_dim=2).fit(repeated)
    constant = torch.cat([wine, torch.full((len(wine), 1), 7.0)], 1)
    with pytest.raises(DataError, match=r"columns \[13\]"):
        FactorAnalysis(latent_dim=2).fit(constant)


def test_ppca_likelihood_is_a_maximum(wine):
    model = PPCA(latent_dim=3).fit(wine)
    best = float(model.log_marginal_likelihood(wine).sum())
    for seed in range(20):
        loading = model.loading + 1e-3 * normals(seed, 13, 3)
        noise = model.noise_variance * math.exp(1e-3 * float(normals(100 + seed, 1)))
        other = PPCA(loading, noise, model.mean + 1e-3 * normals(200 + seed, 13))
        assert float(other.log_marginal_likelihood(wine).sum()) < best


def test_factor_analysis_equals_scikit_learn(wine):
    fitted = decomposition.FactorAnalysis(3, tol=1e-8, max_iter=5000, svd_method="lapack").fit(wine.numpy())
    model = FactorAnalysis(latent_dim=3).fit(wine, em=EMSettings(tolerance=1e-8 / len(wine)))
    expected = torch.tensor(fitted.score_samples(wine.numpy()))
    torch.testing.assert_close(model.log_marginal_likelihood(wine), expected, rtol=1e-9, atol=1e-9)


def test_factor_analysis_warns_of_an_improper_solution_and_of_iterations_that_run_out(wine):
    copied = torch.cat([wine[:, :1], wine[:, :1] + 1e-5 * wine[:, 1:2], wine[:, 3:5]], 1)
    with pytest.warns(MptBayesWarning, match="Heywood"):
        FactorAnalysis(latent_dim=1).fit(copied)
    with pytest.warns(MptBayesWarning, match="iterations"):
        FactorAnalysis(latent_dim=3).fit(wine, em=EMSettings(max_iterations=2))


def test_a_model_without_parameters_says_so():
    with pytest.raises(ModelError, match=r"PPCA\(latent_dim=2\) has no parameters yet"):
        PPCA(latent_dim=2).log_marginal_likelihood(torch.zeros(1, 3))
    with pytest.raises(ArgumentError, match="latent_dim alone"):
        PPCA()
    with pytest.raises(ArgumentError, match="latent_dim alone"):
        FactorAnalysis(torch.zeros(3, 1), torch.ones(3), latent_dim=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PPCA(torch.ones(3, 1), 0.0), "positive"),
        (lambda: PPCA(torch.ones(3, 1), -1.0), "positive"),
        (lambda: PPCA(torch.ones(3, 1), 1.0, torch.zeros(2)), "shape"),
        (lambda: PPCA(torch.full((3, 1), math.nan), 1.0), "not finite"),
        (lambda: FactorAnalysis(torch.ones(3, 1), torch.tensor([1.0, 1.0, 0.0])), "positive"),
        (lambda: FactorAnalysis(torch.ones(3, 1), torch.ones(2)), "shape"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ModelError, match=message):
        make()
    with pytest.raises(ArgumentError, match="FactorAnalysis has one for each"):
        PPCA(torch.ones(3, 1), torch.ones(3))


def test_restrict_is_the_marginal():
    loading, mean, x = normals(1, 5, 2), normals(2, 5), normals(3, 4, 5)
    keep = torch.tensor([4, 0, 2])
    for model in (PPCA(loading, 0.3, mean), FactorAnalysis(loading, mean.square() + 0.1, mean)):
        part = mb.models.restrict(model, keep)
        assert type(part) is type(model)
        visible = torch.tensor([[True, False, True, False, True]])
        torch.testing.assert_close(part.log_marginal_likelihood(x[:, keep]), model.marginal_log_prob(x, visible)[:, 0])
