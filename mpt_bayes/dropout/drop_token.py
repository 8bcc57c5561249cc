"""DropToken: leave random tokens out of the encoder while fine-tuning, the others keeping their positions."""

from __future__ import annotations

import copy
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from mpt_bayes.checks import checked_rate
from mpt_bayes.dropout.modules import checked_encoder
from mpt_bayes.dropout.removal import Shortened, attention_mask, original_positions, removal_gap
from mpt_bayes.errors import ArgumentError, ModelError
from mpt_bayes.numerics.random import Stream

Method = Literal["columns", "remove"]


@final
class DropToken(nn.Module):
    """Any Hugging Face encoder, with or without a head; while training each ordinary token is dropped with probability
    `rate`. In evaluation mode it is the encoder itself.

    By `removal_gap` there are two ways to drop, equal for the tokens that stay: "columns" masks the attention columns
    of dropped tokens and works for every encoder that honours its attention mask; "remove" feeds shorter sequences, and
    so costs less, but needs an encoder that takes positions through `position_ids` (checked on construction), and a
    head that reads the first token or nothing (outputs a token are those of the kept tokens).

    Special tokens ([CLS], [SEP]) and padding are never dropped: they are named by `special_tokens_mask`, which a
    tokenizer returns on request, never found by comparing ids. A row always keeps a token.

    Args:
        encoder: the model to fine-tune.
        rate: in [0, 1); .1 to .15 were reported to work best.
        seed: of the drops. Step k is a function of (seed, k) alone; k is saved in the state dict, so that training
            resumes with the drops it would have had.
        method: "columns" or "remove".

    Raises:
        ArgumentError: a rate outside [0, 1); no module; on calling, no special_tokens_mask.
        ModelError: no Hugging Face encoder; "remove" with an encoder for which it is not the same as "columns".

    Source: Su (2021); Hou et al. (2022), "Token dropping for efficient BERT pretraining", for dropping inside.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> bert = BertModel(BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
        >>> ids = torch.tensor([[2, 9, 8, 7, 3]])
        >>> special = torch.tensor([[1, 0, 0, 0, 1]])
        >>> DropToken(bert, 0.9, method="remove").train()(ids, special_tokens_mask=special).last_hidden_state.shape
        torch.Size([1, 2, 8])
    """

    def __init__(self, encoder: nn.Module, rate: float, *, seed: int = 0, method: Method = "columns") -> None:
        super().__init__()
        checked_encoder(encoder)
        checked_rate(rate)
        if method not in ("columns", "remove"):
            raise ArgumentError(f"method is {method!r}: expected 'columns' or 'remove'")
        self.encoder = encoder
        self.rate = rate
        self.seed = seed
        self.method = method
        self.step: Tensor
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        if method == "remove":
            _check_removal(encoder)

    @property
    def config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        special_tokens_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """The encoder's output; in training with tokens dropped.

        Args:
            input_ids: (B, L).
            attention_mask: (B, L), 0 at padding, which is on the right.
            special_tokens_mask: (B, L), 1 where the tokenizer added a token; needed in training.
            kwargs: for the encoder (labels, token_type_ids, …).
        """
        if not self.training or self.rate == 0:
            return self.encoder(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        if special_tokens_mask is None:
            raise ArgumentError(
                "special_tokens_mask is missing: tokenize with return_special_tokens_mask=True and pass it on, "
                "so that special tokens are never dropped"
            )
        present = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        keep = self._draw(present, special_tokens_mask.bool())
        if self.method == "columns":
            return self.encoder(input_ids=input_ids, attention_mask=keep.long(), **kwargs)
        return self._shortened(input_ids, keep, kwargs)

    def _draw(self, present: Tensor, special: Tensor) -> Tensor:
        """(B, L) tokens that stay; one stream a step."""
        generator = Stream(self.seed).child("drop-token", int(self.step)).generator()
        self.step += 1
        uniform = torch.rand(present.shape, generator=generator).to(present.device)
        keep = present & (special | (uniform >= self.rate))
        last = torch.zeros_like(keep).scatter(1, uniform.masked_fill(~present, -1).argmax(1, keepdim=True), True)
        return torch.where(keep.any(1, keepdim=True), keep, last)

    def _shortened(self, input_ids: Tensor, keep: Tensor, kwargs: dict[str, Any]) -> Any:
        """The encoder on the kept tokens alone, at their positions."""
        short = Shortened.of(keep)
        positions = kwargs.pop("position_ids", original_positions(self.encoder, input_ids))
        if (types := kwargs.pop("token_type_ids", None)) is not None:
            kwargs["token_type_ids"] = short.of_tokens(types)
        fed = short.of_tokens(positions)
        return self.encoder(
            input_ids=short.of_tokens(input_ids),
            position_ids=fed,
            attention_mask=attention_mask(self.encoder, fed, short.present),
            **kwargs,
        )


def _check_removal(encoder: nn.Module) -> None:
    """Whether removing tokens is masking their columns, by trying it on one short sequence.

    A property of the architecture, so it is tried on a copy with random weights: in a freshly initialised model
    positions may matter too little to be seen.
    """
    base: Any = copy.deepcopy(getattr(encoder, "base_model", encoder)).float().eval()
    generator = Stream(0).child("removal").generator()
    ids = torch.arange(8)[None] % base.config.vocab_size
    hidden = torch.tensor([[False, True, False, True, True, False, False, False]])
    with torch.no_grad():
        for weight in base.cpu().parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight.shape[-1] ** -0.5, generator=generator)
        gap = float(removal_gap(base, ids, hidden).max())
    if not gap < 1e-3:  # rounding is 1e-6, a lost position .1 and more
        raise ModelError(
            f"{type(base).__name__} does not keep positions when tokens are removed (states differ by {gap:.2g}): "
            "use method='columns'"
        )
