"""The scoring engine: exact against enumeration, unbiased, aligned, named; user reports 6, 7, 12-16, 20."""

import json
import math

import lm_support as support
import numpy as np
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError, EstimandError, MptBayesWarning
from mpt_bayes.lm.batches import BatchLimits, Work, batched
from mpt_bayes.masks import (
    EnumeratedEnds,
    Exhaustive,
    FixedRate,
    Partitions,
    PerSize,
    RandomOrders,
    StratifiedSizes,
    UniformSize,
)
from mpt_bayes.numerics.combinatorics import all_subsets

SENTENCES = support.SENTENCES


def enumerated(lm, sentence, prompt=""):
    """S(1..D) and Shapley shares by the definition, every mask by the module's own full forward pass."""
    text = lm.encode(sentence, prompt=prompt)
    hidden = all_subsets(text.dim)[1:]
    log_probs = support.reference_log_probs(lm.module, text, hidden)
    sizes = hidden.sum(1)
    weight = torch.tensor([1 / math.comb(text.dim, int(m)) for m in sizes], dtype=torch.float64)
    curve = torch.zeros(text.dim, dtype=torch.float64).index_add(0, sizes - 1, weight * log_probs.sum(1) / sizes)
    return curve, (weight / sizes) @ log_probs


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "distilbert", "esm"])
def test_full_enumeration_equals_the_definition(architecture):
    lm = support.tiny_lm(architecture)
    result = mb.lm.score(lm, SENTENCES, design=Exhaustive())
    for sentence, text in zip(SENTENCES, result, strict=True):
        curve, shares = enumerated(lm, sentence)
        np.testing.assert_allclose(text.curve.scores, curve, atol=1e-5)
        np.testing.assert_allclose(text.shares, shares, atol=1e-5)
        assert text.total.value == pytest.approx(float(curve.sum()), abs=1e-5)
        assert text.standard_error == 0
    assert result.total.value == pytest.approx(sum(t.total.value for t in result), abs=1e-9)
    assert result.total.standard_error == 0
    assert result.total.data_standard_error > 0


@pytest.mark.parametrize(
    "design",
    [20, UniformSize(12), StratifiedSizes(12), PerSize(2), RandomOrders(2), Partitions(12), EnumeratedEnds(2)],
    ids=lambda d: type(d).__name__,
)
def test_every_design_is_unbiased_with_an_honest_standard_error(design):
    lm = support.tiny_lm(seed=3)
    exact = float(enumerated(lm, SENTENCES[0])[0].sum())
    how = {"budget": design} if isinstance(design, int) else {"design": design}
    results = [mb.lm.score(lm, [SENTENCES[0]], seed=seed, **how).total for seed in range(150)]
    values = np.array([r.value for r in results])
    z = (values.mean() - exact) / (values.std(ddof=1) / math.sqrt(len(values)))
    assert abs(z) < 4
    claimed = math.sqrt(np.mean([r.standard_error**2 for r in results]))
    assert 0.75 < claimed / values.std(ddof=1) < 1.33
    assert claimed < 0.1 * abs(exact), "a standard error so large would cover anything"


def test_a_budget_enumerates_what_it_can_and_samples_the_rest():
    lm = support.tiny_lm()
    result = mb.lm.score(lm, SENTENCES, budget=16)
    assert [t.pieces[0].n_evaluations for t in result] == [16, 16, 15, 1]
    assert [t.standard_error > 0 for t in result] == [True, True, False, False]
    assert result.total.n_evaluations == 16 + 16 + 15 + 1


def test_row_13_every_sampled_score_has_a_standard_error_and_a_seed_that_replays_it():
    lm = support.tiny_lm()
    first = mb.lm.score(lm, SENTENCES, budget=16, seed=5)
    assert first.total.standard_error > 0
    assert first.total.seed == 5
    again = mb.lm.score(lm, SENTENCES, budget=16, seed=first.total.seed)
    assert again.total.value == first.total.value
    other = mb.lm.score(lm, SENTENCES, budget=16, seed=6)
    assert other.total.value != first.total.value
    alone = mb.lm.score(lm, [SENTENCES[0]], budget=1)
    assert alone.total.standard_error is None
    assert "two independent draws" in alone.total.note


def test_row_2_numbers_do_not_depend_on_batches_order_or_company():
    lm = support.tiny_lm()
    whole = mb.lm.score(lm, SENTENCES, budget=32)
    for rows in (1, 7, 64):
        part = mb.lm.score(lm, SENTENCES, budget=32, batch=BatchLimits(4096, rows=rows))
        np.testing.assert_allclose(part.total.per_row, whole.total.per_row, atol=1e-5)
    backwards = mb.lm.score(lm, SENTENCES[::-1], budget=32)
    np.testing.assert_allclose(backwards.total.per_row[::-1], whole.total.per_row, atol=1e-5)
    single = mb.lm.score(lm, [SENTENCES[1]], budget=32)
    assert single.total.value == pytest.approx(whole[1].total.value, abs=1e-5)


def test_row_12_every_form_of_the_likelihood_has_its_name():
    lm = support.tiny_lm()
    text = mb.lm.score(lm, ["a unhappiness !"], budget=31)[0]
    form = text.perplexity
    assert form.sum_nats == text.total.value
    assert (form.n_tokens, form.n_words) == (5, 3)
    assert form.mean_nats_per_token == form.sum_nats / 5
    assert form.perplexity_per_token == pytest.approx(math.exp(-form.sum_nats / 5))
    assert form.perplexity_per_word == pytest.approx(math.exp(-form.sum_nats / 3))
    slow = mb.lm.masked_diffusion(support.tiny_module(), mask_token_id=support.MASK)
    assert mb.lm.score(slow, [mb.lm.from_ids([5, 6])]).perplexity.perplexity_per_word is None


def test_row_15_models_see_the_same_masks_and_their_difference_is_paired():
    one = support.tiny_lm(seed=0)
    other = support.tiny_lm(seed=0)
    with torch.no_grad():
        other.module.cls.predictions.bias[7] += 0.3  # mostly the same model
    a = mb.lm.score(one, SENTENCES[:2] + SENTENCES[:1], budget=20)
    b = mb.lm.score(other, SENTENCES[:2] + SENTENCES[:1], budget=20)
    assert torch.equal(a[0].pieces[0].sampling.sizes, b[0].pieces[0].sampling.sizes)
    difference = a.minus(b)
    apart = math.hypot(a.total.standard_error, b.total.standard_error)
    assert difference.standard_error < 0.5 * apart
    assert difference.value == pytest.approx(a.total.value - b.total.value)
    exact = [enumerated(lm, s)[0].sum() for lm in (one, other) for s in (SENTENCES[0], SENTENCES[1], SENTENCES[0])]
    truth = float(sum(exact[:3]) - sum(exact[3:]))
    assert abs(difference.value - truth) < 5 * difference.standard_error
    with pytest.raises(ArgumentError, match="do not share"):
        a.minus(mb.lm.score(other, SENTENCES[:2] + SENTENCES[:1], budget=20, seed=1))
    with pytest.raises(ArgumentError, match="do not share"):
        a.minus(mb.lm.score(other, SENTENCES[:3], budget=20))


def test_row_16_sizes_vary_within_a_batch():
    lm = support.tiny_lm()
    text = lm.encode(SENTENCES[0])
    hidden = StratifiedSizes(64).draw(text.dim, mb.lm.scoring.Stream(0)).hidden
    (batch,) = batched([Work(text, hidden, hidden)], BatchLimits(4096), lm.vocabulary_size)
    sizes = {int(hidden[mask].sum()) for _, mask in batch.units}
    assert sizes == {1, 2, 3, 4, 5, 6}


def test_row_20_the_score_is_named_for_what_it_is():
    lm = support.tiny_lm()
    assert mb.lm.score(lm, ["cat"]).total.estimand == "expected order-agnostic log-likelihood"
    given = mb.lm.score(lm, ["cat"], prompts=["the"])
    assert given.total.estimand == "expected order-agnostic log-likelihood given the prompt"
    assert not hasattr(lm, "log_marginal_likelihood")
    bound = mb.lm.TextConditional(lm, lm.encode("cat"))
    with pytest.raises(ArgumentError, match="no log marginal likelihood"):
        mb.compare(bound, bound.x)


def test_the_prompt_is_visible_and_never_scored():
    lm = support.tiny_lm()
    given = mb.lm.score(lm, ["sat on a mat"], prompts=["the cat"], design=Exhaustive())
    curve, shares = enumerated(lm, "sat on a mat", prompt="the cat")
    np.testing.assert_allclose(given[0].curve.scores, curve, atol=1e-5)
    np.testing.assert_allclose(given[0].shares, shares, atol=1e-5)
    assert given[0].tokens == ("sat", "on", "a", "mat")
    alone = mb.lm.score(lm, ["sat on a mat"], design=Exhaustive())
    assert abs(alone.total.value - given.total.value) > 1e-3


def test_masked_diffusion_scores_a_continuation_given_its_prompt():
    module = support.tiny_module(seed=2)
    lm = mb.lm.masked_diffusion(module, mask_token_id=support.MASK)
    text = mb.lm.from_ids([5, 6, 7, 8], n_prompt=2)
    result = mb.lm.score(lm, [text], design=Exhaustive())
    expected = 0.0
    for hidden, weight in (([2], 0.5), ([3], 0.5), ([2, 3], 0.5)):  # 1 / C(2, m), over m tokens
        ids = text.ids.clone()
        ids[hidden] = support.MASK
        with torch.no_grad():
            log_prob = module(input_ids=ids[None]).logits[0].log_softmax(-1)
        expected += weight * sum(float(log_prob[j, text.ids[j]]) for j in hidden)
    assert result.total.value == pytest.approx(expected, abs=1e-5)


def test_row_6_lists_keep_their_places_and_windows_add_up():
    lm = support.tiny_lm()
    long = "the cat sat on the mat " * 6
    with pytest.raises(DataError, match=r"row 1 has 38 tokens"):
        mb.lm.score(lm, ["cat", long])
    windows = mb.lm.score(lm, ["cat", long, "cat"], long_text="windows", budget=16)
    assert len(windows) == 3
    assert len(windows[1].tokens) == 36
    assert windows[1].curve is None
    assert "2 windows" in windows[1].total.note
    halves = [mb.lm.score(lm, ["the cat sat on the mat " * 3], budget=16) for _ in range(2)]
    assert windows[1].total.value == pytest.approx(sum(h.total.value for h in halves), abs=1e-5)
    assert windows[1].standard_error == pytest.approx(2 * halves[0].total.standard_error, rel=1e-4), "one draw, twice"
    short = mb.lm.score(lm, [long], long_text="truncate", budget=16)
    assert len(short[0].tokens) == 18
    assert "last 18 tokens are not scored" in short[0].total.note


def test_row_7_empty_texts_are_an_error_or_keep_their_place_with_a_reason():
    lm = support.tiny_lm()
    with pytest.raises(DataError, match="row 1 has no tokens"):
        mb.lm.score(lm, ["cat", ""])
    result = mb.lm.score(lm, ["cat", " ", "the cat"], empty="skip")
    assert len(result) == 3
    assert isinstance(result[1], mb.lm.Skipped)
    assert result[1].reason == "the text is empty"
    assert [text.row for text in result.texts] == [0, 2]
    frame = result.to_dataframe()
    assert frame.reason.tolist() == ["", "the text is empty", ""]
    with pytest.raises(DataError, match="none of the 2 texts"):
        mb.lm.score(lm, ["", " "], empty="skip")


def test_a_text_of_unknown_tokens_alone_is_refused():
    lm = support.tiny_lm()
    with pytest.raises(DataError, match="row 1: none of its 2 tokens is known"):
        mb.lm.score(lm, ["the cat", "QUIX QUUX"], budget=8)


def test_repeated_texts_are_scored_once_and_their_errors_add():
    lm = support.tiny_lm()
    once = mb.lm.score(lm, SENTENCES[:1], budget=20)
    thrice = mb.lm.score(lm, SENTENCES[:1] * 3, budget=20)
    assert thrice.total.n_evaluations == once.total.n_evaluations
    assert thrice.total.value == pytest.approx(3 * once.total.value)
    assert thrice.total.standard_error == pytest.approx(3 * once.total.standard_error)


def test_shares_sum_to_the_total_and_have_honest_errors():
    lm = support.tiny_lm(seed=3)
    _, exact = enumerated(lm, SENTENCES[0])
    results = [mb.lm.score(lm, [SENTENCES[0]], budget=24, seed=s)[0] for s in range(100)]
    shares = np.array([r.shares for r in results])
    np.testing.assert_allclose(shares.sum(1), [r.total.value for r in results], rtol=1e-12)
    spread = shares.std(0, ddof=1)
    assert np.all(np.abs(shares.mean(0) - exact.numpy()) < 4.5 * spread / 10)
    claimed = np.sqrt(np.mean([r.share_standard_errors**2 for r in results], axis=0))
    assert np.all((claimed / spread > 0.7) & (claimed / spread < 1.4))


def test_few_passes_are_warned_of_once_and_noted_where_they_were_too_few():
    lm, other = support.tiny_lm(), support.tiny_lm(seed=1)
    with pytest.warns(MptBayesWarning, match=r"budget is 15: .* pass a budget of 16 or more") as warned:
        one, two = mb.lm.score_alike([lm, other], ["the cat sat on the mat", "a b", "a cat on the mat"], budget=15)
    assert len(warned) == 1
    for estimate in (one.total, one[0].total, one[2].total, one.minus(two)):
        assert "15 passes a text, fewer than 16" in estimate.note
        assert "fewer" in estimate.to_dict()["note"]
    assert one[1].total.note == "", "both of its tokens' three masks fit: exact"
    assert mb.lm.score(lm, ["the cat sat on the mat"], budget=16).total.note == ""
    assert mb.lm.score(lm, ["a b"], budget=3).total.note == ""


def test_a_target_standard_error_is_about_met_without_the_pilot_in_the_estimate():
    lm = support.tiny_lm(seed=3)
    texts = [
        "the cat sat on the mat a b d the cat on a b !",
        "a b the cat sat on a mat ! d b a the mat the",
        "un the bc mat sat cat a d b on the mat a cat",
    ]
    result = mb.lm.score(lm, texts, target_standard_error=0.05)
    assert 0.025 < result.total.standard_error < 0.1
    assert result.total.design == "passes for a standard error of 0.05"
    coarse = mb.lm.score(lm, texts, target_standard_error=0.2)
    assert coarse.total.n_evaluations < result.total.n_evaluations
    with pytest.raises(ArgumentError, match="positive"):
        mb.lm.score(lm, texts, target_standard_error=0.0)


def test_results_are_json_without_nan_and_frames():
    lm = support.tiny_lm()
    result = mb.lm.score(lm, [*SENTENCES, ""], names=list("abcde"), budget=16, empty="skip")
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert document["total"]["estimand"] == mb.lm.ORDER_AGNOSTIC
    assert document["skipped"] == [{"row": 4, "name": "e", "reason": "the text is empty"}]
    assert document["texts"][0]["tokens"][1]["token"] == "cat"
    assert result.to_dataframe().name.tolist() == list("abcde")
    assert "4 texts, 1 skipped" in repr(result)


def test_the_rate_curve_averages_texts_of_different_lengths():
    lm = support.tiny_lm()
    frame = mb.lm.score(lm, SENTENCES, design=Exhaustive()).rate_curve(2)
    by_hand = []
    for sentence in SENTENCES:
        curve = enumerated(lm, sentence)[0].numpy()
        rates = np.arange(1, len(curve) + 1) / len(curve)
        by_hand.append([curve[rates <= 0.5].mean() if (rates <= 0.5).any() else np.nan, curve[rates > 0.5].mean()])
    np.testing.assert_allclose(frame.score, np.nanmean(by_hand, 0), atol=1e-5)
    assert frame.standard_error.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"budget": 4, "design": PerSize(2)}, ArgumentError, "give one"),
        ({"design": 64}, ArgumentError, "design is 64: expected a design of mpt_bayes.masks"),
        ({"design": FixedRate(0.15, 4)}, EstimandError, "visits every mask"),
        ({"budget": 0}, ArgumentError, "budget is 0"),
        ({"prompts": ["a"]}, ArgumentError, "prompts has 1 entries for 2 texts"),
        ({"names": ["a"]}, ArgumentError, "names has 1 entries for 2 texts"),
        ({"empty": "drop"}, ArgumentError, "empty is 'drop'"),
    ],
)
def test_arguments_are_checked(options, error, words):
    with pytest.raises(error, match=words):
        mb.lm.score(support.tiny_lm(), ["a", "b"], **options)


def test_a_bare_string_is_not_a_list_of_letters():
    with pytest.raises(ArgumentError, match="pass \\[text\\]"):
        mb.lm.score(support.tiny_lm(), "the cat")


def test_a_score_that_is_not_finite_names_the_text():
    lm = support.tiny_lm()
    with torch.no_grad():
        lm.module.cls.predictions.bias[7] = float("nan")
    with pytest.raises(DataError, match="'the cat …' is not finite"):
        mb.lm.score(lm, ["the cat"])


def test_a_dictionary_of_texts_is_refused_and_not_its_keys_scored():
    lm = support.tiny_lm("bert")
    with pytest.raises(ArgumentError, match="texts is a dict: pass its values"):
        mb.lm.score(lm, {"a name": SENTENCES[0]})
    with pytest.raises(DataError, match="row 1 is a int"):
        mb.lm.score(lm, [SENTENCES[0], 3])
