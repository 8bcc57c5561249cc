"""What tells one table of data, or one set of parameters, from another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from torch import Tensor


def data_digest(x: Tensor) -> str:
    """SHA-256 of the data, its shape and its dtype."""
    data = x.detach().cpu().contiguous()
    digest = hashlib.sha256(repr((tuple(data.shape), str(data.dtype))).encode())
    digest.update(data.numpy().data)
    return digest.hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors and their names, in their order."""
    parts = [(name, data_digest(tensor)) for name, tensor in tensors.items()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()
