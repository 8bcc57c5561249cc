"""What the language-model benchmarks share: random models and texts, and the engine against bare loops."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

import torch
from transformers import BertConfig, BertForMaskedLM

import mpt_bayes as mb
from mpt_bayes.lm.batches import Work, assembled, batched
from mpt_bayes.lm.controlled import Passes
from mpt_bayes.numerics.random import Stream

VOCABULARY_SIZE = 30_522
MASK = 103
SHAPES = {
    "small": {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
}


def random_bert(shape: str, device: str, dtype: torch.dtype) -> mb.lm.MaskedLM:
    """BERT of a size with random weights."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=VOCABULARY_SIZE, max_position_embeddings=512, **SHAPES[shape])
    module = BertForMaskedLM(config).to(device=device, dtype=dtype)
    return mb.lm.masked_diffusion(module, mask_token_id=MASK, max_length=512, name=f"BERT, {shape}, random weights")


def random_texts(count: int, shortest: int, longest: int) -> list[mb.lm.EncodedText]:
    """Random ids, lengths evenly spread; the first token stands for [CLS] and is not scored."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(shortest + 1, longest + 1, count).round().int().tolist()
    return [
        mb.lm.from_ids(torch.randint(1000, VOCABULARY_SIZE, (n,), generator=generator), n_prompt=1) for n in lengths
    ]


def against_bare_loops(
    model: mb.lm.MaskedLM, texts: list[mb.lm.EncodedText], budget: int, rounds: int, batch: mb.lm.BatchLimits
) -> dict:
    """Tokens a second, padding not counted: the engine end to end, and two loops over its own batches, in turns.

    "bare" runs the model with the vocabulary at hidden positions and takes the log-probabilities, on inputs made
    beforehand; "whole" runs the model as it is, with logits at every position, and does nothing with them.
    """
    draws = [Passes(budget).draw(t.dim, Stream(0).child("text", t.digest)) for t in texts]
    works = [Work(text, draw.hidden, draw.hidden) for text, draw in zip(texts, draws, strict=True)]
    batches = batched(works, batch, model.vocabulary_size)
    inputs = [[None if t is None else t.to(model.device) for t in assembled(works, b.units, model)] for b in batches]
    n_tokens = sum(len(works[w].text.ids) for b in batches for w, _ in b.units)

    def bare() -> None:
        with model.evaluating():
            for part in inputs:
                model.log_probs(*part).cpu()

    def whole() -> None:
        with model.evaluating():
            for ids, attention, _, _ in inputs:
                model.module(input_ids=ids, attention_mask=attention)
            synchronised(model)

    def engine() -> None:
        mb.lm.score(model, texts, budget=budget, batch=batch)

    loops: dict[str, Callable[[], None]] = {"engine": engine, "bare": bare, "whole": whole}
    wall: dict[str, list[float]] = {name: [] for name in loops}
    cpu: dict[str, list[float]] = {name: [] for name in loops}
    memory = {}
    for _ in range(rounds):
        for name, loop in loops.items():
            if model.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            synchronised(model)
            start, start_cpu = time.perf_counter(), time.process_time()
            loop()
            synchronised(model)
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - start_cpu)
            memory[name] = peak_mib(model)
    rates = {name: n_tokens / statistics.median(seconds) for name, seconds in wall.items()}
    result = {
        "model": model.name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "texts": len(texts),
        "passes": sum(len(b.units) for b in batches),
        "tokens": n_tokens,
        "tokens_per_second": {name: round(rate) for name, rate in rates.items()},
        "share_of_bare": rates["engine"] / rates["bare"],
        "share_of_whole": rates["engine"] / rates["whole"],
        "peak_MiB": memory,
    }
    if model.device.type == "cpu":
        seconds = {name: statistics.median(s) for name, s in cpu.items()}
        result["cpu_share_of_bare"] = seconds["bare"] / seconds["engine"]
        result["cpu_tokens_per_second"] = {name: round(n_tokens / s) for name, s in seconds.items()}
    return result


def synchronised(model: mb.lm.MaskedLM) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def peak_mib(model: mb.lm.MaskedLM) -> int:
    """Of the GPU since the last reset, or of the whole process so far."""
    if model.device.type == "cuda":
        return round(torch.cuda.max_memory_allocated() / 2**20)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
