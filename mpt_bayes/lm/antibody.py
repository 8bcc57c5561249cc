"""A real pre-trained protein BERT without any download from a hub: the one inside the package `antiberty`."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from mpt_bayes.errors import DependencyError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.loading import adapt

CHECKPOINT = "AntiBERTy_md_smooth"


def antibody(*, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> MaskedLM:
    """AntiBERTy (Ruffolo, Gray and Sulam 2021): 8 layers, 512 wide, 26 million parameters, one token an amino acid.

    The weights are those in the PyPI package antiberty 0.1.3, read as tensors only (`weights_only=True`); none of the
    package's code is run. Hidden tokens are the 20 amino-acid letters; text is the sequence without spaces.

    Raises:
        DependencyError: the package is not installed.
    """
    from transformers import BertConfig, BertForMaskedLM

    found = importlib.util.find_spec("antiberty")
    if found is None or found.origin is None:
        raise DependencyError("the antibody model needs the package antiberty: pip install 'mpt_bayes[antibody]'")
    folder = Path(found.origin).parent / "trained_models"
    checkpoint = folder / CHECKPOINT
    config = BertConfig.from_json_file(checkpoint / "config.json")
    weights = torch.load(checkpoint / "pytorch_model.bin", map_location="cpu", weights_only=True)
    module = BertForMaskedLM(config)
    missing = [key for key in module.state_dict() if key not in weights]
    if missing:
        raise DependencyError(f"the installed antiberty lacks {missing[0]}: install antiberty==0.1.3")
    module.load_state_dict({key: weights[key] for key in module.state_dict()})  # its other heads are left out
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    return adapt(module.to(device=device, dtype=dtype), character_tokenizer(vocabulary), name="antiberty 0.1.3")


def antibody_sequences() -> dict[str, str]:
    """The 14 variable domains of 7 approved antibodies, as published with their international nonproprietary names
    (WHO INN lists) and listed in Thera-SAbDab (Raybould et al. 2020).

    Example:
        >>> sequences = antibody_sequences()
        >>> len(sequences), sequences["trastuzumab|VH"][:10]
        (14, 'EVQLVESGGG')
    """
    text = resources.files("mpt_bayes").joinpath("data/antibodies.fasta").read_text(encoding="utf-8")
    records = [record.split("\n", 1) for record in text.split(">")[1:]]
    return {name.strip(): sequence.replace("\n", "") for name, sequence in records}


def character_tokenizer(vocabulary: list[str]) -> Any:
    """A fast tokenizer with one token a character, [CLS] and [SEP] around; `vocabulary` in the order of the ids."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
