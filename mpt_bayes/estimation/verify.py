"""The identities that a coherent model obeys, checked on any model and data, each with its size and its verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mpt_bayes.checks import Missing, checked_count
from mpt_bayes.digest import data_digest
from mpt_bayes.estimation.attribution import EXACT_UP_TO, attribution
from mpt_bayes.estimation.chain import chain_log_probs
from mpt_bayes.estimation.curve import cumulative_score
from mpt_bayes.estimation.missing import ObservedPart, check_doors, observed_parts
from mpt_bayes.estimation.scores import check_finite
from mpt_bayes.masks import Exhaustive, RandomOrders
from mpt_bayes.masks.subsets import uniform_masks
from mpt_bayes.models.base import ConditionalModel, JointModel, is_made_of_draws
from mpt_bayes.models.checked_calls import (
    checked_log_marginal_likelihood,
    checked_marginal_log_prob,
    checked_masked_log_prob,
)
from mpt_bayes.models.marginals import restrict
from mpt_bayes.numerics.random import Stream, seed_from
from mpt_bayes.results import Check, Verification
from mpt_bayes.results.verification import Verdict

STANDARD_ERRORS = 4.0
NOT_JOINT = "the model has conditionals only: no marginals and no log marginal likelihood"


@torch.no_grad()
def verify(
    model: ConditionalModel,
    x: Tensor,
    *,
    n_orders: int = 16,
    n_masks: int = 32,
    max_rows: int = 32,
    tolerance: float | None = None,
    generator: torch.Generator | None = None,
    missing: Missing = "error",
) -> Verification:
    """Hold a model to the identities of a coherent joint distribution and of independent masked prediction.

    chain rule: Σ_t log p(x_π(t) | x_π(<t)) is the same for every order π. ratio of marginals: log p(x_j | x_R) =
    log p(x_j, x_R) - log p(x_R). identity: Σ_m S(m) = log p(x), within what 4 standard errors are to a normal variable
    (few orders have the tails of Student's t). shares: Shapley shares from the conditionals sum to log p(x).
    relabelling: permuting the coordinates of model, data and masks changes nothing. batching: neither do the order of
    rows and masks, nor a row's company. hidden values: what is hidden changes no prediction of another coordinate.
    Models without a joint are held to those that apply.

    Args:
        model, x, missing: as for `score_curve`; of data with several patterns of missing entries the largest group of
            rows is used, and the result's `note` says which.
        n_orders: random orders of the chain rule, the identity and the shares; at least 2.
        n_masks: random masks, of uniform size, of the other checks.
        max_rows: use a random choice of this many rows.
        tolerance: of exact identities, relative to max(1, |largest log-probability compared|); by default the square
            root of the machine epsilon of the model's results.
        generator: source of rows, orders and masks; None means seed 0.

    Raises:
        ArgumentError: a count below its minimum.
        DataError: as `score_curve`.

    Example:
        >>> import torch, mpt_bayes as mb
        >>> model = mb.models.Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
        >>> mb.verify(model, torch.ones(4, 3))
        Verification(7 of 7 checks apply, all passed, N=4)
    """
    check_doors(model, x)
    checked_count(n_orders, "n_orders", 2)
    checked_count(n_masks, "n_masks")
    checked_count(max_rows, "max_rows")
    seed = seed_from(generator)
    parts = list(observed_parts(model, x, missing))
    part = max(parts, key=lambda part: len(part.rows))
    rows = torch.randperm(len(part.x), generator=Stream(seed).child("rows").generator())[:max_rows].sort().values
    dim = part.model.dim
    sizes = torch.randint(1, dim + 1, (n_masks,), generator=Stream(seed).child("sizes").generator())
    trial = _Trial(
        model=part.model,
        x=part.x[rows.to(x.device)],
        hidden=uniform_masks(sizes, dim, Stream(seed).child("masks")).to(x.device),
        n_orders=n_orders,
        tolerance=tolerance,
        stream=Stream(seed),
    )
    checks = [_chain_rule(trial)]
    if isinstance(trial.model, JointModel):
        checks += [
            _ratio_of_marginals(trial, trial.model),
            _identity(trial, trial.model),
            _shares(trial, trial.model),
            _relabelling(trial, trial.model),
        ]
    else:
        checks += [_not_applicable(name, NOT_JOINT) for name in OF_JOINTS]
    return Verification(
        checks=(*checks, _batching(trial), _hidden_values(trial)),
        n_rows=len(rows),
        seed=seed,
        data_digest=data_digest(x),
        note=_choice(part, parts, model.dim, len(x)),
    )


def _choice(part: ObservedPart, parts: list[ObservedPart], dim: int, n_rows: int) -> str:
    """Which rows were checked, where it was not a choice from all of them."""
    if len(part.rows) == n_rows:
        return ""
    return (
        f"checked on the {len(part.rows)} of {n_rows} rows that observe the same {part.model.dim} of {dim} "
        f"coordinates, the largest of {len(parts)} groups"
    )


IDENTITIES = {
    "chain rule": "Σ_t log p(x_π(t) | x_π(<t)) is the same for every order π",
    "ratio of marginals": "log p(x_j | x_R) = log p(x_j, x_R) - log p(x_R)",
    "identity": "Σ_m S(m) = log p(x)",
    "shares": "Σ_j φ_j = log p(x)",
    "relabelling": "permuted coordinates, permuted log-probabilities",
    "batching": "a row scored alone, or rows and masks in another order, score the same",
    "hidden values": "log p(x_j | x_R) does not depend on the other hidden coordinates",
}
OF_JOINTS = ("ratio of marginals", "identity", "shares", "relabelling")


@dataclass(frozen=True)
class _Trial:
    """What the checks share."""

    model: ConditionalModel
    x: Tensor
    hidden: Tensor
    n_orders: int
    tolerance: float | None
    stream: Stream

    @cached_property
    def log_probs(self) -> Tensor:
        """(N, P, D) of the drawn masks."""
        return check_finite(checked_masked_log_prob(self.model, self.x, self.hidden))

    def equal(self, name: str, a: Tensor, b: Tensor, reason: str) -> Check:
        """The check that two tensors agree."""
        tolerance = self.tolerance_for(a, b)
        size = float((a - b).abs().max())
        return Check(name, IDENTITIES[name], size, tolerance, "nats", _verdict(size <= tolerance), reason)

    def tolerance_for(self, a: Tensor, b: Tensor) -> float:
        """The largest difference, in nats, at which two tensors agree."""
        relative = torch.finfo(a.dtype).eps ** 0.5 if self.tolerance is None else self.tolerance
        return relative * max(1.0, float(a.abs().max()), float(b.abs().max()))


def _verdict(holds: bool) -> Verdict:
    return "passed" if holds else "failed"


def _not_applicable(name: str, why: str) -> Check:
    return Check(name, IDENTITIES[name], None, None, "nats", "not applicable", why)


def _chain_rule(trial: _Trial) -> Check:
    batch = RandomOrders(trial.n_orders).draw_orders(trial.model.dim, trial.stream.child("orders"))
    terms = chain_log_probs(trial.model, trial.x, batch).to(trial.log_probs.dtype)
    sums = terms.sum(2)
    return trial.equal(
        "chain rule", sums.amax(1), sums.amin(1), f"largest spread in a row over {trial.n_orders} orders"
    )


def _ratio_of_marginals(trial: _Trial, model: JointModel) -> Check:
    mask, coordinate = trial.hidden.nonzero(as_tuple=True)
    visible = ~trial.hidden
    larger = visible[mask]
    larger[torch.arange(len(mask)), coordinate] = True
    of_visible = checked_marginal_log_prob(model, trial.x, visible)
    ratio = checked_marginal_log_prob(model, trial.x, larger) - of_visible[:, mask]
    conditional = trial.log_probs[:, mask, coordinate]
    return trial.equal("ratio of marginals", conditional, ratio, f"{len(mask)} conditionals in every row")


def _identity(trial: _Trial, model: JointModel) -> Check:
    exact = checked_log_marginal_likelihood(model, trial.x)
    if model.dim <= EXACT_UP_TO:  # by the conditionals: enumeration through marginals could not see them fail
        batch = Exhaustive().draw(model.dim, trial.stream)
        hidden = batch.hidden.to(trial.x.device)
        means = checked_masked_log_prob(model, trial.x, hidden).sum(2) / hidden.sum(1)
        total = means @ batch.sampling.log_weight.exp().to(means)
        return trial.equal("identity", total, exact, "every mask taken: largest difference in a row")
    generator = torch.Generator().manual_seed(trial.stream.seed)
    score = cumulative_score(model, trial.x, design=RandomOrders(trial.n_orders), generator=generator)
    difference, error = score.value - float(exact.sum()), score.standard_error or 0.0
    reason = f"{trial.n_orders} orders: difference {difference:+.4g} ± {error:.3g} nats over all rows"
    if abs(difference) <= trial.tolerance_for(exact, exact):  # orders that agree to rounding have no SE to speak of
        return trial.equal("identity", torch.tensor(score.value, dtype=exact.dtype), exact.sum().cpu(), reason)
    size = _normal_equivalent(difference / error, score.degrees_of_freedom) if error else math.inf
    verdict = _verdict(size <= STANDARD_ERRORS)
    return Check("identity", IDENTITIES["identity"], size, STANDARD_ERRORS, "standard errors", verdict, reason)


def _normal_equivalent(t: float, degrees_of_freedom: float) -> float:
    """The size of a normal deviate as unlikely as this Student t: few orders give t heavy tails, no false alarms."""
    from scipy import special  # slow to load

    return -float(special.ndtri(special.stdtr(degrees_of_freedom, -abs(t))))


def _shares(trial: _Trial, model: JointModel) -> Check:
    generator = torch.Generator().manual_seed(trial.stream.seed)
    shares = attribution(model, trial.x, design=RandomOrders(trial.n_orders), generator=generator)
    exact = checked_log_marginal_likelihood(model, trial.x)
    return trial.equal("shares", torch.as_tensor(shares.per_row).to(exact), exact, f"{trial.n_orders} orders, each row")


def _relabelling(trial: _Trial, model: JointModel) -> Check:
    order = torch.randperm(model.dim, generator=trial.stream.child("relabelling").generator()).to(trial.x.device)
    relabelled = checked_masked_log_prob(restrict(model, order), trial.x[:, order], trial.hidden[:, order])
    return trial.equal("relabelling", relabelled, trial.log_probs[:, :, order], "one random permutation")


def _batching(trial: _Trial) -> Check:
    together = trial.log_probs
    turned = checked_masked_log_prob(trial.model, trial.x.flip(0), trial.hidden.flip(0)).flip(0, 1)
    alone = checked_masked_log_prob(trial.model, trial.x[:1], trial.hidden)
    both = torch.cat([turned, alone]), torch.cat([together, together[:1]])
    return trial.equal("batching", *both, "rows and masks reversed, and the first row alone")


def _hidden_values(trial: _Trial) -> Check:
    """For each mask one hidden coordinate keeps its value; the other hidden ones take those of another row."""
    if len(trial.x) < 2:
        return _not_applicable("hidden values", "needs two rows: one lends the other its hidden values")
    if is_made_of_draws(trial.model):
        return _not_applicable("hidden values", "the model's draws may follow the whole row: see inner_standard_error")
    kept = torch.zeros_like(trial.hidden)
    kept[torch.arange(len(kept)), trial.hidden.to(torch.int8).argmax(1)] = True
    expected, found = trial.log_probs, []
    for hidden, keep in zip(trial.hidden, kept, strict=True):
        changed = torch.where(hidden & ~keep, trial.x.roll(1, 0), trial.x)
        found.append(checked_masked_log_prob(trial.model, changed, hidden[None])[:, 0, keep])
    pairs = torch.stack(found, 1)[..., 0], expected[:, kept]
    return trial.equal("hidden values", *pairs, f"{len(kept)} masks, hidden values taken from another row")
