"""A GaussianProcess reads the user's GPyTorch model and leaves it as it is, whatever its dtype and its sharing."""

import gpytorch
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import NotPositiveDefiniteError
from mpt_bayes.models import GaussianProcess
from mpt_bayes.training import TrainingSettings, train

DTYPES = [torch.float32, torch.float64]
INPUTS = torch.linspace(0, 1, 20).double()  # drawn in float32, so that both dtypes hold the same numbers
TARGETS = ((6 * INPUTS).sin() + 0.1 * torch.randn(20, generator=torch.Generator().manual_seed(0))).float().double()


class Process(gpytorch.models.ExactGP):
    fails = False

    def __init__(self, dtype, likelihood, kernel):
        super().__init__(INPUTS.to(dtype), TARGETS.to(dtype), likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel
        self.to(dtype)

    def forward(self, x):
        if self.fails:
            raise RuntimeError("the user's own fault")
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def plain(dtype):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    return Process(dtype, gpytorch.likelihoods.GaussianLikelihood(), kernel)


def fixed_noise(dtype):
    noise = torch.full((20,), 0.01, dtype=dtype)
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)
    return Process(dtype, likelihood, gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()))


def priors_and_constraints(dtype):
    gamma, interval = gpytorch.priors.GammaPrior(2.0, 3.0), gpytorch.constraints.Interval(0.01, 2.0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_prior=gamma, noise_constraint=interval)
    kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 6.0))
    return Process(dtype, likelihood, gpytorch.kernels.ScaleKernel(kernel))


def shared_kernel(dtype):
    """One module found under two names, and one parameter that two modules hold."""
    kernel, other = gpytorch.kernels.RBFKernel(), gpytorch.kernels.MaternKernel()
    other.raw_lengthscale = kernel.raw_lengthscale
    return Process(dtype, gpytorch.likelihoods.GaussianLikelihood(), kernel + kernel * other)


MAKERS = [plain, fixed_noise, priors_and_constraints, shared_kernel]


def state(model):
    """Each module's tensors, as objects and as values, and its mode."""
    parts = [*model.modules()]
    held = {
        (i, kind, name): tensor
        for i, part in enumerate(parts)
        for kind in ("_parameters", "_buffers")
        for name, tensor in getattr(part, kind).items()
    }
    values = {key: None if tensor is None else tensor.detach().clone() for key, tensor in held.items()}
    return held, values, [part.training for part in parts]


def assert_untouched(model, before):
    held, values, modes = state(model)
    assert held.keys() == before[0].keys()
    assert all(held[key] is before[0][key] for key in held)
    torch.testing.assert_close(values, before[1], rtol=0, atol=0, check_dtype=True)
    assert modes == before[2]


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("make", MAKERS)
def test_the_users_model_is_untouched_by_all_that_is_done_with_it(make, dtype):
    model = make(dtype)
    before = state(model)
    gp = GaussianProcess(model)
    assert_untouched(model, before)
    y = gp.targets
    gp.log_marginal_likelihood(y).sum().backward()
    mb.compare(gp, y, design=mb.masks.RandomOrders(2))
    gp.restrict(torch.arange(4)).log_marginal_likelihood(y[:, :4])
    gp.fit(max_iterations=3)
    train(gp, y, settings=TrainingSettings(epochs=2))
    assert_untouched(model, before)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("make", MAKERS)
def test_the_users_model_is_untouched_after_a_failure(make, dtype):
    model = make(dtype)
    gp, before = GaussianProcess(model), state(model)
    model.fails = True
    for call in (lambda: GaussianProcess(model), lambda: gp.log_marginal_likelihood(gp.targets), gp.fit):
        with pytest.raises(RuntimeError, match="the user's own fault"):
            call()
        assert_untouched(model, before)


def test_the_users_model_is_untouched_where_its_covariance_cannot_be_factorised():
    model = plain(torch.float32)
    model.likelihood.noise_covar.register_constraint("raw_noise", gpytorch.constraints.GreaterThan(1e-30))
    model.likelihood.noise = 1e-20
    before = state(model)
    with pytest.raises(NotPositiveDefiniteError):
        GaussianProcess(model)
    assert_untouched(model, before)


@pytest.mark.parametrize("make", MAKERS)
def test_row_24_float32_gives_the_numbers_and_the_gradients_of_float64(make):
    single, double = make(torch.float32), make(torch.float64)
    double.load_state_dict(single.state_dict())
    values = []
    for model in (single, double):
        gp = GaussianProcess(model)
        values.append(gp.log_marginal_likelihood(gp.targets))
        values[-1].sum().backward()
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)  # the fixed noise 0.01 is rounded in float32
    for a, b in zip(single.parameters(), double.parameters(), strict=True):
        assert a.grad.dtype == torch.float32
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [plain, fixed_noise])
def test_fits_in_float32_end_where_those_in_float64_do(make):
    processes = [GaussianProcess(make(dtype)) for dtype in DTYPES]
    single, double = (gp.fit() for gp in processes)
    start, reached = (gp.log_marginal_likelihood(gp.targets).item() for gp in (processes[1], double))
    assert reached > start + 1
    assert single.log_marginal_likelihood(single.targets).item() == pytest.approx(reached, abs=1e-3)
    for name, value in double.hyperparameters.items():
        assert single.hyperparameters[name] == pytest.approx(value, rel=0.02), name


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_the_noise_is_trained_to_what_is_fitted(dtype):
    gp = GaussianProcess(plain(dtype))
    fitted = gp.fit()
    result = train(gp, gp.targets, mb.objectives.ExactLML(), settings=TrainingSettings(epochs=150, learning_rate=0.1))
    assert result.log_marginal_likelihood == pytest.approx(fitted.log_marginal_likelihood(gp.targets).item(), abs=0.1)
    trained, noise = (p.hyperparameters["likelihood.noise_covar.noise"] for p in (result.model, fitted))
    assert trained == pytest.approx(noise, rel=0.1)


def by_adam(model, look):
    """The user's own loop, which looks at the evidence after every step or does not."""
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train()
    for _ in range(20):
        optimizer.zero_grad()
        (-mll(model(*model.train_inputs), model.train_targets)).backward()
        optimizer.step()
        if look:
            gp = GaussianProcess(model)
            gp.log_marginal_likelihood(gp.targets)
    return [*model.parameters()]


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_looking_at_the_evidence_changes_no_training_of_the_users_own(dtype):
    looked, alone = by_adam(plain(dtype), look=True), by_adam(plain(dtype), look=False)
    for a, b in zip(looked, alone, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
def test_the_users_model_predicts_before_and_after(dtype):
    """Its cached predictions are neither spoilt nor carried over to a fitted copy, whose hyper-parameters differ."""
    model = plain(dtype)
    model.eval()
    before = model.likelihood(model(INPUTS.to(dtype))).mean
    fitted = GaussianProcess(model).fit()
    assert torch.equal(model.likelihood(model(INPUTS.to(dtype))).mean, before)
    there = fitted.model
    there.eval()
    cold = plain(dtype)
    cold.load_state_dict(there.state_dict())
    cold.eval()
    torch.testing.assert_close(there(INPUTS.to(dtype)).mean, cold(INPUTS.to(dtype)).mean)
    assert (there(INPUTS.to(dtype)).mean - before).abs().max().item() > 0.01


def test_hyper_parameters_are_those_of_the_likelihood_in_use():
    model, own, other = plain(torch.float32), plain(torch.float32), gpytorch.likelihoods.GaussianLikelihood()
    other.noise = own.likelihood.noise = 0.3
    gp = GaussianProcess(model, other)
    assert gp.hyperparameters["likelihood.noise_covar.noise"] == pytest.approx([0.3])
    expected = GaussianProcess(own).fit().hyperparameters
    assert gp.fit().hyperparameters == expected
    assert next(iter(expected)) == "likelihood.noise_covar.noise"
    assert expected["likelihood.noise_covar.noise"] != pytest.approx([0.3])
