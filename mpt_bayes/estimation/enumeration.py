"""Every subset at once: S(m) = V(D-m+1) - V(D-m), with V(k) the average of log p(x_A) over subsets A of size k."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.estimation.scores import check_finite, chunk_length
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks.exhaustive import Exhaustive
from mpt_bayes.models.base import HasExactCurve, JointModel
from mpt_bayes.models.checked_calls import checked_exact_curve, checked_marginal_log_prob
from mpt_bayes.numerics.combinatorics import all_subsets, log_binomial
from mpt_bayes.progress import spans_of


@torch.no_grad()
def subset_log_probs(model: JointModel, x: Tensor) -> Tensor:
    """(N, 2^D) log p(x_A) of every subset A, in the order of `all_subsets`: 2^D marginals, not 2^D·D conditionals."""
    subsets = all_subsets(model.dim).to(x.device)
    chunk = chunk_length(len(x), model.dim)
    parts = [checked_marginal_log_prob(model, x, subsets[span]) for span in spans_of(len(subsets), chunk)]
    return check_finite(torch.cat(parts, 1)).to(torch.float64)


def tally_exhaustive(model: JointModel, x: Tensor, design: Exhaustive) -> Tally:
    """The exact curve of a joint model by telescoping."""
    design.check_budget(model.dim)
    log_prob = subset_log_probs(model, x)
    size = all_subsets(model.dim).sum(1)
    weight = (-log_binomial(model.dim)).exp()[size].to(x.device)
    average = log_prob.new_zeros(len(x), model.dim + 1).index_add_(1, size.to(x.device), log_prob * weight)
    return Tally.exact(average.diff(dim=1).flip(1).cpu(), n_evaluations=log_prob.numel())


@torch.no_grad()
def tally_closed_form(model: HasExactCurve, x: Tensor) -> Tally:
    """The exact curve where the average over masks has a closed form; each row counts as one evaluation."""
    return Tally.exact(check_finite(checked_exact_curve(model, x)).to(torch.float64).cpu(), n_evaluations=len(x))
