"""Model × masks → scores, in chunks that fit a memory budget."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.errors import DataError, NotFiniteError
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks.base import MaskBatch, OrderBatch
from mpt_bayes.models.base import ConditionalModel, HasOrderCurve, HasOrderTotals, OrderTotals
from mpt_bayes.models.checked_calls import checked_masked_log_prob, checked_order_curve, checked_order_totals
from mpt_bayes.progress import spans_of

MEMORY_BUDGET = 2**29
"""Bytes a chunk of masks may take; the working arrays of a model are a small multiple of (masks, rows + D, D)."""


@torch.no_grad()
def mask_scores(model: ConditionalModel, x: Tensor, hidden: Tensor) -> Tensor:
    """(N, P) s(M): the mean log-probability of the hidden coordinates, each given the visible ones.

    Raises:
        NotFiniteError: with its row: a hidden value of probability zero, or NaN in the model.
        ModelError: a result of another shape or kind.
    """
    scores = checked_masked_log_prob(model, x, hidden).sum(2) / hidden.sum(1)
    return check_finite(scores)


def check_finite(scores: Tensor) -> Tensor:
    """The scores (rows first), or an error that names the first row that is not finite."""
    bad = ~scores.isfinite()
    if bool(bad.any()):
        row = int(bad.reshape(len(scores), -1).any(1).nonzero()[0])
        why = "a value of probability zero" if bool(scores[row].isneginf().any()) else "NaN or infinite log-probability"
        raise NotFiniteError(row, why)
    return scores


def tally_masks(model: ConditionalModel, x: Tensor, batch: MaskBatch) -> Tally:
    """Scores of a mask batch, chunk by chunk, reduced to sums and variances."""
    weight = batch.sampling.log_weight.exp().to(x.device)
    mask_totals = torch.empty(len(batch), dtype=torch.float64)
    per_row = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    chunk = chunk_length(len(x), model.dim)
    for part in spans_of(len(batch), chunk):
        scores = mask_scores(model, x, batch.hidden[part].to(x.device)).to(torch.float64)
        mask_totals[part] = scores.sum(0).cpu()
        per_row += scores @ weight[part]
    return Tally.sampled(batch.sampling, mask_totals, per_row.cpu(), model.dim)


@torch.no_grad()
def tally_orders(model: HasOrderCurve | HasOrderTotals, x: Tensor, batch: OrderBatch, *, per_row: bool) -> Tally:
    """Whole curves of a batch of orders by the model's own fast path; by sums over rows alone where it has them."""
    n, dim = batch.orders.shape
    totals = torch.empty(n, dim, dtype=torch.float64)
    rows = torch.full((len(x),), 0.0 if per_row else torch.nan, dtype=torch.float64, device=x.device)
    rows_at_once = 0 if isinstance(model, HasOrderTotals) else len(x)
    for part in spans_of(n, chunk_length(rows_at_once, dim)):
        orders = batch.orders[part].to(x.device)
        result = _order_totals(model, x, orders, per_row=per_row)
        totals[part] = result.curves.to(torch.float64).cpu()
        if per_row and result.per_row is not None:
            rows += check_finite(result.per_row).to(torch.float64) * (len(orders) / n)
    if not bool(totals.isfinite().all()):
        if not per_row:
            return tally_orders(model, x, batch, per_row=True)  # which names the row
        raise DataError("a sum of finite scores over rows is not finite: scale the data or the model")
    return Tally.of_orders(totals, batch.cluster, rows.cpu())


def _order_totals(model: HasOrderCurve | HasOrderTotals, x: Tensor, orders: Tensor, *, per_row: bool) -> OrderTotals:
    """The model's own sums over rows, or those of its curve of every row."""
    if isinstance(model, HasOrderTotals):
        return checked_order_totals(model, x, orders, per_row=per_row)
    curves = check_finite(checked_order_curve(model, x, orders)).to(torch.float64)
    return OrderTotals(curves.sum(0), curves.sum(2).mean(1))


def chunk_length(n_rows: int, dim: int) -> int:
    """How many masks (or orders) to score at once."""
    return max(1, MEMORY_BUDGET // (8 * 4 * dim * (dim + n_rows)))
