"""The antibody BERT on the 14 bundled variable domains: score curve with standard errors, beside its random twin.

    python benchmarks/lm_antibody.py [--budget 500] [--store FILE] [--figure docs/figures/lm_antibody.png]

About 12 CPU-minutes at 500 passes a sequence; with --store it can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import mpt_bayes as mb
from mpt_bayes.lm.twin import TwinCurves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--twin-budget", type=int, default=100)
    parser.add_argument("--sequences", type=int, default=14)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    sequences = dict(list(mb.lm.antibody_sequences().items())[: options.sequences])
    names, texts = list(sequences), list(sequences.values())
    model = mb.lm.antibody()
    scores = []
    for one, budget in ((model, options.budget), (mb.lm.random_twin(model), options.twin_budget)):
        scores.append(mb.lm.score(one, texts, names=names, budget=budget, store=options.store))
    trained, twin = scores
    rows = [
        {
            "name": text.name,
            "tokens": len(text.tokens),
            "total": round(text.total.value, 3),
            "standard_error": round(text.standard_error, 3),
            "relative_error": round(text.standard_error / abs(text.total.value), 5),
            "twin_per_token": round(other.total.value / len(text.tokens), 4),
        }
        for text, other in zip(trained.texts, twin.texts, strict=True)
    ]
    points = twin.rate_curve(20).score
    report = {
        "passes_a_sequence": options.budget,
        "sequences": rows,
        "largest_relative_error": max(row["relative_error"] for row in rows),
        "total": {"value": trained.total.value, "standard_error": trained.total.standard_error},
        "total_relative_error": trained.total.standard_error / abs(trained.total.value),
        "twin_curve_range": [float(points.min()), float(points.max())],
    }
    print(json.dumps(report, indent=1))
    if options.figure:
        from mpt_bayes.plots import plot_twin_curves

        axes = plot_twin_curves(TwinCurves(trained, twin))
        figure = axes.get_figure()
        figure.savefig(options.figure, dpi=110)


if __name__ == "__main__":
    main()
