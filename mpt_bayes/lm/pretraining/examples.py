"""Training examples: the k-th is a function of (corpus, seed, k), whatever the batch, the worker or the restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from mpt_bayes.lm.pretraining.config import MaskConfig
from mpt_bayes.lm.pretraining.corpora import Corpus
from mpt_bayes.lm.pretraining.laws import MaskLaw
from mpt_bayes.numerics.random import Stream


@dataclass(frozen=True, eq=False)
class Example:
    """One corrupted sequence.

    Attributes:
        ids: (L,) int64 as the model sees it.
        target: (L,) int64 the true ids.
        hidden: (L,) bool, what is predicted.
        attended: (L,) bool, False where a token was dropped.
    """

    ids: Tensor
    target: Tensor
    hidden: Tensor
    attended: Tensor


class TrainingExamples(Dataset[Example]):
    """`count` examples in a fixed order, masks drawn by the law in force at each.

    Args:
        per_step: examples an optimiser step takes, so that the law knows the time.
    """

    def __init__(self, corpus: Corpus, config: MaskConfig, *, count: int, seed: int) -> None:
        self.corpus = corpus
        self.config = config
        self.law = MaskLaw(config)
        self.count = count
        self.stream = Stream(seed)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        corpus, config = self.corpus, self.config
        target, words = corpus.sequence(index)
        own = self.law.draw(len(corpus.scored), index / self.count, self.stream.child("mask", index), words)
        hidden = torch.zeros(len(target), dtype=torch.bool)
        hidden[corpus.scored] = own
        ids = target.masked_fill(hidden, corpus.mask_token_id)
        if config.random or config.keep:
            ids = self._corrupted(ids, target, hidden, index)
        attended = torch.ones(len(target), dtype=torch.bool)
        if config.drop:
            coins = torch.rand(len(own), generator=self.stream.child("drop", index).generator())
            attended[corpus.scored[~own & (coins < config.drop)]] = False
        return Example(ids, target, hidden, attended)

    def _corrupted(self, ids: Tensor, target: Tensor, hidden: Tensor, index: int) -> Tensor:
        """Hidden tokens replaced by a random ordinary token, or left as they are, with the configured shares."""
        generator = self.stream.child("corruption", index).generator()
        coins = torch.rand(len(ids), generator=generator)
        random = self.corpus.ordinary[torch.randint(len(self.corpus.ordinary), (len(ids),), generator=generator)]
        ids = torch.where(hidden & (coins < self.config.random), random, ids)
        kept = hidden & (coins >= self.config.random) & (coins < self.config.random + self.config.keep)
        return torch.where(kept, target, ids)


def collate(examples: Sequence[Example]) -> dict[str, Tensor]:
    """A batch, (B, L) each, under the names of `Example`."""
    return {
        name: torch.stack([getattr(example, name) for example in examples])
        for name in ("ids", "target", "hidden", "attended")
    }
