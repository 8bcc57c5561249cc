"""Model averaging against weight averaging, measured: by depth and rate, for penalties, and for attention.

    python -m experiments.dropout.averages            writes experiments/dropout/results/averages.json

Small networks with dropout before every layer are trained on the iris data; all 2^N sub-networks are then averaged.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from torch import Tensor, nn

from mpt_bayes.dropout import (
    all_subnetworks,
    average_over_masks,
    expected_penalty,
    quadratic_penalty,
    sampled_subnetworks,
    weight_scaled,
)
from mpt_bayes.numerics.random import Stream

RESULTS = Path(__file__).parent / "results"
WIDTH = 4


def iris(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Standardised features and labels, 100 to train on and 50 held out."""
    data = load_iris()
    x = torch.as_tensor((data.data - data.data.mean(0)) / data.data.std(0))
    y = torch.as_tensor(data.target)
    order = torch.randperm(150, generator=Stream(seed).child("split").generator())
    train, test = order[:100], order[100:]
    return x[train], y[train], x[test], y[test]


def trained_network(seed: int, depth: int, rate: float, x: Tensor, y: Tensor, steps: int) -> nn.Module:
    """`depth` linear layers, each after dropout, tanh between them, trained with that dropout."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for layer in range(depth):
        layers += [nn.Dropout(rate), nn.Linear(WIDTH, WIDTH if layer < depth - 1 else 3)]
        layers += [nn.Tanh()] * (layer < depth - 1)
    network = nn.Sequential(*layers).double().train()
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    return network.requires_grad_(False)


def gap_of(seed: int, depth: int, rate: float, steps: int) -> dict[str, float]:
    """How the averages of one network differ on held-out data; log-likelihoods in nats per datum."""
    x, y, x_test, y_test = iris(seed)
    network = trained_network(seed, depth, rate, x, y, steps)
    networks = all_subnetworks(network, x_test)
    scaled = weight_scaled(network, x_test)
    sampled = sampled_subnetworks(network, x_test, 50, generator=torch.Generator().manual_seed(seed))

    def held_out(log_prob: Tensor) -> float:
        return float(log_prob.gather(1, y_test[:, None]).mean())

    arithmetic = networks.arithmetic_log_prob()
    return {
        "relative_gap": float((networks.mean() - scaled).norm() / (scaled - scaled.mean(0)).norm()),
        "probability_gap": float((arithmetic.exp() - scaled.softmax(-1)).abs().max(1).values.mean()),
        "arithmetic": held_out(arithmetic),
        "geometric": held_out(networks.geometric_log_prob()),
        "weight_scaled": held_out(scaled.log_softmax(-1)),
        "monte_carlo_50": held_out(sampled.arithmetic_log_prob()),
    }


def gaps(seeds: int, steps: int, depths: list[int], rates: list[float]) -> list[dict[str, Any]]:
    """Means and standard errors over networks trained from different seeds and splits; differences are paired."""
    rows = []
    for depth in depths:
        for rate in rates:
            runs = [gap_of(seed, depth, rate, steps) for seed in range(seeds)]
            row: dict[str, Any] = {"depth": depth, "rate": rate, "units": WIDTH * depth, "seeds": seeds}
            for name in runs[0]:
                row[name] = mean_and_error([run[name] for run in runs])
            for name in ("arithmetic", "geometric", "monte_carlo_50"):
                row[f"{name} - weight_scaled"] = mean_and_error([run[name] - run["weight_scaled"] for run in runs])
            rows.append(row)
    return rows


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def penalties(rates: list[float], scales: list[float]) -> list[dict[str, float]]:
    """Wager's quadratic penalty against the exact one: logistic regression on 10 columns of the breast-cancer data."""
    data = load_breast_cancer()
    x = torch.as_tensor(data.data[:, :10])
    x = (x - x.mean(0)) / x.std(0, correction=0)
    y = torch.as_tensor(data.target, dtype=torch.float64)
    beta = torch.zeros(10, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([beta], max_iter=200)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(x @ beta, y) + 0.01 * beta.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    fitted = beta.detach()
    rows = []
    for rate in rates:
        for scale in scales:
            exact = float(expected_penalty(x, scale * fitted, rate, "bernoulli"))
            quadratic = float(quadratic_penalty(x, scale * fitted, rate, "bernoulli"))
            rows.append({"rate": rate, "scale": scale, "exact": exact, "quadratic": quadratic})
    return rows


def attention_averages(keeps: list[float], sizes: list[int], seeds: int) -> list[dict[str, Any]]:
    """Largest entry of |E Norm(Aε) - A| given that something is kept; random attention, softmax of 2 × normals."""
    rows = []
    for n in sizes:
        for keep in keeps:
            gaps = []
            for seed in range(seeds):
                generator = Stream(seed).child("attention", n).generator()
                attention = torch.randn(n, n, dtype=torch.float64, generator=generator).mul(2).softmax(-1)
                average = average_over_masks(attention, keep)
                gaps.append(float((average / average.sum(1, keepdim=True) - attention).abs().max()))
            rows.append({"n": n, "keep": keep, "gap": mean_and_error(gaps), "seeds": seeds})
    return rows


def measure(*, seeds: int, steps: int, depths: list[int], rates: list[float]) -> dict[str, Any]:
    """All three, as one record."""
    return {
        "gaps": gaps(seeds, steps, depths, rates),
        "penalties": penalties([0.01, 0.1, 0.5], [2.0**-k for k in range(6)]),
        "attention": attention_averages([0.5, 0.7, 0.9], [2, 4, 8], seeds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    record = measure(
        seeds=arguments.seeds, steps=arguments.steps, depths=[1, 2, 3, 4], rates=[0.05, 0.1, 0.2, 0.35, 0.5, 0.7]
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "averages.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
