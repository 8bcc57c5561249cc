"""Gaussian processes: any exact GPyTorch model, its observed outputs taken as the coordinates of one datum."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mpt_bayes.checks import Missing
from mpt_bayes.errors import ArgumentError, ModelError
from mpt_bayes.models.base import JointModel, OrderTotals
from mpt_bayes.models.gaussian import Gaussian

if TYPE_CHECKING:
    from gpytorch.likelihoods import Likelihood
    from gpytorch.models import ExactGP


@final
class GaussianProcess(JointModel):
    """y ~ N(m(X), K(X, X) + noise): the prior of a GPyTorch ExactGP at its training inputs, noise included.

    The coordinates are the n observed outputs, so the data are (N, n) tables whose rows are independent draws of the
    process (usually one: `targets`). Values are total nats of the data alone: priors on hyper-parameters are never
    folded in, and train and eval mode give the same numbers. Computed in float64 by Cholesky factorisation, and
    differentiable in the hyper-parameters; the model stays as it is, one in float32 too. Rasmussen and Williams (2006),
    chapter 2.

    Args:
        model: an ExactGP with training inputs, one output, no batch dimensions.
        likelihood: Gaussian, homoscedastic or with fixed noise per observation; the model's own if not given.
        jitter: added to the diagonal of the covariance only if asked for; it stays on record in `jitter` and `repr`.

    Raises:
        ModelError: not an ExactGP, a non-Gaussian likelihood, batch or multitask outputs, an approximate kernel.

    Example:
        >>> import torch
        >>> time = torch.arange(4.0)
        >>> model = GaussianProcess.from_kernel("rbf", time, time.sin())
        >>> model.targets.shape, model.log_marginal_likelihood(model.targets).shape
        (torch.Size([1, 4]), torch.Size([1]))
    """

    def __init__(self, model: ExactGP, likelihood: Likelihood | None = None, *, jitter: float = 0.0) -> None:
        if not jitter >= 0:
            raise ArgumentError(f"jitter is {jitter}: expected 0 or a small positive number")
        likelihood = getattr(model, "likelihood", None) if likelihood is None else likelihood
        _check_exact(model, likelihood)
        self._prior = _NoisyPrior(model, likelihood)
        self.jitter = jitter
        self._keep = torch.arange(len(model.train_inputs[0]), device=model.train_inputs[0].device)
        with torch.no_grad():
            self.joint()

    @classmethod
    def from_kernel(cls, kernel: str, inputs: Tensor, targets: Tensor) -> Self:
        """A constant mean, a kernel by name and Gaussian noise, at starting values read from the data; then `fit` it.

        Args:
            kernel: sums and products of rbf, matern12, matern32, matern52, periodic, rq and linear, such as
                "linear+periodic*rbf", or "co2" (a trend, a yearly cycle that drifts, and medium-term wiggles).
            inputs: (n,) or (n, d).
            targets: (n,) or (1, n); NaN where missing.

        Raises:
            ArgumentError: an unknown kernel name.
            DataError: shapes that disagree, infinite entries, fewer than two observed targets.
        """
        from mpt_bayes.models.gp_fit import exact_gp

        return cls(exact_gp(kernel, inputs, targets))

    def fit(self, x: Tensor | None = None, *, missing: Missing = "error", max_iterations: int = 200) -> Self:
        """The model with hyper-parameters of maximum exact marginal likelihood; this model stays as it is.

        Deterministic: L-BFGS from the present values, to the maximum nearby; another start may find a higher one.

        Args:
            x: (N, n) data; the training targets if not given.
            missing: "error", or "marginalise" to integrate NaN entries out exactly.
            max_iterations: of L-BFGS.

        Raises:
            DataError: missing or infinite entries (row named).
            NotPositiveDefiniteError: hyper-parameters at which the covariance cannot be factorised.
        """
        from mpt_bayes.models.gp_fit import maximised

        fitted = self.copied()
        maximised(fitted, fitted._prior, self.targets if x is None else x, missing, max_iterations)
        return fitted

    def copied(self) -> Self:
        """The same process with hyper-parameters of its own."""
        other = copy.copy(self)
        other._prior = copy.deepcopy(self._prior)
        return other

    @property
    def dim(self) -> int:
        """The number of observed outputs."""
        return len(self._keep)

    @property
    def device(self) -> torch.device:
        """Where the inputs live."""
        return self._keep.device

    @property
    def model(self) -> ExactGP:
        """The GPyTorch model, whose hyper-parameters are those of this one."""
        return self._prior.model

    @property
    def inputs(self) -> Tensor:
        """(n, d) the inputs of the coordinates."""
        inputs: Tensor = self._prior.model.train_inputs[0]
        return inputs[self._keep]

    @property
    def targets(self) -> Tensor:
        """(1, n) the training targets as one datum, in float64."""
        targets: Tensor = self._prior.model.train_targets
        return targets.detach().to(torch.float64)[self._keep].reshape(1, -1)

    @property
    def hyperparameters(self) -> dict[str, list[float]]:
        """Values of every hyper-parameter by its GPyTorch name, constraints applied."""
        whole, noise = self._prior.model, self._prior.likelihood  # which need not be the model's own
        named = [(f"likelihood.{name}", *rest) for name, *rest in noise.named_parameters_and_constraints()]
        named += [entry for entry in whole.named_parameters_and_constraints() if not entry[0].startswith("likelihood.")]
        return {
            name.replace("raw_", ""): (raw if limit is None else limit.transform(raw)).detach().reshape(-1).tolist()
            for name, raw, limit in named
        }

    @property
    def raw_parameters(self) -> dict[str, Tensor]:
        """The hyper-parameters as an optimiser moves them, by name: leaves of every result, before constraints."""
        return dict(self._prior.named_parameters())

    def joint(self) -> Gaussian:
        """The joint Gaussian of the observed outputs at the present hyper-parameters.

        Raises:
            NotPositiveDefiniteError: gives the smallest eigenvalue.
        """
        return Gaussian(*self.moments())

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean (n,) and covariance (n, n) of the observed outputs, noise and jitter included, in float64."""
        mean, covariance = self._prior.moments()
        covariance = covariance[self._keep][:, self._keep]
        if self.jitter:
            covariance = covariance + self.jitter * torch.eye(self.dim, dtype=covariance.dtype, device=self.device)
        return mean[self._keep], covariance

    def masked_log_prob(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(N, P, n) log p(y_j | visible outputs), noise included."""
        return self.joint().masked_log_prob(x, hidden)

    def log_marginal_likelihood(self, x: Tensor) -> Tensor:
        """(N,) log N(y; m(X), K + noise), total nats."""
        return self.joint().log_marginal_likelihood(x)

    def marginal_log_prob(self, x: Tensor, visible: Tensor) -> Tensor:
        """(N, P) log density of the visible outputs."""
        return self.joint().marginal_log_prob(x, visible)

    def order_curve(self, x: Tensor, orders: Tensor) -> Tensor:
        """(N, n_orders, n) the scores of all nested masks of each order; differentiable in the hyper-parameters."""
        return self.joint().order_curve(x, orders)

    def order_totals(self, x: Tensor, orders: Tensor, *, per_row: bool) -> OrderTotals:
        """The curves of `order_curve` summed over rows."""
        return self.joint().order_totals(x, orders, per_row=per_row)

    def restrict(self, keep: Tensor) -> Self:
        """The process at the inputs `keep` only; hyper-parameters are shared with this model."""
        part = copy.copy(self)
        part._keep = self._keep[keep]
        return part

    def __repr__(self) -> str:
        jitter = f", jitter={self.jitter:g}" if self.jitter else ""
        return f"GaussianProcess({type(self._prior.model).__name__}, n={self.dim}{jitter})"


class _NoisyPrior(nn.Module):
    """A GPyTorch model with its likelihood as one module, whose output is the moments of the observed outputs."""

    def __init__(self, model: ExactGP, likelihood: Likelihood) -> None:
        super().__init__()
        self.model = model
        self.likelihood = likelihood

    def forward(self) -> tuple[Tensor, Tensor]:
        inputs = [x.to(torch.float64) for x in self.model.train_inputs]
        prior = self.model.forward(*inputs)
        _check_one_output(prior, len(inputs[0]))
        noisy = self.likelihood(prior, *inputs)
        return noisy.mean, noisy.covariance_matrix

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance in float64 whatever the parameters' dtype, with gradients to the parameters.

        The user's modules lend themselves for the call. A module found under several names (the likelihood always is)
        goes in under one of them and weights are not tied by name: `functional_call` would give the module its own
        tensor back under one name and the double copy under the next.
        """
        double: dict[int, Tensor] = {}  # by tensor: one shared by two modules stays one
        state = {}
        for prefix, module in self.named_modules():
            own = [*module.named_parameters(prefix, recurse=False, remove_duplicate=False)]
            own += module.named_buffers(prefix, recurse=False, remove_duplicate=False)
            for name, tensor in own:
                if tensor.is_floating_point():
                    state[name] = double.setdefault(id(tensor), tensor.to(torch.float64))
        with _evaluation(self):
            mean, covariance = functional_call(self, state, (), tie_weights=False)
        return mean.to(torch.float64), covariance.to(torch.float64)


@contextmanager
def _evaluation(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, the mode of each part restored after, without touching GPyTorch's caches."""
    modes = {part: part.training for part in module.modules()}
    for part in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def _check_exact(model: Any, likelihood: Any) -> None:
    """Refuse what has no exact Gaussian joint over its outputs."""
    from gpytorch.kernels import GridInterpolationKernel, InducingPointKernel
    from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
    from gpytorch.models import ExactGP

    if not isinstance(model, ExactGP):
        raise ModelError(
            f"{type(model).__name__} is not a gpytorch ExactGP: an approximate GP has no exact marginal likelihood"
        )
    if not isinstance(likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood):
        raise ModelError(
            f"likelihood is {type(likelihood).__name__}: only GaussianLikelihood and FixedNoiseGaussianLikelihood have "
            "exact conditionals for one output"
        )
    if model.train_inputs is None or model.train_targets is None:
        raise ModelError("the model has no training data: call set_train_data with the inputs and observed outputs")
    if model.train_inputs[0].ndim != 2 or model.train_targets.ndim != 1:
        raise ModelError(
            f"training inputs have shape {tuple(model.train_inputs[0].shape)} and targets "
            f"{tuple(model.train_targets.shape)}: batch and multitask models are not supported; make one "
            "GaussianProcess for each batch entry"
        )
    for part in model.modules():
        if isinstance(part, InducingPointKernel | GridInterpolationKernel):
            raise ModelError(f"{type(part).__name__} approximates its base kernel: use the base kernel itself")


def _check_one_output(prior: Any, n: int) -> None:
    if tuple(prior.mean.shape) != (n,):
        raise ModelError(
            f"the prior mean has shape {tuple(prior.mean.shape)} for {n} inputs: batch and multitask models are not "
            "supported; make one GaussianProcess for each output"
        )
