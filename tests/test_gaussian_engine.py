"""Whole curves from one Cholesky factorisation an order, held to the definition and to 60-digit arithmetic."""

import re

import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, IllConditionedError, MptBayesWarning
from mpt_bayes.masks import OrderBatch
from tests.gaussian_examples import precise_curve, random_orders, with_condition


def random_gaussian(dim, seed=0, noise=0.1):
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(dim, dim + 3, dtype=torch.float64, generator=g)
    scale = 0.1 + 5 * torch.rand(dim, dtype=torch.float64, generator=g)  # units that differ
    covariance = (root @ root.T / dim + noise * torch.eye(dim)) * scale * scale[:, None]
    mean = torch.randn(dim, dtype=torch.float64, generator=g)
    return mean, (covariance + covariance.T) / 2


def by_definition(model, x, orders):
    """(N, n, D) from masked_log_prob, which factorises once for every mask."""
    hidden = OrderBatch(orders, torch.arange(len(orders))).masks().hidden
    parts = [model.masked_log_prob(x, h).sum(2) / h.sum(1) for h in hidden.split(64)]
    return torch.cat(parts, 1).reshape(len(x), *orders.shape)


@pytest.mark.parametrize(("dim", "n_rows"), [(1, 3), (5, 1), (7, 30), (12, 9), (60, 40), (150, 200), (260, 10)])
def test_curves_and_totals_equal_the_definition(dim, n_rows):
    mean, covariance = random_gaussian(dim)
    model = mb.models.Gaussian(mean, covariance)
    g = torch.Generator().manual_seed(5)
    x = mean + 3 * torch.randn(n_rows, dim, dtype=torch.float64, generator=g)
    orders = random_orders(3, dim)
    expected = by_definition(model, x, orders)
    torch.testing.assert_close(model.order_curve(x, orders), expected, rtol=1e-11, atol=1e-11)
    totals = model.order_totals(x, orders, per_row=True)
    torch.testing.assert_close(totals.curves, expected.sum(0), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(totals.per_row, expected.sum(2).mean(1), rtol=1e-11, atol=1e-11)
    assert model.order_totals(x, orders, per_row=False).per_row is None


def test_estimators_agree_with_and_without_per_row_values():
    mean, covariance = random_gaussian(6)
    model = mb.models.Gaussian(mean, covariance)
    x = mean + torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    curve = mb.score_curve(model, x, design=mb.masks.RandomOrders(8))
    alone = mb.cumulative_score(model, x, design=mb.masks.RandomOrders(8), per_row=False)
    assert curve.total.per_row.sum() == pytest.approx(curve.total.value, rel=1e-12)
    assert alone.value == pytest.approx(curve.total.value, rel=1e-12)
    assert alone.per_row is None
    assert "not asked for" in alone.note


@pytest.mark.parametrize(("n_rows", "per_row"), [(2, False), (2, True), (12, False), (30, True)])
def test_gradients_in_mean_and_covariance(n_rows, per_row):
    dim = 5
    mean, covariance = random_gaussian(dim)
    root = torch.linalg.cholesky(covariance)
    x = mean + torch.randn(n_rows, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    orders = random_orders(2, dim)

    def totals(mean, root):
        result = mb.models.Gaussian(mean, root @ root.T).order_totals(x, orders, per_row=per_row)
        return (result.curves, result.per_row) if per_row else result.curves

    def curves(mean, root):
        return mb.models.Gaussian(mean, root @ root.T).order_curve(x, orders)

    inputs = (mean.requires_grad_(), root.requires_grad_())
    assert torch.autograd.gradcheck(totals, inputs)
    assert torch.autograd.gradcheck(curves, inputs)


@pytest.mark.parametrize("condition", [1e4, 1e8])
def test_row_24_fast_path_holds_to_1e_9_at_condition_1e8(condition):
    model, x = with_condition(condition)
    covariance, dim = model.covariance, model.dim
    orders = random_orders(1, dim)
    expected = torch.stack([precise_curve(covariance, row, orders[0].tolist()) for row in x])
    torch.testing.assert_close(model.order_curve(x, orders)[:, 0], expected, rtol=1e-9, atol=1e-9)
    totals = model.order_totals(x, orders, per_row=True)
    torch.testing.assert_close(totals.curves[0], expected.sum(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(totals.per_row, expected.sum(1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("condition", [1e10, 1e11])
def test_row_24_beyond_1e8_a_warning_names_the_condition_number_and_bounds_the_error(condition):
    model, x = with_condition(condition)
    orders = random_orders(1, model.dim)
    with pytest.warns(MptBayesWarning, match=r"condition number about .*may reach .*add noise variance") as caught:
        curve = model.order_curve(x[:3], orders)[:, 0]
    found, bound = (float(v) for v in re.findall(r"(?:about|reach) (\S+e[+-]\d+)", str(caught[0].message)))
    scale = model.covariance.diagonal().sqrt()
    exact = float(torch.linalg.cond(model.covariance / scale / scale[:, None]))
    assert exact / 3 < found < 3 * exact
    expected = torch.stack([precise_curve(model.covariance, row, orders[0].tolist()) for row in x[:3]])
    torch.testing.assert_close(curve, expected, rtol=bound, atol=bound)


def test_row_24_a_nearly_singular_covariance_is_refused_with_its_condition_number():
    dim = 6
    covariance = torch.ones(dim, dim, dtype=torch.float64) + 1e-13 * torch.eye(dim, dtype=torch.float64)
    model = mb.models.Gaussian(torch.zeros(dim), covariance)
    with pytest.raises(IllConditionedError, match=r"condition number about .* add noise variance") as caught:
        model.order_curve(torch.zeros(1, dim), random_orders(1, dim))
    assert 1e13 < caught.value.condition_number < 1e15


def test_row_24_float32_is_computed_in_float64_unless_the_user_opts_out():
    mean, covariance = random_gaussian(8)
    x = mean.float() + torch.ones(20, 8)
    orders = random_orders(2, 8)
    exact = mb.models.Gaussian(mean.float(), covariance.float()).order_curve(x, orders)
    assert exact.dtype == torch.float64
    single = mb.models.Gaussian(mean.float(), covariance.float(), dtype=torch.float32).order_curve(x, orders)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-3, atol=1e-3)
    tight = torch.full((4, 4), 0.9999) + 0.0001 * torch.eye(4)
    with pytest.raises(IllConditionedError, match="or use float64"):
        mb.models.Gaussian(torch.zeros(4), tight, dtype=torch.float32).order_curve(x[:, :4], random_orders(1, 4))


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (torch.tensor([[0, 1, 1]]), "row 0 is not a permutation"),
        (torch.tensor([[0, 1]]), "expected \\(n, 3\\)"),
        (torch.tensor([[0.0, 1.0, 2.0]]), "torch.int64"),
    ],
)
def test_orders_are_checked_at_the_door(orders, message):
    model = mb.models.Gaussian(torch.zeros(3), torch.eye(3))
    with pytest.raises(ArgumentError, match=message):
        model.order_curve(torch.zeros(1, 3), orders)


def test_data_far_from_the_origin_keep_their_precision():
    """Second moments are taken about the mean of the model, not about zero."""
    mean, covariance = random_gaussian(4)
    orders = random_orders(2, 4)
    x = mean + torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    near = mb.models.Gaussian(mean, covariance).order_totals(x, orders, per_row=False).curves
    far = mb.models.Gaussian(mean + 2.0**20, covariance).order_totals(x + 2.0**20, orders, per_row=False).curves
    torch.testing.assert_close(far, near, rtol=1e-8, atol=1e-8)
