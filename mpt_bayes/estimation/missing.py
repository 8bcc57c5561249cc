"""Missing entries: rows grouped by what is observed, each group with the exact marginal model of that part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models.base import ConditionalModel, JointModel, restrict

Missing = Literal["error", "marginalise"]


@dataclass(frozen=True)
class ObservedPart:
    """Rows that share their observed coordinates, with the model of those coordinates.

    `key` names the part, empty when there is only one: each part draws its masks from a stream of its own.
    """

    rows: Tensor
    coordinates: Tensor
    x: Tensor
    model: ConditionalModel
    key: tuple[int, ...] = ()


def observed_parts(model: ConditionalModel, x: Tensor, missing: Missing) -> Iterator[ObservedPart]:
    """The data as parts without missing entries. Rows with nothing observed belong to no part: they contribute 0.

    Raises:
        DataError: `missing="marginalise"` with a model that has no joint distribution, or nothing observed at all.
        ArgumentError: another value of `missing`.
    """
    if missing not in ("error", "marginalise"):
        raise ArgumentError(f"missing is {missing!r}: expected 'error' or 'marginalise'")
    present = ~x.isnan() if x.is_floating_point() and x.ndim == 2 else torch.ones_like(x, dtype=torch.bool)
    if missing == "error" or bool(present.all()) or x.shape[1] != model.dim:
        everything = torch.arange(model.dim, device=x.device)
        yield ObservedPart(torch.arange(len(x), device=x.device), everything, x, model)  # the model's door names faults
        return
    if not isinstance(model, JointModel):
        raise DataError("missing entries can be marginalised only by a joint model: drop the rows that have them")
    if not bool(present.any()):
        raise DataError("every entry of x is missing: there is nothing to score")
    patterns, index = present.unique(dim=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        keep = pattern.nonzero()[:, 0]
        rows = (index == i).nonzero()[:, 0]
        if len(keep):
            part = model if len(keep) == model.dim else restrict(model, keep)
            yield ObservedPart(rows, keep, x[rows][:, keep], part, (i,) if len(patterns) > 1 else ())


def data_digest(x: Tensor) -> str:
    """SHA-256 of the data, its shape and its dtype."""
    data = x.detach().cpu().contiguous()
    return hashlib.sha256(repr((tuple(data.shape), str(data.dtype))).encode() + data.numpy().tobytes()).hexdigest()
