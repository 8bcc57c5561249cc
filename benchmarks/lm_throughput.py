"""Tokens a second of the language-model engine on the CPU, against bare loops over the same batches; memory.

    python benchmarks/lm_throughput.py [--models antibody small base] [--rounds 5]

Loops run in turns; ratios are of medians. The shares by CPU time do not see what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform

import torch
from lm_measure import against_bare_loops, random_bert, random_texts

import mpt_bayes as mb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["antibody", "small", "base"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    results = []
    for name in options.models:
        if name == "antibody":
            model = mb.lm.antibody(dtype=dtype)
            texts, budget = [model.encode(s) for s in list(mb.lm.antibody_sequences().values())[:2]], 64
        else:
            model = random_bert(name, "cpu", dtype)
            texts, budget = random_texts(16, 20, 60), {"small": 32, "base": 4}[name]
        batch = mb.lm.BatchLimits.for_device(model.device)
        results.append(against_bare_loops(model, texts, budget, options.rounds, batch))
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} thread(s) used, torch {torch.__version__}"
    )
    print(json.dumps({"machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
