"""How the time of the Gaussian engine grows: with D, N, K and the number of orders, dense and low rank (on MNIST)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from gaussian_measure import best, orders_of, setting
from torch import Tensor

import mpt_bayes as mb

Clock = Callable[[], float]


def engine_growth(clock: Clock, runs: int) -> list[dict[str, object]]:
    """The dense engine with D (20 orders) and with the number of orders (D = 100), N = 1000."""
    found = []
    for axis, dim, n_orders in [("D", d, 20) for d in (50, 100, 200, 400)] + [("orders", 100, n) for n in (5, 20, 80)]:
        model, x = setting(1000, dim, 5)
        seconds = _seconds(model, x, orders_of(n_orders, dim), clock, runs)
        found.append({"axis": axis, "D": dim, "N": 1000, "orders": n_orders, "engine": seconds})
    return found


def rows_growth(clock: Clock, runs: int) -> list[dict[str, object]]:
    """The dense engine with N (D = 100, 20 orders): the step from N rows to D of the same second moments, the rest
    (the engine on those D rows), and both together; each timed by itself, for one would empty the other's cache."""
    found = []
    for n in (1_000, 10_000, 100_000):
        model, x = setting(n, 100, 5)
        orders, few = orders_of(20, 100), torch.linalg.qr(x, mode="r").R
        work: dict[str, Callable[[], object]] = {
            "second moments (QR)": lambda x=x: torch.linalg.qr(x, mode="r"),
            "after them": lambda m=model, x=few, o=orders: m.order_totals(x, o, per_row=False),
            "engine": lambda m=model, x=x, o=orders: m.order_totals(x, o, per_row=False),
            "engine with per-row totals": lambda m=model, x=x, o=orders: m.order_totals(x, o, per_row=True),
        }
        with torch.no_grad():
            found.append({"N": n, **{name: best({name: do}, clock, runs)[name] for name, do in work.items()}})
    return found


def digits(dim: int, n: int) -> Tensor:
    """(n, dim) binarised MNIST images: every second, fourth, eighth pixel, or two images side by side."""
    images = (mb.datasets.load("mnist-5k").x > 127).to(torch.float64)
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))]
    if dim > images.shape[1]:
        images = images.reshape(-1, dim)
    return images[:n, :: images.shape[1] // dim]


def low_rank_growth(clock: Clock, runs: int) -> list[dict[str, object]]:
    """The low-rank engine on binarised MNIST: with D, K, N and the number of orders, one varied at a time."""
    points = [("D", d, 10, 1, 4) for d in (98, 196, 392, 784, 1568)]
    points += [("K", 784, k, 1, 4) for k in (2, 5, 10, 20, 40)]
    points += [("N", 784, 10, n, 1) for n in (1, 10, 100, 1000)]
    points += [("orders", 784, 10, 1, n) for n in (1, 4, 16)]
    models: dict[tuple[int, int], mb.models.PPCA] = {}
    found = []
    for axis, dim, latent_dim, n, n_orders in points:
        if (dim, latent_dim) not in models:
            models[dim, latent_dim] = mb.models.PPCA(latent_dim=latent_dim).fit(digits(dim, 2500))
        model, x, orders = models[dim, latent_dim], digits(dim, n), orders_of(n_orders, dim)
        point = {"axis": axis, "D": dim, "K": latent_dim, "N": n, "orders": n_orders}
        found.append({**point, "engine": _seconds(model, x, orders, clock, runs)})
    return found


def _seconds(model: mb.models.PPCA, x: Tensor, orders: Tensor, clock: Clock, runs: int) -> float:
    with torch.no_grad():
        return best({"engine": lambda: model.order_totals(x, orders, per_row=False)}, clock, runs)["engine"]


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of log seconds against log size, by least squares."""
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (sizes, seconds))
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def draw(results: dict[str, dict[str, object]], path: Path) -> None:
    """Dense against D and N, low rank against D with D² and D³, low rank against K, N and orders."""
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11.4, 3.3), dpi=100, layout="constrained")
    for kind in ("D", "orders"):
        rows = [r for r in results["growth"]["rows"] if r["axis"] == kind]
        left.plot([r[kind] for r in rows], [r["engine"] for r in rows], marker="o", label=kind)
    rows = results["rows"]["rows"]
    for name, label in (("engine", "N"), ("after them", "N, after the QR")):
        left.plot([r["N"] for r in rows], [r[name] for r in rows], marker="o", label=label)
    left.set_title("dense; else D = 100, N = 1000, 20 orders", fontsize=9)
    rows = [r for r in results["low rank"]["rows"] if r["axis"] == "D"]
    sizes, seconds = [r["D"] for r in rows], [r["engine"] for r in rows]
    middle.plot(sizes, seconds, marker="o", label=f"D, measured: exponent {exponent(sizes[2:], seconds[2:]):.2f}")
    for power, style in ((2, "--"), (3, ":")):
        middle.plot(sizes, [seconds[-1] * (d / sizes[-1]) ** power for d in sizes], style, label=f"D^{power}")
    middle.set_title("low rank on MNIST, K = 10, N = 1, 4 orders", fontsize=9)
    for kind in ("K", "N", "orders"):
        rows = [r for r in results["low rank"]["rows"] if r["axis"] == kind]
        right.plot([r[kind] for r in rows], [r["engine"] for r in rows], marker="o", label=kind)
    right.set_title("low rank, D = 784; N with one order", fontsize=9)
    for ax in (left, middle, right):
        ax.set(xscale="log", yscale="log")
        ax.legend(frameon=False, fontsize=8)
    left.set_ylabel("seconds")
    figure.savefig(path)
