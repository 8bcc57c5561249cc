"""Models made of draws: sizes, partial sums, rates, shares and criteria carry their inner errors, and these cover."""

import math

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

import mpt_bayes as mb
from mpt_bayes import report
from mpt_bayes.estimation.attribution import _all_differences, _differences_along
from mpt_bayes.models import BernoulliEmission, ImportanceBank, LatentQuadrature
from mpt_bayes.numerics.random import Stream

DIM = 5
LAYER = torch.nn.Linear(1, DIM).double().requires_grad_(False)
LAYER.weight.data = torch.tensor([[1.5], [-1.0], [0.5], [2.0], [-0.7]]).double()
LAYER.bias.data = torch.tensor([0.2, -0.5, 0.0, 0.4, -0.1]).double()
EXACT = LatentQuadrature.bernoulli(LAYER, 1, n_nodes=256, half_width=8.0)
X = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1]]).double()
ORDERS = mb.masks.RandomOrders(3)


def encoder(x):
    return torch.zeros(len(x), 1, dtype=torch.float64), torch.ones(len(x), 1, dtype=torch.float64)


def bank(seed=0, *, with_encoder=False, n_samples=300):
    decoder = lambda z: BernoulliEmission.from_logits(LAYER(z))  # noqa: E731
    return ImportanceBank(decoder, encoder if with_encoder else None, 1, seed=seed, n_samples=n_samples)


@pytest.mark.parametrize("with_encoder", [False, True])
def test_errors_of_the_exact_curve_are_those_of_all_masks(with_encoder):
    model, batch = bank(with_encoder=with_encoder), mb.masks.Exhaustive().draw(DIM, None)
    curve = mb.score_curve(model, X, design=mb.masks.Exhaustive())
    so_far = 0.0
    for size in range(1, DIM + 1):
        member = batch.sampling.sizes == size
        weight = batch.sampling.log_weight[member, None].exp()
        (influence,) = model.score_influence(X, batch.hidden[member], weight)
        so_far = so_far + influence
        for estimate, expected in [(curve.score(size), influence), (curve.partial(size), so_far)]:
            assert estimate.inner_standard_error == pytest.approx(
                math.sqrt(model.inner_variance(X, expected)), rel=1e-9
            )
    assert curve.partial(DIM).inner_standard_error == curve.total.inner_standard_error
    assert curve.per_datum.score(2).inner_standard_error == pytest.approx(curve.score(2).inner_standard_error / 4)


def test_weights_of_shares_add_up_to_the_evidence():
    """Over coordinates they leave log p(x) - log p(nothing); against the shares of an exact model they give these."""
    for subsets, weight in (_all_differences(DIM), _differences_along(ORDERS.draw_orders(DIM, Stream(0)))):
        evidence = subsets.all(1).double() - (~subsets.any(1)).double()
        share = evidence / evidence.clamp_min(0).sum()
        torch.testing.assert_close(weight.sum(1), share)
    subsets, weight = _all_differences(DIM)
    shares = EXACT.marginal_log_prob(X, subsets) @ weight
    np.testing.assert_allclose(shares, mb.attribution(EXACT, X).shares, atol=1e-12)


@pytest.mark.parametrize("with_encoder", [False, True])
def test_row_32_inner_errors_of_sizes_partial_sums_rates_and_shares_cover(with_encoder):
    """The same masks on the exact model: what is left is the error of the draws."""

    def found(model):
        curve = mb.score_curve(model, X, design=ORDERS)
        rates = mb.sweep(model, X, [0.4, 1.0], n_masks=3)
        shares = mb.attribution(model, X, design=ORDERS)
        criteria = mb.compare_models({"": model}, X, test=X[:2], design=ORDERS).criteria[""]
        values = [curve.scores[1], curve.partials[2], *rates.scores, rates.scaled[0], *shares.per_coordinate[:2]]
        values += [criteria[name].value for name in ("leave-one-out", "held-out", "log marginal likelihood")]
        if model is EXACT:
            return np.array(values), None
        errors = [curve.inner_standard_errors[1], curve.partial_inner_standard_errors[2]]
        errors += [*rates.inner_standard_errors, rates.scaled_inner_standard_errors[0]]
        errors += [*shares.coordinate_inner_standard_errors[:2]]
        errors += [
            criteria[name].inner_standard_error for name in ("leave-one-out", "held-out", "log marginal likelihood")
        ]
        assert criteria["log marginal likelihood"].standard_error == 0
        return np.array(values), np.array(errors)

    truth, _ = found(EXACT)
    z = []
    for seed in range(24):
        values, errors = found(bank(seed, with_encoder=with_encoder))
        z.append((values - truth) / errors)
    assert np.abs(np.mean(z, 0)).max() < 4.5 / math.sqrt(24)
    spread = np.var(z, 0, ddof=1)
    assert (spread > stats.chi2.ppf(1e-5, 23) / 23).all()
    assert (spread < stats.chi2.ppf(1 - 1e-5, 23) / 23).all()


def test_groups_of_rows_with_missing_entries_add_their_inner_errors():
    x = X.clone()
    x[0, 2] = math.nan
    model = bank()
    for design in (mb.masks.Exhaustive(), ORDERS):
        both = mb.attribution(model, x, design=design, missing="marginalise").coordinate_inner_standard_errors
        assert (both > 0).all()
    one = mb.attribution(model, x[1:]).coordinate_inner_standard_errors[2]
    assert mb.attribution(model, x, missing="marginalise").coordinate_inner_standard_errors[2] == pytest.approx(one)
    curve = mb.score_curve(model, x, design=ORDERS, missing="marginalise")
    assert curve.partial(DIM).inner_standard_error == curve.total.inner_standard_error > 0
    swept = mb.sweep(model, x, [0.4], missing="marginalise")
    assert swept.scaled_inner_standard_errors[0] < DIM * swept.inner_standard_errors[0]


def test_row_32_tables_for_people_print_the_error_of_the_draws():
    def compare(model):
        return report.comparison_report(mb.compare(model, X))

    def attribute(model):
        return report.attribution_report(mb.attribution(model, X))

    def sweep(model):
        return report.sweep_report(mb.sweep(model, X, [0.5]))

    for table in (compare, attribute, sweep):
        for model, drawn in [(bank(), True), (EXACT, False)]:
            console = Console(width=200)
            with console.capture() as capture:
                console.print(table(model))
            assert (", draws 0." in capture.get()) == drawn


def test_exact_models_have_no_inner_errors():
    assert mb.score_curve(EXACT, X, design=ORDERS).inner_standard_errors is None
    assert mb.sweep(EXACT, X, [0.4]).inner_standard_errors is None
    assert mb.attribution(EXACT, X).coordinate_inner_standard_errors is None
    criteria = mb.compare_models({"": EXACT}, X).criteria[""]
    assert all(criterion.inner_standard_error is None for criterion in criteria.values())
