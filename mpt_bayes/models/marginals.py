"""The marginal of any joint model over some of its coordinates, and conditionals as ratios of marginals."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_hidden, checked_subsets, checked_tensor
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models.base import JointModel, Restrictable
from mpt_bayes.models.checked_calls import checked_marginal_log_prob


def restrict(model: JointModel, keep: Tensor) -> JointModel:
    """The marginal model over the coordinates `keep`, in that order: missing coordinates integrated out exactly.

    With `keep` a permutation this relabels the coordinates. Models that can, return their own kind.

    Raises:
        ArgumentError: if `keep` is empty or repeats a coordinate.
    """
    checked_tensor(keep, "keep")
    if keep.numel() == 0 or keep.unique().numel() != keep.numel():
        raise ArgumentError(f"keep must name at least one coordinate, each once: got {keep.tolist()}")
    return model.restrict(keep) if isinstance(model, Restrictable) else _Marginal(model, keep)


def conditionals_from_marginals(model: JointModel, x: Tensor, hidden: Tensor) -> Tensor:
    """masked_log_prob by its definition, log p(x_j | x_R) = log p(x_R, x_j) - log p(x_R); each subset evaluated once.

    For joint models that have no shorter way from marginals to conditionals.
    """
    checked_hidden(hidden, model.dim, model.device)
    mask, coordinate = hidden.nonzero(as_tuple=True)
    larger = ~hidden[mask]
    larger[torch.arange(len(mask)), coordinate] = True
    subsets, index = torch.cat([~hidden, larger]).unique(dim=0, return_inverse=True)
    log_prob = checked_marginal_log_prob(model, x, subsets)
    result = log_prob.new_zeros(len(x), *hidden.shape)
    result[:, mask, coordinate] = log_prob[:, index[len(hidden) :]] - log_prob[:, index[mask]]
    return result


@final
class _Marginal(JointModel):
    """The marginal of any joint model over some of its coordinates, by asking it for subsets of those only."""

    def __init__(self, model: JointModel, keep: Tensor) -> None:
        self._model = model
        self._keep = keep

    @property
    def dim(self) -> int:
        return len(self._keep)

    @property
    def device(self) -> torch.device:
        return self._model.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        return conditionals_from_marginals(self, x, hidden)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P), the model's own at subsets of the coordinates kept."""
        checked_subsets(visible, self.dim, "visible", self.device)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise DataError(f"x has shape {tuple(x.shape)}: expected (N, {self.dim})")
        whole = x.new_zeros(len(x), self._model.dim)  # any admissible value serves where nothing is asked
        whole[:, self._keep] = x
        subsets = visible.new_zeros(len(visible), self._model.dim)
        subsets[:, self._keep] = visible
        return checked_marginal_log_prob(self._model, whole, subsets)
