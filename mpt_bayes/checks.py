"""Checks at the door: shapes, types, devices, missing and infinite entries. One clear line for each fault."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError, DataError

Missing = Literal["error", "marginalise"]
"""What a NaN entry means: a fault in the data, or a value to integrate out exactly."""


def named(value: Any) -> str:
    """A value as messages show it: one of this library's with its module, since designs and objectives share names.

    Example:
        >>> named(64)
        '64'
    """
    module = type(value).__module__
    return f"{module}.{value!r}" if module.startswith("mpt_bayes.") else repr(value)


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "row"), counted(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


def checked_tensor(x: Any, name: str = "x") -> Tensor:
    """A tensor of real numbers, or an error that says how to make one.

    Raises:
        DataError: an array, a list, a data frame or anything else that is no tensor; complex numbers.
    """
    if not isinstance(x, Tensor):
        raise DataError(f"{name} is a {type(x).__name__}: pass a tensor, torch.as_tensor(numpy.asarray({name}))")
    if x.is_complex():
        raise DataError(f"{name} is {str(x.dtype).removeprefix('torch.')}: expected real numbers")
    return x


def checked_rows(x: Any, name: str = "x") -> Tensor:
    """A tensor of at least one dimension, that of its rows.

    Raises:
        DataError: as `checked_tensor`, or a single number.
    """
    rows = checked_tensor(x, name)
    if rows.ndim == 0:
        raise DataError(f"{name} is a single number: expected rows, (N, D); for one datum pass {name}.reshape(1, -1)")
    return rows


def check_tensors(**values: Any) -> None:
    """Every one of the named values is a tensor of real numbers.

    Raises:
        DataError: as `checked_tensor`.

    Example:
        >>> check_tensors(mean=[0.0, 1.0])
        Traceback (most recent call last):
        mpt_bayes.errors.DataError: mean is a list: pass a tensor, torch.as_tensor(numpy.asarray(mean))
    """
    for name, value in values.items():
        checked_tensor(value, name)


def checked_data(x: Tensor, dim: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The data as an (N, D) tensor of the model's dtype, or an error that names what is wrong.

    Raises:
        DataError: no tensor, complex numbers, wrong shape, an empty table, a device other than the model's, NaN or
            infinite entries (row named).
    """
    checked_tensor(x)
    check_width(x, dim)
    if x.device != device:
        raise DataError(f"x is on {x.device} but the model is on {device}: move one of them with .to(...)")
    if x.is_floating_point():
        if not bool(x.sum().isfinite()):  # one pass; a sum that overflows has no bad entry and passes what follows
            check_infinite(x)
            _check_present(x)
        if not dtype.is_floating_point:
            _check_whole(x)
    return x.to(dtype)


def check_width(x: Tensor, dim: int, name: str = "x") -> None:
    """At least one row of `dim` columns.

    Raises:
        DataError: any other shape.
    """
    if x.ndim != 2:
        raise DataError(
            f"{name} has shape {tuple(x.shape)}: expected (N, {dim}); for one datum pass {name}.reshape(1, -1)"
        )
    if x.shape[1] != dim:
        hint = "; the outputs of a Gaussian process are coordinates of one datum: pass y.reshape(1, -1)"
        raise DataError(
            f"{name} has {x.shape[1]} columns but the model has {dim} coordinates"
            + (hint if x.shape[1] == 1 and x.shape[0] == dim else "")
        )
    if x.shape[0] == 0:
        raise DataError(f"{name} has no rows: pass at least one datum")


def checked_table(x: Tensor) -> Tensor:
    """(N, D) data to fit a model to, in float64.

    Raises:
        DataError: as `checked_data`; D is whatever x has.
    """
    checked_tensor(x)
    return checked_data(x, x.shape[-1] if x.ndim else 0, dtype=torch.float64, device=x.device)


def check_infinite(x: Tensor, name: str = "x") -> None:
    """Infinite entries are never missing ones: an error that names the first row."""
    infinite = x.isinf().any(1)
    if bool(infinite.any()):
        raise DataError(f"{name} has an infinite entry in row {int(infinite.nonzero()[0])}: remove it or mend it")


def check_complete(x: Tensor, work: str, name: str = "x") -> None:
    """A missing entry is an error that names its row, for work that cannot integrate it out.

    Raises:
        DataError: no tensor, or a NaN.
    """
    checked_tensor(x, name)
    if x.ndim != 2:
        return  # the model's door names the shape
    missing = x.isnan().any(1)
    if bool(missing.any()):
        raise DataError(
            f"{name} has a missing entry (NaN) in row {_first_of(missing)}: "
            f"{work} takes complete rows only; drop those rows, or score each model by itself, compare(..., "
            "missing='marginalise')"
        )


def checked_missing(missing: Missing) -> Missing:
    """One of the two things a NaN can mean, or an error that names both."""
    if missing not in ("error", "marginalise"):
        raise ArgumentError(f"missing is {missing!r}: expected 'error' or 'marginalise'")
    return missing


def observed_patterns(x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows, columns) of each group of rows of (N, D) data that share their observed columns.

    Rows with nothing observed belong to no group.
    """
    patterns, index = (~x.isnan()).unique(dim=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        if bool(pattern.any()):
            yield (index == i).nonzero()[:, 0], pattern.nonzero()[:, 0]


def _check_present(x: Tensor) -> None:
    missing = x.isnan().any(1)
    if bool(missing.any()):
        raise DataError(
            f"x has a missing entry (NaN) in row {_first_of(missing)}: "
            "pass missing='marginalise' (command line: --missing marginalise) to integrate them out, or drop those rows"
        )


def _first_of(rows: Tensor) -> str:
    """The first of the rows marked, and how many of them there are."""
    return f"{int(rows.nonzero()[0])} ({int(rows.sum())} of {len(rows)} rows affected)"


def _check_whole(x: Tensor) -> None:
    fractional = (x != x.round()).any(1)
    if bool(fractional.any()):
        row = int(fractional.nonzero()[0])
        raise DataError(f"x has a non-integer entry in row {row}: this model takes integer categories")


def checked_subsets(subsets: Tensor, dim: int, name: str, device: torch.device) -> Tensor:
    """A (P, D) boolean tensor of coordinate subsets, or an error that names the argument."""
    if subsets.dtype != torch.bool or subsets.ndim != 2 or subsets.shape[1] != dim:
        raise ArgumentError(
            f"{name} has shape {tuple(subsets.shape)} and dtype {subsets.dtype}: expected (P, {dim}) torch.bool"
        )
    if subsets.device != device:
        raise ArgumentError(f"{name} is on {subsets.device} but the model is on {device}: move it with .to(...)")
    return subsets


def checked_hidden(hidden: Tensor, dim: int, device: torch.device) -> Tensor:
    """A (P, D) boolean mask tensor, True = hidden, each row hiding at least one coordinate."""
    checked_subsets(hidden, dim, "hidden", device)
    empty = ~hidden.any(1)
    if bool(empty.any()):
        raise ArgumentError(f"hidden row {int(empty.nonzero()[0])} hides nothing: a mask hides at least one coordinate")
    return hidden


def checked_orders(orders: Tensor, dim: int, device: torch.device) -> Tensor:
    """(n, D) int64 orders of the coordinates, each row a permutation of 0..D-1."""
    checked_tensor(orders, "orders")
    if orders.dtype != torch.int64 or orders.ndim != 2 or orders.shape[1] != dim or len(orders) == 0:
        raise ArgumentError(
            f"orders has shape {tuple(orders.shape)} and dtype {orders.dtype}: expected (n, {dim}) torch.int64, n ≥ 1"
        )
    if orders.device != device:
        raise ArgumentError(f"orders is on {orders.device} but the model is on {device}: move it with .to(...)")
    seen = torch.zeros_like(orders, dtype=torch.bool).scatter_(1, orders.clamp(0, dim - 1), True)
    bad = ((orders < 0) | (orders >= dim) | ~seen).any(1)
    if bool(bad.any()):
        raise ArgumentError(f"orders row {int(bad.nonzero()[0])} is not a permutation of 0..{dim - 1}")
    return orders


def checked_count(value: int, name: str, minimum: int = 1) -> int:
    """An integer of at least `minimum`, or an error that names the argument."""
    try:
        value = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}: expected an integer") from None
    if value < minimum:
        raise ArgumentError(f"{name} is {value}: expected at least {minimum}")
    return value


def checked_seed(seed: int) -> int:
    """A seed as a plain integer of at least 0, so that numpy's 3 draws what 3 draws: streams hash it.

    Raises:
        ArgumentError: anything else.
    """
    return int(checked_count(seed, "seed", 0))


def checked_positive(value: float, name: str) -> float:
    """A finite number above 0, or an error that names the argument."""
    if not isinstance(value, Real) or not (value > 0 and math.isfinite(value)):
        raise ArgumentError(f"{name} is {value!r}: expected a positive number")
    return value


def checked_rate(rate: float) -> float:
    """q in [0, 1), the probability of dropping, or an error."""
    if not 0 <= rate < 1:
        raise ArgumentError(f"rate is {rate}: expected a number in [0, 1)")
    return rate


def check_numbers(values: Tensor, name: str) -> None:
    """Neither NaN nor infinite entries, or an error that names the first row with one.

    Raises:
        DataError: such an entry.

    Example:
        >>> check_numbers(torch.tensor([0.0, torch.nan]), "targets")
        Traceback (most recent call last):
        mpt_bayes.errors.DataError: targets has a NaN or infinite entry in row 1: remove it or mend it
    """
    if values.is_floating_point() and not bool(values.isfinite().all()):
        row = int((~values.isfinite()).nonzero()[0, 0])
        raise DataError(f"{name} has a NaN or infinite entry in row {row}: remove it or mend it")


def checked_list(values: Any, name: str, limits: str) -> list[float]:
    """Rates and fractions from any sequence, array or tensor of numbers; whoever uses an entry checks it.

    Raises:
        ArgumentError: one number, text, or no sequence at all.

    Example:
        >>> checked_list(torch.tensor([0.1, 0.5]), "rates", "(0, 1]")
        [0.1, 0.5]
    """
    if isinstance(values, Tensor):
        values = values.numpy(force=True)
    if isinstance(values, np.ndarray):
        # str is the shortest decimal of a number in its own precision: 0.1 in float32 too, not 0.10000000149
        values = (
            [float(str(value)) for value in values] if (values.ndim, values.dtype.kind) == (1, "f") else values.tolist()
        )
    if isinstance(values, float | int):
        raise ArgumentError(f"{name} is {values}: expected a list, [{values}]")
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentError(f"{name} is {values!r}: expected a list of numbers in {limits}, e.g. [0.15, 0.5]")
    return list(values)


def check_result(result: Any, kind: type, taker: str) -> None:
    """The result that a figure or table is of.

    Raises:
        ArgumentError: anything else.

    Example:
        >>> check_result("wine", dict, "plot_sweep")
        Traceback (most recent call last):
        mpt_bayes.errors.ArgumentError: plot_sweep takes a result of the kind dict: found str
    """
    if not isinstance(result, kind):
        raise ArgumentError(f"{taker} takes a result of the kind {kind.__name__}: found {type(result).__name__}")
