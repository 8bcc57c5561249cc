"""The embedding that weight averaging suggests, and the models that carry it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mpt_bayes.dropout import Corruption, correct_embeddings, expected_embedding
from mpt_bayes.errors import ArgumentError, DataError, ModelError
from mpt_bayes.representation import effective_rank

SEEDS = st.integers(0, 2**31)
EXACT = 1e-10
SPECIAL = [0, 1, 2, 3, 4]


def table_of(seed: int, size: int, width: int) -> torch.Tensor:
    return torch.randn(size, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@st.composite
def corruptions(draw: st.DrawFn) -> Corruption:
    a, b, c = (draw(st.floats(0, 1)) for _ in range(3))
    total = a + b + c
    split = (a / total, b / total, c / total) if total > 1e-3 else (1.0, 0.0, 0.0)
    return Corruption(draw(st.floats(0, 1)), *split)


@given(seed=SEEDS, size=st.integers(2, 9), corruption=corruptions())
@settings(max_examples=60, deadline=None)
def test_it_is_the_mean_of_the_lookup_under_the_corruption(seed: int, size: int, corruption: Corruption) -> None:
    table, mask = table_of(seed, size, 3), size - 1
    c = corruption
    for token in range(size):
        outcomes = [(1 - c.rate, token), (c.rate * c.mask, mask), (c.rate * c.keep, token)]
        outcomes += [(c.rate * c.random / size, other) for other in range(size)]
        assert sum(p for p, _ in outcomes) == pytest.approx(1, abs=1e-12)
        expected = sum(p * table[row] for p, row in outcomes)
        torch.testing.assert_close(expected_embedding(table, mask, c)[token], expected, atol=EXACT, rtol=EXACT)
    assert c.own_weight + c.mask_weight + c.random_weight == pytest.approx(1, abs=1e-12)


def test_bert_coefficients() -> None:
    table = table_of(0, 7, 4)
    expected = 0.865 * table + 0.12 * table[4] + 0.015 * table.mean(0)
    torch.testing.assert_close(expected_embedding(table, 4, Corruption()), expected, atol=1e-14, rtol=0)


@given(seed=SEEDS, corruption=corruptions(), tau=st.floats(0.1, 0.999))
@settings(max_examples=30, deadline=None)
def test_centred_effective_rank_of_the_table_does_not_change(seed: int, corruption: Corruption, tau: float) -> None:
    table = table_of(seed, 12, 5)
    corrected = expected_embedding(table, 4, corruption)
    if corruption.own_weight > 1e-3:
        assert effective_rank(corrected, tau=tau, center=True) == effective_rank(table, tau=tau, center=True)


def bert_lm(**options: Any) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    shape = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(**shape, intermediate_size=32, initializer_range=0.2, **options)).eval()
    model.cls.predictions.bias.data.normal_()
    return model


IDS = torch.tensor([[2, 9, 17, 4, 30, 3]])


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


@pytest.mark.parametrize("tied_head", ["keep", "follow"])
@pytest.mark.parametrize("in_place", [False, True])
def test_correction_is_undone_bit_for_bit(tied_head: Any, in_place: bool) -> None:
    model = bert_lm()
    before = logits(model)
    corrected = correct_embeddings(model, 4, untouched_ids=SPECIAL, tied_head=tied_head, in_place=in_place)
    assert (logits(corrected.model) - before).abs().max() > 1e-3
    assert (corrected.model is model) is in_place
    assert torch.equal(logits(model), before) is not in_place
    for _ in range(2):
        corrected.undo()
        assert torch.equal(logits(corrected.model), before)
        assert corrected.model.get_output_embeddings().weight is corrected.model.get_input_embeddings().weight
        assert corrected.model.cls.predictions.bias is corrected.model.cls.predictions.decoder.bias
        assert corrected.model.config.tie_word_embeddings


def test_tied_head_keeps_or_follows() -> None:
    model = bert_lm()
    original = model.get_input_embeddings().weight.detach().clone()
    keep = correct_embeddings(model, 4, untouched_ids=SPECIAL, tied_head="keep").model
    follow = correct_embeddings(model, 4, untouched_ids=SPECIAL, tied_head="follow").model
    expected = expected_embedding(original, 4, Corruption())
    for corrected in (keep, follow):
        table = corrected.get_input_embeddings().weight
        torch.testing.assert_close(table[5:], expected[5:])
        assert torch.equal(table[:5], original[:5])
    assert torch.equal(keep.get_output_embeddings().weight, original)
    assert follow.get_output_embeddings().weight is follow.get_input_embeddings().weight


@pytest.mark.parametrize("tied_head", ["keep", "follow"])
def test_a_corrected_model_survives_saving(tied_head: Any, tmp_path: Path) -> None:
    corrected = correct_embeddings(bert_lm(), 4, untouched_ids=SPECIAL, tied_head=tied_head).model
    corrected.save_pretrained(tmp_path)
    loaded, info = type(corrected).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert torch.equal(logits(loaded.eval()), logits(corrected))


def test_rate_zero_changes_nothing_and_untied_models_have_no_tied_head() -> None:
    model = bert_lm(tie_word_embeddings=False)
    corrected = correct_embeddings(model, 4, corruption=Corruption(rate=0))
    assert corrected.tied_head is None
    torch.testing.assert_close(logits(corrected.model), logits(model))
    with correct_embeddings(model, 4, in_place=True) as inside:
        assert inside.model is model
        changed = logits(model)
    assert not torch.equal(logits(model), changed)


def test_an_encoder_without_head_and_a_modern_one() -> None:
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    special = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    shape = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    modern = ModernBertForMaskedLM(ModernBertConfig(**shape, **special, intermediate_size=32)).eval()
    before = logits(modern)
    with correct_embeddings(modern, 4, in_place=True, tied_head="keep"):
        assert (logits(modern) - before).abs().max() > 1e-4
    assert torch.equal(logits(modern), before)
    assert correct_embeddings(bert_lm().bert, 4).tied_head is None


def test_faults_are_named() -> None:
    with pytest.raises(ArgumentError, match="sum to 1"):
        Corruption(0.15, 0.8, 0.1, 0.2)
    with pytest.raises(ArgumentError, match="rate is 2"):
        Corruption(2)
    with pytest.raises(ArgumentError, match="32 rows"):
        correct_embeddings(bert_lm(), 99)
    with pytest.raises(ArgumentError, match="untouched_ids"):
        correct_embeddings(bert_lm(), 4, untouched_ids=[-1])
    with pytest.raises(ArgumentError, match="sum to 1"):
        Corruption(0.15, float("nan"), 0.1, 0.1)
    with pytest.raises(ArgumentError, match="mask_token_id is None: expected an integer"):
        correct_embeddings(bert_lm(), None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"untouched_ids is 1\.5: expected an integer"):
        correct_embeddings(bert_lm(), 4, untouched_ids=[1.5])  # type: ignore[list-item]
    for table in (torch.ones(4), torch.ones(4, 2, dtype=torch.int64)):
        with pytest.raises(DataError, match="embedding has shape"):
            expected_embedding(table, 1, Corruption())
    with pytest.raises(DataError, match="embedding has a NaN"):
        expected_embedding(torch.full((4, 2), float("nan")), 1, Corruption())
    with pytest.raises(ArgumentError, match="tied_head"):
        correct_embeddings(bert_lm(), 4, tied_head="other")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no input embedding"):
        correct_embeddings(nn.Linear(2, 2), 0)
