"""Linear-Gaussian state space models as the Gaussians they are: a series is one datum, its times the coordinates."""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.checks import check_tensors, checked_count, checked_tensor
from mpt_bayes.errors import DataError, ModelError
from mpt_bayes.models.gaussian import Gaussian


def linear_gaussian_state_space(
    transition: Tensor,
    observation: Tensor,
    state_noise: Tensor,
    observation_noise: float,
    initial_mean: Tensor,
    initial_covariance: Tensor,
    length: int,
) -> Gaussian:
    """a_1 ~ N(m, P), a_{t+1} = T a_t + η_t, η ~ N(0, Q), y_t = Z a_t + ε_t, ε ~ N(0, H), states integrated out.

    Cov(y_t, y_s) = Z T^{t-s} P_s Zᵀ + H 1[t = s] for t ≥ s (Durbin and Koopman 2012, chapter 4). The joint density of
    y is that of the Kalman filter; as a Gaussian it takes every fast path of one.

    Args:
        transition: (S, S) T.
        observation: (S,) Z.
        state_noise: (S, S) Q, positive semi-definite.
        observation_noise: H, non-negative.
        initial_mean, initial_covariance: (S,) m and (S, S) P of the state at the first observation.
        length: D.

    Raises:
        ModelError: shapes that disagree.
        NotPositiveDefiniteError: no noise anywhere along some direction of y.

    Example:
        >>> eye = torch.eye(1)
        >>> walk = linear_gaussian_state_space(eye, torch.ones(1), eye, 0.0, torch.zeros(1), eye, length=3)
        >>> walk.covariance[2].tolist()
        [1.0, 2.0, 3.0]
    """
    check_tensors(
        transition=transition,
        observation=observation,
        state_noise=state_noise,
        initial_mean=initial_mean,
        initial_covariance=initial_covariance,
    )
    n_states = len(observation)
    shapes = [tuple(part.shape) for part in (transition, observation, state_noise, initial_mean, initial_covariance)]
    if shapes != [(n_states, n_states), (n_states,), (n_states, n_states), (n_states,), (n_states, n_states)]:
        raise ModelError(
            f"transition, observation, state_noise, initial_mean and initial_covariance have shapes {shapes}"
        )
    checked_count(length, "length")
    transition, observation, state_noise, state_mean, state_covariance = (
        part.to(torch.float64) for part in (transition, observation, state_noise, initial_mean, initial_covariance)
    )
    mean = torch.empty(length, dtype=torch.float64, device=observation.device)
    covariance = torch.empty(length, length, dtype=torch.float64, device=observation.device)
    shared = state_covariance.new_empty(n_states, 0)  # Cov(state now, observations before)
    for t in range(length):
        mean[t] = observation @ state_mean
        shared = torch.cat([shared, (state_covariance @ observation)[:, None]], 1)
        row = observation @ shared
        covariance[t, : t + 1] = row
        covariance[: t + 1, t] = row
        covariance[t, t] += observation_noise
        state_mean, shared = transition @ state_mean, transition @ shared
        state_covariance = transition @ state_covariance @ transition.T + state_noise
    return Gaussian(mean, covariance)


def local_level(
    level_variance: float, noise_variance: float, length: int, *, initial_mean: float, initial_variance: float
) -> Gaussian:
    """y_t = a_t + ε_t, a_{t+1} = a_t + η_t: a random walk seen through noise; a_1 ~ N(initial_mean, initial_variance).

    Args:
        level_variance, noise_variance: of η and ε.
        length: D.
        initial_mean, initial_variance: of the first level; a large variance is an approximate diffuse start.

    Example:
        >>> local_level(1.0, 2.0, 3, initial_mean=0.0, initial_variance=4.0).covariance.diagonal().tolist()
        [6.0, 7.0, 8.0]
    """
    one = torch.ones(1, 1, dtype=torch.float64)
    return linear_gaussian_state_space(
        one,
        one[0],
        level_variance * one,
        noise_variance,
        initial_mean * one[0],
        initial_variance * one,
        length,
    )


def fitted_local_level(y: Tensor, *, n_iterations: int = 200) -> Gaussian:
    """The local level of one series by maximum likelihood of both variances, started at its first value.

    The first level has mean y_1 and ten times the variance of the series. Newton-like steps (L-BFGS) on log variances.

    Args:
        y: (D,) one series, no missing entries.
        n_iterations: at most.

    Raises:
        DataError: no tensor of shape (D,).
        ModelError: a series that is constant, or has missing entries.

    Example:
        >>> model = fitted_local_level(torch.tensor([1.0, 1.5, 0.7, 1.2, 1.9, 1.4]))
        >>> model.dim
        6
    """
    if checked_tensor(y, "y").ndim != 1:
        raise DataError(f"y has shape {tuple(y.shape)}: expected one series, (D,); of a table of series pass one, x[0]")
    y = y.to(torch.float64)
    spread = float(y.var(correction=0))
    if not spread > 0:
        raise ModelError("the series is constant or has missing entries: a local level has nothing to fit")
    logs = torch.full((2,), spread / 2, dtype=torch.float64).log().requires_grad_()
    steps = torch.arange(1, len(y) + 1, dtype=torch.float64)

    def model_of(log_variances: Tensor) -> Gaussian:
        level, noise = log_variances.exp()
        covariance = level * (torch.minimum(steps[:, None], steps) - 1) + 10 * spread
        return Gaussian(y[0].expand(len(y)), covariance + noise * torch.eye(len(y), dtype=torch.float64))

    optimiser = torch.optim.LBFGS([logs], max_iter=n_iterations, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimiser.zero_grad()
        value = -model_of(logs).log_marginal_likelihood(y[None])[0]
        value.backward()
        return float(value.detach())

    optimiser.step(loss)
    level, noise = logs.detach().exp().tolist()
    return local_level(level, noise, len(y), initial_mean=float(y[0]), initial_variance=10 * spread)
