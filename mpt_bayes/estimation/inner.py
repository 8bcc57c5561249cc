"""Models whose conditionals are estimated from draws: the variance they add, kept apart from that of the masks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from mpt_bayes.checks import Missing
from mpt_bayes.estimation.enumeration import tally_exhaustive
from mpt_bayes.estimation.missing import observed_parts
from mpt_bayes.estimation.scores import tally_masks
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks import Exhaustive, MaskBatch, MaskDesign
from mpt_bayes.models.base import ConditionalModel, EstimatedConditionals, JointModel, is_made_of_draws
from mpt_bayes.numerics.combinatorics import all_subsets, log_binomial
from mpt_bayes.numerics.random import Stream

INFLUENCES_AT_ONCE = 2**25
"""Numbers of the influence of draws, (sums, rows, states), kept at once."""


def tally_estimated(model: EstimatedConditionals, x: Tensor, design: MaskDesign, stream: Stream) -> Tally:
    """The design on a model made of draws, with their variance; poor draws are warned of once."""
    assert isinstance(model, JointModel)
    model.warn_if_poor(x)
    if isinstance(design, Exhaustive):
        tally, weight = tally_exhaustive(model, x, design), torch.ones(model.dim, dtype=torch.float64)
        influences = _exact_influences(model, x)
    else:
        batch = design.draw(model.dim, stream)
        by_size = torch.zeros(model.dim, dtype=torch.float64)
        weight = by_size.index_add(0, batch.sampling.sizes - 1, batch.sampling.log_weight.exp())
        tally, influences = tally_masks(model, x, batch), _sampled_influences(model, x, batch)
    scores, partials, so_far = [], [], torch.zeros((), device=x.device)
    for share, influence in zip(weight.tolist(), influences, strict=True):
        so_far = so_far + influence
        scores.append(model.inner_variance(x, influence / share) if share else math.nan)
        partials.append(model.inner_variance(x, so_far))
    return replace(
        tally,
        score_inner_variances=torch.tensor(scores, dtype=torch.float64),
        partial_inner_variances=torch.tensor(partials, dtype=torch.float64),
    )


def _sampled_influences(model: EstimatedConditionals, x: Tensor, batch: MaskBatch) -> Iterator[Tensor]:
    """(N, K) for each size m = 1..D: the influence of the draws on the weighted sum of the scores of that size."""
    weight, sizes = batch.sampling.log_weight.exp(), batch.sampling.sizes
    for wanted in torch.arange(1, model.dim + 1).split(_sums_at_once(model, x)):
        member = (sizes >= wanted[0]) & (sizes <= wanted[-1])
        by_size = weight[member, None] * (sizes[member, None] == wanted)
        yield from model.score_influence(x, batch.hidden[member].to(x.device), by_size.to(x.device))


def _exact_influences(model: EstimatedConditionals, x: Tensor) -> Iterator[Tensor]:
    """(N, K) for each size m = 1..D: the influence on S(m) = V(D-m+1) - V(D-m), V(k) the mean over subsets of k."""
    subsets = all_subsets(model.dim)
    sizes, even = subsets.sum(1), (-log_binomial(model.dim)).exp()
    larger = None
    for size in range(model.dim, -1, -1):
        member = sizes == size
        weight = even[size].expand(int(member.sum()), 1).to(x.device)
        (influence,) = model.log_prob_influence(x, subsets[member].to(x.device), weight)
        if larger is not None:
            yield larger - influence
        larger = influence


def inner_variances(model: EstimatedConditionals, x: Tensor, subsets: Tensor, weight: Tensor) -> Tensor:
    """(J,) inner variances of the J totals Σ_n Σ_p weight_pj log p(x_n,A_p), for (P, D) subsets and (P, J) weights."""
    found = []
    for columns in weight.split(_sums_at_once(model, x), 1):
        used = (columns != 0).any(1)
        influences = model.log_prob_influence(x, subsets[used].to(x.device), columns[used].to(x.device))
        found += [model.inner_variance(x, influence) for influence in influences]
    return torch.tensor(found, dtype=torch.float64)


def inner_error_of_masks(model: ConditionalModel, x: Tensor, hidden: Tensor) -> float | None:
    """Of Σ_n Σ_p s(M_p) where the model is made of draws; None where it is exact."""
    if not is_made_of_draws(model):
        return None
    (influence,) = model.score_influence(x, hidden, torch.ones(len(hidden), 1, dtype=torch.float64, device=x.device))
    return math.sqrt(model.inner_variance(x, influence))


def inner_standard_error(model: ConditionalModel, x: Tensor, missing: Missing) -> float | None:
    """Of Σ_n log p(x_n) where the model is made of draws; None where it is exact.

    Groups of rows with different missing entries may share draws, so their errors add up in full: an upper bound.
    """
    errors = []
    for part in observed_parts(model, x, missing):
        if is_made_of_draws(part.model):
            everything = torch.ones(1, part.model.dim, dtype=torch.bool)
            errors.append(math.sqrt(inner_variances(part.model, part.x, everything, torch.ones(1, 1))))
    return sum(errors) if errors else None


def _sums_at_once(model: EstimatedConditionals, x: Tensor) -> int:
    return max(1, INFLUENCES_AT_ONCE // (len(x) * model.n_states))
