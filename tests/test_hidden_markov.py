"""Hidden Markov models against enumeration of every path, Pyro's DiscreteHMM, and every mask."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

import mpt_bayes as mb
from mpt_bayes.numerics.combinatorics import all_subsets


@pytest.fixture
def rng():
    return np.random.default_rng(1989)


@pytest.fixture
def parameters(rng):
    initial = torch.from_numpy(rng.dirichlet(np.ones(3)))
    transition = torch.from_numpy(rng.dirichlet(np.ones(3), size=3))
    emission = torch.from_numpy(rng.dirichlet(np.ones(4), size=3))
    return initial, transition, emission


def path_table(initial, transition, emission, length):
    """Sum over every state path, cell by cell, without the library."""
    table = torch.zeros((emission.shape[1],) * length, dtype=torch.float64)
    for path in itertools.product(range(len(initial)), repeat=length):
        weight = initial[path[0]]
        for a, b in itertools.pairwise(path):
            weight = weight * transition[a, b]
        cell = weight
        for state in path:
            cell = cell[..., None] * emission[state]
        table += cell
    return mb.models.JointTable(table)


def test_equals_enumeration_of_every_path_on_every_mask(parameters):
    model = mb.models.HiddenMarkov(*parameters, length=4)
    table = path_table(*parameters, 4)
    cells = torch.tensor(list(itertools.product(range(4), repeat=4)))[::7]
    hidden = all_subsets(4)[1:]
    torch.testing.assert_close(
        model.marginal_log_prob(cells, ~hidden), table.marginal_log_prob(cells, ~hidden), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(
        model.masked_log_prob(cells, hidden), table.masked_log_prob(cells, hidden), atol=1e-12, rtol=0
    )


def test_marginal_chain_keeps_its_kind_and_any_order(parameters):
    model, table = mb.models.HiddenMarkov(*parameters, length=5), path_table(*parameters, 5)
    keep = torch.tensor([4, 0, 3])
    part, expected = mb.models.restrict(model, keep), mb.models.restrict(table, keep)
    cells = torch.tensor(list(itertools.product(range(4), repeat=3)))
    hidden = all_subsets(3)[1:]
    assert isinstance(part, mb.models.HiddenMarkov)
    torch.testing.assert_close(
        part.masked_log_prob(cells, hidden), expected.masked_log_prob(cells, hidden), atol=1e-12, rtol=0
    )
    again, twice = mb.models.restrict(part, torch.tensor([2, 0])), mb.models.restrict(expected, torch.tensor([2, 0]))
    pairs = cells[:16, 1:]
    torch.testing.assert_close(again.log_marginal_likelihood(pairs), twice.log_marginal_likelihood(pairs))


def test_row_29_both_conventions_of_the_first_emission(parameters):
    from pyro.distributions import Categorical, DiscreteHMM

    initial, transition, emission = parameters
    x = torch.tensor([[0, 3, 1, 2], [2, 2, 0, 1]])
    theirs = DiscreteHMM(initial.log(), transition.log(), Categorical(emission), duration=4)
    pyro = mb.models.HiddenMarkov(initial, transition, emission, length=4, convention="pyro")
    textbook = mb.models.HiddenMarkov(initial, transition, emission, length=4)
    torch.testing.assert_close(pyro.log_marginal_likelihood(x), theirs.log_prob(x), atol=1e-10, rtol=0)
    first = path_table(*parameters, 4).log_marginal_likelihood(x)
    torch.testing.assert_close(textbook.log_marginal_likelihood(x), first, atol=1e-12, rtol=0)
    assert float((pyro.log_marginal_likelihood(x) - textbook.log_marginal_likelihood(x)).abs().min()) > 1e-3
    converted = mb.models.HiddenMarkov.from_pyro(theirs, length=4)
    torch.testing.assert_close(converted.log_marginal_likelihood(x), theirs.log_prob(x), atol=1e-10, rtol=0)


def test_gaussian_emissions_equal_pyro_and_scipy(parameters, rng):
    from pyro.distributions import DiscreteHMM, Normal

    initial, transition, _ = parameters
    mean, scale = torch.tensor([-2.0, 0.0, 3.0]).double(), torch.tensor([0.5, 1.0, 2.0]).double()
    emission = mb.models.NormalEmission(mean[:, None], scale[:, None])
    model = mb.models.HiddenMarkov(initial, transition, emission, length=5)
    x = torch.from_numpy(rng.normal(0, 2, (3, 5)))
    theirs = DiscreteHMM(initial.log(), transition.log(), Normal(mean, scale), duration=5)
    again = mb.models.HiddenMarkov.from_pyro(theirs, length=5)
    torch.testing.assert_close(again.log_marginal_likelihood(x), theirs.log_prob(x), atol=1e-10, rtol=0)
    one = model.marginal_log_prob(x, torch.tensor([[True] + [False] * 4]))[:, 0]
    density = stats.norm.pdf(x[:, :1].numpy(), mean.numpy(), scale.numpy()) @ initial.numpy()
    np.testing.assert_allclose(one, np.log(density), atol=1e-12)
    assert abs(mb.compare(model, x, design=mb.masks.Exhaustive()).difference) < 1e-10


def test_far_tails_and_impossible_states_stay_finite():
    ladder = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    emission = mb.models.NormalEmission(torch.tensor([[0.0], [50.0], [100.0]]).double(), torch.ones(3, 1).double())
    model = mb.models.HiddenMarkov(torch.tensor([1.0, 0.0, 0.0]), ladder, emission, length=4)
    x = torch.tensor([[100.0, 0.0, 100.0, 0.0]])  # against the ladder: log-likelihoods thousands of nats down
    hidden = all_subsets(4)[1:]
    scores = model.masked_log_prob(x, hidden)
    expected = mb.models.marginals.conditionals_from_marginals(model, x, hidden)
    assert bool(scores.isfinite().all())
    torch.testing.assert_close(scores, expected, rtol=1e-11, atol=1e-9)


def test_missing_emissions_are_integrated_out(parameters):
    initial, transition, _ = parameters
    emission = mb.models.NormalEmission(torch.tensor([[-1.0], [0.0], [2.0]]).double(), torch.ones(3, 1).double())
    model = mb.models.HiddenMarkov(initial, transition, emission, length=4)
    x = torch.tensor([[0.3, math.nan, math.nan, 1.0], [0.1, 0.2, 0.3, math.nan]]).double()
    filled = x.nan_to_num(7.0)
    expected = [model.marginal_log_prob(filled, ~x.isnan())[i, i] for i in range(2)]
    torch.testing.assert_close(mb.log_marginal_likelihood(model, x, missing="marginalise"), torch.stack(expected))
    result = mb.compare(model, x, missing="marginalise", design=mb.masks.Exhaustive())
    assert abs(result.difference) < 1e-10


def test_scores_do_not_depend_on_the_block_of_rows(parameters, rng, monkeypatch):
    model = mb.models.HiddenMarkov(*parameters, length=5)
    x, hidden = torch.from_numpy(rng.integers(0, 4, (9, 5))), all_subsets(5)[1:]
    whole = model.masked_log_prob(x, hidden)
    monkeypatch.setattr("mpt_bayes.models.hidden_markov._WORKING_BYTES", 1)
    torch.testing.assert_close(model.masked_log_prob(x, hidden), whole, rtol=0, atol=1e-14)


def test_faulty_chains_are_refused(parameters):
    initial, transition, emission = parameters
    with pytest.raises(mb.errors.ArgumentError, match="length is missing"):
        mb.models.HiddenMarkov(initial, transition, emission)
    with pytest.raises(mb.errors.ArgumentError, match="textbook"):
        mb.models.HiddenMarkov(initial, transition, emission, length=3, convention="other")
    with pytest.raises(mb.errors.ModelError, match="transition must hold"):
        mb.models.HiddenMarkov(initial, 2 * transition, emission, length=3)
    with pytest.raises(mb.errors.ModelError, match="expected \\(3,\\)"):
        mb.models.HiddenMarkov(initial[:2], transition, emission, length=3)


def test_baum_welch_climbs_to_a_likelihood_no_lower_than_the_truth(parameters, rng):
    initial, transition = torch.tensor([0.5, 0.5]).double(), torch.tensor([[0.95, 0.05], [0.1, 0.9]]).double()
    states = [0]
    for _ in range(299):
        states.append(int(rng.random() < transition[states[-1], 1]))
    means = torch.tensor([-2.0, 2.0]).double()
    x = means[states][None] + torch.from_numpy(rng.normal(0, 1, (1, 300)))
    truth = mb.models.HiddenMarkov(
        initial, transition, mb.models.NormalEmission(means[:, None], torch.ones(2, 1).double()), length=300
    )
    fitted = mb.models.fit_hidden_markov(x, "gaussian", 2, n_starts=2)
    assert float(fitted.log_marginal_likelihood(x)) > float(truth.log_marginal_likelihood(x)) - 1e-6
    torch.testing.assert_close(fitted.emission.mean[:, 0].sort().values, means, atol=0.4, rtol=0)
    torch.testing.assert_close(
        fitted.transition[0].diagonal().sort().values, torch.tensor([0.9, 0.95]).double(), atol=0.1, rtol=0
    )


def test_baum_welch_counts_equal_enumeration(parameters, rng):
    from mpt_bayes.models.hidden_markov_fit import _expected_counts

    initial, transition, emission = parameters
    x = torch.from_numpy(rng.integers(0, 4, (1, 4)))
    weights, first, steps = {}, torch.zeros(3).double(), torch.zeros(3, 3).double()
    for path in itertools.product(range(3), repeat=4):
        weight = float(initial[path[0]] * emission[list(path), x[0]].prod())
        weights[path] = weight * math.prod(float(transition[a, b]) for a, b in itertools.pairwise(path))
    total = sum(weights.values())
    for path, weight in weights.items():
        first[path[0]] += weight / total
        for a, b in itertools.pairwise(path):
            steps[a, b] += weight / total
    value, counts = _expected_counts(emission.log().T[x[0]], x.shape, initial, transition)
    assert value == pytest.approx(math.log(total))
    torch.testing.assert_close(counts[0], first)
    torch.testing.assert_close(counts[1], steps)
