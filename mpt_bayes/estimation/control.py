"""Control variates: functions of a mask whose expectation given its size is known, fitted to masks already scored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import torch
from torch import Tensor

TREND_DEGREE = 7
COORDINATE_PENALTY = (2.0, 5.0, 10.0, 10.0)
"""Ridge penalties in observations of a coordinate, for the constant, linear, … part of its dependence on the size."""
VISIBLE_PENALTIES = (4.0, 16.0, 64.0, 256.0, math.inf)
"""Ridge penalties for the visible side, in units of the noise variance; the evidence of the scores chooses one."""
WINDOW = 0.06
"""Width of the smoothing window of `local_scale` on the scaled log-odds of the rate."""


@dataclass(frozen=True)
class ControlVariate:
    """What a mask is expected to score beyond the average of its size, from which coordinates it hides and shows.

    With z(m) = log-odds of the rate and Legendre polynomials φ_k of it,

        trend(m)   = Σ_k t_k φ_k(m)
        hidden(M)  = mean_{j∈M} b_j(m) - mean_j b_j(m),                  b_j(m) = Σ_k b_jk φ_k(m)
        visible(M) = Σ_i (1[i visible] - r/D) a_i(m) / sqrt(r m / D),    r = D - m visible

    Over uniform masks of one size the last two have mean zero whatever the coefficients, so subtracting them leaves a
    mask's score unbiased for S(m) as long as the coefficients come from other, independent masks. The coefficients are
    linear in the scores: the fit of a sum over rows is the sum of the fits.

    Attributes:
        trend: (R, T), hidden: (R, D, K), visible: (R, D, K) coefficients, one set for each of R rows.
    """

    trend: Tensor
    hidden: Tensor
    visible: Tensor

    @classmethod
    def fit(cls, hidden: Tensor, log_prob: Tensor) -> Self:
        """By ridge regression, step by step: the trend on s(M), coordinate effects on the log-probabilities of each
        hidden coordinate, visible-side effects on what is left of s(M).

        Args:
            hidden: (P, D) bool.
            log_prob: (R, P, D) float64, 0 where visible.
        """
        n_masks, dim = hidden.shape
        size = hidden.sum(1)
        share = hidden.to(torch.float64)
        score = log_prob.sum(2) / size
        trend = _trend(size, score, dim)

        basis = size_basis(size, dim, len(COORDINATE_PENALTY))
        kinds = basis.shape[1]
        products = (basis[:, :, None] * basis[:, None, :]).reshape(n_masks, -1)
        penalty = torch.tensor(COORDINATE_PENALTY, dtype=torch.float64)[:kinds]
        excess = (log_prob - (trend @ size_basis(size, dim, trend.shape[1]).T)[..., None]) * share
        coordinate = torch.zeros(len(log_prob), dim, kinds, dtype=torch.float64)
        for _ in range(2):  # the first pass takes the coordinates' own effects for noise
            weight = _precision(size, ((excess - basis @ coordinate.mT) * share).sum(0), dim)
            gram = (share.T @ (products * weight[:, None])).reshape(dim, kinds, kinds)
            moment = torch.einsum("rpj,pk->rjk", excess, basis * weight[:, None])
            coordinate = torch.linalg.solve(gram + penalty.diag(), moment[..., None])[..., 0]

        partial = cls(trend, coordinate, torch.zeros_like(coordinate))
        left = score - partial.trend_at(size) - partial.centred(hidden)
        scale = local_scale(size, left.sum(0), dim)[size - 1]
        features = (_visible_features(hidden)[:, :, None] * basis[:, None, :] / scale[:, None, None]).reshape(
            n_masks, -1
        )
        visible = _evident_ridge(features, left / scale).reshape(-1, dim, kinds)
        return cls(trend, coordinate, visible)

    def trend_at(self, sizes: Tensor) -> Tensor:
        """(R, P) the trend at each size."""
        dim, degree = self.hidden.shape[1], self.trend.shape[1]
        return self.trend @ size_basis(sizes, dim, degree).T

    def centred(self, hidden: Tensor) -> Tensor:
        """(R, P) hidden(M) + visible(M): mean zero over the masks of each size."""
        size, dim = hidden.sum(1), hidden.shape[1]
        basis = size_basis(size, dim, self.hidden.shape[2])
        chosen = hidden.to(torch.float64) / size[:, None] - 1 / dim
        effects = chosen @ self.hidden + _visible_features(hidden) @ self.visible  # (R, P, K)
        return (effects * basis).sum(2)


def size_basis(sizes: Tensor, dim: int, count: int) -> Tensor:
    """(P, count) Legendre polynomials of the log-odds of the rate, scaled into (-1, 1): resolved at both ends."""
    return _basis_of_all_sizes(dim, count)[sizes - 1]


@lru_cache(maxsize=32)
def _basis_of_all_sizes(dim: int, count: int) -> Tensor:
    m = torch.arange(1, dim + 1, dtype=torch.float64)
    u = ((m + 0.5) / (dim - m + 0.5)).log() / math.log(2 * dim + 1)
    columns = [torch.ones_like(u), u]
    for k in range(2, count):
        columns.append(((2 * k - 1) * u * columns[-1] - (k - 1) * columns[-2]) / k)
    return torch.stack(columns[:count], 1)


def prior_scale(dim: int) -> Tensor:
    """(D,) shape of the standard deviation of s(M) over masks of size m, before anything was seen.

    The mean over m of D coordinates has a standard deviation that falls like 1 / sqrt(m), and effects of the visible
    side fall like 1 / sqrt(D - m): half of each, and a constant.
    """
    m = torch.arange(1, dim + 1, dtype=torch.float64)
    return (dim / m).sqrt() / 2 + (dim / (dim - m + 1)).sqrt() / 2


def local_scale(sizes: Tensor, residual: Tensor, dim: int) -> Tensor:
    """(D,) standard deviation of residuals as a smooth function of the size, shrunk towards the prior's shape.

    Squared residuals over the prior's squares are averaged with a Gaussian window of log-odds; the average over a wider
    window counts as two observations at every size, so a size that was hardly seen is not taken for quiet.
    """
    shape = prior_scale(dim).square()
    ratio = residual.square() / shape[sizes - 1]
    place = size_basis(torch.arange(1, dim + 1), dim, 2)[:, 1]
    square = (place[:, None] - place[sizes - 1]).square()
    level = ratio.mean().clamp_min(torch.finfo(torch.float64).tiny)
    for width, count in ((4 * WINDOW, 1), (WINDOW, 2)):
        window = torch.exp(-0.5 * square / width**2)
        level = (window @ ratio + count * level) / (window.sum(1) + count)
    return (shape * level).sqrt()


def _trend(size: Tensor, score: Tensor, dim: int) -> Tensor:
    """(R, T) polynomial in the log-odds of the rate, each mask weighted by its precision: noise of one end of the sizes
    would show as waves at the others."""
    basis = size_basis(size, dim, min(TREND_DEGREE + 1, dim))
    penalty = 0.1 * torch.arange(basis.shape[1], dtype=torch.float64).square() + 1e-12
    rough = _ridge(basis, score, penalty)
    scale = local_scale(size, (score - rough @ basis.T).sum(0), dim)[size - 1]
    scale = scale * scale.reciprocal().square().mean().sqrt()
    return _ridge(basis / scale[:, None], score / scale, penalty)


def _precision(size: Tensor, residual: Tensor, dim: int) -> Tensor:
    """(P,) weights of masks: one over the mean square, at their size, of what is left (P, D) of a hidden coordinate's
    log-probability; 1 on average over hidden coordinates. A token with nothing visible is many times noisier."""
    square = residual.square().sum(1) / size
    precision = local_scale(size, square.sqrt(), dim)[size - 1].square().reciprocal()
    return precision * (size.sum() / (precision @ size.to(torch.float64)))


def _visible_features(hidden: Tensor) -> Tensor:
    """(P, D) visible indicators less their mean given the size, each row of unit length; 0 where nothing is visible."""
    dim = hidden.shape[1]
    size = hidden.sum(1, keepdim=True).to(torch.float64)
    length = ((dim - size) * size / dim).sqrt()
    return torch.where(size < dim, (size / dim - hidden.to(torch.float64)) / length.clamp_min(0.1), 0.0)


def _ridge(features: Tensor, target: Tensor, penalty: Tensor) -> Tensor:
    """(R, F) coefficients of R targets (R, P), minimising |target - features·c|² + Σ penalty c²."""
    coefficients: Tensor = torch.linalg.solve(features.T @ features + penalty.diag(), features.T @ target.T)
    return coefficients.T


def _evident_ridge(features: Tensor, target: Tensor) -> Tensor:
    """Ridge with one penalty for all, that of `VISIBLE_PENALTIES` with the largest evidence for the sum of the targets.

    With K = features featuresᵀ and noise variance v profiled out, y ~ N(0, v (I + K / penalty)): through the
    eigenvectors of K, or of featuresᵀ features where that is smaller. An infinite penalty leaves the visible side out.
    """
    n_masks, count = features.shape
    wide = count > n_masks
    eigenvalues, vectors = torch.linalg.eigh(features @ features.T if wide else features.T @ features)
    keep = eigenvalues > 1e-10 * eigenvalues[-1].clamp_min(1e-10)
    spectrum, vectors = eigenvalues[keep], vectors[:, keep]
    left = vectors if wide else features @ vectors / spectrum.sqrt()
    response = left.T @ target.T  # (F', R)
    total = target.sum(0)
    energy, along = total.square().sum(), response.sum(1).square()
    best, penalty = -math.inf, math.inf
    for candidate in VISIBLE_PENALTIES:
        shrink = spectrum / (spectrum + candidate)
        noise = (energy - shrink @ along).clamp_min(torch.finfo(torch.float64).tiny) / n_masks
        evidence = -0.5 * float((1 + spectrum / candidate).log().sum() + n_masks * noise.log())
        if evidence > best:
            best, penalty = evidence, candidate
    coefficients: Tensor = features.T @ (left @ (response / (spectrum + penalty)[:, None]))
    return coefficients.T
