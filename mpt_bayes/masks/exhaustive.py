"""Every mask there is: no sampling, no standard error, 2^D - 1 masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from mpt_bayes.errors import BudgetError
from mpt_bayes.masks.base import ENUMERATED, CumulativeDesign, MaskBatch
from mpt_bayes.numerics.combinatorics import all_subsets, log_binomial
from mpt_bayes.numerics.random import Stream


@final
@dataclass(frozen=True)
class Exhaustive(CumulativeDesign):
    """All non-empty masks, each with weight 1 / C(D, |M|): the definition of Σ_m S(m).

    Args:
        max_masks: refuse above this number of masks (the default allows D = 20).

    Raises:
        BudgetError: if 2^D - 1 exceeds `max_masks`.

    Example:
        >>> batch = Exhaustive().draw(3, Stream(0))
        >>> len(batch), round(float(batch.sampling.log_weight.exp().sum()), 12)
        (7, 3.0)
    """

    max_masks: int = 2**20

    def draw(self, dim: int, stream: Stream) -> MaskBatch:
        """All masks; the stream is not used."""
        self.check_budget(dim)
        hidden = all_subsets(dim)[1:]
        count = len(hidden)
        return MaskBatch.build(
            hidden,
            log_weight=-log_binomial(dim)[hidden.sum(1)],
            stratum=torch.full((count,), ENUMERATED),
            cluster=torch.arange(count),
        )

    def check_budget(self, dim: int) -> None:
        """Refuse dimensions whose masks cannot all be taken."""
        if 2**dim - 1 > self.max_masks:
            raise BudgetError(
                f"exhaustive enumeration of D = {dim} coordinates takes 2^{dim} - 1 masks, above the budget "
                f"max_masks={self.max_masks}: sample instead, e.g. with RandomOrders(64), or raise max_masks"
            )
