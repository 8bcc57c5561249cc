"""A model of a named architecture from a handful of sizes."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from transformers import BertConfig, BertForMaskedLM, PreTrainedModel

from mpt_bayes.checks import checked_count
from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.architectures.mask_free import MaskFreeConfig, MaskFreeForMaskedLM
from mpt_bayes.numerics.random import seed_from

Architecture = Literal["bert", "mae_lm", "3ml_self", "3ml_cross"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)


def build(
    architecture: Architecture,
    *,
    vocab_size: int,
    mask_token_id: int,
    max_length: int,
    layers: int = 4,
    decoder_layers: int = 1,
    width: int = 128,
    heads: int = 4,
    dropout: float = 0.0,
    initializer_range: float = 0.02,
    pad_token_id: int | None = None,
    generator: torch.Generator | None = None,
) -> PreTrainedModel:
    """A randomly initialised masked language model.

    Args:
        architecture: "bert" ([MASK] in the encoder), "mae_lm" (`layers` on the visible tokens, then `decoder_layers`
            on all), "3ml_self" and "3ml_cross" (`layers` in all, the last `decoder_layers` of them on all tokens; in
            the cross form these also attend to the encoder's output).
        max_length: of a sequence, special tokens included.
        generator: source of the initial weights; None means seed 0.

    Raises:
        ArgumentError: an unknown architecture, a width that the heads do not divide, no layer left for the encoder.

    Example:
        >>> model = build("3ml_self", vocab_size=12, mask_token_id=11, max_length=8, layers=3, width=8, heads=2)
        >>> model.config.num_hidden_layers, model.config.decoder_layers
        (2, 1)
    """
    if architecture not in ARCHITECTURES:
        raise ArgumentError(f"architecture is {architecture!r}: expected one of {', '.join(ARCHITECTURES)}")
    if width % heads:
        raise ArgumentError(f"width is {width}, which {heads} heads do not divide: change one of them")
    encoder_layers = checked_count(layers - decoder_layers * architecture.startswith("3ml"), "encoder layers")
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_hidden_layers": encoder_layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": max_length,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "initializer_range": initializer_range,
        "type_vocab_size": 1,
        "pad_token_id": pad_token_id,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_from(generator))
        if architecture == "bert":
            return BertForMaskedLM(BertConfig(**sizes))
        crossing = "self+cross" if architecture == "3ml_cross" else "self"
        return MaskFreeForMaskedLM(
            MaskFreeConfig(
                **sizes, mask_token_id=mask_token_id, decoder_layers=decoder_layers, decoder_attention=crossing
            )
        )
