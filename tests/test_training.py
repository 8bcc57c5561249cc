"""Objectives are unbiased where they say so, and training by them reaches the maximum likelihood."""

import gpytorch
import numpy as np
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError, DivergedError, ModelError
from mpt_bayes.gpytorch_mll import MaskedPredictionMLL
from mpt_bayes.numerics.random import Stream
from mpt_bayes.objectives import CumulativeScore, ExactLML, FixedRate, RandomRate
from mpt_bayes.training import TrainingSettings, train
from mpt_bayes.training.parameters import initial_ppca, trainable
from tests.model_examples import normals, spd, table


def published(n=2000, dim=10, latent_dim=2, seed=0):
    """The published setting with the noise the model has: independent, variance 1/5."""
    loading = normals(seed, dim, latent_dim)
    return normals(seed + 1, n, latent_dim) @ loading.T + (1 / 5) ** 0.5 * normals(seed + 2, n, dim)


def gradients(model, x, objective, stream):
    moving = trainable(model)
    value = objective.value(moving.build(), x, stream)
    value.backward()
    return torch.cat([p.grad.reshape(-1) for p in moving.parameters.values()])


@pytest.mark.parametrize("objective", [RandomRate(4), CumulativeScore(1)], ids=repr)
def test_gradient_averages_to_that_of_the_exact_lml(objective):
    x = published(40, 5)
    model = mb.models.PPCA(normals(7, 5, 2), 0.4, normals(8, 5))  # away from the optimum
    exact = gradients(model, x, ExactLML(), Stream(0))
    draws = torch.stack([gradients(model, x, objective, Stream(1).child(k)) for k in range(250)])
    z = (draws.mean(0) - exact) / (draws.std(0) / len(draws) ** 0.5)
    assert float(z.abs().max()) < 4.5
    assert float(z.square().mean()) < 2.5
    assert float((draws.std(0) / len(draws) ** 0.5).max()) < 0.1 * float(exact.abs().max())  # the test has power


def test_a_fixed_rate_is_biased_and_says_so():
    x = published(40, 5)
    model = mb.models.PPCA(normals(7, 5, 2), 0.4)
    exact = float(model.log_marginal_likelihood(x).sum())
    draws = torch.stack([FixedRate(0.8).value(model, x, Stream(1).child(k)) for k in range(250)])
    assert abs(float(draws.mean()) - exact) > 20 * float(draws.std()) / len(draws) ** 0.5
    assert "biased" in FixedRate(0.8).estimand


def test_a_mask_design_is_no_objective_and_an_objective_no_design():
    """`RandomRate` and `FixedRate` are names of both."""
    x, model = normals(0, 6, 3), mb.models.PPCA(normals(7, 3, 1), 0.4)
    with pytest.raises(
        ArgumentError, match=r"objective is mpt_bayes\.masks\.\w+\.RandomRate\(n_masks=4\): expected one of"
    ):
        train(model, x, mb.masks.RandomRate(4))
    for score in (mb.score_curve, mb.masked_score, mb.attribution):
        with pytest.raises(ArgumentError, match=r"mpt_bayes\.objectives\.FixedRate"):
            score(model, x, design=FixedRate(0.2))


def test_objectives_agree_on_models_with_and_without_a_fast_path():
    gaussian, x = mb.models.Gaussian(normals(1, 4), spd(2, 4)), normals(3, 3, 4)
    hidden = mb.masks.RandomOrders(2).draw(4, Stream(5)).hidden
    expected = (gaussian.masked_log_prob(x, hidden).sum(2) / hidden.sum(1)).sum() / 2
    torch.testing.assert_close(CumulativeScore(2).value(gaussian, x, Stream(5)), expected)
    oracle = table(1, 2, 3, 2)
    data = torch.tensor([[0, 2, 1]])
    exact = oracle.log_marginal_likelihood(data).sum()
    values = torch.stack([CumulativeScore(1).value(oracle, data, Stream(k)) for k in range(300)])
    assert abs(float(values.mean() - exact)) < 4 * float(values.std()) / 300**0.5


@pytest.mark.parametrize(
    "objective", [CumulativeScore(), pytest.param(RandomRate(16), marks=pytest.mark.slow)], ids=repr
)
def test_ppca_reaches_the_closed_form_maximum(objective):
    x = published(600)
    best = mb.models.PPCA(latent_dim=2).fit(x)
    maximum = float(best.log_marginal_likelihood(x).mean())
    settings = TrainingSettings(epochs=500, learning_rate=5e-2, final_learning_rate=1e-3)
    result = train(initial_ppca(x, 2), x, objective, settings=settings)
    assert maximum - 0.01 < result.log_marginal_likelihood <= maximum + 1e-9
    assert result.history[0].log_marginal_likelihood < maximum - 0.5


def test_mini_batches_history_and_early_stop():
    x = published(200, 4)
    settings = TrainingSettings(epochs=200, batch_size=100, learning_rate=5e-2, patience=15)
    result = train(initial_ppca(x, 1), x, ExactLML(), settings=settings)
    assert result.stopped_early
    assert 30 <= len(result.history) < 200
    frame = result.to_dataframe()
    assert list(frame.columns) == ["epoch", "objective", "log_marginal_likelihood"]
    assert frame.log_marginal_likelihood.iloc[-1] > frame.log_marginal_likelihood.iloc[0] + 0.3
    assert float(result.model.log_marginal_likelihood(x).mean()) == pytest.approx(result.log_marginal_likelihood)


def test_a_resumed_run_ends_where_the_uninterrupted_one_does(tmp_path):
    x, path = published(60, 4), tmp_path / "run.npz"
    settings = TrainingSettings(epochs=12, batch_size=25, checkpoint_every=5)
    whole = train(initial_ppca(x, 2), x, RandomRate(), settings=settings)

    class PulledPlugError(Exception):
        pass

    def stop(done, total):
        if done == 7:
            raise PulledPlugError

    with pytest.raises(PulledPlugError), mb.progress.reported_to(stop):
        train(initial_ppca(x, 2), x, RandomRate(), settings=settings, checkpoint=path)
    resumed = train(initial_ppca(x, 2), x, RandomRate(), settings=settings, checkpoint=path)
    assert resumed.history == whole.history
    assert torch.equal(resumed.model.loading, whole.model.loading)
    with np.load(path, allow_pickle=False) as file:  # row 19: nothing that runs code on load
        assert "meta" in file.files
    with pytest.raises(ArgumentError, match="another training \\(data\\)"):
        train(initial_ppca(x, 2), x + 1, RandomRate(), settings=settings, checkpoint=path)
    longer = TrainingSettings(epochs=20, batch_size=25, checkpoint_every=5)
    with pytest.raises(ArgumentError, match=r"\(settings: epochs 12 there, 20 here\)"):
        train(initial_ppca(x, 2), x, RandomRate(), settings=longer, checkpoint=path)


def test_a_checkpoint_of_another_start_is_refused(tmp_path):
    """Of one class and shape: the run would end where the other start led, and say it were this one's."""
    x, path, settings = published(60, 4), tmp_path / "run.npz", TrainingSettings(epochs=3)
    train(initial_ppca(x, 2), x, settings=settings, checkpoint=path)
    with pytest.raises(ArgumentError, match=r"run.npz is the checkpoint of another training \(starting point\)"):
        train(initial_ppca(x, 2, seed=1), x, settings=settings, checkpoint=path)
    model, _, inputs, targets = process(12)
    start, path = mb.models.GaussianProcess(model), tmp_path / "gp.npz"
    train(start, targets[None], settings=settings, checkpoint=path)
    again = train(start, targets[None], settings=settings, checkpoint=path)
    assert len(again.history) == 3
    model.set_train_data(inputs=2 * inputs)
    with pytest.raises(ArgumentError, match=r"another training \(starting point\)"):
        train(mb.models.GaussianProcess(model), targets[None], settings=settings, checkpoint=path)


def test_a_checkpoint_of_another_fixed_noise_is_refused(tmp_path):
    """It is neither a parameter nor a buffer of the model."""
    _, _, inputs, targets = process(12)
    noises = (torch.full_like(targets, noise) for noise in (0.01, 0.5))
    likelihoods = map(gpytorch.likelihoods.FixedNoiseGaussianLikelihood, noises)
    first, second = (mb.models.GaussianProcess(Process(inputs, targets, noisy).double()) for noisy in likelihoods)
    arguments = {"settings": TrainingSettings(epochs=3), "checkpoint": tmp_path / "run.npz"}
    train(first, targets[None], **arguments)
    with pytest.raises(ArgumentError, match=r"another training \(starting point\)"):
        train(second, targets[None], **arguments)


def test_files_that_are_no_checkpoint_are_named(tmp_path):
    x, settings = published(60, 4), TrainingSettings(epochs=3)
    good = tmp_path / "good.npz"
    train(initial_ppca(x, 2), x, settings=settings, checkpoint=good)
    content = good.read_bytes()
    (tmp_path / "half.npz").write_bytes(content[: len(content) // 2])
    (tmp_path / "text").write_text("not a checkpoint")
    np.savez(tmp_path / "foreign.npz", a=np.ones(2))
    np.savez(tmp_path / "meta.npz", meta=np.array("{}"))
    for name in ("half.npz", "text", "foreign.npz", "meta.npz"):
        with pytest.raises(ArgumentError, match=rf"{name} is no checkpoint of a training, or a damaged one: name"):
            train(initial_ppca(x, 2), x, settings=settings, checkpoint=tmp_path / name)
    with pytest.raises(ArgumentError, match=r"is a folder: name a file in it"):
        train(initial_ppca(x, 2), x, settings=settings, checkpoint=tmp_path)
    with pytest.raises(ArgumentError, match=r"there is no folder .*/none; make it first"):
        train(initial_ppca(x, 2), x, settings=settings, checkpoint=tmp_path / "none" / "run.npz")


def test_settings_of_another_kind_are_named():
    x = published(20, 4)
    with pytest.raises(ArgumentError, match=r"settings is \{'epochs': 3\}: expected TrainingSettings\(epochs"):
        train(initial_ppca(x, 2), x, settings={"epochs": 3})
    for value in ("a", 0.0, -1e-3, np.nan, np.inf, None):
        with pytest.raises(ArgumentError, match=r"^learning_rate is .*: expected a positive number"):
            TrainingSettings(learning_rate=value)
    with pytest.raises(ArgumentError, match=r"final_learning_rate is 'b': expected a positive number"):
        TrainingSettings(final_learning_rate="b")


def test_a_run_that_diverges_says_so_and_keeps_its_history():
    x = published(60, 4)
    with pytest.raises(
        DivergedError, match=r"diverged in epoch [1-9]\d* \(.*finite.*\): lower learning_rate"
    ) as caught:
        train(initial_ppca(x, 2), x, ExactLML(), settings=TrainingSettings(epochs=50, learning_rate=200.0))
    assert f"epoch {len(caught.value.history)} (" in str(caught.value)
    assert all(np.isfinite(epoch.objective) for epoch in caught.value.history)


def test_other_models_are_refused_with_the_way_out():
    with pytest.raises(ArgumentError, match=r"write the loop with mpt_bayes.objectives"):
        train(mb.models.Gaussian(normals(1, 3), spd(2, 3)), normals(3, 2, 3))


class Process(gpytorch.models.ExactGP):
    def __init__(self, inputs, targets, likelihood):
        super().__init__(inputs, targets, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def process(n=30):
    inputs = torch.linspace(0, 6, n, dtype=torch.float64)
    targets = inputs.sin() + 0.2 * normals(1, n)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    return Process(inputs, targets, likelihood).double(), likelihood.double(), inputs, targets


def trained(make_mll, steps=60):
    """The training loop of GPyTorch's own tutorial."""
    model, likelihood, inputs, targets = process()
    model.train()
    likelihood.train()
    mll = make_mll(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -mll(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return float(mb.models.GaussianProcess(model).log_marginal_likelihood(targets[None]))


def test_drop_in_for_the_exact_marginal_log_likelihood_of_gpytorch():
    exact = trained(gpytorch.mlls.ExactMarginalLogLikelihood)
    masked = trained(MaskedPredictionMLL)
    assert masked == pytest.approx(exact, abs=0.3)


def test_drop_in_has_the_convention_of_gpytorch():
    model, likelihood, inputs, targets = process()
    likelihood.noise_covar.register_prior("p", gpytorch.priors.GammaPrior(2.0, 3.0), "noise")
    expected = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(inputs), targets)
    got = MaskedPredictionMLL(likelihood, model, ExactLML())(model(inputs), targets)
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)


def test_gaussian_processes_train_by_the_loop_of_the_library():
    model, _, _, targets = process()
    start = mb.models.GaussianProcess(model)
    settings = TrainingSettings(epochs=60, learning_rate=0.1)
    result = train(start, targets[None], CumulativeScore(2), settings=settings)
    assert result.log_marginal_likelihood > float(start.log_marginal_likelihood(targets[None])) + 1


def test_drop_in_refuses_what_has_no_exact_conditionals():
    model, likelihood, inputs, targets = process()
    with pytest.raises(ModelError, match="BernoulliLikelihood"):
        MaskedPredictionMLL(gpytorch.likelihoods.BernoulliLikelihood(), model)
    strategy = gpytorch.variational.VariationalStrategy
    approximate = type("Approximate", (gpytorch.models.ApproximateGP,), {})(
        strategy(torch.nn.Module(), torch.zeros(3, 1), gpytorch.variational.CholeskyVariationalDistribution(3))
    )
    with pytest.raises(ModelError, match="Approximate is not a gpytorch ExactGP"):
        MaskedPredictionMLL(likelihood, approximate)
    with pytest.raises(DataError, match="expected \\(n,\\) for both"):
        MaskedPredictionMLL(likelihood, model)(model(inputs), targets[:, None])


def test_drop_in_names_what_is_wrong_with_the_targets():
    model, likelihood, inputs, targets = process()
    mll, output = MaskedPredictionMLL(likelihood, model), model(inputs)
    faults = [
        (targets.index_fill(0, torch.tensor(7), torch.nan), r"target has a missing entry \(NaN\) in row 7 \(1 of 30"),
        (targets.index_fill(0, torch.tensor([9, 4]), torch.inf), "target has an infinite entry in row 4"),
        (targets.numpy(), "target is a ndarray: pass a tensor"),
        (targets[:3], r"targets have shape \(3,\) and the model's output \(30,\): expected \(n,\) for both$"),
    ]
    for given, words in faults:
        with pytest.raises(DataError, match=words):
            mll(output, given)
    batch = gpytorch.distributions.MultivariateNormal(torch.zeros(30), torch.eye(30).expand(2, 30, 30))
    with pytest.raises(DataError, match=r"the model's output is a batch of shape \(2,\): batch models are not"):
        mll(batch, targets)


def test_drop_in_says_where_its_value_is_no_number():
    model, likelihood, inputs, targets = process()
    mll = MaskedPredictionMLL(likelihood, model)
    with pytest.raises(DivergedError, match="the objective is -inf in float64"):
        mll(model(inputs), 1e200 * targets)
    model.float(), likelihood.float()
    with pytest.raises(DivergedError, match=r"the objective is -inf in float32: scale the targets"):
        mll(model(inputs.float()), 1e30 * targets.float())


def test_objectives_take_a_generator_that_moves_on():
    model, x = initial_ppca(published(40, 4), 2), published(40, 4)
    for objective in (CumulativeScore(), RandomRate(), FixedRate(0.5), ExactLML()):
        fresh = torch.Generator().manual_seed(3)
        first, second = (objective.value(model, x, fresh) for _ in range(2))
        assert torch.equal(first, objective.value(model, x, Stream(3)))
        assert torch.equal(first, second) == (objective == ExactLML())
        with pytest.raises(ArgumentError, match="model is a Linear: expected an instance of a model"):
            objective.value(torch.nn.Linear(4, 4), x, fresh)
        for wrong in (None, 3):
            with pytest.raises(ArgumentError, match=rf"stream is {wrong}: pass a torch.Generator"):
                objective.value(model, x, wrong)
