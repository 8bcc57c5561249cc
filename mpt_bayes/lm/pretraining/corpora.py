"""Corpora: blocks of tokens to train on, blocks kept apart to be scored."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpt_bayes.errors import DataError
from mpt_bayes.lm.pretraining.config import CorpusConfig
from mpt_bayes.lm.pretraining.languages import BLOCK, Language, cyclic_language, table_language
from mpt_bayes.lm.pretraining.tokenizers import residue_tokenizer, train_tokenizer
from mpt_bayes.lm.readers import read_fasta, read_lines
from mpt_bayes.lm.text import EncodedText, from_ids
from mpt_bayes.numerics.random import Stream


@dataclass(frozen=True, eq=False)
class Corpus:
    """Blocks of equal length, for training and held out.

    Attributes:
        held_out: encoded blocks, never trained on.
        blocks: (n, L) int64 training blocks, special tokens included; empty for a language, which is drawn for ever.
        words: (n, D) int64 word of each token of a block; None where words mean nothing.
        scored: (D,) int64 positions of a block that may be hidden.
        vocabulary: number of ids, the mask token included.
        mask_token_id: the id that stands in hidden positions.
        tokenizer: None for a language.
        language: the exact distribution, where it is known.
    """

    held_out: list[EncodedText]
    blocks: Tensor
    words: Tensor | None
    scored: Tensor
    vocabulary: int
    mask_token_id: int
    tokenizer: Any
    language: Language | None
    seed: int

    @property
    def length(self) -> int:
        """L, special tokens included."""
        return len(self.held_out[0].ids)

    @cached_property
    def ordinary(self) -> Tensor:
        """Ids of ordinary tokens: what a hidden token may be replaced by at random."""
        special = {self.mask_token_id} if self.tokenizer is None else set(self.tokenizer.all_special_ids)
        return torch.tensor([i for i in range(self.vocabulary) if i not in special])

    def sequence(self, index: int) -> tuple[Tensor, Tensor | None]:
        """Training sequence number `index` of an endless supply, (L,), and the words of its scored tokens.

        A corpus is gone through in a new order each epoch, a language is drawn anew: a function of (seed, index).
        """
        if self.language is not None:
            block = _language_block(self.language, self.seed, index // BLOCK)
            return block[index % BLOCK], None
        epoch, place = divmod(index, len(self.blocks))
        chosen = int(_epoch_order(len(self.blocks), self.seed, epoch)[place])
        return self.blocks[chosen], None if self.words is None else self.words[chosen]


@lru_cache(maxsize=2)
def _language_block(language: Language, seed: int, block: int) -> Tensor:
    return language.sequences(Stream(seed).child("training"), block)


@lru_cache(maxsize=2)
def _epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(count, generator=Stream(seed).child("epoch", epoch).generator())


def load_corpus(config: CorpusConfig, *, seed: int = 0) -> Corpus:
    """The corpus of a configuration; `seed` orders its training blocks (the held-out ones depend on the corpus alone).

    Raises:
        DataError: no text, or too little of it for one training block beside the held-out ones.
    """
    if config.kind in ("hmm", "table"):
        return _language_corpus(config, seed)
    documents = list(_documents(config))
    if config.kind == "fasta":
        tokenizer = residue_tokenizer(max_length=config.length + 2)
    else:
        tokenizer = train_tokenizer(documents, config.vocabulary, max_length=config.length + 2)
    ids, words = _joined(tokenizer, documents)
    count = len(ids) // config.length
    if count <= config.held_out:
        raise DataError(
            f"the corpus gives {count} blocks of {config.length} tokens, not more than held_out={config.held_out}: "
            "use more text, shorter blocks, or hold out fewer"
        )
    body = ids[: count * config.length].reshape(count, config.length)
    ends = [torch.full((count, 1), token) for token in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
    blocks = torch.cat([ends[0], body, ends[1]], 1)
    word = words[: count * config.length].reshape(count, config.length)
    word = word - word[:, :1]
    scored = torch.arange(1, config.length + 1)
    # held-out blocks are spread evenly over the corpus, so that they are of its every part
    held = (torch.arange(config.held_out) * count) // config.held_out
    train = torch.ones(count, dtype=torch.bool)
    train[held] = False
    return Corpus(
        held_out=[
            EncodedText(blocks[i], scored, tuple(tokenizer.convert_ids_to_tokens(body[i].tolist())), word[i])
            for i in held.tolist()
        ],
        blocks=blocks[train],
        words=word[train] if config.kind != "fasta" else None,
        scored=scored,
        vocabulary=len(tokenizer),
        mask_token_id=int(tokenizer.mask_token_id),
        tokenizer=tokenizer,
        language=None,
        seed=seed,
    )


def _language_corpus(config: CorpusConfig, seed: int) -> Corpus:
    if config.kind == "hmm":
        language = cyclic_language(states=config.states, letters=config.letters, length=config.length)
    else:
        language = table_language(letters=config.letters, length=config.length, seed=config.seed)
    stream = Stream(config.seed).child("held out")
    blocks = range(-(-config.held_out // BLOCK))
    held_out = torch.cat([language.sequences(stream, block) for block in blocks])[: config.held_out]
    return Corpus(
        held_out=[from_ids(row) for row in held_out],
        blocks=torch.empty(0, language.length, dtype=torch.int64),
        words=None,
        scored=torch.arange(language.length),
        vocabulary=language.letters + 1,
        mask_token_id=language.mask_token_id,
        tokenizer=None,
        language=language,
        seed=seed,
    )


def _joined(tokenizer: Any, documents: list[str]) -> tuple[Tensor, Tensor]:
    """All documents end to end: ids, and a number for each word (no two words of the corpus share one)."""
    ids: list[int] = []
    words: list[int] = []
    first = 0
    for document in documents:
        body = tokenizer(document, add_special_tokens=False, split_special_tokens=True, verbose=False)
        ids += body["input_ids"]
        own = body.word_ids(0)
        words += [first + word for word in own]
        first += max(own, default=-1) + 1
    return torch.tensor(ids), torch.tensor(words)


def _documents(config: CorpusConfig) -> Iterator[str]:
    if config.kind == "pydoc":
        from pydoc_data.topics import topics

        yield from (topics[name] for name in sorted(topics))
    elif config.kind == "docstrings":
        yield from (text for _, text in library_docstrings())
    else:
        read = read_lines if config.kind == "text" else read_fasta
        try:
            texts = read(Path(config.path)).texts
        except OSError as error:
            raise DataError(f"corpus.path {config.path!r} cannot be read: {error.strerror}") from error
        yield from (text for text in texts if text.strip())


def library_docstrings() -> Iterator[tuple[Path, str]]:
    """(file below the library's root, docstring) for every docstring of Python's own library, in order of file name;
    nothing is imported or run."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if skipped & set(place.parts):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield place, text
