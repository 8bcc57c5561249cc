"""Whole orders: drawn together, and tallied without their masks."""

import dataclasses

import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.numerics.random import Stream


@pytest.mark.parametrize(
    "design", [mb.masks.RandomOrders(5), mb.masks.AntitheticOrders(6), mb.masks.CyclicOrders(3, 4)]
)
def test_orders_are_tallied_as_their_masks_are(design):
    batch = design.draw_orders(7, Stream(3))
    totals = torch.randn(batch.orders.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = torch.zeros(2, dtype=torch.float64)
    by_order = dataclasses.asdict(Tally.of_orders(totals, batch.cluster, rows))
    by_mask = dataclasses.asdict(Tally.sampled(batch.sampling, totals.reshape(-1), rows, 7))
    numbers = {name: value for name, value in by_mask.items() if value is not None}
    assert {name for name, value in by_order.items() if value is not None} == numbers.keys()
    torch.testing.assert_close({name: by_order[name] for name in numbers}, numbers, rtol=1e-12, atol=1e-14)


def test_one_order_has_no_standard_error():
    tally = Tally.of_orders(torch.ones(1, 4, dtype=torch.float64), torch.zeros(1, dtype=torch.int64), torch.zeros(1))
    assert bool(tally.partial_variances.isnan().all())
    assert bool(tally.score_variances.isnan().all())


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        (mb.masks.RandomOrders(2), mb.masks.RandomOrders(6)),
        (mb.masks.AntitheticOrders(2), mb.masks.AntitheticOrders(6)),
        (mb.masks.CyclicOrders(1, 3), mb.masks.CyclicOrders(4, 3)),
    ],
)
def test_the_first_orders_are_the_same_whatever_their_number(fewer, more):
    first, longer = (design.draw_orders(9, Stream(5)).orders for design in (fewer, more))
    assert torch.equal(longer[: len(first)], first)
