"""The figures and tables of docs/pretraining.md from finished studies.

for study in hmm_laws hmm_plateau hmm_architectures table text; do
    mpt-bayes lm pretrain experiments/pretraining/$study.toml --out runs/$study
done
for seed in 1 2; do  # the comparison of architectures is repeated with other weights, examples and masks
    mpt-bayes lm pretrain experiments/pretraining/hmm_architectures.toml --seed $seed --out runs/hmm_architectures_$seed
done
python experiments/pretraining/figures.py runs docs/figures experiments/pretraining/results
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import mpt_bayes as mb
from mpt_bayes.lm.pretraining import RunComparison, RunFolder, Study, compare_runs, load_corpus, load_run
from mpt_bayes.plots import EXACT, SCORE
from mpt_bayes.pretraining_plots import (
    plot_curve_over_training,
    plot_differences_by_size,
    plot_share_by_size,
    plot_training,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def finished(source: Path) -> dict[str, dict[str, RunFolder]]:
    """The finished runs of every study here and of its repetitions (NAME_SEED), in the order of its configuration."""
    studies = {}
    for config in sorted(Path(__file__).parent.glob("*.toml")):
        names = Study.from_toml(config).configs
        for folder in sorted(source.glob(f"{config.stem}*")):
            runs = {name: RunFolder(folder / name) for name in names}
            studies[folder.name] = {name: run for name, run in runs.items() if run.finished}
    return studies


def compared(study: dict[str, RunFolder]) -> list[RunComparison]:
    """Every run of a study against its first."""
    return compare_runs({name: run.path for name, run in study.items()})


def table(study: dict[str, RunFolder]) -> str:
    """A Markdown table of a study: areas, paired differences from its first run, gains over the untrained self."""
    runs = compared(study)
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


def evidence_per_flop(seeds: list[dict[str, RunFolder]]) -> str:
    """Architecture by mask law, a Markdown table: means over seeds ± standard error over seeds, what half costs.

    Held-out sequences and masks are the same throughout, so the spread over seeds is that of training alone.
    """
    heads = ["run", "share of context", "over the first (area, paired by seed)", "FLOPs", "FLOPs to a share of 0.5"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    first = next(iter(seeds[0]))
    for name in seeds[0]:
        repeated = [runs for runs in seeds if name in runs]
        results = [runs[name].result() for runs in repeated]
        over = [runs[name].result()["total"] - runs[first].result()["total"] for runs in repeated]
        half = [flops_to_share(runs[name], 0.5) for runs in repeated]
        cells = [
            name,
            spread([result["share"] for result in results], ".3f"),
            "" if name == first else spread(over, "+.2f"),
            f"{np.mean([result['flops'] for result in results]):.2e}",
            " / ".join("not reached" if flops is None else f"{flops:.1e}" for flops in half),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shares(study: dict[str, RunFolder], sizes: tuple[int, ...] = (1, 8, 16, 24, 28, 30, 31)) -> str:
    """The share of context each run captures at some mask sizes, a Markdown table."""
    lines = ["| run | " + " | ".join(f"m = {m}" for m in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    for name, run in study.items():
        result = run.result()
        share, error = result["share_by_size"], result["share_by_size_standard_errors"]
        cells = (f"{share[m - 1]:.2f} ± {error[m - 1]:.2f}" for m in sizes if m <= len(share))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def spread(values: list[float], form: str) -> str:
    """Mean ± standard error over seeds; the value alone if there is one seed."""
    mean = f"{np.mean(values):{form}}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1) / len(values) ** 0.5:{form.lstrip('+')}}"


def flops_to_share(run: RunFolder, share: float) -> float | None:
    """Training FLOPs at which the share of context was first reached, between evaluations by a straight line."""
    rows = run.rows("evaluation")
    for before, after in pairwise(rows):
        if after["share"] >= share:
            part = (share - before["share"]) / (after["share"] - before["share"])
            return float(before["flops"] + part * (after["flops"] - before["flops"]))
    return None


def plot_evidence_per_flop(seeds: list[dict[str, RunFolder]]) -> Axes:
    """Held-out area against training FLOPs: a colour an architecture, a dash a mask law, a line a seed."""
    from matplotlib import pyplot as plt

    _, ax = plt.subplots(figsize=(7.2, 4.6), dpi=100, layout="constrained")
    architectures = {"bert": SCORE, "mae_lm": EXACT, "3ml_self": "#588157", "3ml_cross": "#7b5ea7"}
    dashes = {"uniform": "-", "15": ":", "50": "--"}
    for name in seeds[0]:
        architecture, law = name.rsplit("_", 1)
        for i, runs in enumerate(runs for runs in seeds if name in runs):
            rows = [row for row in runs[name].rows("evaluation") if row["flops"] > 0]
            flops, area = [row["flops"] for row in rows], [row["total"] for row in rows]
            style = {"color": architectures[architecture], "linestyle": dashes[law], "label": name if i == 0 else None}
            ax.plot(flops, area, linewidth=1.3, alpha=0.85, **style)
    start = seeds[0][next(iter(seeds[0]))].rows("evaluation")[0]
    ax.axhline(start["exact_total"], color="0.2", linewidth=1.2)
    ax.axhline(start["context_free_total"], color="0.2", linewidth=1.0, linestyle=":")
    ax.set_xscale("log")
    ax.set_xlabel("training FLOPs (formula)")
    ax.set_ylabel("held-out area Σ S(m), nats per sequence")
    ax.spines[["top", "right"]].set_visible(False)
    ax.figure.legend(frameon=False, fontsize=8, loc="outside right center")
    return ax


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


def record(study: dict[str, RunFolder]) -> list[dict[str, Any]]:
    """JSON-ready: every run's area and cost, paired difference, curves, and evaluations over training."""
    kept = ("step", "flops", "seconds", "total", "total_standard_error", "share", "share_standard_error")
    return [
        {
            **run.row,
            "measured_over_formula": run.result.get("measured_over_formula"),
            "curve": run.scores.curve.round(4).tolist(),
            "difference_by_size": run.difference.curve.round(4).tolist(),
            "difference_by_size_standard_errors": run.difference.curve_standard_errors.round(4).tolist(),
            "evaluations": [
                {key: row[key] for key in kept if key in row} for row in study[run.name].rows("evaluation")
            ],
        }
        for run in compared(study)
    ]


def main(source: str, target: str, results: str | None = None) -> None:
    """Draw what there is, print the tables, and keep the numbers as JSON in the folder `results` if there is one."""
    studies = finished(Path(source))
    laws, text = studies.get("hmm_laws", {}), studies.get("text", {})
    seeds = [runs for name, runs in studies.items() if name.startswith("hmm_architectures")]
    drawings: dict[str, tuple[bool, Callable[[], Axes]]] = {
        "language_share": (bool(laws), lambda: plot_share_by_size(laws)),
        "language_training": (bool(laws), lambda: plot_training(laws, quantity="share", against="step")),
        "language_plateau": (
            bool(studies.get("hmm_plateau")),
            lambda: plot_training(studies["hmm_plateau"], quantity="share", against="step"),
        ),
        "language_flops": (bool(seeds), lambda: plot_evidence_per_flop(seeds)),
        "language_sequences": ("uniform" in laws, lambda: plot_sequences(laws["uniform"])),
        "text_training": (bool(text), lambda: plot_training(text)),
        "text_curve": ("fixed_40" in text, lambda: plot_curve_over_training(text["fixed_40"])),
        "text_laws": (len(text) > 1, lambda: plot_differences_by_size(compared(text))),
    }
    for name, (there, draw) in drawings.items():
        if there:
            draw().get_figure().savefig(Path(target) / f"{name}.png")
    for name, runs in studies.items():
        if runs:
            print(f"\n{name}\n\n{table(runs)}")
            if results is not None:
                Path(results).mkdir(exist_ok=True)
                (Path(results) / f"{name}.json").write_text(json.dumps(record(runs), indent=1) + "\n")
    if laws:
        print(f"\n{shares(laws)}")
    if seeds:
        print(f"\n{len(seeds)} seeds\n\n{evidence_per_flop(seeds)}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
