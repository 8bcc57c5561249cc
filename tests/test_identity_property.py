"""Enumeration equals the exact log marginal likelihood in float64, for parameters Hypothesis draws.

Tolerance: 1e-10 relative, or 100 · eps · condition number where that is larger. Both ways are held to it: telescoping
over 2^D marginals, and the definition, 2^D - 1 masks of conditionals.
"""

import math

import gpytorch
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import MeanGP, letters, normals, process, simplex, uniforms

import mpt_bayes as mb
from mpt_bayes.estimation.scores import mask_scores
from mpt_bayes.models import PPCA, FactorAnalysis, Gaussian, GaussianProcess, JointTable, restrict
from mpt_bayes.numerics.combinatorics import all_subsets

EPS = torch.finfo(torch.float64).eps
SEEDS = st.integers(0, 2**31)
DIMS = st.integers(1, 8)
LOG_CONDITION = st.floats(0, 8)
QUICK = settings(max_examples=25, deadline=None)


def ill_conditioned(seed, dim, log_condition):
    """A covariance with random axes whose eigenvalues span 10^log_condition."""
    axes, _ = torch.linalg.qr(normals(seed, dim, dim))
    spread = 10 ** (-log_condition * torch.linspace(0, 1, dim).double())
    covariance = axes @ (spread[:, None] * axes.T)
    return (covariance + covariance.T) / 2


def drawn(covariance, seed):
    return (torch.linalg.cholesky(covariance) @ normals(seed, len(covariance), 2)).T


def assert_identity(model, x, condition=1.0):
    exact = model.log_marginal_likelihood(x)
    relative = max(1e-10, 100 * EPS * condition)
    tolerance = relative * exact.abs().clamp_min(1)
    telescoped = mb.cumulative_score(model, x, design=mb.masks.Exhaustive()).per_row
    assert bool(((torch.from_numpy(telescoped) - exact).abs() <= tolerance).all())
    hidden = all_subsets(model.dim)[1:]
    weight = torch.tensor([1 / math.comb(model.dim, int(m)) for m in hidden.sum(1)], dtype=torch.float64)
    by_definition = mask_scores(model, x, hidden) @ weight
    assert bool(((by_definition - exact).abs() <= tolerance).all())


@QUICK
@given(SEEDS, DIMS, LOG_CONDITION)
def test_gaussian(seed, dim, log_condition):
    covariance = ill_conditioned(seed, dim, log_condition)
    assert_identity(Gaussian(torch.zeros(dim), covariance), drawn(covariance, seed + 1), 10**log_condition)


@QUICK
@given(SEEDS, DIMS, st.integers(0, 10), LOG_CONDITION)
def test_low_rank(seed, dim, latent_dim, log_condition):
    loading = normals(seed, dim, latent_dim)
    loading = loading / max(float(torch.linalg.matrix_norm(loading, 2)) if loading.numel() else 0, 1e-3)
    floor = 10**-log_condition
    varied = floor * (1 + uniforms(seed, dim))
    for model in (PPCA(loading, floor, normals(seed + 2, dim)), FactorAnalysis(loading, varied)):
        covariance = loading @ loading.T + model.noise.diag()
        condition = float(torch.linalg.cond(covariance))
        assert_identity(model, model.mean + drawn(covariance, seed + 1), condition)


@QUICK
@given(SEEDS, DIMS, st.floats(-6, 0), st.floats(-1, 1))
def test_gaussian_process(seed, dim, log_noise, log_length):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-9))
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    model = MeanGP(uniforms(seed, dim), torch.zeros(dim), likelihood.double(), kernel)
    likelihood.noise, kernel.base_kernel.lengthscale = 10**log_noise, 10**log_length
    with torch.no_grad():
        process = GaussianProcess(model)
        covariance = process.joint().covariance
        x = process.joint().mean + drawn(covariance, seed + 1)
    assert_identity(process, x, float(torch.linalg.cond(covariance)))


@QUICK
@given(SEEDS, st.lists(st.integers(1, 4), min_size=1, max_size=6), st.floats(0.05, 3))
def test_joint_table(seed, alphabet, roughness):
    weights = uniforms(seed, *alphabet) ** (1 / roughness) + 1e-12
    x = torch.stack([letters(seed + j, 2, 1, size)[:, 0] for j, size in enumerate(alphabet)], 1)
    assert_identity(JointTable(weights / weights.sum()), x)


@QUICK
@given(SEEDS, DIMS, st.floats(-3, 3))
def test_mixtures_and_exchangeable_models(seed, dim, log_scale):
    scale = 10**log_scale
    mixture = mb.models.Mixture.gaussian(
        simplex(seed, 3), scale * normals(seed + 1, 3, dim), scale * (uniforms(seed + 2, 3, dim) + 0.1)
    )
    assert_identity(mixture, scale * normals(seed + 3, 2, dim))
    assert_identity(mb.models.DirichletCategorical(scale * (uniforms(seed, 3) + 0.01), dim), letters(seed, 2, dim, 3))
    assert_identity(mb.models.BetaBernoulli(scale, 1.5, dim), letters(seed, 2, dim, 2))
    chain = mb.models.HiddenMarkov(simplex(seed, 2), simplex(seed + 1, 2, 2), simplex(seed + 2, 2, 3), length=dim)
    assert_identity(chain, letters(seed, 2, dim, 3))


@QUICK
@given(SEEDS, DIMS, LOG_CONDITION, st.floats(0.5, 50))
def test_student_t_and_mixtures_of_models(seed, dim, log_condition, freedom):
    covariance, condition = ill_conditioned(seed, dim, log_condition), 10**log_condition
    x = drawn(covariance, seed + 1)
    assert_identity(mb.models.StudentT(normals(seed + 2, dim) / 1e4, covariance, freedom), x, condition)
    assert_identity(mb.models.NormalInverseGamma(0.5, 2.0, 3.0, freedom, dim), x)
    parts = [Gaussian(torch.zeros(dim), covariance), Gaussian(torch.zeros(dim), 2 * covariance)]
    assert_identity(mb.models.ModelMixture(simplex(seed, 2), parts), x, condition)


@pytest.mark.parametrize("log_condition", [0, 4, 8])
def test_twelve_coordinates(log_condition):
    covariance = ill_conditioned(1, 12, log_condition)
    assert_identity(Gaussian(torch.zeros(12), covariance), drawn(covariance, 2), 10**log_condition)
    loading, floor = normals(3, 12, 3) / 5, 10.0**-log_condition
    low_rank = PPCA(loading, floor)
    covariance = loading @ loading.T + low_rank.noise.diag()
    assert_identity(low_rank, drawn(covariance, 4), float(torch.linalg.cond(covariance)))
    analysis = FactorAnalysis(loading, floor * (1 + uniforms(5, 12)))
    assert_identity(analysis, drawn(covariance, 4), 2 * float(torch.linalg.cond(covariance)))
    with torch.no_grad():
        gp = GaussianProcess(process(12))
        assert_identity(gp, normals(8, 2, 12), float(torch.linalg.cond(gp.joint().covariance)))
    binary = uniforms(6, *(2,) * 12) ** 4
    assert_identity(JointTable(binary / binary.sum()), letters(7, 2, 12, 2))


@QUICK
@given(SEEDS, st.integers(2, 8), LOG_CONDITION)
def test_any_order_of_the_chain_rule_and_any_relabelling(seed, dim, log_condition):
    covariance = ill_conditioned(seed, dim, log_condition)
    model, x = Gaussian(torch.zeros(dim), covariance), drawn(covariance, seed + 1)
    exact = model.log_marginal_likelihood(x)
    tolerance = max(1e-10, 100 * EPS * 10**log_condition) * exact.abs().clamp_min(1)
    order = torch.randperm(dim, generator=torch.Generator().manual_seed(seed))
    hidden = torch.ones(dim, dim, dtype=torch.bool)
    for step in range(dim):
        hidden[step, order[:step]] = False
    terms = model.masked_log_prob(x, hidden)[:, torch.arange(dim), order]
    assert bool(((terms.sum(1) - exact).abs() <= tolerance).all())
    relabelled = restrict(model, order).log_marginal_likelihood(x[:, order])
    assert bool(((relabelled - exact).abs() <= tolerance).all())


@QUICK
@given(SEEDS, st.integers(1, 7), st.floats(-3, 3))
def test_row_26_scaling_the_data_adds_its_jacobian_to_every_size(seed, dim, log_scale):
    """y = c x: log p(y) = log p(x) - D log c, and S(m) moves by -log c at every size."""
    scale = 10**log_scale
    covariance = ill_conditioned(seed, dim, 2)
    x = drawn(covariance, seed + 1)
    plain = mb.score_curve(Gaussian(torch.zeros(dim), covariance), x, design=mb.masks.Exhaustive())
    scaled = mb.score_curve(Gaussian(torch.zeros(dim), scale**2 * covariance), scale * x, design=mb.masks.Exhaustive())
    torch.testing.assert_close(
        torch.from_numpy(scaled.scores), torch.from_numpy(plain.scores - 2 * math.log(scale)), rtol=1e-9, atol=1e-9
    )


def test_row_28_positive_log_densities_are_not_a_fault():
    """A density above 1 has a positive logarithm: N(0, 0.01²) at 0 gives log(1 / (0.01 sqrt(2π))) = 3.686 nats."""
    model = Gaussian(torch.zeros(1), torch.full((1, 1), 1e-4, dtype=torch.float64))
    comparison = mb.compare(model, torch.zeros(1, 1), design=mb.masks.Exhaustive())
    assert comparison.log_marginal_likelihood == pytest.approx(-0.5 * math.log(2 * math.pi * 1e-4), rel=1e-12)
    assert comparison.log_marginal_likelihood > 0


@pytest.mark.parametrize("kind", ["dense", "low rank", "table"])
def test_row_30_gradients_are_finite_where_a_hidden_branch_would_be_infinite(kind):
    """Selection is by index: hidden coordinates with huge residuals leave no NaN in the gradient of the visible."""
    parameter = torch.tensor([1.0, 1e-150, 1.0], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[0.5, 1e160, -0.5]], dtype=torch.float64)
    visible = torch.tensor([[True, False, True]])
    if kind == "table":
        probabilities = torch.tensor([[0.5, 0.0], [0.25, 0.25]], dtype=torch.float64, requires_grad=True)
        JointTable(probabilities).marginal_log_prob(torch.tensor([[0, 1]]), torch.tensor([[True, False]])).backward()
        assert probabilities.grad.isfinite().all()
        return
    if kind == "dense":
        model = Gaussian(torch.zeros(3), parameter.diag())
    else:
        model = FactorAnalysis(torch.ones(3, 1), parameter)
    value = model.marginal_log_prob(x, visible)
    value.sum().backward()
    assert value.isfinite().all()
    assert parameter.grad.isfinite().all()
