"""Cost of a latent bank: linear in masks and in rows, and one matrix product against a loop over states.

    python benchmarks/latent_bank.py [--plot docs/figures/latent_bank_cost.png]

Each ratio doubles one number and is the median of interleaved pairs, in processor time: 2 means linear.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import mpt_bayes as mb

N_ROWS, DIM, N_STATES, N_MASKS, REPEATS = 200, 100, 100, 100, 7


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def interleaved(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float, float]:
    """Median seconds of each, and the median ratio of pairs run one after the other."""
    pairs = [(seconds(first), seconds(second)) for _ in range(REPEATS)]
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    return a, b, statistics.median(y / x for x, y in pairs)


def looped(model: mb.models.Mixture, x: Tensor, hidden: Tensor) -> Tensor:
    """The same conditionals, one mask and one state at a time: what the matrix product replaces."""
    terms = model.emission.log_prob(x)
    result = torch.zeros(len(x), *hidden.shape, dtype=torch.float64)
    for p, mask in enumerate(hidden):
        state = (model.log_weight + terms[:, :, ~mask].sum(2)).log_softmax(1)
        result[:, p] = torch.where(mask, (state[..., None] + terms).logsumexp(1), 0)
    return result


def growth(model: mb.models.Mixture, x: Tensor, hidden: Tensor, path: Path) -> None:
    """Processor time over growing numbers of masks and of rows, each the best of a few, to a figure."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    numbers = [25, 50, 100, 200, 400]
    for axis, name in zip(axes, ("masks", "rows"), strict=True):
        times = []
        for n in numbers:
            rows, masks = (x[:100], hidden[:n]) if name == "masks" else (x[:n], hidden[:100])
            times.append(min(seconds(lambda: model.masked_log_prob(rows, masks)) for _ in range(REPEATS)))  # noqa: B023
        axis.plot(numbers, times, "o-")
        axis.set(xlabel=f"{name} (100 {'rows' if name == 'masks' else 'masks'})", xlim=(0, None))
        print(f"{name}: " + ", ".join(f"{n}: {t:.4f} s" for n, t in zip(numbers, times, strict=True)))
    axes[0].set(ylabel="processor seconds", ylim=(0, None))
    figure.suptitle("Gaussian mixture, 100 components, 100 coordinates: all conditionals")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    weights = torch.full((N_STATES,), 1 / N_STATES, dtype=torch.float64)
    probabilities = torch.rand(N_STATES, DIM, generator=generator).double()
    binary = mb.models.Mixture.bernoulli(weights, probabilities)
    normal = mb.models.Mixture.gaussian(weights, 4 * probabilities, probabilities + 0.5)
    step = torch.full((20, 20), 0.05, dtype=torch.float64)
    chain = mb.models.HiddenMarkov(
        step[0], step, mb.models.NormalEmission(torch.arange(20.0)[:, None], torch.ones(20, 1)), length=DIM
    )
    x = (torch.rand(2 * N_ROWS, DIM, generator=generator) < 0.5).double()
    hidden = torch.rand(2 * N_MASKS, DIM, generator=generator) < 0.5
    for name, model, rows in (
        ("Bernoulli", binary, N_ROWS),
        ("Gaussian", normal, N_ROWS),
        ("HMM, 20 states", chain, 20),
    ):
        base, more, ratio = interleaved(
            lambda: model.masked_log_prob(x[:rows], hidden[:N_MASKS]),  # noqa: B023
            lambda: model.masked_log_prob(x[:rows], hidden),  # noqa: B023
        )
        print(f"{name:15} twice the masks: {ratio:.2f} times the time ({base:.3f} s to {more:.3f} s)")
        _, more, ratio = interleaved(
            lambda: model.masked_log_prob(x[:rows], hidden[:N_MASKS]),  # noqa: B023
            lambda: model.masked_log_prob(x[: 2 * rows], hidden[:N_MASKS]),  # noqa: B023
        )
        print(f"{name:15} twice the rows:  {ratio:.2f} times the time ({base:.3f} s to {more:.3f} s)")
    for name, model in (("Bernoulli", binary), ("Gaussian", normal)):
        product, loop, ratio = interleaved(
            lambda: model.masked_log_prob(x[:50], hidden[:50]),  # noqa: B023
            lambda: looped(model, x[:50], hidden[:50]),  # noqa: B023
        )
        print(
            f"{name:15} one product against a loop over masks: {ratio:.1f} times faster ({loop:.3f} to {product:.3f} s)"
        )
    if arguments.plot is not None:
        more = (torch.rand(400, DIM, generator=generator) < 0.5).double()
        growth(normal, more, torch.rand(400, DIM, generator=generator) < 0.5, arguments.plot)


if __name__ == "__main__":
    main()
