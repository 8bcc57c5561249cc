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

from mpt_bayes.checks import check_numbers, checked_rows
from mpt_bayes.dropout.modules import checked_module
from mpt_bayes.errors import ArgumentError, DataError, ModelError

_ELEMENTWISE = {functional.dropout, torch.dropout, torch.dropout_}
_NOT_ELEMENTWISE = {
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    torch.alpha_dropout,
    torch.feature_alpha_dropout,
    torch.feature_dropout,
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
        if func in _ELEMENTWISE or func in _NOT_ELEMENTWISE:
            values, rate, training, in_place = _dropout_arguments(args, named)
            if training and rate > 0:
                if func in _NOT_ELEMENTWISE:
                    raise ModelError(f"the model calls {func.__name__}: only element-wise dropout can be enumerated")
                self.count += 1
                dropped = self._on_dropout(self.count - 1, values, rate)
                return values.copy_(dropped) if in_place or func is torch.dropout_ else dropped
        elif func is functional.scaled_dot_product_attention and (args[4:5] or (named.get("dropout_p", 0.0),))[0] > 0:
            raise ModelError(
                "the model drops attention weights inside scaled_dot_product_attention, where they cannot be seen: "
                "load it with attn_implementation='eager'"
            )
        return func(*args, **named)


def _dropout_arguments(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, float, bool, bool]:
    """(input, p, training, inplace) of a call of torch.nn.functional.dropout or one of its kin; torch's own say
    train."""
    given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | named
    training = given.get("training", given.get("train", True))
    return given["input"], float(given.get("p", 0.5)), bool(training), bool(given.get("inplace", False))


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """The training flag of every part is put back after.

    Raises:
        ArgumentError: no torch module.
    """
    modes = {part: part.training for part in checked_module(module).modules()}
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


@contextmanager
def _dropping(module: nn.Module) -> Iterator[None]:
    """The module as in training, batch and instance normalisation alone keeping their running statistics."""
    with modes_kept(module):
        for part in module.modules():
            part.training = not isinstance(part, nn.modules.batchnorm._NormBase)
        yield


def check_batch(x: Tensor) -> None:
    """At least one row of finite numbers.

    Raises:
        DataError: x is no tensor, has no rows, or entries that are not finite.
    """
    if len(checked_rows(x)) == 0:
        raise DataError("x has no rows: pass at least one datum")
    check_numbers(x, "x")


def checked_output(module: nn.Module, x: Tensor) -> Tensor:
    """module(x): one tensor of real numbers, batch first.

    Raises:
        ModelError: a module that returns something else.
    """
    output, kind = module(x), type(module).__name__
    if not isinstance(output, Tensor) or not output.is_floating_point():
        returned = output.dtype if isinstance(output, Tensor) else f"a {type(output).__name__}"
        raise ModelError(f"{kind} returns {returned}: wrap it in a module that returns one tensor of real numbers")
    if output.ndim == 0 or len(output) != len(x):
        raise ModelError(
            f"{kind} returns shape {tuple(output.shape)} for x of shape {tuple(x.shape)}: the batch must come first"
        )
    return output


def dropout_sites(module: nn.Module, x: Tensor) -> tuple[Site, ...]:
    """The dropout calls of one forward pass, in order: nn.Dropout, functional.dropout and torch.dropout alike.

    Args:
        module: any module called as module(x), the first dimension of x and of every dropped tensor being the batch.
        x: (B, …).

    Raises:
        ModelError: dropout that cannot be seen (inside fused attention or a recurrent layer), that is not element-wise,
            or random numbers of another kind; rows of a batch that depend on each other, as by batch normalisation
            without running statistics; a module that does not return one tensor, batch first.
        DataError: x is no tensor, is empty, or has entries that are not finite.
        ArgumentError: no torch module; a rate of 1, which leaves nothing.

    Example:
        >>> net = nn.Sequential(nn.Dropout(0.2), nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1))
        >>> [(site.rate, site.units) for site in dropout_sites(net, torch.zeros(1, 3))]
        [(0.2, 3), (0.5, 4)]
    """
    found: list[Site] = []

    def record(_: int, values: Tensor, rate: float) -> Tensor:
        """Notes what a dropout layer would drop, and drops nothing."""
        if rate >= 1:
            raise ArgumentError(f"dropout rate is {rate:g}: expected less than 1, something has to be kept")
        if len(values) != len(x):
            raise ModelError(
                f"a dropped tensor has shape {tuple(values.shape)} for a batch of {len(x)}: the batch must come first"
            )
        found.append(Site(rate, tuple(values.shape[1:])))
        return values

    check_batch(x)
    with _dropping(module), _Intercept(record), torch.no_grad():
        first = checked_output(module, x)
        sites = tuple(found)
        second = module(x)
    if not torch.allclose(first, second, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise ModelError(
            "the model's outputs differ when nothing is dropped: it draws random numbers where they cannot be seen "
            "(nn.MultiheadAttention, recurrent layers); write that dropout with nn.Dropout, or set it to 0"
        )
    _check_rows_apart(module, x, sites, first.detach())
    return sites


def _check_rows_apart(module: nn.Module, x: Tensor, sites: Sequence[Site], expected: Tensor) -> None:
    """The batch through the whole network is what it is alone, with everything dropped in other rows beside it."""
    units = sum(site.units for site in sites)
    whole_and_nothing = torch.stack([torch.ones(units), torch.zeros(units)]).to(expected)
    with torch.no_grad():
        beside = forward_with(module, x, sites, whole_and_nothing)[0]
    sizes = expected[expected.isfinite()].abs()
    rounding = torch.finfo(expected.dtype).eps ** 0.5 * float(sizes.max() if len(sizes) else 0.0)
    if not torch.allclose(beside, expected, rtol=0, atol=rounding, equal_nan=True):
        raise ModelError(
            f"rows of a batch of {type(module).__name__} depend on each other, as by batch normalisation without "
            "running statistics: sub-networks cannot be run side by side; take what mixes rows out of the module"
        )


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

    repeated = x.repeat(count, *[1] * (x.ndim - 1))
    with _dropping(module), _Intercept(multiply) as seen:
        output = module(repeated)
    if seen.count != len(sites):
        raise ModelError(
            f"the model called dropout {len(sites)} times, then {seen.count}: its path depends on the data"
        )
    shaped: Tensor = output.reshape(count, batch, *output.shape[1:])
    return shaped
