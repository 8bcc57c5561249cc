"""Tiny randomly initialised language models and tokenizers, built on the spot."""

import json
import multiprocessing
from importlib import resources

import jsonschema
import torch
import transformers as tr
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import mpt_bayes as mb
from mpt_bayes.cli import main

SERVER = multiprocessing.get_context("forkserver")
"""Processes forked from a server that has imported everything and started no thread: a fork of this process would
inherit locks of its thread pools, and hang."""
SERVER.set_forkserver_preload(["lm_support", "mpt_bayes.cli", "mpt_bayes.lm"])

SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
PIECES = [
    "[",
    "]",
    "mask",
    "pad",
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "un",
    "##happi",
    "##ness",
    "!",
    "a",
    "b",
    "##c",
    "d",
]
VOCABULARY = SPECIAL + PIECES
SIZE = len(VOCABULARY)
PAD, MASK = 1, 4
SENTENCES = ["the cat sat on the mat", "a unhappiness !", "the bc d", "cat"]

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
COMMON = {"vocab_size": SIZE, "pad_token_id": PAD, "mask_token_id": MASK, **SHAPE}
SHORT = {**COMMON, "max_position_embeddings": 20}

ARCHITECTURES = {
    "bert": lambda: tr.BertForMaskedLM(tr.BertConfig(**SHORT)),
    "distilbert": lambda: tr.DistilBertForMaskedLM(
        tr.DistilBertConfig(vocab_size=SIZE, dim=16, n_layers=2, n_heads=2, hidden_dim=32, pad_token_id=PAD)
    ),
    "albert": lambda: tr.AlbertForMaskedLM(tr.AlbertConfig(**SHORT, embedding_size=8)),
    "roberta": lambda: tr.RobertaForMaskedLM(tr.RobertaConfig(**SHORT)),
    "modernbert": lambda: tr.ModernBertForMaskedLM(
        tr.ModernBertConfig(**SHORT, cls_token_id=0, sep_token_id=2, bos_token_id=0, eos_token_id=2)
    ),
    "deberta": lambda: tr.DebertaForMaskedLM(tr.DebertaConfig(**SHORT, relative_attention=True, pos_att_type=["c2p"])),
    "deberta-v2": lambda: tr.DebertaV2ForMaskedLM(
        tr.DebertaV2Config(**SHORT, relative_attention=True, pos_att_type=["p2c"], legacy=False)
    ),
    "electra": lambda: tr.ElectraForMaskedLM(tr.ElectraConfig(**SHORT, embedding_size=8)),
    "esm": lambda: tr.EsmForMaskedLM(
        tr.EsmConfig(**SHORT, position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False)
    ),
}


def fast_tokenizer():
    """WordPiece with [CLS] … [SEP]."""
    return wordpiece(VOCABULARY)


def wordpiece(vocabulary):
    """A fast WordPiece tokenizer; ids are places in the vocabulary."""
    ids = {word: i for i, word in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **names)


def slow_tokenizer(folder):
    """ESM's tokenizer: pure Python, no word boundaries."""
    path = folder / "vocab.txt"
    path.write_text("\n".join(["<cls>", "<pad>", "<eos>", "<unk>", "<mask>", *"LAGVMKDE"]))
    return tr.EsmTokenizer(str(path))


def tiny_module(architecture="bert", seed=0, scale=6.0):
    """Random weights, larger than usual so that the conditionals differ visibly from uniform and from one another."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = ARCHITECTURES[architecture]().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(scale if "embedding" not in name else 2.0)
    return module


def tiny_lm(architecture="bert", seed=0):
    return mb.lm.adapt(tiny_module(architecture, seed), fast_tokenizer(), name=f"tiny {architecture}")


def reference_log_probs(module, text, hidden):
    """(P, D) by the module's own full forward pass, one mask at a time, with all its logits; 0 where visible."""
    result = torch.zeros(hidden.shape, dtype=torch.float64)
    for p, mask in enumerate(hidden):
        ids = text.ids.clone()
        ids[text.scored[mask]] = MASK
        with torch.no_grad():
            logits = module(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).logits[0]
        log_prob = logits.double().log_softmax(-1)[text.scored, text.ids[text.scored]]
        result[p, mask] = log_prob[mask]
    return result


def schema_of(command):
    """The JSON schema shipped for a command."""
    name = command.replace(" ", "_") + ".json"
    return json.loads((resources.files("mpt_bayes") / "schemas" / name).read_text(encoding="utf-8"))


def answered(arguments, capsys):
    """The JSON that a command prints, which obeys its schema."""
    assert main([*arguments, "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of(content["command"])).validate(content)
    return content
