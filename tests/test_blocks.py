"""Masks of neighbouring sizes from disjoint blocks of one order: uniform, unbiased, honest, and less variable."""

import numpy as np
import pytest
import torch
from enumerating_stream import outcomes

import mpt_bayes as mb
from mpt_bayes.estimation.allocation import SizeBins, neyman
from mpt_bayes.estimation.blocks import BlockedBins
from mpt_bayes.lm.controlled import ControlledDraw
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.random import Stream


def code(hidden):
    return (hidden.long() * 2 ** torch.arange(hidden.shape[1])).sum(1)


@pytest.mark.parametrize(
    ("dim", "bins"),
    [
        (5, SizeBins(1, 5, 5)),
        (5, SizeBins(1, 4, 4)),
        (4, SizeBins(1, 4, 2)),
        (4, SizeBins(2, 4, 3)),
        (3, SizeBins(1, 3, 1)),
    ],
    ids=str,
)
def test_every_group_is_unbiased_for_its_sizes(dim, bins):
    """Exactly, over every outcome of an order and of the sizes within bins."""
    scores = torch.rand(2**dim, dtype=torch.float64, generator=torch.Generator().manual_seed(dim))
    masks = all_subsets(dim)[1:]
    mean = torch.stack([scores[1:][masks.sum(1) == m].mean() for m in range(1, dim + 1)])
    blocks = BlockedBins(bins, dim)
    assert sorted(b for group in blocks.groups for b in group.bins) == list(range(bins.count))
    for g, group in enumerate(blocks.groups):
        only = torch.zeros(len(blocks.groups), dtype=torch.int64)
        only[g] = 1

        def estimate(stream, only=only):
            drawn = blocks.draw(only, stream)
            assert drawn.clusters.member.unique().tolist() == [0]
            return float(scores[code(drawn.hidden)].sum())

        expected = float((bins.law(dim)[list(group.bins)] @ mean).sum())
        assert sum(p * value for p, value in outcomes(estimate)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("dim", "lowest", "highest", "count"), [(107, 1, 106, 106), (108, 2, 107, 31), (20, 1, 20, 20)]
)
def test_masks_of_an_order_show_or_hide_disjoint_blocks(dim, lowest, highest, count):
    bins = SizeBins(lowest, highest, count)
    blocks = BlockedBins(bins, dim)
    drawn = blocks.draw(torch.full((len(blocks.groups),), 3), Stream(1))
    assert torch.equal(drawn.counts, torch.full((count,), 3))
    sizes = drawn.hidden.sum(1)
    assert (bins.law(dim)[drawn.bins, sizes - 1] > 0).all()
    for cluster, stratum in enumerate(drawn.clusters.strata.tolist()):
        member = drawn.hidden[drawn.clusters.member == cluster]
        blocked = ~member if blocks.groups[stratum].shows else member
        assert blocked.sum(0).max() == 1 or len(member) == 1
    assert len(blocks.groups) < count


def test_groups_near_the_ends_use_most_of_an_order():
    groups = BlockedBins(SizeBins(1, 106, 106), 107).groups
    assert next(group.bins for group in groups if not group.shows) == tuple(range(14))
    assert next(group.bins for group in groups if group.shows) == tuple(range(105, 91, -1))
    assert all(len(group.bins) == 1 for group in BlockedBins(SizeBins(1, 106, 7), 107).groups)


def test_neyman_with_prices_spends_what_it_has():
    scale, cost = torch.tensor([0.6, 1.0, 2.5]), torch.tensor([1, 3, 5])
    counts = neyman(scale, 40, cost)
    assert int(counts @ cost) == 40
    best = min(
        0.36 / a + 1.0 / b + 6.25 / c for b in range(2, 12) for c in range(2, 8) if (a := 40 - 3 * b - 5 * c) >= 2
    )
    assert float((scale.square() / counts).sum()) < 1.03 * best


def test_what_visible_coordinates_add_up_to_nearly_cancels():
    """Scores additive in what is visible: an order's masks together vary far less than as many independent ones."""
    worth = torch.rand(107, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocks = BlockedBins(SizeBins(1, 106, 106), 107)
    counts = torch.zeros(len(blocks.groups), dtype=torch.int64)
    (showing, group), *_ = [(g, group) for g, group in enumerate(blocks.groups) if group.shows]
    counts[showing] = 400
    drawn = blocks.draw(counts, Stream(0))
    score = (~drawn.hidden).double() @ worth
    together = torch.zeros(400, dtype=torch.float64).index_add(0, drawn.clusters.member, score).var()
    apart = sum(score[drawn.bins == b].var() for b in group.bins)
    assert together < 0.2 * apart


@pytest.mark.parametrize("n_masks", [30, 70])
def test_the_estimate_is_unbiased_with_honest_errors(n_masks):
    """Control variates and clusters together, on a Gaussian whose every mask is known."""
    dim = 8
    root = torch.randn(dim, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = mb.models.Gaussian(torch.zeros(dim, dtype=torch.float64), root @ root.T + torch.eye(dim))
    x = torch.linspace(-2, 3, dim, dtype=torch.float64)[None]
    table = torch.zeros(2**dim, dim, dtype=torch.float64)
    table[1:] = model.masked_log_prob(x, all_subsets(dim)[1:])[0]
    truth = float(model.log_marginal_likelihood(x).sum())
    value, variance = [], []
    for seed in range(400):
        draw = ControlledDraw.of(dim, n_masks, Stream(seed))
        assert len(draw.hidden) == n_masks
        score = draw.reduced("", table[code(draw.hidden)])
        value.append(score.total)
        variance.append(score.variance)
        assert float(score.contributions.sum()) == pytest.approx(score.total, abs=1e-9)
    spread = np.std(value, ddof=1)
    assert abs(np.mean(value) - truth) < 3.5 * spread / np.sqrt(len(value))
    assert np.mean(variance) / spread**2 == pytest.approx(1, abs=0.3)
