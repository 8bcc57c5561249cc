"""The error of scores whose model is itself a sample: influence of the draws, and how many of them count."""

from __future__ import annotations

import warnings
from typing import Protocol

import torch
from torch import Tensor

from mpt_bayes.checks import checked_hidden
from mpt_bayes.errors import MptBayesWarning
from mpt_bayes.models.latent_bank import LatentBank, conditionals

MINIMUM_EFFECTIVE_SAMPLES = 20
_WORKING_NUMBERS = 2**24


class States(Protocol):
    """What has states with probabilities given a subset of the coordinates."""

    @property
    def n_states(self) -> int:
        """K."""

    @property
    def dim(self) -> int:
        """D."""

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""

    def state_probabilities(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P, K) p(state | x_visible)."""


def score_influence(bank: LatentBank, x: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
    """(J, N, K) ∂/∂log w_k of Σ_p weight_pj s(M_p), row by row: the infinitesimal jackknife (Jaeckel 1972).

    For log p(x) itself it is p(z_k | x) - w_k. Summed over draws it is zero; its squares summed over independent draws
    are the delta-method variance of the score. Masks of weight 0 cost nothing.
    """
    checked_hidden(hidden, bank.dim, bank.device)
    parts, terms_of = [], bank.latent_terms()
    for block in bank.blocks(x, len(hidden)):
        with torch.no_grad():
            log_weight, terms = terms_of(block)
        with torch.enable_grad():
            tilted = log_weight.expand(len(block), -1).clone().requires_grad_()
            columns = []
            for column in weight.T:
                masks, share = hidden[column != 0], column[column != 0]
                if len(masks) == 0:
                    columns.append(torch.zeros_like(tilted))
                    continue
                log_prob = conditionals(tilted.log_softmax(1), terms, masks)
                total = (log_prob.sum(2) / masks.sum(1)) @ share.to(log_prob)
                columns.append(torch.autograd.grad(total.sum(), tilted)[0])
            parts.append(torch.stack(columns))
    return torch.cat(parts, 1)


def shared_draws_variance(influence: Tensor, draws: Tensor) -> float:
    """Variance of a total over rows whose K states come from n independent draws shared by all rows.

    Args:
        influence: (N, K) of the states.
        draws: (K,) int64, the draw each state comes from, 0..n-1.
    """
    count = int(draws.max()) + 1
    each = influence.new_zeros(count).index_add_(0, draws, influence.sum(0))
    return count * float(each.var())


@torch.no_grad()
def log_prob_influence(bank: States, x: Tensor, visible: Tensor, weight: Tensor) -> Tensor:
    """(J, N, K) Σ_p weight_pj (p(z_k | x_A_p) - w_k): of log p(x_A) the derivative is p(z_k | x_A) - w_k."""
    nothing = visible.new_zeros(1, bank.dim)
    prior = bank.state_probabilities(x, nothing)[:, 0]
    influence = -weight.sum(0)[:, None, None].to(prior) * prior
    length = max(1, _WORKING_NUMBERS // (len(x) * bank.n_states))
    for subsets, share in zip(visible.split(length), weight.to(prior).split(length), strict=True):
        influence += torch.einsum("npk,pj->jnk", bank.state_probabilities(x, subsets), share)
    return influence


@torch.no_grad()
def effective_sample_size(bank: States, x: Tensor, visible: Tensor) -> Tensor:
    """(N, P) 1 / Σ_k p(z_k | x_visible)²: how many equally weighted draws these are worth (Kong 1992)."""
    return 1 / bank.state_probabilities(x, visible).square().sum(2)


def warn_if_poor(bank: States, x: Tensor, remedy: str) -> None:
    """A warning, with the remedy, where the effective sample size of a row is below 20 with all or nothing visible."""
    size = effective_sample_size(bank, x, _ends(bank)).amin(1)
    poor = int((size < MINIMUM_EFFECTIVE_SAMPLES).sum())
    if poor:
        warnings.warn(
            f"effective sample size {float(size.min()):.1f} of {bank.n_states} draws in row {int(size.argmin())} "
            f"({poor} of {len(size)} rows below {MINIMUM_EFFECTIVE_SAMPLES}): their scores and inner standard errors "
            f"are unreliable; {remedy}",
            MptBayesWarning,
            stacklevel=4,
        )


def _ends(bank: States) -> Tensor:
    """(2, D) subsets: everything, nothing."""
    return torch.tensor([[True], [False]], device=bank.device).expand(2, bank.dim)
