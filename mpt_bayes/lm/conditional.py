"""One text under a masked language model, as a conditional model of its tokens."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_data, checked_hidden
from mpt_bayes.errors import DataError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.batches import BatchLimits, Runner, Work, batched
from mpt_bayes.lm.text import EncodedText
from mpt_bayes.models.base import ConditionalModel


@final
class TextConditional(ConditionalModel):
    """The D scored tokens of a text as coordinates; its special tokens and its prompt stay visible around them.

    Every estimator, design and check of the library runs on it. It is a conditional model only: a masked language
    model's conditionals need not come from one joint, so there is no log marginal likelihood to compare with.

    Attributes:
        x: (1, D) int64, the text's own tokens; other rows of tokens may be scored in the same frame.

    Example:
        >>> import mpt_bayes as mb
        >>> model = mb.lm.antibody()
        >>> bound = TextConditional(model, model.encode("EVQLVES"))
        >>> mb.cumulative_score(bound, bound.x, design=mb.masks.Exhaustive())
        Estimate(cumulative score: -25.1995 ± 0 nats, N=1, Exhaustive(max_masks=1048576))
    """

    def __init__(self, model: MaskedLM, text: EncodedText, *, batch: BatchLimits | None = None) -> None:
        self.model = model
        self.text = model.checked(text)
        self._limits = batch or BatchLimits.for_device(model.device)
        self.x = text.ids[text.scored][None].to(model.device)

    @property
    def dim(self) -> int:
        """D, the number of scored tokens."""
        return self.text.dim

    @property
    def device(self) -> torch.device:
        """Where the language model lives."""
        return self.model.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) float64 log p(token | visible tokens), in nats; one forward pass a row and mask.

        Raises:
            DataError: tokens of the wrong number, on another device, or outside the vocabulary.
        """
        checked_hidden(hidden, self.dim, self.device)
        x = checked_data(x, self.dim, dtype=torch.int64, device=self.device)
        if bool(((x < 0) | (x >= self.model.vocabulary_size)).any()):
            raise DataError(f"x holds a token id outside the vocabulary of {self.model.vocabulary_size} tokens")
        masks = hidden.cpu()
        works = [Work(self.text.with_tokens(row), masks, masks) for row in x.cpu()]
        result = torch.zeros(len(x), *hidden.shape, dtype=torch.float64)
        batches = batched(works, self._limits, self.model.vocabulary_size)
        for batch, values in Runner(self.model, self._limits).run(works, batches):
            for (row, mask), log_prob in zip(batch.units, values, strict=True):
                result[row, mask, masks[mask]] = log_prob.to(torch.float64)
        return result.to(self.device)

    def evaluate(self, hidden: Tensor) -> Tensor:
        """(P, D) float64 log-probabilities of the text's own tokens under each mask."""
        return self.masked_log_prob(self.x, hidden)[0]
