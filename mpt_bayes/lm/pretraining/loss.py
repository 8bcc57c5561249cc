"""The training loss: masked log-probabilities, weighted by mask or by token."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.pretraining.config import Weighting


def hidden_log_probs(model: MaskedLM, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(n,) float32 log-probabilities of the hidden tokens of a batch, and the row of each; gradients flow."""
    attended = batch["attended"]
    places = batch["hidden"].nonzero()
    log_prob = model.log_probs(
        batch["ids"], None if bool(attended.all()) else attended.long(), places, batch["target"][batch["hidden"]]
    )
    return log_prob, places[:, 0]


def row_means(values: Tensor, rows: Tensor, n_rows: int) -> Tensor:
    """(n_rows,) mean of the values of each row.

    Example:
        >>> row_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), 2).tolist()
        [2.0, 5.0]
    """
    sums = values.new_zeros(n_rows).index_add(0, rows, values)
    return sums / torch.bincount(rows, minlength=n_rows)


def masked_loss(log_prob: Tensor, rows: Tensor, n_rows: int, weighting: Weighting) -> Tensor:
    """-mean over masks of s(M), or -mean over hidden tokens.

    By mask, D times the loss under the uniform law is an unbiased estimate of -Σ_m S(m), so its gradient is that of
    the cumulative score. By token, a mask of size m weighs m times as much.
    """
    return -(row_means(log_prob, rows, n_rows).mean() if weighting == "mask" else log_prob.mean())
