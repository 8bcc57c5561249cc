"""Pseudo-log-likelihoods and whole orders: user reports 4, 5, 18, 20."""

import json
from pathlib import Path

import lm_support as support
import numpy as np
import pytest
import torch
import transformers as tr

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError
from mpt_bayes.masks import Exhaustive

FIXTURE = json.loads((Path(__file__).parent / "data" / "minicons_pll.json").read_text())


def log_prob_of(lm, text, hidden, token):
    mask = torch.zeros(1, text.dim, dtype=torch.bool)
    mask[0, hidden] = True
    return float(support.reference_log_probs(lm.module, text, mask)[0, token])


def test_row_5_words_of_several_tokens_are_hidden_as_the_variant_says():
    lm = support.tiny_lm()
    text = lm.encode("a unhappiness !")  # a | un ##happi ##ness | !
    expected = {
        "original": [[0], [1], [2], [3], [4]],
        "whole-word": [[0], [1, 2, 3], [1, 2, 3], [1, 2, 3], [4]],
        "within-word": [[0], [1, 2, 3], [2, 3], [3], [4]],
    }
    for variant, hidden in expected.items():
        result = mb.lm.pseudo_log_likelihood(lm, ["a unhappiness !"], variant=variant)[0]
        by_hand = [log_prob_of(lm, text, h, j) for j, h in enumerate(hidden)]
        np.testing.assert_allclose(result.shares, by_hand, atol=1e-5)
        assert result.total.value == pytest.approx(sum(by_hand), abs=1e-5)
        assert result.total.estimand == f"pseudo-log-likelihood ({variant})"
        assert result.standard_error == 0
        assert result.curve is None
    assert result.pieces[0].n_evaluations == 5


def test_row_18_variants_by_word_refuse_tokenizers_without_word_boundaries(tmp_path):
    tokenizer = support.slow_tokenizer(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = tr.EsmForMaskedLM(tr.EsmConfig(vocab_size=13, pad_token_id=1, mask_token_id=4, **support.SHAPE))
    lm = mb.lm.adapt(module, tokenizer)
    assert mb.lm.pseudo_log_likelihood(lm, ["MKLA"]).perplexity.perplexity_per_word is None
    for variant in ("whole-word", "within-word"):
        with pytest.raises(ArgumentError, match="slow tokenizer"):
            mb.lm.pseudo_log_likelihood(lm, ["MKLA"], variant=variant)


def test_row_4_and_20_the_pseudo_log_likelihood_is_the_near_end_of_the_curve_and_says_so():
    lm = support.tiny_lm()
    pll = mb.lm.pseudo_log_likelihood(lm, support.SENTENCES)
    score = mb.lm.score(lm, support.SENTENCES, design=Exhaustive())
    for one, whole in zip(pll, score, strict=True):
        assert one.total.value == pytest.approx(len(one.tokens) * whole.curve.scores[0], abs=1e-5)
    assert len(pll.texts[0].shares) == len(support.SENTENCES[0].split()), "no special token is scored"
    with pytest.raises(mb.errors.EstimandError):
        _ = pll.total - score.total
    with pytest.raises(ArgumentError, match="variant is 'unmasked'"):
        mb.lm.pseudo_log_likelihood(lm, ["cat"], variant="unmasked")


def minicons_lm():
    """The model of the fixture: weights from a recipe that needs no file."""
    recipe = FIXTURE["recipe"]
    module = tr.BertForMaskedLM(tr.BertConfig(**recipe["config"])).eval()
    generator = torch.Generator().manual_seed(recipe["seed"])
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            values = torch.randn(parameter.shape, generator=generator) * recipe["scale"]
            parameter.copy_(values + 1 if "LayerNorm.weight" in name else values)
    return mb.lm.adapt(module, support.wordpiece(recipe["vocabulary"]))


@pytest.mark.parametrize(("variant", "metric"), [("original", "original"), ("within-word", "within_word_l2r")])
def test_pseudo_log_likelihoods_equal_minicons(variant, metric):
    lm = minicons_lm()
    for sentence, expected in zip(FIXTURE["sentences"], FIXTURE[metric], strict=True):
        result = mb.lm.pseudo_log_likelihood(lm, [sentence], variant=variant)[0]
        assert list(result.tokens) == [token for token, _ in expected]
        np.testing.assert_allclose(result.shares, [value for _, value in expected], atol=1e-4)
    assert np.abs(np.diff(result.shares)).max() > 0.1


def test_orders_estimate_the_score_bound_the_mixture_and_measure_incoherence():
    lm = support.tiny_lm(seed=3)
    exact = mb.lm.score(lm, ["the cat sat"], design=Exhaustive())[0].total.value
    (spread,) = mb.lm.order_spread(lm, ["the cat sat"], n_orders=200, seed=1)
    assert abs(spread.mean - exact) < 4 * spread.standard_error
    assert spread.spread > 1e-3, "random conditionals come from no joint"
    assert spread.mean < spread.order_mixture < spread.order_log_probs.max()
    text = lm.encode("the cat sat")
    forwards = log_prob_of(lm, text, [0, 1, 2], 0) + log_prob_of(lm, text, [1, 2], 1) + log_prob_of(lm, text, [2], 2)
    assert np.abs(spread.order_log_probs - forwards).min() < 1e-5, "200 orders of 3 tokens include left to right"
    assert len(np.unique(spread.order_log_probs.round(5))) == 6
    assert spread.to_dict()["order_mixture_lower_bound"] == spread.order_mixture
    assert spread.n_evaluations == 600


class Independent(torch.nn.Module):
    """Conditionals of a coherent joint: independent tokens."""

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.linspace(-1, 1, support.SIZE))

    def forward(self, input_ids, attention_mask=None):
        return self.logits.expand(*input_ids.shape, -1)


def test_a_coherent_model_has_no_order_spread_and_its_score_is_its_log_likelihood():
    module = Independent()
    lm = mb.lm.masked_diffusion(module, mask_token_id=support.MASK)
    text = mb.lm.from_ids([5, 9, 21, 5])
    log_p = float(module.logits.detach().log_softmax(0)[text.ids].sum())
    (spread,) = mb.lm.order_spread(lm, [text], n_orders=4)
    assert spread.spread < 1e-6
    assert spread.mean == pytest.approx(log_p, abs=1e-5)
    assert spread.order_mixture == pytest.approx(log_p, abs=1e-5)
    assert mb.lm.score(lm, [text], design=Exhaustive()).total.value == pytest.approx(log_p, abs=1e-5)
    with pytest.raises(ArgumentError, match="n_orders is 1"):
        mb.lm.order_spread(lm, [text], n_orders=1)
