"""Importance banks: latents of any dimension, drawn row by row from an encoder, with their own error."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count, checked_data
from mpt_bayes.errors import ArgumentError
from mpt_bayes.models.emissions import Emission
from mpt_bayes.models.inner_error import log_prob_influence, score_influence, warn_if_poor
from mpt_bayes.models.latent_bank import LatentBank
from mpt_bayes.models.latent_terms import DenseTerms, LatentTerms
from mpt_bayes.numerics.random import Stream

Encoder = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From (N, D) rows to the mean and standard deviation, (N, L) each, of a normal guide for their latents."""


@final
class ImportanceBank(LatentBank):
    """p(x) = ∫ N(z; 0, I) Π_j p(x_j | z) dz from importance draws: a bank of its own for every row.

    A fraction `defensive` of the draws comes from the prior and the rest from the encoder's q(z | x); with the mixture
    q̄ of the two, w_k ∝ p(z_k) / q̄(z_k), at most 1 / defensive (Owen and Zhou 2000), so that no mask has draws of
    unbounded weight: with everything hidden the prior is what counts, with everything visible the encoder. Draws are a
    function of `seed` and the values of the row. All numbers of this model are estimates; estimators report their
    `inner_standard_error`, and warn where the effective sample size is below 20.

    Args:
        decoder: from (K, L) latent values to an `Emission` of K states over D coordinates.
        encoder: from (N, D) rows to (mean, standard deviation), (N, L) each; None draws from the prior alone.
        latent_dim: L.
        n_samples: K, draws a row.
        seed: of the draws.
        defensive: fraction of draws from the prior, in (0, 1].

    Example:
        >>> from mpt_bayes.models import BernoulliEmission
        >>> linear = torch.nn.Linear(3, 4).double()
        >>> model = ImportanceBank(lambda z: BernoulliEmission.from_logits(linear(z)), None, latent_dim=3)
        >>> model.masked_log_prob(torch.ones(1, 4), torch.eye(4) == 1).shape
        torch.Size([1, 4, 4])
    """

    def __init__(
        self,
        decoder: Callable[[Tensor], Emission],
        encoder: Encoder | None,
        latent_dim: int,
        *,
        n_samples: int = 1000,
        seed: int = 0,
        defensive: float = 0.2,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        if not 0 < defensive <= 1:
            raise ArgumentError(f"defensive is {defensive}: expected a fraction in (0, 1]")
        self.decoder, self.encoder, self.latent_dim, self.seed = decoder, encoder, latent_dim, seed
        self.n_samples = checked_count(n_samples, "n_samples", 4)
        self.defensive = 1.0 if encoder is None else defensive
        self.n_prior = n_samples if encoder is None else min(n_samples - 2, max(2, round(defensive * n_samples)))
        self._dtype, self._device = dtype, torch.device(device)
        with torch.no_grad():
            self._dim = decoder(torch.zeros(1, latent_dim, dtype=dtype, device=device)).dim

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return self._dim

    @property
    def device(self) -> torch.device:
        """Where the draws are made."""
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """Of the computation."""
        return self._dtype

    @property
    def n_states(self) -> int:
        """K, the draws a row."""
        return self.n_samples

    def latent_terms(self, x: Tensor) -> tuple[Tensor, LatentTerms]:
        """(N, K) self-normalised log weights of each row's draws, and ℓ at them."""
        noise = torch.stack([self._noise(row) for row in x])
        draws = noise
        log_prior = _log_normal(draws, torch.zeros_like(draws[:, :1]), torch.ones_like(draws[:, :1]))
        log_weight = torch.zeros_like(log_prior)
        if self.encoder is not None:
            mean, scale = (part[:, None] for part in self.encoder(x))
            draws = torch.cat([noise[:, : self.n_prior], mean + scale * noise[:, self.n_prior :]], 1)
            log_prior = _log_normal(draws, torch.zeros_like(mean), torch.ones_like(scale))
            share = self.n_prior / self.n_samples
            log_weight = log_prior - torch.logaddexp(
                log_prior + math.log(share), _log_normal(draws, mean, scale) + math.log(1 - share)
            )
        values = [self.decoder(z).log_prob(row[None])[0] for z, row in zip(draws, x, strict=True)]
        return log_weight.log_softmax(1), DenseTerms(torch.stack(values))

    def restrict(self, keep: Tensor) -> Self:
        """The same latents seen through coordinates `keep`; the encoder gets zeros for the rest (any guide serves)."""
        encoder = self.encoder

        def partial_encoder(x: Tensor) -> tuple[Tensor, Tensor]:
            assert encoder is not None
            whole = x.new_zeros(len(x), self.dim)
            whole[:, keep] = x
            return encoder(whole)

        return type(self)(
            lambda z: self.decoder(z).restrict(keep),
            None if encoder is None else partial_encoder,
            self.latent_dim,
            n_samples=self.n_samples,
            seed=self.seed,
            defensive=self.defensive,
            dtype=self.dtype,
            device=self.device,
        )

    @property
    def is_estimated(self) -> bool:
        """Always: the bank is made of draws."""
        return True

    def score_influence(self, x: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
        """(N, K) how much each draw moves Σ_p weight_p s(M_p): the derivative in its log weight."""
        return score_influence(self, x, hidden, weight)

    def log_prob_influence(self, x: Tensor) -> Tensor:
        """(N, K) p(z_k | x) - w_k."""
        return log_prob_influence(self, x)

    def inner_variance(self, x: Tensor, influence: Tensor) -> float:
        """Variance of a total over rows from its (N, K) influence; draws from prior and encoder are two strata.

        Rows with the same values share their draws, so their influence is added before it is squared.
        """
        x = checked_data(x, self.dim, dtype=self.dtype, device=self.device)
        _, group = x.unique(dim=0, return_inverse=True)
        together = influence.new_zeros(int(group.max()) + 1, influence.shape[1]).index_add_(0, group, influence)
        total = 0.0
        for stratum in together.split([self.n_prior, self.n_samples - self.n_prior], 1):
            count = stratum.shape[1]
            if count:
                total += float(stratum.var(1, correction=0).sum()) * count**2 / (count - 1)
        return total

    def warn_if_poor(self, x: Tensor) -> None:
        """A warning where the draws are few for a row with all, or nothing, visible."""
        warn_if_poor(self, x, "raise n_samples, or give an encoder closer to the posterior")

    def _noise(self, row: Tensor) -> Tensor:
        """(K, L) standard normals that depend on the seed and the values of the row alone."""
        key = hashlib.blake2b(row.detach().cpu().numpy().tobytes(), digest_size=16).hexdigest()
        generator = Stream(self.seed).child("importance", key).generator()
        noise = torch.randn(self.n_samples, self.latent_dim, dtype=torch.float64, generator=generator)
        return noise.to(self.device, self.dtype)


def _log_normal(z: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """log N(z; mean, scale²) summed over the last axis, without the constant that cancels in weights."""
    return (-0.5 * ((z - mean) / scale).square() - scale.log()).sum(-1)
