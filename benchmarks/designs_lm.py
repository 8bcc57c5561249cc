"""Designs on a real masked language model: variance of the total at 500 forward passes, fit included, and bias.

    python benchmarks/designs_lm.py collect --pool pool.npz      # 20,000 plain draws: about 25 minutes on one core
    python benchmarks/designs_lm.py compare --pool pool.npz      # many runs on masks taken from the pool
    python benchmarks/designs_lm.py fresh --runs 5               # runs on new masks, 500 forward passes each

The model is the antibody BERT of the package antiberty, the text one variable domain of 120 amino acids. `compare` runs
the estimators' own code with every mask replaced by one of the pool that has the same size (no mask twice in a run):
masks of a size are exchangeable, so this is the law of the estimator up to the pool's own sampling error.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import mpt_bayes as mb
from mpt_bayes.estimation import AdaptiveScore, Budget, control
from mpt_bayes.estimation.control import ControlVariate
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.lm.conditional import TextConditional
from mpt_bayes.numerics.random import Stream

SEQUENCE = "trastuzumab|VH"
PASSES = 500


def bound() -> TextConditional:
    """The model on the sequence."""
    model = mb.lm.antibody()
    return TextConditional(model, model.encode(mb.lm.antibody_sequences()[SEQUENCE]))


def collect(file: Path, draws: int, seed: int) -> None:
    """Plain draws with all their log-probabilities, kept as float32; resumed where an earlier call stopped."""
    text = bound()
    new = mb.masks.UniformSize(draws).draw(text.dim, Stream(seed)).hidden.numpy()
    hidden, log_prob = np.zeros((0, text.dim), bool), np.zeros((0, text.dim), np.float32)
    if file.exists():
        hidden, log_prob = (np.load(file)[name] for name in ("hidden", "logp"))
    while len(hidden) < draws:
        part = new[len(hidden) : len(hidden) + 400]
        values = text.evaluate(torch.tensor(part)).to(torch.float32).numpy()
        hidden, log_prob = np.concatenate([hidden, part]), np.concatenate([log_prob, values])
        np.savez(file, hidden=hidden, logp=log_prob)
        print(f"{len(hidden)} of {draws}", flush=True)


class Pool:
    """Plain draws, sorted by size."""

    def __init__(self, file: Path) -> None:
        data = np.load(file)
        self.hidden, self.log_prob = torch.tensor(data["hidden"]), torch.tensor(data["logp"]).double()
        self.size = self.hidden.sum(1)
        self.dim = self.hidden.shape[1]
        self.score = self.log_prob.sum(1) / self.size
        self.members = [(self.size == m).nonzero()[:, 0] for m in range(self.dim + 1)]
        self._place = {row.tobytes(): i for i, row in enumerate(np.packbits(data["hidden"], axis=1))}

    def look_up(self, hidden: Tensor) -> Tensor:
        """(P, D) log-probabilities of masks of the pool; the fully hidden mask is in it."""
        packed = np.packbits(hidden.numpy(), axis=1)
        return self.log_prob[[self._place[row.tobytes()] for row in packed]]

    @contextmanager
    def supplies_masks(self, seed: int) -> Iterator[None]:
        """Inside, designs get masks of the pool for the sizes they draw."""
        queues = [
            iter(rows[torch.randperm(len(rows), generator=_generator(seed, m))].tolist())
            for m, rows in enumerate(self.members)
        ]

        def masks_of_sizes(sizes: Tensor, dim: int, draws: list[Stream]) -> Tensor:
            return self.hidden[[next(queues[int(m)]) for m in sizes]]

        with (
            mock.patch("mpt_bayes.masks.sizes.masks_of_sizes", masks_of_sizes),
            mock.patch("mpt_bayes.estimation.allocation.masks_of_sizes", masks_of_sizes),
        ):
            yield


def _generator(seed: int, size: int) -> torch.Generator:
    return Stream(seed).child("pool", size).generator()


def adaptive(pool: Pool, seed: int) -> Tally:
    """One run at 500 passes."""
    estimator = AdaptiveScore(pool.dim, Budget(n_evaluations=PASSES), Stream(seed))
    while (hidden := estimator.ask()) is not None:
        estimator.tell(pool.look_up(hidden))
    return estimator.tally()


def designed(design: mb.masks.MaskDesign) -> Callable[[Pool, int], Tally]:
    """One run of a design with fixed weights."""

    def run(pool: Pool, seed: int) -> Tally:
        batch = design.draw(pool.dim, Stream(seed))
        score = pool.look_up(batch.hidden).sum(1) / batch.sampling.sizes
        return Tally.sampled(batch.sampling, score, torch.zeros(1), pool.dim)

    return run


def without(*parts: str) -> Callable[[Tensor, Tensor], ControlVariate]:
    """A fit whose given parts are set to zero."""
    fit = ControlVariate.fit

    def reduced(hidden: Tensor, log_prob: Tensor) -> ControlVariate:
        whole = fit(hidden, log_prob)
        kept = {name: getattr(whole, name) * (name not in parts) for name in ("trend", "hidden", "visible")}
        return ControlVariate(**kept)

    return reduced


def compare(file: Path, runs: int) -> None:
    """The table."""
    pool = Pool(file)
    plain = pool.score * pool.dim
    truth, error = float(plain.mean()), float(plain.std() / math.sqrt(len(plain)))
    print(
        f"{SEQUENCE}, D = {pool.dim}; {len(plain)} plain draws: {truth:.2f} ± {error:.2f}, "
        f"sd of one {plain.std():.1f}\n"
    )
    reference = float(plain.var()) / PASSES
    print("| estimator | sd of the total | mean SE | variance, plain = 1 | plain / this | mean - plain, in SE |")
    print("|---|---:|---:|---:|---:|---:|")
    print(f"| UniformSize(500), from the plain draws | {math.sqrt(reference):.3f} | | 1 | 1 | |")
    cases = {
        "StratifiedSizes(500)": (designed(mb.masks.StratifiedSizes(PASSES)), None),
        "pilot and Neyman, no control variates": (adaptive, without("trend", "hidden", "visible")),
        "with coordinate effects": (adaptive, without("visible")),
        "Budget(n_evaluations=500): with visible-side effects": (adaptive, None),
    }
    for name, (run, fit) in cases.items():
        with mock.patch.object(control.ControlVariate, "fit", fit or ControlVariate.fit):
            tallies = []
            for seed in range(runs):
                with pool.supplies_masks(seed):
                    tallies.append(run(pool, seed))
        value = np.array([float(t.partials[-1]) for t in tallies])
        reported = math.sqrt(np.mean([float(t.partial_variances[-1]) for t in tallies]))
        ratio = reference / value.var(ddof=1)
        z = (value.mean() - truth) / math.hypot(error, value.std() / math.sqrt(runs))
        print(
            f"| {name} | {value.std(ddof=1):.3f} | {reported:.3f} | {1 / ratio:.3f} | {ratio:.1f} | {z:+.1f} |",
            flush=True,
        )


def fresh(runs: int) -> None:
    """New masks, new forward passes."""
    text = bound()
    for seed in range(runs):
        generator = torch.Generator().manual_seed(seed)
        print(seed, mb.cumulative_score(text, text.x, n_evaluations=PASSES, generator=generator), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "compare", "fresh"])
    parser.add_argument("--pool", type=Path, default=Path("pool.npz"))
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "collect":
        collect(options.pool, options.draws, options.seed)
    elif options.what == "compare":
        compare(options.pool, options.runs)
    else:
        fresh(options.runs)


if __name__ == "__main__":
    main()
