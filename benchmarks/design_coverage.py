"""Coverage of 95% intervals for every mask design and for budgets, on three models, over many seeds.

    python benchmarks/design_coverage.py --json docs/design_coverage.json --figure docs/figures/design_coverage.png
    python benchmarks/design_coverage.py --runs 100                             # a quick look

All masks of a model are scored once; a run then only draws masks and looks their scores up.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import stats

import mpt_bayes as mb
from mpt_bayes.estimation import Budget
from mpt_bayes.estimation.adaptive import adaptive_tally
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks import MaskDesign
from mpt_bayes.models import JointModel
from mpt_bayes.numerics.combinatorics import all_subsets
from mpt_bayes.numerics.random import Stream

DIM = 10
M = mb.masks


@dataclass(frozen=True)
class Line:
    """One estimator on one model."""

    model: str
    design: str
    runs: int
    n_evaluations: float
    bias_in_standard_errors: float
    mean_square_error_ratio: float
    degrees_of_freedom: float
    coverage: float


def models() -> dict[str, tuple[JointModel, torch.Tensor]]:
    """Three models of ten coordinates with rows drawn from them."""
    generator = torch.Generator().manual_seed(1991)
    loading = torch.randn(DIM, 2, generator=generator, dtype=torch.float64)
    ppca = mb.models.PPCA(loading, 0.2)
    latent = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(20, DIM, generator=generator, dtype=torch.float64)
    chances = torch.rand(3, DIM, generator=generator, dtype=torch.float64) * 0.9 + 0.05
    mixture = mb.models.Mixture.bernoulli(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), chances)
    rows = torch.bernoulli(chances[[0, 0, 1, 2]], generator=generator)
    return {
        "PPCA D=10": (ppca, latent @ loading.T + noise * math.sqrt(0.2)),
        "Beta-Bernoulli D=10": (mb.models.BetaBernoulli(1.5, 1.0, DIM), torch.tensor([[1] * 7 + [0] * 3])),
        "mixture D=10": (mixture, rows),
    }


def designs() -> list[MaskDesign]:
    """Every design: about a hundred masks, two hundred for policies and distinct masks, and 60 orders or more."""
    spans = M.SpanPolicy(0.4, 2.0)
    table = M.CoordinatePolicy(tuple(np.linspace(0.2, 0.7, DIM).round(2).tolist()))
    words = M.WordPolicy((0, 0, 1, 2, 2, 3, 4, 4, 5, 6), 0.4)
    return [
        M.UniformSize(100),
        M.RandomRate(100),
        M.StratifiedSizes(100, replicates=10),
        M.PerSize(10),
        M.EnumeratedEnds(20),
        M.Partitions(4),
        M.CyclicWindows(6, 3),
        M.RandomOrders(64),
        M.AntitheticOrders(64),
        M.CyclicOrders(20, 3),
        M.PolicyMasks(spans, 200, uniform_share=0.5),
        M.PolicyMasks(table, 200, uniform_share=0.5),
        M.PolicyMasks(words, 200, uniform_share=0.5),
    ]


def label(work: MaskDesign | Budget) -> str:
    """Short enough for a table."""
    if isinstance(work, M.PolicyMasks):
        return f"{type(work.policy).__name__}, {work.uniform_share:.0%} uniform, {work.n_masks}"
    return repr(work)


class Scores:
    """The log-probabilities of every mask, summed over rows."""

    def __init__(self, model: JointModel, x: torch.Tensor) -> None:
        hidden = all_subsets(DIM)
        self.log_prob = torch.zeros(len(hidden), DIM, dtype=torch.float64)
        self.log_prob[1:] = model.masked_log_prob(x, hidden[1:]).sum(0)
        self.score = self.log_prob.sum(1) / hidden.sum(1).clamp_min(1)
        self.exact = float(model.log_marginal_likelihood(x).sum())
        self._place = 2 ** torch.arange(DIM)

    def where(self, hidden: torch.Tensor) -> torch.Tensor:
        """Which row of the table each mask is."""
        return (hidden * self._place).sum(1)

    def run(self, work: MaskDesign | Budget, seed: int) -> Tally:
        """One estimate."""
        if isinstance(work, Budget):
            return adaptive_tally(lambda hidden: self.log_prob[self.where(hidden)], DIM, work, Stream(seed))
        batch = work.draw(DIM, Stream(seed))
        return Tally.sampled(batch.sampling, self.score[self.where(batch.hidden)], torch.zeros(1), DIM)


def measured(name: str, scores: Scores, work: MaskDesign | Budget, runs: int) -> Line:
    """Many runs of one estimator."""
    tallies = [scores.run(work, seed) for seed in range(runs)]
    error = np.array([float(t.partials[-1]) - scores.exact for t in tallies])
    variance = np.array([float(t.partial_variances[-1]) for t in tallies])
    free = variance**2 / np.array([float(t.partial_quartics[-1]) for t in tallies])
    covered = np.abs(error) <= stats.t.ppf(0.975, free) * np.sqrt(variance)
    return Line(
        model=name,
        design=label(work),
        runs=runs,
        n_evaluations=float(np.mean([t.n_evaluations for t in tallies])),
        bias_in_standard_errors=float(error.mean() / (error.std() / math.sqrt(runs))),
        mean_square_error_ratio=float(variance.mean() / error.var()),
        degrees_of_freedom=float(np.median(free)),
        coverage=float(covered.mean()),
    )


def all_lines(runs: int, only: str, kind: str) -> list[Line]:
    """Every design and budget on the chosen models; a line is printed as it is done."""
    lines = []
    for name, (model, x) in models().items():
        if only not in name:
            continue
        scores = Scores(model, x)
        spread = math.sqrt(float(scores.run(Budget(n_evaluations=150), 0).partial_variances[-1]))
        target = Budget(target_standard_error=float(f"{spread:.1g}"))
        budgets = [Budget(n_evaluations=60), Budget(n_evaluations=200), target]
        for work in [*(designs() if kind != "budgets" else []), *(budgets if kind != "designs" else [])]:
            lines.append(measured(name, scores, work, runs))
            print(row(lines[-1]), flush=True)
    return lines


def row(line: Line) -> str:
    """A line of the markdown table."""
    return (
        f"| {line.model} | {line.design} | {line.n_evaluations:.0f} | {line.bias_in_standard_errors:+.2f} | "
        f"{line.mean_square_error_ratio:.2f} | {line.degrees_of_freedom:.0f} | {line.coverage:.2%} |"
    )


def draw_figure(lines: list[Line], file: Path) -> None:
    """Coverage of every line against the nominal level."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(line.design for line in lines if "target" not in line.design))
    names.append("Budget(target_standard_error)")
    figure, axes = plt.subplots(figsize=(7, 5.2), constrained_layout=True)
    axes.axvspan(93, 97, color="0.92", zorder=0)
    axes.axvline(95, color="0.4", linewidth=1)
    for marker, name in zip("os^", dict.fromkeys(line.model for line in lines), strict=False):
        mine = [line for line in lines if line.model == name]
        places = [names.index(line.design) if line.design in names else len(names) - 1 for line in mine]
        axes.plot([100 * line.coverage for line in mine], places, marker, label=name, alpha=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(91, 99)
    axes.set_xlabel(f"coverage of 95% intervals over {lines[0].runs:,} runs, %")
    axes.legend(loc="lower left", fontsize=8)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", default="", help="models whose name holds this")
    parser.add_argument("--kind", choices=["all", "designs", "budgets"], default="all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--merge", type=Path, nargs="*", help="files of earlier parts instead of running")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.merge:
        lines = [Line(**line) for file in options.merge for line in json.loads(file.read_text())]
        print("\n".join(row(line) for line in lines))
    else:
        lines = all_lines(options.runs, options.only, options.kind)
    if options.json:
        options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    if options.figure:
        draw_figure(lines, options.figure)


if __name__ == "__main__":
    main()
