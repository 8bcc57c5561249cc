"""Families of emissions: normal, Bernoulli, categorical and Poisson, each with its fit."""

from __future__ import annotations

from typing import Self, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mpt_bayes.checks import checked_tensor
from mpt_bayes.errors import DataError, ModelError
from mpt_bayes.models.emissions import FittedEmission
from mpt_bayes.models.latent_terms import DenseTerms, LatentTerms, TableTerms
from mpt_bayes.numerics.log_space import LOG_2PI

MOST_CATEGORIES = 2**16
"""A fit refuses codes from here on: they are labels, and a table of all of them would not fit into memory."""


@final
class NormalEmission(FittedEmission):
    """x_j | k ~ N(mean_kj, scale_kj²).

    Args:
        mean, scale: (K, D); scale is a standard deviation, positive.
    """

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        _check_matrix(mean, "mean")
        checked_tensor(scale, "scale")
        if scale.shape != mean.shape or not bool((scale > 0).all()):
            raise ModelError(f"scale must be positive and of shape {tuple(mean.shape)}, like mean")
        self.mean, self.scale = mean, scale

    @property
    def parameter(self) -> Tensor:
        """The means."""
        return self.mean

    def log_prob(self, x: Tensor) -> Tensor:
        """(N, K, D) log normal densities."""
        z = (self._checked(x)[:, None] - self.mean) / self.scale
        return -0.5 * (z.square() + LOG_2PI) - self.scale.log()

    @property
    def is_tabled(self) -> bool:
        """No: values are not few."""
        return False

    def terms(self, x: Tensor) -> LatentTerms:
        """The (N, K, D) array."""
        return DenseTerms(self.log_prob(x))

    def restrict(self, keep: Tensor) -> Self:
        """Coordinates `keep`."""
        return type(self)(self.mean[:, keep], self.scale[:, keep])

    @classmethod
    def fitted(cls, x: Tensor, responsibility: Tensor) -> Self:
        """Weighted means and standard deviations; each variance at least 1e-6 of the column's (as EM can collapse)."""
        overall = x.var(0, correction=0)
        constant = overall <= len(x) * torch.finfo(x.dtype).eps ** 2 * x.square().mean(0)
        if bool(constant.any()):
            raise DataError(
                f"columns {constant.nonzero()[:, 0].tolist()} of x are constant: the likelihood of normal components "
                "is unbounded there; drop them"
            )
        weight = responsibility / responsibility.sum(0)
        mean = weight.T @ x
        variance = torch.stack([w @ (x - m).square() for w, m in zip(weight.T, mean, strict=True)])
        return cls(mean, variance.clamp_min(1e-6 * overall).sqrt())


@final
class BernoulliEmission(FittedEmission):
    """x_j | k ~ Bernoulli, x in {0, 1}, from log-probabilities of both values (so that 0 and 1 are exact).

    Args:
        log_one, log_zero: (K, D) log p(x_j = 1 | k) and log p(x_j = 0 | k).
    """

    def __init__(self, log_one: Tensor, log_zero: Tensor) -> None:
        _check_matrix(log_one, "log_one")
        if checked_tensor(log_zero, "log_zero").shape != log_one.shape:
            raise ModelError(f"log_zero has shape {tuple(log_zero.shape)}: expected {tuple(log_one.shape)}, as log_one")
        off = float(torch.logaddexp(log_one, log_zero).detach().abs().max())
        if not off < 1e-6:
            raise ModelError(f"exp(log_one) + exp(log_zero) is not 1 everywhere (log of the sum {off:.3g})")
        self.log_one, self.log_zero = log_one, log_zero

    @classmethod
    def from_probabilities(cls, probabilities: Tensor) -> Self:
        """From (K, D) probabilities of 1."""
        if not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
            raise ModelError("probabilities has entries outside [0, 1]")
        return cls(probabilities.log(), (-probabilities).log1p())

    @classmethod
    def from_logits(cls, logits: Tensor) -> Self:
        """From (K, D) log odds."""
        return cls(logsigmoid(logits), logsigmoid(-logits))

    @property
    def parameter(self) -> Tensor:
        """log p(x_j = 1 | k)."""
        return self.log_one

    def log_prob(self, x: Tensor) -> Tensor:
        """(N, K, D), chosen by value and never multiplied, so that impossible values give -∞ and not NaN."""
        return torch.where(self._binary(x)[:, None] == 1, self.log_one, self.log_zero)

    @property
    def is_tabled(self) -> bool:
        """Yes: two values."""
        return True

    def terms(self, x: Tensor) -> LatentTerms:
        """Two tables."""
        return TableTerms((self.log_zero, self.log_one), self._binary(x).long())

    def _binary(self, x: Tensor) -> Tensor:
        x = self._checked(x)
        _refuse((x != 0) & (x != 1), "a value other than 0 and 1", "binarise the data")
        return x

    def restrict(self, keep: Tensor) -> Self:
        """Coordinates `keep`."""
        return type(self)(self.log_one[:, keep], self.log_zero[:, keep])

    @classmethod
    def fitted(cls, x: Tensor, responsibility: Tensor) -> Self:
        """Weighted proportions, which may be exactly 0 or 1."""
        return cls.from_probabilities((responsibility.T @ x / responsibility.sum(0)[:, None]).clamp(0, 1))


@final
class CategoricalEmission(FittedEmission):
    """x_j | k ~ Categorical over 0..A-1.

    Args:
        log_probabilities: (K, D, A), each (k, j) a distribution; -∞ for impossible categories.
    """

    def __init__(self, log_probabilities: Tensor) -> None:
        if checked_tensor(log_probabilities, "log_probabilities").ndim != 3:
            raise ModelError(f"log_probabilities has shape {tuple(log_probabilities.shape)}: expected (K, D, A)")
        off = float((log_probabilities.logsumexp(2)).abs().max())
        if not off < 1e-6:
            raise ModelError(f"a row of the category probabilities does not sum to 1 (log of its sum {off:.3g})")
        self.log_probabilities = log_probabilities - log_probabilities.logsumexp(2, keepdim=True)

    @classmethod
    def from_probabilities(cls, probabilities: Tensor) -> Self:
        """From (K, D, A) probabilities."""
        if not bool((probabilities >= 0).all()):
            raise ModelError("probabilities has negative or NaN entries")
        return cls(probabilities.log())

    @property
    def parameter(self) -> Tensor:
        """The log-probabilities."""
        return self.log_probabilities

    def log_prob(self, x: Tensor) -> Tensor:
        """(N, K, D), looked up."""
        coordinate = torch.arange(self.dim, device=self.device)
        return self.log_probabilities[:, coordinate, self._categories(x)].transpose(0, 1)

    @property
    def is_tabled(self) -> bool:
        """For small alphabets; for large ones the (N, K, D) array is cheaper."""
        return self.log_probabilities.shape[2] <= 8

    def terms(self, x: Tensor) -> LatentTerms:
        """One table a category, or the array."""
        if self.is_tabled:
            return TableTerms(self.log_probabilities.unbind(2), self._categories(x))
        return DenseTerms(self.log_prob(x))

    def _categories(self, x: Tensor) -> Tensor:
        x = self._checked(x)
        n_categories = self.log_probabilities.shape[2]
        _refuse(
            (x < 0) | (x >= n_categories) | (x != x.round()),
            f"a category outside 0..{n_categories - 1}",
            "code the categories as integers from 0",
        )
        return x.long()

    def restrict(self, keep: Tensor) -> Self:
        """Coordinates `keep`."""
        return type(self)(self.log_probabilities[:, keep])

    @classmethod
    def fitted(cls, x: Tensor, responsibility: Tensor) -> Self:
        """Weighted proportions over the categories seen anywhere in x."""
        _refuse(
            (x < 0) | (x >= MOST_CATEGORIES) | (x != x.round()),
            "a value that is not a category",
            "code the categories as consecutive integers from 0",
        )
        one_hot = torch.nn.functional.one_hot(x.long()).to(responsibility)
        counts = torch.einsum("nk,nda->kda", responsibility, one_hot)
        return cls.from_probabilities(counts / counts.sum(2, keepdim=True))


@final
class PoissonEmission(FittedEmission):
    """x_j | k ~ Poisson(rate_kj).

    Args:
        rate: (K, D), non-negative; a rate of 0 allows the count 0 only.
    """

    def __init__(self, rate: Tensor) -> None:
        _check_matrix(rate, "rate")
        if not bool((rate >= 0).all()):
            raise ModelError("rate has negative or NaN entries")
        self.rate = rate

    @property
    def parameter(self) -> Tensor:
        """The rates."""
        return self.rate

    def log_prob(self, x: Tensor) -> Tensor:
        """(N, K, D) x log λ - λ - log x!."""
        x = self._checked(x)
        _refuse((x < 0) | (x != x.round()), "a value that is not a count", "pass non-negative integers")
        return torch.xlogy(x[:, None], self.rate) - self.rate - torch.lgamma(x + 1)[:, None]

    @property
    def is_tabled(self) -> bool:
        """No: values are not few."""
        return False

    def terms(self, x: Tensor) -> LatentTerms:
        """The (N, K, D) array."""
        return DenseTerms(self.log_prob(x))

    def restrict(self, keep: Tensor) -> Self:
        """Coordinates `keep`."""
        return type(self)(self.rate[:, keep])

    @classmethod
    def fitted(cls, x: Tensor, responsibility: Tensor) -> Self:
        """Weighted means."""
        _refuse((x < 0) | (x != x.round()), "a value that is not a count", "pass non-negative integers")
        return cls(responsibility.T @ x / responsibility.sum(0)[:, None])


def _check_matrix(value: Tensor, name: str) -> None:
    if checked_tensor(value, name).ndim != 2:
        raise ModelError(f"{name} has shape {tuple(value.shape)}: expected (K, D), one row a state")


def _refuse(outside: Tensor, what: str, remedy: str) -> None:
    rows = outside.any(1)
    if bool(rows.any()):
        raise DataError(f"x has {what} in row {int(rows.nonzero()[0])}: {remedy}")
