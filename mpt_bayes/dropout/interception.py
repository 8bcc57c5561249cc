"""Every dropout call of a forward pass, found and replaced by multipliers that are given instead of drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from mpt_bayes.errors import ArgumentError, ModelError

_NOT_ELEMENTWISE = {
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
}


@final
@dataclass(frozen=True)
class Site:
    """One place of a forward pass where units are dropped.

    Attributes:
        rate: q, the probability of dropping a unit.
        shape: of the units of one datum, without the batch dimension.
    """

    rate: float
    shape: tuple[int, ...]

    @property
    def units(self) -> int:
        """Number of units that are dropped or kept on their own."""
        return int(torch.Size(self.shape).numel())


@final
class _Intercept(TorchFunctionMode):
    """Hands each active dropout call, in order, to `on_dropout(index, input, rate)`."""

    def __init__(self, on_dropout: Callable[[int, Tensor, float], Tensor]) -> None:
        super().__init__()
        self._on_dropout = on_dropout
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func is functional.dropout or func in _NOT_ELEMENTWISE:
            rate, training = _dropout_arguments(args, named)
            if training and rate > 0:
                if func in _NOT_ELEMENTWISE:
                    raise ModelError(f"the model calls {func.__name__}: only element-wise dropout can be enumerated")
                self.count += 1
                return self._on_dropout(self.count - 1, args[0] if args else named["input"], rate)
        elif func is functional.scaled_dot_product_attention and (args[4:5] or (named.get("dropout_p", 0.0),))[0] > 0:
            raise ModelError(
                "the model drops attention weights inside scaled_dot_product_attention, where they cannot be seen: "
                "load it with attn_implementation='eager'"
            )
        return func(*args, **named)


def _dropout_arguments(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[float, bool]:
    """(p, training) of a call of torch.nn.functional.dropout or one of its kin."""
    defaults = (None, 0.5, True)
    given = dict(zip(("input", "p", "training"), args, strict=False))
    merged = dict(zip(("input", "p", "training"), defaults, strict=True)) | given | named
    return float(merged["p"]), bool(merged["training"])


@contextmanager
def _dropping(module: nn.Module) -> Iterator[None]:
    """The module as in training, batch normalisation alone keeping its running statistics; its modes put back after."""
    modes = {part: part.training for part in module.modules()}
    try:
        for part in modes:
            part.training = not isinstance(part, nn.modules.batchnorm._BatchNorm)
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def dropout_sites(module: nn.Module, x: Tensor) -> tuple[Site, ...]:
    """The dropout calls of one forward pass, in order: nn.Dropout modules and torch.nn.functional.dropout alike.

    Args:
        module: any module called as module(x), the first dimension of x and of every dropped tensor being the batch.
        x: (B, …).

    Raises:
        ModelError: dropout that cannot be seen (inside fused attention or a recurrent layer), that is not element-wise,
            or random numbers of another kind.
        ArgumentError: a rate of 1, which leaves nothing.

    Example:
        >>> net = nn.Sequential(nn.Dropout(0.2), nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1))
        >>> [(site.rate, site.units) for site in dropout_sites(net, torch.zeros(1, 3))]
        [(0.2, 3), (0.5, 4)]
    """
    found: list[Site] = []

    def record(_: int, values: Tensor, rate: float) -> Tensor:
        if rate >= 1:
            raise ArgumentError(f"dropout rate is {rate:g}: expected less than 1, something has to be kept")
        if len(values) != len(x):
            raise ModelError(
                f"a dropped tensor has shape {tuple(values.shape)} for a batch of {len(x)}: the batch must come first"
            )
        found.append(Site(rate, tuple(values.shape[1:])))
        return values

    with _dropping(module), _Intercept(record), torch.no_grad():
        first = module(x)
        sites = tuple(found)
        second = module(x)
    if not torch.allclose(first, second, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise ModelError(
            "the model's outputs differ when nothing is dropped: it draws random numbers where they cannot be seen "
            "(nn.MultiheadAttention, recurrent layers); write that dropout with nn.Dropout, or set it to 0"
        )
    return sites


def forward_with(module: nn.Module, x: Tensor, sites: Sequence[Site], multipliers: Tensor) -> Tensor:
    """The module with its dropout multipliers given: one forward pass of the batch for each row of multipliers.

    Args:
        module: as for `dropout_sites`.
        x: (B, …).
        sites: from `dropout_sites(module, x)`.
        multipliers: (C, N) for the N units of all sites in order: 0 or 1/(1 - q) for dropout, 1 for none.

    Returns:
        (C, B, …) outputs.
    """
    count, batch = len(multipliers), len(x)
    parts = multipliers.split([site.units for site in sites], dim=1)

    def multiply(index: int, values: Tensor, _: float) -> Tensor:
        units: Tensor = parts[index].to(values).reshape(count, 1, *sites[index].shape)
        spread: Tensor = units.expand(count, batch, *sites[index].shape).reshape(values.shape)
        return values * spread

    repeated = x.unsqueeze(0).expand(count, *x.shape).reshape(count * batch, *x.shape[1:])
    with _dropping(module), _Intercept(multiply) as seen:
        output = module(repeated)
    if seen.count != len(sites):
        raise ModelError(
            f"the model called dropout {len(sites)} times, then {seen.count}: its path depends on the data"
        )
    shaped: Tensor = output.reshape(count, batch, *output.shape[1:])
    return shaped
