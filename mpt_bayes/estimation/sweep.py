"""The masked score over rates, and the convergence of the cumulative score over numbers of masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from mpt_bayes.checks import Missing, checked_list, named
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError
from mpt_bayes.estimation.compare import known_log_marginal_likelihood
from mpt_bayes.estimation.curve import cumulative_score
from mpt_bayes.estimation.inner import inner_standard_error
from mpt_bayes.estimation.missing import check_doors
from mpt_bayes.estimation.realisation import part_tallies
from mpt_bayes.masks import Exhaustive, FixedRate, MaskDesign, RandomOrders
from mpt_bayes.models.base import ConditionalModel
from mpt_bayes.numerics.random import seed_from
from mpt_bayes.results import Convergence, Sweep


def sweep(
    model: ConditionalModel,
    x: Tensor,
    rates: Sequence[float] | Tensor,
    *,
    n_masks: int | None = 64,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
) -> Sweep:
    """The masked score S(m) at each rate, m = round(rate · D), and the bias of D · S(m) for log p(x).

    Every rate cuts the same random rankings of the coordinates, so that differences between rates are less noisy than
    the scores; the score at one rate is that of `masked_score` with the same seed.

    Args:
        model, x, missing: as for `score_curve`. With entries marginalised, D is the number observed in each row.
        rates: in (0, 1]; a list, an array or a tensor.
        n_masks: masks a rate; None takes every mask of every size (up to about D = 20).
        generator: source of the masks; None means seed 0.

    Raises:
        ArgumentError: no rates, or one that is no number in (0, 1].
        BudgetError: `n_masks=None` with too many coordinates.
        DataError: as `score_curve`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(4), torch.eye(4))
        >>> result = mb.sweep(model, torch.zeros(1, 4), [0.25, 0.5, 1.0], n_masks=None)
        >>> result.sizes.tolist(), bool((abs(result.bias) < 1e-12).all())
        ([1, 2, 4], True)
    """
    check_doors(model, x)
    rates = checked_list(rates, "rates", "(0, 1]")
    if not rates:
        raise ArgumentError("rates is empty: give at least one rate in (0, 1]")
    designs = [FixedRate(rate, 1 if n_masks is None else n_masks) for rate in rates]
    seed = seed_from(generator)
    n_evaluations = 0
    moments = torch.zeros(6, len(rates), dtype=torch.float64)  # S, its variance, its inner error; D · S, likewise
    work = [(Exhaustive(), range(len(rates)))] if n_masks is None else [(d, [i]) for i, d in enumerate(designs)]
    for design, columns in work:
        for part, tally in part_tallies(model, x, design, seed, missing):
            n_evaluations += tally.n_evaluations
            dim = part.model.dim
            for i in columns:
                size = designs[i].size(dim)
                variance, inner = tally.score_variances[size - 1], tally.score_inner_variances
                error = torch.zeros(()) if inner is None else inner[size - 1].sqrt()
                found = torch.stack([tally.scores[size - 1], variance, error])
                moments[:, i] += torch.cat([found, found * torch.tensor([dim, dim**2, dim])])
    drawn = inner_standard_error(model, x, missing)
    return Sweep(
        rates=np.asarray(rates, dtype=np.float64),
        sizes=np.array([design.size(model.dim) for design in designs]),
        scores=moments[0].numpy(),
        standard_errors=moments[1].sqrt().numpy(),
        scaled=moments[3].numpy(),
        scaled_standard_errors=moments[4].sqrt().numpy(),
        log_marginal_likelihood=known_log_marginal_likelihood(model, x, missing),
        n_data=len(x),
        n_evaluations=n_evaluations,
        seed=None if n_masks is None else seed,
        data_digest=data_digest(x),
        inner_standard_errors=None if drawn is None else moments[2].numpy(),
        scaled_inner_standard_errors=None if drawn is None else moments[5].numpy(),
        log_marginal_likelihood_inner_standard_error=drawn,
    )


def convergence(
    model: ConditionalModel,
    x: Tensor,
    *,
    design: Callable[[int], MaskDesign] = RandomOrders,
    numbers: Sequence[int] = (2, 4, 8, 16, 32, 64),
    generator: torch.Generator | None = None,
    missing: Missing = "error",
) -> Convergence:
    """The cumulative score from designs of growing number, to see its standard error shrink.

    Draw k of a design is the same whatever its number, so each estimate contains the draws of those before it. Rows
    have no totals of their own here where leaving them out is cheaper.

    Args:
        model, x, missing: as for `score_curve`.
        design: from a number to a design, e.g. `mb.masks.RandomOrders` or `mb.masks.PerSize`.
        numbers: of orders, or of masks per size.
        generator: source of the masks; None means seed 0.

    Raises:
        ArgumentError: no numbers, or a design that has its number.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
        >>> mb.convergence(model, torch.ones(1, 3), numbers=[2, 8]).values.shape
        (2,)
    """
    check_doors(model, x)
    if not callable(design):
        raise ArgumentError(f"design is {named(design)}: expected one without its number, RandomOrders, or a function")
    if len(numbers) == 0:
        raise ArgumentError("numbers is empty: give at least one")
    seed = seed_from(generator)
    estimates = tuple(
        cumulative_score(
            model,
            x,
            design=design(number),
            generator=torch.Generator().manual_seed(seed),
            missing=missing,
            per_row=False,
        )
        for number in numbers
    )
    return Convergence(tuple(numbers), estimates, known_log_marginal_likelihood(model, x, missing))
