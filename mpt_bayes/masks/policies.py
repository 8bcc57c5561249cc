"""Policies that are not made of coin flips: the top k by a score, a law of sizes, your own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks.policy import MaskPolicy
from mpt_bayes.masks.size_laws import SizeLaw
from mpt_bayes.masks.subsets import uniform_masks
from mpt_bayes.numerics.combinatorics import log_binomial
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class TopKPolicy(MaskPolicy):
    """Always the k coordinates of highest score (loss, gradient, attention …): one mask, so alone it estimates its own
    s(M) and nothing else. Ties go to the earlier coordinate.

    Example:
        >>> TopKPolicy((0.1, 2.0, 1.0), 2).draw_mask(3, Stream(0)).tolist()
        [False, True, True]
    """

    scores: tuple[float, ...]
    k: int

    def __post_init__(self) -> None:
        if not 1 <= self.k <= len(self.scores):
            raise ArgumentError(f"k is {self.k}: expected 1..{len(self.scores)}")

    @property
    def name(self) -> str:
        """Top k."""
        return f"the top {self.k} by score"

    def draw_mask(self, dim: int, stream: Stream) -> Tensor:
        """That mask; the stream is not used."""
        if len(self.scores) != dim:
            raise ArgumentError(f"scores has {len(self.scores)} entries for {dim} coordinates")
        order = torch.tensor(self.scores).argsort(descending=True, stable=True)
        return torch.zeros(dim, dtype=torch.bool).scatter(0, order[: self.k], True)

    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) 0 for that mask, -inf for all others."""
        same = (hidden == self.draw_mask(hidden.shape[1], Stream(0))).all(1)
        return same.to(torch.float64).log()

    def covers(self, dim: int) -> bool:
        """Only where there is but one mask."""
        return dim == 1


@final
@dataclass(frozen=True)
class SizePolicy(MaskPolicy):
    """A size from a law, then a uniform mask of that size: π(M) = P(|M|) / C(D, |M|)."""

    law: SizeLaw

    @property
    def name(self) -> str:
        """Uniform masks of random size."""
        return f"uniform masks with {self.law.name}"

    def draw_mask(self, dim: int, stream: Stream) -> Tensor:
        """A size, then a mask."""
        size = self.law.draw_size(dim, stream.child("size"))
        return uniform_masks(torch.tensor([size]), dim, stream.child("mask"))[0]

    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) by the formula above."""
        dim = hidden.shape[1]
        log_prob = self.law.probabilities(dim).log() - log_binomial(dim)[1:]
        return log_prob[hidden.sum(1) - 1]

    def covers(self, dim: int) -> bool:
        """Whether every size can occur."""
        return bool((self.law.probabilities(dim) > 0).all())


@final
@dataclass(frozen=True)
class CustomPolicy(MaskPolicy):
    """Any policy whose probability you know.

    Args:
        label: for the name of what its plain average estimates.
        draw: (dim, generator) → (D,) bool, at least one True.
        log_prob: (P, D) bool → (P,) log π(M), normalised over the non-empty masks.
        covers_all: whether every non-empty mask has positive probability.

    Example:
        >>> policy = CustomPolicy(
        ...     "all hidden",
        ...     draw=lambda dim, generator: torch.ones(dim, dtype=torch.bool),
        ...     log_prob=lambda hidden: hidden.all(1).double().log(),
        ...     covers_all=False,
        ... )
        >>> policy.draw_mask(2, Stream(0)).tolist()
        [True, True]
    """

    label: str
    draw: Callable[[int, torch.Generator], Tensor]
    log_prob: Callable[[Tensor], Tensor]
    covers_all: bool

    @property
    def name(self) -> str:
        """The label given."""
        return self.label

    def draw_mask(self, dim: int, stream: Stream) -> Tensor:
        """The caller's draw, checked.

        Raises:
            ArgumentError: not a (D,) bool mask, or an empty one.
        """
        hidden = self.draw(dim, stream.generator())
        if hidden.shape != (dim,) or hidden.dtype != torch.bool or not bool(hidden.any()):
            raise ArgumentError(f"draw of policy '{self.label}' must return a ({dim},) bool mask that hides something")
        return hidden

    def log_probability(self, hidden: Tensor) -> Tensor:
        """(P,) the caller's."""
        return self.log_prob(hidden).to(torch.float64)

    def covers(self, dim: int) -> bool:
        """As the caller says."""
        return self.covers_all
