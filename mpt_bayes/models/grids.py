"""Grids for integrals over a standard normal prior of few dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError, ModelError
from mpt_bayes.models.grid_watch import GridWatch

Rule = Literal["trapezoid", "gauss-hermite"]

MASS_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Grid:
    """Nodes and weights: ∫ f(z) N(z; 0, I) dz ≈ Σ_k weight_k f(z_k).

    Attributes:
        nodes: (K, L).
        weights: (K,) prior density times volume; they must sum to 1 within 1e-4.

    Raises:
        ModelError: weights that do not carry the mass of the prior: any evidence from such a grid is too small.

    Example (four points a side on [-5, 5]² with cells of 10/4, as once published for binary images):
        >>> side = torch.linspace(-5, 5, 4, dtype=torch.float64)
        >>> nodes = torch.cartesian_prod(side, side)
        >>> Grid(nodes, torch.exp(-nodes.square().sum(1) / 2) / (2 * math.pi) * (10 / 4) ** 2)
        Traceback (most recent call last):
        mpt_bayes.errors.ModelError: the grid carries prior mass 0.247, not 1: take more nodes or a wider grid
    """

    nodes: Tensor
    weights: Tensor

    def __post_init__(self) -> None:
        if self.nodes.ndim != 2 or self.weights.shape != self.nodes.shape[:1]:
            raise ModelError(
                f"nodes has shape {tuple(self.nodes.shape)} and weights {tuple(self.weights.shape)}: "
                "expected (K, L) and (K,)"
            )
        mass = float(self.weights.sum())
        if not abs(mass - 1) <= MASS_TOLERANCE:
            raise ModelError(f"the grid carries prior mass {mass:.3g}, not 1: take more nodes or a wider grid")

    def product_shape(self) -> tuple[int, ...] | None:
        """Nodes of each dimension where this is a product grid, the last fastest; None where it is not."""
        sides = [column.unique() for column in self.nodes.T]
        shape = tuple(len(side) for side in sides)
        if math.prod(shape) != len(self.nodes) or min(shape) < 2:
            return None
        product = torch.cartesian_prod(*sides).reshape(-1, len(sides))
        return shape if torch.equal(product, self.nodes) else None


@dataclass(frozen=True)
class QuadratureError:
    """How far log p(x) on a model's grid is from that on a finer one; which finer one, its `quadrature_error` says.

    Attributes:
        per_row: (N,) absolute differences, nats; infinite where the finer grid, too, ends where the posterior is.
        mean: of the signed differences, the error of the log marginal likelihood per datum.
        largest: of the absolute differences.
        n_nodes, finer: states summed over on the grid and on the finer one: its nodes in all.
    """

    per_row: Tensor
    mean: float
    largest: float
    n_nodes: int
    finer: int

    @classmethod
    def of(cls, signed: Tensor, n_nodes: int, finer: int, *watches: GridWatch | None) -> Self:
        """From the (N,) log p(x) on the grid less that on the finer one, which `watches` have looked at."""
        for watch in watches:
            if watch is not None and watch.last is not None:  # two grids that both end too early agree and are wrong
                signed = torch.where(watch.last.beyond_edge(), torch.inf, signed)
        return cls(signed.abs(), float(signed.mean()), float(signed.abs().max()), n_nodes, finer)

    def __repr__(self) -> str:
        return (
            f"QuadratureError(mean {self.mean:+.2g}, largest {self.largest:.2g} nats per datum, "
            f"{self.n_nodes} nodes against {self.finer})"
        )


def prior_grid(latent_dim: int, n_nodes: int, rule: Rule = "trapezoid", half_width: float = 6.0) -> Grid:
    """A product grid with `n_nodes` a side for a standard normal prior, in float64.

    "trapezoid": equal spacing h on [-half_width, half_width]. For an integrand of width σ the error falls like
    exp(-2π²σ²/h²) (Trefethen and Weideman 2014), so sharp posteriors need h ≲ σ. "gauss-hermite" is exact for
    polynomials of degree 2 n_nodes - 1 and best for wide posteriors.

    Raises:
        ArgumentError: an unknown rule, or a size below 1.
        ModelError: too few nodes to carry the mass of the prior.

    Example:
        >>> grid = prior_grid(2, 32)
        >>> grid.nodes.shape, round(float(grid.weights @ grid.nodes.square().sum(1)), 6)
        (torch.Size([1024, 2]), 2.0)
    """
    checked_count(latent_dim, "latent_dim")
    checked_count(n_nodes, "n_nodes", 2)
    if rule == "trapezoid":
        side = torch.linspace(-half_width, half_width, n_nodes, dtype=torch.float64)
        weights = torch.exp(-side.square() / 2) / math.sqrt(2 * math.pi) * (2 * half_width / (n_nodes - 1))
    elif rule == "gauss-hermite":
        from scipy.special import roots_hermitenorm

        side, weights = map(torch.as_tensor, roots_hermitenorm(n_nodes))
        weights = weights / weights.sum()
    else:
        raise ArgumentError(f"rule is {rule!r}: expected 'trapezoid' or 'gauss-hermite'")
    nodes = torch.cartesian_prod(*[side] * latent_dim).reshape(-1, latent_dim)
    products = torch.cartesian_prod(*[weights] * latent_dim).reshape(-1, latent_dim).prod(1)
    return Grid(nodes, products)
