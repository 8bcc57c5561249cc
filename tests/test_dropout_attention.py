"""Attention with columns masked is the encoder with tokens removed; its average over masks is not itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mpt_bayes.dropout import (
    average_over_masks,
    mask_columns,
    removal_gap,
    states_with_masked_columns,
    states_with_tokens_removed,
)
from mpt_bayes.errors import ArgumentError, BudgetError, DataError, ModelError

SEEDS = st.integers(0, 2**31)
EXACT = 1e-10


def random_attention(seed: int, n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n, dtype=torch.float64, generator=generator).mul(2).softmax(-1)


@given(seed=SEEDS, n=st.integers(1, 6), hide=st.integers(0, 63))
@settings(max_examples=40, deadline=None)
def test_masked_columns_are_a_softmax_over_the_rest(seed: int, n: int, hide: int) -> None:
    scores = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    hidden = torch.tensor([(hide >> j) & 1 == 1 for j in range(n)])
    result = mask_columns(scores.softmax(-1), hidden)
    if hidden.all():
        assert (result == 0).all()  # the fully masked row: defined as reading nothing, never 0/0
    else:
        expected = torch.zeros_like(scores)
        expected[:, ~hidden] = scores[:, ~hidden].softmax(-1)
        torch.testing.assert_close(result, expected, atol=EXACT, rtol=EXACT)


@given(seed=SEEDS, n=st.integers(1, 5), keep=st.floats(0.05, 1))
@settings(max_examples=40, deadline=None)
def test_average_over_masks_equals_enumeration_and_weight_averaging_changes_nothing(
    seed: int, n: int, keep: float
) -> None:
    attention = random_attention(seed, n)
    total = torch.zeros_like(attention)
    for bits in itertools.product([0.0, 1.0], repeat=n):
        kept = torch.tensor(bits, dtype=torch.float64)
        weighted = attention * kept
        if kept.sum() > 0:
            probability = keep ** float(kept.sum()) * (1 - keep) ** (n - float(kept.sum()))
            total += probability * weighted / weighted.sum(1, keepdim=True)
    average = average_over_masks(attention, keep)
    torch.testing.assert_close(average, total, atol=EXACT, rtol=EXACT)
    rows = torch.full((n,), 1 - (1 - keep) ** n, dtype=torch.float64)
    torch.testing.assert_close(average.sum(1), rows, atol=EXACT, rtol=EXACT)
    scaled = keep * attention
    torch.testing.assert_close(scaled / scaled.sum(1, keepdim=True), attention, atol=EXACT, rtol=EXACT)


def test_model_averaging_changes_the_attention_by_about_a_tenth() -> None:
    gaps = [
        (average_over_masks(random_attention(seed, 4), 0.7) - random_attention(seed, 4)).abs().max()
        for seed in range(20)
    ]
    assert 0.05 < float(torch.stack(gaps).median()) < 0.3


def test_gradients_are_finite_in_a_fully_masked_row() -> None:
    attention = random_attention(0, 3).requires_grad_()
    mask_columns(attention, torch.tensor([True, True, True])).sum().backward()
    assert attention.grad is not None
    assert (attention.grad == 0).all()


def test_faults_are_named() -> None:
    with pytest.raises(ArgumentError, match="hidden has shape"):
        mask_columns(torch.eye(3), torch.ones(3))
    for entry in (float("nan"), -0.5, float("inf")):
        attention = torch.eye(3)
        attention[1, 1] = entry
        with pytest.raises(DataError, match="negative, infinite or NaN"):
            mask_columns(attention, torch.tensor([False, True, False]))
    for attention in (torch.ones(3), torch.ones(2, 3)):
        with pytest.raises(DataError, match=r"expected \(…, n, n\)"):
            mask_columns(attention, torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ArgumentError, match="hidden has shape"):
        mask_columns(torch.eye(3), torch.tensor(True))
    with pytest.raises(DataError, match="attention is a list"):
        mask_columns([[1.0]], torch.tensor([False]))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="keep is 0"):
        average_over_masks(torch.eye(3), 0)
    with pytest.raises(DataError, match=r"\(3, 2\)"):
        average_over_masks(torch.ones(3, 2), 0.5)
    with pytest.raises(BudgetError, match=r"2\^30"):
        average_over_masks(torch.eye(30), 0.5)


# Real transformers classes, weights large enough for attention to be far from uniform.

SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}


def bert(implementation: str) -> nn.Module:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(**SMALL, initializer_range=0.3, attn_implementation=implementation)).eval()


def modern_bert(implementation: str) -> nn.Module:
    """Windows of 4 tokens to each side in its middle layers, shorter than the sequences here."""
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(0)
    special = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    shape: dict[str, Any] = {**SMALL, **special, "local_attention": 8, "global_attn_every_n_layers": 3}
    return ModernBertModel(ModernBertConfig(**shape, initializer_range=0.3, attn_implementation=implementation)).eval()


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def encoders(request: pytest.FixtureRequest) -> list[nn.Module]:
    return [bert(request.param), modern_bert(request.param)]


@given(seed=SEEDS, rate=st.floats(0, 0.95))
@settings(max_examples=15, deadline=None)
def test_column_masking_is_token_removal_layer_by_layer(encoders: list[nn.Module], seed: int, rate: float) -> None:
    ids, hidden = batch(seed, rate)
    for encoder in encoders:
        with torch.no_grad():
            gap = removal_gap(encoder, ids, hidden)
        assert len(gap) == 5
        assert gap.max() < 1e-5


def batch(seed: int, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Three sequences of 20 tokens; the first token always stays."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.rand(3, 20, generator=generator) < rate
    hidden[:, 0] = False
    return torch.randint(3, 50, (3, 20), generator=generator), hidden


def test_the_gap_is_that_of_evaluation_mode_whatever_mode_the_encoder_is_in() -> None:
    encoder = bert("sdpa")
    ids, hidden = batch(1, 0.5)
    encoder.train()
    encoder.pooler.eval()
    with torch.no_grad():
        assert removal_gap(encoder, ids, hidden).max() < 1e-5
    assert encoder.training
    assert encoder.embeddings.training
    assert not encoder.pooler.training


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"encoder": nn.Linear(2, 2)}, ModelError, "Linear is no Hugging Face encoder"),
        ({"encoder": torch.tanh}, ArgumentError, "encoder is a builtin_function_or_method"),
        ({"ids": torch.zeros(2, 5)}, ArgumentError, "torch.float32"),
        ({"ids": torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 4, 50]])}, DataError, r"outside 0\.\.49 in row 1"),
        ({"ids": -torch.ones(2, 5, dtype=torch.int64)}, DataError, r"outside 0\.\.49 in row 0"),
        ({"ids": torch.zeros(0, 5, dtype=torch.int64), "hidden": torch.zeros(0, 5).bool()}, DataError, "is empty"),
        ({"ids": [[1]]}, DataError, "input_ids is a list"),
    ],
)
def test_what_an_encoder_cannot_take_is_named(change: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"encoder": bert("sdpa"), "ids": torch.ones(2, 5).long(), "hidden": torch.zeros(2, 5).bool()} | change
    for function in (removal_gap, states_with_masked_columns, states_with_tokens_removed):
        with pytest.raises(error, match=words):
            function(given["encoder"], given["ids"], given["hidden"])


def test_without_positions_the_two_differ(encoders: list[nn.Module]) -> None:
    ids, hidden = batch(1, 0.5)
    for encoder in encoders:
        with torch.no_grad():
            assert removal_gap(encoder, ids, hidden, keep_positions=False).max() > 0.1


def test_a_window_counted_in_the_shortened_sequence_differs() -> None:
    encoder = modern_bert("sdpa")
    ids, hidden = batch(1, 0.5)
    keep = ~hidden[:1]
    positions = keep.nonzero()[:, 1][None]
    with torch.no_grad():
        right = states_with_tokens_removed(encoder, ids[:1], hidden[:1])[-1][keep]
        wrong = encoder(input_ids=ids[:1][keep][None], position_ids=positions).last_hidden_state[0]
    assert (right - wrong).abs().max() > 0.1


def test_without_renormalisation_the_two_differ() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    def zeroed(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_: Any) -> Any:
        weights = (query @ key.transpose(2, 3) * scaling).softmax(-1)
        if mask is not None:
            weights = weights.masked_fill(mask < 0, 0)  # columns zeroed, rows left as they are
        return (weights @ value).transpose(1, 2).contiguous(), weights

    AttentionInterface.register("zeroed", zeroed)
    AttentionMaskInterface.register("zeroed", eager_mask)
    encoder = bert("eager")
    encoder.config._attn_implementation = "zeroed"
    ids, hidden = batch(1, 0.5)
    with torch.no_grad():
        assert removal_gap(encoder, ids, hidden)[1:].min() > 0.1


def test_visible_states_do_not_depend_on_what_is_hidden(encoders: list[nn.Module]) -> None:
    ids, hidden = batch(2, 0.5)
    other = torch.where(hidden, (ids + 7) % 50, ids)
    for encoder in encoders:
        with torch.no_grad():
            a, b = (states_with_masked_columns(encoder, x, hidden)[-1][~hidden] for x in (ids, other))
        assert (a - b).abs().max() < 1e-5


def test_a_sequence_that_is_hidden_completely_is_refused() -> None:
    hidden = torch.zeros(2, 6, dtype=torch.bool)
    hidden[1] = True
    for function in (states_with_masked_columns, states_with_tokens_removed):
        with pytest.raises(ArgumentError, match="row 1 hides every token"):
            function(bert("sdpa"), torch.ones(2, 6, dtype=torch.int64), hidden)


@pytest.mark.parametrize(("implementation", "leaks"), [("eager", True), ("sdpa", False)])
def test_what_transformers_does_with_a_fully_masked_sequence(implementation: str, leaks: bool) -> None:
    """Why it is refused: eager attention then reads the hidden tokens, all alike; SDPA reads nothing, as here."""
    encoder = bert(implementation)
    ids = torch.arange(6)[None]
    changed = ids.clone()
    changed[0, 5] = 40
    none = torch.zeros(1, 6, dtype=torch.int64)
    with torch.no_grad():
        a, b = (encoder(input_ids=x, attention_mask=none).last_hidden_state[0, 0] for x in (ids, changed))
    assert bool((a - b).abs().max() > 1e-3) is leaks
