"""Mixtures against brute force, scipy and scikit-learn; impossible values; EM."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.mixture import GaussianMixture

import mpt_bayes as mb
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.log_space import log_matmul, subset_sums
from mpt_bayes.numerics.random import Stream


@pytest.fixture
def rng():
    return np.random.default_rng(20231)


def table_of(model, n_categories):
    """The joint table of a model of categorical coordinates, cell by cell from its log marginal likelihood."""
    cells = torch.tensor(list(itertools.product(range(n_categories), repeat=model.dim)))
    probabilities = model.log_marginal_likelihood(cells.double()).exp()
    return cells, mb.models.JointTable(probabilities.reshape((n_categories,) * model.dim))


def brute_table(weights, probabilities):
    """Σ_k w_k ⊗_j p_kj as an explicit table, without the library."""
    dim = probabilities.shape[1]
    letters = "abcdefg"[:dim]
    return torch.einsum(
        f"k,{','.join('k' + c for c in letters)}->{letters}", weights, *(probabilities[:, j] for j in range(dim))
    )


@pytest.mark.parametrize("zeros", [False, True])
def test_categorical_mixture_equals_its_table_on_every_mask(rng, zeros):
    weights = torch.from_numpy(rng.dirichlet(np.ones(3)))
    probabilities = torch.from_numpy(rng.dirichlet(np.ones(3), size=(3, 4)))
    if zeros:
        probabilities[0, :, 0] = 0
        probabilities[1, :2, 1] = 0
        probabilities /= probabilities.sum(2, keepdim=True)
    model = mb.models.Mixture.categorical(weights, probabilities)
    cells, _ = table_of(model, 3)
    table = mb.models.JointTable(brute_table(weights, probabilities))
    hidden = all_subsets(4)[1:]
    torch.testing.assert_close(
        model.log_marginal_likelihood(cells), table.log_marginal_likelihood(cells), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(
        model.marginal_log_prob(cells, ~hidden), table.marginal_log_prob(cells, ~hidden), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(
        model.masked_log_prob(cells, hidden), table.masked_log_prob(cells, hidden), atol=1e-12, rtol=0, equal_nan=True
    )


def test_gaussian_mixture_equals_scikit_learn(rng):
    x = np.concatenate([rng.normal(-2, 1, (60, 3)), rng.normal(2, 0.5, (40, 3))])
    fitted = GaussianMixture(2, covariance_type="diag", random_state=0).fit(x)
    model = mb.models.Mixture.from_sklearn(fitted)
    np.testing.assert_allclose(model.log_marginal_likelihood(torch.from_numpy(x)), fitted.score_samples(x), atol=1e-10)
    with pytest.raises(mb.errors.ModelError, match="covariance_type='diag', or use ModelMixture"):
        mb.models.Mixture.from_sklearn(GaussianMixture(2, covariance_type="full").fit(x))


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_gaussian_mixtures_of_every_covariance_type_equal_scikit_learn(rng, kind):
    x = np.concatenate([rng.normal(-2, 1, (60, 3)), rng.normal(2, 0.5, (40, 3)) @ np.tri(3)])
    fitted = GaussianMixture(2, covariance_type=kind, random_state=0).fit(x)
    model = mb.models.ModelMixture.from_sklearn(fitted)
    np.testing.assert_allclose(model.log_marginal_likelihood(torch.from_numpy(x)), fitted.score_samples(x), atol=1e-10)
    assert abs(mb.compare(model, torch.from_numpy(x[:5]), design=mb.masks.Exhaustive()).difference) < 1e-10


def test_poisson_mixture_conditionals_equal_scipy():
    weights, rates = torch.tensor([0.3, 0.7]), torch.tensor([[1.0, 2.0, 0.0], [6.0, 0.5, 3.0]])
    model = mb.models.Mixture.poisson(weights, rates)
    x = torch.tensor([[2, 1, 0], [0, 3, 4]])
    joint = (
        weights[:, None, None] * torch.from_numpy(stats.poisson.pmf(x[None].numpy(), rates[:, None].numpy()))[:, :, [0]]
    )
    pmf_2 = torch.from_numpy(stats.poisson.pmf(x[:, 2].numpy(), rates[:, [2]].numpy()))
    expected = ((joint[:, :, 0] * pmf_2).sum(0) / joint[:, :, 0].sum(0)).log()
    hidden = torch.tensor([[False, True, True]])
    torch.testing.assert_close(model.masked_log_prob(x, hidden)[:, 0, 2], expected.double(), atol=1e-8, rtol=0)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
def test_identity_holds_for_every_family(family, rng):
    if family == "gaussian":
        model = mb.models.Mixture.gaussian(
            torch.tensor([0.4, 0.6]), torch.tensor([[0.0] * 5, [3.0] * 5]), torch.ones(2, 5)
        )
        x = torch.from_numpy(rng.normal(1, 2, (7, 5)))
    else:
        x = torch.from_numpy(rng.integers(0, 2, (30, 5))).double()
        model = mb.models.Mixture.fit(x, family, 2)
        x = x[:7]
    result = mb.compare(model, x, design=mb.masks.Exhaustive())
    assert abs(result.difference) < 1e-10
    batch = mb.masks.Exhaustive().draw(5, Stream(0))
    scores = model.masked_log_prob(x, batch.hidden).sum(2) / batch.hidden.sum(1)
    assert float((scores @ batch.sampling.log_weight.exp()).sum()) == pytest.approx(
        result.log_marginal_likelihood, abs=1e-10
    )


def test_row_30_zero_probabilities_give_finite_values_and_gradients():
    logit = torch.tensor([[0.3, -0.2, 0.1]], dtype=torch.float64, requires_grad=True)
    log_one = torch.cat([torch.nn.functional.logsigmoid(logit), torch.full((1, 3), -math.inf, dtype=torch.float64)])
    log_zero = torch.cat([torch.nn.functional.logsigmoid(-logit), torch.zeros(1, 3, dtype=torch.float64)])
    emission = mb.models.BernoulliEmission(log_one, log_zero)
    model = mb.models.Mixture(torch.tensor([0.5, 0.5]), emission)
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    scores = model.masked_log_prob(x, all_subsets(3)[1:])
    assert bool(scores.isfinite().all())
    scores.sum().backward()
    assert bool(logit.grad.isfinite().all())
    assert bool((logit.grad != 0).all())


def test_row_30_impossible_data_are_named_not_nan():
    model = mb.models.Mixture.bernoulli(torch.tensor([1.0]), torch.tensor([[0.0, 0.5]]))
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert model.log_marginal_likelihood(x)[1] == -math.inf
    with pytest.raises(mb.errors.DataError, match="row 1 is not finite"):
        mb.cumulative_score(model, x)


def test_products_that_underflow_are_summed_again_in_log_space(rng):
    left = torch.from_numpy(rng.normal(0, 600, (2, 5, 4)))
    right = torch.from_numpy(rng.normal(0, 600, (2, 4, 6)))
    right[0, 1] = -math.inf
    expected = (left[..., None] + right[:, None]).logsumexp(2)
    torch.testing.assert_close(log_matmul(left, right), expected, rtol=1e-14, atol=0)


def test_subset_sums_agree_with_a_loop(rng):
    values = torch.from_numpy(rng.normal(size=(2, 3, 4)))
    values[0, 1, 2] = -math.inf
    subsets = all_subsets(4)
    expected = torch.stack([values[..., s].sum(-1) for s in subsets], -1)
    torch.testing.assert_close(subset_sums(values, subsets), expected, rtol=0, atol=1e-14)


def test_scores_do_not_depend_on_the_block_of_rows(rng, monkeypatch):
    model = mb.models.Mixture.bernoulli(torch.tensor([0.2, 0.8]), torch.from_numpy(rng.uniform(size=(2, 5))))
    x, hidden = torch.from_numpy(rng.integers(0, 2, (9, 5))).double(), all_subsets(5)[1:]
    whole = model.masked_log_prob(x, hidden)
    monkeypatch.setattr("mpt_bayes.models.latent_bank._WORKING_BYTES", 1)
    torch.testing.assert_close(model.masked_log_prob(x, hidden), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
def test_em_recovers_well_separated_components(family, rng):
    x = torch.from_numpy(np.repeat([[0, 0, 3, 0], [3, 2, 0, 1]], 100, 0)).double()
    if family == "bernoulli":
        x = (x > 0).double()
    noise = torch.from_numpy(rng.random(x.shape))
    x = torch.where(noise < 0.1, x.flip(0), x)
    if family == "gaussian":
        x = x + torch.from_numpy(rng.normal(0, 0.3, x.shape))
    fitted = mb.models.Mixture.fit(x, family, 2, generator=torch.Generator().manual_seed(1))
    truth = torch.arange(2).repeat_interleave(100)
    assigned = fitted.state_probabilities(x, torch.ones(1, 4, dtype=torch.bool))[:, 0].argmax(1)
    agreement = (assigned == truth).double().mean()
    assert max(agreement, 1 - agreement) > 0.9


def test_gaussian_em_reaches_the_likelihood_of_scikit_learn(rng):
    x = np.concatenate([rng.normal(-2, 1, (150, 3)), rng.normal(2, 0.5, (100, 3))])
    reference = GaussianMixture(
        2, covariance_type="diag", tol=1e-10, max_iter=1000, n_init=4, reg_covar=0, random_state=0
    )
    fitted = mb.models.Mixture.fit(torch.from_numpy(x), "gaussian", 2, em=mb.models.EMSettings(1e-12, 2000))
    assert float(fitted.log_marginal_likelihood(torch.from_numpy(x)).mean()) == pytest.approx(
        reference.fit(x).score(x), abs=1e-6
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [([[0.5, 1.0]], "other than 0 and 1 in row 0"), ([[1.0, 1.0], [0.0, 2.0]], "other than 0 and 1 in row 1")],
)
def test_values_outside_the_support_are_named(x, message):
    model = mb.models.Mixture.bernoulli(torch.tensor([1.0]), torch.tensor([[0.4, 0.5]]))
    with pytest.raises(mb.errors.DataError, match=message):
        model.log_marginal_likelihood(torch.tensor(x))


def test_missing_entries_are_integrated_out(rng):
    model = mb.models.Mixture.gaussian(torch.tensor([0.4, 0.6]), torch.tensor([[0.0] * 3, [3.0] * 3]), torch.ones(2, 3))
    x = torch.tensor([[0.1, math.nan, 2.0]])
    expected = model.marginal_log_prob(torch.tensor([[0.1, 0.0, 2.0]]), torch.tensor([[True, False, True]]))[0, 0]
    assert float(mb.log_marginal_likelihood(model, x, missing="marginalise")) == pytest.approx(
        float(expected), abs=1e-12
    )
