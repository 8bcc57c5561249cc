"""Masked language models: the expected order-agnostic log-likelihood, with error bars, at scale."""

from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.antibody import antibody, antibody_sequences
from mpt_bayes.lm.batches import BatchLimits
from mpt_bayes.lm.conditional import TextConditional
from mpt_bayes.lm.loading import adapt, load, masked_diffusion, random_twin
from mpt_bayes.lm.orders import OrderSpread, order_spread
from mpt_bayes.lm.perplexity import Perplexity
from mpt_bayes.lm.pseudo import Variant, pseudo_log_likelihood
from mpt_bayes.lm.readers import Texts, read_texts
from mpt_bayes.lm.results import CorpusScore, Skipped, TextScore
from mpt_bayes.lm.scoring import ORDER_AGNOSTIC, score, score_alike
from mpt_bayes.lm.text import EncodedText, encode, from_ids

__all__ = [
    "ORDER_AGNOSTIC",
    "BatchLimits",
    "CorpusScore",
    "EncodedText",
    "MaskedLM",
    "OrderSpread",
    "Perplexity",
    "Skipped",
    "TextConditional",
    "TextScore",
    "Texts",
    "Variant",
    "adapt",
    "antibody",
    "antibody_sequences",
    "encode",
    "from_ids",
    "load",
    "masked_diffusion",
    "order_spread",
    "pseudo_log_likelihood",
    "random_twin",
    "read_texts",
    "score",
    "score_alike",
]
