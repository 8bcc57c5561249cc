"""DropToken: what is dropped, what stays where it was, and how it resumes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mpt_bayes.dropout import DropToken
from mpt_bayes.errors import ArgumentError, ModelError

SHAPE = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.3}
IDS = torch.tensor([[2, 9, 17, 5, 30, 31, 8, 3, 0, 0], [2, 7, 8, 9, 10, 11, 12, 13, 14, 3]])
PRESENT = (torch.arange(10) < torch.tensor([[8], [10]])).long()
MARKS = torch.zeros(2, 10, dtype=torch.int64)
MARKS[:, 0] = 1
MARKS[0, 7:] = 1
MARKS[1, 9] = 1


def encoders() -> list[nn.Module]:
    from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel, RobertaConfig, RobertaModel

    torch.manual_seed(0)
    special = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    modern = ModernBertConfig(**SHAPE, **special, intermediate_size=32, local_attention=4, initializer_range=0.3)
    roberta = RobertaConfig(**SHAPE, **QUIET, intermediate_size=32, pad_token_id=0)
    return [
        BertModel(BertConfig(**SHAPE, **QUIET, intermediate_size=32)),
        ModernBertModel(modern),
        RobertaModel(roberta),
    ]


def first_token(model: nn.Module, **options: Any) -> torch.Tensor:
    output = model(IDS, attention_mask=PRESENT, special_tokens_mask=MARKS, **options)
    return output.last_hidden_state[:, 0].detach()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_both_methods_give_the_kept_tokens_the_same_states(which: int) -> None:
    encoder = encoders()[which]
    by_columns = DropToken(encoder, 0.5, seed=3).train()
    by_removal = DropToken(encoder, 0.5, seed=3, method="remove").train()
    states = [first_token(by_columns) for _ in range(4)]
    for state in states:
        torch.testing.assert_close(first_token(by_removal), state, atol=1e-5, rtol=0)
    assert (states[0] - states[1]).abs().max() > 1e-3  # another step, other tokens


def test_evaluation_and_rate_zero_are_the_encoder_itself() -> None:
    encoder = encoders()[0]
    expected = encoder(input_ids=IDS, attention_mask=PRESENT).last_hidden_state
    for module in (DropToken(encoder, 0.5).eval(), DropToken(encoder, 0.0).train()):
        assert torch.equal(module(IDS, attention_mask=PRESENT).last_hidden_state, expected)


def test_the_rate_special_tokens_and_padding() -> None:
    module = DropToken(encoders()[0], 0.3, seed=1)
    kept = torch.stack([module._draw(PRESENT.bool(), MARKS.bool()) for _ in range(2000)])
    assert kept[:, MARKS.bool() & PRESENT.bool()].all()
    assert not kept[:, ~PRESENT.bool()].any()
    ordinary = kept[:, ~MARKS.bool()].double()
    n = ordinary.numel()
    assert abs(float(ordinary.mean()) - 0.7) < 4 * (0.21 / n) ** 0.5


def test_a_row_always_keeps_a_token() -> None:
    module = DropToken(encoders()[0], 0.99, seed=1)
    kept = torch.stack([module._draw(PRESENT.bool(), torch.zeros(2, 10, dtype=torch.bool)) for _ in range(200)])
    assert kept.any(-1).all()
    assert not kept[:, ~PRESENT.bool()].any()


def test_drops_depend_on_seed_and_step_alone_and_resume_from_the_state_dict() -> None:
    encoder = encoders()[0]
    first = DropToken(encoder, 0.5, seed=7).train()
    first_token(first)
    resumed = DropToken(encoder, 0.5, seed=7).train()
    resumed.load_state_dict(first.state_dict())
    torch.manual_seed(12345)
    expected = first_token(first)
    assert torch.equal(first_token(resumed), expected)
    assert not torch.equal(first_token(DropToken(encoder, 0.5, seed=8).train()), expected)


@pytest.mark.parametrize("method", ["columns", "remove"])
def test_a_classifier_trains_through_it(method: Any) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SHAPE, intermediate_size=32, num_labels=2))
    module = DropToken(model, 0.3, method=method).train()
    types = torch.zeros_like(IDS)
    labels = torch.tensor([0, 1])
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        loss = module(IDS, PRESENT, MARKS, labels=labels, token_type_ids=types).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert module.config.num_labels == 2


def test_encoders_that_count_positions_themselves_are_refused_for_removal_only() -> None:
    from transformers import DebertaV2Config, DebertaV2Model

    torch.manual_seed(0)
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    encoder = DebertaV2Model(DebertaV2Config(**SHAPE, **relative, intermediate_size=32))
    with pytest.raises(ModelError, match="use method='columns'"):
        DropToken(encoder, 0.1, method="remove")
    assert encoder.training is DropToken(encoder, 0.1).encoder.training
    first_token(DropToken(encoder, 0.1).train())


def others() -> list[nn.Module]:
    import transformers as hf

    torch.manual_seed(0)
    shape: dict[str, Any] = {**SHAPE, "intermediate_size": 32}
    distil = {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    rotary = {"position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 4}
    return [
        hf.DistilBertModel(hf.DistilBertConfig(**distil)),
        hf.ElectraModel(hf.ElectraConfig(**shape)),
        hf.AlbertModel(hf.AlbertConfig(**shape)),
        hf.EsmModel(hf.EsmConfig(**shape, **rotary)),
    ]


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_encoders_that_take_position_ids_may_have_their_tokens_removed(which: int) -> None:
    assert DropToken(others()[which], 0.1, method="remove").method == "remove"


def test_faults_are_named() -> None:
    encoder = encoders()[0]
    with pytest.raises(ArgumentError, match="rate is 1"):
        DropToken(encoder, 1.0)
    with pytest.raises(ModelError, match="Linear is no Hugging Face encoder"):
        DropToken(nn.Linear(2, 2), 0.1)
    with pytest.raises(ArgumentError, match="method"):
        DropToken(encoder, 0.1, method="other")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="special_tokens_mask is missing"):
        DropToken(encoder, 0.1).train()(IDS)
