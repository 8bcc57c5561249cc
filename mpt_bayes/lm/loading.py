"""Masked language models from the hub, from disk or from memory, with every check at the door."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mpt_bayes.checks import checked_seed
from mpt_bayes.errors import ArgumentError, ModelError, MptBayesWarning
from mpt_bayes.lm.adapter import MaskedLM


def load(
    name_or_path: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    allow_new_head: bool = False,
    trust_remote_code: bool = False,
    revision: str | None = None,
) -> MaskedLM:
    """A Hugging Face masked language model (BERT, DistilBERT, ALBERT, RoBERTa, ModernBERT, DeBERTa, ELECTRA generator,
    ESM-2, …) with its tokenizer.

    Args:
        name_or_path: a directory written by `save_pretrained`, or a name on the hub.
        device: where to put the parameters.
        dtype: of the forward pass: float32, bfloat16 or float16.
        allow_new_head: accept a checkpoint whose masked-LM head is newly initialised (its scores mean nothing).
        trust_remote_code: let the checkpoint run its own code; off unless asked.
        revision: branch, tag or commit on the hub.

    Raises:
        ArgumentError: a model object (see `adapt`).
        ModelError: no such folder, a causal model, a tokenizer without a mask token, a head not in the checkpoint.
    """
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    import mpt_bayes.lm.architectures  # noqa: F401 - tells the Auto classes of this library's own model types

    source = _source(name_or_path)
    options = {"trust_remote_code": trust_remote_code, "revision": revision}
    try:
        with quiet():
            config = AutoConfig.from_pretrained(source, **options)
            module, info = AutoModelForMaskedLM.from_pretrained(
                source, config=config, dtype=dtype, output_loading_info=True, **options
            )
            tokenizer = AutoTokenizer.from_pretrained(source, **options)
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise ModelError(f"{source} cannot be loaded: {str(error).splitlines()[0]}") from error
        raise ModelError(
            f"{source} is a {config.model_type} model, without a masked-LM head (causal or encoder-decoder): masked "
            "scores need a model trained to fill in masks"
        ) from error
    except OSError as error:
        here = _meant_as_path(name_or_path) or Path(source).is_dir()
        absent = "" if here else "there is no folder of that name, and as a name on the hub: "
        raise ModelError(f"{source} cannot be loaded: {absent}{str(error).splitlines()[0]}") from error
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if missing and not allow_new_head:
        raise ModelError(
            f"{source} lacks {len(missing)} parameters, newly initialised instead ({missing[0]}, …): a checkpoint "
            "without its masked-LM head scores nonsense; load one that has it, or pass allow_new_head=True"
        )
    return adapt(module.to(device), tokenizer, name=source)


def adapt(module: nn.Module, tokenizer: Any, *, name: str = "") -> MaskedLM:
    """A Hugging Face masked LM that is already in memory, with its tokenizer; checked like one that is loaded.

    Raises:
        ArgumentError: something that is no torch module, such as a pipeline.
        ModelError: no mask token, a causal model, a decoder, fewer predictions than the tokenizer has tokens.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(
            f"adapt takes a model and its tokenizer, not a {type(module).__name__}: a pipeline has both"
        )
    name = name or type(module).__name__
    if getattr(tokenizer, "mask_token_id", None) is None:
        raise ModelError(
            f"the tokenizer of {name} has no mask token: masked scores need one (a causal model's tokenizer has none)"
        )
    config = getattr(module, "config", None)
    if getattr(config, "is_decoder", False):
        raise ModelError(
            f"{name} is set up as a decoder (config.is_decoder): its hidden tokens see only what is before"
        )
    if _is_causal(module):
        raise ModelError(
            f"{name} is a {type(module).__name__}, a causal model: masked scores need a model trained to fill in masks"
        )
    embedded = _n_embedded(module)
    if embedded is not None and tokenizer.mask_token_id >= embedded:
        raise ModelError(
            f"{name} knows {embedded} tokens but its mask token has id {tokenizer.mask_token_id}: the "
            "tokenizer belongs to another model"
        )
    base = getattr(module, "base_model", None)
    offset = _position_offset(base)
    return MaskedLM(
        module=module.eval(),
        tokenizer=tokenizer,
        mask_token_id=int(tokenizer.mask_token_id),
        name=name,
        max_length=_usable_length(config, tokenizer, offset or 0),
        pad_token_id=_padding_id(module, tokenizer, tokenizer.mask_token_id),
        position_offset=offset,
        base=None if base is module else base,
    )


def masked_diffusion(
    module: nn.Module,
    *,
    mask_token_id: int,
    tokenizer: Any = None,
    shifted_logits: bool = False,
    max_length: int | None = None,
    name: str = "",
) -> MaskedLM:
    """A masked-diffusion language model (LLaDA, MDLM, Dream, …): any module from ids to logits, and its mask id.

    Args:
        module: called with input_ids and attention_mask; returns logits, bare or as `.logits`.
        mask_token_id: the id of a hidden token.
        tokenizer: optional; without one give token ids through `from_ids`.
        shifted_logits: the logits at position i - 1 predict token i.
        max_length: most tokens the module takes.

    Example:
        >>> import torch
        >>> class Uniform(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.zero = torch.nn.Parameter(torch.zeros(()))
        ...     def forward(self, input_ids, attention_mask=None):
        ...         return self.zero * torch.ones(*input_ids.shape, 8)
        >>> masked_diffusion(Uniform(), mask_token_id=7).vocabulary_size
        8
    """
    if mask_token_id < 0:
        raise ArgumentError(f"mask_token_id is {mask_token_id}: expected the id of the mask token")
    base = getattr(module, "base_model", None)
    return MaskedLM(
        module=module.eval(),
        tokenizer=tokenizer,
        mask_token_id=mask_token_id,
        name=name or type(module).__name__,
        max_length=max_length,
        shifted_logits=shifted_logits,
        pad_token_id=_padding_id(module, tokenizer, mask_token_id),
        base=None if base is module else base,
    )


def random_twin(model: MaskedLM, *, seed: int = 0) -> MaskedLM:
    """The same architecture with freshly initialised weights: what the scores look like before pre-training.

    Raises:
        ArgumentError: a seed that is no integer.
        ModelError: a module that is not a Hugging Face model, whose initialisation is not known.
    """
    config = getattr(model.module, "config", None)
    if config is None:
        raise ModelError(f"{model.name} has no configuration to initialise a twin from")
    with torch.random.fork_rng(devices=[]):
        # the initialiser draws from the global generator; its state is put back after
        torch.manual_seed(checked_seed(seed))
        module: Any = type(model.module)(copy.deepcopy(config)).to(device=model.device, dtype=model.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MptBayesWarning)  # already said for the model itself
        return MaskedLM(
            module=module.eval(),
            tokenizer=model.tokenizer,
            mask_token_id=model.mask_token_id,
            name=f"{model.name}, random weights",
            max_length=model.max_length,
            shifted_logits=model.shifted_logits,
            pad_token_id=model.pad_token_id,
            position_offset=model.position_offset,
            base=None if model.base is None else module.base_model,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars and reports: what matters in them is raised as an error."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def _source(name_or_path: str | Path) -> str:
    """A name on the hub, or a folder that is there."""
    if not isinstance(name_or_path, str | Path):
        raise ArgumentError(
            f"load takes a name or a folder, not a {type(name_or_path).__name__}: a model in memory goes through "
            "adapt(model, tokenizer)"
        )
    source = Path(name_or_path).expanduser()
    if _meant_as_path(name_or_path) and not source.is_dir():
        raise ModelError(f"there is no folder {str(name_or_path)!r}: a model is a folder written by save_pretrained")
    return str(source) if _meant_as_path(name_or_path) else str(name_or_path)


def _meant_as_path(name_or_path: str | Path) -> bool:
    return isinstance(name_or_path, Path) or name_or_path.startswith((".", "/", "~"))


def _is_causal(module: nn.Module) -> bool:
    """A class that transformers lists for causal models and not for masked ones, or one made from it."""
    from transformers.models.auto import modeling_auto as auto

    causal = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()) - set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values())
    return any(kind.__name__ in causal for kind in type(module).__mro__)


def _n_embedded(module: Any) -> int | None:
    """How many tokens the model's input embedding knows, where it says."""
    embedding = module.get_input_embeddings() if hasattr(module, "get_input_embeddings") else None
    return getattr(embedding, "num_embeddings", None)


def _padding_id(module: Any, tokenizer: Any, mask_token_id: int) -> int:
    """An id to fill short rows with: the declared one, else any that is not the mask token."""
    declared = [
        getattr(tokenizer, "pad_token_id", None),
        getattr(getattr(module, "config", None), "pad_token_id", None),
    ]
    usable = [int(i) for i in declared if isinstance(i, int) and i >= 0 and i != mask_token_id]
    return usable[0] if usable else int(mask_token_id == 0)


def _position_offset(base: Any) -> int | None:
    """RoBERTa's kind numbers positions from padding_idx + 1, and finds padding by comparing ids unless told."""
    embedding = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    padding = getattr(embedding, "padding_idx", None)
    return None if padding is None else int(padding) + 1


def _usable_length(config: Any, tokenizer: Any, offset: int) -> int | None:
    """The smaller of the model's and the tokenizer's limits; a tokenizer without one says 10^30."""
    positions = getattr(config, "max_position_embeddings", None)
    limits = [int(positions) - offset] if positions and positions > 0 else []
    own = getattr(tokenizer, "model_max_length", None)
    limits += [int(own)] if own and own < 10**9 else []
    return min(limits) if limits else None
