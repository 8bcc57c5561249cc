"""Bayesian linear regression: the responses are the coordinates of one datum, weights and noise integrated out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mpt_bayes.checks import check_tensors, checked_tensor
from mpt_bayes.errors import ModelError
from mpt_bayes.models.gaussian import Gaussian
from mpt_bayes.models.student_t import StudentT
from mpt_bayes.numerics.cholesky import cholesky

if TYPE_CHECKING:
    from sklearn.linear_model import BayesianRidge


def linear_regression(
    inputs: Tensor, prior_mean: Tensor, prior_covariance: Tensor, *, shape: float, rate: float
) -> StudentT:
    """y = X β + ε, ε ~ N(0, σ² I), β | σ² ~ N(m, σ² V), σ² ~ InverseGamma(shape, rate): the joint density of y.

    y ~ Student-t with 2·shape degrees of freedom, location X m and scale (rate / shape)(I + X V Xᵀ) (Bernardo and Smith
    1994, section 5.2). One data set of n responses is one datum: pass y.reshape(1, -1). With a prior covariance the
    masked score S(1) is leave-one-out over responses and the area the evidence.

    Args:
        inputs: (n, p) X.
        prior_mean: (p,) m.
        prior_covariance: (p, p) V, positive definite, in units of σ².
        shape, rate: of the noise variance, positive.

    Raises:
        ModelError: shapes that disagree, parameters that are not positive.
        NotPositiveDefiniteError: of V.

    Example:
        >>> model = linear_regression(torch.ones(4, 1), torch.zeros(1), torch.eye(1), shape=2.0, rate=1.0)
        >>> model.dim, float(model.degrees_of_freedom)
        (4, 4.0)
    """
    inputs = _checked_inputs(inputs)
    check_tensors(prior_mean=prior_mean, prior_covariance=prior_covariance)
    p = inputs.shape[1]
    if prior_mean.shape != (p,) or prior_covariance.shape != (p, p):
        raise ModelError(
            f"prior_mean has shape {tuple(prior_mean.shape)} and prior_covariance {tuple(prior_covariance.shape)}: "
            f"expected ({p},) and ({p}, {p}), one for each input"
        )
    factor = inputs @ cholesky(prior_covariance.to(inputs), "prior_covariance")
    return _student(inputs @ prior_mean.to(inputs), factor @ factor.T, shape, rate)


def g_prior_regression(inputs: Tensor, g: float, *, shape: float, rate: float) -> StudentT:
    """Zellner's g-prior, β | σ² ~ N(0, g σ² (XᵀX)⁻¹): X V Xᵀ = g times the projection on the columns of X.

    Raises:
        ModelError: g not positive, or columns of X that depend on each other.

    Example:
        >>> g_prior_regression(torch.ones(4, 1), 4.0, shape=1.0, rate=1.0).scale[0].tolist()
        [2.0, 1.0, 1.0, 1.0]
    """
    inputs = _checked_inputs(inputs)
    if not g > 0:
        raise ModelError(f"g is {g:g}: expected a positive number")
    basis, triangle = torch.linalg.qr(inputs)
    diagonal = triangle.diagonal().abs()
    if inputs.shape[1] > len(inputs) or bool(diagonal.min() < 1e-12 * diagonal.max()):
        raise ModelError("the columns of inputs depend on each other, so the g-prior is improper: use ridge_regression")
    return _student(inputs.new_zeros(len(inputs)), g * (basis @ basis.T), shape, rate)


def ridge_regression(inputs: Tensor, penalty: float, *, shape: float, rate: float) -> StudentT:
    """The ridge prior, β | σ² ~ N(0, σ² I / penalty), with the noise variance integrated out.

    Raises:
        ModelError: a penalty that is not positive.

    Example:
        >>> ridge_regression(torch.eye(2), 0.5, shape=1.0, rate=1.0).scale.tolist()
        [[3.0, 0.0], [0.0, 3.0]]
    """
    inputs = _checked_inputs(inputs)
    if not penalty > 0:
        raise ModelError(f"penalty is {penalty:g}: expected a positive number")
    return _student(inputs.new_zeros(len(inputs)), inputs @ inputs.T / penalty, shape, rate)


def fixed_noise_regression(
    inputs: Tensor, noise_precision: float, weight_precision: float, *, mean: float = 0.0
) -> Gaussian:
    """y ~ N(mean, X Xᵀ / weight_precision + I / noise_precision): both precisions known (Bishop 2006, section 3.5).

    Raises:
        ModelError: a precision that is not positive.

    Example:
        >>> fixed_noise_regression(torch.eye(2), 4.0, 2.0).covariance.diagonal().tolist()
        [0.75, 0.75]
    """
    inputs = _checked_inputs(inputs)
    if not min(noise_precision, weight_precision) > 0:
        raise ModelError(f"precisions must be positive: got {noise_precision:g} and {weight_precision:g}")
    covariance = inputs @ inputs.T / weight_precision
    noise = torch.eye(len(inputs), dtype=inputs.dtype, device=inputs.device) / noise_precision
    return Gaussian(inputs.new_full((len(inputs),), mean), covariance + noise)


def regression_from_sklearn(fitted: BayesianRidge, inputs: Tensor) -> Gaussian:
    """The evidence model of a fitted scikit-learn BayesianRidge: its alpha_ and lambda_, its centring of inputs and y.

    Its own `scores_` add the hyper-priors of the two precisions and drop constants of their own; this is p(y) alone.
    """
    offset = torch.as_tensor(fitted.X_offset_, dtype=torch.float64)
    mean = float(fitted.intercept_ + offset.numpy() @ fitted.coef_)
    return fixed_noise_regression(
        inputs.to(torch.float64) - offset, float(fitted.alpha_), float(fitted.lambda_), mean=mean
    )


def _student(location: Tensor, spread: Tensor, shape: float, rate: float) -> StudentT:
    if not min(shape, rate) > 0:
        raise ModelError(f"shape and rate must be positive: got {shape:g} and {rate:g}")
    eye = torch.eye(len(location), dtype=location.dtype, device=location.device)
    return StudentT(location, rate / shape * (eye + spread), 2 * shape)


def _checked_inputs(inputs: Tensor) -> Tensor:
    checked_tensor(inputs, "inputs")
    if inputs.ndim != 2 or not bool(inputs.isfinite().all()):
        raise ModelError(f"inputs has shape {tuple(inputs.shape)}: expected a finite (n, p) table, one row a response")
    return inputs.to(torch.float64)
