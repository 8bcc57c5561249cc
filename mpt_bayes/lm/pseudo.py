"""Pseudo-log-likelihoods: each token predicted from all others. Exact, and not a likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.batches import BatchLimits, Work
from mpt_bayes.lm.corpus import Label, corpus_score
from mpt_bayes.lm.engine import run_works
from mpt_bayes.lm.reduction import PieceScore
from mpt_bayes.lm.results import CorpusScore
from mpt_bayes.lm.rows import EmptyText, Text, encoded_rows
from mpt_bayes.lm.store import UnitStore
from mpt_bayes.lm.text import EncodedText, LongText
from mpt_bayes.masks.base import ENUMERATED, MaskBatch, Sampling

Variant = Literal["original", "whole-word", "within-word"]


def pseudo_log_likelihood(
    model: MaskedLM,
    texts: Sequence[Text],
    *,
    variant: Variant = "original",
    prompts: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    long_text: LongText = "error",
    empty: EmptyText = "error",
    batch: BatchLimits | None = None,
    store: str | Path | None = None,
) -> CorpusScore:
    """Σ_j log p(x_j | the rest): the pseudo-log-likelihood (Salazar et al. 2020), with no sampling and no error.

    It is D · S(1), one end of the score curve, and neither a likelihood nor a bound on one. Masking one token of a word
    lets the model read off the others, which inflates words of several tokens; two variants prevent it.

    Args:
        variant: "original" hides the scored token alone; "whole-word" hides all tokens of its word; "within-word" hides
            it and the later tokens of its word (Kauf and Ivanova 2023).
        prompts, names, long_text, empty, batch, store: as in `score`.

    Returns:
        A CorpusScore whose `shares` are the log-probabilities of the tokens.

    Raises:
        ArgumentError: another variant, or word boundaries that a slow tokenizer does not give.

    Example:
        >>> import mpt_bayes as mb
        >>> mb.lm.pseudo_log_likelihood(mb.lm.antibody(), ["EVQLVES"]).total
        Estimate(pseudo-log-likelihood (original): -11.8914 ± 0 nats, N=1, every token once)
    """
    if variant not in ("original", "whole-word", "within-word"):
        raise ArgumentError(f"variant is {variant!r}: expected 'original', 'whole-word' or 'within-word'")
    rows = encoded_rows(model, texts, prompts, names, long_text, empty)
    pieces = {piece.digest: piece for row in rows for piece in row.pieces}
    works = (Work(text, *_masks(text, variant), key=f"{text.digest} pll {variant}") for text in pieces.values())
    kept = None if store is None else UnitStore.open(store, model=model.digest)
    scores = {
        work.text.digest: PieceScore.of(work.text.digest, _each_counted_once(work), values)
        for work, values in run_works(model, works, batch or BatchLimits.for_device(model.device), kept)
    }
    estimand = f"pseudo-log-likelihood ({variant})" + " given the prompt" * (prompts is not None)
    return corpus_score(model, rows, scores, Label(estimand, "every token once", seed=None, has_curve=False))


def _masks(text: EncodedText, variant: Variant) -> tuple[Tensor, Tensor]:
    """(P, D) hidden and (P, D) scored."""
    alone = torch.eye(text.dim, dtype=torch.bool)
    if variant == "original":
        return alone, alone
    words = text.require_words()
    same_word = words[:, None] == words
    if variant == "whole-word":
        first = torch.ones_like(words, dtype=torch.bool)
        first[1:] = words[1:] != words[:-1]
        return same_word[first], same_word[first]
    return same_word & torch.ones_like(same_word).triu(), alone


def _each_counted_once(work: Work) -> MaskBatch:
    """Weights that make the estimate the plain sum of all scored tokens, with nothing sampled."""
    count = work.scored.sum(1)
    return MaskBatch(
        work.hidden,
        Sampling(
            sizes=count,
            log_weight=count.to(torch.float64).log(),
            stratum=torch.full_like(count, ENUMERATED),
            cluster=torch.arange(len(count)),
        ),
    )
