"""Every design is unbiased, and its variance estimate too: by enumerating the design's own probability space."""

import pytest
import torch
from enumerating_stream import outcomes

import mpt_bayes as mb
from mpt_bayes.estimation.scores import mask_scores
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks.ends import distinct_masks
from mpt_bayes.masks.sizes import lattice_sizes
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.random import Stream

M = mb.masks


def joint(dim):
    """A rough joint table over three letters: log p of one datum, and the score of each of its masks by binary code."""
    table = torch.rand((3,) * dim, dtype=torch.float64, generator=torch.Generator().manual_seed(dim)) ** 4
    model = mb.models.JointTable(table / table.sum())
    x = torch.arange(dim).remainder(3)[None]
    scores = torch.zeros(2**dim, dtype=torch.float64)
    scores[1:] = mask_scores(model, x, all_subsets(dim)[1:])[0]
    return float(model.log_marginal_likelihood(x)), scores


def code(hidden):
    return (hidden.long() * 2 ** torch.arange(hidden.shape[1])).sum(1)


def estimate(batch, scores):
    return float((batch.sampling.log_weight.exp() * scores[code(batch.hidden)]).sum())


UNBIASED = [
    (M.Exhaustive(), 4),
    (M.UniformSize(1), 4),
    (M.UniformSize(2), 3),
    (M.RandomRate(1), 4),
    (M.RandomRate(2), 3),
    (M.StratifiedSizes(1, replicates=1), 4),
    (M.StratifiedSizes(3, replicates=1), 3),
    (M.StratifiedSizes(2, replicates=2), 3),
    (M.PerSize(1), 3),
    (M.PerSize(2), 2),
    (M.EnumeratedEnds(1), 3),
    (M.EnumeratedEnds(2), 3),
    (M.EnumeratedEnds(3), 3),
    (M.Partitions(1), 3),
    (M.Partitions(2), 2),
    (M.CyclicWindows(1, 2), 3),
    (M.CyclicWindows(1, 5), 3),
    (M.RandomOrders(1), 4),
    (M.RandomOrders(2), 3),
    (M.AntitheticOrders(2), 4),
    (M.AntitheticOrders(4), 3),
    (M.CyclicOrders(1, 2), 4),
    (M.CyclicOrders(2, 3), 3),
]


@pytest.mark.parametrize(("design", "dim"), UNBIASED, ids=str)
def test_expectation_is_the_log_probability(design, dim):
    log_prob, scores = joint(dim)
    law = outcomes(lambda stream: estimate(design.draw(dim, stream), scores))
    assert sum(p * value for p, value in law) == pytest.approx(log_prob, abs=1e-12)
    assert design.estimand(dim) == M.CUMULATIVE_SCORE


SQUARED_ERROR = [
    (M.UniformSize(2), 3),
    (M.RandomRate(2), 3),
    (M.StratifiedSizes(2, replicates=2), 3),
    (M.StratifiedSizes(3, replicates=2), 2),
    (M.PerSize(2), 2),
    (M.EnumeratedEnds(2), 3),
    (M.Partitions(2), 2),
    (M.CyclicWindows(2, 2), 2),
    (M.RandomOrders(2), 3),
    (M.AntitheticOrders(4), 3),
    (M.CyclicOrders(2, 2), 3),
]


@pytest.mark.parametrize(("design", "dim"), SQUARED_ERROR, ids=str)
def test_squared_standard_error_has_the_variance_as_its_expectation(design, dim):
    log_prob, scores = joint(dim)

    def run(stream):
        batch = design.draw(dim, stream)
        tally = Tally.sampled(batch.sampling, scores[code(batch.hidden)], torch.zeros(1), dim)
        return float(tally.partials[-1]), float(tally.partial_variances[-1])

    law = outcomes(run)
    variance = sum(p * (value - log_prob) ** 2 for p, (value, _) in law)
    assert sum(p * estimated for p, (_, estimated) in law) == pytest.approx(variance, abs=1e-12)
    assert variance > 1e-3 or (dim == 2 and isinstance(design, M.CyclicWindows | M.Partitions))


def test_sizes_have_exact_marginals_for_every_dim_and_count():
    for dim in range(1, 41):
        for count in range(1, 41):
            sizes = torch.cat([lattice_sizes(dim, count, offset) for offset in range(dim)])
            assert torch.equal(torch.bincount(sizes, minlength=dim + 1)[1:], torch.full((dim,), count)), (dim, count)


@pytest.mark.parametrize(
    "design", [M.UniformSize(2), M.RandomRate(2), M.StratifiedSizes(2, 1), M.StratifiedSizes(2, 2)]
)
def test_every_row_has_sizes_uniform_on_1_to_dim(design):
    share = torch.zeros(2, 4, dtype=torch.float64)
    for p, sizes in outcomes(lambda stream: design.draw(3, stream).sampling.sizes):
        share[torch.arange(2), sizes] += p
    assert torch.allclose(share[:, 1:], torch.full((2, 3), 1 / 3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize(("dim", "size", "count"), [(6, 3, 3), (6, 3, 8), (5, 2, 2)])
def test_distinct_masks_are_distinct_and_uniform(dim, size, count):
    runs = 2000
    tally = torch.zeros(2**dim)
    for seed in range(runs):
        codes = code(distinct_masks(size, dim, count, Stream(seed)))
        assert len(codes.unique()) == count
        tally[codes] += 1
    there_are = int((tally > 0).sum())
    expected = runs * count / there_are
    assert there_are == (20 if dim == 6 else 10)
    assert ((tally[tally > 0] - expected).abs() < 5 * expected**0.5).all()


@pytest.mark.parametrize("design", [M.UniformSize(6), M.RandomRate(6), M.RandomOrders(6), M.AntitheticOrders(6)])
def test_draws_do_not_depend_on_how_many_are_drawn(design):
    """Replayable from (seed, draw): the first masks are the same whatever the number of draws."""
    few = type(design)(2).draw(5, Stream(3)).hidden
    assert torch.equal(design.draw(5, Stream(3)).hidden[: len(few)], few)


def test_every_coordinate_is_hidden_once_in_a_partition_of_equal_blocks():
    batch = M.Partitions(3).draw(12, Stream(0))
    for size in (1, 2, 3, 4, 6, 12):
        for circle in range(3):
            member = (batch.sampling.sizes == size) & (batch.sampling.cluster == circle)
            assert batch.hidden[member].sum(0).tolist() == [1] * 12


@pytest.mark.parametrize("design", [M.CyclicWindows(1, 4), M.CyclicOrders(1, 4)])
def test_balanced_designs_hide_every_coordinate_nearly_equally_often(design):
    batch = design.draw(10, Stream(1))
    for size in range(1, 11):
        counts = batch.hidden[batch.sampling.sizes == size].sum(0)
        assert counts.max() - counts.min() <= 1
        assert counts.sum() == 4 * size
