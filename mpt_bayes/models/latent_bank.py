"""Banks of latent states: coordinates independent given a state, the states summed out for all masks at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from mpt_bayes.checks import checked_data, checked_hidden, checked_subsets
from mpt_bayes.models.base import JointModel
from mpt_bayes.numerics.log_space import log_matmul, subset_sums

_WORKING_BYTES = 2**27


class LatentBank(JointModel):
    """p(x) = Σ_k w_k Π_j p(x_j | z_k): a finite bank of latent states.

    With ℓ_kj = log p(x_j | z_k), the marginal of any subset is

        log p(x_R) = logsumexp_k(log w_k + Σ_{j∈R} ℓ_kj),

    one matrix product for all subsets, and log p(x_j | x_R) is a second product of the state probabilities given x_R
    with the ℓ_kj. Cost N·P·K·D: linear in rows, masks and states. Impossible values (ℓ = -∞) are selected, never
    multiplied. The identity of the cumulative score holds exactly for the bank itself; how far a bank is from a model
    with continuous latents is a separate, reported error.
    """

    @property
    @abstractmethod
    def n_states(self) -> int:
        """K, the number of states of the bank."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Of the computation."""

    @abstractmethod
    def latent_terms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised log w, of shape (1, K) or (N, K), and ℓ (N, K, D), for (N, D) data."""

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible), in blocks of rows that fit a memory budget."""
        checked_hidden(hidden, self.dim, self.device)
        parts = []
        for log_weight, log_likelihood in self.blocks(x, len(hidden)):
            log_posterior = state_log_posterior(log_weight, log_likelihood, ~hidden)
            log_prob = log_matmul(log_posterior.transpose(1, 2), log_likelihood)
            parts.append(torch.where(hidden, log_prob, 0))
        return torch.cat(parts)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log p(x_n) of the bank."""
        parts = [(log_weight + terms.sum(2)).logsumexp(1) for log_weight, terms in self.blocks(x, 1)]
        return torch.cat(parts)

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible) of the bank."""
        checked_subsets(visible, self.dim, "visible", self.device)
        parts = [
            (log_weight[..., None] + subset_sums(terms, visible)).logsumexp(1)
            for log_weight, terms in self.blocks(x, len(visible))
        ]
        return torch.cat(parts)

    def state_probabilities(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P, K) p(z_k | x_visible), the responsibilities of the states."""
        checked_subsets(visible, self.dim, "visible", self.device)
        parts = [state_log_posterior(w, terms, visible).exp() for w, terms in self.blocks(x, len(visible))]
        return torch.cat(parts).transpose(1, 2)

    def blocks(self, x: Tensor, n_subsets: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The latent terms of consecutive rows, few enough rows that the working arrays fit the budget."""
        x = checked_data(x, self.dim, dtype=self.dtype, device=self.device)
        numbers = self.n_states * (2 * self.dim + 3 * n_subsets) + 4 * n_subsets * self.dim
        rows = max(1, _WORKING_BYTES // (8 * numbers))
        for start in range(0, len(x), rows):
            yield self.latent_terms(x[start : start + rows])


def state_log_posterior(log_weight: Tensor, log_likelihood: Tensor, visible: Tensor) -> Tensor:
    """(N, K, P) log p(z_k | x_visible); NaN where the visible part has probability zero, since nothing follows then."""
    return (log_weight[..., None] + subset_sums(log_likelihood, visible)).log_softmax(1)
