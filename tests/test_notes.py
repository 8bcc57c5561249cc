"""What is None says why."""

import numpy as np
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, NotFiniteError
from mpt_bayes.masks import RandomOrders, UniformSize
from mpt_bayes.models import Gaussian

MODEL = Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
X = torch.arange(12.0, dtype=torch.float64).reshape(4, 3) / 12
FEW = r"a standard error needs at least two independent draws"


def test_a_difference_hands_on_why_one_side_has_no_standard_error():
    one = mb.cumulative_score(MODEL, X, design=RandomOrders(1))
    many = mb.cumulative_score(MODEL, X, design=RandomOrders(8), generator=torch.Generator().manual_seed(1))
    for difference in (one - many, many - one):
        assert difference.standard_error is None
        assert f"(no SE: {one.note})" in repr(difference)
        with pytest.raises(ArgumentError, match=f"no interval: {FEW}"):
            difference.interval()
    again = mb.cumulative_score(MODEL, X, design=RandomOrders(8))
    assert (again - one).note == f"the two share their masks: compare them pairwise for a standard error; {one.note}"
    assert (again - many).note == ""


def test_a_size_with_one_mask_says_that_it_is_the_size():
    model = Gaussian(torch.zeros(8), torch.eye(8) + 0.5)
    curve = mb.score_curve(model, torch.ones(2, 8), design=UniformSize(12))
    visited = curve.sizes[~np.isnan(curve.scores)]
    alone = [size for size in visited if np.isnan(curve.standard_errors[size - 1])]
    assert alone
    for size in visited:
        words = f"size {size} has one mask and so no standard error of its own; " if size in alone else ""
        assert curve.score(size).note == words + "per-row values are kept for the total only"
    with pytest.raises(ArgumentError, match=f"no interval: size {alone[0]} has one mask"):
        curve.score(alone[0]).interval()


def test_a_comparison_in_json_says_why_an_error_is_null():
    assert mb.compare(MODEL, X, design=RandomOrders(1)).to_dict()["note"].startswith(FEW)
    wide = Gaussian(torch.zeros(8), torch.eye(8) + 0.5)
    assert "one mask" in mb.compare(wide, torch.ones(2, 8), design=UniformSize(12)).to_dict()["note"]
    assert mb.compare(MODEL, X).to_dict()["note"] == ""


def test_a_score_that_is_not_finite_names_its_row_even_where_rows_are_summed():
    x = X.clone()
    x[2] = 1e200
    for call in (
        lambda: mb.convergence(MODEL, x),
        lambda: mb.compare_models({"one": MODEL}, x),
        lambda: mb.cumulative_score(MODEL, x, per_row=False),
    ):
        with pytest.raises(NotFiniteError, match="row 2 is not finite"):
            call()
