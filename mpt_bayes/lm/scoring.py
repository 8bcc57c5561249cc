"""Texts in, scores with error bars out."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mpt_bayes.checks import checked_count, checked_seed
from mpt_bayes.errors import ArgumentError, EstimandError, MptBayesWarning
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.batches import BatchLimits, Work
from mpt_bayes.lm.controlled import FEWEST, ControlledDraw, DesignDraw, Passes, passes_for
from mpt_bayes.lm.corpus import Label, corpus_score
from mpt_bayes.lm.engine import run_works
from mpt_bayes.lm.reduction import PieceScore
from mpt_bayes.lm.results import CorpusScore
from mpt_bayes.lm.rows import EmptyText, Row, Text, encoded_rows
from mpt_bayes.lm.store import UnitStore
from mpt_bayes.lm.text import EncodedText, LongText
from mpt_bayes.masks import CUMULATIVE_SCORE, MaskDesign
from mpt_bayes.masks.base import checked_design
from mpt_bayes.numerics.random import Stream

ORDER_AGNOSTIC: Final = "expected order-agnostic log-likelihood"
"""Σ_m S(m) = E_π[log p_π(x)] of a set of conditionals: a lower bound on log E_π[p_π(x)], and never called log p(x)."""

DEFAULT_BUDGET: Final = 128
PILOT: Final = 32


def score(
    model: MaskedLM,
    texts: Sequence[Text],
    *,
    prompts: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    budget: int | None = None,
    target_standard_error: float | None = None,
    design: MaskDesign | None = None,
    seed: int = 0,
    long_text: LongText = "error",
    empty: EmptyText = "error",
    batch: BatchLimits | None = None,
    store: str | Path | None = None,
) -> CorpusScore:
    """The expected order-agnostic log-likelihood of each text, Σ_m S(m), with its standard error. Nats.

    S(m) averages, over masks of m of a text's D tokens, the mean log-probability of the hidden tokens given the visible
    ones; Σ_m S(m) = E_π[log p_π(x)] over uniform orders π (Uria et al. 2014; Hoogeboom et al. 2021), a lower bound on
    the log-likelihood of the order mixture. Masks depend on (seed, text, draw) alone: two models with one tokenizer see
    the same masks, and the numbers do not depend on batches, order or processes beyond float32 rounding.

    Args:
        model: from `load`, `adapt`, `antibody` or `masked_diffusion`.
        texts: strings, or `EncodedText`s for models without a tokenizer.
        prompts: one a text, visible and unscored: log-likelihood of the text given the prompt.
        names: one a text; their numbers by default.
        budget: forward passes a text (default 128), with the sizes stratified and control variates fitted. Texts so
            short that all masks fit in it are enumerated, exactly. Below 16 the standard error of the others tends to
            be too small, which is warned of and noted in the result.
        target_standard_error: instead of a budget: of the corpus total, in nats. A pilot of 32 passes a text sets the
            allocation, and is not mixed into the estimate.
        design: instead of a budget: any design of `mpt_bayes.masks` that estimates the cumulative score.
        seed: of the masks.
        long_text: "error", "truncate" or "windows", for texts longer than the model's window.
        empty: "error", or "skip" to keep an unscored row with its reason.
        batch: what a forward pass may take; it shrinks by itself when memory runs out.
        store: a file of finished units; a run that was killed takes up where it was.

    Raises:
        ArgumentError: more than one of budget, target and design; a design that is none; a seed that is no integer;
            lists of different lengths; no texts.
        DataError: a text that is empty or too long (row named), a log-probability that is not finite.
        EstimandError: a design of another estimand.

    Example:
        >>> import mpt_bayes as mb
        >>> result = mb.lm.score(mb.lm.antibody(), ["EVQLVES"], budget=127)
        >>> result[0].total
        Estimate(expected order-agnostic log-likelihood: -25.1995 ± 0 nats, N=1, budget of 127 passes a text)
    """
    return score_alike(
        [model],
        texts,
        prompts=prompts,
        names=names,
        budget=budget,
        target_standard_error=target_standard_error,
        design=design,
        seed=seed,
        long_text=long_text,
        empty=empty,
        batch=batch,
        store=store,
    )[0]


def score_alike(
    models: Sequence[MaskedLM],
    texts: Sequence[Text],
    *,
    prompts: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    budget: int | None = None,
    target_standard_error: float | None = None,
    design: MaskDesign | None = None,
    seed: int = 0,
    long_text: LongText = "error",
    empty: EmptyText = "error",
    batch: BatchLimits | None = None,
    store: str | Path | None = None,
) -> list[CorpusScore]:
    """`score` of several models of one tokenizer with the same masks, so that `a.minus(b)` has a small error.

    Texts are encoded by the first model, whose pilot also sets the passes under a target standard error.

    Raises:
        ArgumentError, DataError, EstimandError: as `score`.
        ModelError: a text outside the vocabulary of one of the models.

    Example:
        >>> import mpt_bayes as mb
        >>> model = mb.lm.antibody()
        >>> trained, random = mb.lm.score_alike([model, mb.lm.random_twin(model)], ["EVQLVES"])
        >>> trained.minus(random)
        Estimate(difference of expected order-agnostic log-likelihood: -0.77... ± 0 nats, N=1, ...)
    """
    if sum(choice is not None for choice in (budget, target_standard_error, design)) > 1:
        raise ArgumentError("budget, target_standard_error and design are three ways to choose the masks: give one")
    if design is not None:
        checked_design(design)
    seed = checked_seed(seed)
    rows = encoded_rows(models[0], texts, prompts, names, long_text, empty)
    for other in models[1:]:
        for row in rows:
            for piece in row.pieces:
                other.checked(piece, row.row)
    if target_standard_error is not None:
        chosen = _allocated(models[0], rows, target_standard_error, seed, batch)
        how = f"passes for a standard error of {target_standard_error:g}"
    elif design is not None:
        chosen, how = _always(design), repr(design)
    else:
        passes = Passes(checked_count(DEFAULT_BUDGET if budget is None else budget, "budget"))
        chosen, how = _always(passes), f"budget of {passes.number} passes a text"
        _warn_if_few(rows, passes)
    label = Label(ORDER_AGNOSTIC if prompts is None else f"{ORDER_AGNOSTIC} given the prompt", how, seed)
    results = []
    for model in models:
        scores = score_pieces(model, rows, chosen, seed=seed, batch=batch, store=store)
        results.append(corpus_score(model, rows, scores, label))
    return results


Choice = MaskDesign | Passes
"""How the masks of a text are chosen."""


def score_pieces(
    model: MaskedLM,
    rows: Sequence[Row],
    choice_of: Callable[[EncodedText], Choice],
    *,
    seed: int,
    batch: BatchLimits | None = None,
    store: str | Path | None = None,
) -> dict[str, PieceScore]:
    """Each distinct piece scored once, by digest."""
    kept = None if store is None else UnitStore.open(store, model=model.digest, seed=seed)
    draws: dict[str, DesignDraw | ControlledDraw] = {}

    def works() -> Iterator[Work]:
        """The masks of each text, drawn when asked for."""
        for text in {piece.digest: piece for row in rows for piece in row.pieces}.values():
            choice = choice_of(text)
            draw = draws[text.digest] = _drawn(text, choice, seed)
            yield Work(text, draw.hidden, draw.hidden, key=f"{text.digest} {choice!r}")

    done = run_works(model, works(), batch or BatchLimits.for_device(model.device), kept)
    return {work.text.digest: draws.pop(work.text.digest).reduced(work.text.digest, values) for work, values in done}


def _warn_if_few(rows: Sequence[Row], passes: Passes) -> None:
    if passes.note and not all(passes.enumerates(piece.dim) for row in rows for piece in row.pieces):
        warnings.warn(
            f"budget is {passes.number}: with fewer than {FEWEST} passes a text the standard error tends to be too "
            f"small, since rare large terms are seldom seen; pass a budget of {FEWEST} or more",
            MptBayesWarning,
            stacklevel=4,
        )


def _always(choice: Choice) -> Callable[[EncodedText], Choice]:
    return lambda text: choice


def _drawn(text: EncodedText, choice: Choice, seed: int) -> DesignDraw | ControlledDraw:
    stream = Stream(seed).child("text", text.digest)
    if isinstance(choice, Passes):
        return choice.draw(text.dim, stream)
    if choice.estimand(text.dim) != CUMULATIVE_SCORE:
        raise EstimandError(
            f"{choice!r} estimates the '{choice.estimand(text.dim)}', not the cumulative score: choose a design that "
            "visits every mask, e.g. StratifiedSizes(128)"
        )
    return DesignDraw(choice.draw(text.dim, stream))


def _allocated(
    model: MaskedLM, rows: Sequence[Row], target: float, seed: int, batch: BatchLimits | None
) -> Callable[[EncodedText], Choice]:
    """Passes a text that make the corpus total's standard error about `target`, in proportion to a pilot's errors.

    The pilot's own draws are not used again, so the estimate stays unbiased.
    """
    if not target > 0:
        raise ArgumentError(f"target_standard_error is {target}: expected a positive number of nats")
    pilot_seed = int(Stream(seed).child("pilot").integers(2**31, 1))
    pilot = score_pieces(model, rows, lambda text: Passes(PILOT), seed=pilot_seed, batch=batch)
    repeats = Counter(piece.digest for row in rows for piece in row.pieces)
    deviations = {key: repeats[key] * math.sqrt(score.variance * PILOT) for key, score in pilot.items()}
    passes = passes_for(deviations, target, PILOT)
    return lambda text: Passes(passes[text.digest])
