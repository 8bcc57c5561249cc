"""Calls of a model's methods, their results checked at the one place where they enter: anybody's subclass may be asked.

A tensor of another shape would be broadcast, one of integers truncated, and a score at a visible coordinate counted.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.errors import ModelError
from mpt_bayes.models.base import (
    ConditionalModel,
    HasExactCurve,
    HasOrderCurve,
    HasOrderTotals,
    JointModel,
    OrderTotals,
)


def checked_dim(model: ConditionalModel, name: str = "model") -> int:
    """D of a model, an integer of at least 1.

    Raises:
        ModelError: anything else, a method in place of a property too.
    """
    dim: Any = model.dim
    try:
        number = operator.index(dim)
    except TypeError:
        found = "a method: put @property above it" if callable(dim) else f"{dim!r}: expected an integer"
        raise ModelError(f"dim of {name} ({type(model).__name__}) is {found}") from None
    if number < 1:
        raise ModelError(f"dim of {name} ({type(model).__name__}) is {number}: expected at least 1")
    return number


def checked_masked_log_prob(model: ConditionalModel, x: Tensor, hidden: Tensor) -> Tensor:
    """(N, P, D) of `masked_log_prob`, 0 where visible, whatever the model leaves there.

    Raises:
        ModelError: a result that is no floating-point tensor of that shape and place.
    """
    result = model.masked_log_prob(x, hidden)
    expected = {"rows": len(x), "masks": len(hidden), "coordinates": model.dim}
    return torch.where(hidden, _checked(result, expected, model, "masked_log_prob", x), 0)


def checked_log_marginal_likelihood(model: JointModel, x: Tensor) -> Tensor:
    """(N,) of `log_marginal_likelihood`.

    Raises:
        ModelError: as `checked_masked_log_prob`.
    """
    return _checked(model.log_marginal_likelihood(x), {"rows": len(x)}, model, "log_marginal_likelihood", x)


def checked_marginal_log_prob(model: JointModel, x: Tensor, visible: Tensor) -> Tensor:
    """(N, P) of `marginal_log_prob`.

    Raises:
        ModelError: as `checked_masked_log_prob`.
    """
    expected = {"rows": len(x), "subsets": len(visible)}
    return _checked(model.marginal_log_prob(x, visible), expected, model, "marginal_log_prob", x)


def checked_order_curve(model: HasOrderCurve, x: Tensor, orders: Tensor) -> Tensor:
    """(N, n, D) of `order_curve`.

    Raises:
        ModelError: as `checked_masked_log_prob`.
    """
    expected = {"rows": len(x), "orders": len(orders), "coordinates": orders.shape[1]}
    return _checked(model.order_curve(x, orders), expected, model, "order_curve", x)


def checked_order_totals(model: HasOrderTotals, x: Tensor, orders: Tensor, *, per_row: bool) -> OrderTotals:
    """What `order_totals` gives; with each row's total where asked for.

    Raises:
        ModelError: as `checked_masked_log_prob`.
    """
    result: Any = model.order_totals(x, orders, per_row=per_row)
    if not isinstance(result, OrderTotals):
        raise ModelError(f"{_call(model, 'order_totals')} returned {_kind(result)}: expected OrderTotals")
    expected = {"orders": len(orders), "coordinates": orders.shape[1]}
    _checked(result.curves, expected, model, "order_totals", x, " as curves")
    if per_row:
        _checked(result.per_row, {"rows": len(x)}, model, "order_totals", x, " as per_row")
    return result


def checked_exact_curve(model: HasExactCurve, x: Tensor) -> Tensor:
    """(N, D) of `exact_curve`.

    Raises:
        ModelError: as `checked_masked_log_prob`.
    """
    return _checked(model.exact_curve(x), {"rows": len(x), "coordinates": x.shape[1]}, model, "exact_curve", x)


def _checked(result: Any, expected: dict[str, int], model: object, method: str, x: Tensor, part: str = "") -> Tensor:
    """A floating-point tensor of the expected shape beside the data, or an error that says what came instead."""
    shape, device = tuple(expected.values()), x.device
    if isinstance(result, Tensor) and result.shape == shape and result.is_floating_point() and result.device == device:
        return result
    found = _kind(result)
    if isinstance(result, Tensor):
        found = f"shape {tuple(result.shape)}, {str(result.dtype).removeprefix('torch.')} on {result.device}"
    raise ModelError(
        f"{_call(model, method)} returned {found}{part}: expected a floating-point tensor of shape {shape} "
        f"({' × '.join(expected)}) on {device}"
    )


def _call(model: object, method: str) -> str:
    return f"{type(model).__name__}.{method}"


def _kind(result: object) -> str:
    return "None (is a return missing?)" if result is None else f"a {type(result).__name__}"
