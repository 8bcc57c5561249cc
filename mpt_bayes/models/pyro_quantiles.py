"""Values of latent sites as functions of standard normals, exact in both tails for the families users put as priors."""

from __future__ import annotations

import math
from typing import Any

import torch
from scipy import special, stats
from torch import Tensor
from torch.distributions import (
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    Independent,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Uniform,
)

_EXACT = (
    *(Beta, Cauchy, Exponential, Gamma, HalfCauchy, HalfNormal, Laplace, LogNormal),
    *(MultivariateNormal, Normal, Uniform),
)
FLOAT_REACH = 8.0
"""Beyond it a probability is 1 in double precision, and a quantile function of it says nothing new."""


def base_of(fn: Any) -> Any:
    """The distribution of single elements."""
    while isinstance(fn, Independent):
        fn = fn.base_dist
    return fn


def reach_of(fn: Any) -> float:
    """How many standard deviations out values of `from_standard` can be told apart."""
    return math.inf if isinstance(base_of(fn), _EXACT) else FLOAT_REACH


def from_standard(fn: Any, z: Tensor) -> Tensor | None:
    """The value of a site as a function of standard normals of its shape; None where no such function is known."""
    base = base_of(fn)
    if isinstance(base, Normal):
        return base.loc + base.scale * z.to(base.loc)
    if isinstance(base, MultivariateNormal):
        return base.loc + (base.scale_tril @ z.to(base.loc)[..., None])[..., 0]
    if isinstance(base, LogNormal):
        return (base.loc + base.scale * z.to(base.loc)).exp()
    value = _quantile(base, z.double())
    return None if value is None else value.to(_dtype(base))


def _dtype(base: Any) -> torch.dtype:
    parameters = [getattr(base, name, None) for name in base.arg_constraints]
    dtypes = [p.dtype for p in parameters if isinstance(p, Tensor) and p.is_floating_point()]
    return dtypes[0] if dtypes else torch.get_default_dtype()


def _quantile(base: Any, z: Tensor) -> Tensor | None:
    """Each tail from its own probability, so that neither is lost beside 1."""
    lower, upper = (torch.as_tensor(special.ndtr(part.numpy())) for part in (z, -z))  # torch loses tails below 1e-17

    def tails(low: Any, high: Any) -> Tensor:
        return torch.where(z < 0, torch.as_tensor(low), torch.as_tensor(high))

    if isinstance(base, Gamma):
        shape, scale = base.concentration.double(), 1 / base.rate.double()
        return tails(stats.gamma.ppf(lower, shape, scale=scale), stats.gamma.isf(upper, shape, scale=scale))
    if isinstance(base, Beta):
        shapes = base.concentration1.double(), base.concentration0.double()
        return tails(stats.beta.ppf(lower, *shapes), stats.beta.isf(upper, *shapes))
    if isinstance(base, Exponential):
        return torch.as_tensor(-torch.special.log_ndtr(-z) / base.rate)
    if isinstance(base, HalfNormal):
        return base.scale * tails(math.sqrt(2) * torch.erfinv(lower), -torch.special.ndtri(upper / 2))
    if isinstance(base, HalfCauchy):
        return base.scale * tails((lower * math.pi / 2).tan(), 1 / (upper * math.pi / 2).tan())
    if isinstance(base, Cauchy):
        return base.loc + base.scale * tails(-1 / (lower * math.pi).tan(), 1 / (upper * math.pi).tan())
    if isinstance(base, Laplace):
        return base.loc + base.scale * tails((2 * lower).log(), -(2 * upper).log())
    if isinstance(base, Uniform):
        return tails(base.low + (base.high - base.low) * lower, base.high - (base.high - base.low) * upper)
    try:
        return torch.as_tensor(base.icdf(lower.clamp(max=1 - torch.finfo(torch.float64).eps / 2)))
    except NotImplementedError:
        return None
