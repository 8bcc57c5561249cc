"""Missing entries: rows grouped by what is observed, each group with the exact marginal model of that part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.checks import Missing, check_infinite, check_width, checked_missing, checked_tensor, observed_patterns
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models.base import ConditionalModel, JointModel
from mpt_bayes.models.checked_calls import checked_dim
from mpt_bayes.models.marginals import restrict


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


def checked_model(model: Any, name: str = "model") -> ConditionalModel:
    """A model of this library's kind, or an error that says what it is instead.

    Raises:
        ArgumentError: anything else, a class in place of its instance too.
        ModelError: `dim` is no number of coordinates.
    """
    if not isinstance(model, ConditionalModel):
        found = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise ArgumentError(
            f"{name} is {found}: expected an instance of a model of mpt_bayes.models or of your own "
            "ConditionalModel or JointModel; a GPyTorch model becomes one by GaussianProcess(model)"
        )
    checked_dim(model, name)
    return model


def check_doors(model: Any, x: Any) -> None:
    """What every estimator asks of its two arguments before it uses either.

    Raises:
        ArgumentError, ModelError: as `checked_model`.
        DataError: as `checked_tensor` and `check_width`.
    """
    checked_model(model)
    check_width(checked_tensor(x), model.dim)


def observed_parts(model: ConditionalModel, x: Tensor, missing: Missing) -> Iterator[ObservedPart]:
    """The data as parts without missing entries. Rows with nothing observed belong to no part: they contribute 0.

    Raises:
        DataError: `missing="marginalise"` with a model that has no joint distribution, or nothing observed at all.
        ArgumentError: another value of `missing`.
    """
    checked_missing(missing)
    if missing == "error" or not bool(x.isnan().any()):
        everything = torch.arange(model.dim, device=x.device)
        yield ObservedPart(torch.arange(len(x), device=x.device), everything, x, model)  # the model's door names NaN
        return
    if not isinstance(model, JointModel):
        raise DataError("missing entries can be marginalised only by a joint model: drop the rows that have them")
    check_infinite(x)
    groups = list(observed_patterns(x))
    if not groups:
        raise DataError("every entry of x is missing: there is nothing to score")
    for i, (rows, keep) in enumerate(groups):
        part = model if len(keep) == model.dim else restrict(model, keep)
        yield ObservedPart(rows, keep, x[rows][:, keep], part, (i,) if len(groups) > 1 else ())
