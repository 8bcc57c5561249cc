"""The measurements of docs/dropout.md on a reduced size: they run, they are paired, and their figures can be drawn."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

from experiments.dropout import averages, embedding_effects, figures, fine_tuning, removal
from experiments.dropout.paragraphs import Task, package_task
from mpt_bayes.lm import MaskedLM, adapt
from mpt_bayes.lm.pretraining.tokenizers import train_tokenizer


@pytest.fixture(scope="module")
def task() -> Task:
    return package_task(n_classes=3, per_class=24, train_per_class=16)


@pytest.fixture(scope="module")
def model(task: Task) -> MaskedLM:
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = train_tokenizer([text for text, _ in task.train], 300, max_length=34)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=34, **shape)
    return adapt(BertForMaskedLM(config), tokenizer)


def test_the_task_is_split_without_overlap(task: Task) -> None:
    assert len(task.classes) == len(set(task.classes)) == 3
    assert len(task.train) == 48
    assert len(task.test) == 24
    assert not {text for text, _ in task.train} & {text for text, _ in task.test}


def test_fine_tuning_is_paired_and_reproducible(model: MaskedLM, task: Task) -> None:
    conditions = {name: fine_tuning.CONDITIONS[name] for name in ("baseline", "corrected embeddings", "DropToken 0.3")}
    twins = {**conditions, "twin": fine_tuning.Condition()}
    settings = {"epochs": 1, "length": 32}
    seeds = [fine_tuning.one_seed(model, task, conditions=conditions, seed=seed, **settings) for seed in range(2)]
    again = fine_tuning.one_seed(model, task, conditions=twins, seed=1, **settings)
    assert again["baseline"] == seeds[1]["baseline"] == again["twin"]
    record = fine_tuning.summary(model, task, seeds, **settings)
    baseline, corrected, dropped = record["table"]
    assert baseline["log_likelihood_difference"] == [0.0, 0.0]
    assert corrected["log_likelihood_difference"][0] != 0
    assert dropped["log_likelihood_difference"][0] != 0
    plt.close(figures.fine_tuning(record))


def test_embedding_effects_are_paired_mask_by_mask(model: MaskedLM, task: Task) -> None:
    texts: list[Any] = [text for text, _ in task.test[:4]]
    record = embedding_effects.measure(model, [model.encode(text).slice(0, 12) for text in texts], budget=16)
    original, keep, follow = record["scores"]
    for row in (keep, follow):
        assert row["difference"] == pytest.approx(row["nats_per_token"] - original["nats_per_token"], abs=1e-9)
        assert 0 < row["standard_error"] < original["standard_error"]
    assert {row["place"] for row in record["ranks"]} == {"table", "layer 0", "layer 1"}
    plt.close(figures.embeddings({"antibody": record, "docstrings": record}))


def test_averages_and_removal() -> None:
    record = averages.measure(seeds=2, steps=5, depths=[1, 2], rates=[0.3])
    one, two = record["gaps"]
    assert one["relative_gap"][0] < 1e-12
    assert two["relative_gap"][0] > 1e-6
    rows = removal.measure()
    assert max(max(row["gaps"]) for row in rows if row["positions_kept"]) < 1e-5
    for figure in (figures.averaging(record), figures.penalty(record), figures.attention(record, rows)):
        plt.close(figure)
