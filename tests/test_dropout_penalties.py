"""Dropout as an adaptive penalty, against enumeration."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpt_bayes.dropout import dropout_least_squares, expected_penalty, expected_squared_error, quadratic_penalty
from mpt_bayes.errors import ArgumentError, BudgetError, DataError, ModelError

SEEDS = st.integers(0, 2**31)
RATES = st.floats(0.05, 0.9)


def draw(seed: int, n: int, d: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    return (
        x,
        torch.randn(n, dtype=torch.float64, generator=generator),
        torch.randn(d, dtype=torch.float64, generator=generator),
    )


@given(seed=SEEDS, q=RATES, n=st.integers(1, 3), d=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_expected_squared_error_equals_enumeration(seed: int, q: float, n: int, d: int) -> None:
    x, y, w = draw(seed, n, d)
    total = 0.0
    for bits in itertools.product([0, 1], repeat=n * d):
        mask = torch.tensor(bits, dtype=torch.float64).reshape(n, d)
        probability = (1 - q) ** float(mask.sum()) * q ** (n * d - float(mask.sum()))
        total += probability * float((y - (x * mask / (1 - q)) @ w).square().sum())
    assert float(expected_squared_error(x, y, w, q)) == pytest.approx(total, rel=1e-10, abs=1e-10)


@given(seed=SEEDS, q=RATES, n=st.integers(1, 8), d=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_closed_form_is_the_minimiser_and_ridge_on_scaled_columns(seed: int, q: float, n: int, d: int) -> None:
    x, y, _ = draw(seed, n, d)
    best = dropout_least_squares(x, y, q).requires_grad_()
    (gradient,) = torch.autograd.grad(expected_squared_error(x, y, best, q), best)
    scale = 1 + float(x.square().sum() + y.square().sum()) / (q / (1 - q))
    assert float(gradient.abs().max()) < 1e-10 * scale
    norms = x.square().sum(0).sqrt()
    unit = x / norms
    ridge = torch.linalg.solve(unit.T @ unit + q / (1 - q) * torch.eye(d, dtype=torch.float64), unit.T @ y) / norms
    torch.testing.assert_close(best.detach(), ridge, rtol=1e-8, atol=1e-10)


def test_rate_zero_is_least_squares() -> None:
    x, y, _ = draw(0, 9, 3)
    expected = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    torch.testing.assert_close(dropout_least_squares(x, y, 0.0), expected, rtol=1e-9, atol=1e-10)


@given(seed=SEEDS, q=RATES, n=st.integers(1, 4), d=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_gaussian_penalty_is_exactly_quadratic_and_matches_the_squared_error(
    seed: int, q: float, n: int, d: int
) -> None:
    x, y, w = draw(seed, n, d)
    exact = expected_penalty(x, w, q, "gaussian")
    torch.testing.assert_close(exact, quadratic_penalty(x, w, q, "gaussian"), rtol=1e-10, atol=1e-10)
    added = expected_squared_error(x, y, w, q) - (y - x @ w).square().sum()
    torch.testing.assert_close(2 * exact, added, rtol=1e-9, atol=1e-9)


@given(seed=SEEDS, q=RATES, n=st.integers(1, 4), d=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_poisson_penalty_has_a_product_form(seed: int, q: float, n: int, d: int) -> None:
    x, _, w = draw(seed, n, d)
    x = x.clamp(-1, 1) * (1 - q)
    expected = (q + (1 - q) * torch.exp(x * w / (1 - q))).prod(1) - torch.exp(x @ w)
    torch.testing.assert_close(expected_penalty(x, w, q, "poisson"), expected.sum(), rtol=1e-10, atol=1e-10)


@given(seed=SEEDS, q=RATES)
@settings(max_examples=30, deadline=None)
def test_bernoulli_penalty_is_the_expected_extra_loss_whatever_the_labels(seed: int, q: float) -> None:
    x, y, w = draw(seed, 2, 3)
    labels = (y > 0).double()
    extra = 0.0
    for bits in itertools.product([0, 1], repeat=3):
        mask = torch.tensor(bits, dtype=torch.float64)
        probability = (1 - q) ** float(mask.sum()) * q ** (3 - float(mask.sum()))
        logits = (x * mask / (1 - q)) @ w
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        extra += probability * float(loss)
    extra -= float(torch.nn.functional.binary_cross_entropy_with_logits(x @ w, labels, reduction="sum"))
    penalty = expected_penalty(x, w, q, "bernoulli")
    assert float(penalty) == pytest.approx(extra, rel=1e-10, abs=1e-10)
    assert float(penalty) >= 0


@pytest.mark.parametrize(("family", "expected_order"), [("poisson", 3), ("bernoulli", 4)])
@given(seed=SEEDS, q=st.floats(0.1, 0.4))
@settings(max_examples=15, deadline=None)
def test_the_quadratic_penalty_leaves_third_order_terms(family: str, expected_order: int, seed: int, q: float) -> None:
    """Order in the size of the contributions x β: 3 in general, 4 for the logistic family, whose A''' is 0 at 0.

    Row by row, since the sum over rows of terms of either sign can cancel at one of the scales.
    """
    x, _, w = draw(seed, 6, 4)
    sizes = []
    for scale in (2**-7, 2**-8):
        left = [
            expected_penalty(row, scale * w, q, family) - quadratic_penalty(row, scale * w, q, family)
            for row in x.split(1)
        ]
        sizes.append(float(torch.stack(left).abs().sum()))
    if sizes[1] > 1e-13:  # smaller, rounding is all that is seen
        assert math.log2(sizes[0] / sizes[1]) > expected_order - 0.6


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_at_fixed_weights_the_relative_error_does_not_vanish_with_the_rate(family: str) -> None:
    x, _, w = draw(3, 6, 4)
    relative = []
    for q in (1e-2, 1e-3, 1e-4):
        exact = float(expected_penalty(x, w, q, family))
        relative.append(abs(float(quadratic_penalty(x, w, q, family)) / exact - 1))
    assert relative[2] > 0.02
    assert relative[2] == pytest.approx(relative[1], rel=0.05)


def test_faults_are_named() -> None:
    x, y, w = draw(0, 4, 3)
    with pytest.raises(ArgumentError, match="rate is 1"):
        dropout_least_squares(x, y, 1.0)
    with pytest.raises(ModelError, match="zero column"):
        dropout_least_squares(torch.zeros(4, 3, dtype=torch.float64), y, 0.5)
    with pytest.raises(ModelError, match="too large to be squared"):
        dropout_least_squares((x * 1e25).float(), y.float(), 0.5)
    with pytest.raises(ArgumentError, match="family"):
        quadratic_penalty(x, w, 0.5, "gamma")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="weights"):
        expected_penalty(x, w[:2], 0.5, "gaussian")
    with pytest.raises(BudgetError, match=r"2\^30"):
        expected_penalty(torch.ones(1, 30), torch.ones(30), 0.5, "gaussian")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"targets": torch.zeros(4, 1).double()}, r"targets has shape \(4, 1\): expected \(4,\)"),
        ({"targets": torch.zeros(1).double()}, r"targets has shape \(1,\)"),
        ({"targets": torch.zeros(5).double()}, r"targets has shape \(5,\)"),
        ({"targets": torch.zeros(4)}, "targets is torch.float32 on cpu, the features torch.float64"),
        ({"targets": torch.tensor([0.0, math.nan, 0.0, 0.0]).double()}, "targets has a NaN or infinite entry in row 1"),
        ({"targets": [0.0] * 4}, "targets is a list"),
        ({"features": torch.full((4, 3), math.inf).double()}, "features has a NaN or infinite entry in row 0"),
        ({"features": torch.ones(4, 3, dtype=torch.int64)}, "features is torch.int64: expected float32 or float64"),
        ({"features": torch.zeros(0, 3).double()}, r"features has shape \(0, 3\)"),
        ({"weights": torch.zeros(3, 1).double()}, r"weights has shape \(3, 1\): expected \(3,\)"),
        ({"weights": torch.full((3,), math.nan).double()}, "weights has a NaN or infinite entry in row 0"),
    ],
)
def test_nothing_is_broadcast_converted_or_left_out(change: dict[str, Any], words: str) -> None:
    x, y, w = draw(0, 4, 3)
    given = {"features": x, "targets": y, "weights": w} | change
    x, y, w = given["features"], given["targets"], given["weights"]
    calls = {
        "targets": [lambda: expected_squared_error(x, y, w, 0.5), lambda: dropout_least_squares(x, y, 0.5)],
        "weights": [
            lambda: expected_squared_error(x, y, w, 0.5),
            lambda: expected_penalty(x, w, 0.5, "poisson"),
            lambda: quadratic_penalty(x, w, 0.5, "bernoulli"),
        ],
    }
    (changed,) = change
    for call in calls[changed] if changed in calls else calls["targets"] + calls["weights"]:
        with pytest.raises(DataError, match=words):
            call()
