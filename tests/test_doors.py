"""What a newcomer passes by mistake: arrays for tensors, a number for a generator, a class for a model."""

import inspect

import numpy as np
import pandas as pd
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes import estimation
from mpt_bayes.errors import ArgumentError, DataError, ModelError
from mpt_bayes.models import PPCA, Gaussian, GaussianProcess, Mixture, fit_hidden_markov
from mpt_bayes.numerics.random import Stream
from tests.estimators import ESTIMATORS, MODEL, X

every_estimator = pytest.mark.parametrize("estimate", ESTIMATORS.values(), ids=ESTIMATORS)


def test_every_estimator_is_here():
    assert set(ESTIMATORS) == {name for name in estimation.__all__ if inspect.isfunction(getattr(estimation, name))}


@every_estimator
@pytest.mark.parametrize("make", [np.asarray, torch.Tensor.tolist, lambda x: pd.DataFrame(x.numpy()), lambda x: 3])
def test_data_that_are_no_tensor_are_named_by_every_estimator(estimate, make):
    with pytest.raises(DataError, match=r"x is a \w+: pass a tensor"):
        estimate(MODEL, make(X))


@every_estimator
def test_a_single_number_is_no_table(estimate):
    with pytest.raises(DataError, match=r"x (is a single number: expected rows|has shape \(\): expected \(N, 3\))"):
        estimate(MODEL, torch.tensor(1.0))


@every_estimator
def test_what_is_no_model_is_named(estimate):
    for model, words in [(Gaussian, "the class Gaussian"), (None, "a NoneType"), (torch.nn.Linear(3, 3), "a Linear")]:
        with pytest.raises(ArgumentError, match=rf"(model|second|models\['it'\]) is {words}: expected an instance"):
            estimate(model, X)


@pytest.mark.parametrize("make", [np.asarray, torch.Tensor.tolist, lambda x: pd.DataFrame(x.numpy())])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: PPCA(latent_dim=1).fit(x),
        lambda x: Mixture.fit(x, "gaussian", 2),
        lambda x: fit_hidden_markov(x, "gaussian", 2),
    ],
)
def test_data_that_are_no_tensor_are_named(call, make):
    with pytest.raises(DataError, match=r"x is a \w+: pass a tensor"):
        call(make(X))


def test_complex_data_do_not_lose_their_imaginary_part():
    for call in (lambda x: mb.compare(MODEL, x), PPCA(latent_dim=1).fit):
        with pytest.raises(DataError, match="complex128: expected real"):
            call(X + 1j)


def test_finite_data_whose_sum_overflows_have_no_bad_entry():
    model = Gaussian(torch.zeros(2), torch.eye(2, dtype=torch.float64))
    large = torch.full((3, 2), 3e38)
    assert bool(model.log_marginal_likelihood(large).isfinite().all())
    large[2, 0] = -torch.inf
    with pytest.raises(DataError, match="infinite entry in row 2"):
        model.log_marginal_likelihood(large)


def test_streams_check_their_seed_where_they_begin():
    for seed in ("0", 0.0, None, -1):
        with pytest.raises(ArgumentError, match=r"seed is .*: expected (an integer|at least 0)"):
            Stream(seed)
    mine, numpys = (torch.rand(3, generator=Stream(seed).child("a").generator()) for seed in (3, np.int64(3)))
    assert torch.equal(mine, numpys)


def test_arguments_of_another_kind_are_named():
    for arguments, words in [
        ({"generator": 0}, "generator is a int: expected torch.Generator"),
        ({"design": 64}, "design is 64: expected a design"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            mb.compare(MODEL, X, **arguments)
    with pytest.raises(ArgumentError, match=r"n_orders is 2.5: expected an integer"):
        mb.masks.RandomOrders(2.5)
    with pytest.raises(ArgumentError, match=r"rates is 0.15: expected a list"):
        mb.sweep(MODEL, X, 0.15)
    with pytest.raises(ArgumentError, match=r"size is 1.5"):
        mb.score_curve(MODEL, X).score(1.5)
    with pytest.raises(DataError, match="mean is a list"):
        Gaussian([0.0], [[1.0]])
    with pytest.raises(DataError, match="inputs is a ndarray"):
        GaussianProcess.from_kernel("rbf", np.arange(3.0), X[:, 0])


V, A = np.ones(3) / 3, np.eye(3)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: mb.models.JointTable(A / 3), "probabilities"),
        (lambda: PPCA(A, 0.5), "loading"),
        (lambda: mb.models.FactorAnalysis(torch.ones(3, 1), V), "noise_variance"),
        (lambda: mb.models.FactorAnalysis(torch.ones(3, 1), torch.ones(3), V), "mean"),
        (lambda: mb.models.StudentT(V, A, 3.0), "location"),
        (lambda: mb.models.linear_regression(A, V, A, shape=1.0, rate=1.0), "inputs"),
        (lambda: mb.models.linear_regression(X, V, A, shape=1.0, rate=1.0), "prior_mean"),
        (lambda: mb.models.g_prior_regression(A, 1.0, shape=1.0, rate=1.0), "inputs"),
        (lambda: mb.models.fitted_local_level(V), "y"),
        (lambda: mb.models.linear_gaussian_state_space(A, V, A, 1.0, V, A, 3), "transition"),
        (lambda: mb.models.HiddenMarkov(V, A, A, length=3), "initial"),
        (lambda: mb.models.HiddenMarkov(torch.ones(3) / 3, torch.eye(3), A, length=3), "emission"),
        (lambda: Mixture.gaussian(V, A, A), "means"),
        (lambda: Mixture.bernoulli(torch.ones(3) / 3, A), "probabilities"),
        (lambda: mb.models.NormalEmission(A, A), "mean"),
        (lambda: mb.models.NormalEmission(torch.ones(3, 3), A), "scale"),
        (lambda: mb.models.BernoulliEmission(torch.ones(3, 3), A), "log_zero"),
        (lambda: mb.models.CategoricalEmission(A), "log_probabilities"),
        (lambda: mb.models.ModelMixture(V, [MODEL] * 3), "weights"),
        (lambda: mb.models.DirichletCategorical(V, 3), "concentration"),
        (lambda: mb.models.restrict(MODEL, V), "keep"),
        (lambda: MODEL.order_curve(X, A), "orders"),
        (lambda: mb.training.train(PPCA(torch.ones(3, 1), 0.5), A), "x"),
        (lambda: mb.representation.effective_rank(A), "vectors"),
    ],
)
def test_parameters_that_are_no_tensor_are_named(make, name):
    with pytest.raises(DataError, match=f"^{name} is a ndarray: pass a tensor"):
        make()


def test_shapes_and_kinds_of_other_arguments_are_named():
    with pytest.raises(DataError, match=r"y has shape \(12, 3\): expected one series"):
        mb.models.fitted_local_level(X)
    with pytest.raises(DataError, match=r"missing entry .* train takes complete rows only"):
        mb.training.train(PPCA(torch.ones(3, 1), 0.5), torch.full((2, 3), torch.nan))
    with pytest.raises(ArgumentError, match=r"design is .*RandomOrders\(n_orders=4\): expected one without its number"):
        mb.convergence(MODEL, X, design=mb.masks.RandomOrders(4))
    with pytest.raises(ArgumentError, match="models is a list: expected models by name"):
        mb.compare_models([MODEL], X)
    for rate in ("0.15", [0.15]):
        with pytest.raises(ArgumentError, match=r"rate is .*: expected a number"):
            mb.masked_score(MODEL, X, rate=rate)


def test_an_estimate_minus_something_else_is_a_type_error():
    estimate = mb.cumulative_score(MODEL, X)
    with pytest.raises(TypeError, match="unsupported operand"):
        estimate - mb.log_marginal_likelihood(MODEL, X).numpy().tolist()


def test_values_outside_the_support_of_a_family_are_refused_by_its_fit():
    for family, words in [("categorical", "not a category"), ("poisson", "not a count"), ("bernoulli", "0 and 1")]:
        for fit in (Mixture.fit, fit_hidden_markov):
            with pytest.raises(DataError, match=words):
                fit(X.round() - 5, family, 2)
    with pytest.raises(DataError, match="not a category"):
        Mixture.fit(torch.tensor([[0.0, 1.0], [1e9, 0.0]]), "categorical", 2)


def test_a_fit_that_ran_out_of_iterations_says_so():
    short = mb.models.EMSettings(max_iterations=2)
    for fit in (Mixture.fit, fit_hidden_markov):
        with pytest.warns(mb.errors.MptBayesWarning, match=r"still gained more than 1e-08 .* after 2 iterations"):
            fit(X, "gaussian", 2, em=short)


def test_normal_components_refuse_a_constant_column():
    constant = torch.cat([X, torch.full((12, 1), 0.1, dtype=torch.float64)], 1)
    with pytest.raises(DataError, match=r"columns \[3\] of x are constant"):
        Mixture.fit(constant, "gaussian", 2)


def test_a_chain_needs_a_transition_and_enough_values():
    with pytest.raises(DataError, match="length 1"):
        fit_hidden_markov(X[:, :1], "gaussian", 2)
    with pytest.raises(ArgumentError, match="n_states is 7 but x has 6 values"):
        fit_hidden_markov(X[:2], "gaussian", 7)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: mb.plan(MODEL, x), "x has .* row 4 .* plan takes complete rows only"),
        (lambda x: mb.score_difference(MODEL, MODEL, x), "x has .* row 4 .* score_difference takes complete"),
        (lambda x: mb.score_difference(MODEL, MODEL, X, other_x=x), "other_x has .* row 4 "),
        (lambda x: mb.compare_models({"a": MODEL}, x), "x has .* row 4 .* compare_models takes complete"),
        (lambda x: mb.compare_models({"a": MODEL}, X, test=x), "test has .* row 4 "),
    ],
)
def test_row_25_what_cannot_marginalise_does_not_say_it_can(call, words):
    x = X.clone()
    x[4, 1] = torch.nan
    with pytest.raises(DataError, match=words):
        call(x)


def test_two_tables_of_one_coin_agree():
    half = torch.full((2, 3), 0.5).log()
    with pytest.raises(ModelError, match=r"log_zero has shape \(2, 4\): expected \(2, 3\), as log_one"):
        mb.models.BernoulliEmission(half, torch.full((2, 4), 0.5).log())
    with pytest.raises(ModelError, match=r"exp\(log_one\) \+ exp\(log_zero\) is not 1 everywhere"):
        mb.models.BernoulliEmission(half, half - 1)
    sure = torch.zeros(2, 3)
    assert bool(mb.models.BernoulliEmission(sure, sure.log()).log_prob(torch.ones(1, 3)).eq(0).all())


def test_what_is_no_decoder_and_no_name_of_data_is_named():
    quadrature = mb.models.LatentQuadrature
    for make, name in (
        (lambda: quadrature(None, 1), "decoder"),
        (lambda: quadrature.bernoulli(None, 1), "logits"),
        (lambda: quadrature.normal(None, 1.0, 1), "mean"),
        (lambda: mb.models.ImportanceBank(None, None, 1), "decoder"),
    ):
        with pytest.raises(ArgumentError, match=rf"{name} is None: expected a function or a module"):
            make()
    with pytest.raises(ArgumentError, match="name is 3: expected the name of a data set"):
        mb.datasets.load(3)
    with pytest.raises(ArgumentError, match="first is a NoneType"):
        mb.score_difference(None, MODEL, X)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_rates_of_any_precision_are_the_decimals_they_were_written_as(kind):
    written = [0.1, 0.35, 0.75, 1.0]
    rates = torch.tensor(written, dtype=kind)
    ten = mb.models.Gaussian(torch.zeros(10), torch.eye(10))
    result = mb.sweep(ten, torch.zeros(1, 10), rates, n_masks=2)
    assert result.rates.tolist() == written
    assert result.sizes.tolist() == [1, 4, 8, 10], "3.5 and 7.5, rounded up"
    third = mb.sweep(ten, torch.zeros(1, 10), torch.tensor([1 / 3], dtype=torch.float64), n_masks=2)
    assert third.rates.tolist() == [1 / 3]


def test_rates_are_numbers_of_any_sequence_and_others_are_shown_as_given():
    expected = mb.sweep(MODEL, X, [0.1, 0.5]).scores
    for rates in (torch.tensor([0.1, 0.5]), np.array([0.1, 0.5], dtype=np.float32), (0.1, 0.5)):
        np.testing.assert_array_equal(mb.sweep(MODEL, X, rates).scores, expected)
    for rates, message in [
        (["0.1"], "rate is '0.1': expected a number"),
        (np.array(["0.1"]), "rate is '0.1': expected a number"),
        ("0.1:0.9:0.1", "rates is '0.1:0.9:0.1': expected a list of numbers"),
        (None, "rates is None: expected a list of numbers"),
        (torch.tensor([0.5, torch.nan]), "rate is nan: expected a number"),
        (torch.tensor([[0.5]]), r"rate is \[0.5\]: expected a number"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            mb.sweep(MODEL, X, rates)


def test_row_25_a_missing_entry_is_told_with_the_rows_it_is_of():
    x = torch.zeros(50, 3, dtype=torch.float64)
    x[7, 1] = torch.nan
    with pytest.raises(
        DataError, match=r"x has a missing entry \(NaN\) in row 7 \(1 of 50 rows affected\): pass missing"
    ):
        mb.score_curve(MODEL, x)
    with pytest.raises(
        DataError, match=r"x has a missing entry \(NaN\) in row 7 \(1 of 50 rows affected\): compare_models"
    ):
        mb.compare_models({"it": MODEL}, x)


def test_numbers_of_compare_models_are_lists_of_numbers():
    models = {"it": MODEL}
    for kwargs, words in [
        ({"rates": 0.5}, r"rates is 0.5: expected a list, \[0.5\]"),
        ({"fractions": 0.5}, r"fractions is 0.5: expected a list, \[0.5\]"),
        ({"rates": "half"}, r"rates is 'half': expected a list of numbers in \(0, 1\]"),
        ({"fractions": ["half"]}, r"fractions has 'half': expected numbers in \[0, 1\)"),
        ({"rates": ["half"]}, r"rate is 'half': expected a number"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            mb.compare_models(models, X, **kwargs)
    as_tensor = mb.compare_models(models, X, rates=torch.tensor([0.5]), fractions=np.array([0.5]))
    assert as_tensor.to_dict() == mb.compare_models(models, X, rates=[0.5], fractions=[0.5]).to_dict()
    with pytest.raises(DataError, match="test has 2 columns but the model has 3 coordinates"):
        mb.compare_models(models, X, test=X[:, :2])


def test_swapped_arguments_of_a_student_t_name_its_own():
    location, scale = torch.zeros(3), torch.eye(3)
    with pytest.raises(DataError, match=r"^location is a float: pass a tensor"):
        mb.models.StudentT(3.0, location, scale)
    with pytest.raises(DataError, match=r"^scale is a float: pass a tensor"):
        mb.models.StudentT(location, 3.0, scale)
