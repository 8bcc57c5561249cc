"""The 2^N sub-networks that dropout trains, averaged exactly or from a sample, beside the one network used at test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from mpt_bayes.checks import checked_count
from mpt_bayes.dropout.interception import Site, check_batch, checked_output, dropout_sites, forward_with, modes_kept
from mpt_bayes.errors import BudgetError
from mpt_bayes.numerics.combinatorics import all_subsets, log_bernoulli
from mpt_bayes.numerics.random import Stream, seed_from


@final
@dataclass(frozen=True, eq=False)
class SubNetworks:
    """Outputs of sub-networks with the weights of their masks.

    Attributes:
        outputs: (S, B, …) of each sub-network, its kept units scaled by 1/(1 - q).
        kept: (S, N) bool, the units each one keeps, sites in order.
        log_weight: (S,) float64, summing to one: log Π (1 - q)^kept q^dropped for all of them, -log S for a sample.
        sampled: False when all 2^N are here; averages are then exact.
        seed: replays the sample; None when nothing was drawn.
    """

    outputs: Tensor
    kept: Tensor
    log_weight: Tensor
    sampled: bool
    seed: int | None

    def mean(self) -> Tensor:
        """(B, …) Σ_μ p(μ) f_μ(x): model averaging, the optimal predictor under squared error."""
        return torch.einsum("s,s...->...", self.log_weight.exp().to(self.outputs), self.outputs)

    def standard_error(self) -> Tensor:
        """(B, …) of `mean`, entry by entry, from the choice of masks: zero when all were taken.

        Every row of the batch goes through the same sub-networks, so entries are correlated: a standard error of a
        sum of entries is not to be had from these.
        """
        if not self.sampled:
            return torch.zeros_like(self.outputs[0])
        return self.outputs.std(0) / math.sqrt(len(self.outputs))

    def variance(self) -> Tensor:
        """(B, …) Var_μ f_μ(x), the spread of the sub-networks about their mean (divisor 1, not S - 1)."""
        return torch.einsum(
            "s,s...->...", self.log_weight.exp().to(self.outputs), (self.outputs - self.mean()).square()
        )

    def arithmetic_log_prob(self) -> Tensor:
        """(B, …, C) log Σ_μ p(μ) softmax(f_μ(x)), for outputs that are logits over the last dimension."""
        weight = self.log_weight.to(self.outputs).reshape(-1, *[1] * (self.outputs.ndim - 1))
        return torch.logsumexp(self.outputs.log_softmax(-1) + weight, dim=0)

    def geometric_log_prob(self) -> Tensor:
        """(B, …, C) the normalised weighted geometric mean of the softmax outputs.

        Π_μ softmax(f_μ)^p(μ) / normaliser = softmax(Σ_μ p(μ) f_μ), since each sub-network's own normaliser is shared by
        all classes.
        """
        return self.mean().log_softmax(-1)


def all_subnetworks(module: nn.Module, x: Tensor, *, max_masks: int = 2**16, chunk: int = 4096) -> SubNetworks:
    """Every sub-network of a module with dropout on inputs or hidden units, with the probability of its mask.

    The 2^N masks over the N units of all dropout calls have probability Π_i (1 - q_i)^kept q_i^dropped; all are equal,
    2^-N, for q = 1/2 only. Srivastava et al. (2014), Baldi & Sadowski (2013).

    Args:
        module: called as module(x); gradients flow; run as in training except that batch and instance normalisation
            keep their running statistics. Its training flags are put back.
        x: (B, …), batch first.
        max_masks: refuse above this number of masks.
        chunk: most (mask, datum) pairs in one forward pass.

    Raises:
        BudgetError: more than `max_masks` masks.
        ModelError, DataError, ArgumentError: as `dropout_sites`.

    Example:
        >>> net = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 1)).double()
        >>> x = torch.ones(2, 4, dtype=torch.float64)
        >>> networks = all_subnetworks(net, x)
        >>> len(networks.outputs), torch.allclose(networks.mean(), weight_scaled(net, x))
        (16, True)
    """
    sites = dropout_sites(module, x)
    units = sum(site.units for site in sites)
    if 2**units > max_masks:
        raise BudgetError(
            f"{units} units can be dropped, giving 2^{units} sub-networks, above the budget max_masks={max_masks}: "
            "sample them with sampled_subnetworks, or raise max_masks"
        )
    kept = all_subsets(units)
    log_weight = log_bernoulli(kept, 1 - _rates(sites))
    return SubNetworks(_outputs(module, x, sites, kept, chunk), kept, log_weight, sampled=False, seed=None)


def sampled_subnetworks(
    module: nn.Module, x: Tensor, n_samples: int, *, generator: torch.Generator | None = None, chunk: int = 4096
) -> SubNetworks:
    """Monte Carlo dropout: `n_samples` sub-networks drawn with their probability, each applied to the whole batch.

    Sample k is a function of the seed and k alone, whatever the batch or the number of samples.
    Gal & Ghahramani (2016).

    Args:
        module, x, chunk: as for `all_subnetworks`.
        n_samples: at least 2, so that there is a standard error.
        generator: stands for the seed.

    Example:
        >>> net = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1))
        >>> networks = sampled_subnetworks(net, torch.ones(2, 4), 100)
        >>> networks.mean().shape, bool((networks.standard_error() > 0).all())
        (torch.Size([2, 1]), True)
    """
    checked_count(n_samples, "n_samples", minimum=2)
    sites = dropout_sites(module, x)
    seed = seed_from(generator)
    stream = Stream(seed).child("dropout")
    rate = _rates(sites)
    uniform = [
        torch.rand(len(rate), dtype=torch.float64, generator=stream.child(k).generator()) for k in range(n_samples)
    ]
    kept = torch.stack(uniform) >= rate
    log_weight = torch.full((n_samples,), -math.log(n_samples), dtype=torch.float64)
    return SubNetworks(_outputs(module, x, sites, kept, chunk), kept, log_weight, sampled=True, seed=seed)


def weight_scaled(module: nn.Module, x: Tensor) -> Tensor:
    """(B, …) the network as used at test, dropout off: the mean of every multiplier (weight averaging).

    Exact for linear networks; for the geometric mean of one softmax layer under input dropout; elsewhere an
    approximation of `SubNetworks.mean`, of first order in the deviations of the multipliers.

    Raises:
        DataError: x is no tensor, is empty, or has entries that are not finite.
        ModelError: a module that does not return one tensor, batch first.
        ArgumentError: no torch module.
    """
    check_batch(x)
    with modes_kept(module):
        return checked_output(module.eval(), x)


def curvature_gap(module: nn.Module, x: Tensor) -> Tensor:
    """(B, …) second-order approximation of model average minus weight average.

    With ε_i the multiplier of unit i, of mean 1 and variance q_i/(1 - q_i), independent:

        E f(ε) - f(1) ≈ ½ Σ_i q_i/(1 - q_i) ∂²f/∂ε_i² (1)

    What is left is of third order in the dropped contributions. It does NOT vanish faster than the gap as q → 0 alone:
    every central moment of ε is of order q. Twice forward-differentiated in all N directions in one pass.

    Example:
        >>> net = nn.Sequential(nn.Dropout(0.1), nn.Linear(3, 1)).double()
        >>> curvature_gap(net, torch.ones(1, 3, dtype=torch.float64)).abs().max().item()
        0.0
    """
    sites = dropout_sites(module, x)
    rate = _rates(sites).to(x)
    directions = torch.eye(len(rate), dtype=x.dtype, device=x.device)

    def along(step: Tensor) -> Tensor:
        return forward_with(module, x, sites, 1 + step * directions)

    def slope(step: Tensor) -> Tensor:
        derivative: Tensor = torch.func.jvp(along, (step,), (torch.ones_like(step),))[1]
        return derivative

    zero = x.new_zeros(())
    curvature: Tensor = torch.func.jvp(slope, (zero,), (torch.ones_like(zero),))[1]
    return torch.einsum("n,n...->...", 0.5 * rate / (1 - rate), curvature)


def _rates(sites: tuple[Site, ...]) -> Tensor:
    """(N,) float64: the rate of each unit."""
    rates = [torch.full((site.units,), site.rate, dtype=torch.float64) for site in sites]
    return torch.cat([torch.zeros(0, dtype=torch.float64), *rates])


def _outputs(module: nn.Module, x: Tensor, sites: tuple[Site, ...], kept: Tensor, chunk: int) -> Tensor:
    """(S, B, …) outputs of the sub-networks that keep the units `kept`, (S, N)."""
    scale = (1 / (1 - _rates(sites))).to(x.device)
    multipliers = torch.where(kept.to(x.device), scale, 0.0)
    parts = multipliers.split(max(1, chunk // len(x)))
    return torch.cat([forward_with(module, x, sites, part) for part in parts])
