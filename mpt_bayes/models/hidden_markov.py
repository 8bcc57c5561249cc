"""Hidden Markov models: forward and backward passes over all masks at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Self, final

import torch
from torch import Tensor

from mpt_bayes.checks import check_tensors, checked_data, checked_hidden, checked_subsets, checked_tensor
from mpt_bayes.errors import ArgumentError, ModelError
from mpt_bayes.models.base import JointModel
from mpt_bayes.models.emission_families import CategoricalEmission
from mpt_bayes.models.emissions import Emission
from mpt_bayes.numerics.log_space import log_matmul

if TYPE_CHECKING:
    from pyro.distributions import DiscreteHMM

_WORKING_BYTES = 2**27

Convention = Literal["textbook", "pyro"]


@final
class HiddenMarkov(JointModel):
    """z_1 ~ initial, z_t | z_{t-1} ~ transition, x_t | z_t ~ emission; the states are summed out.

    Hidden emissions are left out (replaced by 1); with a_t(s) the forward message before the emission at t and b_t(s)
    the backward message after it, log p(x_t | x_R) = logsumexp_s(a_t + b_t + ℓ_t) - logsumexp_s(a_t + b_t)
    (Rabiner 1989, section III). Messages are in log space. Cost N·P·D·S².

    Args:
        initial: (S,) probabilities.
        transition: (S, S), rows sum to 1: transition[r, s] = p(next = s | now = r); or (D - 1, S, S), one a step.
        emission: (S, A) probabilities of categories, or an `Emission` (NormalEmission with (S, 1) means, say); an
            emission of more than one coordinate has parameters of its own at each position.
        length: D, when the emission is the same everywhere.
        convention: "textbook": the first emission comes from `initial` itself. "pyro": one transition is made before
            the first emission, as in Pyro's DiscreteHMM.

    Raises:
        ModelError: probabilities that do not sum to 1, shapes that disagree.
        ArgumentError: no length, or an unknown convention.

    Example:
        >>> sticky = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
        >>> model = HiddenMarkov(torch.tensor([0.5, 0.5]), sticky, torch.eye(2), length=3)
        >>> model.masked_log_prob(torch.tensor([[0, 0, 0]]), torch.tensor([[False, True, False]])).exp()[0, 0, 1]
        tensor(0.9878, dtype=torch.float64)
    """

    def __init__(
        self,
        initial: Tensor,
        transition: Tensor,
        emission: Tensor | Emission,
        *,
        length: int | None = None,
        convention: Convention = "textbook",
    ) -> None:
        if convention not in ("textbook", "pyro"):
            raise ArgumentError(f"convention is {convention!r}: expected 'textbook' or 'pyro'")
        check_tensors(initial=initial, transition=transition)
        if not isinstance(emission, Emission):
            checked_tensor(emission, "emission")
            emission = CategoricalEmission.from_probabilities(emission.to(torch.float64)[:, None])
        if emission.dim == 1 and length is None:
            raise ArgumentError("length is missing: say how many positions a sequence has, HiddenMarkov(..., length=D)")
        if length not in (None, emission.dim):
            if emission.dim != 1:
                raise ArgumentError(f"length is {length} but the emission has {emission.dim} positions: drop length")
            emission = emission.restrict(torch.zeros(length or 1, dtype=torch.int64, device=emission.device))
        dtype, dim, n_states = emission.parameter.dtype, emission.dim, emission.n_states
        steps = transition.ndim == 3
        if initial.shape != (n_states,) or transition.shape[steps:] != (n_states, n_states):
            raise ModelError(
                f"initial has shape {tuple(initial.shape)} and transition {tuple(transition.shape)}: expected "
                f"({n_states},) and ({n_states}, {n_states}), as the emission has {n_states} states"
            )
        if convention == "pyro":
            if steps:
                raise ArgumentError("convention 'pyro' takes one (S, S) transition: fold the first step into initial")
            initial = initial @ transition
        if steps and len(transition) != dim - 1:
            raise ModelError(f"transition has {len(transition)} steps: {dim} positions have {dim - 1} between them")
        self.emission = emission
        self.initial = _distribution(initial.to(dtype), "initial")
        self.transition = _distribution(transition.to(dtype), "transition").expand(dim - 1, n_states, n_states)
        self._place = torch.arange(dim, device=emission.device)  # where each position of the chain is in x

    @classmethod
    def from_pyro(cls, distribution: DiscreteHMM, length: int | None = None) -> Self:
        """From a Pyro DiscreteHMM with Categorical, Bernoulli, Normal or Poisson observations, in its convention.

        Raises:
            ModelError: batched parameters, or another family of observations.
        """
        from mpt_bayes.models.pyro_emissions import emission_of

        transition = distribution.transition_logits.exp().to(torch.float64)
        if transition.ndim > 3 or (transition.ndim == 3 and transition.shape[0] != 1):
            raise ModelError("the DiscreteHMM has transitions that vary in time or batch: pass HiddenMarkov a chain")
        emission = emission_of(distribution.observation_dist)
        start = distribution.initial_logits.exp().to(torch.float64)
        return cls(start, transition.reshape(transition.shape[-2:]), emission, length=length, convention="pyro")

    @property
    def dim(self) -> int:
        """D, the length of a sequence."""
        return self.emission.dim

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.emission.device

    @property
    def n_states(self) -> int:
        """S, the number of hidden states."""
        return self.emission.n_states

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_visible): one backward and one forward pass for all masks."""
        checked_hidden(hidden, self.dim, self.device)
        blocks = [self._conditionals(log_emission, hidden) for log_emission in self._blocks(x, len(hidden))]
        return torch.where(hidden, torch.cat(blocks), 0)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log p(x_n), by the forward pass."""
        return self.marginal_log_prob(x, torch.ones(1, self.dim, dtype=torch.bool, device=self.device))[:, 0]

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log p(x_visible), by the forward pass."""
        checked_subsets(visible, self.dim, "visible", self.device)
        visible = visible[:, self._place]
        parts = []
        for log_emission in self._blocks(x, len(visible)):
            message = self._start(log_emission, visible)
            for t in range(self.dim):
                message = message + _seen(log_emission, visible, t)
                message = message if t == self.dim - 1 else _step(message, self.transition[t])
            parts.append(message.logsumexp(2))
        return torch.cat(parts)

    def restrict(self, keep: Tensor) -> Self:
        """The chain over positions `keep`: steps in between are products of transitions."""
        at = self._place.argsort()[keep]  # positions in the chain
        chain, order = at.sort()
        start = self.initial
        for t in range(int(chain[0])):
            start = start @ self.transition[t]
        steps = []
        for first, last in zip(chain[:-1].tolist(), chain[1:].tolist(), strict=True):
            step = torch.eye(self.n_states, dtype=start.dtype, device=start.device)
            for t in range(first, last):
                step = step @ self.transition[t]
            steps.append(step)
        transition = torch.stack(steps) if steps else self.transition.new_empty(0, self.n_states, self.n_states)
        model = type(self)(start, transition, self.emission.restrict(chain), length=len(keep))
        model._place = order
        return model

    def _conditionals(self, log_emission: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, D) log p(x_j | x_R) for every j, as if j were hidden."""
        visible = ~hidden[:, self._place]
        message = torch.zeros_like(self._start(log_emission, visible))
        after = [message]  # backward messages, last position first
        for t in range(self.dim - 1, 0, -1):
            message = _step(message + _seen(log_emission, visible, t), self.transition[t - 1].T)
            after.append(message)
        message, columns = self._start(log_emission, visible), []
        for t in range(self.dim):
            state = message + after.pop()
            columns.append((state + log_emission[:, None, :, t]).logsumexp(2) - state.logsumexp(2))
            if t < self.dim - 1:
                message = _step(message + _seen(log_emission, visible, t), self.transition[t])
        return torch.stack(columns, 2)[..., self._place.argsort()]

    def _start(self, log_emission: Tensor, visible: Tensor) -> Tensor:
        return self.initial.log().expand(len(log_emission), len(visible), -1)

    def _blocks(self, x: Tensor, n_subsets: int) -> Iterator[Tensor]:
        """(n, S, D) log emission probabilities of consecutive rows, in chain order, to fit a memory budget."""
        x = checked_data(x, self.dim, dtype=self.emission.parameter.dtype, device=self.device)[:, self._place]
        rows = max(1, _WORKING_BYTES // (8 * n_subsets * self.dim * (self.n_states + 1)))
        for start in range(0, len(x), rows):
            yield self.emission.log_prob(x[start : start + rows])


def _seen(log_emission: Tensor, visible: Tensor, t: int) -> Tensor:
    """(N, P, S) log p(x_t | state) where position t is visible, 0 where hidden."""
    return torch.where(visible[:, t, None], log_emission[:, None, :, t], 0)


def _step(message: Tensor, transition: Tensor) -> Tensor:
    """The message one transition on, in log space."""
    return log_matmul(message.reshape(1, -1, message.shape[2]), transition.log()).reshape(message.shape)


def _distribution(probabilities: Tensor, name: str) -> Tensor:
    total = probabilities.sum(-1)
    if not bool((probabilities >= 0).all()) or not bool(((total - 1).abs() < 1e-6).all()):
        raise ModelError(f"{name} must hold non-negative numbers that sum to 1 along the last axis")
    return probabilities / total[..., None]
