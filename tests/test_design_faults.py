"""Faults seen in public estimators, planted one by one: each check passes on the library and catches its fault."""

import math

import numpy as np
import pytest
import torch
from enumerating_stream import outcomes

import mpt_bayes as mb
from mpt_bayes.masks.sizes import lattice_sizes
from mpt_bayes.masks.subsets import uniform_masks
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.random import Stream

M = mb.masks


def toy():
    """The joint over 3 letters and 6 coordinates, log p(x) = -4.91, of the reference file."""
    rng = np.random.default_rng(0)
    table = rng.gamma(0.3, size=(3,) * 6)
    table /= table.sum()
    rng.integers(0, 3, size=6)
    x = np.unravel_index(table.ravel().argsort()[-20], table.shape)
    return mb.models.JointTable(torch.tensor(table)), torch.tensor(np.array(x))[None]


def curve(log_prob):
    """(D,) S(m) from the log-probabilities (2^D - 1, D) of every non-empty mask."""
    hidden = all_subsets(log_prob.shape[1])[1:]
    size, score = hidden.sum(1), log_prob.sum(1) / hidden.sum(1)
    return torch.stack([score[size == m].mean() for m in range(1, log_prob.shape[1] + 1)])


def estimates_log_p(model, x, log_prob):
    return abs(float(curve(log_prob).sum()) - float(model.log_marginal_likelihood(x))) < 1e-10


def size_counts(dim, count, lattice, offsets):
    """How often each size comes up over equally likely offsets of a lattice."""
    return torch.bincount(torch.cat([lattice(dim, count, offset) for offset in offsets]), minlength=dim + 1)[1:]


def test_fault_1_rounding_a_lattice_favours_even_sizes():
    dim, count = 12, 8

    def rounded(dim, count, offset):  # size = round(half-to-even) of the midpoint lattice, clipped
        return ((torch.arange(count) + offset / dim) / count * dim).round().clamp(1, dim).long()

    ours = size_counts(dim, count, lattice_sizes, range(dim))
    fault = size_counts(dim, count, rounded, torch.arange(dim).double() + 0.0)
    assert ours.max() == ours.min()
    assert fault.max() >= 2 * fault.min()


def test_fault_2_a_row_tied_to_its_stratum():
    """Repeating the pass must average over sizes for EVERY row; without the permutation row i keeps stratum i."""

    def law(draw):
        share = torch.zeros(4, 5, dtype=torch.float64)
        for p, sizes in outcomes(draw):
            share[torch.arange(4), sizes] += p
        return share[:, 1:]

    def tied(stream):
        return lattice_sizes(4, 4, int(stream.child("offset").integers(4, 1)))

    def ours(stream):
        sizes = lattice_sizes(4, 4, int(stream.child("offset").integers(4, 1)))
        return sizes[stream.child("rows").permutations(1, 4)[0]]

    uniform = torch.full((4, 4), 0.25, dtype=torch.float64)
    assert torch.allclose(law(ours), uniform, atol=1e-12)
    assert not torch.allclose(law(tied), uniform, atol=0.1)
    drawn = torch.stack([M.StratifiedSizes(4, 1).draw(4, Stream(s)).sampling.sizes for s in range(400)])
    counts = torch.stack([(drawn == m).sum(0) for m in range(1, 5)])
    assert (counts - 100).abs().max() < 5 * math.sqrt(75)


def test_fault_3_the_fully_masked_term_dropped():
    model, x = toy()
    scores = curve(model.masked_log_prob(x, all_subsets(6)[1:])[0])
    assert float(scores.sum()) == pytest.approx(-4.911600718255815, abs=1e-10)
    dropped = float(scores[:-1].sum())  # the normaliser D kept, the size D never drawn
    assert dropped > -4.911600718255815 + 0.9
    for design in (M.UniformSize(200), M.StratifiedSizes(48), M.RandomRate(200), M.RandomOrders(2), M.PerSize(2)):
        assert 6 in design.draw(6, Stream(0)).sampling.sizes


def test_fault_4_scores_shifted_by_one_position():
    model, x = toy()
    hidden = all_subsets(6)[1:]
    log_prob = model.masked_log_prob(x, hidden)[0]
    shifted = torch.where(hidden, log_prob.roll(1, 1), 0.0)  # the token to the left is scored instead
    last_lost = torch.where(torch.arange(6) < 5, log_prob, 0.0)
    assert estimates_log_p(model, x, log_prob)
    assert not estimates_log_p(model, x, shifted)
    assert not estimates_log_p(model, x, last_lost)


def test_fault_6_half_precision_sums():
    model, x = toy()
    log_prob = model.masked_log_prob(x, all_subsets(6)[1:])[0]
    assert not estimates_log_p(model, x, log_prob.bfloat16().double())


def test_fault_7_masks_that_depend_on_the_batch():
    """Drawn from one running generator the second mask depends on how many were drawn before; ours have streams."""
    stream = Stream(5)
    ours = [M.UniformSize(n).draw(8, stream).hidden[:3] for n in (3, 9)]
    assert torch.equal(*ours)
    runs = [uniform_masks(torch.full((n,), 4), 8, stream)[:3] for n in (3, 9)]  # one stream for a batch: rows only
    shared = torch.Generator().manual_seed(5)
    fault = [torch.rand(n, 8, generator=shared)[:3] for n in (3, 9)]
    assert torch.equal(*runs)
    assert not torch.equal(*fault)


def test_fault_9_the_visible_part_never_conditioned_on():
    model, x = toy()
    hidden = all_subsets(6)[1:]
    alone = model.masked_log_prob(x, torch.ones(1, 6, dtype=torch.bool))[0, 0]
    assert not estimates_log_p(model, x, torch.where(hidden, alone, 0.0))


def test_fault_10_a_mean_reported_as_a_sum():
    model, x = toy()
    rows = x.repeat(5, 1)
    estimate = mb.cumulative_score(model, rows, design=M.Exhaustive())
    assert estimate.value == pytest.approx(5 * -4.911600718255815, abs=1e-9)
    assert estimate.per_datum.value == pytest.approx(-4.911600718255815, abs=1e-9)
    assert estimate.per_datum.estimand.endswith("per datum")


def test_pilot_mixed_into_the_mean_by_its_own_allocation_is_biased():
    """Pooling pilot and main draws of a size by their numbers, where the pilot's spread set the main's number, biases
    the mean; rounds weighted by numbers fixed beforehand do not. By enumeration of two pilot draws."""
    values = torch.tensor([0.0, 0.0, 0.0, 9.0], dtype=torch.float64)  # rare large score: spread and mean go together
    truth = float(values.mean())
    fault = ours = 0.0
    for a in values:
        for b in values:
            pilot, main = float(a + b) / 2, (8 if a != b else 1)
            fault += (2 * pilot + main * truth) / (2 + main) / 16  # E[main mean | pilot] = truth
            ours += (0.2 * pilot + 0.8 * truth) / 16
    assert ours == pytest.approx(truth, abs=1e-12)
    assert abs(fault - truth) > 0.1


def test_one_draw_variances_of_bad_size_laws():
    """Sizes drawn in proportion to 1/m are worse than uniform sizes, by the exact variance of one draw."""
    model, x = toy()
    hidden = all_subsets(6)[1:]
    score = model.masked_log_prob(x, hidden)[0].sum(1) / hidden.sum(1)
    size = hidden.sum(1)
    c = torch.tensor([1 / math.comb(6, m) for m in range(1, 7)], dtype=torch.float64)[size - 1]

    def variance(size_law):
        q = size_law[size - 1] * c
        return float((q * (c / q * score).square()).sum()) - float((c * score).sum()) ** 2

    uniform = torch.full((6,), 1 / 6, dtype=torch.float64)
    inverse = 1 / torch.arange(1, 7, dtype=torch.float64)
    assert variance(uniform) == pytest.approx(4.952459344886183, abs=1e-8)
    assert variance(inverse / inverse.sum()) == pytest.approx(29.87031531199889, abs=1e-8)
