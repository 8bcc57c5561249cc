"""Banks of latent states: coordinates independent given a state, the states summed out for all masks at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.checks import checked_data, checked_hidden, checked_subsets
from mpt_bayes.errors import ArgumentError
from mpt_bayes.models.base import JointModel
from mpt_bayes.models.grid_watch import GridFit, GridWatch
from mpt_bayes.models.latent_terms import LatentTerms

_WORKING_BYTES = 2**27


def checked_decoder(decoder: Any, name: str = "decoder", gives: str = "an Emission") -> Any:
    """Something to call with (K, L) latent values, or an error that names the argument and what it gives.

    Raises:
        ArgumentError: anything else.
    """
    if not callable(decoder):
        raise ArgumentError(
            f"{name} is {decoder!r}: expected a function or a module from (K, L) latent values to {gives}"
        )
    return decoder


LatentTermsOf = Callable[[Tensor], tuple[Tensor, LatentTerms]]


class LatentBank(JointModel):
    """p(x) = Σ_k w_k Π_j p(x_j | z_k): a finite bank of latent states.

    With ℓ_kj = log p(x_j | z_k), the marginal of any subset is

        log p(x_R) = logsumexp_k(log w_k + Σ_{j∈R} ℓ_kj),

    one matrix product for all subsets, and log p(x_j | x_R) is a second product of the state probabilities given x_R
    with the ℓ_kj. Cost N·P·K·D: linear in rows, masks and states. Impossible values (ℓ = -∞) are selected, never
    multiplied. The identity of the cumulative score holds exactly for the bank itself; how far a bank is from a model
    with continuous latents is a separate, reported error.
    """

    watch: GridWatch | None = None
    """Of the grid that the states are, if they are one: `log_marginal_likelihood` warns where it does not serve."""

    @property
    @abstractmethod
    def n_states(self) -> int:
        """K, the number of states of the bank."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Of the computation."""

    @property
    @abstractmethod
    def is_tabled(self) -> bool:
        """Whether the ℓ of a block of rows are tables shared by all rows, or an array of N·K·D numbers."""

    @abstractmethod
    def latent_terms(self) -> LatentTermsOf:
        """Asked once a call: from a block of (N, D) data to normalised log w, (1, K) or (N, K), and the ℓ."""

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible), in blocks of rows that fit a memory budget."""
        checked_hidden(hidden, self.dim, self.device)
        parts, terms_of = [], self.latent_terms()
        for block in self.blocks(x, len(hidden)):
            log_weight, terms = terms_of(block)
            parts.append(conditionals(log_weight, terms, hidden))
        return torch.cat(parts)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log p(x_n) of the bank."""
        everything = torch.ones(1, self.dim, dtype=torch.bool, device=self.device)
        parts, fits, terms_of = [], [], self.latent_terms()
        for block in self.blocks(x, 1):
            log_weight, terms = terms_of(block)
            log_joint = log_weight + terms.subset_sums(everything)[:, 0]
            parts.append(log_joint.logsumexp(1))
            if self.watch is not None and not log_joint.requires_grad:  # training looks at its progress elsewhere
                fits.append(GridFit.of(log_joint, self.watch.shape))
        if self.watch is not None and fits:
            self.watch.look(x, GridFit.joined(fits))
        return torch.cat(parts)

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible) of the bank."""
        checked_subsets(visible, self.dim, "visible", self.device)
        parts, terms_of = [], self.latent_terms()
        for block in self.blocks(x, len(visible)):
            log_weight, terms = terms_of(block)
            parts.append((log_weight[:, None] + terms.subset_sums(visible)).logsumexp(2))
        return torch.cat(parts)

    def state_probabilities(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P, K) p(z_k | x_visible), the responsibilities of the states."""
        checked_subsets(visible, self.dim, "visible", self.device)
        terms_of = self.latent_terms()
        terms = [terms_of(block) for block in self.blocks(x, len(visible))]
        return torch.cat([(w[:, None] + t.subset_sums(visible)).softmax(2) for w, t in terms])

    def blocks(self, x: Tensor, n_subsets: int) -> Iterator[Tensor]:
        """Checked data in consecutive rows, few enough that the working arrays fit the budget."""
        x = checked_data(x, self.dim, dtype=self.dtype, device=self.device)
        dense = 0 if self.is_tabled else 2 * self.dim
        numbers = self.n_states * (dense + 3 * n_subsets) + 4 * n_subsets * self.dim
        yield from x.split(max(1, _WORKING_BYTES // (8 * numbers)))


def conditionals(log_weight: Tensor, terms: LatentTerms, hidden: Tensor) -> Tensor:
    """(N, P, D) log p(x_j | x_visible) where hidden, 0 where visible.

    NaN where the visible part has probability zero, since nothing follows from it.
    """
    log_state = (log_weight[:, None] + terms.subset_sums(~hidden)).log_softmax(2)
    return torch.where(hidden, terms.predictions(log_state), 0)
