"""A log-likelihood in the forms people ask for, each by its name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Perplexity:
    """A log-likelihood in the forms people ask for, each by its name.

    Attributes:
        sum_nats: over all scored tokens.
        n_tokens: scored tokens; special tokens and prompts are not among them.
        n_words: words they belong to; None where the tokenizer does not say.
    """

    sum_nats: float
    n_tokens: int
    n_words: int | None

    @property
    def mean_nats_per_token(self) -> float:
        """sum_nats / n_tokens."""
        return self.sum_nats / self.n_tokens

    @property
    def perplexity_per_token(self) -> float:
        """exp(-sum_nats / n_tokens)."""
        return math.exp(-self.mean_nats_per_token)

    @property
    def perplexity_per_word(self) -> float | None:
        """exp(-sum_nats / n_words); None without word boundaries."""
        return math.exp(-self.sum_nats / self.n_words) if self.n_words else None

    def to_dict(self) -> dict[str, Any]:
        """All forms."""
        return {
            "sum_nats": self.sum_nats,
            "n_tokens": self.n_tokens,
            "n_words": self.n_words,
            "mean_nats_per_token": self.mean_nats_per_token,
            "perplexity_per_token": self.perplexity_per_token,
            "perplexity_per_word": self.perplexity_per_word,
        }
