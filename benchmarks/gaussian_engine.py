"""The Gaussian engine against the loop as published, a bare batched Cholesky, and GPyTorch's leave-one-out.

python benchmarks/gaussian_engine.py --out engine.json --plot engine.png [--cpu] [--sections NAME ...]

Times are the best of several runs, contenders interleaved in one process, so that ratios survive a busy machine. With
`--cpu` they are processor time instead of wall time. The published loop is timed on a share of its permutations (every
size of each), and multiplied up; the share is in the output. Sections measured before stay in the output file.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch
from gaussian_growth import draw, engine_growth, low_rank_growth, rows_growth
from gaussian_measure import NOISE, best, orders_of, setting
from torch import Tensor

import mpt_bayes as mb


def published_loop(x: Tensor, loading: Tensor, n_permutations: int, generator: torch.Generator) -> float:
    """The definition with the operations of the published experiment, in its order, in float64.

    For every size and permutation: permute data and loading, build the covariance, invert the visible block, predict
    means and variances (each multiplies by the inverse), repeat the variances for every row, score every entry.
    """
    (n, dim), total = x.shape, 0.0
    for size in range(1, dim + 1):
        for _ in range(n_permutations):
            order = torch.randperm(dim, generator=generator)
            rows, weights = x[:, order], loading[order]
            covariance = weights @ weights.T + NOISE * torch.eye(dim, dtype=x.dtype)
            inverse = torch.inverse(covariance[size:, size:])
            cross = covariance[:size, size:]
            mean = (cross @ inverse @ rows[:, size:].T).T
            variance = (covariance[:size, :size] - cross @ inverse @ cross.T).diagonal().tile(n, 1)
            score = -0.5 * ((rows[:, :size] - mean).square() / variance + variance.log() + math.log(2 * math.pi))
            total += float(score.sum()) / (n_permutations * size)
    return total


def lean_loop(x: Tensor, covariance: Tensor, n_permutations: int, generator: torch.Generator) -> float:
    """The same with one covariance for all, one product with the inverse, and variances shared by the rows."""
    dim, total = x.shape[1], 0.0
    for size in range(1, dim + 1):
        for _ in range(n_permutations):
            order = torch.randperm(dim, generator=generator)
            hidden, seen = order[:size], order[size:]
            cross = covariance[hidden][:, seen]
            weights = cross @ torch.inverse(covariance[seen][:, seen])
            mean = x[:, seen] @ weights.T
            variance = (covariance[hidden][:, hidden] - weights @ cross.T).diagonal()
            score = -0.5 * ((x[:, hidden] - mean).square() / variance + variance.log() + math.log(2 * math.pi))
            total += float(score.mean(1).sum()) / n_permutations
    return total


def against_the_loop(dim: int, share: int, clock: Callable[[], float], runs: int) -> dict[str, object]:
    model, x = setting(1000, dim, 5)
    covariance = model.loading @ model.loading.T + NOISE * torch.eye(dim, dtype=torch.float64)
    design, g = mb.masks.RandomOrders(100), torch.Generator().manual_seed(0)
    values: dict[str, list[float]] = {"loop": [], "lean loop": []}
    times = best(
        {
            "engine": lambda: mb.cumulative_score(model, x, design=design, per_row=False),
            "engine with per-row totals": lambda: mb.cumulative_score(model, x, design=design),
            "loop": lambda: values["loop"].append(published_loop(x, model.loading, share, g)),
            "lean loop": lambda: values["lean loop"].append(lean_loop(x, covariance, share, g)),
        },
        clock,
        runs,
    )
    for name in values:
        times[name] *= 100 / share
    value = mb.cumulative_score(model, x, design=design)
    means = {name: sum(found) / len(found) / 1000 for name, found in values.items()}
    return {
        "setting": f"N=1000 D={dim} K=5, 100 masks per size",
        "permutations timed at once": share,
        **times,
        "times faster": times["loop"] / times["engine"],
        "times faster than the lean loop": times["lean loop"] / times["engine"],
        "times faster with per-row totals": times["loop"] / times["engine with per-row totals"],
        "values per datum": {**means, "engine": value.per_datum.value},
    }


def against_cholesky(dim: int, n_rows: int, n_orders: int, clock: Callable[[], float], runs: int) -> dict[str, object]:
    low_rank, x = setting(n_rows, dim, 5)
    covariance = low_rank.loading @ low_rank.loading.T + NOISE * torch.eye(dim, dtype=torch.float64)
    model, orders = mb.models.Gaussian(torch.zeros(dim), covariance), orders_of(n_orders, dim)
    permuted = covariance[orders[:, :, None], orders[:, None, :]]
    with torch.no_grad():
        times = best(
            {
                "batched Cholesky": lambda: torch.linalg.cholesky(permuted),
                "engine": lambda: model.order_totals(x, orders, per_row=False),
                "engine with per-row totals": lambda: model.order_totals(x, orders, per_row=True),
            },
            clock,
            runs,
        )
    ratios = {
        f"{name}, Cholesky factorisations": times[name] / times["batched Cholesky"]
        for name in ("engine", "engine with per-row totals")
    }
    return {"setting": f"D={dim} N={n_rows}, {n_orders} orders", **times, **ratios}


def leave_one_out(clock: Callable[[], float], runs: int) -> dict[str, object]:
    import gpytorch

    inputs = torch.linspace(0, 10, 500, dtype=torch.float64)
    process = mb.models.GaussianProcess.from_kernel("rbf", inputs, inputs.sin())
    prior = process._prior
    prior.train()
    loo = gpytorch.mlls.LeaveOneOutPseudoLikelihood(prior.likelihood, prior.model)
    orders = orders_of(1, 500)
    with torch.no_grad():
        times = best(
            {
                "gpytorch leave-one-out": lambda: loo(
                    prior.model(*prior.model.train_inputs), prior.model.train_targets
                ),
                "engine, whole curve of one order": lambda: process.order_totals(
                    process.targets, orders, per_row=False
                ),
            },
            clock,
            runs,
        )
    return {"setting": "GP, n=500", **times}


def large_process() -> dict[str, object]:
    """One observed vector of 5,000 points, two orders, and the most memory the process held beyond the covariance."""
    inputs = torch.linspace(0, 100, 5000, dtype=torch.float64)
    covariance = (inputs[:, None] - inputs).square_().mul_(-0.5).exp_()  # in place: no peak of its own
    covariance.diagonal().add_(0.1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = mb.models.Gaussian(torch.zeros(5000), covariance)
    start = time.perf_counter()
    with torch.no_grad():
        model.order_totals(inputs.sin()[None], orders_of(2, 5000), per_row=False)
    seconds = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "setting": "N=5000, 2 orders",
        "seconds": seconds,
        "peak memory in N×N matrices, model included": grown * 1024 / (8 * 5000**2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("engine.json"))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    parser.add_argument("--sections", nargs="*", help="some of them only; all by default")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    clock, runs = (time.process_time if options.cpu else time.perf_counter), options.runs
    sections: dict[str, Callable[[], object]] = {
        "one row": lambda: [against_cholesky(2000, 1, 1, clock, runs)],
        "many rows": lambda: [against_cholesky(d, 1000, n, clock, runs) for d, n in ((200, 100), (400, 20))],
        "published loop": lambda: [against_the_loop(d, share, clock, runs) for d, share in ((200, 1), (50, 5))],
        "leave-one-out": lambda: [leave_one_out(clock, runs)],
        "growth": lambda: engine_growth(clock, runs),
        "rows": lambda: rows_growth(clock, runs),
        "low rank": lambda: low_rank_growth(clock, runs),
        "large process": lambda: [large_process()],
    }
    results = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    how = {"clock": "processor time" if options.cpu else "wall time", "threads": torch.get_num_threads()}
    for name in options.sections or sections:
        results[name] = {**how, "rows": sections[name]()}
        print(json.dumps({name: results[name]}, indent=2), flush=True)
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        draw(results, options.plot)


if __name__ == "__main__":
    main()
