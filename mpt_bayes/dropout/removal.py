"""Two ways to keep tokens out of a Hugging Face encoder, which agree: mask their attention columns, or remove them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mpt_bayes.checks import check_tensors
from mpt_bayes.dropout.interception import modes_kept
from mpt_bayes.dropout.modules import checked_encoder
from mpt_bayes.errors import ArgumentError, DataError, ModelError


@dataclass(frozen=True)
class Shortened:
    """The kept tokens of a batch, moved together and padded to the longest row.

    Attributes:
        index: (B, K) int64, where each came from; padding repeats the row's first kept token.
        present: (B, K) bool, False at padding.
    """

    index: Tensor
    present: Tensor

    @classmethod
    def of(cls, keep: Tensor) -> Shortened:
        """From (B, L) bool, True = kept; every row keeps at least one."""
        count = keep.sum(1)
        order = (~keep).to(torch.int8).argsort(dim=1, stable=True)[:, : int(count.max())]
        present = torch.arange(order.shape[1], device=keep.device) < count[:, None]
        return cls(torch.where(present, order, order[:, :1]), present)

    def of_tokens(self, values: Tensor) -> Tensor:
        """(B, K) of (B, L) values a token."""
        return values.gather(1, self.index)


def states_with_masked_columns(encoder: nn.Module, input_ids: Tensor, hidden: Tensor) -> list[Tensor]:
    """Hidden states of every layer, each (B, L, H), with the attention columns of hidden tokens masked in every layer.

    The hidden tokens' own rows are computed too, and mean nothing.

    Args:
        encoder: a Hugging Face encoder without head, e.g. BertModel or ModernBertModel, called in its present mode.
        input_ids: (B, L) int64, no padding.
        hidden: (B, L) bool, True = hidden.

    Raises:
        ArgumentError: a row that hides every token (the encoder has nothing to read), wrong shapes or dtypes.
        DataError: ids that the encoder does not have, an empty batch.
        ModelError: no Hugging Face encoder.
    """
    _check(encoder, input_ids, hidden)
    output = encoder(
        input_ids=input_ids,
        position_ids=original_positions(encoder, input_ids),
        attention_mask=(~hidden).long(),
        output_hidden_states=True,
    )
    return list(output.hidden_states)


def states_with_tokens_removed(
    encoder: nn.Module, input_ids: Tensor, hidden: Tensor, *, keep_positions: bool = True
) -> list[Tensor]:
    """Hidden states of every layer when hidden tokens are not fed: each (B, L, H), NaN where hidden.

    As in a masked autoencoder. Layers that attend within a window (ModernBERT) are given that window in terms of the
    original positions: by index in the shortened sequence it would reach further, and the two ways would differ.

    Args:
        encoder, input_ids, hidden: as for `states_with_masked_columns`.
        keep_positions: False numbers the remaining tokens 0, 1, 2, … (wrong; here to be shown).
    """
    _check(encoder, input_ids, hidden)
    short = Shortened.of(~hidden)
    positions = original_positions(encoder, input_ids)
    fed = short.of_tokens(positions) if keep_positions else positions[:, : short.index.shape[1]]
    output = encoder(
        input_ids=short.of_tokens(input_ids),
        position_ids=fed,
        attention_mask=attention_mask(encoder, fed, short.present),
        output_hidden_states=True,
    )
    row, column = short.present.nonzero(as_tuple=True)
    states = []
    for state in output.hidden_states:
        whole = state.new_full((*input_ids.shape, state.shape[-1]), torch.nan)
        whole[row, short.index[row, column]] = state[row, column]
        states.append(whole)
    return states


def removal_gap(encoder: nn.Module, input_ids: Tensor, hidden: Tensor, *, keep_positions: bool = True) -> Tensor:
    """(layers + 1,) largest absolute difference between the two ways over visible tokens, layer by layer.

    Zero up to rounding (1e-6 in float32) for encoders that take positions through `position_ids`. Softmax over the
    remaining keys IS masking and renormalising, and everything else in a layer acts token by token. Taken in evaluation
    mode, which is put back after: two draws of an encoder's own dropout would differ by themselves.

    Source: He et al. (2022) for the removal; Su (2021) for the identity.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> bert = BertModel(config).eval()
        >>> ids = torch.arange(6)[None]
        >>> hidden = torch.tensor([[False, True, False, False, True, False]])
        >>> bool((removal_gap(bert, ids, hidden) < 1e-5).all())
        True
    """
    with modes_kept(checked_encoder(encoder)):
        encoder.eval()
        masked = states_with_masked_columns(encoder, input_ids, hidden)
        removed = states_with_tokens_removed(encoder, input_ids, hidden, keep_positions=keep_positions)
    return torch.stack([(a - b)[~hidden].abs().max() for a, b in zip(masked, removed, strict=True)])


def original_positions(encoder: nn.Module, input_ids: Tensor) -> Tensor:
    """(B, L) position ids of a sequence without padding; RoBERTa's kind counts from padding_idx + 1."""
    embeddings = getattr(getattr(encoder, "base_model", encoder), "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    first = 0 if padding is None else int(padding) + 1
    return torch.arange(first, first + input_ids.shape[1], device=input_ids.device).expand_as(input_ids)


def attention_mask(encoder: nn.Module, positions: Tensor, present: Tensor) -> Any:
    """What to pass as `attention_mask`: (B, K) present; or, where layers have windows, one mask a kind of layer.

    Raises:
        ModelError: layers whose window is of an unknown kind.
    """
    config: Any = encoder.config
    window = getattr(config, "sliding_window", None)
    if window is None:
        return present.long()
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds <= {"full_attention", "sliding_attention"}:
        raise ModelError(
            f"{type(encoder).__name__} has layers of kind {sorted(kinds)}: their windows are not known here"
        )
    near = (positions[:, :, None] - positions[:, None, :]).abs() <= window
    seen = present[:, None, None, :].expand(-1, 1, present.shape[1], -1)
    masks = {"full_attention": seen, "sliding_attention": seen & near[:, None]}
    if config._attn_implementation == "sdpa":
        return masks
    dtype = next(encoder.parameters()).dtype  # eager attention adds its mask to the scores
    closed = torch.finfo(dtype).min
    return {kind: torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, closed) for kind, mask in masks.items()}


def _check(encoder: nn.Module, input_ids: Tensor, hidden: Tensor) -> None:
    config: Any = checked_encoder(encoder).config
    check_tensors(input_ids=input_ids, hidden=hidden)
    if (
        input_ids.ndim != 2
        or input_ids.dtype not in (torch.int64, torch.int32)
        or hidden.shape != input_ids.shape
        or hidden.dtype != torch.bool
    ):
        raise ArgumentError(
            f"input_ids has shape {tuple(input_ids.shape)} and {input_ids.dtype}, hidden {tuple(hidden.shape)} and "
            f"{hidden.dtype}: expected (B, L) torch.int64 and (B, L) torch.bool"
        )
    if input_ids.numel() == 0:
        raise DataError("input_ids is empty: pass at least one row of at least one token")
    wrong = ((input_ids < 0) | (input_ids >= config.vocab_size)).any(1)
    if bool(wrong.any()):
        raise DataError(
            f"input_ids has an id outside 0..{config.vocab_size - 1} in row {int(wrong.nonzero()[0])}: the encoder has "
            f"{config.vocab_size} tokens"
        )
    empty = hidden.all(1)
    if bool(empty.any()):
        raise ArgumentError(
            f"hidden row {int(empty.nonzero()[0])} hides every token: an encoder needs at least one token to read"
        )
