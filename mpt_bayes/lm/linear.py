"""Linear layers on the CPU through oneDNN.

PyTorch multiplies float32 matrices with MKL, which on processors that are not Intel's reaches half of oneDNN's speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode


@final
class OneDnnLinear(TorchFunctionMode):
    """Inside, float32 linear layers on the CPU run in oneDNN, as bfloat16 ones do anyway. Same formula, other rounding.

    The operator is the one that torch.compile emits. It has no gradient, so this is for inference only. What it is not
    made for goes the usual way, as does everything where the operator is missing or fails a comparison.

    Example:
        >>> layer, x = torch.nn.Linear(8, 4), torch.ones(2, 3, 8)
        >>> with torch.inference_mode(), OneDnnLinear():
        ...     fast = layer(x)
        >>> bool(torch.allclose(fast, layer(x), atol=1e-6))
        True
    """

    def __init__(self) -> None:
        super().__init__()
        self._available = available()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """`linear` in oneDNN where it fits; any other function as it is."""
        if func is linear and not kwargs and self._available and _fits(*args):
            return _one_dnn(*args)
        return func(*args, **(kwargs or {}))


@cache
def available() -> bool:
    """Whether this build of PyTorch has the operator, and it agrees with `linear` on a small case."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    x, weight = torch.linspace(-1, 1, 24).reshape(2, 3, 4), torch.linspace(-1, 2, 20).reshape(5, 4)
    with torch.inference_mode():
        try:
            pairs = [(_one_dnn(x, weight, b), linear(x, weight, b)) for b in (None, torch.arange(5.0))]
        except (RuntimeError, TypeError):
            return False
    return all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in pairs)


def _fits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    plain = all(t is None or (t.dtype == torch.float32 and t.device.type == "cpu") for t in (x, weight, bias))
    return plain and x.ndim >= 2 and weight.ndim == 2 and x.numel() > 0


def _one_dnn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight.contiguous(), bias, "none", [], "")
    return result
