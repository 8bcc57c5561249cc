"""Effective rank of token representations by layer, for inputs with and without [MASK]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mpt_bayes.errors import DataError, ModelError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.text import EncodedText
from mpt_bayes.masks import FixedRate
from mpt_bayes.numerics.random import Stream
from mpt_bayes.representation import effective_rank
from mpt_bayes.results.estimate import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd

BATCH = 64


@dataclass(frozen=True)
class LayerRank:
    """Effective ranks of one layer (0: the embeddings).

    Attributes:
        whole: of the visible tokens, in inputs where nothing is hidden.
        masked: of the same tokens at the same places, in inputs with [MASK] elsewhere (or with hidden tokens removed,
            in encoders that never see [MASK]).
        mask: of as many [MASK] rows; None in encoders that have none.
    """

    layer: int
    whole: int
    masked: int
    mask: int | None

    @property
    def gap(self) -> int:
        """How much lower the rank is without [MASK]: masked - whole."""
        return self.masked - self.whole


@dataclass(frozen=True)
class RankTable:
    """Effective ranks by layer of one model.

    Attributes:
        layers: one entry a layer, the embeddings first.
        width: d, which no rank exceeds.
        n_rows: representations in each matrix of real tokens.
        rate, tau, center: how it was measured.
    """

    name: str
    layers: tuple[LayerRank, ...]
    width: int
    n_rows: int
    n_mask_rows: int
    rate: float
    tau: float
    center: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with a schema version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "width": self.width,
            "n_rows": self.n_rows,
            "n_mask_rows": self.n_mask_rows,
            "rate": self.rate,
            "tau": self.tau,
            "center": self.center,
            "layers": [
                {"layer": r.layer, "whole": r.whole, "masked": r.masked, "mask": r.mask, "gap": r.gap}
                for r in self.layers
            ],
        }

    def to_dataframe(self) -> pd.DataFrame:
        """One row a layer."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["layers"])


def representation_rank(
    model: MaskedLM,
    texts: Sequence[EncodedText],
    *,
    rate: float = 0.15,
    tau: float = 0.9,
    center: bool = False,
    seed: int = 0,
) -> RankTable:
    """Effective rank by layer of token representations, for the same tokens with and without [MASK] beside them.

    Meng et al. (2023) report, for encoders trained with [MASK] in the input, that inputs without [MASK] have a lower
    effective rank, the more so the deeper the layer, and that the gap disappears in MAE-LM. Rows are the tokens left
    visible by one random mask of each text, taken from both inputs, so that the matrices differ in nothing else.

    Args:
        model: BERT's kind, or one of `mpt_bayes.lm.architectures`.
        texts: enough of them for more rows than the width of the model.
        rate: of the masks.
        tau: share of the squared singular values to be reached.
        center: subtract the mean representation first; it is often most of the matrix.
        seed: of the masks.

    Raises:
        DataError: fewer visible tokens than the width of the model.
        ModelError: a module that does not tell its layers.
    """
    stream = Stream(seed).child("rank")
    kept: list[tuple[list[Tensor], list[Tensor], list[Tensor]]] = []
    with model.evaluating():
        ordered = sorted(texts, key=lambda text: len(text.ids))
        for _, same in groupby(ordered, key=lambda text: len(text.ids)):
            group = list(same)
            starts = range(0, len(group), BATCH)
            kept.extend(_gathered(model, group[start : start + BATCH], rate, stream) for start in starts)
    whole, masked, mask = ([torch.cat(layer) for layer in zip(*part, strict=True)] for part in zip(*kept, strict=True))
    n_rows, width = whole[0].shape
    if n_rows <= width:
        raise DataError(f"texts give {n_rows} visible tokens, not more than the width {width} of the model: give more")
    return RankTable(
        name=model.name,
        layers=tuple(
            LayerRank(
                layer,
                effective_rank(whole[layer], tau=tau, center=center),
                effective_rank(masked[layer], tau=tau, center=center),
                effective_rank(mask[layer], tau=tau, center=center) if mask else None,
            )
            for layer in range(len(whole))
        ),
        width=width,
        n_rows=n_rows,
        n_mask_rows=len(mask[0]) if mask else 0,
        rate=rate,
        tau=tau,
        center=center,
    )


def _gathered(
    model: MaskedLM, texts: list[EncodedText], rate: float, stream: Stream
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """By layer: visible tokens of whole inputs, the same of masked inputs, and [MASK] rows (none if mask-free)."""
    ids = torch.stack([text.ids for text in texts])
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    scored = torch.zeros_like(hidden)
    for row, text in enumerate(texts):
        hidden[row, text.scored] = FixedRate(rate, 1).draw(text.dim, stream.child(text.digest)).hidden[0]
        scored[row, text.scored] = True
    visible = scored & ~hidden
    whole = [layer[visible] for layer in _layers(model, ids)]
    masked = _layers(model, ids.masked_fill(hidden, model.mask_token_id))
    mask = [] if _is_mask_free(model.module) else [layer[hidden] for layer in masked]
    return whole, [layer[visible] for layer in masked], mask


def _layers(model: MaskedLM, ids: Tensor) -> list[Tensor]:
    """States (B, L, d) of each layer on the CPU, embeddings first; zeros where a mask-free encoder has no token."""
    ids = ids.to(model.device)
    module: Any = model.module
    if _is_mask_free(module):
        encoded = module.model.encode(ids, layers=True)
        row, column = encoded.real.nonzero(as_tuple=True)
        place = (row, encoded.positions[row, column])
        empty = torch.zeros(*ids.shape, encoded.states.shape[2], device=ids.device)
        return [empty.index_put(place, layer[row, column].float()).cpu() for layer in encoded.layers]
    output = getattr(module, "base_model", module)(input_ids=ids, output_hidden_states=True)
    states = getattr(output, "hidden_states", None)
    if states is None:
        raise ModelError(f"{model.name} does not tell its layers: it has no output 'hidden_states'")
    return [layer.float().cpu() for layer in states]


def _is_mask_free(module: nn.Module) -> bool:
    from mpt_bayes.lm.architectures import MaskFreeForMaskedLM

    return isinstance(module, MaskFreeForMaskedLM)
