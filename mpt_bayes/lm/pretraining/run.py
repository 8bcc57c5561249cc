"""Pre-training from a configuration, and a finished run read back."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from mpt_bayes.errors import ArgumentError, DependencyError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.loading import load, masked_diffusion, quiet
from mpt_bayes.lm.pretraining.config import PretrainConfig
from mpt_bayes.lm.pretraining.corpora import Corpus, load_corpus
from mpt_bayes.lm.pretraining.evaluation import Evaluator
from mpt_bayes.lm.pretraining.examples import TrainingExamples, collate
from mpt_bayes.lm.pretraining.records import RunFolder, process
from mpt_bayes.numerics.random import Stream

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class PretrainedRun:
    """A finished run.

    Attributes:
        folder: what it left on disk.
        model: the trained model, ready to be scored.
        result: the last evaluation and the costs, as in `result.json`.
    """

    folder: RunFolder
    model: MaskedLM
    result: dict[str, Any]


def pretrain(config: PretrainConfig, folder: str | Path, *, resume: bool = False) -> PretrainedRun:
    """Train a masked language model from scratch, and record how its held-out score climbs.

    On the CPU in float32 a run is a function of its configuration: killed at any moment and resumed, it goes through
    the same losses bit for bit. On an accelerator the Trainer's mixed precision applies; several train together when
    started by torchrun, `training.batch` sequences each.

    Args:
        config: everything about the run.
        folder: where it is recorded; it must not hold another run.
        resume: go on from the last complete checkpoint there (from the start if there is none); a finished run is
            read back.

    Raises:
        ArgumentError: a folder that holds a run and no `resume`, another configuration, corruption or an architecture
            that do not go together.
        DataError: a corpus that is not there or too small.
        DivergedError: the loss or the held-out score ceased to be a number; steps done are in `metrics.jsonl`.
        DependencyError: accelerate is not installed.
    """
    if config.model.architecture != "bert" and (config.masks.random or config.masks.keep):
        raise ArgumentError(
            f"masks.random and masks.keep are for BERT: {config.model.architecture} removes hidden tokens from the "
            "encoder, set both to 0"
        )
    if find_spec("accelerate") is None:
        raise DependencyError("training needs the package accelerate: pip install 'mpt_bayes[pretrain]'")
    from mpt_bayes.lm.pretraining.trainer import train

    run = RunFolder(Path(folder))
    if resume and run.finished:
        run.check_config(config)
        return load_run(folder)
    corpus = load_corpus(config.corpus, seed=config.seed)
    count = config.training.steps * config.training.batch * process()[1]
    examples = TrainingExamples(corpus, config.masks, count=count, seed=config.seed)
    evaluator = Evaluator(corpus, config)
    start = run.start(config, resume=resume)
    module: Any = new_model(config, corpus)
    model = _adapted(module, corpus)
    train(config, model, examples, evaluator, run, start)
    if run.writes:
        _finish(run, config, corpus, evaluator, model)
    if dist.is_initialized():
        dist.barrier()
    return PretrainedRun(run, model, run.result())


def new_model(config: PretrainConfig, corpus: Corpus) -> PreTrainedModel:
    """The untrained model of a run: a function of its configuration."""
    from mpt_bayes.lm.architectures import build

    sizes = {name: value for name, value in config.to_dict()["model"].items() if name != "architecture"}
    return build(
        config.model.architecture,  # type: ignore[arg-type]
        vocab_size=corpus.vocabulary,
        mask_token_id=corpus.mask_token_id,
        max_length=corpus.length,
        pad_token_id=None if corpus.tokenizer is None else corpus.tokenizer.pad_token_id,
        generator=Stream(config.seed).child("weights").generator(),
        **sizes,
    )


def load_run(folder: str | Path) -> PretrainedRun:
    """A finished run from its folder.

    Raises:
        ArgumentError: no finished run there.
    """
    from transformers import AutoModelForMaskedLM

    import mpt_bayes.lm.architectures  # noqa: F401 - tells the Auto classes of this library's own model types

    run = RunFolder(Path(folder))
    result = run.result()
    with quiet():
        if (run.model / "tokenizer.json").exists():
            return PretrainedRun(run, load(run.model), result)
        module = AutoModelForMaskedLM.from_pretrained(run.model).eval()
    return PretrainedRun(run, masked_diffusion(module, mask_token_id=result["mask_token_id"]), result)


def _adapted(module: PreTrainedModel, corpus: Corpus) -> MaskedLM:
    return masked_diffusion(module, mask_token_id=corpus.mask_token_id, tokenizer=corpus.tokenizer)


def _finish(run: RunFolder, config: PretrainConfig, corpus: Corpus, evaluator: Evaluator, model: MaskedLM) -> None:
    """The last evaluation, the gain over the untrained model on the same masks, and what loading takes."""
    scores = evaluator.held_out.score(model)
    gain = scores.minus(evaluator.held_out.score(_adapted(new_model(config, corpus).to(model.device), corpus)))
    last = run.rows("evaluation")[-1]
    result = {
        **{name: value for name, value in last.items() if name != "kind"},
        **evaluator.reference_curves(),
        "gain_over_untrained": gain.total,
        "gain_standard_error": gain.total_standard_error,
        "measured_over_formula": measured_over_formula(model, config, corpus),
        "parameters": sum(parameter.numel() for parameter in model.module.parameters()),
        "mask_token_id": corpus.mask_token_id,
        "held_out_digest": evaluator.held_out.digest,
    }
    run.finish(result, scores.scores)


def measured_over_formula(model: MaskedLM, config: PretrainConfig, corpus: Corpus) -> float:
    """Products counted by torch in the first training batch, over those of the formula; the head is left out of both.

    Above 1 where rows of a batch see different numbers of tokens: a mask-free encoder pads them to the longest.
    """
    from mpt_bayes.lm.architectures import flops, measured_flops

    examples = TrainingExamples(corpus, config.masks, count=config.training.batch, seed=config.seed)
    batch = collate([examples[k] for k in range(len(examples))])
    module: Any = model.module
    counted = measured_flops(module.base_model, batch["ids"].to(model.device), batch["attended"].to(model.device))
    parts = [
        flops(module.config, int(attended.sum()), int(hidden.sum()))
        for attended, hidden in zip(batch["attended"], batch["hidden"], strict=True)
    ]
    return counted / sum(part.encoder + part.decoder for part in parts)
