"""The recommended estimator: cheap ends enumerated, a pilot, Neyman allocation, cross-fitted control variates."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import torch
from torch import Tensor

from mpt_bayes.checks import counted
from mpt_bayes.errors import ArgumentError, BudgetError, MptBayesWarning
from mpt_bayes.estimation.allocation import SizeBins, end_masks, neyman, sampled_range
from mpt_bayes.estimation.budget import Budget
from mpt_bayes.estimation.control import local_scale, prior_scale
from mpt_bayes.estimation.rounds import Round, Scored, pooled
from mpt_bayes.estimation.tally import Tally
from mpt_bayes.masks.ends import masks_of_size
from mpt_bayes.numerics.random import Stream

PILOT_SHARE = 5
"""The pilot takes one part in this many of a known budget."""
SMALLEST_PILOT = 24
MOST_EVALUATIONS = 1_000_000
"""Where only a standard error or a time is asked for."""
MARGIN = 1.5
"""A round meant to reach a standard error aims below it by this many standard deviations of its estimate."""
LARGEST_GROWTH = 4


@dataclass(frozen=True)
class _Question:
    """Masks (P, D) asked for and not yet told: the ends where it is the first, then those sampled for a round.

    Attributes:
        bins: the bins of sizes of the round; None where nothing is sampled.
        member: (P',) the bin of each sampled mask.
        counts: (H,) sampled masks in each bin.
    """

    hidden: Tensor
    bins: SizeBins | None
    member: Tensor
    counts: Tensor


class AdaptiveScore:
    """Σ_m S(m) of anything that scores masks, within a budget: ask for masks, tell their log-probabilities, repeat.

    Sizes with few masks are taken completely, and so are all of them once a round would take no fewer masks than there
    are: the sum is then exact. The rest is sampled in rounds; a round's number of masks in each bin of
    sizes is fixed before it is drawn, from the rounds before (Neyman 1934), and every round is an unbiased estimate by
    itself, so their mean, weighted by numbers of masks, is unbiased too. Scores are adjusted by control variates fitted
    to earlier rounds and other folds. The standard error comes from the spread within bins.

    Args:
        dim: D.
        budget: when to end.
        stream: all masks derive from it.
        pilot: sampled masks of the first round; None for a fifth of what the ends leave of a known budget.

    Raises:
        BudgetError: a budget of so few evaluations that there is no standard error.

    Example:
        >>> estimator = AdaptiveScore(6, Budget(n_evaluations=40), Stream(0))
        >>> while (hidden := estimator.ask()) is not None:
        ...     estimator.tell(-1.5 * hidden.double())
        >>> round(float(estimator.tally().partials[-1]), 12), estimator.n_evaluations
        (-9.0, 40)
    """

    def __init__(self, dim: int, budget: Budget, stream: Stream, *, pilot: int | None = None) -> None:
        self.dim = dim
        self.budget = budget
        self._stream = stream
        self._pilot = pilot
        self._limit = min(budget.n_evaluations or MOST_EVALUATIONS, MOST_EVALUATIONS)
        nominal = budget.n_evaluations or PILOT_SHARE * self._default_pilot()
        self._lowest, self._highest = sampled_range(dim, nominal)
        self._ends = end_masks(dim, self._lowest, self._highest)
        if self._width > 0 and self._limit - len(self._ends) < 4:
            raise BudgetError(
                f"the budget is {counted(self._limit, 'mask')}: {dim} coordinates need at least {len(self._ends) + 4} "
                "masks for a standard error"
            )
        self._known: Scored | None = None
        self._exact = torch.zeros(1, dim, dtype=torch.float64)
        self._rounds: list[Round] = []
        self._counts_pilot = True
        self._asked: _Question | None = None
        self._begun = time.perf_counter()

    @property
    def n_evaluations(self) -> int:
        """Masks scored so far."""
        return 0 if self._known is None else len(self._known)

    def ask(self) -> Tensor | None:
        """(P, D) the masks to score next, or None when the budget says to stop."""
        count = self._next_count()
        if self._known is not None and count == 0:
            return None
        sizes = range(self._lowest, self._highest + 1)
        bins, member = None, torch.zeros(0, dtype=torch.int64)
        counts = member
        if count == 0:
            masks = self._ends[:0]
        elif count >= sum(comb(self.dim, m) for m in sizes):
            masks = torch.cat([masks_of_size(m, self.dim) for m in sizes])
        else:
            counts, bins = self._plan(count)
            masks, member = bins.draw_masks(counts, self.dim, self._stream.child("round", len(self._rounds)))
        hidden = masks if self._known is not None else torch.cat([self._ends, masks])
        self._asked = _Question(hidden, bins, member, counts)
        return self._asked.hidden

    def tell(self, log_prob: Tensor) -> None:
        """The log-probabilities of the masks last asked for: (P, D), or (R, P, D) for R rows; 0 where visible.

        After R rows their sum may be told in their place, to save memory: nothing changes but that values row by row
        are no longer had, since fits and sums are linear in the log-probabilities.

        Raises:
            ArgumentError: another shape.
        """
        if self._asked is None:
            raise ArgumentError("tell without ask: ask for the masks first")
        hidden, bins = self._asked.hidden, self._asked.bins
        log_prob = log_prob.detach().to("cpu", torch.float64)
        log_prob = log_prob[None] if log_prob.ndim == 2 else log_prob
        if log_prob.shape[1:] != hidden.shape:
            raise ArgumentError(f"log_prob has shape {tuple(log_prob.shape)}: expected (R, {len(hidden)}, {self.dim})")
        if self._known is not None and len(log_prob) == 1:
            self._known, self._exact = self._known.summed(), self._exact.sum(0, keepdim=True)
            self._rounds = [part.summed() for part in self._rounds]
        scored = Scored(hidden, log_prob)
        if bins is None:  # every mask of the sizes that were not known: nothing is left to sample
            self._exact = self._exact + exact_curve(scored)
            self._known = scored if self._known is None else self._known + scored
            self._rounds, self._highest = [], self._lowest - 1
        elif self._known is None:
            ends = scored[: len(self._ends)]
            self._exact = exact_curve(ends)
            self._known, scored = ends, scored[len(self._ends) :]
        if bins is not None:
            self._rounds.append(Round.adjusted(scored, self._known, bins, self._asked.member, self._asked.counts))
            self._known = self._known + scored
        self._asked = None

    def tally(self) -> Tally:
        """The curve and its variances as they stand."""
        if self._known is None:
            raise ArgumentError("nothing was scored yet: ask and tell first")
        return pooled(self._exact, self._counted, self.n_evaluations * len(self._exact))

    @property
    def _width(self) -> int:
        return self._highest - self._lowest + 1

    @property
    def _counted(self) -> list[Round]:
        return self._rounds if self._counts_pilot or len(self._rounds) < 2 else self._rounds[1:]

    def _default_pilot(self) -> int:
        return max(3 * SMALLEST_PILOT, min(self.dim, 200))

    def scale(self) -> Tensor:
        """(D,) smoothed standard deviation, at each size, of what control variates leave of s(M); 0 if none is left."""
        if not self._rounds:
            return torch.zeros(self.dim, dtype=torch.float64)
        residual = torch.cat([part.residual for part in self._rounds])
        sizes = torch.cat([part.sizes for part in self._rounds])
        return local_scale(sizes, residual, self.dim)

    def _plan(self, count: int) -> tuple[Tensor, SizeBins]:
        """Bins and counts of a round of `count` masks: one bin a size if three masks each can be had."""
        bins = SizeBins(self._lowest, self._highest, min(self._width, max(1, count // (3 if self._rounds else 4))))
        scale = self.scale() if self._rounds else prior_scale(self.dim)
        return neyman((bins.law(self.dim) @ scale.square()).sqrt(), count), bins

    def _towards(self, standard_error: float, left: int) -> int:
        """Masks of the next round on the way to a standard error, no more than `left`; 0 where it is reached.

        The pilot only says how many masks the next round takes, and is left out of the mean: weighted by its share of
        the total it would count for less whenever its spread, and with it that total, came out large, and where spread
        and mean go together (scores are skewed) that is a bias. It is kept where the limit decides, not the pilot.

        A round aims below the target by a margin, so that stopping is seldom a matter of a standard error that came out
        small by chance, which would not cover. With f degrees of freedom its relative deviation is 1 / sqrt(2 f).
        """
        tally = self.tally()
        variance, quartic = float(tally.partial_variances[-1]), float(tally.partial_quartics[-1])
        each = float(self.scale()[self._lowest - 1 : self._highest].sum()) ** 2
        target = standard_error**2
        margin = (1 + MARGIN * math.sqrt(quartic / 2) / variance) ** 2 if variance > 0 else 1.0
        if len(self._rounds) == 1:
            needed = max(math.ceil(margin * each / target), SMALLEST_PILOT)
            self._counts_pilot = needed >= left
            return min(needed, left, LARGEST_GROWTH * self.n_evaluations)
        if variance <= target:
            return 0
        sampled = sum(len(part) for part in self._counted)
        # target·n² - each·n + sampled·each - sampled²·variance = 0 for n masks counted in all
        root = each**2 - 4 * target * sampled * (each - sampled * variance)
        needed = math.ceil(margin * (each + math.sqrt(max(root, 0.0))) / (2 * target))
        return min(max(needed - sampled, sampled // 4), left, LARGEST_GROWTH * self.n_evaluations)

    def _next_count(self) -> int:
        """Masks to sample in the next round; 0 to stop."""
        if self._width <= 0:
            return 0
        left = self._limit - max(self.n_evaluations, len(self._ends))
        if self._known is None and self._pilot is not None:
            return min(left, self._pilot)
        if self._known is None:
            known = self.budget.n_evaluations is not None
            pilot = pilot_count(left) if known else min(left, self._default_pilot())
            if self.budget.target_standard_error is not None and pilot < left:
                pilot = min(pilot, self._default_pilot())
            return pilot
        count = left
        if self.budget.target_standard_error is not None:
            count = self._towards(self.budget.target_standard_error, left)
        if self.budget.time_limit is not None:
            spent = time.perf_counter() - self._begun
            affordable = int((self.budget.time_limit - spent) / (spent / self.n_evaluations))
            count = min(count, affordable, LARGEST_GROWTH * self.n_evaluations)
        return count if count >= 4 else 0


def pilot_count(left: int) -> int:
    """Masks of the pilot of a known budget; all of it if what would remain is less than the pilot.

    Example:
        >>> pilot_count(40), pilot_count(100), pilot_count(500)
        (40, 24, 100)
    """
    pilot = max(SMALLEST_PILOT, left // PILOT_SHARE)
    return pilot if left >= 2 * pilot else left


def adaptive_tally(evaluate: Callable[[Tensor], Tensor], dim: int, budget: Budget, stream: Stream) -> Tally:
    """The whole loop for one function from masks (P, D) to log-probabilities (P, D) or (R, P, D).

    Example:
        >>> tally = adaptive_tally(lambda hidden: -1.5 * hidden.double(), 6, Budget(n_evaluations=40), Stream(0))
        >>> round(float(tally.partials[-1]), 12)
        -9.0
    """
    estimator = AdaptiveScore(dim, budget, stream)
    while (hidden := estimator.ask()) is not None:
        estimator.tell(evaluate(hidden))
    tally = estimator.tally()
    target, reached = budget.target_standard_error, float(tally.partial_variances[-1]) ** 0.5
    if target is not None and reached > target:
        warnings.warn(
            f"the standard error is {reached:.3g} nats and the target was {target:.3g}: sampling stopped after "
            f"{estimator.n_evaluations} masks, the most that the budget allows; give it more, or a larger target",
            MptBayesWarning,
            stacklevel=2,
        )
    return tally


def exact_curve(ends: Scored) -> Tensor:
    """(R, D) S(m) of the sizes taken completely, 0 at the others."""
    dim = ends.hidden.shape[1]
    size = ends.hidden.sum(1)
    weight = torch.tensor([1 / comb(dim, m) for m in range(1, dim + 1)], dtype=torch.float64)[size - 1]
    score = ends.log_prob.sum(2) / size
    return torch.zeros(len(score), dim, dtype=torch.float64).index_add_(1, size - 1, score * weight)
