"""Languages whose evidence is known: every sequence has an exact log-likelihood, and every mask an exact score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import BudgetError
from mpt_bayes.models import HiddenMarkov, JointTable
from mpt_bayes.models.base import JointModel
from mpt_bayes.numerics.random import Stream

BLOCK = 4096
"""Sequences drawn at once; sequence i is a function of (seed, i) because blocks are."""

MOST_ENTRIES = 2**20
"""Of the table of a language: every exact score sums over all of it."""


@final
@dataclass(frozen=True, eq=False)
class Language:
    """A source of token sequences with its exact joint distribution.

    Attributes:
        joint: the distribution of a sequence of D letters, ids 0..A-1.
        letters: A.
        draw: (number, generator) to that many sequences of the joint, (number, D) int64.
    """

    joint: JointModel
    letters: int
    draw: Callable[[int, torch.Generator], Tensor]

    @property
    def length(self) -> int:
        """D, letters of a sequence."""
        return self.joint.dim

    @property
    def mask_token_id(self) -> int:
        """The id after the last letter."""
        return self.letters

    def sequences(self, stream: Stream, block: int) -> Tensor:
        """(BLOCK, D) int64, a function of the stream and the number of the block."""
        return self.draw(BLOCK, stream.child("block", block).generator())

    def context_free(self) -> Tensor:
        """(D, A) log-marginals of each position: the best prediction that looks at no other token."""
        letters = torch.arange(self.letters)[:, None].expand(-1, self.length)
        alone = torch.eye(self.length, dtype=torch.bool)
        return self.joint.marginal_log_prob(letters, alone).T

    def exact(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) exact log p(x_j | visible) at hidden j, 0 elsewhere; every row under its own masks (N, P, D)."""
        return torch.stack(
            [self.joint.masked_log_prob(row[None], masks)[0] for row, masks in zip(x, hidden, strict=True)]
        )


def cyclic_language(*, states: int = 6, letters: int = 12, length: int = 32, forward: float = 0.8) -> Language:
    """A hidden Markov language that walks round a cycle of states, each with three letters of its own liking.

    State k moves to k + 1 with probability `forward`, stays with 0.1, and jumps anywhere otherwise; it emits letters
    ⌊k A / K⌋, +5 and +10 (modulo A) with 0.604, 0.254, 0.104, any letter otherwise. The chain starts in its
    stationary law, uniform on the states. Which letter is likely at j depends on HOW FAR the visible letters are: a
    bag of letters knows the phase of the cycle of none. With the defaults context is worth 0.69 nats per token.

    Example:
        >>> cyclic_language(length=8).length
        8
    """
    checked_count(states, "states", 2)
    checked_count(letters, "letters", 2)
    checked_count(length, "length", 2)
    transition = forward * torch.eye(states, dtype=torch.float64).roll(1, 1) + 0.1 * torch.eye(states)
    transition = transition + (0.9 - forward) / states
    emission = torch.full((states, letters), 0.05 / letters, dtype=torch.float64)
    for state in range(states):
        for step, probability in enumerate((0.6, 0.25, 0.1)):
            emission[state, (state * letters // states + 5 * step) % letters] += probability
    initial = torch.full((states,), 1 / states, dtype=torch.float64)
    emission = emission / emission.sum(1, keepdim=True)
    joint = HiddenMarkov(initial, transition, emission, length=length)
    return Language(joint, letters, partial(hidden_markov_sequences, joint))


def table_language(*, letters: int = 3, length: int = 6, seed: int = 0) -> Language:
    """A small language given by its whole table of probabilities, random and strongly dependent (Dirichlet(0.05)).

    Raises:
        BudgetError: a table of more than 2^20 entries.

    Example:
        >>> table_language().joint.probabilities.shape[0]
        3
    """
    checked_count(letters, "letters", 2)
    checked_count(length, "length", 2)
    if length * math.log(letters) > math.log(MOST_ENTRIES) + 1e-9:
        raise BudgetError(
            f"a table of {letters}^{length} entries is above the budget of {MOST_ENTRIES:,}: use fewer letters, "
            "shorter sequences, or the hidden Markov language"
        )
    generator = Stream(seed).child("table").generator()
    weights = torch.rand(letters**length, dtype=torch.float64, generator=generator).pow(20)
    joint = JointTable((weights / weights.sum()).reshape((letters,) * length))
    return Language(joint, letters, partial(table_sequences, joint))


def hidden_markov_sequences(model: HiddenMarkov, count: int, generator: torch.Generator) -> Tensor:
    """(count, D) int64 sequences of a hidden Markov model with categorical emissions."""
    emission = model.emission.parameter.exp()  # (S, D, A)
    state = torch.multinomial(model.initial.expand(count, -1), 1, generator=generator)[:, 0]
    letters = [torch.multinomial(emission[state, 0], 1, generator=generator)[:, 0]]
    for t, transition in enumerate(model.transition):
        state = torch.multinomial(transition[state], 1, generator=generator)[:, 0]
        letters.append(torch.multinomial(emission[state, t + 1], 1, generator=generator)[:, 0])
    return torch.stack(letters, 1)


def table_sequences(model: JointTable, count: int, generator: torch.Generator) -> Tensor:
    """(count, D) int64 sequences of a table of probabilities."""
    flat = torch.multinomial(model.probabilities.flatten(), count, replacement=True, generator=generator)
    return torch.stack(torch.unravel_index(flat, model.probabilities.shape), 1)
