"""Importance banks: latents of any dimension from random draws, with the error of the draws."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count, checked_data, checked_seed
from mpt_bayes.errors import ArgumentError
from mpt_bayes.models.emissions import Emission
from mpt_bayes.models.inner_error import log_prob_influence, score_influence, warn_if_poor
from mpt_bayes.models.latent_bank import LatentBank, LatentTermsOf, checked_decoder
from mpt_bayes.models.latent_terms import DenseTerms, LatentTerms
from mpt_bayes.numerics.random import Stream

Encoder = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From (N, D) rows to the mean and standard deviation, (N, L) each, of a normal guide for their latents."""


@final
class ImportanceBank(LatentBank):
    """p(x) = ∫ N(z; 0, I) Π_j p(x_j | z) dz from K draws of z.

    Without an encoder the draws come from the prior and one bank serves all rows: a coherent joint model of its own.
    With one, each row has a bank: a fraction `defensive` of the draws comes from the prior and the rest from q(z | x);
    with the mixture q̄ of the two, w_k ∝ p(z_k) / q̄(z_k), at most 1 / defensive (Owen and Zhou 2000), so that no mask
    meets draws of unbounded weight: with everything hidden the prior is what counts, with everything visible the
    encoder. Its draws are a function of `seed` and the values of the row, hidden ones too. All numbers of this model
    are estimates; estimators report their `inner_standard_error`, and warn where few draws count.

    Args:
        decoder: from (K, L) latent values to an `Emission` of K states over D coordinates.
        encoder: from (N, D) rows to (mean, standard deviation), (N, L) each; None draws from the prior.
        latent_dim: L.
        n_samples: K.
        seed: of the draws.
        defensive: fraction of draws from the prior, in (0, 1).

    Raises:
        ArgumentError: a decoder that cannot be called, fewer than 4 draws, or a fraction outside (0, 1).

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
        checked_decoder(decoder)
        if not 0 < defensive < 1:
            raise ArgumentError(f"defensive is {defensive}: expected a fraction in (0, 1)")
        self.decoder, self.encoder, self.latent_dim, self.seed = decoder, encoder, latent_dim, checked_seed(seed)
        self.n_samples = checked_count(n_samples, "n_samples", 4)
        self.n_prior = n_samples if encoder is None else min(n_samples - 2, max(2, round(defensive * n_samples)))
        self._dtype, self._device = dtype, torch.device(device)
        with torch.no_grad():
            probe = decoder(torch.zeros(1, latent_dim, dtype=dtype, device=device))
        self._whole_dim, self._is_tabled = probe.dim, probe.is_tabled
        self._keep = torch.arange(self._whole_dim, device=device)

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return len(self._keep)

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
        """K, the draws."""
        return self.n_samples

    @property
    def is_estimated(self) -> bool:
        """Always: the bank is made of draws."""
        return True

    @property
    def is_tabled(self) -> bool:
        """Only without an encoder, where all rows share their draws."""
        return self.encoder is None and self._is_tabled

    def latent_terms(self) -> LatentTermsOf:
        """Self-normalised log weights of the draws, (1, K) without an encoder and (N, K) with one, and ℓ at them."""
        if self.encoder is not None:
            return partial(self._row_terms, self.encoder)
        draws = self._noise("prior")
        even = draws.new_full((1, len(draws)), -math.log(len(draws)))
        emission = self.decoder(draws).restrict(self._keep)
        return lambda x: (even, emission.terms(x))

    def _row_terms(self, encoder: Encoder, x: Tensor) -> tuple[Tensor, LatentTerms]:
        """A bank for each row."""
        whole = x.new_zeros(len(x), self._whole_dim)  # an encoder gets zeros for what is missing: any guide serves
        whole[:, self._keep] = x
        mean, scale = (part[:, None] for part in encoder(whole))
        noise = torch.stack([self._noise(_digest(row)) for row in whole])
        draws = torch.cat([noise[:, : self.n_prior], mean + scale * noise[:, self.n_prior :]], 1)
        log_prior = _log_normal(draws, torch.zeros_like(mean), torch.ones_like(scale))
        share = self.n_prior / self.n_samples
        log_proposal = torch.logaddexp(
            log_prior + math.log(share), _log_normal(draws, mean, scale) + math.log(1 - share)
        )
        values = [self.decoder(z).restrict(self._keep).log_prob(row[None])[0] for z, row in zip(draws, x, strict=True)]
        return (log_prior - log_proposal).log_softmax(1), DenseTerms(torch.stack(values))

    def restrict(self, keep: Tensor) -> Self:
        """The same latents seen through coordinates `keep`."""
        model = copy.copy(self)
        model._keep = self._keep[keep]
        return model

    def score_influence(self, x: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) how much each draw moves Σ_p weight_pj s(M_p): the derivative in its log weight."""
        return score_influence(self, x, hidden, weight)

    def log_prob_influence(self, x: Tensor, visible: Tensor, weight: Tensor) -> Tensor:
        """(J, N, K) Σ_p weight_pj (p(z_k | x_A_p) - w_k)."""
        return log_prob_influence(self, x, visible, weight)

    def inner_variance(self, x: Tensor, influence: Tensor) -> float:
        """Variance of a total over rows from its (N, K) influence; draws from prior and encoder are two strata.

        Rows that share their draws (all without an encoder, equal rows with one) have their influence added first.
        """
        x = checked_data(x, self.dim, dtype=self.dtype, device=self.device)
        group = torch.zeros(len(x), dtype=torch.int64, device=self.device)
        if self.encoder is not None:
            group = x.unique(dim=0, return_inverse=True)[1]
        together = influence.new_zeros(int(group.max()) + 1, influence.shape[1]).index_add_(0, group, influence)
        strata = together.split([self.n_prior, self.n_samples - self.n_prior], 1)
        return math.fsum(s.shape[1] * float(s.var(1).sum()) for s in strata if s.shape[1])

    def warn_if_poor(self, x: Tensor) -> None:
        """A warning where few draws count for a row with all, or nothing, visible."""
        warn_if_poor(self, x, "raise n_samples, or give an encoder closer to the posterior")

    def _noise(self, key: str) -> Tensor:
        """(K, L) standard normals, a function of the seed and the key."""
        generator = Stream(self.seed).child("importance", key).generator()
        noise = torch.randn(self.n_samples, self.latent_dim, dtype=torch.float64, generator=generator)
        return noise.to(self.device, self.dtype)


def _digest(row: Tensor) -> str:
    return hashlib.blake2b(row.detach().cpu().numpy().tobytes(), digest_size=16).hexdigest()


def _log_normal(z: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """log N(z; mean, scale²) summed over the last axis, without the constant that cancels in weights."""
    return (-0.5 * ((z - mean) / scale).square() - scale.log()).sum(-1)
