"""Floating-point operations of a forward pass: two for each multiply-add of its matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedConfig

from mpt_bayes.errors import ArgumentError


@dataclass(frozen=True)
class Flops:
    """Operations for one sequence, by part.

    Attributes:
        encoder: the layers that see visible tokens only (BERT: all layers, all tokens).
        decoder: the layers after [MASK]s have entered.
        head: the prediction head, at hidden positions only.
    """

    encoder: float
    decoder: float
    head: float

    @property
    def forward(self) -> float:
        """Of one forward pass."""
        return self.encoder + self.decoder + self.head

    @property
    def training(self) -> float:
        """Of a forward and a backward pass, which does twice the products of the forward."""
        return 3 * self.forward


def flops(config: PreTrainedConfig, n_tokens: int, n_hidden: int) -> Flops:
    """FLOPs of one sequence of `n_tokens`, `n_hidden` of them hidden.

    With layer(n) = n (24 d² + 4 n d) for an inner width of 4 d (4 d w + 8 d² per token in general, w the inner width):

        BERT            L · layer(n) + m (2 d V + 2 d²)
        MAE-LM, 3ML     L · layer(n - m) + L_dec · layer(n) + m (2 d V + 2 d²)
        self+cross      adds  4 d² n + 4 d² (n - m) + 4 n (n - m) d  for each decoder layer

    Embedding look-ups, norms, activations and softmax are not counted; `torch.utils.flop_counter` counts the same
    products.

    Raises:
        ArgumentError: more hidden than tokens, or a negative count.

    Example:
        >>> from transformers import BertConfig
        >>> config = BertConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, intermediate_size=16)
        >>> flops(config, n_tokens=8, n_hidden=2)
        Flops(encoder=4096, decoder=0, head=224)
    """
    if not 0 <= n_hidden <= n_tokens:
        raise ArgumentError(f"n_hidden is {n_hidden} of {n_tokens} tokens: expected 0..{n_tokens}")
    d, width = int(config.hidden_size), int(config.intermediate_size)

    def layer(n: int) -> int:
        return n * (8 * d * d + 4 * d * width + 4 * n * d)

    head = n_hidden * (2 * d * int(config.vocab_size) + 2 * d * d)
    if config.model_type != "mask_free":
        return Flops(config.num_hidden_layers * layer(n_tokens), 0, head)
    n_visible = n_tokens - n_hidden
    crossing = 4 * d * d * (n_tokens + n_visible) + 4 * n_tokens * n_visible * d
    each = layer(n_tokens) + (crossing if config.decoder_attention == "self+cross" else 0)
    return Flops(config.num_hidden_layers * layer(n_visible), config.decoder_layers * each, head)


def measured_flops(module: nn.Module, *inputs: Tensor) -> int:
    """What `torch.utils.flop_counter` counts in one forward pass of `module(*inputs)`, all rows together.

    Attention runs as plain matrix products, and with gradients on: fused kernels hide theirs from the counter.

    Example:
        >>> measured_flops(nn.Linear(3, 5, bias=False), torch.zeros(2, 3))
        60
    """
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return int(counter.get_total_flops())
