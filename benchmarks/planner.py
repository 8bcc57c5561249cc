"""The planner's predicted standard error against the one obtained, on two-factor Gaussians and the D = 10 models.

python benchmarks/planner.py            # under a minute
"""

from __future__ import annotations

import torch
from design_coverage import models

import mpt_bayes as mb
from mpt_bayes.models import JointModel

TRIALS = 20


def factor_model(dim: int, seed: int) -> tuple[JointModel, torch.Tensor]:
    """A Gaussian with two factors, and one row drawn from it."""
    generator = torch.Generator().manual_seed(seed)
    loading = torch.randn(dim, 2, generator=generator, dtype=torch.float64)
    model = mb.models.Gaussian(torch.zeros(dim), loading @ loading.T + torch.eye(dim) / 5)
    row = torch.randn(1, dim, generator=generator, dtype=torch.float64)
    return model, row @ torch.linalg.cholesky(model.covariance).T


def main() -> None:
    """The table."""
    torch.set_num_threads(1)
    cases = {f"two factors, D = {d}, seed {s}": (*factor_model(d, s), n) for d, s, n in CASES}
    cases |= {name: (model, x, 200) for name, (model, x) in models().items()}
    print("| model | masks | within a quarter of the root mean square SE | of one run's SE | of |")
    print("|---|---:|---:|---:|---:|")
    for name, (model, x, masks) in cases.items():
        seeds = [torch.Generator().manual_seed(seed) for seed in range(2 * TRIALS)]
        budget = masks * len(x)
        planned = [mb.plan(model, x, generator=g).standard_error(budget) for g in seeds[:TRIALS]]
        runs = [mb.cumulative_score(model, x, n_evaluations=budget, generator=g) for g in seeds[TRIALS:]]
        predicted = torch.tensor(planned, dtype=torch.float64)
        obtained = torch.tensor([run.standard_error for run in runs], dtype=torch.float64)
        near = [int(((predicted / e - 1).abs() <= 0.25).sum()) for e in (obtained.square().mean().sqrt(), obtained)]
        print(f"| {name} | {masks} | {near[0]} | {near[1]} | {TRIALS} |", flush=True)


CASES = [(16, 0, 1000), (16, 3, 1000), (30, 0, 1000), (30, 1, 1000), (40, 0, 1000), (40, 2, 500)]

if __name__ == "__main__":
    main()
