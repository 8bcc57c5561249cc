"""What a latent state says about one coordinate: a univariate density, with one set of parameters a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from mpt_bayes.checks import checked_data
from mpt_bayes.models.latent_terms import LatentTerms


class Emission(ABC):
    """log p(x_j | state k): K states, D coordinates, independent given the state."""

    @property
    @abstractmethod
    def parameter(self) -> Tensor:
        """A tensor of shape (K, D, ...) whose dtype and device are those of the computation."""

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """(N, K, D) log p(x_nj | state k), -∞ where impossible; x is (N, D).

        Raises:
            DataError: values outside the support, with their row.
        """

    @property
    @abstractmethod
    def is_tabled(self) -> bool:
        """Whether `terms` are tables over a few values, shared by all rows, and not an array of N·K·D numbers."""

    @abstractmethod
    def terms(self, x: Tensor) -> LatentTerms:
        """The same numbers in the form that makes sums over subsets cheapest."""

    @abstractmethod
    def restrict(self, keep: Tensor) -> Self:
        """The same for coordinates `keep` (int64, repeats allowed), in that order."""

    @property
    def n_states(self) -> int:
        """K, the number of states."""
        return self.parameter.shape[0]

    @property
    def dim(self) -> int:
        """D, the number of coordinates."""
        return self.parameter.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.parameter.device

    def _checked(self, x: Tensor) -> Tensor:
        return checked_data(x, self.dim, dtype=self.parameter.dtype, device=self.device)


class FittedEmission(Emission):
    """An emission with a weighted maximum likelihood fit."""

    @classmethod
    @abstractmethod
    def fitted(cls, x: Tensor, responsibility: Tensor) -> Self:
        """Weighted maximum likelihood: the M step of EM. x is (N, D), responsibility (N, K)."""
