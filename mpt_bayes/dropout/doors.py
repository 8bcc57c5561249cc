"""Checks at the door of this part: rates, tables of finite numbers, modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mpt_bayes.checks import checked_tensor
from mpt_bayes.errors import ArgumentError, DataError, ModelError


def checked_rate(rate: float) -> float:
    """q in [0, 1), the probability of dropping, or an error."""
    if not 0 <= rate < 1:
        raise ArgumentError(f"rate is {rate}: expected a number in [0, 1)")
    return rate


def check_finite(values: Tensor, name: str) -> None:
    """Neither NaN nor infinite entries, or an error that names the first row with one.

    Raises:
        DataError: such an entry.

    Example:
        >>> check_finite(torch.tensor([0.0, torch.nan]), "targets")
        Traceback (most recent call last):
        mpt_bayes.errors.DataError: targets has a NaN or infinite entry in row 1: remove it or mend it
    """
    if values.is_floating_point() and not bool(values.isfinite().all()):
        row = int((~values.isfinite()).nonzero()[0, 0])
        raise DataError(f"{name} has a NaN or infinite entry in row {row}: remove it or mend it")


def check_table(name: str, values: Any, shape: tuple[int, ...], like: Tensor | None = None) -> None:
    """Finite float32 or float64 numbers of exactly this shape, of the dtype and on the device of `like`.

    Raises:
        DataError: anything else; nothing is broadcast, and no dtype converted.
    """
    checked_tensor(values, name)
    if values.dtype not in (torch.float32, torch.float64):
        raise DataError(f"{name} is {values.dtype}: expected float32 or float64, {name}.double()")
    if values.shape != shape:
        raise DataError(f"{name} has shape {tuple(values.shape)}: expected {shape}")
    if like is not None and (values.dtype, values.device) != (like.dtype, like.device):
        raise DataError(
            f"{name} is {values.dtype} on {values.device}, the features {like.dtype} on {like.device}: convert one"
        )
    check_finite(values, name)


def checked_module(module: Any, name: str = "module") -> nn.Module:
    """A torch module: its parts have training flags, which a plain function does not.

    Raises:
        ArgumentError: anything else.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"{name} is a {type(module).__name__}: expected a torch.nn.Module")
    return module


def checked_encoder(encoder: Any) -> nn.Module:
    """A Hugging Face model, by its configuration.

    Raises:
        ArgumentError: no module.
        ModelError: a module without a configuration.
    """
    checked_module(encoder, "encoder")
    if getattr(encoder, "config", None) is None:
        raise ModelError(f"{type(encoder).__name__} is no Hugging Face encoder: it has no config")
    return encoder  # type: ignore[no-any-return]
