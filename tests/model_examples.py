"""One small example of every concrete model, for the contract suite. A new model adds two lines to EXAMPLES."""

import importlib
import inspect
import pkgutil

import gpytorch
import pyro
import torch

from mpt_bayes import models
from mpt_bayes.models.base import ConditionalModel
from mpt_bayes.models.marginals import _Marginal


def normals(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def uniforms(seed, *shape):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spd(seed, dim):
    factor = normals(seed, dim, dim)
    return factor @ factor.T + 0.3 * torch.eye(dim, dtype=torch.float64)


def table(seed, *shape):
    weights = uniforms(seed, *shape) ** 3 + 1e-3
    return models.JointTable(weights / weights.sum())


def letters(seed, n, dim, alphabet):
    return torch.randint(alphabet, (n, dim), generator=torch.Generator().manual_seed(seed))


def simplex(seed, *shape):
    weights = uniforms(seed, *shape) + 0.1
    return weights / weights.sum(-1, keepdim=True)


class MeanGP(gpytorch.models.ExactGP):
    """A process with a linear mean, so that nothing is right by being zero."""

    def __init__(self, inputs, targets, likelihood, kernel=None):
        super().__init__(inputs, targets, likelihood)
        self.mean_module = gpytorch.means.LinearMean(input_size=1)
        self.covar_module = kernel or gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))
        self.double()
        self.mean_module.weights.data.fill_(0.7)
        self.mean_module.bias.data.fill_(-1.3)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def process(n=5, noise=None, seed=0):
    inputs, targets = uniforms(seed, n).sort().values * 3, normals(seed + 1, n)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.2
    if noise is not None:
        likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise)
    return MeanGP(inputs, targets, likelihood)


def binary_decoder(z):
    """Two latents behind five binary coordinates."""
    return models.BernoulliEmission.from_logits(z @ normals(29, 2, 5) + normals(30, 5))


def two_groups(x):
    """A Pyro program: two components of five normal coordinates."""
    group = pyro.sample("group", pyro.distributions.Categorical(simplex(37, 2)))
    means = normals(38, 2, 5)
    pyro.sample("x", pyro.distributions.Normal(means[group], 0.8).to_event(1), obs=x)


EXAMPLES = {
    _Marginal: lambda: (_Marginal(table(1, 3, 2, 3, 2, 2), torch.tensor([3, 0, 2, 4])), letters(2, 3, 4, 2)),
    models.BetaBernoulli: lambda: (models.BetaBernoulli(0.7, 1.9, 5), letters(3, 3, 5, 2)),
    models.DirichletCategorical: lambda: (
        models.DirichletCategorical(torch.tensor([0.4, 1.5, 0.9]), 5),
        letters(4, 3, 5, 3),
    ),
    models.FactorAnalysis: lambda: (
        models.FactorAnalysis(normals(5, 5, 2), uniforms(6, 5) + 0.1, normals(7, 5)),
        normals(8, 3, 5),
    ),
    models.Gaussian: lambda: (models.Gaussian(normals(9, 5), spd(10, 5)), normals(11, 3, 5)),
    models.GaussianProcess: lambda: (models.GaussianProcess(process()), normals(12, 3, 5)),
    models.HiddenMarkov: lambda: (
        models.HiddenMarkov(simplex(13, 3), simplex(14, 3, 3), simplex(15, 3, 4), length=5),
        letters(16, 3, 5, 4),
    ),
    models.ImportanceBank: lambda: (
        models.ImportanceBank(binary_decoder, None, 2, n_samples=200),
        letters(27, 3, 5, 2),
    ),
    models.LatentQuadrature: lambda: (
        models.LatentQuadrature(binary_decoder, 2, n_nodes=24, half_width=5.0),
        letters(28, 3, 5, 2),
    ),
    models.JointTable: lambda: (table(17, 2, 3, 2, 3, 2), letters(18, 3, 5, 2)),
    models.Mixture: lambda: (
        models.Mixture.gaussian(simplex(19, 3), normals(20, 3, 5), uniforms(21, 3, 5) + 0.2),
        normals(22, 3, 5),
    ),
    models.ModelMixture: lambda: (
        models.ModelMixture(simplex(31, 2), [models.Gaussian(normals(s, 5), spd(s + 1, 5)) for s in (32, 34)]),
        normals(36, 3, 5),
    ),
    models.NormalInverseGamma: lambda: (models.NormalInverseGamma(0.5, 2.0, 3.0, 1.5, 5), normals(23, 3, 5)),
    models.PPCA: lambda: (models.PPCA(normals(24, 5, 2), 0.3, normals(25, 5)), normals(26, 3, 5)),
    models.StudentT: lambda: (models.StudentT(normals(37, 5), spd(38, 5), 3.5), normals(39, 3, 5)),
    models.PyroModel: lambda: (models.PyroModel(two_groups, normals(39, 5)), normals(40, 3, 5)),
}


def concrete_models():
    """Every concrete subclass of ConditionalModel that mpt_bayes.models defines, found by walking its modules."""
    for module in pkgutil.iter_modules(models.__path__, "mpt_bayes.models."):
        importlib.import_module(module.name)
    found, queue = set(), [ConditionalModel]
    while queue:
        kind = queue.pop()
        queue.extend(kind.__subclasses__())
        if kind.__module__.startswith("mpt_bayes.models.") and not inspect.isabstract(kind):
            found.add(kind)
    return sorted(found, key=lambda kind: kind.__name__)
