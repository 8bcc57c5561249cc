"""Whole curves of low-rank Gaussians without a D × D matrix, held to the dense engine."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import mpt_bayes as mb
from mpt_bayes.errors import IllConditionedError
from mpt_bayes.numerics import nested, nested_low_rank
from tests.model_examples import normals, uniforms


def example(dim, latent_dim, n_rows, seed=0):
    loading, noise, mean = 3 * normals(seed, dim, latent_dim), uniforms(seed + 1, dim) + 0.1, normals(seed + 2, dim)
    orders = torch.stack([normals(seed + 3 + k, dim).argsort() for k in range(3)])
    return mb.models.FactorAnalysis(loading, noise, mean), 3 * normals(seed + 9, n_rows, dim), orders


@pytest.mark.parametrize("elements", [2**20, 2**11])  # one block, many blocks
@pytest.mark.parametrize(("dim", "latent_dim", "n_rows"), [(1, 1, 2), (5, 2, 3), (8, 1, 1), (40, 4, 3), (30, 6, 70)])
def test_curves_and_totals_equal_the_dense_engine(dim, latent_dim, n_rows, elements, monkeypatch):
    monkeypatch.setattr(nested_low_rank, "_ELEMENTS", elements)
    model, x, orders = example(dim, latent_dim, n_rows)
    dense = mb.models.Gaussian(model.mean, model.loading @ model.loading.T + model.noise.diag())
    expected = dense.order_curve(x, orders)
    torch.testing.assert_close(model.order_curve(x, orders), expected, rtol=1e-10, atol=1e-10)
    summed = nested_low_rank.low_rank_totals(model.loading, model.noise, x - model.mean, n_rows, orders)
    torch.testing.assert_close(summed, expected.sum(0), rtol=1e-10, atol=1e-10)
    totals = model.order_totals(x, orders, per_row=True)
    torch.testing.assert_close(totals.curves, expected.sum(0), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(totals.per_row, expected.sum(2).mean(1), rtol=1e-10, atol=1e-10)


def test_gradients_in_loading_noise_and_mean():
    model, x, orders = example(5, 2, 3)
    inputs = tuple(p.clone().requires_grad_() for p in (model.loading, model.noise, model.mean))

    def curves(loading, noise, mean):
        return mb.models.FactorAnalysis(loading, noise, mean).order_curve(x, orders)

    def totals(loading, noise, mean):
        return nested_low_rank.low_rank_totals(loading, noise, x - mean, len(x), orders)

    assert torch.autograd.gradcheck(curves, inputs)
    assert torch.autograd.gradcheck(totals, inputs)


class Shapes(TorchDispatchMode):
    """Records the shape of every tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.seen |= {tuple(t.shape) for t in (out if isinstance(out, tuple | list) else [out]) if torch.is_tensor(t)}
        return out


@pytest.mark.parametrize(("n_rows", "per_row"), [(1, False), (3, True), (30, False)])
def test_no_d_by_d_matrix_is_formed_for_binarised_digits(n_rows, per_row):
    x = (mb.datasets.load("mnist-5k").x > 127).to(torch.float64)[:: 5000 // 200]
    model = mb.models.PPCA(latent_dim=10).fit(x)
    orders = normals(0, 1, 784).argsort(1)
    with Shapes() as shapes:
        model.order_totals(x[:n_rows], orders, per_row=per_row)
    touched = shapes.seen - {(nested._KEPT_ELEMENTS,)}  # freed at once, never written: no memory
    assert 0 < max(math.prod(shape) for shape in touched) < 784**2 / 2  # nothing as large as half a covariance


def test_row_24_loadings_that_swamp_the_noise_are_refused():
    model, x, orders = example(5, 2, 3)
    swamped = mb.models.FactorAnalysis(1e7 * model.loading, model.noise, model.mean)
    with pytest.raises(IllConditionedError, match="condition number"):
        swamped.order_curve(x, orders)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_precision_holds_when_loadings_are_large(scale):
    """Condition numbers up to 1e8 and beyond, on data of the model, against the definition by orthogonal factors."""
    loading, noise, _ = scale * normals(0, 12, 3), uniforms(1, 12) + 0.1, None
    x = normals(2, 4, 3) @ loading.T + normals(3, 4, 12) * noise.sqrt()
    model, orders = mb.models.FactorAnalysis(loading, noise), normals(4, 2, 12).argsort(1)
    hidden = mb.masks.OrderBatch(orders, torch.arange(2)).masks().hidden
    expected = (model.masked_log_prob(x, hidden).sum(2) / hidden.sum(1)).reshape(4, 2, 12)
    torch.testing.assert_close(model.order_curve(x, orders), expected, rtol=1e-9, atol=1e-9)
    summed = nested_low_rank.low_rank_totals(loading, noise, x, 4, orders)
    torch.testing.assert_close(summed, expected.sum(0), rtol=1e-9, atol=1e-9)
