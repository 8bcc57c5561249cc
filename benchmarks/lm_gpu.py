"""A bert-base-sized model with random weights, end to end on a GPU: tokens a second, share of the bare forward, memory.

    python benchmarks/lm_gpu.py [--dtype bfloat16] [--texts 256] [--budget 128] [--compile]

Without a GPU it runs a small case on the CPU and says so, which shows that the script works and nothing else.
"""

from __future__ import annotations

import argparse
import json

import torch
from lm_measure import against_bare_loops, random_bert, random_texts

import mpt_bayes as mb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--shortest", type=int, default=30)
    parser.add_argument("--longest", type=int, default=126)
    parser.add_argument("--budget", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    model = random_bert("base", device, getattr(torch, options.dtype))
    if options.compile:
        model = model.compiled()
    texts = random_texts(options.texts if on_gpu else 2, options.shortest, options.longest)
    budget = options.budget if on_gpu else 16
    result = against_bare_loops(model, texts, budget, options.rounds, mb.lm.BatchLimits.for_device(model.device))
    machine = torch.cuda.get_device_name() if on_gpu else "no GPU here: a small case on the CPU"
    print(json.dumps({"machine": machine, "torch": torch.__version__, **result}, indent=1))


if __name__ == "__main__":
    main()
