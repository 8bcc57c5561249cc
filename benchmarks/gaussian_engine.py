"""The Gaussian engine against the loop as published, a bare batched Cholesky, and GPyTorch's leave-one-out.

python benchmarks/gaussian_engine.py --out engine.json --plot engine.png [--cpu]

Times are the best of several runs, contenders interleaved in one process, so that ratios survive a busy machine. With
`--cpu` they are processor time instead of wall time. The published loop is timed on a share of its permutations (every
size of each), and multiplied up; the share is in the output.
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
from torch import Tensor

import mpt_bayes as mb

NOISE = 0.2


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


def best(contenders: dict[str, Callable[[], object]], clock: Callable[[], float], runs: int) -> dict[str, float]:
    """Seconds of each, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(runs + 1):  # the first warms up
        for name, work in contenders.items():
            start = clock()
            work()
            if run:
                times[name].append(clock() - start)
    return {name: min(values) for name, values in times.items()}


def setting(n: int, dim: int, latent_dim: int) -> tuple[mb.models.PPCA, Tensor]:
    g = torch.Generator().manual_seed(1991)
    loading = torch.randn(dim, latent_dim, generator=g, dtype=torch.float64)
    x = torch.randn(n, latent_dim, generator=g, dtype=torch.float64) @ loading.T
    return mb.models.PPCA(loading, NOISE), x + NOISE**0.5 * torch.randn(n, dim, generator=g, dtype=torch.float64)


def orders_of(n: int, dim: int) -> Tensor:
    g = torch.Generator().manual_seed(7)
    return torch.stack([torch.randperm(dim, generator=g) for _ in range(n)])


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
    ratio = times["engine"] / times["batched Cholesky"]
    return {"setting": f"D={dim} N={n_rows}, {n_orders} orders", **times, "Cholesky factorisations": ratio}


def low_rank_growth(clock: Callable[[], float], runs: int) -> list[dict[str, object]]:
    found = []
    for dim in (196, 392, 784, 1568):
        model, x = setting(1, dim, 10)
        orders = orders_of(4, dim)
        with torch.no_grad():
            work = {"engine": lambda m=model, x=x, o=orders: m.order_totals(x, o, per_row=False)}
            found.append({"setting": f"K=10 N=1 D={dim}, 4 orders", "D": dim, **best(work, clock, runs)})
    return found


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
    """One observed vector of 5,000 points, two orders, and the most memory the process ever held."""
    inputs = torch.linspace(0, 100, 5000, dtype=torch.float64)
    covariance = torch.exp(-0.5 * (inputs[:, None] - inputs).square()) + 0.1 * torch.eye(5000, dtype=torch.float64)
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
        "peak memory in N×N matrices": grown * 1024 / (8 * 5000**2),
    }


def draw(results: dict[str, object], path: Path) -> None:
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), dpi=110, layout="constrained")
    for kind in ("D", "N"):
        rows = [r for r in results["growth"] if r["axis"] == kind]
        left.plot([r[kind] for r in rows], [r["engine"] for r in rows], marker="o", label=f"against {kind}")
    left.set(xscale="log", yscale="log", xlabel="D (N = 1000), N (D = 100)", ylabel="seconds, 20 orders", title="dense")
    left.legend(frameon=False)
    rows = results["low rank"]
    sizes, seconds = [r["D"] for r in rows], [r["engine"] for r in rows]
    right.plot(sizes, seconds, marker="o", label="measured")
    right.plot(sizes, [seconds[-1] * (d / sizes[-1]) ** 2 for d in sizes], "--", label="D²")
    right.plot(sizes, [seconds[-1] * (d / sizes[-1]) ** 3 for d in sizes], ":", label="D³")
    right.set(xscale="log", yscale="log", xlabel="D", title="low rank, K = 10")
    right.minorticks_off()
    right.set_xticks(sizes, [str(d) for d in sizes])
    right.legend(frameon=False)
    figure.savefig(path)


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
        "one row": lambda: against_cholesky(2000, 1, 1, clock, runs),
        "many rows": lambda: [against_cholesky(d, 1000, n, clock, runs) for d, n in ((200, 100), (400, 20))],
        "published loop": lambda: [against_the_loop(d, share, clock, runs) for d, share in ((200, 1), (50, 5))],
        "low rank": lambda: low_rank_growth(clock, runs),
        "leave-one-out": lambda: leave_one_out(clock, runs),
        "growth": lambda: [
            {"axis": axis, axis: value, **against_cholesky(*sizes, 20, clock, runs)}
            for axis, value, sizes in [("D", d, (d, 1000)) for d in (50, 100, 200, 400)]
            + [("N", n, (100, n)) for n in (200, 1000, 5000, 20000)]
        ],
        "large process": large_process,
    }
    results: dict[str, object] = {
        "clock": "processor time" if options.cpu else "wall time",
        "threads": torch.get_num_threads(),
    }
    for name in options.sections or sections:
        results[name] = sections[name]()
        print(json.dumps({name: results[name]}, indent=2), flush=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        draw(results, options.plot)


if __name__ == "__main__":
    main()
