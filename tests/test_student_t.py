"""The multivariate Student-t against SciPy, its own marginals, and the Gaussian it tends to."""

import pytest
import scipy.stats
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ModelError
from mpt_bayes.masks import OrderBatch
from tests.model_examples import normals, spd

ORDERS = torch.tensor([[3, 0, 5, 1, 4, 2], [0, 1, 2, 3, 4, 5]])


def example(nu=3.5):
    return mb.models.StudentT(normals(1, 6), spd(2, 6), nu), 2 * normals(3, 4, 6)


def test_density_equals_scipy():
    model, x = example()
    expected = scipy.stats.multivariate_t(model.location.numpy(), model.scale.numpy(), df=3.5).logpdf(x.numpy())
    torch.testing.assert_close(model.log_marginal_likelihood(x), torch.as_tensor(expected), rtol=1e-12, atol=1e-12)


def test_conditionals_are_ratios_of_marginals():
    model, x = example()
    hidden = torch.tensor([[True, False, True, False, False, True], [True] * 6])
    got = model.masked_log_prob(x, hidden)
    for p, mask in enumerate(hidden):
        for j in mask.nonzero()[:, 0]:
            larger = ~mask
            larger[j] = True
            ratio = model.marginal_log_prob(x, torch.stack([larger, ~mask]))
            torch.testing.assert_close(got[:, p, j], ratio[:, 0] - ratio[:, 1], rtol=1e-11, atol=1e-11)


def test_order_curve_equals_the_definition():
    model, x = example()
    hidden = OrderBatch(ORDERS, torch.arange(2)).masks().hidden
    expected = (model.masked_log_prob(x, hidden).sum(2) / hidden.sum(1)).reshape(4, 2, 6)
    torch.testing.assert_close(model.order_curve(x, ORDERS), expected, rtol=1e-11, atol=1e-11)


def test_many_degrees_of_freedom_are_a_gaussian():
    model, x = example(1e9)
    gaussian = mb.models.Gaussian(model.location, model.scale)
    torch.testing.assert_close(model.order_curve(x, ORDERS), gaussian.order_curve(x, ORDERS), rtol=1e-6, atol=1e-6)


def test_gradients():
    location, root = normals(1, 4).requires_grad_(), torch.linalg.cholesky(spd(2, 4)).requires_grad_()
    nu = torch.tensor(3.5, dtype=torch.float64, requires_grad=True)
    x = normals(3, 2, 4)

    def curve(location, root, nu):
        return mb.models.StudentT(location, root @ root.T, nu).order_curve(x, torch.tensor([[2, 0, 3, 1]]))

    assert torch.autograd.gradcheck(curve, (location, root, nu))


@pytest.mark.parametrize("nu", [0.0, -1.0, float("nan")])
def test_degrees_of_freedom_must_be_positive(nu):
    with pytest.raises(ModelError, match="expected one positive number"):
        example(nu)
