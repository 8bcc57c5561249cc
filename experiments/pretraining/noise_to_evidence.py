"""From noise to evidence, side by side: PPCA trained by masked prediction on the wines, and a BERT on a language.

The figure of Moreno-Muñoz, Recasens and Hauberg (2023): the area under the score curve grows from that of an untrained
model to the log marginal likelihood; for PPCA that of maximum likelihood, for the network that of the language itself.

    python experiments/pretraining/noise_to_evidence.py RUN_FOLDER FIGURE.png
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import mpt_bayes as mb
from mpt_bayes.lm.pretraining import RunFolder
from mpt_bayes.numerics.random import Stream
from mpt_bayes.plots import EXACT, SCORE
from mpt_bayes.pretraining_plots import plot_curve_over_training

LATENT = 3
BATCH, MASKS = 32, 8


@dataclass(frozen=True)
class Moment:
    """PPCA at one step of training: its exact curve and log marginal likelihood, per datum."""

    step: int
    curve: np.ndarray
    log_marginal_likelihood: float


def train_ppca(x: Tensor, *, steps: int, moments: int = 5, seed: int = 0) -> list[Moment]:
    """Masked training of PPCA from a random start: uniform sizes, so D times the loss is unbiased for -log p(x)."""
    dim = x.shape[1]
    stream = Stream(seed)
    start = torch.randn(dim, LATENT, dtype=torch.float64, generator=stream.child("start").generator())
    loading = (2.0 * start).requires_grad_()
    log_noise = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([loading, log_noise], lr=0.02)
    shown = {0, *np.geomspace(10, steps, moments - 1).round().astype(int).tolist()}
    found = []
    for step in range(steps + 1):
        if step in shown:
            model = mb.models.PPCA(loading.detach(), log_noise.detach().exp(), x.mean(0))
            curve = mb.score_curve(model, x).per_datum
            exact = float(model.log_marginal_likelihood(x).mean())
            found.append(Moment(step, curve.scores, exact))
        rows = torch.randint(len(x), (BATCH,), generator=stream.child("rows", step).generator())
        hidden = mb.masks.UniformSize(MASKS).draw(dim, stream.child("masks", step)).hidden
        model = mb.models.PPCA(loading, log_noise.exp(), x.mean(0))
        scores = model.masked_log_prob(x[rows], hidden).sum(2) / hidden.sum(1)
        optimiser.zero_grad()
        (-dim * scores.mean()).backward()
        optimiser.step()
    return found


def main(folder: str, figure: str, *, steps: int = 2000) -> list[Moment]:
    """Train PPCA, and draw it beside a finished run of `mpt-bayes lm pretrain`."""
    from matplotlib import pyplot as plt

    x = mb.datasets.load("wine").x
    x = (x - x.mean(0)) / x.std(0, correction=0)
    moments = train_ppca(x, steps=steps)
    best = mb.models.PPCA(latent_dim=LATENT).fit(x)
    drawn, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), dpi=110, layout="constrained")
    sizes = np.arange(1, x.shape[1] + 1)
    for i, moment in enumerate(moments):
        depth = (i + 1) / len(moments)
        label = f"step {moment.step:,}: area {moment.log_marginal_likelihood:.2f}"
        left.plot(sizes, moment.curve, color=SCORE, alpha=0.25 + 0.75 * depth, linewidth=1 + depth, label=label)
    maximum = float(best.log_marginal_likelihood(x).mean())
    left.plot(sizes, mb.score_curve(best, x).per_datum.scores, color=EXACT, label=f"maximum likelihood: {maximum:.2f}")
    left.set_title("PPCA, wine (13 standardised measurements)", fontsize=10)
    left.set_xlabel("hidden coordinates m")
    left.set_ylabel("score S(m), nats per datum")
    left.legend(frameon=False, fontsize=8)
    left.spines[["top", "right"]].set_visible(False)
    plot_curve_over_training(RunFolder(Path(folder)), ax=right)
    right.set_title("BERT, hidden Markov language (32 letters)", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    drawn.savefig(figure)
    plt.close(drawn)
    for moment in moments:
        print(
            f"PPCA step {moment.step:5d}: {moment.log_marginal_likelihood:9.4f} nats per datum (maximum {maximum:.4f})"
        )
    return moments


if __name__ == "__main__":
    main(*sys.argv[1:3])
