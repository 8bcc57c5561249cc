"""Masked language models to train from scratch: BERT, MAE-LM and 3ML, all saved and loaded by transformers."""

from mpt_bayes.lm.architectures.build import ARCHITECTURES, Architecture, build
from mpt_bayes.lm.architectures.flops import Flops, flops, measured_flops
from mpt_bayes.lm.architectures.mask_free import EncodedVisible, MaskFreeConfig, MaskFreeForMaskedLM, MaskFreeModel

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "EncodedVisible",
    "Flops",
    "MaskFreeConfig",
    "MaskFreeForMaskedLM",
    "MaskFreeModel",
    "build",
    "flops",
    "measured_flops",
]
