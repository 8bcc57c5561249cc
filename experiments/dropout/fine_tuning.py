"""Fine-tuning from one pre-trained encoder: embeddings corrected or not, tokens dropped at rates 0 to .3, paired.

    python -m experiments.dropout.fine_tuning         writes experiments/dropout/results/fine_tuning.json

In each seed every condition starts from the same weights, sees the same batches in the same order and has the same
classification head and internal dropout stream; only the condition differs.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.dropout.encoder import FOLDER, pretrained_encoder
from experiments.dropout.paragraphs import Task, package_task
from mpt_bayes.dropout import Corruption, DropToken, correct_embeddings
from mpt_bayes.lm import MaskedLM
from mpt_bayes.numerics.random import Stream

RESULTS = Path(__file__).parent / "results"
BASELINE = "baseline"


@dataclass(frozen=True)
class Condition:
    """What differs from the baseline."""

    corrected: bool = False
    drop_rate: float = 0.0


CONDITIONS = {
    BASELINE: Condition(),
    "corrected embeddings": Condition(corrected=True),
    **{f"DropToken {rate:g}": Condition(drop_rate=rate) for rate in (0.1, 0.15, 0.3)},
}


@dataclass(frozen=True)
class Batch:
    """Tokenized paragraphs."""

    input_ids: Tensor
    attention_mask: Tensor
    special_tokens_mask: Tensor
    labels: Tensor

    def rows(self, index: Tensor) -> Batch:
        """Some of the rows, cut to their longest."""
        length = int(self.attention_mask[index].sum(1).max())
        return Batch(
            *(part[index, :length] for part in (self.input_ids, self.attention_mask, self.special_tokens_mask)),
            self.labels[index],
        )


def tokenized(tokenizer: Any, pairs: list[tuple[str, int]], length: int) -> Batch:
    """All paragraphs of a split, cut at `length` tokens."""
    body = tokenizer(
        [text for text, _ in pairs],
        truncation=True,
        max_length=length,
        padding=True,
        return_special_tokens_mask=True,
        return_tensors="pt",
    )
    labels = torch.tensor([label for _, label in pairs])
    return Batch(body["input_ids"], body["attention_mask"], body["special_tokens_mask"], labels)


class Classifier(nn.Module):
    """An encoder with a linear layer on its first token's state."""

    def __init__(self, encoder: nn.Module, width: int, n_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, n_classes)

    def forward(self, batch: Batch) -> Tensor:
        states = self.encoder(
            batch.input_ids, attention_mask=batch.attention_mask, special_tokens_mask=batch.special_tokens_mask
        ).last_hidden_state
        return self.head(self.dropout(states[:, 0]))


def starting_encoder(model: MaskedLM, condition: Condition) -> nn.Module:
    """The pre-trained encoder, its embeddings corrected if so asked; a copy either way."""
    special = model.tokenizer.all_special_ids
    corruption = Corruption() if condition.corrected else Corruption(rate=0)
    corrected = correct_embeddings(
        model.module.base_model, model.mask_token_id, corruption=corruption, untouched_ids=special
    )
    encoder = corrected.model
    encoder.config.hidden_dropout_prob = encoder.config.attention_probs_dropout_prob = 0.1
    for part in encoder.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.1  # pre-trained without
    return encoder


def fine_tuned(
    model: MaskedLM, train: Batch, test: Batch, n_classes: int, condition: Condition, seed: int, epochs: int
) -> dict[str, float]:
    """Held-out accuracy and mean log-likelihood (nats) of one run."""
    torch.manual_seed(seed)
    encoder = starting_encoder(model, condition)
    classifier = Classifier(DropToken(encoder, condition.drop_rate, seed=seed), encoder.config.hidden_size, n_classes)
    optimizer = torch.optim.AdamW(classifier.parameters(), 1e-3, weight_decay=0.01)
    size, count = 16, len(train.labels)
    steps = epochs * math.ceil(count / size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps, pct_start=0.1)
    classifier.train()
    for epoch in range(epochs):
        order = torch.randperm(count, generator=Stream(seed).child("epoch", epoch).generator())
        for index in order.split(size):
            batch = train.rows(index)
            optimizer.zero_grad()
            nn.functional.cross_entropy(classifier(batch), batch.labels).backward()
            nn.utils.clip_grad_norm_(classifier.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    classifier.eval()
    with torch.no_grad():
        parts = torch.arange(len(test.labels)).split(100)
        log_prob = torch.cat([classifier(test.rows(index)).log_softmax(-1) for index in parts])
    return {
        "accuracy": float((log_prob.argmax(1) == test.labels).double().mean()),
        "log_likelihood": float(log_prob.gather(1, test.labels[:, None]).double().mean()),
    }


def paired_table(runs: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Each condition's mean, and its difference from the baseline seed by seed with the standard error of that."""
    rows = []
    for name, results in runs.items():
        row: dict[str, Any] = {"condition": name, "seeds": len(results)}
        for measure in ("accuracy", "log_likelihood"):
            values = np.array([r[measure] for r in results])
            paired = values - np.array([r[measure] for r in runs[BASELINE]])
            row[measure] = [float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))]
            row[f"{measure}_difference"] = [float(paired.mean()), float(paired.std(ddof=1) / math.sqrt(len(paired)))]
        rows.append(row)
    return rows


def one_seed(
    model: MaskedLM, task: Task, *, conditions: dict[str, Condition], seed: int, epochs: int, length: int
) -> dict[str, dict[str, float]]:
    """All conditions in one seed."""
    train, test = (tokenized(model.tokenizer, split, length) for split in (task.train, task.test))
    return {
        name: fine_tuned(model, train, test, len(task.classes), condition, seed, epochs)
        for name, condition in conditions.items()
    }


def summary(model: MaskedLM, task: Task, seeds: list[dict[str, dict[str, float]]], **settings: int) -> dict[str, Any]:
    """The record of an experiment, from its seeds."""
    runs = {name: [seed[name] for seed in seeds] for name in seeds[0]}
    return {
        "model_digest": model.digest,
        "task_digest": task.digest,
        "classes": task.classes,
        "train": len(task.train),
        "test": len(task.test),
        **settings,
        "table": paired_table(runs),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", type=Path, default=FOLDER)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/dropout_fine_tuning"))
    arguments = parser.parse_args()
    model, task = pretrained_encoder(arguments.encoder), package_task()
    settings = {"epochs": arguments.epochs, "length": 40}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for seed in arguments.seeds:
        path = arguments.folder / f"seed_{seed}.json"
        if not path.exists():  # seeds already there are not run again; several processes may share them out
            results = one_seed(model, task, conditions=CONDITIONS, seed=seed, **settings)
            path.write_text(json.dumps(results) + "\n")
    seeds = [json.loads(path.read_text()) for path in sorted(arguments.folder.glob("seed_*.json"))]
    record = summary(model, task, seeds, **settings)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "fine_tuning.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
