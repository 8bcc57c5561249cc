"""The chain rule along random orders."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import Missing, checked_count
from mpt_bayes.digest import data_digest
from mpt_bayes.estimation.compare import known_log_marginal_likelihood
from mpt_bayes.estimation.missing import check_doors, observed_parts
from mpt_bayes.estimation.scores import check_finite, chunk_length
from mpt_bayes.masks import OrderBatch, RandomOrders
from mpt_bayes.models.base import ConditionalModel
from mpt_bayes.models.checked_calls import checked_masked_log_prob
from mpt_bayes.numerics.random import Stream, seed_from
from mpt_bayes.progress import spans_of
from mpt_bayes.results import ChainRule


def chain_rule(
    model: ConditionalModel,
    x: Tensor,
    *,
    n_orders: int = 16,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
) -> ChainRule:
    """Σ_t log p(x_π(t) | x_π(1..t-1)) along `n_orders` random orders π, in nats.

    For the conditionals of one joint every order gives log p(x) exactly, so the spread over orders is zero but for
    rounding; otherwise it measures how incoherent the conditionals are (a masked language model's are: Young and You
    2022), and the mean over orders is the expected order-agnostic log-likelihood (Uria, Murray and Larochelle 2014).

    Args:
        model, x, missing: as for `score_curve`.
        n_orders: random orders; every row is walked along the same ones.
        generator: source of the orders; None means seed 0.

    Raises:
        ArgumentError: fewer than one order.
        DataError: as `score_curve`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
        >>> walk = mb.chain_rule(model, torch.ones(2, 3), n_orders=4)
        >>> walk.spread < 1e-12, abs(walk.value - walk.log_marginal_likelihood) < 1e-12
        (True, True)
    """
    check_doors(model, x)
    seed = seed_from(generator)
    sums = torch.zeros(len(x), checked_count(n_orders, "n_orders"), dtype=torch.float64)
    n_evaluations = 0
    for part in observed_parts(model, x, missing):
        batch = RandomOrders(n_orders).draw_orders(part.model.dim, Stream(seed).child("masks", *part.key))
        sums[part.rows.cpu()] = chain_log_probs(part.model, part.x, batch).sum(2).cpu()
        n_evaluations += len(part.rows) * batch.orders.numel()
    return ChainRule(
        sums=sums.numpy(),
        log_marginal_likelihood=known_log_marginal_likelihood(model, x, missing),
        n_evaluations=n_evaluations,
        seed=seed,
        data_digest=data_digest(x),
    )


@torch.no_grad()
def chain_log_probs(model: ConditionalModel, x: Tensor, batch: OrderBatch) -> Tensor:
    """(N, n, D): entry t is log p of the t-th coordinate of the order given those before it.

    The nested masks of an order hide its last 1..D coordinates; of each, only the coordinate revealed next is kept.
    """
    hidden = batch.masks().hidden.to(x.device)
    revealed_next = batch.orders.flip(1).reshape(-1).to(x.device)
    log_prob = torch.empty(len(x), len(hidden), dtype=torch.float64, device=x.device)
    for span in spans_of(len(hidden), chunk_length(len(x), model.dim)):
        of_masks = checked_masked_log_prob(model, x, hidden[span])
        index = revealed_next[span][None, :, None].expand(len(x), -1, 1)
        log_prob[:, span] = of_masks.gather(2, index)[:, :, 0].to(torch.float64)
    return check_finite(log_prob).reshape(len(x), *batch.orders.shape).flip(2)
