"""Pre-training: the configuration, the examples, the languages, and runs that can be killed."""

import dataclasses
import hashlib
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, BudgetError, DataError, DivergedError
from mpt_bayes.lm import pretraining
from mpt_bayes.lm.pretraining.examples import TrainingExamples, collate
from mpt_bayes.lm.pretraining.laws import MaskLaw
from mpt_bayes.lm.pretraining.loss import hidden_log_probs, masked_loss
from mpt_bayes.lm.pretraining.records import RunFolder
from mpt_bayes.numerics.random import Stream

SMALL = {
    "corpus": {"kind": "hmm", "length": 8, "held_out": 12, "states": 3, "letters": 5},
    "model": {"layers": 1, "width": 16, "heads": 2, "dropout": 0.1},
    "training": {"steps": 12, "batch": 4, "save_every": 4, "warmup": 2},
    "evaluation": {"every": 6, "rows": 12},
}


def config(**changes):
    table = json.loads(json.dumps(SMALL))
    for name, value in changes.items():
        table[name] = {**table.get(name, {}), **value}
    return pretraining.PretrainConfig.from_dict(table)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "corpus is missing"),
        ({"corpus": {"kind": "hmm", "lenght": 3}}, r"corpus\.lenght is not a field"),
        ({"corpus": {"kind": "web"}}, r"corpus\.kind is 'web'"),
        ({"corpus": {"kind": "hmm", "length": "long"}}, r"corpus\.length is 'long'"),
        ({"corpus": {"kind": "hmm"}, "masks": {"rates": 0.15}}, r"masks\.rates is 0\.15: expected a list"),
        ({"corpus": 3}, r"corpus\. is 3: expected a table|corpus is 3: expected a table"),
        ({"corpus": {"kind": "hmm"}, "training": {"steps": True}}, r"training\.steps is True"),
        ({"corpus": {"kind": "hmm"}, "training": {"steps": 0}}, r"training\.steps is 0: expected at least 1"),
        ({"corpus": {"kind": "hmm"}, "training": {"learning_rate": float("nan")}}, r"training\.learning_rate is nan"),
        ({"corpus": {"kind": "hmm"}, "training": {"decay": 1.5}}, r"training\.decay is 1\.5: .* from 0 to 1"),
        ({"corpus": {"kind": "hmm"}, "training": {"clip": -1.0}}, r"training\.clip is -1\.0: expected .* 0 or more$"),
        ({"corpus": {"kind": "hmm"}, "model": {"heads": 0}}, r"model\.heads is 0"),
        (
            {"corpus": {"kind": "hmm"}, "masks": {"keep": 0.7, "random": 0.7}},
            "masks.keep are 0.7 and 0.7: .* sum to at most 1",
        ),
        ({"corpus": {"kind": "hmm"}, "masks": {"keep": -0.1, "random": 0.2}}, "are 0.2 and -0.1: .* sum to at most 1"),
        (
            {"corpus": {"kind": "hmm", "held_out": 8}, "evaluation": {"rows": 500}},
            r"rows is 500, but corpus\.held_out is 8",
        ),
        ({"corpus": {"kind": "hmm"}, "evaluation": {"every": 0}}, r"evaluation\.every is 0"),
        ({"corpus": {"kind": "text"}}, r"corpus\.path is missing"),
        ({"corpus": {"kind": "hmm"}, "seed": -1}, "seed is -1"),
    ],
)
def test_a_configuration_has_nothing_unknown_missing_of_the_wrong_type_or_out_of_range(table, message):
    with pytest.raises(ArgumentError, match=message):
        pretraining.PretrainConfig.from_dict(table)


def test_random_and_kept_tokens_may_be_all_the_hidden_ones():
    for keep in (0.1, 0.3, 0.35, 0.9):
        assert config(masks={"keep": keep, "random": 1 - keep}).masks.keep == keep


def test_a_configuration_survives_json():
    original = config(masks={"law": "linear", "rates": [0.8, 0.2]})
    assert pretraining.PretrainConfig.from_dict(json.loads(json.dumps(original.to_dict()))) == original


def test_a_study_lays_variants_over_a_base(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('[corpus]\nkind = "hmm"\n[model]\nwidth = 32\n[variants.a]\n[variants.b.model]\nlayers = 5\n')
    configs = pretraining.Study.from_toml(path).configs
    assert [configs[name].model.layers for name in configs] == [2, 5]
    assert all(c.model.width == 32 for c in configs.values())
    for name in ("", "..", "../up", "a/b"):
        with pytest.raises(ArgumentError, match="its name is that of its folder"):
            pretraining.Study.from_dict({"corpus": {"kind": "hmm"}, "variants": {name: {}}})
    path.write_text("corpus = [")
    with pytest.raises(ArgumentError, match="not TOML"):
        pretraining.Study.from_toml(path)


@pytest.mark.parametrize(
    ("masks", "sizes"),
    [
        ({"law": "fixed", "rates": (0.25,)}, {5}),
        ({"law": "rates", "rates": (0.25, 0.75)}, {5, 15}),
        ({"law": "uniform"}, set(range(1, 21))),
    ],
)
def test_laws_draw_the_sizes_they_name(masks, sizes):
    law = MaskLaw(pretraining.MaskConfig(**masks))
    drawn = [int(law.draw(20, 0.5, Stream(1).child(k)).sum()) for k in range(400)]
    assert set(drawn) == sizes


@pytest.mark.parametrize("law", ["linear", "cosine"])
def test_schedules_go_from_the_first_rate_to_the_last(law):
    masks = MaskLaw(pretraining.MaskConfig(law=law, rates=(0.9, 0.1)))
    sizes = [int(masks.draw(100, time, Stream(0)).sum()) for time in (0.0, 0.25, 0.5, 0.75, 0.999)]
    assert sizes[0] == 90
    assert sizes[2] == 50
    assert sizes[4] == 10
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"law": "poisson"}, "masks.law"),
        ({"law": "fixed"}, "masks.rates has 0"),
        ({"law": "fixed", "rates": (1.5,)}, "masks.rates is"),
        ({"law": "uniform", "rates": (0.5,)}, "masks.rates has 1"),
    ],
)
def test_laws_that_make_no_sense_are_refused(masks, message):
    with pytest.raises(ArgumentError, match=message):
        MaskLaw(pretraining.MaskConfig(**masks))


@pytest.fixture(scope="module")
def text_corpus():
    return pretraining.load_corpus(pretraining.CorpusConfig("pydoc", length=30, held_out=16, vocabulary=600))


def test_the_same_texts_give_the_same_tokenizer_in_every_process(text_corpus):
    """Two processes with different hash seeds; a trainer that breaks ties by a hash table fails this."""
    program = (
        "from mpt_bayes.lm import pretraining as p; import hashlib;"
        "c = p.load_corpus(p.CorpusConfig('pydoc', length=30, held_out=16, vocabulary=600));"
        "print(hashlib.sha256(c.blocks.numpy().tobytes()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == hashlib.sha256(text_corpus.blocks.numpy().tobytes()).hexdigest()


def test_indentation_costs_no_tokens_and_punctuation_is_never_glued_to_letters(text_corpus):
    tokenizer = text_corpus.tokenizer
    assert tokenizer.tokenize("the\n\n      list") == tokenizer.tokenize("the list")
    ordinary = tokenizer.convert_ids_to_tokens(text_corpus.ordinary.tolist())
    assert all(re.fullmatch(r"▁?([^\W_]+|[^\w▁]|_)|▁", token) for token in ordinary)
    assert (text_corpus.blocks == tokenizer.convert_tokens_to_ids("▁")).double().mean() < 0.01


def test_whole_words_are_hidden_whole_and_spans_are_long(text_corpus):
    words = MaskLaw(pretraining.MaskConfig(law="words", rates=(0.3,)))
    spans = MaskLaw(pretraining.MaskConfig(law="spans", rates=(0.3,), span=5.0))
    hidden, begun = 0, 0
    for k in range(200):
        _, word = text_corpus.sequence(k)
        mask = words.draw(30, 0.5, Stream(k), word)
        split = [len(set(mask[word == w].tolist())) > 1 for w in word.unique()]
        assert not any(split)
        mask = spans.draw(30, 0.5, Stream(k))
        hidden += int(mask.sum())
        begun += int(mask[0]) + int((mask[1:] & ~mask[:-1]).sum())
    assert 3.5 < hidden / begun < 5.5  # the end of the block cuts some
    with pytest.raises(ArgumentError, match="have no words"):
        words.draw(30, 0.5, Stream(0))


def test_corruption_has_its_shares_and_touches_only_what_is_hidden(text_corpus):
    masks = pretraining.MaskConfig(law="fixed", rates=(0.5,), random=0.1, keep=0.2, drop=0.25)
    batch = collate([TrainingExamples(text_corpus, masks, count=400, seed=0)[k] for k in range(400)])
    hidden, ids, target = batch["hidden"], batch["ids"], batch["target"]
    special = (target < len(text_corpus.tokenizer.all_special_ids)) & ~hidden
    assert torch.equal(ids[~hidden], target[~hidden])
    assert not (hidden & special).any()
    assert batch["attended"][hidden].all()
    assert batch["attended"][special].all()
    n = int(hidden.sum())
    masked = (ids[hidden] == text_corpus.mask_token_id).double().mean()
    kept = (ids[hidden] == target[hidden]).double().mean()
    dropped = 1 - batch["attended"][~hidden & ~special].double().mean()
    for share, expected in ((masked, 0.7), (kept, 0.2 + 0.1 / 600), (dropped, 0.25)):
        assert abs(float(share) - expected) < 4 * np.sqrt(expected * (1 - expected) / n)
    replaced = ids[hidden & (ids != target) & (ids != text_corpus.mask_token_id)]
    assert not (replaced < len(text_corpus.tokenizer.all_special_ids)).any()


def test_an_example_is_a_function_of_its_number(text_corpus):
    masks = pretraining.MaskConfig(random=0.1, keep=0.1, drop=0.1)
    forwards = [TrainingExamples(text_corpus, masks, count=50, seed=3)[k] for k in range(20)]
    again = TrainingExamples(text_corpus, masks, count=50, seed=3)
    backwards = [again[k] for k in reversed(range(20))][::-1]
    for a, b in zip(forwards, backwards, strict=True):
        assert all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    other = TrainingExamples(text_corpus, masks, count=50, seed=4)[0]
    assert not torch.equal(other.hidden, forwards[0].hidden)


def test_held_out_blocks_are_never_trained_on_and_every_block_once_an_epoch(text_corpus):
    n = len(text_corpus.blocks)
    epoch = torch.stack([text_corpus.sequence(k)[0] for k in range(n)])
    assert torch.equal(epoch.unique(dim=0), text_corpus.blocks.unique(dim=0))
    following = torch.stack([text_corpus.sequence(n + k)[0] for k in range(n)])
    assert not torch.equal(epoch, following)
    held = {tuple(text.ids.tolist()) for text in text_corpus.held_out}
    assert not held & {tuple(row.tolist()) for row in text_corpus.blocks}


def test_a_corpus_too_small_is_an_error(tmp_path):
    path = tmp_path / "little.txt"
    path.write_text("one line\n\nand another\n")
    with pytest.raises(DataError, match="held_out"):
        pretraining.load_corpus(pretraining.CorpusConfig("text", path=str(path), vocabulary=40))
    with pytest.raises(DataError, match="cannot be read"):
        pretraining.load_corpus(pretraining.CorpusConfig("text", path=str(tmp_path / "absent.txt")))


def test_protein_sequences_are_read_letter_by_letter(tmp_path):
    path = tmp_path / "chains.fasta"
    path.write_text(">a first\nEVQLVESGGG\nLVQ\n>b\nDIQMTQSPSSLSAS\n")
    corpus = pretraining.load_corpus(pretraining.CorpusConfig("fasta", path=str(path), length=5, held_out=2))
    assert "".join(corpus.held_out[0].tokens) == "EVQLV"
    assert len(corpus.blocks) == 3
    path.write_text(">a first\nevq-lve.sggg\nLVQ*\n>b\nDIQMTQSPSSLSAS\n")
    again = pretraining.load_corpus(pretraining.CorpusConfig("fasta", path=str(path), length=5, held_out=2))
    assert torch.equal(again.blocks, corpus.blocks), "gaps and stops are no letters, as where sequences are scored"
    path.write_text("EVQL\n>b\nDIQ\n")
    with pytest.raises(DataError, match="line 1: a sequence before the first"):
        pretraining.load_corpus(pretraining.CorpusConfig("fasta", path=str(path)))
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        pretraining.load_corpus(pretraining.CorpusConfig("text", path=str(path)))


@pytest.mark.parametrize(
    "language",
    [pretraining.cyclic_language(states=3, letters=5, length=6), pretraining.table_language(letters=3, length=4)],
    ids=["hmm", "table"],
)
def test_sequences_of_a_language_come_from_its_joint(language):
    """Frequencies of the first two letters against the exact marginal, and the entropy of whole sequences."""
    x = torch.cat([language.sequences(Stream(0), block) for block in range(5)])
    n = len(x)
    counts = torch.zeros(language.letters, language.letters).index_put_(
        (x[:, 0], x[:, 1]), torch.ones(n), accumulate=True
    )
    pairs = torch.cartesian_prod(torch.arange(language.letters), torch.arange(language.letters))
    whole = torch.zeros(len(pairs), language.length, dtype=torch.int64)
    whole[:, :2] = pairs
    visible = torch.zeros(1, language.length, dtype=torch.bool)
    visible[0, :2] = True
    exact = language.joint.marginal_log_prob(whole, visible)[:, 0].exp()
    error = (counts.flatten() / n - exact) / (exact * (1 - exact) / n).sqrt()
    assert float(error[exact > 10 / n].abs().max()) < 4.5
    alone = language.context_free()
    assert torch.allclose(alone.exp().sum(1), torch.ones(language.length, dtype=torch.float64))
    torch.testing.assert_close(exact.reshape(language.letters, -1).sum(1), alone[0].exp())


def test_the_exact_score_of_a_language_sums_to_its_log_likelihood():
    """One mask of every size for each row is unbiased for log p: the mean difference is within its standard error."""
    language = pretraining.cyclic_language(states=3, letters=5, length=6)
    texts = [mb.lm.from_ids(row) for row in language.sequences(Stream(1), 0)[:600]]
    held_out = pretraining.HeldOut(texts)
    x = torch.stack([text.ids for text in texts])
    exact = held_out.exact(language)
    difference = exact.scores.sum(1) - language.joint.log_marginal_likelihood(x).numpy()
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    assert error < 0.05
    assert abs(difference.mean()) < 4 * error
    share = pretraining.share_of_context(exact, exact, held_out.context_free(language))
    assert share.value == 1.0
    assert share.standard_error < 1e-12
    nothing = pretraining.share_of_context(held_out.context_free(language), exact, held_out.context_free(language))
    assert nothing.value == 0.0


def test_the_default_language_gives_context_half_a_nat_and_more():
    language = pretraining.cyclic_language()
    x = language.sequences(Stream(2), 0)[:1000]
    exact = language.joint.log_marginal_likelihood(x).mean() / 32
    alone = language.context_free()[torch.arange(32), x].sum(1).mean() / 32
    assert 8 <= language.letters <= 16
    assert language.length == 32
    assert 0.6 < float(exact - alone) < 0.8


def test_loss_is_the_cumulative_score_and_its_weights_are_what_they_say():
    corpus = pretraining.load_corpus(config().corpus)
    module = pretraining.run.new_model(config(model={"dropout": 0.0}), corpus)
    model = mb.lm.masked_diffusion(module, mask_token_id=corpus.mask_token_id)
    examples = TrainingExamples(corpus, pretraining.MaskConfig(), count=30, seed=0)
    batch = collate([examples[k] for k in range(30)])
    log_prob, rows = hidden_log_probs(model, batch)
    by_mask, by_token = (masked_loss(log_prob, rows, 30, weighting) for weighting in ("mask", "token"))
    expected = []
    for k in range(30):
        text = mb.lm.TextConditional(model, mb.lm.from_ids(batch["target"][k]))
        expected.append(text.evaluate(batch["hidden"][k : k + 1])[0].sum() / batch["hidden"][k].sum())
    torch.testing.assert_close(by_mask.double(), -torch.stack(expected).mean(), atol=1e-5, rtol=1e-5)
    sizes = batch["hidden"].sum(1)
    torch.testing.assert_close(
        by_token.double(), -(torch.stack(expected) * sizes).sum() / sizes.sum(), atol=1e-5, rtol=1e-5
    )
    by_mask.backward()
    assert all(weight.grad is not None for weight in module.parameters())


@pytest.mark.parametrize("architecture", ["bert", "mae_lm", "3ml_self", "3ml_cross"])
def test_each_architecture_trains_saves_loads_and_is_scored_alike(architecture, tmp_path):
    run = pretraining.pretrain(config(model={"architecture": architecture, "layers": 2}), tmp_path / "run")
    again = pretraining.load_run(tmp_path / "run")
    held_out = pretraining.HeldOut(pretraining.load_corpus(config().corpus).held_out)
    assert np.array_equal(held_out.score(again.model).scores, np.load(tmp_path / "run" / "held_out.npy"))
    assert held_out.score(run.model).total == run.result["total"] == again.result["total"]
    untrained = run.folder.rows("evaluation")[0]["total"]
    assert run.result["gain_over_untrained"] == pytest.approx(run.result["total"] - untrained, abs=1e-9)
    assert 1 <= run.result["measured_over_formula"] < (1 + 1e-9 if architecture == "bert" else 1.15)
    assert 0 < run.result["gain_standard_error"] < run.result["total_standard_error"] * 2
    assert again.result["parameters"] == run.model.module.num_parameters()


def test_a_run_leaves_a_folder_with_everything(tmp_path):
    run = pretraining.pretrain(config(), tmp_path / "run")
    folder = run.folder
    steps, evaluations = folder.rows("step"), folder.rows("evaluation")
    assert [row["step"] for row in steps] == list(range(1, 13))
    assert [row["step"] for row in evaluations] == [0, 6, 12]
    assert steps[-1]["tokens"] == 12 * 4 * 8
    assert len(evaluations[0]["curve"]) == 8
    assert evaluations[-1]["flops"] == steps[-1]["flops"] > 0
    assert run.result["share_standard_error"] > 0.01
    names = {path.name for path in folder.path.iterdir()}
    assert {"config.json", "versions.json", "steps.parquet", "evaluations.parquet", "result.json", "model"} <= names
    assert (folder.model / "model.safetensors").exists()
    assert folder.config() == config()
    assert json.loads((folder.path / "versions.json").read_text())["torch"] == torch.__version__
    with pytest.raises(ArgumentError, match="holds a run already"):
        pretraining.pretrain(config(), tmp_path / "run")
    with pytest.raises(ArgumentError, match="another configuration"):
        RunFolder(folder.path).start(config(model={"width": 32}), resume=True)
    assert pretraining.pretrain(config(), tmp_path / "run", resume=True).result == run.result
    with pytest.raises(ArgumentError, match=r"model\.width is 16 there and 32 now"):
        pretraining.pretrain(config(model={"width": 32}), tmp_path / "run", resume=True)
    (folder.path / "result.json").unlink()
    with pytest.raises(ArgumentError, match="did not go to its end"):
        pretraining.load_run(folder.path)
    with pytest.raises(ArgumentError, match="there is no finished run in"):
        pretraining.load_run(tmp_path / "absent")


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"learning_rate": 1e30}, r"the loss is \w+ at step \d; lower training.learning_rate \(1e\+30\)"),
        ({"learning_rate": 1e30, "steps": 1, "warmup": 0}, "the held-out score is .* at step 1"),
    ],
)
def test_a_run_that_diverges_says_so_and_keeps_its_steps(training, words, tmp_path):
    with pytest.raises(DivergedError, match=words):
        pretraining.pretrain(config(training=training), tmp_path / "run")
    steps = RunFolder(tmp_path / "run").rows("step")
    assert steps
    assert all(np.isfinite(row["loss"]) for row in steps)


def test_a_language_holds_out_as_many_as_asked_for_and_none_twice():
    corpus = pretraining.load_corpus(pretraining.CorpusConfig("hmm", length=32, held_out=5000))
    few = pretraining.load_corpus(pretraining.CorpusConfig("hmm", length=32, held_out=12))
    assert len({text.digest for text in corpus.held_out}) == 5000
    assert [text.digest for text in corpus.held_out[:12]] == [text.digest for text in few.held_out]


def test_a_table_too_large_to_be_written_down_is_refused():
    with pytest.raises(BudgetError, match=r"12\^32"):
        pretraining.load_corpus(pretraining.CorpusConfig("table", letters=12, length=32))


def test_corruption_is_for_bert_alone(tmp_path):
    with pytest.raises(ArgumentError, match="mae_lm removes hidden tokens"):
        pretraining.pretrain(config(model={"architecture": "mae_lm"}, masks={"random": 0.1}), tmp_path / "run")


KILLED = """
import json, os, signal, sys
from pathlib import Path
from mpt_bayes.lm import pretraining
from mpt_bayes.lm.pretraining.records import RunFolder

folder, at, resume = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resume"
add = RunFolder.add

def add_and_die(self, row):
    add(self, row)
    if row["kind"] == "step" and row["step"] == at:
        os.kill(os.getpid(), signal.SIGKILL)

RunFolder.add = add_and_die
pretraining.pretrain(pretraining.PretrainConfig.from_dict(json.loads(sys.argv[4])), folder, resume=resume)
"""


def test_killed_and_resumed_a_run_goes_through_the_same_losses_bit_for_bit(tmp_path):
    """SIGKILL after steps 2 (before any checkpoint), 7 and 11, each resumed; dropout is on."""
    undisturbed = pretraining.pretrain(config(), tmp_path / "whole")
    broken = tmp_path / "broken"
    for number, at in enumerate((2, 7, 11)):
        arguments = [str(broken), str(at), "resume" if number else "new", json.dumps(SMALL)]
        done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    resumed = pretraining.pretrain(config(), broken, resume=True)

    def timeless(rows):
        return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]

    assert timeless(resumed.folder.rows()) == timeless(undisturbed.folder.rows())
    weights = undisturbed.model.module.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in resumed.model.module.state_dict().items())


@pytest.mark.slow
def test_two_processes_train_as_one_with_twice_the_batch(tmp_path):
    """Gloo processes started by torchrun: the same examples in all, the mean of both gradients, one folder."""
    changes = {"model": {**SMALL["model"], "dropout": 0.0}}
    pair, single = SMALL | changes, config(**changes, training={"batch": 8})
    script = tmp_path / "train.py"
    script.write_text(
        "import json, sys\n"
        "from mpt_bayes.lm import pretraining\n"
        "pretraining.pretrain(pretraining.PretrainConfig.from_dict(json.loads(sys.argv[1])), sys.argv[2])\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = [str(script), json.dumps(pair), str(tmp_path / "pair")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*launch, *arguments], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    alone = pretraining.pretrain(single, tmp_path / "single")
    together = pretraining.load_run(tmp_path / "pair")
    for name, value in together.model.module.state_dict().items():
        torch.testing.assert_close(value, alone.model.module.state_dict()[name], atol=2e-5, rtol=1e-4)
    assert [row["step"] for row in together.folder.rows("step")] == list(range(1, 13))
    assert together.result["tokens"] == alone.result["tokens"]


def test_mixed_precision_trains_and_scores_in_float32(tmp_path):
    run = pretraining.pretrain(config(training={"precision": "bfloat16"}), tmp_path / "run")
    exact = pretraining.pretrain(config(), tmp_path / "exact")
    assert {weight.dtype for weight in run.model.module.parameters()} == {torch.float32}
    losses, expected = ([row["loss"] for row in r.folder.rows("step")] for r in (run, exact))
    assert losses != expected
    assert np.allclose(losses, expected, rtol=0.02)


def test_a_checkpoint_cut_short_is_not_resumed_from(tmp_path):
    folder = RunFolder(tmp_path)
    folder.start(config(), resume=False)
    for step in (4, 8):
        folder.checkpoint(step).mkdir()
        folder.add({"kind": "step", "step": step})
    folder.mark_complete(4)
    (tmp_path / "metrics.jsonl").open("a").write('{"kind": "st')
    assert folder.start(config(), resume=True) == 4
    assert [row["step"] for row in folder.rows()] == [4]


def test_paired_comparison_of_runs(tmp_path):
    folders = {}
    for name, law in (("uniform", {}), ("fixed", {"law": "fixed", "rates": [0.25]})):
        folders[name] = tmp_path / name
        pretraining.pretrain(config(masks=law), folders[name])
    first, second = pretraining.compare_runs(folders)
    assert first.difference.total == 0.0
    assert second.difference.total == pytest.approx(second.scores.total - first.scores.total)
    assert 0 < second.row["difference_standard_error"] < second.row["area_standard_error"]
    pretraining.pretrain(config(corpus={"held_out": 13}, evaluation={"rows": 13}), tmp_path / "other")
    with pytest.raises(DataError, match="different held-out sets"):
        pretraining.compare_runs({**folders, "other": tmp_path / "other"})
