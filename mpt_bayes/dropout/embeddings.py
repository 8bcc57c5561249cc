"""Masked pre-training as dropout of the input embedding, and the embedding that weight averaging then suggests."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, final

import torch
from torch import Tensor, nn

from mpt_bayes.checks import check_numbers, check_tensors, checked_count
from mpt_bayes.dropout.modules import checked_module
from mpt_bayes.errors import ArgumentError, DataError, ModelError

TiedHead = Literal["keep", "follow"]


@final
@dataclass(frozen=True)
class Corruption:
    """What masked pre-training does to an input token: selected with probability `rate`, then replaced by [MASK], by a
    token drawn uniformly from the vocabulary, or kept, with the probabilities of the split (BERT: .8, .1, .1).

    Example:
        >>> c = Corruption()
        >>> [round(w, 10) for w in (c.own_weight, c.mask_weight, c.random_weight)]
        [0.865, 0.12, 0.015]
    """

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    keep: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ArgumentError(f"rate is {self.rate}: expected a number in [0, 1]")
        split = (self.mask, self.random, self.keep)
        if not (min(split) >= 0 and abs(sum(split) - 1) <= 1e-9):
            raise ArgumentError(f"mask, random and keep are {split}: expected probabilities that sum to 1")

    @property
    def own_weight(self) -> float:
        """Probability that the input is the token itself, by not being selected or by being kept."""
        return 1 - self.rate + self.rate * self.keep

    @property
    def mask_weight(self) -> float:
        """Probability that the input is [MASK]."""
        return self.rate * self.mask

    @property
    def random_weight(self) -> float:
        """Probability that the input is drawn from the vocabulary (the token itself included)."""
        return self.rate * self.random


def expected_embedding(embedding: Tensor, mask_token_id: int, corruption: Corruption) -> Tensor:
    """(V, H) for each token the mean of its input embedding under the corruption. Exact: a lookup is linear.

        E_i ← (1 - r(1 - k)) E_i + r a E_mask + r b mean_v E_v ,   k + a + b = 1

    With BERT's 15% and 80/10/10: .865 E_i + .12 E_mask + .015 mean E. Every row is treated alike, the mask token's too.
    The corrected table is a scaled table plus one shared vector, so its centred effective rank does not change.

    Args:
        embedding: (V, H); mask_token_id: row of [MASK].

    Raises:
        DataError: another shape, integers, entries that are not finite.
        ArgumentError: a mask_token_id that is no row.

    Source: Su (2021).

    Example:
        >>> table = torch.tensor([[1.0], [3.0]])
        >>> expected_embedding(table, 1, Corruption(rate=0.5, mask=1.0, random=0.0, keep=0.0))
        tensor([[2.],
                [3.]])
    """
    check_tensors(embedding=embedding)
    if embedding.ndim != 2 or not embedding.is_floating_point():
        raise DataError(f"embedding has shape {tuple(embedding.shape)} and {embedding.dtype}: expected (V, H) numbers")
    check_numbers(embedding, "embedding")
    if checked_count(mask_token_id, "mask_token_id", 0) >= len(embedding):
        raise ArgumentError(f"mask_token_id is {mask_token_id}: the embedding has {len(embedding)} rows")
    shared = corruption.mask_weight * embedding[mask_token_id] + corruption.random_weight * embedding.mean(0)
    return corruption.own_weight * embedding + shared


@final
class CorrectedEmbeddings:
    """A model whose input embeddings were corrected; `undo` puts back what was there. Also a context manager.

    Attributes:
        model: with the corrected embeddings: the model given, or its copy.
        corrected_rows: (V,) bool, the tokens whose row was changed.
        tied_head: what became of an output head that shares the table; None if the model has no such head.
    """

    def __init__(self, model: nn.Module, corrected_rows: Tensor, tied_head: TiedHead | None) -> None:
        self.model = model
        self.corrected_rows = corrected_rows
        self.tied_head = tied_head
        self._values = _table(model).weight.detach().clone()
        self._holders = [(part, name, own) for part, name, own in _parameters(model) if _is_tied(model, own)]
        self._config_tied = getattr(getattr(model, "config", None), "tie_word_embeddings", None)

    def undo(self) -> None:
        """Puts the table back bit for bit, tied as it was. Undoing twice is undoing once; what training has changed
        since is lost for the table and kept for the rest of the model."""
        for part, name, own in self._holders:
            setattr(part, name, own)
        with torch.no_grad():
            _table(self.model).weight.copy_(self._values)
        if self._config_tied is not None:
            self.model.config.tie_word_embeddings = self._config_tied  # type: ignore[union-attr]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def correct_embeddings(
    model: nn.Module,
    mask_token_id: int,
    *,
    corruption: Corruption = Corruption(),
    untouched_ids: Sequence[int] = (),
    tied_head: TiedHead = "keep",
    in_place: bool = False,
) -> CorrectedEmbeddings:
    """Replaces the input embeddings of a Hugging Face model by `expected_embedding`: weight averaging.

    In pre-training a token entered as itself only part of the time; downstream it always does. Dropout's answer to that
    is to scale, and this is its form for embeddings. It is exact for the lookup, first order for everything above it.

    Args:
        model: with `get_input_embeddings()`, e.g. any Hugging Face encoder, with or without a head.
        mask_token_id: row of [MASK].
        corruption: how the model was pre-trained.
        untouched_ids: tokens never selected in pre-training, whose rows stay: usually the tokenizer's
            `all_special_ids` ([CLS], [SEP], [PAD], and [MASK] itself, so that masked scores still see the same [MASK]).
        tied_head: an output head that shares the table "keep"s the values it was trained with (the two are then untied)
            or "follow"s the correction (they stay one parameter). Without such a head it has no effect.
        in_place: change `model`; otherwise a deep copy is changed and `model` stays as it is.

    Raises:
        ModelError: a model without an input embedding table.
        ArgumentError: an id outside the table, or another value of `tied_head`.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> bert = BertModel(BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
        >>> corrected = correct_embeddings(bert, mask_token_id=4, untouched_ids=[0, 1, 2, 3, 4])
        >>> int(corrected.corrected_rows.sum())
        27
    """
    if tied_head not in ("keep", "follow"):
        raise ArgumentError(f"tied_head is {tied_head!r}: expected 'keep' or 'follow'")
    target = model if in_place else copy.deepcopy(model)
    weight = _table(target).weight
    if not all(checked_count(i, "untouched_ids", 0) < len(weight) for i in untouched_ids):
        raise ArgumentError(f"untouched_ids holds an id outside the embedding table of {len(weight)} rows")
    rows = torch.ones(len(weight), dtype=torch.bool, device=weight.device)
    rows[torch.as_tensor(untouched_ids, dtype=torch.int64, device=weight.device)] = False
    tied = _is_tied(target, weight)
    result = CorrectedEmbeddings(target, rows, tied_head if tied else None)
    with torch.no_grad():
        values = torch.where(rows[:, None], expected_embedding(weight, mask_token_id, corruption), weight)
    if tied and tied_head == "keep":
        _untie(target)
    with torch.no_grad():
        _table(target).weight.copy_(values)
    return result


def _table(model: nn.Module) -> nn.Embedding:
    """The input embedding table of a Hugging Face model."""
    find = getattr(checked_module(model, "model"), "get_input_embeddings", None)
    table = find() if find is not None else None
    if not isinstance(table, nn.Embedding):
        raise ModelError(f"{type(model).__name__} has no input embedding table (get_input_embeddings)")
    return table


def _parameters(model: nn.Module) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """(module, name, parameter) for every place that holds a parameter, shared ones several times."""
    return [(part, name, own) for part in model.modules() for name, own in part.named_parameters(recurse=False)]


def _is_tied(model: nn.Module, weight: Tensor) -> bool:
    """Whether several modules hold this parameter."""
    return sum(own is weight for _, _, own in _parameters(model)) > 1


def _untie(model: nn.Module) -> None:
    """Every holder of a shared parameter its own copy, as a model saved and loaded without tying must have.

    The head's bias is shared too in some models; left shared, it would be saved once, and be missing on loading.
    """
    seen: set[int] = set()
    for part, name, own in _parameters(model):
        if id(own) in seen:
            setattr(part, name, nn.Parameter(own.detach().clone(), requires_grad=own.requires_grad))
        seen.add(id(own))
    model.config.tie_word_embeddings = False  # type: ignore[union-attr]
