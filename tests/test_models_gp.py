"""Gaussian processes against dense Gaussians, brute force, scikit-learn and GPyTorch's own loss."""

import copy
import math

import gpytorch
import pytest
import torch
from model_examples import MeanGP, normals, process, uniforms

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError, ModelError, NotPositiveDefiniteError
from mpt_bayes.models import Gaussian, GaussianProcess
from mpt_bayes.numerics.combinatorics import all_subsets

HETEROSCEDASTIC = torch.tensor([0.1, 0.4, 0.2, 0.9, 0.05], dtype=torch.float64)


def dense(model, noise):
    """Mean and covariance written out by hand: linear mean, scaled Matern 3/2, noise."""
    x = model.train_inputs[0][:, 0]
    scaled = math.sqrt(3) * (x[:, None] - x).abs() / float(model.covar_module.base_kernel.lengthscale)
    kernel = float(model.covar_module.outputscale) * (1 + scaled) * (-scaled).exp()
    return Gaussian(0.7 * x - 1.3, kernel + torch.as_tensor(noise).expand(len(x)).double().diag())


@pytest.mark.parametrize("noise", [None, HETEROSCEDASTIC], ids=["homoscedastic", "heteroscedastic"])
def test_row_22_leave_one_out_with_mean_and_noise_by_brute_force(noise):
    """Every conditional against explicit kriging with the non-zero mean and the noise of each output."""
    model = process(noise=noise)
    written = dense(model, 0.2 if noise is None else noise)
    gp, y = GaussianProcess(model), normals(3, 2, 5)
    mean, covariance = written.mean, written.covariance
    for j in range(5):
        rest = [i for i in range(5) if i != j]
        gain = torch.linalg.solve(covariance[rest][:, rest], covariance[rest, j])
        centre = mean[j] + (y[:, rest] - mean[rest]) @ gain
        variance = covariance[j, j] - covariance[j, rest] @ gain
        expected = torch.distributions.Normal(centre, variance.sqrt()).log_prob(y[:, j])
        hidden = torch.arange(5)[None] == j
        torch.testing.assert_close(gp.masked_log_prob(y, hidden)[:, 0, j], expected, rtol=1e-10, atol=1e-10)
    subsets = all_subsets(5)
    expected = written.marginal_log_prob(y, subsets)
    torch.testing.assert_close(gp.marginal_log_prob(y, subsets), expected, rtol=1e-10, atol=1e-10)


def test_row_21_total_nats_of_the_data_alone_whatever_the_mode_and_the_priors():
    model, y = process(), normals(3, 1, 5)
    expected = dense(model, 0.2).log_marginal_likelihood(y)
    model.covar_module.base_kernel.register_prior("length_prior", gpytorch.priors.GammaPrior(3.0, 6.0), "lengthscale")
    values = []
    for train in (True, False):
        model.train(train), model.likelihood.train(train)
        values.append(GaussianProcess(model).log_marginal_likelihood(y))
        assert model.training is train
        assert model.likelihood.training is train
    assert torch.equal(*values)
    torch.testing.assert_close(values[0], expected, rtol=1e-12, atol=1e-12)
    estimate = mb.cumulative_score(GaussianProcess(model), y, design=mb.masks.Exhaustive())
    assert estimate.value == pytest.approx(float(expected), rel=1e-10)


def test_value_is_n_times_gpytorchs_own_loss_without_priors():
    model, y = process(), normals(3, 5)
    model.set_train_data(targets=y)
    own = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    model.train(), model.likelihood.train()
    with gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False):
        loss = own(model(*model.train_inputs), y)
    gp = GaussianProcess(model)
    torch.testing.assert_close(gp.log_marginal_likelihood(gp.targets)[0], 5 * loss, rtol=1e-8, atol=1e-8)


def test_equals_scikit_learn():
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    inputs, y = uniforms(0, 30).sort().values * 4, normals(1, 30)
    gp = GaussianProcess.from_kernel("rbf", inputs, y)
    module = gp.model
    module.mean_module.constant.data.zero_()
    module.covar_module.outputscale, module.covar_module.base_kernel.lengthscale = 1.7, 0.6
    module.likelihood.noise = 0.25
    kernel = kernels.ConstantKernel(1.7) * kernels.RBF(0.6) + kernels.WhiteKernel(0.25)
    other = GaussianProcessRegressor(kernel, optimizer=None).fit(inputs[:, None].numpy(), y.numpy())
    expected = other.log_marginal_likelihood_value_
    assert float(gp.log_marginal_likelihood(y[None]).detach()) == pytest.approx(expected, rel=1e-7)  # alpha=1e-10


def test_row_23_values_do_not_change_from_call_to_call_at_a_size_where_gpytorch_goes_stochastic():
    n = 900  # GPyTorch turns to stochastic Lanczos above 800
    inputs, y = torch.linspace(0, 30, n).double(), normals(1, n)
    gp = GaussianProcess.from_kernel("matern32", inputs, y)
    first, second = (gp.log_marginal_likelihood(gp.targets).detach() for _ in range(2))
    assert torch.equal(first, second)
    mean, covariance = gp.joint().mean.detach(), gp.joint().covariance.detach()
    expected = torch.distributions.MultivariateNormal(mean, covariance).log_prob(gp.targets)
    torch.testing.assert_close(first, expected, rtol=1e-12, atol=0)


def clustered():
    inputs = torch.tensor([0.0, 1e-9, 2e-9, 1.0], dtype=torch.float64)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-20))
    model = MeanGP(inputs, torch.zeros(4).double(), likelihood.double())
    likelihood.noise = 1e-19
    return model


def test_row_24_clustered_inputs_name_the_smallest_eigenvalue_and_jitter_is_only_on_request():
    with pytest.raises(NotPositiveDefiniteError, match="smallest eigenvalue") as caught:
        GaussianProcess(clustered())
    assert abs(caught.value.smallest_eigenvalue) < 1e-12
    mended = GaussianProcess(clustered(), jitter=1e-6)
    assert mended.jitter == 1e-6
    assert "jitter=1e-06" in repr(mended)
    assert "jitter" not in repr(GaussianProcess(process()))
    y = torch.zeros(1, 4, dtype=torch.float64)
    written = dense(clustered(), 1e-6)
    torch.testing.assert_close(mended.log_marginal_likelihood(y), written.log_marginal_likelihood(y), rtol=1e-6, atol=0)
    with pytest.raises(ArgumentError, match="jitter is -1"):
        GaussianProcess(process(), jitter=-1)


@pytest.mark.parametrize("noise", [None, HETEROSCEDASTIC.float()], ids=["homoscedastic", "heteroscedastic"])
def test_row_24_a_float32_model_is_computed_in_float64(noise):
    single = process(noise=noise).float()
    double = copy.deepcopy(single).double()
    y = normals(3, 1, 5)
    value = GaussianProcess(single).log_marginal_likelihood(y)
    assert value.dtype == torch.float64
    torch.testing.assert_close(value, GaussianProcess(double).log_marginal_likelihood(y), rtol=1e-13, atol=1e-13)


def test_gradients_of_hyper_parameters_equal_finite_differences():
    model, y = process(), normals(3, 1, 5)
    gp = GaussianProcess(model)
    hidden = all_subsets(5)[[3, 17]]
    for value in (gp.log_marginal_likelihood, lambda y: gp.masked_log_prob(y, hidden)):
        model.zero_grad()
        value(y).sum().backward()
        for parameter in model.parameters():
            gradient, start = float(parameter.grad.sum()), parameter.data.clone()
            parameter.data = start + 1e-6
            above = float(value(y).detach().sum())
            parameter.data = start - 1e-6
            below = float(value(y).detach().sum())
            parameter.data = start
            assert gradient == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-7)


class Batched(gpytorch.models.ExactGP):
    def __init__(self, inputs, targets):
        super().__init__(inputs, targets, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))
        self.covar_module = gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2]))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Multitask(gpytorch.models.ExactGP):
    def __init__(self):
        super().__init__(
            torch.rand(4, 1), torch.rand(4, 2), gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
        )

    def forward(self, x):
        raise AssertionError("refused before it is used")


class Approximate(gpytorch.models.ApproximateGP):
    def __init__(self):
        points = torch.rand(3, 1)
        distribution = gpytorch.variational.CholeskyVariationalDistribution(3)
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()


def with_inducing_points():
    model = process()
    model.covar_module = gpytorch.kernels.InducingPointKernel(
        model.covar_module, inducing_points=torch.rand(2, 1), likelihood=model.likelihood
    )
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianProcess(Approximate()), "not a gpytorch ExactGP"),
        (lambda: GaussianProcess(Batched(torch.rand(2, 4, 1), torch.rand(2, 4))), "batch and multitask"),
        (lambda: GaussianProcess(Batched(torch.rand(4, 1), torch.rand(4))), "prior mean has shape .2, 4."),
        (lambda: GaussianProcess(Multitask()), "MultitaskGaussianLikelihood"),
        (lambda: GaussianProcess(process(), gpytorch.likelihoods.BernoulliLikelihood()), "BernoulliLikelihood"),
        (lambda: GaussianProcess(with_inducing_points()), "InducingPointKernel approximates"),
    ],
)
def test_row_22_what_has_no_exact_joint_is_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()


def test_row_25_missing_targets_are_marginalised_and_not_counted():
    inputs = uniforms(0, 6).sort().values * 3
    y = normals(1, 6)
    y[2] = math.nan
    gp = GaussianProcess.from_kernel("matern52", inputs, y)
    with pytest.raises(DataError, match=r"missing entry \(NaN\) in row 0"):
        mb.log_marginal_likelihood(gp, gp.targets)
    kept = torch.tensor([0, 1, 3, 4, 5])
    part = GaussianProcess.from_kernel("matern52", inputs, y)
    part.model.set_train_data(part.model.train_inputs[0][kept], y[kept], strict=False)
    expected = GaussianProcess(part.model).log_marginal_likelihood(y[None, kept]).detach()
    got = mb.compare(gp, gp.targets, design=mb.masks.Exhaustive(), missing="marginalise")
    assert got.log_marginal_likelihood == pytest.approx(float(expected), rel=1e-12)
    assert got.cumulative_score.value == pytest.approx(float(expected), rel=1e-10)
    with_gap = gp.fit(missing="marginalise").log_marginal_likelihood
    assert with_gap(torch.zeros(1, 6)).isfinite()
    infinite = y.clone()
    infinite[0] = math.inf
    with pytest.raises(DataError, match="infinite"):
        gp.fit(infinite[None], missing="marginalise")


def test_row_35_a_column_of_targets_is_not_broadcast():
    gp = GaussianProcess(process())
    with pytest.raises(DataError, match=r"pass y.reshape\(1, -1\)"):
        gp.log_marginal_likelihood(torch.zeros(5, 1))
    with pytest.raises(DataError, match="inputs have shape"):
        GaussianProcess.from_kernel("rbf", torch.rand(5), torch.rand(5, 1))


def test_fit_reaches_a_maximum_and_is_deterministic():
    inputs = torch.linspace(0, 10, 40).double()
    y = (2 * inputs.sin() + 0.3 * normals(2, 40) + 5)[None]
    start = GaussianProcess.from_kernel("rbf", inputs, y)
    before = float(start.log_marginal_likelihood(y).detach())
    first, second = start.fit(), start.fit()
    best = float(first.log_marginal_likelihood(y).detach())
    assert float(second.log_marginal_likelihood(y).detach()) == best > before + 10
    assert float(start.log_marginal_likelihood(y).detach()) == before
    first.model.zero_grad()
    first.log_marginal_likelihood(y).sum().backward()
    for parameter in first.model.parameters():
        assert abs(float(parameter.grad)) < 1e-2
    assert float(first.model.likelihood.noise) == pytest.approx(0.09, rel=0.5)


@pytest.mark.parametrize(
    "kernel", ["rbf", "matern12", "matern32", "matern52", "periodic", "rq", "linear", "co2", "linear + periodic*rbf"]
)
def test_every_kernel_name_gives_a_process_that_can_be_compared(kernel):
    inputs = torch.linspace(1960, 1964, 8).double()
    y = (inputs * 6).sin()[None] + 3
    gp = GaussianProcess.from_kernel(kernel, inputs, y)
    comparison = mb.compare(gp, y, design=mb.masks.Exhaustive())
    assert comparison.difference == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("kernel", "inputs", "targets", "error", "message"),
    [
        ("cubic", torch.rand(4), torch.rand(4), ArgumentError, "'cubic' is not one of co2, linear"),
        ("rbf+", torch.rand(4), torch.rand(4), ArgumentError, "'' is not one of"),
        ("rbf", torch.tensor([0, math.inf]), torch.rand(2), DataError, "input 1 is not finite"),
        ("rbf", torch.rand(3), torch.ones(3), DataError, "two different observed values"),
        ("rbf", torch.rand(2), torch.tensor([1.0, math.nan]), DataError, "two different observed values"),
    ],
)
def test_kernels_and_data_that_do_not_make_a_process_are_named(kernel, inputs, targets, error, message):
    with pytest.raises(error, match=message):
        GaussianProcess.from_kernel(kernel, inputs, targets)
