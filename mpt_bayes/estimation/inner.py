"""Models whose conditionals are estimated from draws: the variance they add, kept apart from that of the masks."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from mpt_bayes.checks import Missing
from mpt_bayes.estimation.enumeration import tally_exhaustive
from mpt_bayes.estimation.missing import observed_parts
from mpt_bayes.estimation.scores import chunk_length, tally_masks
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks import Exhaustive, MaskBatch, MaskDesign
from mpt_bayes.models.base import ConditionalModel, EstimatedConditionals, JointModel, is_made_of_draws
from mpt_bayes.numerics.random import Stream
from mpt_bayes.progress import spans_of


def tally_estimated(model: EstimatedConditionals, x: Tensor, design: MaskDesign, stream: Stream) -> Tally:
    """The design on a model made of draws, with their variance; poor draws are warned of once."""
    assert isinstance(model, JointModel)
    model.warn_if_poor(x)
    if isinstance(design, Exhaustive):
        return replace(
            tally_exhaustive(model, x, design), inner_variance=model.inner_variance(x, model.log_prob_influence(x))
        )
    batch = design.draw(model.dim, stream)
    return replace(tally_masks(model, x, batch), inner_variance=inner_variance_of_masks(model, x, batch))


def inner_variance_of_masks(model: EstimatedConditionals, x: Tensor, batch: MaskBatch) -> float:
    """The inner variance of the weighted total of a mask batch over all rows."""
    weight = batch.sampling.log_weight.exp().to(x.device)
    influence = torch.zeros((), dtype=torch.float64, device=x.device)
    for part in spans_of(len(batch), chunk_length(len(x), model.dim)):
        influence = influence + model.score_influence(x, batch.hidden[part].to(x.device), weight[part])
    return model.inner_variance(x, influence)


def inner_standard_error(model: ConditionalModel, x: Tensor, missing: Missing) -> float | None:
    """Of Σ_n log p(x_n) where the model is made of draws; None where it is exact.

    Groups of rows with different missing entries may share draws, so their errors add up in full: an upper bound.
    """
    errors = [
        math.sqrt(part.model.inner_variance(part.x, part.model.log_prob_influence(part.x)))
        for part in observed_parts(model, x, missing)
        if is_made_of_draws(part.model)
    ]
    return sum(errors) if errors else None
