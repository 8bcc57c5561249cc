"""MC-dropout as approximate Bayesian regression: predictive log-likelihood and the precision it implies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpt_bayes.checks import check_numbers, checked_count, checked_positive, checked_rate, checked_tensor
from mpt_bayes.dropout.ensemble import SubNetworks
from mpt_bayes.errors import DataError


def predictive_log_likelihood(networks: SubNetworks, targets: Tensor, precision: float) -> Tensor:
    """(B,) log Σ_μ p(μ) N(y; f_μ(x), τ⁻¹ I), in nats per datum.

    For T sampled sub-networks and C outputs this is

        logsumexp_t(-½ τ ‖y - ŷ_t‖²) - log T - C/2 log 2π + C/2 log τ ,

    exact for the mixture when all sub-networks are given; from a sample it is too low on average (Jensen), by about
    half the square of `predictive_standard_error`.

    Args:
        networks: outputs (S, B, C).
        targets: (B, C).
        precision: τ > 0, e.g. from `model_precision`.

    Raises:
        ArgumentError: a precision that is no positive number.
        DataError: targets of another shape, or with entries that are not finite.

    Source: Gal & Ghahramani (2016).

    Example:
        >>> from mpt_bayes.dropout import sampled_subnetworks
        >>> net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        >>> networks = sampled_subnetworks(net, torch.ones(3, 4), 50)
        >>> predictive_log_likelihood(networks, torch.zeros(3, 1), precision=10.0).shape
        torch.Size([3])
    """
    return torch.logsumexp(_log_densities(networks, targets, precision) + networks.log_weight[:, None], dim=0)


def predictive_standard_error(networks: SubNetworks, targets: Tensor, precision: float) -> Tensor:
    """(B,) standard error of `predictive_log_likelihood` from the choice of masks; zero when all were taken.

    The delta method, sd(L_t) / (√T mean(L_t)) with L_t the density under sub-network t, in log space. It is an
    underestimate where few sub-networks carry the sum; see `effective_sample_size`.
    """
    log_density = _log_densities(networks, targets, precision)
    if not networks.sampled:
        return torch.zeros_like(log_density[0])
    relative = torch.exp(log_density - predictive_log_likelihood(networks, targets, precision))
    return relative.std(0) / math.sqrt(len(relative))


def effective_sample_size(networks: SubNetworks, targets: Tensor, precision: float) -> Tensor:
    """(B,) (Σ w)² / Σ w² of the sub-networks' shares w in the predictive density: near 1, one of them carries it."""
    log_share = _log_densities(networks, targets, precision) + networks.log_weight[:, None]
    return torch.exp(2 * torch.logsumexp(log_share, 0) - torch.logsumexp(2 * log_share, 0))


def model_precision(rate: float, length_scale: float, n_data: int, weight_decay: float) -> float:
    """τ = (1 - q) l² / (2 N λ): the observation precision for which dropout training is variational inference.

    For the objective (1/N) Σ_n ½‖y_n - ŷ_n‖² + λ Σ ‖W‖², a Gaussian process prior of length scale l.

    Raises:
        ArgumentError: a rate outside [0, 1), or anything else that is no finite positive number.

    Source: Gal & Ghahramani (2016) (their p is the probability of keeping a unit).

    Example:
        >>> model_precision(0.5, length_scale=1.0, n_data=100, weight_decay=0.001)
        2.5
    """
    checked_rate(rate)
    checked_count(n_data, "n_data")
    checked_positive(length_scale, "length_scale")
    checked_positive(weight_decay, "weight_decay")
    return (1 - rate) * length_scale**2 / (2 * n_data * weight_decay)


def _log_densities(networks: SubNetworks, targets: Tensor, precision: float) -> Tensor:
    """(S, B) float64 log N(y; f_μ(x), τ⁻¹ I)."""
    checked_positive(precision, "precision")
    checked_tensor(targets, "targets")
    if networks.outputs.ndim != 3 or targets.shape != networks.outputs.shape[1:]:
        raise DataError(
            f"targets has shape {tuple(targets.shape)} and outputs {tuple(networks.outputs.shape)}: expected "
            "(B, C) and (S, B, C)"
        )
    check_numbers(targets, "targets")
    squared = (targets.to(torch.float64) - networks.outputs.to(torch.float64)).square().sum(-1)
    return -0.5 * precision * squared + 0.5 * targets.shape[1] * math.log(precision / (2 * math.pi))
