"""Checks of modules: any, and Hugging Face encoders."""

from __future__ import annotations

from typing import Any

from torch import nn

from mpt_bayes.errors import ArgumentError, ModelError


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
