"""Encoders that never see [MASK]: MAE-LM and 3ML, as transformers-style models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForMaskedLM, BertConfig, BertModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput
from transformers.models.bert.modeling_bert import BertOnlyMLMHead, BertPreTrainedModel

from mpt_bayes.errors import ArgumentError

DecoderAttention = Literal["self", "self+cross"]


class MaskFreeConfig(BertConfig):  # type: ignore[misc]
    """A BertConfig for the encoder (`num_hidden_layers` of it), with what follows it.

    Attributes:
        mask_token_id: input positions that hold this id are hidden: they are removed before the encoder.
        decoder_layers: layers over the full sequence, where the mask embedding stands in hidden positions.
        decoder_attention: "self", or "self+cross": each decoder layer also attends to the encoder's output.
    """

    model_type = "mask_free"
    mask_token_id: int = 103
    decoder_layers: int = 2
    decoder_attention: str = "self"


@dataclass(frozen=True)
class EncodedVisible:
    """The encoder's view of a batch: visible tokens only, closed up to the left, positions kept.

    Attributes:
        states: (B, n, d) of the last layer.
        layers: embeddings and each layer's output, (B, n, d) each; empty unless asked for.
        positions: (B, n) int64, where each token stands in the full sequence.
        real: (B, n) bool; the rest is padding up to the longest row.
    """

    states: Tensor
    layers: tuple[Tensor, ...]
    positions: Tensor
    real: Tensor


@final
class MaskFreeModel(BertPreTrainedModel):  # type: ignore[misc]
    """BERT encoder over the visible tokens, then decoder layers over all positions.

    With a shallow self-attention decoder this is MAE-LM (Meng et al. 2023, "Representation deficiency in masked
    language modeling"). With the layers of one BERT split in two it is 3ML (Liao et al. 2022, "Mask more and mask
    later"), in its self and self+cross forms. In all of them the encoder's output does not depend on what stands in
    the hidden positions, and its cost falls with the mask rate (`flops`).

    A row with nothing visible (0/0 in a softmax over visible columns) is defined as an encoder that attends to one
    padding slot: its output is the same whatever the row holds.
    """

    config_class = MaskFreeConfig
    base_model_prefix = "model"

    def __init__(self, config: MaskFreeConfig) -> None:
        super().__init__(config)
        if config.decoder_attention not in ("self", "self+cross"):
            raise ArgumentError(f"decoder_attention is {config.decoder_attention!r}: expected 'self' or 'self+cross'")
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.mask_embedding = nn.Embedding(1, config.hidden_size)
        self.decoder_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.decoder_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        layer = nn.TransformerDecoderLayer if config.decoder_attention == "self+cross" else nn.TransformerEncoderLayer
        self.decoder = nn.ModuleList(
            layer(
                config.hidden_size,
                config.num_attention_heads,
                config.intermediate_size,
                dropout=config.hidden_dropout_prob,
                activation=functional.gelu,
                layer_norm_eps=config.layer_norm_eps,
                batch_first=True,
            )
            for _ in range(config.decoder_layers)
        )
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.MultiheadAttention):  # as BERT's own projections, so that architectures compare
            nn.init.normal_(module.in_proj_weight, std=self.config.initializer_range)

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings, which the prediction head shares."""
        embeddings: nn.Module = self.encoder.get_input_embeddings()
        return embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embeddings."""
        self.encoder.set_input_embeddings(value)

    def encode(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, layers: bool = False
    ) -> EncodedVisible:
        """The encoder alone, on what is visible."""
        visible = input_ids != self.config.mask_token_id
        if attention_mask is not None:
            visible = visible & attention_mask.bool()
        counts = visible.sum(1).clamp(min=1)
        positions = visible.int().argsort(dim=1, descending=True, stable=True)[:, : int(counts.max())]
        real = visible.gather(1, positions)
        attended = real.clone()
        attended[:, 0] = True
        filler = input_ids.new_full((), self.config.pad_token_id or 0)
        ids, places = torch.where(real, input_ids.gather(1, positions), filler), torch.where(real, positions, 0)
        groups, encoded = _of_like_length(counts), []
        for rows in groups:
            longest = int(counts[rows].max())
            output = self.encoder(
                input_ids=ids[rows, :longest],
                attention_mask=attended[rows, :longest].long(),
                position_ids=places[rows, :longest],
                output_hidden_states=layers,
            )
            padding = (0, 0, 0, real.shape[1] - longest)
            states = (output.last_hidden_state, *(output.hidden_states or ()))
            encoded.append([functional.pad(state, padding) for state in states])
        back = torch.cat(groups).argsort()
        last, *each = (torch.cat(state)[back] for state in zip(*encoded, strict=True))
        return EncodedVisible(last, tuple(each), positions, real)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        """States of every position after the decoder, (B, L, d)."""
        encoded = self.encode(input_ids, attention_mask)
        batch, length = input_ids.shape
        slots = self.mask_embedding.weight.to(encoded.states.dtype).expand(batch, length, -1)
        row, column = encoded.real.nonzero(as_tuple=True)
        states = slots.index_put((row, encoded.positions[row, column]), encoded.states[row, column])
        positions = self.decoder_positions(torch.arange(length, device=input_ids.device))
        states = self.decoder_norm(states + positions)
        padding = None if attention_mask is None or bool(attention_mask.all()) else ~attention_mask.bool()
        memory_padding = ~encoded.real
        memory_padding[:, 0] = False
        for layer in self.decoder:
            if self.config.decoder_attention == "self+cross":
                states = layer(
                    states,
                    encoded.states,
                    tgt_key_padding_mask=padding,
                    memory_key_padding_mask=memory_padding if bool(memory_padding.any()) else None,
                )
            else:
                states = layer(states, src_key_padding_mask=padding)
        return BaseModelOutput(last_hidden_state=states)


@final
class MaskFreeForMaskedLM(BertPreTrainedModel):  # type: ignore[misc]
    """`MaskFreeModel` with BERT's prediction head; saved and loaded like any transformers model.

    Example:
        >>> import torch
        >>> config = MaskFreeConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...     intermediate_size=16, max_position_embeddings=6, mask_token_id=10, decoder_layers=1)
        >>> MaskFreeForMaskedLM(config)(torch.tensor([[3, 10, 4]])).logits.shape
        torch.Size([1, 3, 11])
    """

    config_class = MaskFreeConfig
    base_model_prefix = "model"
    _tied_weights_keys: ClassVar[dict[str, str]] = {
        "cls.predictions.decoder.weight": "model.encoder.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def __init__(self, config: MaskFreeConfig) -> None:
        super().__init__(config)
        self.model = MaskFreeModel(config)
        self.cls = BertOnlyMLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """The projection to the vocabulary."""
        projection: nn.Module = self.cls.predictions.decoder
        return projection

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the projection to the vocabulary."""
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> MaskedLMOutput:
        """Logits at every position; the loss is the mean over positions whose label is not -100."""
        states = self.model(input_ids, attention_mask).last_hidden_state
        logits = self.cls(states)
        loss = None if labels is None else functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)


def _of_like_length(counts: Tensor) -> tuple[Tensor, ...]:
    """Rows of a batch in groups of about equal length, padded together; one group if all are equal.

    With sizes spread evenly from nothing to everything, eight groups leave an encoder 7 to 9% above the cost of the
    visible tokens alone (one group: 75 to 110%); more groups cost more in small operations than they save.
    """
    spread = 1 - float(counts.min()) / float(counts.max())
    return counts.argsort(stable=True).chunk(max(1, math.ceil(8 * spread)))


AutoConfig.register(MaskFreeConfig.model_type, MaskFreeConfig, exist_ok=True)
AutoModelForMaskedLM.register(MaskFreeConfig, MaskFreeForMaskedLM, exist_ok=True)
