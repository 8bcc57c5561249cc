"""Laws of the mask size used in training: one rate, several, or a rate that changes in training time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks.subsets import size_at
from mpt_bayes.numerics.random import Stream


class SizeLaw(ABC):
    """Which rate a mask hides; a size is round(rate · D), ties away from zero, at least 1."""

    @property
    @abstractmethod
    def name(self) -> str:
        """In words."""

    @abstractmethod
    def draw_size(self, dim: int, stream: Stream) -> int:
        """A size, a function of the stream alone."""

    @abstractmethod
    def probabilities(self, dim: int) -> Tensor:
        """(D,) probability of each size m = 1..D; over all of training where the rate changes in time."""


@final
@dataclass(frozen=True)
class RateSet(SizeLaw):
    """One of a few rates, each equally likely (one rate alone: the fixed-rate law of BERT).

    Raises:
        ArgumentError: no rate, or one outside (0, 1].

    Example:
        >>> RateSet((0.25, 0.5)).probabilities(4)
        tensor([0.5000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rates or not all(0 < rate <= 1 for rate in self.rates):
            raise ArgumentError(f"rates is {self.rates}: expected at least one number, each in (0, 1]")

    @property
    def name(self) -> str:
        """The rates."""
        return "rate " + " or ".join(f"{rate:g}" for rate in self.rates)

    def draw_size(self, dim: int, stream: Stream) -> int:
        """One of the rates."""
        return size_at(self.rates[int(stream.integers(len(self.rates), 1))], dim)

    def probabilities(self, dim: int) -> Tensor:
        """(D,) 1 / len(rates) for each rate, at its size."""
        sizes = torch.tensor([size_at(rate, dim) for rate in self.rates])
        return torch.bincount(sizes - 1, minlength=dim).to(torch.float64) / len(self.rates)


@final
@dataclass(frozen=True)
class RateSchedule(SizeLaw):
    """A rate that moves from `start` to `end` while time runs from 0 to 1, in a straight line or along half a cosine.

    As a law of masks its time is uniform: the masks of a whole training. Rates outside the range never occur, so such
    a training leaves sizes out unless it runs all the way between 0 and 1.

    Raises:
        ArgumentError: a rate outside [0, 1], start equal to end, or another shape.

    Example:
        >>> RateSchedule(0.8, 0.2, "cosine").rate_at(0.5)
        0.5
    """

    start: float
    end: float
    shape: str = "linear"

    def __post_init__(self) -> None:
        if self.shape not in ("linear", "cosine"):
            raise ArgumentError(f"shape is {self.shape!r}: expected 'linear' or 'cosine'")
        if not (0 <= self.start <= 1 and 0 <= self.end <= 1) or self.start == self.end:
            raise ArgumentError(f"start is {self.start} and end {self.end}: expected two different numbers in [0, 1]")

    @property
    def name(self) -> str:
        """Ends and shape."""
        return f"a {self.shape} schedule of rates {self.start:g} to {self.end:g}"

    def rate_at(self, time: float) -> float:
        """The rate at a time in [0, 1]."""
        done = time if self.shape == "linear" else (1 - math.cos(math.pi * time)) / 2
        return self.start + (self.end - self.start) * done

    def draw_size(self, dim: int, stream: Stream) -> int:
        """At a uniform time."""
        return size_at(self.rate_at(stream.uniform()), dim)

    def probabilities(self, dim: int) -> Tensor:
        """(D,) the share of time spent at rates that round to each size, in closed form."""
        edges = (torch.arange(dim + 1, dtype=torch.float64) + 0.5) / dim  # size m has rates in [m - 1/2, m + 1/2) / D
        edges[0] = 0.0
        done = ((edges - self.start) / (self.end - self.start)).clamp(0, 1)
        time = done if self.shape == "linear" else (1 - 2 * done).acos() / math.pi
        return time.diff().abs()
