"""ℓ_kj = log p(x_j | z_k) for a block of rows, held in the form that makes sums over subsets cheapest."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from mpt_bayes.numerics.log_space import log_matmul, subset_sums


class LatentTerms(ABC):
    """ℓ (N, K, D), by what is asked of it."""

    @abstractmethod
    def subset_sums(self, visible: Tensor) -> Tensor:
        """(N, P, K) Σ_{j∈R} ℓ_kj for each of the (P, D) subsets."""

    @abstractmethod
    def predictions(self, log_state: Tensor) -> Tensor:
        """(N, P, D) log Σ_k exp(log_state_npk + ℓ_nkj), for (N, P, K) log-probabilities of the states."""


@final
@dataclass(frozen=True)
class DenseTerms(LatentTerms):
    """The array itself.

    Attributes:
        values: (N, K, D).
    """

    values: Tensor

    def subset_sums(self, visible: Tensor) -> Tensor:
        """One matrix product a row."""
        return subset_sums(self.values, visible).transpose(1, 2)

    def predictions(self, log_state: Tensor) -> Tensor:
        """One matrix product a row."""
        return log_matmul(log_state, self.values)


@final
@dataclass(frozen=True)
class TableTerms(LatentTerms):
    """Few possible values shared by all rows: tables of log-probabilities, and never an (N, K, D) array.

    Attributes:
        tables: A tensors (K, D): log p(x_j = value | z_k) for each value.
        x: (N, D) int64 values.
    """

    tables: tuple[Tensor, ...]
    x: Tensor

    def subset_sums(self, visible: Tensor) -> Tensor:
        """One matrix product a value, over all rows and subsets."""
        total, impossible = torch.zeros((), dtype=self.tables[0].dtype, device=self.x.device), None
        for value, table in enumerate(self.tables):
            chosen = ((self.x == value)[:, None] & visible).to(table.dtype)
            zero = table.isneginf()
            if bool(zero.any()):
                hits = chosen @ zero.T.to(table.dtype) > 0
                impossible = hits if impossible is None else impossible | hits
                table = torch.where(zero, 0, table)
            total = total + chosen @ table.T
        return total if impossible is None else torch.where(impossible, -math.inf, total)

    def predictions(self, log_state: Tensor) -> Tensor:
        """One matrix product a value; each coordinate then takes the value it has."""
        flat = log_state.reshape(1, -1, log_state.shape[2])
        shape = (*log_state.shape[:2], -1)
        result = log_matmul(flat, self.tables[0]).reshape(shape)
        for value, table in enumerate(self.tables[1:], 1):
            prediction = log_matmul(flat, table).reshape(shape)
            result = torch.where((self.x == value)[:, None], prediction, result)
        return result
