"""Programs that are Gaussian given their other latents: found by running them, and integrated exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from mpt_bayes.errors import ModelError
from mpt_bayes.models.gaussian import Gaussian
from mpt_bayes.models.pyro_program import Assignment, Latent, Program
from mpt_bayes.models.pyro_quantiles import base_of

FAR = (1.0, 3.0, 6.0, 12.0)
"""Standard deviations out where the affine form is checked: a clamp or a relu may bend far from the unit vectors."""


@torch.no_grad()
def gaussian_of(
    program: Program, normals: list[Latent], assignment: Assignment, n_checks: int = len(FAR)
) -> Gaussian | None:
    """The joint Gaussian of the coordinates given an assignment of all other latents, or None where there is none.

    The observed means must be affine in the normal latents and in the coordinates themselves (autoregressions), and
    the observed covariance constant: c + B_z z + B_x x + e. Both matrices are read off unit vectors and the form is
    checked at `n_checks` random points, from 1 to 12 standard deviations out, the near ones first. Then
    x ~ N(A⁻¹ c, A⁻¹ (B_z B_zᵀ + Cov e) A⁻ᵀ) with A = I - B_x.

    Raises:
        ModelError: coordinates that depend on each other in a circle: the program is no density.
    """
    dim, size = len(program.example), sum(latent.size for latent in normals)
    dtype = torch.promote_types(program.example.dtype, torch.get_default_dtype())

    def at(z: Tensor, x: Tensor) -> tuple[Tensor, Tensor] | None:
        parts = z.split([latent.size for latent in normals])
        standard = {latent.name: part for latent, part in zip(normals, parts, strict=True)}
        trace = program.run(replace(assignment, standard={**assignment.standard, **standard}), x)
        return _moments([trace.nodes[name]["fn"] for name in program.observed])

    def found_at(z: Tensor, x: Tensor) -> tuple[Tensor, Tensor] | None:
        try:
            return at(z, x)
        except ValueError:  # parameters that cease to be admissible far out do not follow an affine form
            return None

    z0, x0 = torch.zeros(size, dtype=dtype), torch.zeros(dim, dtype=dtype)
    origin = at(z0, x0) if program.example.is_floating_point() else None
    if origin is None:
        return None
    constant, noise = origin
    generator = torch.Generator().manual_seed(0)
    points = [_point(distance, (size, dim), dtype, generator) for distance in _distances(n_checks)]
    moved = [at(z0, x1) for _, x1 in points[:2]]
    depends = any(m is not None and not torch.allclose(m[0], constant) for m in moved)
    columns_z = [_mean(at(unit, x0)) - constant for unit in torch.eye(size, dtype=dtype)]
    columns_x = [_mean(at(z0, unit)) - constant for unit in torch.eye(dim, dtype=dtype)] if depends else []
    by_z = torch.stack(columns_z, 1) if columns_z else constant.new_zeros(dim, 0)
    by_x = torch.stack(columns_x, 1) if columns_x else constant.new_zeros(dim, dim)
    tolerance = 1e-4 if _is_single(program, normals, assignment) else 1e-9
    for z1, x1 in points:
        found = found_at(z1, x1)
        predicted = constant + by_z @ z1.double() + by_x @ x1.double()
        scale = max(1.0, float(predicted.abs().max()))
        if found is None or float((found[0] - predicted).abs().max()) > tolerance * scale:
            return None
        if not torch.allclose(found[1], noise, rtol=tolerance, atol=0):
            return None
    if bool(torch.linalg.matrix_power(by_x, dim).abs().max() > tolerance):
        raise ModelError("each coordinate must depend on earlier ones only: the program's conditionals run in a circle")
    inverse = torch.linalg.inv(torch.eye(dim, dtype=torch.float64) - by_x)
    covariance = inverse @ (by_z @ by_z.T + noise) @ inverse.T
    return Gaussian(inverse @ constant, (covariance + covariance.T) / 2)


def _distances(n_checks: int) -> list[float]:
    return sorted(FAR[i % len(FAR)] for i in range(n_checks))


def _point(
    distance: float, sizes: tuple[int, int], dtype: torch.dtype, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Normal latents and data that far out."""
    z, x = (distance * torch.randn(n, generator=generator, dtype=dtype) for n in sizes)
    return z, x


def _is_single(program: Program, normals: list[Latent], assignment: Assignment) -> bool:
    """Whether a latent or a site is computed in single precision, whatever the data are in."""
    nodes = program.run(assignment).nodes
    names = [*program.observed, *(latent.name for latent in normals)]
    return any(base_of(nodes[name]["fn"]).loc.dtype == torch.float32 for name in names)


def _mean(moments: tuple[Tensor, Tensor] | None) -> Tensor:
    assert moments is not None  # the family of a site does not change from run to run
    return moments[0]


def _moments(sites: list[Any]) -> tuple[Tensor, Tensor] | None:
    """Mean (D,) and covariance (D, D) of observed sites, float64; None unless all are normal."""
    means, blocks = [], []
    for fn in sites:
        fn = base_of(fn)
        if isinstance(fn, Normal):
            loc, scale = (p.expand(fn.batch_shape).reshape(-1).double() for p in (fn.loc, fn.scale))
            means.append(loc)
            blocks.append(scale.square().diag())
        elif isinstance(fn, MultivariateNormal) and fn.batch_shape.numel() == 1:
            means.append(fn.loc.reshape(-1).double())
            blocks.append(fn.covariance_matrix.reshape(fn.event_shape * 2).double())
        else:
            return None
    return torch.cat(means), torch.block_diag(*blocks)
