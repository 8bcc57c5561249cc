"""What tells one table of data from another."""

from __future__ import annotations

import hashlib

from torch import Tensor


def data_digest(x: Tensor) -> str:
    """SHA-256 of the data, its shape and its dtype."""
    data = x.detach().cpu().contiguous()
    digest = hashlib.sha256(repr((tuple(data.shape), str(data.dtype))).encode())
    digest.update(data.numpy().data)
    return digest.hexdigest()
