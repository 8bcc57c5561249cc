"""Reproducible random streams: every draw is a function of (seed, path), never of global state or batch size."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from mpt_bayes.checks import checked_seed
from mpt_bayes.errors import ArgumentError


@dataclass(frozen=True)
class Stream:
    """A named place in a tree of random streams.

    `Stream(seed).child(datum, draw).generator()` gives the same numbers whatever was drawn before it, in whatever
    order, in whichever process: results depend on the seed and the path alone.

    Raises:
        ArgumentError: a seed that is no integer of at least 0.

    Example:
        >>> a = Stream(7).child("row", 3).generator()
        >>> b = Stream(7).child("row").child(3).generator()
        >>> torch.equal(torch.rand(4, generator=a), torch.rand(4, generator=b))
        True
    """

    seed: int
    path: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        if not self.path:  # a child has the checked seed of its parent
            object.__setattr__(self, "seed", checked_seed(self.seed))

    def child(self, *keys: int | str) -> Stream:
        """The stream one step (or several) further down the tree."""
        return Stream(self.seed, (*self.path, *keys))

    def generator(self) -> torch.Generator:
        """A fresh CPU generator seeded by a hash of the seed and the path."""
        return torch.Generator().manual_seed(self._number())

    def _number(self) -> int:
        digest = hashlib.blake2b(repr((self.seed, self.path)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    # The primitive draws below are all that a mask design uses, so that a test can enumerate a design's probability
    # space by answering them with every outcome in turn. Call at most one of them on a stream: take a child for more.

    def permutations(self, count: int, length: int) -> Tensor:
        """(count, length) int64: independent uniform permutations of 0..length-1; the first ones are the same whatever
        `count`."""
        keys = torch.rand(count, length, dtype=torch.float64, generator=self.generator())
        return torch.from_numpy(keys.numpy().argsort(1))  # several times faster on short rows than torch

    def integers(self, high: int, count: int) -> Tensor:
        """(count,) int64: independent, uniform on 0..high-1."""
        return torch.randint(high, (count,), generator=self.generator())

    def uniform(self) -> float:
        """One number uniform on [0, 1)."""
        return float(torch.rand((), dtype=torch.float64, generator=self.generator()))

    def bernoulli(self, probabilities: Tensor) -> Tensor:
        """Independent bool draws, true with the given probabilities, of their shape."""
        return torch.rand(probabilities.shape, dtype=torch.float64, generator=self.generator()) < probabilities


def seed_from(generator: torch.Generator | None) -> int:
    """The seed that stands for a generator in its present state; the generator moves on by one draw.

    A fresh generator stands for its own seed, so `torch.Generator().manual_seed(result.seed)` replays a result. A
    generator that has been used gives a new seed at every call. `None` stands for seed 0: deterministic, never global.

    Raises:
        ArgumentError: a number or anything else that is no generator.
    """
    if generator is None:
        return 0
    if not isinstance(generator, torch.Generator):
        raise ArgumentError(
            f"generator is a {type(generator).__name__}: expected torch.Generator().manual_seed(seed), "
            "or None for seed 0"
        )
    seed = generator.initial_seed()
    fresh = torch.Generator(generator.device).manual_seed(seed)
    is_fresh = torch.equal(generator.get_state(), fresh.get_state())
    drawn = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return seed if is_fresh else drawn
