"""Exchangeable conjugate models: counts are sufficient, and the whole curve has a closed form."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count, checked_data, checked_hidden, checked_subsets, checked_tensor
from mpt_bayes.errors import DataError, ModelError
from mpt_bayes.models.base import JointModel
from mpt_bayes.numerics.combinatorics import log_binomial


class PolyaUrn(JointModel):
    """x_j | θ iid Categorical(θ), θ ~ Dirichlet(α): after r draws, p(v | counts) = (α_v + c_v) / (α_0 + r).

    Rising factorials are kept as sums of log(α + i), so nothing cancels for large α.
    """

    def __init__(self, concentration: Tensor, dim: int) -> None:
        checked_tensor(concentration, "concentration")
        if concentration.ndim != 1 or not bool((concentration > 0).all()) or not bool(concentration.isfinite().all()):
            raise ModelError("concentration must be a vector of positive finite numbers, one a category")
        self._dim = checked_count(dim, "dim")
        self.concentration = concentration.to(torch.float64)
        steps = torch.arange(dim, dtype=torch.float64, device=concentration.device)
        self._log_value = (self.concentration[:, None] + steps).log()  # (A, D): log(α_v + i)
        self._log_total = (self.concentration.sum() + steps).log()  # (D,): log(α_0 + i)

    @property
    def dim(self) -> int:
        """D, the number of exchangeable coordinates."""
        return self._dim

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.concentration.device

    @abstractmethod
    def restrict(self, keep: Tensor) -> Self:
        """The urn of coordinates `keep`: only their number matters."""

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible) from the counts of the visible part."""
        checked_hidden(hidden, self.dim, self.device)
        x = self._checked(x)
        mine = torch.zeros(len(x), *hidden.shape, dtype=torch.float64, device=self.device)  # visible ones equal to x_j
        for value, count in self._counts(x, ~hidden):
            mine = torch.where((x == value)[:, None], count[..., None], mine)
        alpha = self.concentration[x][:, None]
        log_prob = (alpha + mine).log() - (self.concentration.sum() + (~hidden).sum(1)).log()[:, None]
        return torch.where(hidden, log_prob, 0)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log of the Dirichlet-categorical probability of the sequence (no multinomial coefficient)."""
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible): rising factorials of the counts."""
        checked_subsets(visible, self.dim, "visible", self.device)
        x = self._checked(x)
        total = -_from_zero(self._log_total)[visible.sum(1)].expand(len(x), -1)
        for value, count in self._counts(x, visible):
            total = total + _from_zero(self._log_value[value])[count.long()]
        return total

    def exact_curve(self, x: Tensor) -> Tensor:
        """(N, D) S(m), m = 1..D, in closed form: no masks at all.

        Given that a hidden coordinate has value v, seen n_v times in x, the count of v among r visible ones is
        hypergeometric, drawn from n_v - 1 among D - 1, so

            S(D - r) = Σ_v n_v / D Σ_c Hypergeometric(c; D - 1, n_v - 1, r) log (α_v + c) / (α_0 + r).

        One (D, D) table for every distinct pair (v, n_v) in the data.
        """
        x = self._checked(x)
        everything = torch.ones(1, self.dim, dtype=torch.bool, device=self.device)
        curve = -self._log_total.expand(len(x), -1).clone()
        for value, totals in self._counts(x, everything):
            for count in totals.long().unique().tolist():
                if count:
                    mean_log = self._hypergeometric(count - 1) @ self._log_value[value, :count]
                    curve[totals[:, 0] == count] += count / self.dim * mean_log
        return curve.flip(1)

    def _hypergeometric(self, marked: int) -> Tensor:
        """(D, marked + 1) probabilities of c marked ones among r = 0..D-1 drawn from D - 1 with `marked` marked."""
        drawn = torch.arange(self.dim)[:, None]
        count = torch.arange(marked + 1)
        others = drawn - count
        plain = self.dim - 1 - marked
        possible = (others >= 0) & (others <= plain)
        log_prob = (
            log_binomial(marked)[count]
            + log_binomial(plain)[others.clamp(0, plain)]
            - log_binomial(self.dim - 1)[drawn]
        )
        # the terms of a row sum to 1 as they are: normalising removes the rounding of lgamma
        return torch.where(possible, log_prob, -math.inf).softmax(1).to(self.device)

    def _counts(self, x: Tensor, subsets: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Each category that occurs in x with its (N, P) counts in the subsets: one matrix product each."""
        indicator = subsets.T.to(torch.float64)
        for value in x.unique().tolist():
            yield value, (x == value).to(torch.float64) @ indicator

    def _checked(self, x: Tensor) -> Tensor:
        x = checked_data(x, self.dim, dtype=torch.int64, device=self.device)
        outside = ((x < 0) | (x >= len(self.concentration))).any(1)
        if bool(outside.any()):
            raise DataError(
                f"x has a category outside 0..{len(self.concentration) - 1} in row {int(outside.nonzero()[0])}: "
                "code the categories as integers from 0"
            )
        return x


@final
class DirichletCategorical(PolyaUrn):
    """D exchangeable categorical coordinates, their probabilities integrated out under a Dirichlet prior.

    Args:
        concentration: (A,) positive.
        dim: D.

    Example:
        >>> model = DirichletCategorical(torch.ones(3), dim=4)
        >>> curve = model.exact_curve(torch.tensor([[0, 0, 1, 2]]))
        >>> bool((curve.sum(1) - model.log_marginal_likelihood(torch.tensor([[0, 0, 1, 2]]))).abs() < 1e-12)
        True
    """

    def restrict(self, keep: Tensor) -> Self:
        """Exchangeable: only the number of coordinates matters."""
        return type(self)(self.concentration, len(keep))


@final
class BetaBernoulli(PolyaUrn):
    """D exchangeable binary coordinates, their probability of 1 integrated out under a Beta(alpha, beta) prior.

    Example:
        >>> model = BetaBernoulli(1.0, 1.0, dim=3)
        >>> model.log_marginal_likelihood(torch.tensor([[1, 0, 1]])).exp()  # B(3, 2) = 1/12
        tensor([0.0833], dtype=torch.float64)
    """

    def __init__(self, alpha: float, beta: float, dim: int) -> None:
        super().__init__(torch.tensor([beta, alpha], dtype=torch.float64), dim)

    def restrict(self, keep: Tensor) -> Self:
        """Exchangeable: only the number of coordinates matters."""
        beta, alpha = self.concentration.tolist()
        return type(self)(alpha, beta, len(keep))


@final
class NormalInverseGamma(JointModel):
    """x_j | μ, σ² iid N(μ, σ²), μ | σ² ~ N(mean, σ²/pseudo_count), σ² ~ InverseGamma(shape, rate).

    Predictions are Student-t (DeGroot 1970). After r values with mean m̄ and sum of squares SS about it,
    κ = pseudo_count + r, a = shape + r/2, b = rate + SS/2 + pseudo_count r (m̄ - mean)² / (2κ), and the next value has
    2a degrees of freedom, centre (pseudo_count mean + r m̄)/κ and squared scale b (κ + 1)/(a κ). The score of a mask
    depends on which values are visible, not on counts, so S(m) has no closed form beyond the average over masks.

    Args:
        mean, pseudo_count, shape, rate: of the prior; the last three positive.
        dim: D.

    Example:
        >>> model = NormalInverseGamma(0.0, 1.0, 0.5, 0.5, dim=1)  # one value: Student-t, 1 degree of freedom, scale √2
        >>> round(float(model.log_marginal_likelihood(torch.zeros(1, 1)).exp() * math.pi * math.sqrt(2)), 6)
        1.0
    """

    def __init__(self, mean: float, pseudo_count: float, shape: float, rate: float, dim: int) -> None:
        if not min(pseudo_count, shape, rate) > 0:
            raise ModelError(
                f"pseudo_count, shape and rate must be positive: got {pseudo_count:g}, {shape:g} and {rate:g}"
            )
        self.mean, self.pseudo_count, self.shape, self.rate = mean, pseudo_count, shape, rate
        self._dim = checked_count(dim, "dim")

    @property
    def dim(self) -> int:
        """D, the number of exchangeable coordinates."""
        return self._dim

    @property
    def device(self) -> torch.device:
        """The parameters are plain numbers; data are expected on the CPU."""
        return torch.device("cpu")

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log Student-t predictive densities, from the visible sums and sums of squares."""
        checked_hidden(hidden, self.dim, self.device)
        x = checked_data(x, self.dim, dtype=torch.float64, device=self.device)
        count, shape, rate, centre = self._posterior(x, ~hidden)
        freedom, kappa = 2 * shape, self.pseudo_count + count
        scale = (rate * (kappa + 1) / (shape * kappa)).sqrt()
        students = torch.distributions.StudentT(freedom[:, None], centre[..., None], scale[..., None])
        return torch.where(hidden, students.log_prob(x[:, None]), 0)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log p(x_n)."""
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible): the ratio of the posterior's and the prior's normalising constants."""
        checked_subsets(visible, self.dim, "visible", self.device)
        x = checked_data(x, self.dim, dtype=torch.float64, device=self.device)
        count, shape, rate, _ = self._posterior(x, visible)
        return (
            torch.lgamma(shape)
            - math.lgamma(self.shape)
            + self.shape * math.log(self.rate)
            - shape * rate.log()
            - 0.5 * (1 + count / self.pseudo_count).log()
            - 0.5 * count * math.log(2 * math.pi)
        )

    def restrict(self, keep: Tensor) -> Self:
        """Exchangeable: only the number of coordinates matters."""
        return type(self)(self.mean, self.pseudo_count, self.shape, self.rate, len(keep))

    def _posterior(self, x: Tensor, visible: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Number seen (P,), shape (P,), rate (N, P) and centre (N, P) after the visible values.

        Sums are taken about the mean of each row, so that a large common offset does not cancel digits.
        """
        indicator = visible.T.to(torch.float64)
        count = visible.sum(1).to(torch.float64)
        offset = x.mean(1, keepdim=True)
        centred = x - offset
        first = centred @ indicator / count.clamp_min(1)
        spread = (centred.square() @ indicator - count * first.square()).clamp_min(0)
        shift = offset + first - self.mean
        kappa = self.pseudo_count + count
        rate = self.rate + 0.5 * spread + 0.5 * self.pseudo_count * count / kappa * shift.square()
        return count, self.shape + 0.5 * count, rate, self.mean + count / kappa * shift


def _from_zero(increments: Tensor) -> Tensor:
    """Cumulative sums along the last axis, starting from 0."""
    return torch.cat([increments.new_zeros(*increments.shape[:-1], 1), increments.cumsum(-1)], -1)
