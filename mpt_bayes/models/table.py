"""An explicit joint table over a small alphabet: the oracle for everything."""

from __future__ import annotations

from typing import Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_data, checked_subsets, checked_tensor
from mpt_bayes.errors import DataError, ModelError
from mpt_bayes.models.base import JointModel
from mpt_bayes.models.marginals import conditionals_from_marginals


@final
class JointTable(JointModel):
    """A distribution over D categorical coordinates given as its full table of probabilities.

    Args:
        probabilities: (A_1, …, A_D) non-negative, summing to 1 within 1e-6; then divided by their sum, in
            float64.

    Data are integers, x_j in 0..A_j - 1.

    Raises:
        ModelError: negative or non-finite entries, or a sum other than 1.

    Example:
        >>> model = JointTable(torch.tensor([[0.5, 0.125], [0.25, 0.125]]))
        >>> model.log_marginal_likelihood(torch.tensor([[1, 0]])).exp()
        tensor([0.2500], dtype=torch.float64)
    """

    def __init__(self, probabilities: Tensor) -> None:
        table = checked_tensor(probabilities, "probabilities").to(torch.float64)
        if not bool((table.isfinite() & (table >= 0)).all()):
            raise ModelError("probabilities has negative or non-finite entries: a joint table holds probabilities")
        total = float(table.sum())
        if abs(total - 1) > 1e-6:
            raise ModelError(f"probabilities sums to {total:.6g}, not 1: divide it by its sum")
        self.probabilities = table / table.sum()

    @property
    def dim(self) -> int:
        """D, the number of axes of the table."""
        return self.probabilities.ndim

    @property
    def device(self) -> torch.device:
        """Where the table lives."""
        return self.probabilities.device

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible), as the ratio of two sums over the table."""
        return conditionals_from_marginals(self, x, hidden)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log of the table's entry at x."""
        return self.probabilities[tuple(self._checked(x).T)].log()

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible): the table summed over everything else."""
        checked_subsets(visible, self.dim, "visible", self.device)
        x = self._checked(x)
        result = torch.empty(len(x), len(visible), dtype=torch.float64, device=self.device)
        for p, subset in enumerate(visible):
            axes = subset.nonzero()[:, 0].tolist()
            others = [axis for axis in range(self.dim) if axis not in axes]
            marginal = self.probabilities.sum(others) if others else self.probabilities
            result[:, p] = marginal[tuple(x[:, axes].T)].log() if axes else 0.0
        return result

    def restrict(self, keep: Tensor) -> Self:
        """The table of coordinates `keep`, in that order."""
        others = [axis for axis in range(self.dim) if axis not in keep.tolist()]
        marginal = self.probabilities.sum(others) if others else self.probabilities
        return type(self)(marginal.permute(keep.argsort().argsort().tolist()))

    def _checked(self, x: Tensor) -> Tensor:
        x = checked_data(x, self.dim, dtype=torch.int64, device=self.device)
        outside = ((x < 0) | (x >= torch.tensor(self.probabilities.shape, device=self.device))).any(1)
        if bool(outside.any()):
            raise DataError(
                f"x has a category outside the table in row {int(outside.nonzero()[0])}: "
                f"coordinates take 0..A_j - 1 with A = {list(self.probabilities.shape)}"
            )
        return x
