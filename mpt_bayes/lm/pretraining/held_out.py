"""Held-out score of a network in training: every sequence under one mask of every size, always the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.batches import BatchLimits, Runner, Work, batched
from mpt_bayes.lm.pretraining.languages import Language
from mpt_bayes.lm.text import EncodedText
from mpt_bayes.masks import PerSize
from mpt_bayes.numerics.random import Stream


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Mean masked log-probabilities of N sequences, one mask of each size, in nats.

    Each row has its own masks, so rows are independent and identically distributed: the standard errors below hold
    what is due to the choice of sequences AND of masks, for the corpus the sequences stand for.

    Attributes:
        scores: (N, D) s(M) of row n under its mask of size m = 1..D.
    """

    scores: NDArray[np.float64]

    @property
    def curve(self) -> NDArray[np.float64]:
        """(D,) S(m) per sequence."""
        return np.asarray(self.scores.mean(0))

    @property
    def curve_standard_errors(self) -> NDArray[np.float64]:
        """(D,)."""
        return np.asarray(self.scores.std(0, ddof=1) / np.sqrt(len(self.scores)))

    @property
    def total(self) -> float:
        """Σ_m S(m) per sequence: the area under the curve."""
        return float(self.scores.sum(1).mean())

    @property
    def total_standard_error(self) -> float:
        """Of `total`."""
        return float(self.scores.sum(1).std(ddof=1) / np.sqrt(len(self.scores)))

    def minus(self, other: HeldOutScores) -> HeldOutScores:
        """The paired difference: same sequences, same masks, so most of the noise cancels.

        Raises:
            DataError: scores of another number of sequences or sizes.
        """
        if self.scores.shape != other.scores.shape:
            raise DataError(
                f"cannot pair scores of shape {self.scores.shape} with {other.scores.shape}: score one held-out set"
            )
        return HeldOutScores(self.scores - other.scores)


@dataclass(frozen=True)
class Share:
    """What part of the worth of context a network captures: (network - context-free) / (exact - context-free).

    Attributes:
        value: the share of Σ_m S(m); 1 is the exact joint, 0 the best prediction without context.
        standard_error: over sequences and masks, of the ratio (delta method).
        by_size, by_size_standard_errors: (D,) the same at each mask size; NaN at D, where there is no context.
        worth: nats per token that context is worth.
    """

    value: float
    standard_error: float
    by_size: NDArray[np.float64]
    by_size_standard_errors: NDArray[np.float64]
    worth: float


class HeldOut:
    """Sequences of equal length with their masks, drawn once from the seed: every model meets the same ones.

    Args:
        texts: N sequences with D scored tokens each.
        seed: of the masks.
    """

    def __init__(self, texts: Sequence[EncodedText], *, seed: int = 0) -> None:
        dims = {text.dim for text in texts}
        if len(texts) < 2 or len(dims) != 1:
            raise ArgumentError(f"held-out texts have {sorted(dims)} tokens: expected two or more, all of one length")
        self.texts = tuple(texts)
        self.dim = dims.pop()
        stream = Stream(seed).child("held out")
        self.hidden = torch.stack([PerSize(1).draw(self.dim, stream.child(text.digest)).hidden for text in self.texts])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the sequences and their masks: scores under different ones are never compared."""
        parts = [text.digest.encode() for text in self.texts] + [self.hidden.numpy().tobytes()]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def score(self, model: MaskedLM) -> HeldOutScores:
        """The network's own log-probabilities, one forward pass for each sequence and mask."""
        works = [Work(text, masks, masks) for text, masks in zip(self.texts, self.hidden, strict=True)]
        limits = BatchLimits.for_device(model.device)
        scores = np.empty((len(works), self.dim))
        for batch, values in Runner(model, limits).run(works, batched(works, limits, model.vocabulary_size)):
            for (row, mask), log_prob in zip(batch.units, values, strict=True):
                scores[row, mask] = float(log_prob.to(torch.float64).mean())
        return HeldOutScores(scores)

    def exact(self, language: Language) -> HeldOutScores:
        """What the language's own distribution gives under the same masks."""
        return self._mean(language.exact(self._ids(), self.hidden))

    def context_free(self, language: Language) -> HeldOutScores:
        """What the best prediction that sees no other token gives under the same masks."""
        alone = language.context_free()[torch.arange(self.dim), self._ids()]
        return self._mean(torch.where(self.hidden, alone[:, None, :], 0.0))

    def _ids(self) -> Tensor:
        return torch.stack([text.ids[text.scored] for text in self.texts])

    def _mean(self, log_prob: Tensor) -> HeldOutScores:
        return HeldOutScores((log_prob.sum(2) / self.hidden.sum(2)).numpy())


def share_of_context(network: HeldOutScores, exact: HeldOutScores, context_free: HeldOutScores) -> Share:
    """The share of what context is worth, in all and at each size, with standard errors.

    A percentage of the log-likelihood would say little: a network that has learned the frequencies of single tokens
    and nothing else comes within a few per cent of it, and has a share of 0.
    """
    gain, worth = network.minus(context_free).scores, exact.minus(context_free).scores
    value, error = _ratio(gain.sum(1), worth.sum(1))
    by_size = [_ratio(gain[:, m], worth[:, m]) for m in range(gain.shape[1] - 1)]
    return Share(
        value=value,
        standard_error=error,
        by_size=np.array([*(share for share, _ in by_size), np.nan]),
        by_size_standard_errors=np.array([*(spread for _, spread in by_size), np.nan]),
        worth=float(worth.sum(1).mean() / gain.shape[1]),
    )


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> tuple[float, float]:
    """Ratio of means with its delta-method standard error."""
    ratio = float(numerator.mean() / denominator.mean())
    residual = numerator - ratio * denominator
    return ratio, float(residual.std(ddof=1) / np.sqrt(len(residual)) / abs(denominator.mean()))
