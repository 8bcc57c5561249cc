"""The Hugging Face Trainer with masked losses and an ear for what it computes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from mpt_bayes.errors import DivergedError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.architectures import flops
from mpt_bayes.lm.loading import quiet
from mpt_bayes.lm.pretraining.config import PretrainConfig, TrainingConfig, Weighting
from mpt_bayes.lm.pretraining.evaluation import Evaluator
from mpt_bayes.lm.pretraining.examples import TrainingExamples, collate
from mpt_bayes.lm.pretraining.loss import hidden_log_probs, masked_loss, row_means
from mpt_bayes.lm.pretraining.records import RunFolder, process
from mpt_bayes.progress import report

RATE_BINS = 10


def train(
    config: PretrainConfig,
    model: MaskedLM,
    examples: TrainingExamples,
    evaluator: Evaluator,
    run: RunFolder,
    start: int,
) -> None:
    """Train `model` in place from step `start`; metrics, checkpoints and the trained model go to the run's folder."""
    watch = Watch(run, config, model, evaluator, start)
    trainer = MaskedTrainer(
        model,
        config.masks.weighting,
        watch.seen,
        model=model.module,
        args=_arguments(config.training, run.path, config.seed),
        train_dataset=examples,
        data_collator=collate,
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    with quiet():
        trainer.train(resume_from_checkpoint=str(run.checkpoint(start)) if start else None)
        model.module = watch.module.eval()
        if run.writes:
            watch.module.save_pretrained(run.model)
    if run.writes and model.tokenizer is not None:
        model.tokenizer.save_pretrained(run.model)


class MaskedTrainer(Trainer):  # type: ignore[misc]
    """The Trainer with the masked loss, examples in their own order, and an ear for what it computes.

    Args:
        masked: what turns a batch into log-probabilities.
        weighting: of masks in the loss.
        seen: told of every forward pass (batch, loss, s(M) of each row).
        options: of the Hugging Face Trainer.
    """

    def __init__(
        self,
        masked: MaskedLM,
        weighting: Weighting,
        seen: Callable[[dict[str, Tensor], Tensor, Tensor], None],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.masked, self.weighting, self.seen = masked, weighting, seen

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """-log-probability of the hidden tokens, by mask or by token."""
        self.masked.module = model  # wrapped by the Trainer where it runs in parallel
        log_prob, rows = hidden_log_probs(self.masked, inputs)
        n_rows = len(inputs["ids"])
        loss = masked_loss(log_prob, rows, n_rows, self.weighting)
        self.seen(inputs, loss.detach(), row_means(log_prob.detach(), rows, n_rows))
        return loss

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> SequentialSampler:
        """The order of the examples is part of the examples."""
        return SequentialSampler(self.train_dataset)


class Watch(TrainerCallback):  # type: ignore[misc]
    """Writes the metrics: every step its loss and cost, every so often the held-out curve."""

    def __init__(
        self, run: RunFolder, config: PretrainConfig, model: MaskedLM, evaluator: Evaluator, start: int
    ) -> None:
        self.run, self.config, self.model, self.evaluator = run, config, model, evaluator
        self.module: Any = model.module
        self.processes = process()[1]  # the others' batches cost about as much as this one's
        last = run.rows("step")[-1] if start and run.writes else {"flops": 0.0, "tokens": 0, "seconds": 0.0}
        self.flops, self.tokens, self.seconds = last["flops"], last["tokens"], last["seconds"]
        self.batches: list[tuple[Tensor, Tensor, Tensor]] = []
        self.clock = time.perf_counter()

    def seen(self, batch: dict[str, Tensor], loss: Tensor, scores: Tensor) -> None:
        """A forward pass of training: its loss, and s(M) of each row."""
        n_tokens, n_hidden = batch["attended"].sum(1), batch["hidden"].sum(1)
        for tokens, hidden in zip(n_tokens.tolist(), n_hidden.tolist(), strict=True):
            self.flops += flops(self.module.config, tokens, hidden).training * self.processes
            self.tokens += tokens * self.processes
        self.batches.append((loss, scores, n_hidden / n_tokens))

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """The untrained model's score; nothing when a run is resumed, which has it."""
        if state.global_step == 0 and self.run.writes:
            self._evaluate(0)

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """One line, before any checkpoint of this step."""
        losses, scores, rates = (
            torch.cat([part.reshape(-1).cpu() for part in c]) for c in zip(*self.batches, strict=True)
        )
        self.batches = []
        step, loss = int(state.global_step), float(losses.mean())
        self._check(step, "loss", loss)
        self._tick()
        bins = (rates * RATE_BINS).ceil().long().clamp(1, RATE_BINS)
        by_rate = {f"loss_at_{b / RATE_BINS:g}": _mean(-scores[bins == b]) for b in range(1, RATE_BINS + 1)}
        self.run.add({"kind": "step", "step": step, "loss": loss, **by_rate, **self._cost()})
        if self.run.writes and (step % self.config.evaluation.every == 0 or step == state.max_steps):
            self._evaluate(step)
        report(step, int(state.max_steps))

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """The checkpoint is all there."""
        self.run.mark_complete(int(state.global_step))

    def _evaluate(self, step: int) -> None:
        self.model.module = self.module
        measured = self.evaluator.evaluate(self.model)
        self._check(step, "held-out score", measured["total"])
        self.run.add({"kind": "evaluation", "step": step, **self._cost(), **measured})
        self.clock = time.perf_counter()  # what evaluation takes is no part of the cost of training

    def _check(self, step: int, name: str, value: float) -> None:
        if not math.isfinite(value):
            rate = self.config.training.learning_rate
            raise DivergedError(
                f"training diverged: the {name} is {value} at step {step}; lower training.learning_rate ({rate:g})", ()
            )

    def _tick(self) -> None:
        now = time.perf_counter()
        self.seconds += now - self.clock
        self.clock = now

    def _cost(self) -> dict[str, float]:
        return {"flops": self.flops, "tokens": self.tokens, "seconds": self.seconds}


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None


def _arguments(config: TrainingConfig, folder: Path, seed: int) -> TrainingArguments:
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch,
        learning_rate=config.learning_rate,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": math.ceil(config.decay * config.steps), "decay_type": "linear"},
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        adam_beta2=0.98,
        max_grad_norm=config.clip,
        bf16=config.precision == "bfloat16",
        fp16=config.precision == "float16",
        use_cpu=config.device == "cpu",
        save_steps=config.save_every,
        save_total_limit=2,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        seed=seed,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # one device a process; several by torchrun, never by DataParallel
    return arguments
