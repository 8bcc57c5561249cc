"""From text to token ids: which positions are text, which are template, and where words begin.

Positions come from the tokenizer's special-token mask, never from comparing ids, and text is never rebuilt from ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError, DataError

LongText = Literal["error", "truncate", "windows"]


@dataclass(frozen=True, eq=False)
class EncodedText:
    """Token ids of one text, with the positions that are scored.

    Attributes:
        ids: (L,) int64, special tokens and prompt included; on the CPU.
        scored: (D,) int64, positions of the text's own tokens, ascending. Everything else is visible context, never
            hidden and never scored.
        tokens: the D scored tokens as the tokenizer writes them.
        words: (D,) int64, which word each scored token belongs to; None where the tokenizer does not say.
        n_unknown: scored tokens that the tokenizer read as unknown.
    """

    ids: Tensor
    scored: Tensor
    tokens: tuple[str, ...]
    words: Tensor | None
    n_unknown: int = 0

    @property
    def dim(self) -> int:
        """D, the number of scored tokens."""
        return len(self.scored)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the ids and of which are scored: the text's name in random streams and in the store."""
        parts = (self.ids.numpy().tobytes(), b"|", self.scored.numpy().tobytes())
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def slice(self, start: int, stop: int) -> EncodedText:
        """Scored tokens start..stop-1 alone, within the same prompt and special tokens."""
        keep = torch.ones(len(self.ids), dtype=torch.bool)
        keep[self.scored] = False
        keep[self.scored[start:stop]] = True
        new_position = keep.cumsum(0) - 1
        return replace(
            self,
            ids=self.ids[keep],
            scored=new_position[self.scored[start:stop]],
            tokens=self.tokens[start:stop],
            words=None if self.words is None else self.words[start:stop],
        )

    def with_tokens(self, tokens: Tensor) -> EncodedText:
        """The same frame around other scored tokens (D,)."""
        ids = self.ids.clone()
        ids[self.scored] = tokens
        return replace(self, ids=ids)

    def require_words(self) -> Tensor:
        """(D,) word indices, or an error that says why there are none."""
        if self.words is None:
            raise ArgumentError(
                "word boundaries are needed but this slow tokenizer does not give them: use a fast tokenizer, "
                "or the 'original' variant, which hides one token at a time"
            )
        return self.words


def encode(tokenizer: Any, text: str, *, prompt: str = "", row: int = 0) -> EncodedText:
    """One text, optionally after a prompt that stays visible.

    A literal special token typed in the text is text: fast tokenizers split it into ordinary pieces; slow ones
    cannot, and refuse it.

    Raises:
        DataError: nothing to score, or a literal special token given to a slow tokenizer; the row is named.
    """
    body, special = _tokenized(tokenizer, text, row)
    inner = [i for i, mark in enumerate(special) if not mark]
    if not inner:
        raise DataError(f"row {row} has no tokens to score: its text is {text[:40]!r}")
    words = body.word_ids(0) if getattr(tokenizer, "is_fast", False) else None
    ids = list(body["input_ids"])
    head, tail = ids[: inner[0]], ids[inner[-1] + 1 :]
    context: list[int] = []
    if prompt:
        before, marks = _tokenized(tokenizer, prompt, row)
        context = [i for i, mark in zip(before["input_ids"], marks, strict=True) if not mark]
    own = [ids[i] for i in inner]
    start = len(head) + len(context)
    unknown = tokenizer.unk_token_id
    return EncodedText(
        ids=torch.tensor(head + context + own + tail),
        scored=torch.arange(start, start + len(own)),
        tokens=tuple(tokenizer.convert_ids_to_tokens(own)),
        words=None if words is None else torch.tensor([words[i] for i in inner]),
        n_unknown=0 if unknown is None else own.count(unknown),
    )


def has_tokens(tokenizer: Any, text: str) -> bool:
    """Whether anything is left of the text to score: control characters alone leave nothing."""
    ids = tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    return len(ids) > 0


def from_ids(ids: Sequence[int] | Tensor, *, n_prompt: int = 0) -> EncodedText:
    """Token ids as they are, for models without a tokenizer; the first `n_prompt` stay visible.

    Example:
        >>> from_ids([5, 6, 7], n_prompt=1).scored.tolist()
        [1, 2]
    """
    tokens = torch.as_tensor(ids, dtype=torch.int64)
    if tokens.ndim != 1 or not 0 <= n_prompt < len(tokens):
        raise DataError(
            f"ids has shape {tuple(tokens.shape)} with {n_prompt} prompt tokens: expected (L,) with at least one token "
            "after the prompt"
        )
    scored = torch.arange(n_prompt, len(tokens))
    return EncodedText(tokens, scored, tuple(str(int(i)) for i in tokens[n_prompt:]), words=None)


def fitted(text: EncodedText, max_length: int | None, policy: LongText, row: int) -> list[EncodedText]:
    """The text as pieces that fit the model's window.

    "error" refuses a text that is too long; "truncate" keeps its first tokens; "windows" cuts it into consecutive
    windows of nearly equal length, each scored on its own with the prompt and special tokens around it.

    Raises:
        DataError: too long under "error", or a prompt that leaves no room; the row is named.
    """
    if policy not in ("error", "truncate", "windows"):
        raise ArgumentError(f"long_text is {policy!r}: expected 'error', 'truncate' or 'windows'")
    if max_length is None or len(text.ids) <= max_length:
        return [text]
    room = max_length - (len(text.ids) - text.dim)
    if room < 1:
        raise DataError(f"row {row}: the prompt alone fills the model's window of {max_length} tokens: shorten it")
    if policy == "error":
        raise DataError(
            f"row {row} has {len(text.ids)} tokens but the model takes {max_length}: "
            "pass long_text='truncate' or long_text='windows', or shorten the text"
        )
    if policy == "truncate":
        return [text.slice(0, room)]
    n_windows = -(-text.dim // room)
    edges = [text.dim * k // n_windows for k in range(n_windows + 1)]
    return [text.slice(start, stop) for start, stop in pairwise(edges)]


def _tokenized(tokenizer: Any, text: str, row: int) -> tuple[Any, list[int]]:
    """The tokenizer's output and its special-token mask (1 = added by the template)."""
    fast = getattr(tokenizer, "is_fast", False)
    options = {"split_special_tokens": True} if fast else {}
    body = tokenizer(text, return_special_tokens_mask=True, truncation=False, verbose=False, **options)
    special = list(body["special_tokens_mask"])
    if not fast:
        literal = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        for i, mark in zip(body["input_ids"], special, strict=True):
            if not mark and i in literal:
                raise DataError(
                    f"row {row} holds the special token {tokenizer.convert_ids_to_tokens(i)!r} as literal text, which "
                    "this slow tokenizer cannot read as text: remove it, or use a fast tokenizer"
                )
    return body, special
