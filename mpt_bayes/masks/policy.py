"""What a mask policy promises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from mpt_bayes.numerics.random import Stream


class MaskPolicy(ABC):
    """A probability law π over the non-empty masks of D coordinates."""

    @property
    @abstractmethod
    def name(self) -> str:
        """In words, for the label of what its plain average estimates."""

    @abstractmethod
    def draw_mask(self, dim: int, stream: Stream) -> Tensor:
        """(D,) bool, one mask: a function of the stream alone."""

    @abstractmethod
    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) float64 log π(M) of (P, D) masks, normalised over the non-empty ones; -inf where impossible."""

    @abstractmethod
    def covers(self, dim: int) -> bool:
        """Whether EVERY non-empty mask has positive probability: without that no weights estimate Σ_m S(m)."""


def until_not_empty(draw: Callable[[Stream], Tensor], stream: Stream) -> Tensor:
    """Draws again, each from its own stream, while nothing is hidden."""
    attempt = 0
    while True:
        hidden = draw(stream.child("coins", attempt))
        if bool(hidden.any()):
            return hidden
        attempt += 1


def without_empty(log_prob: Tensor, hidden: Tensor, log_empty: float) -> Tensor:
    """Normalised over the non-empty masks; the empty one has probability 0."""
    return torch.where(hidden.any(1), log_prob - math.log1p(-math.exp(log_empty)), -math.inf)
