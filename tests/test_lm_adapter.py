"""The door of the language-model part: user reports 2-11, 13, 17, 18 on the adapter."""

import warnings

import lm_support as support
import pytest
import torch
import transformers as tr

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, BudgetError, DataError, ModelError, MptBayesWarning
from mpt_bayes.lm.batches import BatchLimits, Runner, Work, batched
from mpt_bayes.lm.text import fitted
from mpt_bayes.numerics.combinatorics import all_subsets


@pytest.fixture(params=sorted(support.ARCHITECTURES))
def lm(request):
    return support.tiny_lm(request.param)


def run(lm, texts, masks, limits):
    works = [Work(t, h, h) for t, h in zip(texts, masks, strict=True)]
    out = {}
    for batch, values in Runner(lm, limits).run(works, batched(works, limits, lm.vocabulary_size)):
        out.update(zip(batch.units, values, strict=True))
    return out


def test_row_1_projection_at_hidden_positions_only_gives_the_logits_of_the_whole(lm):
    text = lm.encode(support.SENTENCES[1])
    hidden = all_subsets(text.dim)[1:]
    assert lm.base is not None, "every known architecture projects at hidden positions only"
    got = mb.lm.TextConditional(lm, text).evaluate(hidden)
    torch.testing.assert_close(got, support.reference_log_probs(lm.module, text, hidden), atol=1e-5, rtol=1e-5)
    assert got[hidden].std() > 0.05


def test_row_2_scores_do_not_depend_on_batch_padding_or_order(lm):
    texts = [lm.encode(s) for s in support.SENTENCES]
    masks = [torch.rand(5, t.dim, generator=torch.Generator().manual_seed(i)) < 0.5 for i, t in enumerate(texts)]
    masks = [m | (torch.arange(m.shape[1]) == 0) for m in masks]
    alone = run(lm, texts, masks, BatchLimits(4096, rows=1))
    few_logits = BatchLimits(4096, logits=3 * support.SIZE)
    for limits in (BatchLimits(4096), BatchLimits(4096, rows=7), BatchLimits(20), few_logits):
        together = run(lm, texts, masks, limits)
        assert together.keys() == alone.keys()
        for unit, value in alone.items():
            torch.testing.assert_close(together[unit], value, atol=1e-5, rtol=1e-5)
    shuffled = run(lm, texts[::-1], masks[::-1], BatchLimits(4096))
    for (w, m), value in alone.items():
        torch.testing.assert_close(shuffled[len(texts) - 1 - w, m], value, atol=1e-5, rtol=1e-5)


def test_row_3_special_tokens_typed_in_the_text_are_text():
    lm = support.tiny_lm()
    text = lm.encode("a [MASK] [PAD] b")
    assert text.tokens == ("a", "[", "[UNK]", "]", "[", "[UNK]", "]", "b")
    assert text.n_unknown == 2
    assert text.ids[0] == 0
    assert text.ids[-1] == 2
    assert support.MASK not in text.ids


def test_row_3_slow_tokenizers_refuse_what_they_cannot_read_as_text(tmp_path):
    slow = support.slow_tokenizer(tmp_path)
    text = mb.lm.encode(slow, "MKLAGE")
    assert text.tokens == tuple("MKLAGE")
    assert text.scored.tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(DataError, match=r"row 3 holds the special token '<mask>'.*fast tokenizer"):
        mb.lm.encode(slow, "MK<mask>L", row=3)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "esm"])
def test_row_3_a_token_that_equals_the_padding_id_is_scored_like_any_other(architecture):
    lm = support.tiny_lm(architecture)
    text = mb.lm.from_ids([0, 9, support.PAD, 10, 2])
    longer = mb.lm.from_ids([0, 9, 9, 9, 9, 9, 2])
    hidden = torch.tensor([[False, False, True, False, False], [False, True, False, False, False]])
    alone = run(lm, [text], [hidden], BatchLimits(100))
    padded = run(lm, [text, longer], [hidden, torch.ones(1, 7, dtype=torch.bool)], BatchLimits(100))
    for unit, value in alone.items():
        assert value.numel() == 1
        torch.testing.assert_close(padded[unit], value, atol=1e-5, rtol=1e-5)
    # the visible neighbour at the padding id is context: changing it changes the prediction beside it
    other = mb.lm.from_ids([0, 9, 11, 10, 2])
    assert abs(float(run(lm, [other], [hidden[1:]], BatchLimits(100))[0, 0]) - float(alone[0, 1])) > 1e-4


def test_row_4_scored_positions_are_said_and_special_tokens_are_context():
    text = support.tiny_lm().encode("the cat", prompt="a b")
    assert text.tokens == ("the", "cat")
    assert text.scored.tolist() == [3, 4]
    assert text.ids.tolist()[0] == 0
    assert text.ids.tolist()[-1] == 2


def test_row_5_and_18_word_boundaries(tmp_path):
    assert support.tiny_lm().encode("a unhappiness !").words.tolist() == [0, 1, 1, 1, 2]
    slow = mb.lm.encode(support.slow_tokenizer(tmp_path), "MKL")
    assert slow.words is None
    with pytest.raises(ArgumentError, match="slow tokenizer"):
        slow.require_words()


def test_row_6_long_texts_follow_the_stated_policy():
    lm = support.tiny_lm()
    assert lm.max_length == 20
    text = lm.encode("the cat sat on the mat " * 6)
    assert text.dim == 36
    with pytest.raises(DataError, match=r"row 5 has 38 tokens but the model takes 20.*windows"):
        fitted(text, lm.max_length, "error", row=5)
    (short,) = fitted(text, lm.max_length, "truncate", row=5)
    assert short.tokens == text.tokens[:18]
    windows = fitted(text, lm.max_length, "windows", row=5)
    assert [w.dim for w in windows] == [18, 18]
    assert sum((w.tokens for w in windows), ()) == text.tokens
    assert all(w.ids[0] == 0 and w.ids[-1] == 2 and len(w.ids) <= 20 for w in windows)
    with pytest.raises(ArgumentError, match="long_text is 'skip'"):
        fitted(text, lm.max_length, "skip", row=5)


def test_row_6_a_prompt_that_fills_the_window_is_named():
    lm = support.tiny_lm()
    with pytest.raises(DataError, match="row 2: the prompt alone"):
        fitted(lm.encode("cat", prompt="the cat sat on " * 5), lm.max_length, "windows", row=2)


def test_row_6_positions_that_start_after_the_padding_id_shorten_the_window():
    assert support.tiny_lm("roberta").max_length == 20 - support.PAD - 1
    lm = support.tiny_lm("roberta")
    text = lm.encode("the cat sat on the mat a b d a b d a b d a")
    assert len(text.ids) == lm.max_length
    assert mb.lm.TextConditional(lm, text).evaluate(torch.ones(1, text.dim, dtype=torch.bool)).isfinite().all()


@pytest.mark.parametrize("text", ["", "   "])
def test_row_7_a_text_without_tokens_is_named(text):
    with pytest.raises(DataError, match="row 4 has no tokens to score"):
        support.tiny_lm().encode(text, row=4)


def test_row_8_a_checkpoint_without_its_head_is_refused(tmp_path):
    module = support.tiny_module("bert")
    support.fast_tokenizer().save_pretrained(tmp_path / "whole")
    module.save_pretrained(tmp_path / "whole")
    support.fast_tokenizer().save_pretrained(tmp_path / "body")
    module.base_model.save_pretrained(tmp_path / "body")
    loaded = mb.lm.load(tmp_path / "whole")
    text = loaded.encode(support.SENTENCES[0])
    hidden = torch.ones(1, text.dim, dtype=torch.bool)
    torch.testing.assert_close(
        mb.lm.TextConditional(loaded, text).evaluate(hidden),
        support.reference_log_probs(module, text, hidden),
        atol=1e-5,
        rtol=1e-5,
    )
    with pytest.raises(ModelError, match=r"newly initialised.*allow_new_head"):
        mb.lm.load(tmp_path / "body")
    assert mb.lm.load(tmp_path / "body", allow_new_head=True).vocabulary_size == support.SIZE


def test_row_9_causal_models_and_tokenizers_without_a_mask_are_named(tmp_path):
    support.fast_tokenizer().save_pretrained(tmp_path)
    tr.GPT2LMHeadModel(
        tr.GPT2Config(vocab_size=support.SIZE, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=2)
    ).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="gpt2 model, without a masked-LM head"):
        mb.lm.load(tmp_path)
    bare = support.fast_tokenizer()
    bare.mask_token = None
    with pytest.raises(ModelError, match="no mask token"):
        mb.lm.adapt(support.tiny_module(), bare)
    decoder = support.tiny_module()
    decoder.config.is_decoder = True
    with pytest.raises(ModelError, match="decoder"):
        mb.lm.adapt(decoder, support.fast_tokenizer())
    with pytest.raises(ModelError, match="there is no folder"):
        mb.lm.load(tmp_path / "nothing")


def test_row_10_half_precision_logits_are_normalised_in_float32():
    lm = support.tiny_lm()
    lm.module.to(torch.bfloat16)
    text = lm.encode("cat")
    hidden = torch.ones(1, 1, dtype=torch.bool)
    ids = torch.tensor([[0, support.MASK, 2]])
    with lm.evaluating():
        logits = lm.module(input_ids=ids).logits[0, 1]
    assert logits.dtype == torch.bfloat16
    exact = logits.double().log_softmax(-1)[text.ids[1]]
    got = mb.lm.TextConditional(lm, text).evaluate(hidden)[0, 0]
    assert abs(float(got - exact)) < 1e-5
    assert abs(float(logits.log_softmax(-1)[text.ids[1]]) - float(exact)) > 1e-4


def test_row_11_mixed_devices_are_named():
    module = support.tiny_module()
    module.cls.to("meta")
    with pytest.raises(ModelError, match="cpu, meta"):
        mb.lm.adapt(module, support.fast_tokenizer())
    lm = support.tiny_lm()
    bound = mb.lm.TextConditional(lm, lm.encode("cat"))
    with pytest.raises(DataError, match="x is on meta but the model is on cpu"):
        bound.masked_log_prob(bound.x.to("meta"), torch.ones(1, 1, dtype=torch.bool))


def test_row_13_dropout_is_off_and_the_users_mode_comes_back():
    lm = support.tiny_lm()
    text = lm.encode(support.SENTENCES[0])
    hidden = torch.ones(3, text.dim, dtype=torch.bool)
    first = mb.lm.TextConditional(lm, text).evaluate(hidden)
    lm.module.train()
    lm.module.bert.embeddings.eval()
    again = mb.lm.TextConditional(lm, text).evaluate(hidden)
    assert torch.equal(first, again)
    assert lm.module.training
    assert not lm.module.bert.embeddings.training


def test_row_17_ids_are_masked_and_text_is_never_rebuilt():
    text = support.tiny_lm().encode("a   BC  unhappiness")
    assert text.tokens == ("a", "[UNK]", "un", "##happi", "##ness")
    assert len(text.scored) == text.dim == 5


def test_row_19_remote_code_is_off_unless_asked(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}')
    (tmp_path / "own.py").write_text("raise SystemExit('this code must not run')")
    with pytest.raises(ModelError, match="custom code"):
        mb.lm.load(tmp_path)


def test_a_tokenizer_of_another_model_is_named():
    lm = support.tiny_lm()
    with pytest.raises(ModelError, match=f"token id {support.SIZE}"):
        lm.checked(mb.lm.from_ids([0, support.SIZE]))
    big = support.fast_tokenizer()
    big.add_special_tokens({"mask_token": "[NEW]"})
    with pytest.raises(ModelError, match="tokenizer belongs to another model"):
        mb.lm.adapt(support.tiny_module(), big)


class Mixing(torch.nn.Module):
    """A head that mixes positions: the vocabulary projection cannot be narrowed."""

    def __init__(self):
        super().__init__()
        self.base_model = torch.nn.Embedding(support.SIZE, 8)
        self.head = torch.nn.Linear(8, support.SIZE)

    def forward(self, input_ids, attention_mask=None):
        states = self.base_model(input_ids)
        return self.head(states + states.mean(1, keepdim=True) + torch.arange(states.shape[1])[:, None])


def test_an_unknown_head_falls_back_to_every_position_and_says_so():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Mixing()
    with pytest.warns(MptBayesWarning, match="at every position"):
        lm = mb.lm.masked_diffusion(module, mask_token_id=support.MASK)
    assert lm.base is None
    text = mb.lm.from_ids([7, 8, 9], n_prompt=1)
    got = mb.lm.TextConditional(lm, text).evaluate(torch.tensor([[True, True]]))[0]
    expected = module(torch.tensor([[7, 4, 4]]))[0].log_softmax(-1)[[1, 2], [8, 9]]
    torch.testing.assert_close(got, expected.double(), atol=1e-5, rtol=1e-5)


def test_shifted_logits_predict_the_next_position():
    module = support.tiny_module()
    lm = mb.lm.masked_diffusion(module, mask_token_id=support.MASK, shifted_logits=True)
    text = mb.lm.from_ids([7, 8, 9])
    got = mb.lm.TextConditional(lm, text).evaluate(torch.tensor([[True, False, True]]))[0]
    with lm.evaluating():
        logits = module(input_ids=torch.tensor([[support.MASK, 8, support.MASK]])).logits[0].log_softmax(-1)
    torch.testing.assert_close(got, torch.tensor([logits[0, 7], 0.0, logits[1, 9]]).double(), atol=1e-5, rtol=1e-5)


class Hungry(torch.nn.Module):
    """Runs out of memory above a number of positions, as a GPU or the CPU allocator would say it."""

    def __init__(self, limit, error):
        super().__init__()
        self.inner = support.tiny_module()
        self.limit, self.error, self.sizes = limit, error, []

    def forward(self, input_ids, attention_mask=None):
        self.sizes.append(input_ids.numel())
        if input_ids.numel() > self.limit:
            raise self.error
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


CPU_ERROR = RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), CPU_ERROR])
def test_row_1_batches_halve_when_memory_runs_out_and_the_numbers_stay(error):
    module = Hungry(30, error)
    lm = mb.lm.masked_diffusion(module, mask_token_id=support.MASK)
    text = mb.lm.from_ids([5, 6, 7, 8, 9])
    masks = all_subsets(5)[1:]
    expected = support.reference_log_probs(module.inner, text, masks)
    module.sizes.clear()
    got = mb.lm.TextConditional(lm, text, batch=BatchLimits(100)).evaluate(masks)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    del module.sizes[0]  # the size of the vocabulary was asked for
    assert module.sizes[:3] == [100, 50, 25], "halved, then tried again"
    assert max(module.sizes[2:]) <= 30, "and not raised again"
    module.limit = 4
    with pytest.raises(BudgetError, match="one text of 5 tokens does not fit"):
        mb.lm.TextConditional(lm, text, batch=BatchLimits(100)).evaluate(masks)


def test_other_errors_are_not_taken_for_memory():
    lm = mb.lm.masked_diffusion(Hungry(30, RuntimeError("size mismatch")), mask_token_id=support.MASK)
    with pytest.raises(RuntimeError, match="size mismatch"):
        mb.lm.TextConditional(lm, mb.lm.from_ids([5] * 40)).evaluate(torch.ones(1, 40, dtype=torch.bool))


def test_the_antibody_bert_knows_antibodies_and_its_twin_does_not():
    lm = mb.lm.antibody()
    text = lm.encode(mb.lm.antibody_sequences()["trastuzumab|VH"])
    assert text.dim == 120
    hidden = torch.zeros(1, 120, dtype=torch.bool)
    hidden[0, ::10] = True
    trained = mb.lm.TextConditional(lm, text).evaluate(hidden)[hidden].mean()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = mb.lm.random_twin(lm)
    state = torch.random.get_rng_state()
    again = mb.lm.random_twin(lm)
    assert torch.equal(state, torch.random.get_rng_state())
    assert again.digest == twin.digest != lm.digest
    random = mb.lm.TextConditional(twin, text).evaluate(hidden)[hidden].mean()
    assert trained > -1.2
    assert -3.6 < random < -3.0


def test_a_compiled_encoder_gives_the_same_numbers(monkeypatch):
    """Traced by torch.compile but not handed to a C++ compiler, which a machine need not have."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: real(function, dynamic=dynamic, backend="eager"))
    plain, lm = support.tiny_lm(), support.tiny_lm().compiled()
    for sentence in support.SENTENCES[:2]:
        text = lm.encode(sentence)
        hidden = all_subsets(text.dim)[1:6]
        expected = mb.lm.TextConditional(plain, text).evaluate(hidden)
        torch.testing.assert_close(mb.lm.TextConditional(lm, text).evaluate(hidden), expected, atol=1e-5, rtol=1e-5)
