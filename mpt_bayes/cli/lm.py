"""`mpt-bayes lm`: the commands for masked language models."""

from __future__ import annotations

import typer

from mpt_bayes.cli import lm_curve, lm_pretrain, lm_rank, lm_score

app = typer.Typer(
    help="Masked language models: scores, curves, pre-training and representation rank.", no_args_is_help=True
)

app.command("curve")(lm_curve.curve)
app.command("pretrain")(lm_pretrain.pretrain)
app.command("rank")(lm_rank.rank)
app.command("score")(lm_score.score)
