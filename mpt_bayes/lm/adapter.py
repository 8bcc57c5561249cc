"""A masked language model as log-probabilities of hidden tokens, whatever its architecture."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from mpt_bayes.errors import ModelError, MptBayesWarning
from mpt_bayes.lm.linear import OneDnnLinear
from mpt_bayes.lm.text import EncodedText, encode

CACHED_ROWS: Final = 32
"""Rows of logits normalised at a time on a CPU: so few that they stay in its cache, which takes half the time."""


@final
@dataclass(eq=False)
class MaskedLM:
    """A torch module that predicts masked tokens, with what is needed to feed it.

    Built by `load`, `adapt`, `antibody` or `masked_diffusion`, which check everything first.

    Attributes:
        module: called as module(input_ids=(B, L), attention_mask=(B, L)); returns logits (B, L, V), bare or as the
            attribute `logits`.
        tokenizer: a Hugging Face tokenizer, or None when token ids are given.
        mask_token_id: the id written where a token is hidden.
        max_length: most tokens the model takes, special tokens included; None for no limit.
        shifted_logits: the logits at position i - 1 predict token i (masked-diffusion models made from causal ones);
            the first token is then predicted at its own position.
        base: the submodule whose states (B, L, H) the rest of the module maps to logits position by position; the
            vocabulary projection is then computed at hidden positions only. None: at every position.
        pad_token_id: fills short rows of a batch, under an attention mask of 0; never the mask token, which some models
            count.
        position_offset: position ids start here (RoBERTa's kind, which would otherwise find padding by comparing ids).
    """

    module: nn.Module
    tokenizer: Any
    mask_token_id: int
    name: str
    max_length: int | None = None
    shifted_logits: bool = False
    pad_token_id: int = 0
    position_offset: int | None = None
    base: nn.Module | None = field(default=None, repr=False)
    _digest: tuple[tuple[tuple[int, int], ...], str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        devices = sorted({str(p.device) for p in self.module.parameters()})
        if len(devices) != 1:
            raise ModelError(f"the model's parameters are on {', '.join(devices)}: move it to one device")
        if self.base is not None and not self._projects_by_position():
            self.base = None
            warnings.warn(
                f"{self.name}: the head does not act position by position on the base model's states, so the "
                "vocabulary projection is computed at every position: more memory, same numbers",
                MptBayesWarning,
                stacklevel=2,
            )

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the forward pass; log-softmax is float32 and sums are float64 whatever it is."""
        return next(self.module.parameters()).dtype

    @cached_property
    def vocabulary_size(self) -> int:
        """V, the number of logits at a position."""
        return int(self._probe_logits().shape[-1])

    @property
    def digest(self) -> str:
        """SHA-256 of every parameter and buffer and of how the model is fed: the model's name in the store.

        Taken anew whenever a parameter was written to, by training say.
        """
        state = tuple((value.data_ptr(), value._version) for value in self.module.state_dict().values())
        if self._digest is None or self._digest[0] != state:
            self._digest = (state, self._hashed())
        return self._digest[1]

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        fed = (self.mask_token_id, self.shifted_logits, self.position_offset, type(self.module).__name__)
        config: Any = getattr(self.module, "config", None)
        digest.update(repr((fed, config.to_json_string() if hasattr(config, "to_json_string") else "")).encode())
        for key, value in sorted(self.module.state_dict().items()):
            digest.update(f"{key}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def encode(self, text: str, *, prompt: str = "", row: int = 0) -> EncodedText:
        """Token ids and scored positions of one text, optionally after a prompt that stays visible.

        Raises:
            DataError: nothing to score; ModelError: no tokenizer, or an id outside the vocabulary.
        """
        if self.tokenizer is None:
            raise ModelError(f"{self.name} has no tokenizer: give token ids through mpt_bayes.lm.from_ids")
        return self.checked(encode(self.tokenizer, text, prompt=prompt, row=row), row)

    def checked(self, text: EncodedText, row: int = 0) -> EncodedText:
        """The text, or an error if one of its ids is outside the model's vocabulary."""
        largest = int(text.ids.max())
        if largest >= self.vocabulary_size or int(text.ids.min()) < 0:
            raise ModelError(
                f"row {row} holds token id {largest} but the model predicts {self.vocabulary_size} tokens: "
                "the tokenizer belongs to another model"
            )
        return text

    def log_probs(self, ids: Tensor, attention: Tensor | None, places: Tensor, targets: Tensor) -> Tensor:
        """(n,) float32 log-probabilities of `targets` (n,) at `places` (n, 2), (row, position) in ids (B, L).

        `ids` hold the mask token where hidden; `attention` (B, L) is None when no row is padded. Log-softmax in
        float32, over the vocabulary at those places only.
        """
        logits = self._logits_at(ids, attention, places[:, 0], places[:, 1])
        rows = CACHED_ROWS if logits.device.type == "cpu" else max(1, len(logits))
        parts = zip(logits.split(rows), targets.split(rows), strict=True)
        return torch.cat([_log_prob(part.float(), target) for part, target in parts])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode, no gradients, fast linear layers inside; every submodule's own mode is put back after."""
        training = [m for m in self.module.modules() if m.training]
        self.module.eval()
        try:
            with torch.inference_mode(), OneDnnLinear():
                yield
        finally:
            for m in training:
                m.training = True

    def compiled(self) -> MaskedLM:
        """The same model with its encoder compiled by torch.compile; worth its minutes on a GPU and long runs."""
        target = self.base if self.base is not None else self.module
        target.forward = torch.compile(target.forward, dynamic=True)
        return self

    def _logits_at(self, ids: Tensor, attention: Tensor | None, rows: Tensor, columns: Tensor) -> Tensor:
        """(n, V) logits that predict the tokens at (row, column)."""
        if self.shifted_logits:
            columns = (columns - 1).clamp_min(0)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": attention}
        if self.position_offset is not None:
            inputs["position_ids"] = torch.arange(ids.shape[1], device=ids.device).expand_as(ids) + self.position_offset
        if self.base is None:
            return _logits(self.module(**inputs))[rows, columns]
        hook = self.base.register_forward_hook(lambda module, args, output: _narrowed(output, rows, columns))
        try:
            return _logits(self.module(**inputs))[0]
        finally:
            hook.remove()

    def _probe(self) -> Tensor:
        """(1, 3) ids of a small input: a hidden token between two others."""
        return torch.tensor([[self.pad_token_id, self.mask_token_id, self.pad_token_id]], device=self.device)

    def _probe_logits(self) -> Tensor:
        with self.evaluating():
            return _logits(self.module(input_ids=self._probe()))

    def _projects_by_position(self) -> bool:
        """Whether the head, given the base model's states at some positions, gives the logits of those positions."""
        full = self._probe_logits()[0].float()
        with self.evaluating():
            columns = torch.tensor([2, 1], device=self.device)
            try:
                shifted, self.shifted_logits = self.shifted_logits, False
                offset, self.position_offset = self.position_offset, None
                narrow = self._logits_at(self._probe(), None, torch.zeros_like(columns), columns).float()
            except (RuntimeError, IndexError, AttributeError, TypeError):
                return False
            finally:
                self.shifted_logits, self.position_offset = shifted, offset
        tolerance = 100 * torch.finfo(self.dtype).eps * float(full.abs().max() + 1)
        return narrow.shape == full[columns].shape and bool((narrow - full[columns]).abs().max() <= tolerance)


def _log_prob(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)


def _logits(output: Any) -> Tensor:
    """(B, L, V) logits of a model output, whichever form it has."""
    if isinstance(output, Tensor):
        return output
    logits: Tensor = output.logits if hasattr(output, "logits") else output[0]
    return logits


def _narrowed(output: Any, rows: Tensor, columns: Tensor) -> Any:
    """The base model's output with its states (B, L, H) narrowed to (1, n, H) at the places asked for."""
    if isinstance(output, Tensor):
        return output[rows, columns][None]
    states = output[0][rows, columns][None]
    if isinstance(output, tuple):
        return (states, *output[1:])
    output.last_hidden_state = states
    return output
