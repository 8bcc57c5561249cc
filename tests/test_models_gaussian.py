"""The dense Gaussian: where it may come from, what it refuses, and the distributions of SciPy and PyTorch."""

import gpytorch
import pytest
import torch
from model_examples import normals, spd
from scipy import stats

import mpt_bayes as mb
from mpt_bayes.errors import DataError, IllConditionedError, ModelError, NotPositiveDefiniteError
from mpt_bayes.models import Gaussian, StudentT
from mpt_bayes.numerics.combinatorics import all_subsets

COVARIANCE, MEAN, X = spd(1, 4), normals(2, 4), normals(3, 6, 4)


@pytest.mark.parametrize(
    "distribution",
    [
        torch.distributions.MultivariateNormal(MEAN, COVARIANCE),
        torch.distributions.MultivariateNormal(MEAN, precision_matrix=COVARIANCE.inverse()),
        torch.distributions.MultivariateNormal(MEAN, scale_tril=torch.linalg.cholesky(COVARIANCE)),
        gpytorch.distributions.MultivariateNormal(MEAN, COVARIANCE),
        torch.distributions.LowRankMultivariateNormal(MEAN, normals(4, 4, 2), normals(5, 4).square() + 0.1),
    ],
    ids=["covariance", "precision", "scale_tril", "gpytorch", "low rank"],
)
def test_from_distribution_keeps_its_log_prob(distribution):
    model = Gaussian.from_distribution(distribution)
    torch.testing.assert_close(model.log_marginal_likelihood(X), distribution.log_prob(X), rtol=1e-11, atol=1e-11)


def test_batched_and_other_distributions_are_refused():
    batch = torch.distributions.MultivariateNormal(MEAN.expand(2, 4), COVARIANCE)
    with pytest.raises(ModelError, match=r"\(2, 4\)"):
        Gaussian.from_distribution(batch)
    with pytest.raises(ModelError, match="Gamma"):
        Gaussian.from_distribution(torch.distributions.Gamma(1.0, 1.0))


def test_equals_scipy_on_every_subset():
    model = Gaussian(MEAN, COVARIANCE)
    subsets = all_subsets(4)
    got = model.marginal_log_prob(X, subsets)
    for p in range(1, len(subsets)):
        keep = subsets[p].nonzero()[:, 0]
        expected = stats.multivariate_normal(MEAN[keep], COVARIANCE[keep][:, keep]).logpdf(X[:, keep].numpy())
        torch.testing.assert_close(got[:, p], torch.as_tensor(expected), rtol=1e-11, atol=1e-11)


def test_row_24_a_covariance_that_is_not_positive_definite_gives_its_smallest_eigenvalue():
    covariance = torch.tensor([[1.0, 1.0 + 1e-7], [1.0 + 1e-7, 1.0]], dtype=torch.float64)
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue -1e-07") as caught:
        Gaussian(torch.zeros(2), covariance)
    assert caught.value.smallest_eigenvalue == pytest.approx(-1e-7, rel=1e-6)
    with pytest.raises(NotPositiveDefiniteError, match="not finite"):
        Gaussian(torch.zeros(2), torch.full((2, 2), torch.nan))


def test_row_24_an_error_names_coordinates_that_are_constant_or_repeat_each_other():
    x = X[:, [0, 1, 2, 3, 1, 0]] * torch.tensor([1.0, 1, 1, 0, -3, 1])
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue") as caught:
        Gaussian(x.mean(0), torch.cov(x.T, correction=0))
    repeats = "coordinates 1 and 4 repeat each other, coordinates 0 and 5 repeat each other"
    assert str(caught.value).endswith(f"; here coordinate 3 is constant, {repeats}")
    with pytest.raises(NotPositiveDefiniteError) as caught:
        Gaussian(torch.zeros(6), torch.ones(6, 6))
    assert str(caught.value).endswith("coordinates 1 and 2 repeat each other, 12 more")
    mixed = torch.tensor([[1.0, 0, 1], [0, 1, 1]])  # the third is the sum of the others and repeats neither
    with pytest.raises(NotPositiveDefiniteError, match=r"repeat each other$") as caught:
        Gaussian(torch.zeros(3), mixed.T @ mixed - 1e-9 * torch.eye(3))
    assert "here" not in str(caught.value)


@pytest.mark.parametrize("family", [Gaussian, lambda mean, scale: StudentT(mean, scale, 3.0)], ids=["normal", "t"])
def test_row_24_what_nearly_repeats_is_named_in_the_coordinates_of_the_model(family):
    scale = torch.diag(torch.tensor([4.0, 1, 1, 1], dtype=torch.float64))
    scale[1, 3] = scale[3, 1] = 1 - 1e-14  # the door can still factorise it
    with pytest.raises(IllConditionedError, match=r"; here coordinates 1 and 3 repeat each other$"):
        family(torch.zeros(4), scale).order_curve(X, torch.tensor([[3, 1, 0, 2]]))


def test_row_24_float32_parameters_are_computed_in_float64_unless_told_otherwise():
    model = Gaussian(MEAN.float(), COVARIANCE.float())
    assert model.log_marginal_likelihood(X.float()).dtype == torch.float64
    single = Gaussian(MEAN.float(), COVARIANCE.float(), dtype=torch.float32)
    assert single.log_marginal_likelihood(X).dtype == torch.float32
    torch.testing.assert_close(
        single.log_marginal_likelihood(X).double(), model.log_marginal_likelihood(X.float()), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (torch.zeros(3), torch.eye(2), r"expected \(D,\) and \(D, D\)"),
        (torch.zeros(1, 2), torch.eye(2), r"expected \(D,\) and \(D, D\)"),
        (torch.zeros(2), torch.tensor([[1.0, 0.2], [0.1, 1.0]]), "not symmetric"),
    ],
)
def test_parameters_that_disagree_are_named(mean, covariance, message):
    with pytest.raises(ModelError, match=message):
        Gaussian(mean, covariance)


def test_row_35_one_datum_and_a_column_are_not_broadcast():
    model = Gaussian(MEAN, COVARIANCE)
    with pytest.raises(DataError, match=r"pass x.reshape\(1, -1\)"):
        model.log_marginal_likelihood(X[0])
    with pytest.raises(DataError, match="1 columns"):
        mb.score_curve(model, X[:, :1])
