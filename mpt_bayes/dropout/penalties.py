"""Dropout on the features of a linear model as an adaptive penalty: exact where it can be, second order elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mpt_bayes.checks import check_numbers, checked_rate, checked_tensor
from mpt_bayes.errors import ArgumentError, BudgetError, DataError, ModelError
from mpt_bayes.numerics.combinatorics import all_subsets, log_bernoulli

Family = Literal["gaussian", "bernoulli", "poisson"]


@dataclass(frozen=True)
class _Cumulant:
    """A(η) of an exponential family, log p(y | η) = yη - A(η) + const, and its second derivative."""

    value: Callable[[Tensor], Tensor]
    curvature: Callable[[Tensor], Tensor]


_FAMILIES: dict[str, _Cumulant] = {
    "gaussian": _Cumulant(lambda eta: eta.square() / 2, torch.ones_like),
    "bernoulli": _Cumulant(
        lambda eta: torch.logaddexp(eta, torch.zeros_like(eta)), lambda eta: eta.sigmoid() * (-eta).sigmoid()
    ),
    "poisson": _Cumulant(torch.exp, torch.exp),
}


def expected_squared_error(features: Tensor, targets: Tensor, weights: Tensor, rate: float) -> Tensor:
    """E_μ ‖y - X̃w‖² with X̃ = μ ∘ X / (1 - q), every entry of X dropped on its own. Exact.

        ‖y - Xw‖² + q/(1 - q) Σ_j w_j² Σ_i x_ij²

    Args:
        features: (n, d).
        targets: (n,).
        weights: (d,).
        rate: q in [0, 1).

    Returns:
        Scalar, in squared units of y, summed over the n rows.

    Raises:
        DataError: another shape (nothing is broadcast), dtype or device, or entries that are not finite; the other
            functions here likewise.

    Source: Srivastava et al. (2014); Wager, Wang & Liang (2013).

    Example:
        >>> expected_squared_error(torch.ones(2, 1), torch.zeros(2), torch.ones(1), 0.5)
        tensor(4.)
    """
    _check(features, rate, targets=targets, weights=weights)
    residual = targets - features @ weights
    return residual.square().sum() + _odds(rate) * (weights.square() * features.square().sum(0)).sum()


def dropout_least_squares(features: Tensor, targets: Tensor, rate: float) -> Tensor:
    """(d,) the minimiser of `expected_squared_error`: (XᵀX + q/(1 - q) diag(XᵀX))⁻¹ Xᵀy, ridge scaled by each column.

    Equal to scaling the columns to unit length, ridge with penalty q/(1 - q), and scaling back.

    Args:
        features: (n, d), targets: (n,), rate: q in [0, 1).

    Raises:
        ModelError: XᵀX is singular and nothing is dropped, or a column of X is zero: the minimiser is not unique;
            or XᵀX overflows.

    Example:
        >>> dropout_least_squares(torch.eye(2), torch.tensor([1.0, 2.0]), 0.5)
        tensor([0.5000, 1.0000])
    """
    _check(features, rate, targets=targets)
    gram = features.T @ features
    factor, info = torch.linalg.cholesky_ex(gram + _odds(rate) * torch.diag(gram.diagonal()))
    if int(info) != 0:
        raise ModelError(
            f"no unique minimiser at rate {rate:g}: features has a zero column or dependent columns (drop one of them) "
            "or entries too large to be squared (scale them down)"
        )
    return torch.cholesky_solve((features.T @ targets)[:, None], factor)[:, 0]


def expected_penalty(
    features: Tensor, weights: Tensor, rate: float, family: Family, *, max_masks: int = 2**20
) -> Tensor:
    """R(β) = Σ_i E_μ[A(x̃_i·β)] - A(x_i·β): what dropout adds to the negative log-likelihood of a GLM. Exact, in nats.

    The data y do not enter, since E x̃ = x. Taken over all 2^d masks of a row; masks are independent over rows.

    Args:
        features: (n, d), weights: (d,), rate: q in [0, 1).
        family: "gaussian" (unit variance), "bernoulli" (logistic) or "poisson" (log link).
        max_masks: refuse above this number of masks.

    Raises:
        BudgetError: 2^d masks exceed `max_masks`.

    Source: Wager, Wang & Liang (2013).

    Example:
        >>> x = torch.tensor([[1.0, -2.0], [0.5, 1.0]])
        >>> round(float(expected_penalty(x, torch.ones(2), 0.5, "gaussian")), 6)
        3.125
    """
    _check(features, rate, weights=weights)
    dim = features.shape[1]
    if 2**dim > max_masks:
        raise BudgetError(
            f"{dim} features have 2^{dim} masks, above the budget max_masks={max_masks}: use quadratic_penalty, "
            "or raise max_masks"
        )
    cumulant = _family(family)
    kept = all_subsets(dim).to(features.device)
    probability = log_bernoulli(kept, 1 - rate).exp().to(features.dtype)
    scale = kept.to(features.dtype) / (1 - rate)
    expected = torch.stack([probability @ cumulant.value(scale @ (row * weights)) for row in features])
    return (expected - cumulant.value(features @ weights)).sum()


def quadratic_penalty(features: Tensor, weights: Tensor, rate: float, family: Family) -> Tensor:
    """½ q/(1 - q) βᵀ diag(Xᵀ V(β) X) β, V = A''(Xβ): the second-order approximation of `expected_penalty`, in nats.

    Exact for the Gaussian family. Elsewhere the remainder is of third order in the contributions x_ij β_j (fourth for
    the logistic family about β = 0, whose A''' vanishes there); it is NOT of higher order in q at fixed β.

    Source: Wager, Wang & Liang (2013).

    Example:
        >>> x = torch.tensor([[1.0, -2.0], [0.5, 1.0]])
        >>> round(float(quadratic_penalty(x, torch.ones(2), 0.5, "gaussian")), 6)
        3.125
    """
    _check(features, rate, weights=weights)
    curvature = _family(family).curvature(features @ weights)
    return 0.5 * _odds(rate) * (weights.square() * (curvature @ features.square())).sum()


def _odds(rate: float) -> float:
    """q/(1 - q), the variance of a multiplier."""
    return rate / (1 - rate)


def _family(name: str) -> _Cumulant:
    if name not in _FAMILIES:
        raise ArgumentError(f"family is {name!r}: expected one of {', '.join(map(repr, _FAMILIES))}")
    return _FAMILIES[name]


def _check(features: Tensor, rate: float, *, targets: Tensor | None = None, weights: Tensor | None = None) -> None:
    checked_rate(rate)
    if checked_tensor(features, "features").ndim != 2 or features.numel() == 0:
        raise DataError(f"features has shape {tuple(features.shape)}: expected (n, d), with at least one entry")
    n, dim = features.shape
    _check_table("features", features, (n, dim))
    if targets is not None:
        _check_table("targets", targets, (n,), like=features)
    if weights is not None:
        _check_table("weights", weights, (dim,), like=features)


def _check_table(name: str, values: Any, shape: tuple[int, ...], like: Tensor | None = None) -> None:
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
    check_numbers(values, name)
