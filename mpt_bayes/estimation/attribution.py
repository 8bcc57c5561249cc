"""Shapley shares of log p(x): which coordinates the evidence comes from."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import Missing, named
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError
from mpt_bayes.estimation.chain import chain_log_probs
from mpt_bayes.estimation.enumeration import subset_log_probs
from mpt_bayes.estimation.inner import inner_variances
from mpt_bayes.estimation.missing import ObservedPart, check_doors, observed_parts
from mpt_bayes.masks import Exhaustive, MaskDesign, OrderBatch, OrderDesign, RandomOrders
from mpt_bayes.models.base import ConditionalModel, JointModel, is_made_of_draws
from mpt_bayes.numerics.combinatorics import all_subsets, log_binomial
from mpt_bayes.numerics.random import Stream, seed_from
from mpt_bayes.results import Attribution

EXACT_UP_TO = 12
"""Coordinates up to which a joint model's shares are exact unless a design is given: 4,096 marginals."""


def attribution(
    model: ConditionalModel,
    x: Tensor,
    *,
    design: MaskDesign | None = None,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
) -> Attribution:
    """The Shapley value of every coordinate in the game v(A) = log p(x_A), in nats.

    φ_j = Σ_{A∌j} |A|! (D-|A|-1)! / D! · log p(x_j | x_A) (Shapley 1953), and Σ_j φ_j = log p(x). From sampled orders
    the shares of a row still sum to the chain-rule mean of that row, which is log p(x) for a coherent model.

    Args:
        model, x, missing: as for `score_curve`.
        design: `Exhaustive()` for all subsets of a joint model, or orders; by default exact for a joint model of up to
            12 coordinates, else `RandomOrders(64)`.
        generator: source of the orders; None means seed 0.

    Raises:
        ArgumentError: a design that is neither, or `Exhaustive` for a model without marginals.
        BudgetError: `Exhaustive` for too many coordinates.
        DataError: as `score_curve`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(2), torch.eye(2))
        >>> mb.attribution(model, torch.tensor([[0.0, 2.0]])).shares.round(4)
        array([[-0.9189, -2.9189]])
    """
    check_doors(model, x)
    small = isinstance(model, JointModel) and model.dim <= EXACT_UP_TO
    chosen = design or (Exhaustive() if small else RandomOrders(64))
    if not isinstance(chosen, Exhaustive | OrderDesign):
        raise ArgumentError(
            f"shares come from Exhaustive() or from orders, not from {named(chosen)}: use RandomOrders(64)"
        )
    seed = seed_from(generator)
    shares = torch.zeros(len(x), model.dim, dtype=torch.float64)
    variances = torch.zeros_like(shares)
    coordinate_variances = torch.zeros(model.dim, dtype=torch.float64)
    inner = torch.zeros_like(coordinate_variances) if is_made_of_draws(model) else None
    n_evaluations = 0
    for part in observed_parts(model, x, missing):
        place = (part.rows.cpu()[:, None], part.coordinates.cpu())
        if isinstance(chosen, Exhaustive):
            shares[place] = _exact_shares(part, chosen).cpu()
            n_evaluations += len(part.rows) * 2**part.model.dim
            if inner is not None:
                inner[part.coordinates.cpu()] += _inner_errors(part, *_all_differences(part.model.dim))
            continue
        batch = chosen.draw_orders(part.model.dim, Stream(seed).child("masks", *part.key))
        mean, variance, column_variance = _sampled_shares(part, batch)
        shares[place], variances[place] = mean.cpu(), variance.cpu()
        coordinate_variances[part.coordinates.cpu()] += column_variance.cpu()
        n_evaluations += len(part.rows) * batch.orders.numel()
        if inner is not None:
            inner[part.coordinates.cpu()] += _inner_errors(part, *_differences_along(batch))
    target = "log p(x)" if isinstance(model, JointModel) else "the cumulative score"
    return Attribution(
        shares=shares.numpy(),
        standard_errors=variances.sqrt().numpy(),
        coordinate_standard_errors=coordinate_variances.sqrt().numpy(),
        estimand=f"Shapley shares of {target}",
        design=repr(chosen),
        n_evaluations=n_evaluations,
        seed=None if isinstance(chosen, Exhaustive) else seed,
        data_digest=data_digest(x),
        coordinate_inner_standard_errors=None if inner is None else inner.numpy(),
    )


def _exact_shares(part: ObservedPart, design: Exhaustive) -> Tensor:
    """(N, D) from the log-probability of every subset."""
    if not isinstance(part.model, JointModel):
        raise ArgumentError("a model without marginals has no subsets to enumerate: use RandomOrders(64)")
    dim = part.model.dim
    design.check_budget(dim)
    return subset_log_probs(part.model, part.x) @ _all_differences(dim)[1].to(part.x.device)


def _inner_errors(part: ObservedPart, subsets: Tensor, weight: Tensor) -> Tensor:
    """(D,) inner errors of shares that are differences of log p(x_A); of groups of rows they add up in full."""
    assert is_made_of_draws(part.model)
    return inner_variances(part.model, part.x, subsets, weight).sqrt()


def _all_differences(dim: int) -> tuple[Tensor, Tensor]:
    """All (2^D, D) subsets, and the (2^D, D) weights with which their log-probabilities make up the exact shares."""
    subsets = all_subsets(dim)
    weight_of_size = (-log_binomial(dim - 1)).exp() / dim  # |A|! (D-|A|-1)! / D!
    size = subsets.sum(1, keepdim=True)
    with_j = weight_of_size[(size - 1).clamp_min(0)]
    without_j = weight_of_size[size.clamp_max(dim - 1)]
    return subsets, torch.where(subsets, with_j, -without_j)


def _differences_along(batch: OrderBatch) -> tuple[Tensor, Tensor]:
    """The n·(D+1) first parts of the orders, and the weights with which they make up the shares from these orders."""
    n, dim = batch.orders.shape
    place = batch.orders.argsort(1)
    subsets = place[:, None, :] < torch.arange(dim + 1)[:, None]
    weight = torch.zeros(n, dim + 1, dim, dtype=torch.float64)
    weight.scatter_(1, place[:, None, :] + 1, 1 / n)
    weight.scatter_(1, place[:, None, :], -1 / n)
    return subsets.reshape(-1, dim), weight.reshape(-1, dim)


def _sampled_shares(part: ObservedPart, batch: OrderBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (N, D) of the per-order shares, its variance (N, D), and the variance (D,) of its sum over rows.

    Orders of one cluster were drawn together; clusters are independent and identically distributed.
    """
    orders = batch.orders.to(part.x.device)
    n_orders = len(orders)
    by_order = torch.empty(len(part.x), *orders.shape, dtype=torch.float64, device=part.x.device)
    by_order.scatter_(2, orders.expand(len(part.x), -1, -1), chain_log_probs(part.model, part.x, batch))
    names, cluster = batch.cluster.unique(return_inverse=True)
    sums = by_order.new_zeros(len(part.x), len(names), orders.shape[1])
    sums.index_add_(1, cluster.to(part.x.device), by_order / n_orders)
    if len(names) < 2:
        unknown = torch.full_like(sums[:, 0], torch.nan)
        return sums.sum(1), unknown, unknown[0]
    return sums.sum(1), len(names) * sums.var(1), len(names) * sums.sum(0).var(0)
