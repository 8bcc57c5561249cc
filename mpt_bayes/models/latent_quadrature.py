"""Continuous latents of one to three dimensions by quadrature, with the error of the quadrature measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, final

import torch
from torch import Tensor

from mpt_bayes.errors import ModelError
from mpt_bayes.models.emission_families import BernoulliEmission, NormalEmission
from mpt_bayes.models.emissions import Emission
from mpt_bayes.models.grid_watch import GridWatch
from mpt_bayes.models.grids import Grid, QuadratureError, Rule, prior_grid
from mpt_bayes.models.latent_bank import LatentBank, LatentTermsOf, checked_decoder

Decoder = Callable[[Tensor], Emission]
"""From (K, L) latent values to the emission of K states over D coordinates: any torch module inside."""

_MAX_NODES = 2**20
_DEFAULT_NODES = {1: 256, 2: 128, 3: 48}


@final
class LatentQuadrature(LatentBank):
    """p(x) = ∫ N(z; 0, I) Π_j p(x_j | z) dz over L = 1..3 latents, as a bank of quadrature nodes.

    The decoder is run at every call, so a model follows the parameters of the modules inside it and can be trained by
    any of this library's scores. For Bernoulli coordinates with logits W z + b this is logistic PPCA, the linear VAE of
    Moreno-Muñoz, Recasens and Hauberg (2023); see `bernoulli`. `quadrature_error` measures the error of the grid.

    Args:
        decoder: from (K, L) latent values to an `Emission` of K states over D coordinates.
        latent_dim: L.
        n_nodes: a side; by default 256, 128 and 48 in 1, 2 and 3 dimensions, which resolve posteriors with standard
            deviations above about 0.03, 0.06 and 0.15.
        rule: "trapezoid", best for sharp posteriors (many coordinates), or "gauss-hermite", for wide ones.
        half_width: of the trapezoid's grid, in prior standard deviations.
        grid: another grid in place of the four arguments before; it must carry the prior's mass.
        dtype: of the computation.

    Raises:
        ArgumentError: a decoder that cannot be called.
        ModelError: a grid that misses prior mass, or of more than 2^20 nodes.

    Warns:
        MptBayesWarning: from `log_marginal_likelihood` and the estimators, on a grid that ends where the posterior of
            a row is, or is too coarse for it; not where gradients are taken, and not on a grid that is no product.

    Example:
        >>> model = LatentQuadrature.bernoulli(torch.nn.Linear(1, 4).double(), latent_dim=1)
        >>> x = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
        >>> model.log_marginal_likelihood(x).shape, model.quadrature_error(x).largest < 1e-7
        (torch.Size([1]), True)
    """

    def __init__(
        self,
        decoder: Decoder,
        latent_dim: int,
        *,
        n_nodes: int | None = None,
        rule: Rule = "trapezoid",
        half_width: float = 6.0,
        grid: Grid | None = None,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        checked_decoder(decoder)
        if n_nodes is None:
            n_nodes = _DEFAULT_NODES.get(latent_dim, 2)
        if grid is None:
            if latent_dim > max(_DEFAULT_NODES) or n_nodes**latent_dim > _MAX_NODES:
                raise ModelError(
                    f"a grid of {n_nodes} nodes a side in {latent_dim} dimensions is too large (at most 3 dimensions, "
                    f"{_MAX_NODES} nodes in all): lower n_nodes, or use an ImportanceBank"
                )
            grid = prior_grid(latent_dim, n_nodes, rule, half_width)
        self.decoder, self.grid = decoder, grid
        self._finer = (2 * n_nodes, rule, 1.5 * half_width)
        self.nodes = grid.nodes.to(device, dtype)
        self.log_weight = (grid.weights / grid.weights.sum()).log().to(device, dtype)
        with torch.no_grad():
            probe = decoder(self.nodes[:1])
        if probe.n_states != 1:
            raise ModelError(f"the decoder gave {probe.n_states} states for one latent value: expected one each")
        self._dim, self._is_tabled = probe.dim, probe.is_tabled
        shape = grid.product_shape()
        if shape is not None:
            names = ("the latent",) if len(shape) == 1 else tuple(f"latent {k}" for k in range(len(shape)))
            wider = f"raise half_width and n_nodes together (now {max(shape)} nodes a side)"
            finer = f"raise n_nodes (now {max(shape)} a side), or use an ImportanceBank with an encoder"
            self.watch = GridWatch(shape, names, wider, finer)

    @classmethod
    def bernoulli(cls, logits: Callable[[Tensor], Tensor], latent_dim: int, **options: object) -> Self:
        """Binary coordinates; `logits` maps (K, L) latent values to (K, D) log odds: a Linear, a deep decoder.

        Raises:
            ArgumentError: logits that cannot be called.
        """
        checked_decoder(logits, "logits", "(K, D) log odds")
        return cls(lambda z: BernoulliEmission.from_logits(logits(z)), latent_dim, **options)  # type: ignore[arg-type]

    @classmethod
    def normal(
        cls, mean: Callable[[Tensor], Tensor], scale: Tensor | float, latent_dim: int, **options: object
    ) -> Self:
        """Normal coordinates with (K, D) means from `mean` and a standard deviation, (D,) or one for all.

        Raises:
            ArgumentError: a mean that cannot be called.
        """
        checked_decoder(mean, "mean", "(K, D) means")

        def decoder(z: Tensor) -> Emission:
            centre = mean(z)
            return NormalEmission(
                centre, torch.as_tensor(scale, dtype=centre.dtype, device=centre.device).expand_as(centre)
            )

        return cls(decoder, latent_dim, **options)  # type: ignore[arg-type]

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return self._dim

    @property
    def device(self) -> torch.device:
        """Where the nodes live; the decoder must be there too."""
        return self.nodes.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the nodes; the decoder must take it."""
        return self.nodes.dtype

    @property
    def n_states(self) -> int:
        """K, the number of nodes in all."""
        return len(self.nodes)

    @property
    def is_tabled(self) -> bool:
        """As the decoder's emissions are."""
        return self._is_tabled

    def latent_terms(self) -> LatentTermsOf:
        """The grid's weights and the decoder at its nodes."""
        emission = self.decoder(self.nodes)
        return lambda x: (self.log_weight[None], emission.terms(x))

    def restrict(self, keep: Tensor) -> Self:
        """The same latents seen through coordinates `keep`."""
        model = type(self)(
            lambda z: self.decoder(z).restrict(keep),
            self.nodes.shape[1],
            grid=self.grid,
            dtype=self.dtype,
            device=self.device,
        )
        model._finer, model.watch = self._finer, self.watch
        return model

    def warn_of_grid(self, x: Tensor) -> None:
        """A warning where the grid ends where a posterior is, or is too coarse for it; computes log p(x)."""
        self.log_marginal_likelihood(x)

    @torch.no_grad()
    def quadrature_error(self, x: Tensor, finer: Grid | None = None) -> QuadratureError:
        """log p(x) of this grid against a finer one: by default twice the nodes a side, half as wide again.

        Infinite for rows whose posterior is beyond that grid too.
        """
        if finer is None:
            n_nodes, rule, half_width = self._finer
            finer = prior_grid(self.nodes.shape[1], n_nodes, rule, half_width)
        other = type(self)(self.decoder, finer.nodes.shape[1], grid=finer, dtype=self.dtype, device=self.device)
        if other.watch is not None:
            other.watch.is_silent = True
        signed = self.log_marginal_likelihood(x) - other.log_marginal_likelihood(x)
        return QuadratureError.of(signed, self.n_states, other.n_states, other.watch)
