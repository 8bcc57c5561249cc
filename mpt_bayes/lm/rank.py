"""Effective rank of token representations by layer, for inputs with and without [MASK]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
ROWS = ("whole", "masked", "mask", "all_whole", "all_masked")
"""The matrices of `LayerRank`, by its names."""


@dataclass(frozen=True)
class LayerRank:
    """Effective ranks of one layer (0: the embeddings).

    Attributes:
        whole: of the visible tokens, in inputs where nothing is hidden.
        masked: of the same tokens at the same places, in inputs with [MASK] elsewhere (or with hidden tokens removed,
            in encoders that never see [MASK]).
        mask: of the [MASK] rows; None in encoders that have none.
        all_whole: of all tokens, in inputs where nothing is hidden.
        all_masked: of the same number of rows of the masked inputs, [MASK] rows among them; None where there are none.
    """

    layer: int
    whole: int
    masked: int
    mask: int | None
    all_whole: int
    all_masked: int | None

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
            "layers": [{**asdict(row), "gap": row.gap} for row in self.layers],
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
    effective rank, the more so the deeper the layer, and that the gap disappears in MAE-LM. `whole` and `masked` take
    the tokens left visible by one random mask of each text from both inputs, so that the matrices differ in nothing
    else; `all_whole` and `all_masked` take every token, where [MASK] rows may add directions of their own.

    Args:
        model: BERT's kind, or one of `mpt_bayes.lm.architectures`.
        texts: enough of them for more rows than the width of the model.
        rate: of the masks.
        tau: share of the squared singular values to be reached.
        center: subtract the mean representation first; it is often most of the matrix.
        seed: of the masks.

    Raises:
        ArgumentError: a seed that is no integer.
        DataError: no texts, or fewer visible tokens than the width of the model.
        ModelError: a module that does not tell its layers.
    """
    stream = Stream(seed).child("rank")
    if not texts:
        raise DataError("texts is empty: give at least one")
    kept: list[dict[str, list[Tensor]]] = []
    with model.evaluating():
        ordered = sorted(texts, key=lambda text: len(text.ids))
        for _, same in groupby(ordered, key=lambda text: len(text.ids)):
            group = list(same)
            starts = range(0, len(group), BATCH)
            kept.extend(_gathered(model, group[start : start + BATCH], rate, stream) for start in starts)
    rows = {name: [torch.cat(layer) for layer in zip(*(part[name] for part in kept), strict=True)] for name in kept[0]}
    whole, mask = rows["whole"], rows.get("mask")
    n_rows, width = whole[0].shape
    if n_rows <= width:
        raise DataError(f"texts give {n_rows} visible tokens, not more than the width {width} of the model: give more")
    return RankTable(
        name=model.name,
        layers=tuple(
            LayerRank(layer, **{name: _rank(rows, name, layer, tau, center) for name in ROWS})  # type: ignore[arg-type]
            for layer in range(len(whole))
        ),
        width=width,
        n_rows=n_rows,
        n_mask_rows=len(mask[0]) if mask else 0,
        rate=rate,
        tau=tau,
        center=center,
    )


def _rank(rows: dict[str, list[Tensor]], name: str, layer: int, tau: float, center: bool) -> int | None:
    """Of one matrix of one layer; None where the encoder has no such rows."""
    return effective_rank(rows[name][layer], tau=tau, center=center) if name in rows else None


def _gathered(model: MaskedLM, texts: list[EncodedText], rate: float, stream: Stream) -> dict[str, list[Tensor]]:
    """Rows by layer under the names of `LayerRank`; without those of [MASK] if the encoder is mask-free."""
    ids = torch.stack([text.ids for text in texts])
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    scored = torch.zeros_like(hidden)
    for row, text in enumerate(texts):
        hidden[row, text.scored] = FixedRate(rate, 1).draw(text.dim, stream.child(text.digest)).hidden[0]
        scored[row, text.scored] = True
    visible = scored & ~hidden
    whole, masked = _layers(model, ids), _layers(model, ids.masked_fill(hidden, model.mask_token_id))
    taken = {"whole": (whole, visible), "masked": (masked, visible), "all_whole": (whole, scored)}
    if not _is_mask_free(model.module):
        taken |= {"mask": (masked, hidden), "all_masked": (masked, scored)}
    return {name: [layer[rows] for layer in layers] for name, (layers, rows) in taken.items()}


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
