"""The figures and tables of docs/pretraining.md from finished studies.

for study in hmm_laws hmm_plateau hmm_architectures table text; do
    mpt-bayes lm pretrain experiments/pretraining/$study.toml --out runs/$study
done
python experiments/pretraining/figures.py runs docs/figures
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import mpt_bayes as mb
from mpt_bayes.lm.pretraining import RunFolder, compare_runs, load_corpus, load_run
from mpt_bayes.plots import EXACT, SCORE
from mpt_bayes.pretraining_plots import plot_curve_over_training, plot_share_by_size, plot_training

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def finished(study: Path) -> dict[str, RunFolder]:
    """The finished runs of a study, in the order they were started."""
    runs = [RunFolder(path) for path in study.iterdir() if RunFolder(path).finished]
    runs.sort(key=lambda run: (run.path / "config.json").stat().st_mtime)
    return {run.path.name: run for run in runs}


def table(study: Path) -> str:
    """A Markdown table of a study: areas, paired differences from its first run, gains over the untrained self."""
    runs = compare_runs({name: run.path for name, run in finished(study).items()})
    known = "share" in runs[0].row
    heads = [
        "run",
        "area Σ S(m)",
        f"over {runs[0].name}",
        "over its untrained self",
        *["share of context"] * known,
        "FLOPs",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for run in runs:
        row = run.row
        cells = [
            run.name,
            f"{row['area']:.2f} ± {row['area_standard_error']:.2f}",
            f"{row['difference']:+.2f} ± {row['difference_standard_error']:.2f}" if run is not runs[0] else "",
            f"{row['gain_over_untrained']:+.2f} ± {row['gain_standard_error']:.2f}",
            *([f"{row['share']:.3f} ± {row['share_standard_error']:.3f}"] if known else []),
            f"{row['flops']:.1e}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot_sequences(run: RunFolder, *, count: int = 64, orders: int = 8) -> Axes:
    """Sequence by sequence: the network's cumulative score against the exact log-likelihood of the language.

    The language scored under the same masks is a control variate: its own error is known and taken off.
    """
    from matplotlib import pyplot as plt

    corpus = load_corpus(run.config().corpus)
    x = torch.stack([text.ids for text in corpus.held_out[:count]])
    bound = mb.lm.TextConditional(load_run(run.path).model, corpus.held_out[0])
    design, joint = mb.masks.RandomOrders(orders), corpus.language.joint
    network, language = (mb.cumulative_score(model, x, design=design).per_row for model in (bound, joint))
    exact = joint.log_marginal_likelihood(x).numpy()
    score = network - language + exact
    gap, spread = (score - exact).mean(), (score - exact).std(ddof=1)
    print(f"{run.path.name}: network - exact {gap:.3f} nats per sequence, sd over sequences {spread:.3f},")
    print(f"  correlation over sequences {np.corrcoef(score, exact)[0, 1]:.4f}")
    _, ax = plt.subplots(figsize=(5.0, 4.4), dpi=110, layout="constrained")
    ax.plot([exact.min(), exact.max()], [exact.min(), exact.max()], color=EXACT, linewidth=1.2, label="equal")
    ax.plot(exact, score, "o", color=SCORE, markersize=4, alpha=0.8, label="held-out sequences")
    ax.set_xlabel("exact log-likelihood, nats")
    ax.set_ylabel("cumulative score of the network, nats")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def main(source: str, target: str) -> None:
    """Draw what there is."""
    studies = {path.name: finished(path) for path in sorted(Path(source).iterdir())}
    laws, text = studies.get("hmm_laws", {}), studies.get("text", {})
    drawings: dict[str, tuple[bool, Callable[[], Axes]]] = {
        "language_share": (bool(laws), lambda: plot_share_by_size(laws)),
        "language_training": (bool(laws), lambda: plot_training(laws, quantity="share", against="step")),
        "language_plateau": (
            "hmm_plateau" in studies,
            lambda: plot_training(studies["hmm_plateau"], quantity="share", against="step"),
        ),
        "language_flops": ("hmm_architectures" in studies, lambda: plot_training(studies["hmm_architectures"])),
        "language_sequences": ("uniform" in laws, lambda: plot_sequences(laws["uniform"])),
        "text_training": (bool(text), lambda: plot_training(text)),
        "text_curve": ("uniform" in text, lambda: plot_curve_over_training(text["uniform"])),
    }
    for name, (there, draw) in drawings.items():
        if there:
            draw().get_figure().savefig(Path(target) / f"{name}.png")
    for name, runs in studies.items():
        if runs:
            print(f"\n{name}\n\n{table(Path(source) / name)}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
