"""One realisation of a design on data: part by part, each by the shortest exact way its model offers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mpt_bayes.checks import Missing
from mpt_bayes.errors import ArgumentError, NotFiniteError
from mpt_bayes.estimation.budget import Budget
from mpt_bayes.estimation.budgeted import tally_budget
from mpt_bayes.estimation.enumeration import tally_closed_form, tally_exhaustive
from mpt_bayes.estimation.inner import tally_estimated
from mpt_bayes.estimation.missing import ObservedPart, observed_parts
from mpt_bayes.estimation.scores import tally_masks, tally_orders
from mpt_bayes.estimation.tally import Tally, combined
from mpt_bayes.masks import Exhaustive, MaskDesign, OrderDesign
from mpt_bayes.masks.base import checked_design
from mpt_bayes.models.base import (
    ConditionalModel,
    HasExactCurve,
    HasOrderCurve,
    HasOrderTotals,
    JointModel,
    OnGrid,
    is_made_of_draws,
)
from mpt_bayes.numerics.random import Stream


def run_design(
    model: ConditionalModel,
    x: Tensor,
    design: MaskDesign | Budget,
    seed: int,
    missing: Missing,
    *,
    per_row: bool = True,
) -> Tally:
    """One realisation of the design, or a budget spent, on the data."""
    parts, tallies = zip(*part_tallies(model, x, design, seed, missing, per_row=per_row), strict=True)
    return combined(list(tallies)).with_rows(torch.cat([part.rows for part in parts]).cpu(), len(x))


def part_tallies(
    model: ConditionalModel,
    x: Tensor,
    design: MaskDesign | Budget,
    seed: int,
    missing: Missing,
    *,
    per_row: bool = True,
) -> Iterator[tuple[ObservedPart, Tally]]:
    """The design on each part of the data; a score that is not finite is named by its row in the whole data."""
    if not isinstance(design, Budget):
        checked_design(design)
    for part in observed_parts(model, x, missing):
        if isinstance(design, Budget) and len(part.x) < len(x) and design.n_evaluations is None:
            raise ArgumentError("rows that miss different entries share no standard error: pass n_evaluations")
        try:
            tally = _part_tally(part, design, Stream(seed).child("masks", *part.key), per_row=per_row)
        except NotFiniteError as error:
            raise NotFiniteError(int(part.rows[error.row]), error.reason) from None
        yield part, tally


def _part_tally(part: ObservedPart, design: MaskDesign | Budget, stream: Stream, *, per_row: bool) -> Tally:
    """The design on data without missing entries, by the shortest exact way the model offers."""
    model, x = part.model, part.x
    if isinstance(model, OnGrid):
        model.warn_of_grid(x)
    if isinstance(design, Budget):
        if is_made_of_draws(model):
            raise ArgumentError("a model made of draws needs a design, which carries its inner error: pass design=")
        return tally_budget(model, x, design, stream)
    if is_made_of_draws(model):
        return tally_estimated(model, x, design, stream)
    if isinstance(design, Exhaustive) and isinstance(model, HasExactCurve):
        return tally_closed_form(model, x)
    if isinstance(design, Exhaustive) and isinstance(model, JointModel):
        return tally_exhaustive(model, x, design)
    if isinstance(design, OrderDesign) and isinstance(model, HasOrderCurve | HasOrderTotals):
        return tally_orders(model, x, design.draw_orders(model.dim, stream), per_row=per_row)
    return tally_masks(model, x, design.draw(model.dim, stream))
