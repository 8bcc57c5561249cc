"""BERT, MAE-LM and 3ML: what must not matter does not, and the cost is what the formula says."""

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForMaskedLM

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError
from mpt_bayes.lm.architectures import ARCHITECTURES, build, flops, measured_flops
from mpt_bayes.numerics.random import Stream

MASK, VOCAB, LENGTH = 29, 30, 24
MASK_FREE = [name for name in ARCHITECTURES if name != "bert"]


def tiny(architecture, **options):
    sizes = {"vocab_size": VOCAB, "mask_token_id": MASK, "max_length": LENGTH, "layers": 3, "width": 32}
    options = {"initializer_range": 0.2, **options}  # large enough for attention to matter
    return build(architecture, **sizes, **options).eval()


def batch(rate=0.4, rows=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, MASK, (rows, LENGTH), generator=generator)
    n_hidden = round(rate * LENGTH)
    hidden = torch.rand(rows, LENGTH, generator=generator).argsort(1).argsort(1) < n_hidden
    return ids, hidden


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_masking_attention_columns_equals_removing_tokens(attention):
    model = tiny("bert")
    model.set_attn_implementation(attention)
    ids, hidden = batch()
    with torch.no_grad():
        masked = model.bert(ids, attention_mask=(~hidden).long()).last_hidden_state
        for row in range(len(ids)):
            keep = (~hidden[row]).nonzero()[:, 0]
            removed = model.bert(ids[row : row + 1, keep], position_ids=keep[None]).last_hidden_state[0]
            closed_up = model.bert(ids[row : row + 1, keep]).last_hidden_state[0]
            torch.testing.assert_close(masked[row, keep], removed, atol=1e-5, rtol=1e-5)
            assert (masked[row, keep] - closed_up).abs().max() > 1e-2  # positions not kept: caught


@pytest.mark.parametrize("architecture", MASK_FREE)
def test_encoder_is_what_column_masking_gives(architecture):
    model = tiny(architecture).model
    ids, hidden = batch()
    with torch.no_grad():
        encoded = model.encode(ids.masked_fill(hidden, MASK), layers=True)
        columns = model.encoder(ids, attention_mask=(~hidden).long()).last_hidden_state
    expected = columns.gather(1, encoded.positions[..., None].expand_as(encoded.states))
    torch.testing.assert_close(encoded.states, expected, atol=1e-5, rtol=1e-5)
    assert len(encoded.layers) == model.config.num_hidden_layers + 1


@pytest.mark.parametrize("architecture", MASK_FREE)
def test_encoder_does_not_see_what_the_hidden_slots_hold(architecture):
    """Neither the mask embedding, nor the word embedding of [MASK], nor how many slots are hidden behind it."""
    model = tiny(architecture).model
    ids, hidden = batch()
    masked = ids.masked_fill(hidden, MASK)
    with torch.no_grad():
        before = model.encode(masked).states
        model.mask_embedding.weight.add_(1.0)
        model.get_input_embeddings().weight[MASK] += 1.0
        after = model.encode(masked).states
    assert torch.equal(before, after)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_prediction_does_not_depend_on_hidden_content_batch_or_padding(architecture):
    model = tiny(architecture)
    ids, hidden = batch()
    hidden[1, : LENGTH // 2] = True  # rows with different numbers of visible tokens
    masked = ids.masked_fill(hidden, MASK)
    attention = torch.ones_like(ids)
    attention[0, -3:] = 0
    with torch.no_grad():
        together = model(input_ids=masked, attention_mask=attention).logits
        for row in range(len(ids)):
            length = int(attention[row].sum())
            alone = model(input_ids=masked[row : row + 1, :length]).logits[0]
            torch.testing.assert_close(together[row, :length], alone, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("architecture", MASK_FREE)
def test_a_row_with_nothing_visible_is_defined_and_disturbs_no_other(architecture):
    model = tiny(architecture)
    ids, hidden = batch()
    masked = ids.masked_fill(hidden, MASK)
    with torch.no_grad():
        before = model(input_ids=masked).logits
        masked[2] = MASK
        after = model(input_ids=masked).logits
        alone = model(input_ids=masked[2:3]).logits
    others = [0, 1, 3, 4]
    torch.testing.assert_close(before[others], after[others], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after[2], alone[0], atol=1e-5, rtol=1e-5)
    assert after.isfinite().all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_save_and_load(architecture, tmp_path):
    model = tiny(architecture)
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    assert type(again) is type(model)
    assert (tmp_path / "model.safetensors").exists()
    ids, hidden = batch()
    masked = ids.masked_fill(hidden, MASK)
    with torch.no_grad():
        assert torch.equal(again(input_ids=masked).logits, model(input_ids=masked).logits)
    assert again.get_output_embeddings().weight is again.get_input_embeddings().weight


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_parameter_trains_and_the_loss_is_that_of_the_labels(architecture):
    model = tiny(architecture).train()
    ids, hidden = batch()
    output = model(input_ids=ids.masked_fill(hidden, MASK), labels=ids.masked_fill(~hidden, -100))
    log_prob = output.logits[hidden].log_softmax(-1).gather(-1, ids[hidden][:, None])
    torch.testing.assert_close(output.loss, -log_prob.mean())
    output.loss.backward()
    still = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert still == []


@pytest.mark.parametrize("rate", [0.15, 0.5, 0.8])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cost_is_what_the_formula_says(architecture, rate):
    """To the last operation: the encoder's cost falls with the mask rate, BERT's does not."""
    model = tiny(architecture)
    ids, hidden = batch(rate)
    masked = ids.masked_fill(hidden, MASK)
    formula = flops(model.config, LENGTH, int(hidden[0].sum()))
    body = measured_flops(model.base_model, masked) / len(ids)
    assert body == formula.encoder + formula.decoder
    states = torch.zeros(1, int(hidden[0].sum()), 32)
    assert measured_flops(model.cls, states) == formula.head
    if architecture != "bert":
        n_visible = LENGTH - int(hidden[0].sum())
        encoder = measured_flops(model.model.encoder, ids[:1, :n_visible])
        assert encoder == formula.encoder < flops(model.config, LENGTH, 1).encoder


@pytest.mark.parametrize("architecture", MASK_FREE)
def test_the_encoder_costs_little_more_than_the_formula_where_sizes_vary(architecture):
    """A batch of sizes drawn uniformly: padding every row to the longest would cost twice the formula."""
    model = tiny(architecture)
    ids, _ = batch(rows=64)
    hidden = torch.stack([mb.masks.UniformSize(1).draw(LENGTH, Stream(row)).hidden[0] for row in range(64)])
    masked = ids.masked_fill(hidden, MASK)
    formula = sum(flops(model.config, LENGTH, int(row.sum())).encoder for row in hidden)
    assert formula <= measured_flops(model.model.encode, masked) < 1.15 * formula
    padded = ids[:, : int((~hidden).sum(1).max())]
    assert measured_flops(model.model.encoder, padded) > 1.9 * formula
    with torch.no_grad():
        together = model.model.encode(masked)
        for row in range(64):
            alone = model.model.encode(masked[row : row + 1])
            kept = together.real[row]
            torch.testing.assert_close(together.states[row, kept], alone.states[0, alone.real[0]], atol=1e-5, rtol=1e-5)


def test_one_seed_one_model_and_the_global_generator_is_left_alone():
    state = torch.random.get_rng_state()
    first, second = tiny("mae_lm"), tiny("mae_lm")
    other = tiny("mae_lm", generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.random.get_rng_state(), state)
    weights = [model.model.mask_embedding.weight for model in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert float(functional.cosine_similarity(weights[0], weights[2]).detach().abs()) < 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [({"architecture": "gpt"}, "architecture"), ({"heads": 3}, "heads"), ({"decoder_layers": 3}, "encoder layers")],
)
def test_sizes_that_make_no_model_are_refused(change, message):
    options = {"vocab_size": VOCAB, "mask_token_id": MASK, "max_length": LENGTH, "layers": 3, "width": 32}
    with pytest.raises(ArgumentError, match=message):
        build(**{"architecture": "3ml_self", **options, **change})


def test_more_hidden_than_tokens_has_no_cost():
    with pytest.raises(ArgumentError, match="n_hidden"):
        flops(tiny("bert").config, 4, 5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scored_by_the_engine_like_any_masked_model(architecture):
    """Projected at hidden positions only, and equal to the plain forward pass; sizes up to everything hidden."""
    module = tiny(architecture)
    model = mb.lm.masked_diffusion(module, mask_token_id=MASK)
    assert model.base is module.base_model
    ids, _ = batch(rows=1)
    text = mb.lm.TextConditional(model, mb.lm.from_ids(ids[0]))
    hidden = mb.masks.PerSize(1).draw(LENGTH, Stream(0)).hidden
    with torch.no_grad():
        logits = module(input_ids=ids.expand(LENGTH, -1).masked_fill(hidden, MASK)).logits
    plain = torch.where(hidden, logits.log_softmax(-1).gather(-1, ids.expand(LENGTH, -1)[..., None])[..., 0], 0)
    torch.testing.assert_close(text.evaluate(hidden), plain.double(), atol=2e-5, rtol=1e-5)
