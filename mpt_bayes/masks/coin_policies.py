"""Policies made of coin flips, drawn again while nothing is hidden: coordinates, spans, whole words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks.policy import MaskPolicy, until_not_empty, without_empty
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class CoordinatePolicy(MaskPolicy):
    """Coordinates hidden independently, each with its own probability; an empty draw is drawn again.

    π(M) = Π_{j∈M} p_j Π_{j∉M} (1 - p_j) / (1 - Π_j (1 - p_j)). Equal probabilities give Bernoulli masking (BERT, Devlin
    et al. 2019); a table gives frequency, PMI or learned token-level policies (Levine et al. 2021).

    Raises:
        ArgumentError: a probability outside [0, 1], or none that is positive.

    Example:
        >>> CoordinatePolicy((0.5, 0.5)).log_probability(torch.tensor([[True, False]])).exp()
        tensor([0.3333], dtype=torch.float64)
    """

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(0 <= p <= 1 for p in self.probabilities) or not any(self.probabilities):
            raise ArgumentError("probabilities holds a number outside [0, 1], or none above 0: nothing could be hidden")

    @property
    def name(self) -> str:
        """Independent coordinates."""
        return "independent coordinates"

    def draw_mask(self, dim: int, stream: Stream) -> Tensor:
        """Coins, again while none says hide."""
        table = self._table(dim)
        return until_not_empty(lambda coins: coins.bernoulli(table), stream)

    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) by the formula above."""
        table = self._table(hidden.shape[1])
        log_prob = torch.where(hidden, table.log(), torch.log1p(-table)).sum(1)
        return without_empty(log_prob, hidden, float(torch.log1p(-table).sum()))

    def covers(self, dim: int) -> bool:
        """All probabilities strictly between 0 and 1."""
        return all(0 < p < 1 for p in self.probabilities)

    def _table(self, dim: int) -> Tensor:
        if len(self.probabilities) != dim:
            raise ArgumentError(f"probabilities has {len(self.probabilities)} entries for {dim} coordinates")
        return torch.tensor(self.probabilities, dtype=torch.float64)


@final
@dataclass(frozen=True)
class SpanPolicy(MaskPolicy):
    """Spans of geometric length: a stationary two-state Markov chain along the sequence, in which a hidden span lasts
    `mean_length` coordinates on average and a share `rate` of all is hidden; an empty draw is drawn again.

    SpanBERT (Joshi et al. 2020) draws geometric lengths too, but cuts them at 10 and stops at a budget, which leaves
    the probability of a mask without a closed form; here it is a product along the sequence.

    Raises:
        ArgumentError: a rate outside (0, 1), a length below 1, or both so large that spans would have to touch.

    Example:
        >>> SpanPolicy(0.25, 3.0).covers(10)
        True
    """

    rate: float
    mean_length: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1 or self.mean_length < 1:
            raise ArgumentError(
                f"rate is {self.rate} and mean_length {self.mean_length}: expected a rate in (0, 1) and a length of "
                "at least 1"
            )
        if self._begin > 1:
            raise ArgumentError(f"spans of mean length {self.mean_length} cannot hide {self.rate:.0%}: lengthen them")

    @property
    def name(self) -> str:
        """Geometric spans."""
        return f"spans of mean length {self.mean_length:g} at rate {self.rate:g}"

    def draw_mask(self, dim: int, stream: Stream) -> Tensor:
        """For each coordinate a coin if the one before is visible and a coin if it is hidden, again while all stay."""
        chances = torch.tensor([self._begin, 1 - 1 / self.mean_length], dtype=torch.float64).repeat(dim, 1)
        chances[0] = self.rate

        def walk(coins: Stream) -> Tensor:
            """(D,) bool: one path of the chain."""
            tossed = coins.bernoulli(chances).tolist()
            state, path = False, []
            for pair in tossed:
                state = pair[state]
                path.append(state)
            return torch.tensor(path)

        return until_not_empty(walk, stream)

    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) the product of the transitions."""
        chances = torch.tensor([self.rate, self._begin, 1 - 1 / self.mean_length], dtype=torch.float64)
        state = torch.cat([torch.zeros_like(hidden[:, :1], dtype=torch.int64), 1 + hidden[:, :-1].long()], 1)
        chance = chances[state]
        log_prob = torch.where(hidden, chance.log(), torch.log1p(-chance)).sum(1)
        empty = math.log1p(-self.rate)
        if hidden.shape[1] > 1:
            empty += (hidden.shape[1] - 1) * (math.log1p(-self._begin) if self._begin < 1 else -math.inf)
        return without_empty(log_prob, hidden, empty)

    def covers(self, dim: int) -> bool:
        """Whether spans may be longer than one, and visible stretches too."""
        return dim == 1 or (self.mean_length > 1 and self._begin < 1)

    @property
    def _begin(self) -> float:
        return self.rate / ((1 - self.rate) * self.mean_length)


@final
@dataclass(frozen=True)
class WordPolicy(MaskPolicy):
    """Whole words: coordinates with one number are hidden together, each word with probability `rate`; an empty draw
    is drawn again. Masks that split a word are impossible, so alone it does not estimate Σ_m S(m).

    Args:
        words: the word of each coordinate.
        rate: of hiding a word.

    Raises:
        ArgumentError: a rate outside (0, 1).

    Example:
        >>> WordPolicy((0, 0, 1), 0.5).log_probability(torch.tensor([[True, True, False], [True, False, False]])).exp()
        tensor([0.3333, 0.0000], dtype=torch.float64)
    """

    words: tuple[int, ...]
    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ArgumentError(f"rate is {self.rate}: expected a number in (0, 1)")

    @property
    def name(self) -> str:
        """Whole words."""
        return f"whole words at rate {self.rate:g}"

    def draw_mask(self, dim: int, stream: Stream) -> Tensor:
        """One coin a word."""
        word, count = self._numbered(dim)
        chances = torch.full((count,), self.rate, dtype=torch.float64)
        return until_not_empty(lambda coins: coins.bernoulli(chances)[word], stream)

    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) rate^hidden words (1 - rate)^visible words; -inf for a split word."""
        word, count = self._numbered(hidden.shape[1])
        letters = torch.zeros(count, dtype=torch.int64).index_add(0, word, torch.ones_like(word))
        seen = torch.zeros(len(hidden), count, dtype=torch.int64).index_add(1, word, hidden.long())
        whole = ((seen == 0) | (seen == letters)).all(1)
        n_hidden = (seen > 0).sum(1)
        share = n_hidden.to(torch.float64)
        log_prob = share * math.log(self.rate) + (count - share) * math.log1p(-self.rate)
        log_prob = torch.where(whole, log_prob, -math.inf)
        return without_empty(log_prob, hidden, count * math.log1p(-self.rate))

    def covers(self, dim: int) -> bool:
        """Only if every word is one coordinate."""
        return len(set(self.words)) == dim

    def _numbered(self, dim: int) -> tuple[Tensor, int]:
        if len(self.words) != dim:
            raise ArgumentError(f"words has {len(self.words)} entries for {dim} coordinates")
        names, word = torch.tensor(self.words).unique(return_inverse=True)
        return word, len(names)
