"""sweep, attribution, chain rule, convergence and verify against enumeration and planted faults."""

from itertools import permutations

import numpy as np
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.models import ConditionalModel, Gaussian, JointModel, JointTable


def gaussian(dim=5, seed=0):
    factor = torch.randn(dim, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return Gaussian(torch.arange(dim, dtype=torch.float64), factor @ factor.T + 0.5 * torch.eye(dim))


def rows(model, n, seed=1):
    factor = torch.linalg.cholesky(model.covariance)
    z = torch.randn(n, model.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return model.mean + z @ factor.T


def toy_table():
    joint = np.random.default_rng(1).gamma(0.4, size=(3,) * 4)
    return JointTable(torch.as_tensor(joint / joint.sum())), torch.tensor([[2, 0, 1, 2]])


class Only(ConditionalModel):
    """The conditionals of a joint model, and nothing else."""

    def __init__(self, model):
        self.joint = model

    @property
    def dim(self):
        return self.joint.dim

    @property
    def device(self):
        return self.joint.device

    def masked_log_prob(self, x, hidden):
        return self.joint.masked_log_prob(x, hidden)


class Wrapped(JointModel):
    """A joint model whose parts a test can replace one at a time, to plant a fault."""

    def __init__(self, model, masked=None, whole=None, marginal=None):
        self.joint, self.masked, self.whole, self.marginal = model, masked, whole, marginal

    @property
    def dim(self):
        return self.joint.dim

    @property
    def device(self):
        return self.joint.device

    def masked_log_prob(self, x, hidden):
        return (self.masked or self.joint.masked_log_prob)(x, hidden)

    def log_marginal_likelihood(self, x):
        return (self.whole or self.joint.log_marginal_likelihood)(x)

    def marginal_log_prob(self, x, visible):
        return (self.marginal or self.joint.marginal_log_prob)(x, visible)


# Sweep


def test_sweep_reproduces_the_bias_of_each_rate_on_the_toy_joint():
    model, x = toy_table()
    result = mb.sweep(model, x, [0.25, 0.5, 0.75, 1.0], n_masks=None)
    expected = [-1.7976775082286816, -0.34089823903815564, 0.7090010485826062, 1.4295746986842328]
    np.testing.assert_allclose(result.bias, expected, atol=1e-12)
    assert result.seed is None
    assert (result.standard_errors == 0).all()


def test_sweep_at_one_rate_is_masked_score_with_the_same_seed():
    model = gaussian()
    x = rows(model, 3)
    result = mb.sweep(model, x, [0.2, 0.6], n_masks=8, generator=torch.Generator().manual_seed(5))
    alone = mb.masked_score(model, x, rate=0.6, n_masks=8, generator=torch.Generator().manual_seed(5))
    assert result.scores[1] == pytest.approx(alone.value, abs=1e-12)
    assert result.standard_errors[1] == pytest.approx(alone.standard_error, rel=1e-12)
    assert result.scaled[1] == pytest.approx(5 * alone.value, rel=1e-12)
    assert result.scaled_standard_errors[1] == pytest.approx(5 * alone.standard_error, rel=1e-12)


def test_sweep_with_missing_entries_scales_each_row_by_what_it_observes():
    model = gaussian()
    x = rows(model, 2)
    x[1, 3:] = torch.nan
    result = mb.sweep(model, x, [1.0], n_masks=None, missing="marginalise")
    part = mb.models.restrict(model, torch.arange(3))
    separate = [mb.sweep(model, x[:1], [1.0], n_masks=None), mb.sweep(part, x[1:, :3], [1.0], n_masks=None)]
    assert result.scaled[0] == pytest.approx(sum(one.scaled[0] for one in separate), rel=1e-12)
    assert result.log_marginal_likelihood == pytest.approx(sum(one.log_marginal_likelihood for one in separate))


def test_sweep_of_conditionals_alone_has_no_bias():
    model = gaussian()
    result = mb.sweep(Only(model), rows(model, 2), [0.4], n_masks=2)
    assert result.bias is None
    assert result.to_dict()["rates"][0]["bias"] is None


@pytest.mark.parametrize(("rates", "n_masks"), [([], 4), ([0.0], 4), ([1.5], 4), ([0.5], 0)])
def test_sweep_refuses(rates, n_masks):
    model = gaussian()
    with pytest.raises(mb.errors.ArgumentError):
        mb.sweep(model, rows(model, 2), rates, n_masks=n_masks)


@pytest.mark.parametrize("rate", [0.0, 1.5])
def test_compare_models_refuses_what_is_no_rate(rate):
    model = gaussian()
    with pytest.raises(mb.errors.ArgumentError, match=f"rate is {rate}"):
        mb.compare_models({"a": model}, rows(model, 2), rates=[rate])


# Attribution


def shares_by_all_orders(model, x):
    total = np.zeros((len(x), model.dim))
    orders = list(permutations(range(model.dim)))
    for order in orders:
        visible = torch.tril(torch.ones(model.dim + 1, model.dim), -1).bool()[:, np.argsort(order)]
        steps = model.marginal_log_prob(x, visible).diff(dim=1).numpy()
        total[:, order] += steps
    return total / len(orders)


@pytest.mark.parametrize("which", ["gaussian", "table"])
def test_exact_shares_are_the_average_over_all_orders(which):
    model, x = (gaussian(), rows(gaussian(), 3)) if which == "gaussian" else toy_table()
    result = mb.attribution(model, x)
    np.testing.assert_allclose(result.shares, shares_by_all_orders(model, x), atol=1e-12)
    np.testing.assert_allclose(result.per_row, model.log_marginal_likelihood(x), atol=1e-12)
    np.testing.assert_array_equal(np.asarray(result), result.shares)
    assert (result.standard_errors == 0).all()


def test_sampled_shares_sum_exactly_and_cover_the_exact_ones():
    model = gaussian()
    x = rows(model, 3)
    exact = mb.attribution(model, x)
    sampled = mb.attribution(model, x, design=mb.masks.RandomOrders(400))
    np.testing.assert_allclose(sampled.per_row, exact.per_row, rtol=1e-12)
    assert (np.abs(sampled.shares - exact.shares) < 4.5 * sampled.standard_errors).all()
    assert (np.abs(sampled.per_coordinate - exact.per_coordinate) < 4.5 * sampled.coordinate_standard_errors).all()
    assert sampled.standard_errors.max() < 0.2


def test_shares_of_missing_entries_are_zero():
    model = gaussian()
    x = rows(model, 2)
    x[0, 2] = torch.nan
    result = mb.attribution(model, x, missing="marginalise")
    assert result.shares[0, 2] == 0
    np.testing.assert_allclose(result.per_row, mb.log_marginal_likelihood(model, x, missing="marginalise"), rtol=1e-12)


def test_one_order_has_no_standard_error():
    model = gaussian()
    result = mb.attribution(model, rows(model, 2), design=mb.masks.RandomOrders(1))
    assert np.isnan(result.standard_errors).all()
    assert result.to_dict()["per_coordinate_standard_error"] == [None] * 5


def test_attribution_refuses_other_designs():
    model = gaussian()
    x = rows(model, 2)
    with pytest.raises(mb.errors.ArgumentError, match="RandomOrders"):
        mb.attribution(model, x, design=mb.masks.PerSize(2))
    with pytest.raises(mb.errors.ArgumentError, match="without marginals"):
        mb.attribution(Only(model), x, design=mb.masks.Exhaustive())


# Chain rule


def test_every_order_of_a_coherent_joint_gives_the_log_marginal_likelihood():
    model = gaussian()
    x = rows(model, 4)
    walk = mb.chain_rule(model, x, n_orders=6)
    expected = model.log_marginal_likelihood(x).numpy()
    np.testing.assert_allclose(walk.sums, np.repeat(expected[:, None], 6, 1), rtol=1e-12)
    assert walk.order_mixture == pytest.approx(walk.value, rel=1e-12)


def size_dependent(model):
    """Conditionals that trust the visible part less the more of it there is: no joint has these."""

    def masked(x, hidden):
        return model.masked_log_prob(x, hidden) * (1 + 0.1 * (~hidden).sum(1))[None, :, None]

    return masked


def test_incoherent_conditionals_spread_over_orders():
    model = gaussian()
    x = rows(model, 4)
    walk = mb.chain_rule(Only(Wrapped(model, masked=size_dependent(model))), x, n_orders=40)
    score = mb.cumulative_score(Only(Wrapped(model, masked=size_dependent(model))), x, design=mb.masks.Exhaustive())
    assert walk.log_marginal_likelihood is None
    assert walk.spread > 0.01
    assert walk.order_mixture > walk.value
    assert abs(walk.value - score.value) < 4 * walk.standard_error


# Convergence


def test_convergence_ends_at_the_cumulative_score_and_tightens():
    model = gaussian()
    x = rows(model, 4)
    result = mb.convergence(model, x, design=mb.masks.PerSize, numbers=[2, 8, 64])
    last = mb.cumulative_score(model, x, design=mb.masks.PerSize(64))
    assert result.values[-1] == last.value
    assert result.standard_errors[-1] < result.standard_errors[1] * 0.6
    assert result.log_marginal_likelihood == pytest.approx(float(model.log_marginal_likelihood(x).sum()), rel=1e-12)


# Verify


@pytest.mark.parametrize("dim", [1, 2, 5, 16])
def test_a_gaussian_passes_every_check(dim):
    model = gaussian(dim)
    report = mb.verify(model, rows(model, 40))
    assert report.passed, report.checks
    assert all(check.verdict == "passed" for check in report.checks)
    assert report.n_rows == 32


def test_a_table_passes_and_one_row_has_no_hidden_values_to_lend():
    report = mb.verify(*toy_table())
    assert report.passed
    assert report["hidden values"].verdict == "not applicable"


@pytest.mark.parametrize("x", [torch.full((8, 20), 0.3), torch.linspace(-1, 1, 160).reshape(8, 20)])
def test_independent_coordinates_pass_even_where_their_standard_error_is_rounding(x):
    assert mb.verify(Gaussian(torch.zeros(20), torch.eye(20)), x).passed


def test_conditionals_alone_are_held_to_what_applies():
    model = gaussian()
    report = mb.verify(Only(model), rows(model, 6))
    assert report.passed
    assert [check.name for check in report.checks if check.verdict == "not applicable"] == [
        "ratio of marginals",
        "identity",
        "shares",
        "relabelling",
    ]


def test_rows_with_missing_entries_are_verified_on_their_largest_group():
    model = gaussian()
    x = rows(model, 8)
    x[:6, 1] = torch.nan
    report = mb.verify(model, x, missing="marginalise")
    assert report.passed
    assert report.n_rows == 6
    assert "the 6 of 8 rows that observe the same 4 of 5 coordinates" in report.to_dict()["note"]
    assert mb.verify(model, x[6:], missing="marginalise").note == ""


def leaking(model):
    """Looks at a hidden value: the last hidden coordinate shifts the others."""

    def masked(x, hidden):
        peek = torch.where(hidden, x[:, None, :], 0).sum(2, keepdim=True)
        return model.masked_log_prob(x, hidden) + torch.where(hidden, 0.01 * peek, 0)

    return masked


def company(model):
    """Depends on the other rows of the batch."""

    def masked(x, hidden):
        return model.masked_log_prob(x, hidden) * (1 + 0.01 * len(x))

    return masked


def first_is_special(model):
    """Depends on a coordinate's place, not on what it is."""

    def masked(x, hidden):
        return torch.where(hidden, model.masked_log_prob(x, hidden) + 0.1 * torch.arange(model.dim), 0)

    return masked


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (lambda m: {"masked": size_dependent(m)}, {"chain rule", "ratio of marginals", "identity", "shares"}),
        (lambda m: {"masked": gaussian(seed=7).masked_log_prob}, {"ratio of marginals", "identity", "shares"}),
        (lambda m: {"whole": lambda x: m.log_marginal_likelihood(x) / len(x)}, {"identity", "shares"}),
        (lambda m: {"marginal": lambda x, v: 1.01 * m.marginal_log_prob(x, v)}, {"ratio of marginals"}),
        (lambda m: {"masked": leaking(m)}, {"hidden values", "chain rule"}),
        (lambda m: {"masked": company(m)}, {"batching"}),
        (lambda m: {"masked": first_is_special(m)}, {"relabelling", "ratio of marginals"}),
    ],
    ids=["size-dependent", "other-conditionals", "mean-not-total", "wrong-marginals", "leak", "company", "place"],
)
def test_a_planted_fault_fails_and_the_report_names_the_identity(fault, names):
    model = gaussian()
    report = mb.verify(Wrapped(model, **fault(model)), rows(model, 6))
    assert not report.passed
    assert names <= set(report.failures), report.failures
    assert names.pop() in repr(report)


def test_other_conditionals_of_a_coherent_joint_keep_their_chain_rule():
    """The verdicts are specific: conditionals of another joint break the ratio, not the chain rule."""
    model = gaussian()
    report = mb.verify(Wrapped(model, masked=gaussian(seed=7).masked_log_prob), rows(model, 6))
    assert report["chain rule"].verdict == report["batching"].verdict == report["hidden values"].verdict == "passed"


def test_a_fault_is_seen_where_masks_are_sampled_too():
    model = gaussian(14)
    report = mb.verify(Wrapped(model, masked=size_dependent(model)), rows(model, 6))
    assert report["identity"].unit == "standard errors"
    assert {"identity", "chain rule"} <= set(report.failures)


def test_few_orders_raise_no_false_alarm():
    """With two orders t has one degree of freedom: beyond 4 naive standard errors in a case of six."""
    model, x = (
        Gaussian(torch.zeros(14), torch.eye(14) + 0.9),
        torch.randn(1, 14, generator=torch.Generator().manual_seed(0)),
    )
    for seed in range(60):
        report = mb.verify(model, x, n_orders=2, generator=torch.Generator().manual_seed(seed))
        assert report["identity"].unit == "standard errors"
        assert report.passed
