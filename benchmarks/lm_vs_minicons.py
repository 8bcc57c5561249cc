"""Pseudo-log-likelihoods side by side with minicons 0.3.39: the same numbers, how long, how much memory.

minicons 0.3.39 does not run on transformers 5, so it gets an environment of its own:

    python3.11 -m venv minicons-env
    minicons-env/bin/pip install "transformers<5" torch==2.13.0 minicons==0.3.39
    python benchmarks/lm_vs_minicons.py --minicons-python minicons-env/bin/python

Both sides load the same random weights from disk and score the same sentences, all cores each, in turns
(A, B, A, B, …); ratios are of medians, by the clock and by CPU time, which does not see what else the machine does.
minicons scores one sentence a call: in larger batches it keeps the vocabulary logits of every masked copy of every
sentence. `--fixture FILE` writes the numbers that the tests compare with instead.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VOCABULARY_SIZE = 30_522
SHAPES = {
    "small": {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FIXTURE_VOCABULARY = [*SPECIAL, "the", "cat", "sat", "on", "mat", "un", "##happi", "##ness", "!", "a", "dog", "##s"]
FIXTURE_SENTENCES = ["the cat sat on the mat !", "a unhappiness on dogs", "unhappinesss", "cats", "the dogs sat !"]
FIXTURE = {
    "seed": 11,
    "scale": 0.3,
    "vocabulary": FIXTURE_VOCABULARY,
    "config": {
        "vocab_size": len(FIXTURE_VOCABULARY),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    },
}


def tokenizer(vocabulary: list[str]):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {word: i for i, word in enumerate(vocabulary)}
    inner = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", **names)


def big_vocabulary() -> list[str]:
    return SPECIAL + [f"w{i}" for i in range(VOCABULARY_SIZE - len(SPECIAL))]


def sentences(count: int, shortest: int, longest: int) -> list[str]:
    import torch

    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(shortest, longest, count).round().int().tolist()
    return [
        " ".join(f"w{i}" for i in torch.randint(VOCABULARY_SIZE - 5, (n,), generator=generator).tolist())
        for n in lengths
    ]


class Minicons:
    """The other side; only this class runs in the other environment."""

    def __init__(self, folder: str) -> None:
        from minicons.scorer import MaskedLMScorer
        from transformers import BertForMaskedLM

        self.scorer = MaskedLMScorer(
            BertForMaskedLM.from_pretrained(folder), "cpu", tokenizer=tokenizer(big_vocabulary())
        )

    def pll(self, texts: list[str]) -> list[float]:
        return [float(self.scorer.sequence_score(t, reduction=lambda x: x.sum())[0]) for t in texts]


class Ours:
    def __init__(self, folder: str) -> None:
        from transformers import BertForMaskedLM

        import mpt_bayes as mb

        self.mb = mb
        self.lm = mb.lm.adapt(BertForMaskedLM.from_pretrained(folder), tokenizer(big_vocabulary()))

    def pll(self, texts: list[str]) -> list[float]:
        return [float(v) for v in self.mb.lm.pseudo_log_likelihood(self.lm, texts).total.per_row]


def worker(side: str) -> None:
    """Reads one JSON request a line, answers one a line."""
    scorer = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "load":
            scorer = {"minicons": Minicons, "mpt_bayes": Ours}[side](request["folder"])
            answer = {"loaded": True}
        else:
            before = memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")
            start, start_cpu = time.perf_counter(), time.process_time()
            values = scorer.pll(request["texts"])
            seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
            answer = {
                "values": values,
                "seconds": seconds,
                "cpu": cpu,
                "peak": memory("VmHWM"),
                "extra": memory("VmHWM") - before,
            }
        print("ANSWER " + json.dumps(answer), flush=True)


def memory(field: str) -> float:
    """MiB of this process, from the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


class Side:
    def __init__(self, python: str, side: str, folder: str, threads: int) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        environment["PYTHONPATH"] = str(Path(__file__).parents[1]) if side == "mpt_bayes" else ""
        self.process = subprocess.Popen(
            [python, __file__, "--worker", side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.ask(do="load", folder=folder)

    def ask(self, **request) -> dict:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise SystemExit(f"the worker ended with code {self.process.wait()}")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def write_model(shape: str, folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(vocab_size=VOCABULARY_SIZE, max_position_embeddings=512, **SHAPES[shape])
    BertForMaskedLM(config).save_pretrained(folder)


def compare(python: str, shape: str, n_sentences: int, part: tuple[int, int], rounds: int, threads: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        write_model(shape, Path(folder))
        sides = {
            "minicons": Side(python, "minicons", folder, threads),
            "mpt_bayes": Side(sys.executable, "mpt_bayes", folder, threads),
        }
        texts = sentences(n_sentences, 20, 60)[part[0] :: part[1]]
        seconds = {name: [] for name in sides}
        cpu = {name: [] for name in sides}
        values = {}
        for side in sides.values():
            side.ask(do="pll", texts=sentences(2, 20, 60))  # first calls load libraries: not timed
        for _ in range(rounds):
            for name, side in sides.items():
                answer = side.ask(do="pll", texts=texts)
                seconds[name].append(answer["seconds"])
                cpu[name].append(answer["cpu"])
                values[name] = answer["values"]
        memory_128 = {name: side.ask(do="pll", texts=sentences(1, 126, 126)) for name, side in sides.items()}
        long = sides["mpt_bayes"].ask(do="pll", texts=sentences(1, 510, 510))
        for side in sides.values():
            side.close()
    medians = {name: statistics.median(s) for name, s in seconds.items()}
    cpu_medians = {name: statistics.median(s) for name, s in cpu.items()}
    return {
        "shape": shape,
        "sentences": len(texts),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "speed_ratio": medians["minicons"] / medians["mpt_bayes"],
        "speed_ratio_by_cpu_time": cpu_medians["minicons"] / cpu_medians["mpt_bayes"],
        "largest_difference": max(abs(a - b) for a, b in zip(values["minicons"], values["mpt_bayes"], strict=True)),
        "extra_MiB_at_length_128": {name: round(a["extra"]) for name, a in memory_128.items()},
        "memory_ratio_at_length_128": memory_128["minicons"]["extra"] / max(memory_128["mpt_bayes"]["extra"], 1.0),
        "peak_MiB_at_length_512": round(long["peak"]),
    }


def fixture_worker() -> None:
    """Runs in the other environment: token-level numbers of a tiny model whose weights are a recipe."""
    import minicons
    import torch
    import transformers
    from minicons.scorer import MaskedLMScorer

    model = transformers.BertForMaskedLM(transformers.BertConfig(**FIXTURE["config"])).eval()
    generator = torch.Generator().manual_seed(FIXTURE["seed"])
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = torch.randn(parameter.shape, generator=generator) * FIXTURE["scale"]
            parameter.copy_(values + 1 if "LayerNorm.weight" in name else values)
    scorer = MaskedLMScorer(model, "cpu", tokenizer=tokenizer(FIXTURE_VOCABULARY))
    from importlib.metadata import version

    result = {
        "about": "Token log-probabilities by minicons; written by benchmarks/lm_vs_minicons.py --fixture.",
        "versions": {
            "minicons": version(minicons.__name__),
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        },
        "recipe": FIXTURE,
        "sentences": FIXTURE_SENTENCES,
    }
    for metric in ("original", "within_word_l2r"):
        result[metric] = [scorer.token_score(s, PLL_metric=metric)[0] for s in FIXTURE_SENTENCES]
    print("ANSWER " + json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minicons-python", help="python of the environment that has minicons")
    parser.add_argument("--worker", choices=["minicons", "mpt_bayes"], help=argparse.SUPPRESS)
    parser.add_argument("--fixture-worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fixture", type=Path, help="write the numbers of a tiny model for the tests, and stop")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("K", "N"), help="sentences K, K + N, …")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    if options.fixture_worker:
        return fixture_worker()
    if not options.minicons_python:
        parser.error("--minicons-python is needed: see above for how to make the environment")
    if options.fixture:
        command = [options.minicons_python, __file__, "--fixture-worker"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        line = next(line for line in output.splitlines() if line.startswith("ANSWER "))
        options.fixture.write_text(json.dumps(json.loads(line.removeprefix("ANSWER ")), indent=1) + "\n")
        return None
    results = [
        compare(options.minicons_python, shape, options.sentences, options.part, options.rounds, options.threads)
        for shape in options.shapes
    ]
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} threads a side",
        "results": results,
    }
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
