"""What a user's own model answers is checked where it enters: no shape is broadcast, no visible value counted."""

import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import DataError, ModelError, NotFiniteError
from mpt_bayes.models import Gaussian, ModelMixture
from mpt_bayes.models.base import ConditionalModel, JointModel, OrderTotals
from mpt_bayes.numerics.random import Stream
from mpt_bayes.objectives import CumulativeScore, ExactLML, FixedRate, RandomRate
from tests.estimators import ESTIMATORS

GAUSSIAN = Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
X = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Conditional(ConditionalModel):
    """A user's conditionals, as a test changes them."""

    device = torch.device("cpu")
    dim = 3

    def __init__(self, change=lambda result, x, hidden: result):
        self.change = change

    def masked_log_prob(self, x, hidden):
        return self.change(GAUSSIAN.masked_log_prob(x, hidden), x, hidden)


class Joint(JointModel):
    """A user's joint model with one answer changed."""

    device = torch.device("cpu")
    dim = 3

    def __init__(self, method=None, change=None):
        self.method, self.change = method, change

    def answer(self, method, *args, **kwargs):
        result = getattr(GAUSSIAN, method)(*args, **kwargs)
        return self.change(result) if method == self.method else result

    def masked_log_prob(self, x, hidden):
        return self.answer("masked_log_prob", x, hidden)

    def log_marginal_likelihood(self, x):
        return self.answer("log_marginal_likelihood", x)

    def marginal_log_prob(self, x, visible):
        return self.answer("marginal_log_prob", x, visible)


class Ordered(Joint):
    def order_curve(self, x, orders):
        return self.answer("order_curve", x, orders)


class Totalled(Joint):
    def order_totals(self, x, orders, per_row):
        return self.answer("order_totals", x, orders, per_row=per_row)


class Closed(Joint):
    def exact_curve(self, x):
        result = mb.score_curve(GAUSSIAN, x, design=mb.masks.Exhaustive()).scores
        return self.change(torch.as_tensor(result).expand(len(x), -1))


BY_MASKS = {name: call for name, call in ESTIMATORS.items() if name not in ("compare", "log_marginal_likelihood")}
by_masks = pytest.mark.parametrize("estimate", BY_MASKS.values(), ids=BY_MASKS)


def numbers(result):
    return repr(result), getattr(result, "to_dict", dict)()


@by_masks
@pytest.mark.parametrize("left", [5.0, torch.nan, -torch.inf])
def test_what_a_model_leaves_at_visible_coordinates_counts_for_nothing(estimate, left):
    untidy = Conditional(lambda result, x, hidden: torch.where(hidden, result, left))
    assert numbers(estimate(untidy, X)) == numbers(estimate(Conditional(), X))


@pytest.mark.parametrize("objective", [CumulativeScore(), RandomRate(), FixedRate(0.5)])
def test_objectives_count_hidden_coordinates_only(objective):
    untidy = Conditional(lambda result, x, hidden: torch.where(hidden, result, torch.nan))
    assert torch.equal(objective.value(untidy, X, Stream(0)), objective.value(Conditional(), X, Stream(0)))


FAULTS = {
    "one row for all": (lambda result, x, hidden: result[:1], r"shape \(1, \d+, 3\), float64 on cpu"),
    "integers": (lambda result, x, hidden: result.long(), r"shape \(12, \d+, 3\), int64 on cpu"),
    "None": (lambda result, x, hidden: None, r"None \(is a return missing\?\)"),
    "array": (lambda result, x, hidden: result.numpy(), "a ndarray"),
    "two dimensions": (lambda result, x, hidden: result.sum(1), r"shape \(12, 3\), float64 on cpu"),
    "summed": (lambda result, x, hidden: result.sum(2), r"shape \(12, \d+\), float64 on cpu"),
    "masks first": (lambda result, x, hidden: result.transpose(0, 1), r"shape \(\d+, 12, 3\), float64 on cpu"),
    "column": (lambda result, x, hidden: result.sum(2, keepdim=True), r"shape \(12, \d+, 1\), float64 on cpu"),
    "short": (lambda result, x, hidden: result[:, :, :2], r"shape \(12, \d+, 2\), float64 on cpu"),
}


@by_masks
@pytest.mark.parametrize(("change", "found"), FAULTS.values(), ids=FAULTS)
def test_row_35_results_of_another_shape_or_kind_are_named_by_every_estimator(estimate, change, found):
    expected = r"a floating-point tensor of shape \(12, \d+, 3\) \(rows × masks × coordinates\) on cpu"
    with pytest.raises(ModelError, match=rf"^Conditional.masked_log_prob returned {found}: expected {expected}$"):
        estimate(Conditional(change), X)


def test_row_35_pairs_and_mixtures_broadcast_nothing():
    short = Joint("masked_log_prob", lambda result: result[:1])
    with pytest.raises(ModelError, match=r"Joint.masked_log_prob returned shape \(1, "):
        mb.score_difference(short, Joint(), X)
    with pytest.raises(ModelError, match=r"Joint.masked_log_prob returned shape \(1, "):
        mb.cumulative_score(ModelMixture(torch.tensor([0.5, 0.5]), [short, Joint()]), X, n_evaluations=12 * 7)


EVIDENCE_FAULTS = {
    "a sum": (torch.sum, r"shape \(\)"),
    "a column": (lambda result: result[:, None], r"shape \(12, 1\)"),
    "one row": (lambda result: result[:1], r"shape \(1,\)"),
    "integers": (torch.Tensor.long, r"shape \(12,\), int64"),
    "a number": (lambda result: float(result.sum()), "a float"),
    "None": (lambda result: None, r"None \(is a return missing\?\)"),
}


@pytest.mark.parametrize(
    "call",
    [
        *(ESTIMATORS[name] for name in ("chain_rule", "compare", "compare_models", "log_marginal_likelihood", "sweep")),
        *(ESTIMATORS[name] for name in ("convergence", "verify")),
        lambda model, x: ExactLML().value(model, x, Stream(0)),
    ],
)
@pytest.mark.parametrize(("change", "found"), EVIDENCE_FAULTS.values(), ids=EVIDENCE_FAULTS)
def test_row_34_a_log_evidence_that_is_not_one_number_a_row_is_named(call, change, found):
    match = rf"^Joint.log_marginal_likelihood returned {found}.*: expected .* of shape \(12,\) \(rows\)"
    with pytest.raises(ModelError, match=match):
        call(Joint("log_marginal_likelihood", change), X)


ORDERS, ALL = mb.masks.RandomOrders(4), mb.masks.Exhaustive()
ASKED_BY = {Ordered: ORDERS, Totalled: ORDERS, Joint: ALL, Closed: ALL}
fast_path_faults = pytest.mark.parametrize(
    ("make", "method", "change", "found"),
    [
        (Ordered, "order_curve", lambda curves: curves[:1], r"shape \(1, 4, 3\), float64 on cpu"),
        (Ordered, "order_curve", lambda curves: curves.sum(0), r"shape \(4, 3\), float64 on cpu"),
        (Totalled, "order_totals", lambda totals: None, r"None \(is a return missing\?\)"),
        (Totalled, "order_totals", lambda totals: totals.curves, "a Tensor: expected OrderTotals"),
        (Totalled, "order_totals", lambda t: OrderTotals(t.curves[:1], t.per_row), r"shape \(1, 3\), .* as curves"),
        (Totalled, "order_totals", lambda t: OrderTotals(t.curves, None), "None .* as per_row"),
        (Totalled, "order_totals", lambda t: OrderTotals(t.curves, t.per_row[:1]), r"shape \(1,\), .* as per_row"),
        (Joint, "marginal_log_prob", lambda log_prob: log_prob[:1], r"shape \(1, 8\), float64 on cpu"),
        (Closed, "exact_curve", lambda curve: curve[:1], r"shape \(1, 3\), float64 on cpu"),
        (Closed, "exact_curve", lambda curve: curve.long(), r"shape \(12, 3\), int64 on cpu"),
    ],
)


@fast_path_faults
def test_row_35_fast_paths_of_a_users_model_are_checked_too(make, method, change, found):
    with pytest.raises(ModelError, match=rf"^{make.__name__}.{method} returned {found}"):
        mb.score_curve(make(method, change), X, design=ASKED_BY[make])


@fast_path_faults
def test_a_fast_path_that_is_not_asked_disturbs_nothing(make, method, change, found):
    other = ALL if ASKED_BY[make] == ORDERS else ORDERS
    assert mb.score_curve(make(method, change), X, design=other).total.n_data == 12


@pytest.mark.parametrize(
    ("dim", "words"),
    [
        (lambda self: 3, "a method: put @property above it"),
        (4.0, "4.0: expected an integer"),
        ("3", "'3': expected an integer"),
        (0, "0: expected at least 1"),
        (-2, "-2: expected at least 1"),
    ],
)
@pytest.mark.parametrize("estimate", ESTIMATORS.values(), ids=ESTIMATORS)
def test_a_dim_that_is_no_number_of_coordinates_is_named(estimate, dim, words):
    kind = type("Mine", (Joint,), {"dim": dim})
    with pytest.raises(ModelError, match=rf"dim of (model|second|models\['it'\]) \(Mine\) is {words}"):
        estimate(kind(), X)


@pytest.mark.parametrize("estimate", BY_MASKS.values(), ids=BY_MASKS)
def test_data_of_another_width_are_named_where_the_users_model_has_no_door(estimate):
    sloppy = type("Sloppy", (Conditional,), {"masked_log_prob": lambda self, x, h: x.new_zeros(len(x), *h.shape)})
    with pytest.raises(DataError, match="x has 2 columns but the model has 3 coordinates"):
        estimate(sloppy(), X[:, :2])


def test_a_hidden_score_that_is_not_finite_still_names_its_row():
    def change(result, x, hidden):
        result[7] = torch.where(hidden, -torch.inf, result[7])
        return result

    with pytest.raises(NotFiniteError, match="row 7"):
        mb.score_curve(Conditional(change), X)
