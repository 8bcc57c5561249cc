"""What is passed to PyroModel by mistake is named in one line, with what to do."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from mpt_bayes.errors import ArgumentError, DataError, ModelError
from mpt_bayes.models import PyroModel

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
MEANS = torch.tensor([-1.0, 2.0])


def mixture(x):
    k = pyro.sample("k", dist.Categorical(torch.tensor([0.3, 0.7])))
    pyro.sample("x", dist.Normal(MEANS[k], 1.0).expand([3]).to_event(1), obs=x)


def mixture_of_rows(x):
    with pyro.plate("data", len(x)):
        k = pyro.sample("k", dist.Categorical(torch.tensor([0.3, 0.7])))
        pyro.sample("x", dist.Normal(MEANS[k][:, None], 1.0).expand([len(x), 3]).to_event(1), obs=x)


def factors_of_rows(x):
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        pyro.sample("x", dist.Normal(z @ torch.ones(2, 3), 0.5).to_event(1), obs=x)


def twenty_rows(x=None):
    with pyro.plate("data", 20):
        pyro.sample("x", dist.Normal(torch.zeros(20, 3), 1.0).to_event(1), obs=x)


def two_arguments(x, y):
    pyro.sample("x", dist.Normal(y, 1.0).expand([3]).to_event(1), obs=x)


@pytest.mark.parametrize("program", [mixture_of_rows, factors_of_rows, twenty_rows])
def test_a_plate_of_rows_has_to_be_named(program):
    with pytest.raises(ModelError, match=r"values of shape \(\d+, 3\), and the datum has \(3,\): .* rows='data'$"):
        PyroModel(program, X[0])
    with pytest.raises(ModelError, match=r"is in no plate 'rows' \(its plates: 'data'\)"):
        PyroModel(program, X[0], rows="rows")


def test_a_plate_of_a_fixed_number_of_rows_cannot_take_one():
    with pytest.raises(ModelError, match=r"'data' has a fixed size of 20, make it that of the data, len\(x\)"):
        PyroModel(twenty_rows, X[0], rows="data")


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (X[0].numpy(), "example is a ndarray: pass a tensor"),
        (X[0].tolist(), "example is a list: pass a tensor"),
        (None, "example is a NoneType: pass a tensor"),
        (X, r"example has shape \(20, 3\): .* of the 20 rows pass one, x\[0\]"),
        (torch.tensor(1.0), r"example has shape \(\): expected one datum"),
        (torch.tensor([0.0, float("nan"), 1.0]), "example has a missing entry"),
    ],
)
def test_an_example_is_one_complete_datum(example, words):
    with pytest.raises(DataError, match=words):
        PyroModel(mixture, example)


def test_a_datum_of_another_length_than_the_program_has():
    with pytest.raises(ModelError, match=r"values of shape \(3,\), and the datum has \(4,\)"):
        PyroModel(mixture, torch.zeros(4))


def test_posterior_draws_are_tensors():
    with pytest.raises(DataError, match=r"posterior\['k'\] is a ndarray: pass a tensor"):
        PyroModel(mixture, X[0], posterior={"k": X[:, 0].numpy()})


@pytest.mark.parametrize(
    ("program", "words"), [(None, "program is None: expected a function"), (two_arguments, r"2 arguments \(x, y\)")]
)
def test_a_program_is_a_function_of_one_datum(program, words):
    with pytest.raises(ArgumentError, match=words):
        PyroModel(program, X[0])


def test_data_in_double_precision_leave_a_program_in_single_precision_exact():
    model = PyroModel(factors_of_rows, X[0].double(), rows="data")
    assert "exact" in repr(model)
    again = PyroModel(factors_of_rows, X[0], rows="data")
    torch.testing.assert_close(
        model.log_marginal_likelihood(X.double()), again.log_marginal_likelihood(X.double()), rtol=1e-6, atol=0
    )
