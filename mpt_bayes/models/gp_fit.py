"""GPyTorch models from a kernel's name, and hyper-parameters by exact marginal likelihood. Imported when first used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gpytorch
import numpy as np
import torch
from gpytorch import kernels
from gpytorch.constraints import GreaterThan, Interval
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.signal import lombscargle
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from mpt_bayes.checks import Missing, check_infinite, checked_data, checked_missing, checked_tensor, observed_patterns
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.numerics.cholesky import cholesky
from mpt_bayes.numerics.log_space import LOG_2PI

if TYPE_CHECKING:
    from mpt_bayes.models.gp import GaussianProcess

ALIASES = {"co2": "rbf+periodic*rbf+rq"}
NOISE_FLOOR = 1e-6
"""Smallest noise variance, as a share of the variance of the targets."""
REACH = 20.0
"""How far L-BFGS may move a hyper-parameter: a factor exp(20) for what must be positive."""


class NamedGP(gpytorch.models.ExactGP):  # type: ignore[misc]  # gpytorch has no types
    """Constant mean plus a kernel."""

    def __init__(self, inputs: Tensor, targets: Tensor, covariance: kernels.Kernel, noise: float, floor: float) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=GreaterThan(floor))
        super().__init__(inputs, targets, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = covariance
        self.double()
        likelihood.noise = noise
        self.mean_module.constant.data.fill_(float(targets.nanmean()))

    def forward(self, inputs: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at the inputs."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))


def exact_gp(kernel: str, inputs: Tensor, targets: Tensor) -> NamedGP:
    """An ExactGP with a kernel by name; the scales of inputs and targets set where its hyper-parameters start."""
    checked_tensor(inputs, "inputs")
    checked_tensor(targets, "targets")
    inputs, targets = inputs.to(torch.float64), targets.to(torch.float64)
    inputs = inputs[:, None] if inputs.ndim == 1 else inputs
    targets = targets[0] if targets.ndim == 2 and len(targets) == 1 else targets
    if inputs.ndim != 2 or targets.shape != inputs.shape[:1]:
        raise DataError(
            f"inputs have shape {tuple(inputs.shape)} and targets {tuple(targets.shape)}: expected (n,) or (n, d), and "
            "(n,) or (1, n)"
        )
    if not bool(inputs.isfinite().all()):
        raise DataError(f"input {int((~inputs.isfinite()).any(1).nonzero()[0])} is not finite: mend it or drop it")
    check_infinite(targets[None])
    present = ~targets.isnan()
    variance = float(targets[present].var(correction=0)) if int(present.sum()) > 1 else 0.0
    if not variance > 0:
        raise DataError("targets need at least two different observed values to set the scale of a Gaussian process")
    inputs = inputs - inputs.mean(0)  # stationary kernels do not see it, and the linear kernel is better conditioned
    covariance = _named_kernel(kernel, inputs[present], targets[present], variance)
    return NamedGP(inputs, targets, covariance.double(), 0.05 * variance, NOISE_FLOOR * variance)


def _named_kernel(name: str, inputs: Tensor, targets: Tensor, variance: float) -> kernels.Kernel:
    """A sum of products. Factors start with ever shorter length scales, so that equal names can part ways."""
    terms = [term.split("*") for term in ALIASES.get(name, name).replace(" ", "").lower().split("+")]
    span = float((inputs.amax(0) - inputs.amin(0)).max().clamp_min(1e-9))
    parts, used = [], 0
    for term in terms:
        factors = []
        for factor in term:
            factors.append(_base_kernel(factor, name, inputs, targets, span / 4 ** (1 + used)))
            used += factor not in ("periodic", "linear")
        product = kernels.ScaleKernel(kernels.ProductKernel(*factors) if len(factors) > 1 else factors[0])
        product.outputscale = variance / len(terms) / (span**2 if term == ["linear"] else 1)
        parts.append(product)
    return kernels.AdditiveKernel(*parts) if len(parts) > 1 else parts[0]


def _base_kernel(factor: str, name: str, inputs: Tensor, targets: Tensor, scale: float) -> kernels.Kernel:
    makers = {
        "rbf": kernels.RBFKernel,
        "matern12": lambda: kernels.MaternKernel(nu=0.5),
        "matern32": lambda: kernels.MaternKernel(nu=1.5),
        "matern52": lambda: kernels.MaternKernel(nu=2.5),
        "rq": kernels.RQKernel,
        "periodic": kernels.PeriodicKernel,
        "linear": kernels.LinearKernel,
    }
    if factor not in makers:
        raise ArgumentError(
            f"kernel {name!r}: {factor!r} is not one of {', '.join(sorted([*makers, *ALIASES]))}; "
            "join names with + and *"
        )
    kernel = makers[factor]()
    if factor == "linear":
        kernel.variance = 1.0
        kernel.raw_variance.requires_grad_(False)  # the scale of the term says it already
    elif factor == "periodic":
        kernel.period_length = _strongest_period(inputs, targets)
    else:
        kernel.lengthscale = scale
    return kernel


def _strongest_period(inputs: Tensor, targets: Tensor) -> float:
    """The peak of the Lomb-Scargle periodogram after a cubic trend; along the first input."""
    order = inputs[:, 0].argsort()
    time, values = inputs[order, 0].numpy(force=True), targets[order].numpy(force=True)
    span = float(time[-1] - time[0])
    unit = time / max(span, 1e-9)
    values = values - np.polyval(np.polyfit(unit, values, min(3, len(values) - 1)), unit)
    periods = span / np.arange(2, max(3, len(values) // 2), 0.25)
    return float(periods[lombscargle(time, values, 2 * np.pi / periods).argmax()])


def maximised(model: GaussianProcess, prior: nn.Module, x: Tensor, missing: Missing, max_iterations: int) -> None:
    """Set the parameters of `prior` where the exact log marginal likelihood of x is largest nearby.

    L-BFGS over the logarithm of what must be positive, each kept within `REACH` of its start.
    """
    groups = _observed(model, x, missing)
    coordinates = [c for part in prior.children() for c in _coordinates(part)]
    coordinates = list({id(c.raw): c for c in coordinates}.values())
    start = torch.cat([c.read() for c in coordinates])
    sizes = [c.raw.numel() for c in coordinates]

    def negative_and_gradient(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Minus the log marginal likelihood an entry of x, and its gradient in the coordinates."""
        point = torch.from_numpy(values).to(start.device).requires_grad_()
        raw = [c.write(v) for c, v in zip(coordinates, point.split(sizes), strict=True)]
        mean, covariance = model.moments()
        value, by_mean, by_covariance = _log_density(mean.detach(), covariance.detach(), groups)
        tangent = (mean * by_mean).sum() + (covariance * by_covariance).sum()
        inner = torch.autograd.grad(tangent, [c.raw for c in coordinates], materialize_grads=True)
        (gradient,) = torch.autograd.grad(raw, point, [-g.double() / x.numel() for g in inner])
        return -value / x.numel(), gradient.numpy(force=True)

    bounds = [(value - REACH, value + REACH) for value in start.tolist()]
    scipy_threads = ThreadpoolController().select(internal_api="openblas")
    with scipy_threads.limit(limits=1):  # more would fight PyTorch's for the cores: twice the time on two
        found = minimize(
            negative_and_gradient,
            start.numpy(force=True),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iterations},
        )
    best = torch.from_numpy(found.x).to(start.device)
    for coordinate, value in zip(coordinates, best.split(sizes), strict=True):
        coordinate.write(value)


@dataclass(frozen=True)
class _Coordinate:
    """A raw GPyTorch parameter, seen as the logarithm of its value above its lower bound where it has one."""

    raw: nn.Parameter
    positive: Interval | None

    def read(self) -> Tensor:
        """Where the parameter is now, flat, in float64."""
        raw = self.raw.detach().double().reshape(-1)
        return raw if self.positive is None else (self.positive.transform(raw) - self.positive.lower_bound).log()

    def write(self, value: Tensor) -> Tensor:
        """Put the parameter there; the raw values as a function of `value`, for gradients."""
        raw = value
        if self.positive is not None:
            raw = self.positive.inverse_transform(self.positive.lower_bound + value.exp())
        raw = raw.reshape(self.raw.shape)
        self.raw.data.copy_(raw.detach())
        return raw


def _coordinates(part: gpytorch.Module) -> list[_Coordinate]:
    return [
        _Coordinate(raw, bound if bound is not None and bool((bound.upper_bound == torch.inf).all()) else None)
        for _, raw, bound in part.named_parameters_and_constraints()
        if raw.requires_grad
    ]


def _log_density(mean: Tensor, covariance: Tensor, groups: list[tuple[Tensor, Tensor]]) -> tuple[float, Tensor, Tensor]:
    """Σ log N(y; ·) over groups of (rows, observed outputs), with its gradients in the moments in closed form.

    With α = Σ⁻¹ (y - μ): ∂/∂μ = Σ_n α and ∂/∂Σ = ½ Σ_n (α αᵀ - Σ⁻¹), at the price of one factorisation a group
    (Rasmussen and Williams 2006, equation 5.9).
    """
    value, by_mean, by_covariance = 0.0, torch.zeros_like(mean), torch.zeros_like(covariance)
    for rows, keep in groups:
        factor = cholesky(covariance[keep][:, keep], "covariance", name_repeats=len(keep) == len(covariance))
        centred = (rows - mean[keep]).T  # (n, N)
        alpha = torch.cholesky_solve(centred, factor)
        log_scale = factor.diagonal().log().sum() + len(keep) * LOG_2PI / 2
        value -= float((centred * alpha).sum() / 2 + len(rows) * log_scale)
        by_mean[keep] += alpha.sum(1)
        by_covariance[keep[:, None], keep] += (alpha @ alpha.T - len(rows) * torch.cholesky_inverse(factor)) / 2
    return value, by_mean, by_covariance


def _observed(model: GaussianProcess, x: Tensor, missing: Missing) -> list[tuple[Tensor, Tensor]]:
    """Rows without gaps, with the outputs that each group of them observed."""
    if checked_missing(missing) == "error" or not x.isnan().any():
        x = checked_data(x, model.dim, dtype=torch.float64, device=model.device)
        return [(x, torch.arange(model.dim, device=model.device))]
    check_infinite(x)
    return [(x[rows][:, keep].double(), keep) for rows, keep in observed_patterns(x)]
