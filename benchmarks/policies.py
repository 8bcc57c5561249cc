"""What each masking policy's plain average estimates, and what whole-mask weights cost, exactly, on the D = 10 mixture.

python benchmarks/policies.py            # seconds: every mask is enumerated
"""

from __future__ import annotations

import torch
from design_coverage import DIM, Scores, models

import mpt_bayes as mb
from mpt_bayes.numerics.combinatorics import all_subsets, log_binomial

M = mb.masks


def policies(scores: Scores) -> dict[str, M.MaskPolicy]:
    """Those of the literature, at ten coordinates."""
    alone = scores.log_prob[2 ** torch.arange(DIM)].diagonal()  # leave-one-out log-probabilities
    table = (0.1 + 0.5 * (-alone).argsort().argsort() / (DIM - 1)).round(decimals=2)
    return {
        "fixed rate 15%": M.SizePolicy(M.RateSet((0.15,))),
        "fixed rate 40%": M.SizePolicy(M.RateSet((0.4,))),
        "independent coins, 15%": M.CoordinatePolicy((0.15,) * DIM),
        "independent coins, 50%": M.CoordinatePolicy((0.5,) * DIM),
        "rates 10%, 30%, 50%": M.SizePolicy(M.RateSet((0.1, 0.3, 0.5))),
        "linear schedule 30% to 15%": M.SizePolicy(M.RateSchedule(0.3, 0.15)),
        "cosine schedule 100% to 0": M.SizePolicy(M.RateSchedule(1.0, 0.0, "cosine")),
        "spans of mean length 3, 30%": M.SpanPolicy(0.3, 3.0),
        "whole words, 30%": M.WordPolicy((0, 0, 1, 2, 2, 3, 4, 4, 5, 6), 0.3),
        "a table by difficulty, 10% to 60%": M.CoordinatePolicy(tuple(table.tolist())),
        "the 2 hardest coordinates": M.TopKPolicy(tuple((-alone).tolist()), 2),
    }


def main() -> None:
    """The table."""
    torch.set_num_threads(1)
    scores = Scores(*models()["mixture D=10"])
    hidden = all_subsets(DIM)[1:]
    c = (-log_binomial(DIM)).exp()[hidden.sum(1)]
    value = scores.score[1:]
    print(f"log p(x) = {scores.exact:.3f} nats\n")
    print("| policy | D × its mean score | every mask possible | ESS / n, no uniform share | 20% | 50% |")
    print("|---|---:|---|---:|---:|---:|")
    for name, policy in policies(scores).items():
        own = DIM * float((policy.log_probability(hidden).exp() * value).sum())
        cells = []
        for share in (0.0, 0.2, 0.5):
            design = M.PolicyMasks(policy, 1, uniform_share=share)
            usable = design.estimand(DIM) == M.CUMULATIVE_SCORE
            q = design.log_probability(hidden).exp()
            cells.append(f"{DIM**2 / float((c.square() / q).sum()):.3f}" if usable else "refused")
        print(f"| {name} | {own:.3f} | {'yes' if policy.covers(DIM) else 'no'} | {' | '.join(cells)} |")
    inverse = 1 / torch.arange(1, DIM + 1, dtype=torch.float64)
    laws = [share / DIM + (1 - share) * inverse / inverse.sum() for share in (0.0, 0.2, 0.5)]
    print("| sizes ∝ 1/m | | yes | " + " | ".join(f"{DIM**2 / float((1 / law).sum()):.3f}" for law in laws) + " |")


if __name__ == "__main__":
    main()
