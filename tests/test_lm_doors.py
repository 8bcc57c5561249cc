"""What is no model, no list of texts, no folder: one line each; unknown letters are said."""

import lm_support as support
import numpy as np
import pandas as pd
import pytest
import torch
import transformers as tr

import mpt_bayes as mb
from mpt_bayes.cli import main
from mpt_bayes.errors import ArgumentError, DataError, ModelError, MptBayesWarning
from mpt_bayes.lm import pretraining
from mpt_bayes.lm.rank import representation_rank


def test_a_causal_model_in_memory_is_refused_whatever_its_tokenizer():
    config = tr.GPT2Config(vocab_size=support.SIZE, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=2)
    with pytest.raises(ModelError, match="GPT2LMHeadModel, a causal model"):
        mb.lm.adapt(tr.GPT2LMHeadModel(config), support.fast_tokenizer())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mb.lm.load(torch.nn.Linear(2, 2)), "not a Linear: a model in memory goes through adapt"),
        (lambda: mb.lm.load("./nowhere"), r"there is no folder './nowhere'"),
        (lambda: mb.lm.adapt("bert", None), "not a str"),
        (lambda: mb.lm.score(torch.nn.Linear(2, 2), ["a"]), "model is a Linear: pass what load"),
        (lambda: mb.lm.score(support.tiny_lm(), pd.DataFrame({"text": ["a"]})), "pass one column of it"),
        (lambda: mb.lm.score(support.tiny_lm(), (text for text in ["a"])), "list of at least one text"),
    ],
)
def test_what_is_no_model_or_no_list_of_texts_is_named(call, message):
    with pytest.raises((ArgumentError, ModelError), match=message):
        call()


@pytest.mark.parametrize("seed", ["0", 0.0, None, torch.Generator(), -1])
@pytest.mark.parametrize(
    "call",
    [
        lambda seed: mb.lm.score(support.tiny_lm(), ["a b"], seed=seed),
        lambda seed: mb.lm.order_spread(support.tiny_lm(), ["a b"], seed=seed),
        lambda seed: mb.lm.random_twin(support.tiny_lm(), seed=seed),
        lambda seed: mb.lm.score_alike([support.tiny_lm()] * 2, ["a b"], seed=seed),
        lambda seed: representation_rank(support.tiny_lm(), [], seed=seed),
        lambda seed: pretraining.table_language(seed=seed),
        lambda seed: mb.models.ImportanceBank(lambda z: None, None, 1, seed=seed),
    ],
)
def test_what_is_no_seed_is_named(call, seed):
    with pytest.raises(ArgumentError, match=r"seed is .*: expected (an integer|at least 0)"):
        call(seed)


def test_numpys_integers_are_seeds_like_any_other():
    mine, numpys = (mb.lm.score(support.tiny_lm(), ["a b the cat !"], budget=20, seed=s) for s in (3, np.int64(3)))
    assert numpys.total.to_dict() == mine.total.to_dict()
    assert type(numpys.total.seed) is int


def test_tokens_unknown_to_the_tokenizer_are_said():
    with pytest.warns(MptBayesWarning, match=r"in text second \(1\): check the letters"):
        mb.lm.score(support.tiny_lm(), ["a b", "a §"], names=["first", "second"], budget=8)


def test_a_file_without_texts_is_named(tmp_path):
    (tmp_path / "e.txt").write_text("")
    with pytest.raises(DataError, match=r"e\.txt holds no texts"):
        mb.lm.read_texts(tmp_path / "e.txt")


def test_a_table_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys):
    options = ["lm", "score", "--model", "nowhere", "--text", "a", "--parquet", str(tmp_path / "no" / "t.parquet")]
    assert main(options) == 2
    assert "there is no folder" in capsys.readouterr().err
