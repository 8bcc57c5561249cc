"""What every model promises, checked on an example of every concrete model the package defines."""

import importlib
import inspect
import math
import pkgutil

import pytest
import torch
from model_examples import EXAMPLES, concrete_models

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.estimation import difference
from mpt_bayes.models import HasExactCurve, HasOrderCurve, JointModel, restrict
from mpt_bayes.numerics.combinatorics import all_subsets

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}

every_model = pytest.mark.parametrize("kind", list(EXAMPLES), ids=lambda kind: kind.__name__)
every_joint_model = pytest.mark.parametrize(
    "kind", [kind for kind in EXAMPLES if issubclass(kind, JointModel)], ids=lambda kind: kind.__name__
)


def test_every_concrete_model_has_an_example():
    missing = [kind.__name__ for kind in concrete_models() if kind not in EXAMPLES]
    assert not missing, f"add an example of {missing} to EXAMPLES in tests/model_examples.py"


@pytest.mark.parametrize("kind", concrete_models(), ids=lambda kind: kind.__name__)
def test_concrete_models_are_final(kind):
    assert getattr(kind, "__final__", False), f"{kind.__name__} is concrete: mark it @final"


def test_concrete_designs_policies_and_laws_are_final():
    modules = [
        importlib.import_module(found.name) for found in pkgutil.iter_modules(mb.masks.__path__, "mpt_bayes.masks.")
    ]
    kinds = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    ours = {kind for kind in kinds if kind.__module__.startswith("mpt_bayes.masks.") and not inspect.isabstract(kind)}
    assert mb.masks.RandomOrders in ours
    assert [kind.__name__ for kind in ours if not getattr(kind, "__final__", False)] == []


def test_pairs_are_abstract_or_final():
    for name, kind in inspect.getmembers(difference, inspect.isclass):
        if kind.__module__ == difference.__name__:
            assert inspect.isabstract(kind) != getattr(kind, "__final__", False), name


def changed(x, column):
    """The same data with another admissible value in one column: its rows rolled by one."""
    other = x.clone()
    other[:, column] = x[:, column].roll(1)
    return other


@every_model
def test_shape_and_zero_where_visible(kind):
    model, x = EXAMPLES[kind]()
    hidden = all_subsets(model.dim)[1:]
    log_prob = model.masked_log_prob(x, hidden)
    assert log_prob.shape == (len(x), len(hidden), model.dim)
    assert bool((log_prob[:, ~hidden] == 0).all())
    assert bool(log_prob.isfinite().all())
    assert model.device == x.device


@every_model
def test_a_hidden_value_is_seen_only_by_its_own_score(kind):
    model, x = EXAMPLES[kind]()
    hidden = all_subsets(model.dim)[1:]
    before = model.masked_log_prob(x, hidden)
    for column in range(model.dim):
        after = model.masked_log_prob(changed(x, column), hidden)
        others = hidden[:, [column]] & hidden
        others[:, column] = False
        torch.testing.assert_close(after[:, others], before[:, others], rtol=1e-12, atol=1e-12)


@every_model
def test_scores_do_not_depend_on_the_batch_of_rows_or_masks(kind):
    model, x = EXAMPLES[kind]()
    hidden = all_subsets(model.dim)[1:]
    together = model.masked_log_prob(x, hidden)
    rows = torch.cat([model.masked_log_prob(x[n : n + 1], hidden) for n in range(len(x))])
    masks = torch.cat([model.masked_log_prob(x, hidden[p : p + 1]) for p in range(len(hidden))], 1)
    torch.testing.assert_close(rows, together, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(masks, together, rtol=1e-12, atol=1e-12)


@every_model
def test_row_35_shapes_and_types_are_checked_at_the_door(kind):
    model, x = EXAMPLES[kind]()
    hidden = torch.ones(2, model.dim, dtype=torch.bool)
    for bad in (x[0], x[None], x.T, x[:, :-1], x[:, :1], x[:0]):
        if bad.shape[1:] != (model.dim,) or not len(bad):
            with pytest.raises(DataError, match="x has"):
                model.masked_log_prob(bad, hidden)
    for bad in (hidden[0], hidden.int(), hidden[:, :-1]):
        with pytest.raises(ArgumentError, match="hidden has shape"):
            model.masked_log_prob(x, bad)


@every_model
def test_hiding_nothing_is_an_error(kind):
    model, x = EXAMPLES[kind]()
    hidden = torch.ones(2, model.dim, dtype=torch.bool)
    hidden[1] = False
    with pytest.raises(ArgumentError, match="row 1 hides nothing"):
        model.masked_log_prob(x, hidden)


@every_model
@pytest.mark.parametrize(("value", "word"), [(math.nan, "missing"), (math.inf, "infinite"), (-math.inf, "infinite")])
def test_row_25_missing_and_infinite_entries_name_their_row(kind, value, word):
    model, x = EXAMPLES[kind]()
    x = x.double().clone()
    x[1, 2] = value
    with pytest.raises(DataError, match=rf"{word} entry.* in row 1"):
        model.masked_log_prob(x, torch.ones(1, model.dim, dtype=torch.bool))


@every_joint_model
def test_marginals_are_consistent(kind):
    model, x = EXAMPLES[kind]()
    subsets = all_subsets(model.dim)
    marginal = model.marginal_log_prob(x, subsets)
    assert marginal.shape == (len(x), len(subsets))
    assert float(marginal[:, 0].abs().max()) < 1e-14
    assert model.log_marginal_likelihood(x).shape == (len(x),)
    torch.testing.assert_close(marginal[:, -1], model.log_marginal_likelihood(x), **TOLERANCE)


@every_joint_model
def test_conditionals_are_ratios_of_marginals(kind):
    model, x = EXAMPLES[kind]()
    subsets = all_subsets(model.dim)
    marginal, log_prob = model.marginal_log_prob(x, subsets), model.masked_log_prob(x, ~subsets[:-1])
    for column in range(model.dim):
        without = (~subsets[:, column]).nonzero()[:, 0]
        ratio = marginal[:, without + 2**column] - marginal[:, without]
        torch.testing.assert_close(log_prob[:, without, column], ratio, **TOLERANCE)


@every_joint_model
def test_chain_rule_over_random_orders(kind):
    model, x = EXAMPLES[kind]()
    expected = model.log_marginal_likelihood(x)
    for seed in range(5):
        order = torch.randperm(model.dim, generator=torch.Generator().manual_seed(seed))
        hidden = torch.ones(model.dim, model.dim, dtype=torch.bool)
        for step in range(model.dim):
            hidden[step, order[:step]] = False
        terms = model.masked_log_prob(x, hidden)[:, torch.arange(model.dim), order]
        torch.testing.assert_close(terms.sum(1), expected, **TOLERANCE)


@every_joint_model
def test_identity_by_definition_and_by_telescoping(kind):
    model, x = EXAMPLES[kind]()
    expected = model.log_marginal_likelihood(x)
    hidden = all_subsets(model.dim)[1:]
    size = hidden.sum(1)
    by_size = torch.tensor([math.comb(model.dim, int(m)) for m in size], dtype=torch.float64)
    by_definition = (model.masked_log_prob(x, hidden).sum(2) / size / by_size).sum(1)
    torch.testing.assert_close(by_definition, expected, **TOLERANCE)
    exhaustive = mb.cumulative_score(model, x, design=mb.masks.Exhaustive())
    torch.testing.assert_close(torch.from_numpy(exhaustive.per_row), expected, **TOLERANCE)
    assert exhaustive.standard_error == 0


@every_joint_model
def test_relabelling_coordinates_changes_nothing(kind):
    model, x = EXAMPLES[kind]()
    order = torch.randperm(model.dim, generator=torch.Generator().manual_seed(3))
    relabelled = restrict(model, order)
    hidden = all_subsets(model.dim)[1:]
    torch.testing.assert_close(
        relabelled.masked_log_prob(x[:, order], hidden[:, order]), model.masked_log_prob(x, hidden)[..., order]
    )
    torch.testing.assert_close(
        relabelled.log_marginal_likelihood(x[:, order]), model.log_marginal_likelihood(x), **TOLERANCE
    )


@every_joint_model
def test_row_25_missing_entries_are_marginalised_exactly(kind):
    """Row 0 keeps everything, row 1 two coordinates in no special order, row 2 nothing."""
    model, x = EXAMPLES[kind]()
    gaps = x.double().clone()
    gaps[1, torch.arange(model.dim) % 2 == 0] = math.nan
    gaps[2] = math.nan
    visible = ~gaps.isnan()
    expected = model.marginal_log_prob(x, visible).diagonal()
    got = mb.log_marginal_likelihood(model, gaps, missing="marginalise")
    torch.testing.assert_close(got, expected, **TOLERANCE)
    assert float(got[2]) == 0
    score = mb.cumulative_score(model, gaps, design=mb.masks.Exhaustive(), missing="marginalise")
    torch.testing.assert_close(torch.from_numpy(score.per_row), expected, **TOLERANCE)
    gaps[0, 0] = math.inf
    with pytest.raises(DataError, match="infinite entry in row 0"):
        mb.log_marginal_likelihood(model, gaps, missing="marginalise")


@every_joint_model
def test_row_34_there_is_a_value_for_every_row(kind):
    model, x = EXAMPLES[kind]()
    comparison = mb.compare(model, x, design=mb.masks.RandomOrders(3))
    expected = model.log_marginal_likelihood(x)
    torch.testing.assert_close(torch.from_numpy(comparison.log_marginal_likelihood_per_row), expected, **TOLERANCE)
    per_row = comparison.cumulative_score.per_row
    assert per_row.shape == (len(x),)
    assert float(per_row.sum()) == pytest.approx(comparison.cumulative_score.value, rel=1e-12)
    alone = mb.compare(model, x[1:2], design=mb.masks.RandomOrders(3)).cumulative_score
    assert alone.value == pytest.approx(per_row[1], rel=1e-10)


@every_joint_model
def test_fast_paths_equal_the_masks(kind):
    model, x = EXAMPLES[kind]()
    orders = torch.stack([torch.randperm(model.dim, generator=torch.Generator().manual_seed(s)) for s in range(4)])
    batch = mb.masks.OrderBatch(orders, torch.arange(4))
    if isinstance(model, HasOrderCurve):
        masks = batch.masks()
        scores = model.masked_log_prob(x, masks.hidden).sum(2) / masks.sampling.sizes
        torch.testing.assert_close(model.order_curve(x, orders), scores.reshape(len(x), 4, model.dim), **TOLERANCE)
    if isinstance(model, HasExactCurve):
        marginal = model.marginal_log_prob(x, all_subsets(model.dim))
        size = all_subsets(model.dim).sum(1)
        average = torch.stack([marginal[:, size == k].mean(1) for k in range(model.dim + 1)], 1)
        torch.testing.assert_close(model.exact_curve(x), average.diff(dim=1).flip(1), **TOLERANCE)
