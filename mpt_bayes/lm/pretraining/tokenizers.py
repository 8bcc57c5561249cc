"""Tokenizers trained on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpt_bayes.checks import checked_count

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}

WORDS = "▁?(?:[^\\W_]+|[^\\w▁]|_)"
"""Letters and digits, or one punctuation mark, with the space before if there is one."""


def train_tokenizer(texts: Sequence[str], vocabulary: int, *, max_length: int) -> PreTrainedTokenizerFast:
    """A lower-casing byte-pair tokenizer trained on `texts`, ready for `save_pretrained`.

    As for BERT, words are parted by spaces, however many, and punctuation marks are words of their own.

    The same texts give the same tokenizer in every process, without which no run could be resumed or paired with
    another. (The WordPiece trainer of the tokenizers library breaks ties by the order of a hash table, and does not.)

    Args:
        texts: any number of documents.
        vocabulary: most tokens it may have, special tokens included.
        max_length: of a sequence, special tokens included.

    Raises:
        ArgumentError: a vocabulary too small for the special tokens.

    Example:
        >>> tokenizer = train_tokenizer(["the cat sat", "the mats"], 40, max_length=16)
        >>> tokenizer.tokenize("The   cats.")
        ['▁the', '▁cat', 's', '[UNK]']
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    checked_count(vocabulary, "vocabulary", len(SPECIAL) + 1)
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL["unk_token"]))
    one_space = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.BertNormalizer(lowercase=True), one_space, normalizers.Strip()]
    )
    words = pre_tokenizers.Split(Regex(WORDS), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), words])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=list(SPECIAL.values()), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return _wrapped(tokenizer, max_length)


def residue_tokenizer(*, max_length: int) -> PreTrainedTokenizerFast:
    """One token for each of the 20 amino acids and X; nothing to train.

    Example:
        >>> residue_tokenizer(max_length=16).tokenize("EVQ")
        ['E', 'V', 'Q']
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    vocabulary = {token: i for i, token in enumerate([*SPECIAL.values(), *"ACDEFGHIKLMNPQRSTVWXY"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return _wrapped(tokenizer, max_length)


def _wrapped(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    start, end = SPECIAL["cls_token"], SPECIAL["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (start, end)],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **SPECIAL)
