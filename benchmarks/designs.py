"""Standard deviation of the total at equal evaluations: PPCA with ten coordinates and 200 masks, design by design.

    python benchmarks/designs.py                      # about two minutes on one core
    python benchmarks/designs.py --runs 200           # a quick look

The masks of a run come from the design's own code; their scores are looked up, since all 1,023 were scored before.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from design_coverage import DIM, Scores, label, models

import mpt_bayes as mb
from mpt_bayes.estimation import Budget
from mpt_bayes.masks import MaskDesign

M = mb.masks


def entries() -> list[MaskDesign | Budget]:
    """About 200 masks each."""
    return [
        M.UniformSize(200),
        M.RandomRate(200),
        M.StratifiedSizes(200),
        M.PerSize(20),
        M.EnumeratedEnds(25),
        M.Partitions(6),
        M.CyclicWindows(5, 4),
        M.CyclicWindows(2, 10),
        M.RandomOrders(20),
        M.AntitheticOrders(20),
        M.CyclicOrders(5, 4),
        M.CyclicOrders(2, 10),
        M.PolicyMasks(M.CoordinatePolicy((0.5,) * DIM), 200),
        M.PolicyMasks(M.CoordinatePolicy((0.15,) * DIM), 200, uniform_share=0.5),
        M.PolicyMasks(M.SpanPolicy(0.4, 3.0), 200, uniform_share=0.5),
        Budget(n_evaluations=200),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    scores = Scores(*models()["PPCA D=10"])
    print("| design | evaluations | sd of the total | mean SE | variance × evaluations, PerSize = 1 | bias, SE |")
    print("|---|---:|---:|---:|---:|---:|")
    lines = []
    for work in entries():
        tallies = [scores.run(work, seed) for seed in range(options.runs)]
        value = np.array([float(t.partials[-1]) for t in tallies])
        error = math.sqrt(np.mean([float(t.partial_variances[-1]) for t in tallies]))
        cost = float(np.mean([t.n_evaluations for t in tallies]))
        z = (value.mean() - scores.exact) / (value.std() / math.sqrt(len(value)))
        lines.append((label(work), cost, value.std(), error, z))
    reference = next(sd**2 * cost for name, cost, sd, _, _ in lines if name.startswith("PerSize"))
    for name, cost, sd, error, z in lines:
        print(f"| {name} | {cost:.0f} | {sd:.3f} | {error:.3f} | {sd**2 * cost / reference:.2f} | {z:+.1f} |")


if __name__ == "__main__":
    main()
