"""Choosing among models: evidence, leave-one-out and everything between them, from common masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real

import torch
from torch import Tensor

from mpt_bayes.checks import check_complete, check_width, checked_list, checked_rows
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError
from mpt_bayes.estimation.compare import log_marginal_likelihood
from mpt_bayes.estimation.curve import score_curve
from mpt_bayes.estimation.inner import inner_error_of_masks, inner_standard_error
from mpt_bayes.estimation.missing import checked_model
from mpt_bayes.estimation.scores import mask_scores
from mpt_bayes.masks import FixedRate, MaskDesign
from mpt_bayes.models.base import ConditionalModel, JointModel
from mpt_bayes.numerics.random import seed_from
from mpt_bayes.results import ScoreCurve
from mpt_bayes.results.model_comparison import LOG_MARGINAL_LIKELIHOOD, Criterion, ModelComparison


def compare_models(
    models: Mapping[str, ConditionalModel],
    x: Tensor,
    *,
    rates: Sequence[float] = (0.15, 0.5),
    fractions: Sequence[float] = (0.5, 0.8),
    test: Tensor | None = None,
    design: MaskDesign | None = None,
    generator: torch.Generator | None = None,
) -> ModelComparison:
    """One row a model, all on the same data with the same masks; the criteria are sections of one score curve.

    - log marginal likelihood log p(x), exact, for joint models;
    - leave-one-out Σ_j log p(x_j | all others), exact (D masks);
    - masked score S(m) at each of `rates`, m = round(rate · D);
    - conditional marginal likelihood given each of `fractions` of the coordinates, averaged over which (Lotfi et al.
      2022, over all orders): log p(x) - V(fraction · D);
    - cumulative score Σ_m S(m);
    - held-out log-likelihood log p(test), where `test` is given.

    Args:
        models: by name, all of one dimension.
        x: (N, D).
        test: (N', D) new rows.
        design, generator: of the masks, as in `score_curve`.

    Raises:
        ArgumentError: no models, different dimensions, a rate outside (0, 1], a fraction outside [0, 1), some models
            with an exact log marginal likelihood and some without.
        DataError: missing entries; otherwise as `score_curve`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> models = {"free": mb.models.Gaussian(torch.zeros(4), torch.eye(4)),
        ...           "tied": mb.models.Gaussian(torch.zeros(4), 0.1 * torch.eye(4) + 0.9)}
        >>> table = mb.compare_models(models, torch.ones(2, 4), fractions=[0.5])
        >>> table.ranks()["log marginal likelihood"], table.disagreements()
        ({'free': 2, 'tied': 1}, {})
    """
    if not isinstance(models, Mapping):
        raise ArgumentError(f"models is a {type(models).__name__}: expected models by name, {{'first': model, …}}")
    if not models:
        raise ArgumentError("models is empty: give at least one, by name")
    for name, model in models.items():
        checked_model(model, f"models[{name!r}]")
    checked_rows(x)
    if test is not None:
        checked_rows(test, "test")
    dims = {name: model.dim for name, model in models.items()}
    if len(set(dims.values())) != 1:
        raise ArgumentError(f"the models have different numbers of coordinates ({dims}): they do not share data")
    joint = [isinstance(model, JointModel) for model in models.values()]
    if any(joint) and not all(joint):
        raise ArgumentError("some models have a log marginal likelihood and some have none: compare them apart")
    rates, fractions = checked_list(rates, "rates", "(0, 1]"), checked_list(fractions, "fractions", "[0, 1)")
    for rate in rates:
        FixedRate(rate, 1)  # its own check, before the work
    for fraction in fractions:
        if not (isinstance(fraction, Real) and 0 <= fraction < 1):
            raise ArgumentError(f"fractions has {fraction!r}: expected numbers in [0, 1), the visible share")
    check_complete(x, "compare_models")
    if test is not None:
        check_width(test, next(iter(dims.values())), "test")
        check_complete(test, "compare_models", "test")
    seed = seed_from(generator)
    criteria, curves = {}, {}
    for name, model in models.items():
        curve = score_curve(model, x, design=design, generator=torch.Generator().manual_seed(seed), per_row=False)
        criteria[name] = _criteria(model, x, curve, rates, fractions, test)
        curves[name] = curve
    return ModelComparison(criteria, curves, data_digest(x), None if test is None else data_digest(test), seed)


def _criteria(
    model: ConditionalModel,
    x: Tensor,
    curve: ScoreCurve,
    rates: Sequence[float],
    fractions: Sequence[float],
    test: Tensor | None,
) -> dict[str, Criterion]:
    dim = model.dim
    found: dict[str, Criterion] = {}
    if isinstance(model, JointModel):
        found[LOG_MARGINAL_LIKELIHOOD] = _evidence(model, x)
    single = torch.eye(dim, dtype=torch.bool, device=x.device)
    loo = sum(float(mask_scores(model, x, part).sum()) for part in single.split(64))
    found["leave-one-out"] = Criterion(loo, 0.0, inner_error_of_masks(model, x, single))
    sections = {f"score at rate {rate:g}": curve.score(FixedRate(rate, 1).size(dim)) for rate in rates}
    for fraction in fractions:
        sections[f"conditional given {fraction:g}"] = curve.partial(max(1, dim - int(fraction * dim + 0.5)))
    sections["cumulative score"] = curve.total
    found |= {
        name: Criterion(section.value, section.standard_error, section.inner_standard_error)
        for name, section in sections.items()
    }
    if test is not None and isinstance(model, JointModel):
        found["held-out"] = _evidence(model, test)
    return found


def _evidence(model: JointModel, x: Tensor) -> Criterion:
    return Criterion(
        float(log_marginal_likelihood(model, x).sum()), 0.0, inner_standard_error(model, x, missing="error")
    )
