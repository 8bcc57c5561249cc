"""Rates and fractions as a user writes them: any sequence, array or tensor of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError


def listed(values: Any, name: str, limits: str) -> list[float]:
    """A list of what was given; whoever uses an entry checks it.

    Raises:
        ArgumentError: one number, text, or no sequence at all.

    Example:
        >>> listed(torch.tensor([0.1, 0.5]), "rates", "(0, 1]")
        [0.1, 0.5]
    """
    if isinstance(values, np.ndarray):
        values = torch.as_tensor(values) if values.dtype in (np.float16, np.float32) else values.tolist()
    if isinstance(values, Tensor):
        values = [_as_written(value) for value in values] if values.ndim == 1 else values.tolist()
    if isinstance(values, float | int):
        raise ArgumentError(f"{name} is {values}: expected a list, [{values}]")
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentError(f"{name} is {values!r}: expected a list of numbers in {limits}, e.g. [0.15, 0.5]")
    return list(values)


def _as_written(value: Tensor) -> float:
    """The shortest decimal that the number stands for in its own precision: 0.1 in float32 too, not 0.10000000149."""
    exact = float(value)
    decimals = (float(f"{exact:.{digits}g}") for digits in range(1, 18))
    return next((decimal for decimal in decimals if value == value.new_tensor(decimal)), exact)
