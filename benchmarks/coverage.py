"""How often 95% intervals cover the exact value: every part-A estimator, two models, thousands of seeds.

    python benchmarks/coverage.py --json docs/coverage.json     # 2,500 seeds a model; the table on standard output
    python benchmarks/coverage.py --runs 200                    # a quick look
more than drawing its masks: the estimators are those of the public API.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import mpt_bayes as mb
from mpt_bayes.models import ConditionalModel, JointModel
from mpt_bayes.numerics.combinatorics import all_subsets

LEVEL = 0.95


class LookedUp(ConditionalModel):
    """A model's conditionals at one table of data, all masks computed beforehand."""

    def __init__(self, model: ConditionalModel, x: Tensor) -> None:
        self._log_probs = torch.zeros(len(x), 2**model.dim, model.dim, dtype=torch.float64)
        self._log_probs[:, 1:] = model.masked_log_prob(x, all_subsets(model.dim)[1:])
        self._place = 2 ** torch.arange(model.dim)

    @property
    def dim(self) -> int:
        return len(self._place)

    @property
    def device(self) -> torch.device:
        return self._place.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self._log_probs[:, (hidden * self._place).sum(1)]


@dataclass(frozen=True)
class Line:
    """One line of the table: an estimator of one quantity on one model."""

    model: str
    estimator: str
    quantity: str
    exact: float
    covered: int
    runs: int
    mean_standard_error: float
    spread: float
    bias_in_standard_errors: float

    @property
    def coverage(self) -> float:
        return self.covered / self.runs


def ppca(dim: int = 10, latent: int = 2, rows: int = 20) -> tuple[JointModel, Tensor]:
    """PPCA with D = 10 and data drawn from it."""
    generator = torch.Generator().manual_seed(1991)
    loading = torch.randn(dim, latent, dtype=torch.float64, generator=generator)
    latents = torch.randn(rows, latent, dtype=torch.float64, generator=generator)
    noise = torch.randn(rows, dim, dtype=torch.float64, generator=generator)
    return mb.models.PPCA(loading, 0.2), latents @ loading.T + math.sqrt(0.2) * noise


def table() -> tuple[JointModel, Tensor]:
    """A joint table of six coordinates with three values each, and one datum of low probability."""
    joint = np.random.default_rng(0).gamma(0.3, size=(3,) * 6)
    joint /= joint.sum()
    x = np.array(np.unravel_index(joint.ravel().argsort()[-20], joint.shape))
    return mb.models.JointTable(torch.as_tensor(joint)), torch.as_tensor(x)[None]


MODELS: dict[str, Callable[[], tuple[JointModel, Tensor]]] = {"PPCA D=10": ppca, "joint table D=6": table}


def estimates(model: ConditionalModel, x: Tensor, number: int, seed: int) -> Iterator[tuple[str, str, mb.Estimate]]:
    """(estimator, quantity, estimate) of everything estimated in one run."""
    dim = model.dim
    for name, design in (
        (f"RandomOrders({number})", mb.masks.RandomOrders(number)),
        (f"PerSize({number})", mb.masks.PerSize(number)),
    ):
        curve = mb.score_curve(model, x, design=design, generator=torch.Generator().manual_seed(seed))
        yield name, "Σ S(m)", curve.total
        for size in (1, dim // 2, dim - 1):
            yield name, f"partial sum to {size}", curve.partial(size)
            yield name, f"S({size})", curve.score(size)
    for size in (1, dim // 2):
        generator = torch.Generator().manual_seed(seed)
        rate = size / dim
        yield (
            f"FixedRate({number})",
            f"S({size})",
            mb.masked_score(model, x, rate=rate, n_masks=number, generator=generator),
        )


def exact_values(model: JointModel, x: Tensor) -> dict[str, float]:
    """Every quantity by enumeration."""
    curve = mb.score_curve(model, x, design=mb.masks.Exhaustive())
    sizes = range(1, model.dim + 1)
    singles = {f"S({size})": curve.score(size).value for size in sizes}
    partial = {f"partial sum to {size}": curve.partial(size).value for size in sizes}
    return {"Σ S(m)": float(model.log_marginal_likelihood(x).sum()), **singles, **partial}


def measure(name: str, number: int, runs: int) -> list[Line]:
    """All lines of one model with `number` orders or masks a size, over `runs` seeds."""
    model, x = MODELS[name]()
    exact, looked_up = exact_values(model, x), LookedUp(model, x)
    found: dict[tuple[str, str], list[tuple[float, float, bool]]] = {}
    for seed in range(runs):
        for estimator, quantity, estimate in estimates(looked_up, x, number, seed):
            low, high = estimate.interval(LEVEL)
            assert estimate.standard_error is not None
            values = (estimate.value, estimate.standard_error, low <= exact[quantity] <= high)
            found.setdefault((estimator, quantity), []).append(values)
    lines = []
    for (estimator, quantity), results in found.items():
        value, error, inside = (np.array(column) for column in zip(*results, strict=True))
        spread = float(value.std(ddof=1))
        bias = (value.mean() - exact[quantity]) / (spread / math.sqrt(runs))
        lines.append(
            Line(name, estimator, quantity, exact[quantity], int(inside.sum()), runs, float(error.mean()), spread, bias)
        )
    return lines


def markdown(lines: list[Line]) -> str:
    """The table of the documentation."""
    head = "| model | estimator | quantity | exact, nats | mean SE | spread over seeds | bias, SE | coverage |\n"
    rule = "|---|---|---|---:|---:|---:|---:|---:|\n"
    body = [
        f"| {line.model} | {line.estimator} | {line.quantity} | {line.exact:.4f} | {line.mean_standard_error:.4f} "
        f"| {line.spread:.4f} | {line.bias_in_standard_errors:+.2f} | {100 * line.coverage:.2f}% |"
        for line in lines
    ]
    return head + rule + "\n".join(body) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2500)
    parser.add_argument("--number", type=int, default=64, help="orders, or masks a size")
    parser.add_argument("--json", type=Path, help="also write the lines here")
    arguments = parser.parse_args()
    lines = [line for name in MODELS for line in measure(name, arguments.number, arguments.runs)]
    print(markdown(lines))
    if arguments.json is not None:
        content = [vars(line) | {"coverage": line.coverage} for line in lines]
        arguments.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
