"""Parts of a program that PyroModel cannot honour, and draws that are not of it, are refused with their site."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError, ModelError
from mpt_bayes.models import PyroModel

X = torch.tensor([0.5, -1.0, 2.0])


def normal(x, mean=0.0):
    return pyro.sample("x", dist.Normal(mean, 1.0).expand([3]).to_event(1), obs=x)


def with_factor(x):
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    pyro.factor("penalty", -(b**2))
    normal(x, b)


def scaled(x):
    with poutine.scale(scale=3.0):
        normal(x, pyro.sample("b", dist.Normal(0.0, 1.0)))


def masked(x):
    with poutine.mask(mask=False):
        normal(x, pyro.sample("b", dist.Normal(0.0, 1.0)))


def masked_distribution(x):
    mask = torch.tensor([True, False, True])
    pyro.sample("x", dist.Normal(torch.zeros(3), 1.0).mask(mask).to_event(1), obs=x)


def subsampled(x):
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("others", 10, subsample_size=5):
        pyro.sample("c", dist.Normal(b, 1.0))
    normal(x, b)


def other_data(x):
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(b, 1.0), obs=torch.tensor(3.0))
    normal(x, b)


def hidden_noise(x):
    normal(x, torch.randn(()))


def hidden_dropout(x):
    b = pyro.sample("b", dist.Normal(torch.zeros(50), 1.0).to_event(1))
    normal(x, torch.nn.functional.dropout(b, 0.5).sum())


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (with_factor, "site 'penalty' is a pyro.factor, which is no density"),
        (scaled, r"site 'b' is scaled by 3 \(poutine.scale"),
        (masked, "site 'b' is masked out"),
        (masked_distribution, r"site 'x' is masked out .* missing='marginalise'"),
        (subsampled, "site 'c' is scaled by 2 .* a plate that subsamples"),
        (other_data, r"site 'y' is observed and none of the coordinates.* observed=\('x', 'y'\)"),
        (hidden_noise, "site 'x' changes from run to run.*outside its sample sites"),
        (hidden_dropout, "site 'x' changes from run to run.*training mode"),
    ],
)
def test_what_a_density_has_no_room_for_is_refused(program, words):
    with pytest.raises(ModelError, match=words):
        PyroModel(program, X)


def test_scales_of_one_full_masks_and_deterministic_sites_change_nothing():
    def program(x):
        with poutine.scale(scale=1.0), poutine.mask(mask=True):
            b = pyro.deterministic("b", 2 * pyro.sample("a", dist.Normal(0.0, 1.0)))
            normal(x, b)

    expected = mb.models.Gaussian(torch.zeros(3), 4.0 + torch.eye(3))
    x = X[None].double()
    torch.testing.assert_close(
        PyroModel(program, X).log_marginal_likelihood(x), expected.log_marginal_likelihood(x), rtol=1e-6, atol=0
    )


def test_other_data_are_in_posterior_draws():
    model = PyroModel(other_data, X, posterior={"b": torch.full((30,), 1.5)})
    assert "30 draws" in repr(model)


def positive(x):
    s = pyro.sample("s", dist.Gamma(2.0, 1.0))
    pyro.sample("x", dist.Normal(0.0, s).expand([3]).to_event(1), obs=x)


@pytest.mark.parametrize(
    ("posterior", "kind", "words"),
    [
        ({"t": torch.ones(10)}, ArgumentError, r"draws of 't', no latent site of the program \(its sites: 's'\)"),
        ({"x": torch.ones(10, 3)}, ArgumentError, "draws of 'x', no latent site"),
        ({"s": torch.linspace(-1, 1, 10)}, DataError, "a draw of latent 's' is outside the support of Gamma"),
        ({"s": torch.ones(1)}, ArgumentError, r"posterior\['s'\] has shape \(1,\): pass at least two draws"),
        ({"s": torch.tensor(1.0)}, ArgumentError, r"posterior\['s'\] has shape \(\): pass at least two draws"),
        ({"s": torch.ones(10, 4)}, DataError, r"posterior\['s'\] has shape \(10, 4\): expected 10 draws .* \(10,\)"),
        (
            {"s": torch.tensor([1.0, float("nan")])},
            DataError,
            r"posterior\['s'\] has a NaN or infinite value in draw 1",
        ),
        ([torch.ones(10)], ArgumentError, r"posterior is a list: expected draws by site, {'site': tensor}"),
    ],
)
def test_draws_are_of_the_programs_latent_sites(posterior, kind, words):
    with pytest.raises(kind, match=words):
        PyroModel(positive, X, posterior=posterior)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_nodes": "a"}, "n_nodes is 'a': expected an integer"),
        ({"n_nodes": 1}, "n_nodes is 1: expected at least 2"),
        ({"n_samples": 0}, "n_samples is 0: expected at least 2"),
        ({"half_width": -3.0}, "half_width is -3.0: expected a positive number"),
        ({"guide": 3}, "guide is 3: expected a Pyro guide"),
        (
            {"guide": lambda x: pyro.sample("q", dist.Gamma(2.0, 1.0))},
            "guide has the sites 'q', and .* are 's'.* leave",
        ),
        ({"guide": lambda x: None}, "guide has the sites none, and the latents to draw are 's'"),
        ({"observed": 3}, "observed is 3: expected the name of a site"),
    ],
)
def test_options_are_checked_at_the_door(options, words):
    with pytest.raises(ArgumentError, match=words):
        PyroModel(positive, X, **options)


def test_an_example_outside_the_support_is_named():
    def program(x):
        pyro.sample("x", dist.Poisson(2.0).expand([3]).to_event(1), obs=x)

    with pytest.raises(DataError, match="example, at site 'x', is outside the support of Poisson"):
        PyroModel(program, X)


def test_row_22_a_program_of_a_table_says_to_name_its_plate():
    def program(x):
        n, d = x.shape
        with pyro.plate("data", n):
            pyro.sample("x", dist.Normal(torch.zeros(n, d), 1.0).to_event(1), obs=x)

    with pytest.raises(
        ModelError, match=r"fails on a datum of shape \(3,\): not enough values .*name their plate, rows"
    ):
        PyroModel(program, X)
    assert PyroModel(program, X, rows="data").dim == 3


def test_an_example_of_bits_serves():
    def program(x):
        chance = pyro.sample("chance", dist.Beta(1.0, 1.0))
        pyro.sample("x", dist.Bernoulli(chance).expand([3]).to_event(1), obs=x)

    model = PyroModel(program, torch.tensor([True, False, True]))
    assert float(model.log_marginal_likelihood(torch.tensor([[1.0, 0.0, 1.0]])).exp()) == pytest.approx(
        1 / 12, abs=1e-6
    )


def test_draws_of_latents_of_single_coordinates_take_their_place():
    def program(x):
        with pyro.plate("bits", 3):
            kind = pyro.sample("kind", dist.Bernoulli(0.2))
            pyro.sample("x", dist.Normal(kind, 1.0), obs=x)

    draws = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]).repeat(15, 1)
    model = PyroModel(program, X, posterior={"kind": draws})
    expected = dist.Normal(draws[:2], 1.0).log_prob(X).sum(1).logsumexp(0) - torch.tensor(2.0).log()
    assert float(model.log_marginal_likelihood(X[None])) == pytest.approx(float(expected), abs=1e-5)
