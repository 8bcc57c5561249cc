"""Maximum likelihood of hidden Markov models by EM (Baum, Petrie, Soules and Weiss 1970)."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import checked_count, checked_table
from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.models.em_settings import EMSettings
from mpt_bayes.models.emissions import FittedEmission
from mpt_bayes.models.hidden_markov import HiddenMarkov
from mpt_bayes.models.mixture import EMISSIONS, Family, checked_family
from mpt_bayes.numerics.log_space import log_matmul
from mpt_bayes.numerics.random import Stream, seed_from

DEFAULT_EM = EMSettings(tolerance=1e-8, max_iterations=300)


def fit_hidden_markov(
    x: Tensor,
    family: Family,
    n_states: int,
    *,
    n_starts: int = 4,
    em: EMSettings = DEFAULT_EM,
    generator: torch.Generator | None = None,
) -> HiddenMarkov:
    """A chain whose emissions are the same at every position, by EM, the best of several random starts.

    The expected counts of the E step are the derivatives of log p(x) in the log initial, transition and emission
    probabilities, so the forward pass and automatic differentiation give them.

    Args:
        x: (N, D) sequences, no missing entries.
        family: of the emissions: "gaussian", "bernoulli", "categorical" or "poisson".
        n_states: S.
        n_starts, em: as for `Mixture.fit`; a datum is a sequence.
        generator: of the starts.

    Raises:
        ArgumentError: an unknown family, or more states than values.
        DataError: as `Mixture.fit`, or sequences of length 1.

    Example:
        >>> x = torch.tensor([[0.0, 0.1, -0.1, 5.0, 5.1, 4.9, 0.0, 0.1]])
        >>> fit_hidden_markov(x, "gaussian", 2).emission.mean[:, 0].sort().values.round(decimals=2)
        tensor([0.0200, 5.0000], dtype=torch.float64)
    """
    checked_family(family)
    checked_count(n_states, "n_states")
    x = checked_table(x)
    if x.shape[1] == 1:
        raise DataError("the sequences of x have length 1, so there is no transition to fit: a series is one row, x.T")
    if n_states > x.numel():
        raise ArgumentError(f"n_states is {n_states} but x has {x.numel()} values: ask for fewer")
    stream = Stream(seed_from(generator)).child("baum-welch")
    starts = [
        _baum_welch(x, EMISSIONS[family], n_states, stream.child(s), em)
        for s in range(checked_count(n_starts, "n_starts"))
    ]
    best, is_finished = max(starts, key=lambda start: float(start[0].log_marginal_likelihood(x).sum()))
    if not is_finished:
        em.warn_unfinished("EM of the chain", stacklevel=3)
    return best


def _baum_welch(
    x: Tensor, family: type[FittedEmission], n_states: int, stream: Stream, em: EMSettings
) -> tuple[HiddenMarkov, bool]:
    """One run, from a sticky chain and responsibilities that lean towards one random value a state; whether the last
    step gained less than the tolerance."""
    values = x.reshape(-1, 1)
    centres = values[torch.randperm(len(values), generator=stream.generator())[:n_states].to(x.device)]
    spread = values.var(correction=0).clamp_min(1e-12)
    emission = family.fitted(values, (-(values - centres.T).square() / spread).softmax(1))
    initial = torch.full((n_states,), 1 / n_states, dtype=torch.float64, device=x.device)
    transition = 0.8 * torch.eye(n_states, dtype=torch.float64, device=x.device) + 0.2 / n_states
    previous, is_finished = -torch.inf, False
    for _ in range(em.max_iterations):
        value, counts = _expected_counts(emission.log_prob(values)[..., 0], x.shape, initial, transition)
        first, steps, states = (count + 1e-12 for count in counts)  # a state that empties keeps a distribution
        initial, transition = first / first.sum(), steps / steps.sum(1, keepdim=True)
        emission = family.fitted(values, states)
        is_finished = value - previous < em.tolerance * len(x)
        if is_finished:
            break
        previous = value
    return HiddenMarkov(initial, transition, emission, length=x.shape[1]), is_finished


def _expected_counts(
    log_emission: Tensor, shape: torch.Size, initial: Tensor, transition: Tensor
) -> tuple[float, tuple[Tensor, ...]]:
    """log p(x), and the expected counts of first states (S,), steps (S, S) and states at each value (N·D, S)."""
    leaves = [part.detach().clone().requires_grad_() for part in (initial.log(), transition.log(), log_emission)]
    log_initial, log_transition, log_values = leaves
    columns = log_values.reshape(*shape, -1)
    with torch.enable_grad():
        message = log_initial + columns[:, 0]
        for t in range(1, shape[1]):
            message = log_matmul(message[None], log_transition[None])[0] + columns[:, t]
        total = message.logsumexp(1).sum()
        return float(total.detach()), torch.autograd.grad(total, leaves)
