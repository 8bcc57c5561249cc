"""Models: what predicts a hidden coordinate given the visible ones."""

from mpt_bayes.models.base import (
    ConditionalModel,
    EstimatedConditionals,
    HasExactCurve,
    HasOrderCurve,
    HasOrderTotals,
    JointModel,
    Restrictable,
)
from mpt_bayes.models.em_settings import EMSettings
from mpt_bayes.models.emission_families import BernoulliEmission, CategoricalEmission, NormalEmission, PoissonEmission
from mpt_bayes.models.emissions import Emission
from mpt_bayes.models.exchangeable import BetaBernoulli, DirichletCategorical, NormalInverseGamma
from mpt_bayes.models.factor_analysis import FactorAnalysis
from mpt_bayes.models.gaussian import Gaussian
from mpt_bayes.models.gp import GaussianProcess
from mpt_bayes.models.grids import Grid, QuadratureError, prior_grid
from mpt_bayes.models.hidden_markov import HiddenMarkov
from mpt_bayes.models.hidden_markov_fit import fit_hidden_markov
from mpt_bayes.models.importance import ImportanceBank
from mpt_bayes.models.latent_bank import LatentBank
from mpt_bayes.models.latent_quadrature import LatentQuadrature
from mpt_bayes.models.linear_regression import (
    fixed_noise_regression,
    g_prior_regression,
    linear_regression,
    regression_from_sklearn,
    ridge_regression,
)
from mpt_bayes.models.marginals import restrict
from mpt_bayes.models.mixture import Mixture
from mpt_bayes.models.model_mixture import ModelMixture
from mpt_bayes.models.ppca import PPCA
from mpt_bayes.models.pyro_model import PyroModel
from mpt_bayes.models.state_space import fitted_local_level, linear_gaussian_state_space, local_level
from mpt_bayes.models.student_t import StudentT
from mpt_bayes.models.table import JointTable

__all__ = [
    "PPCA",
    "BernoulliEmission",
    "BetaBernoulli",
    "CategoricalEmission",
    "ConditionalModel",
    "DirichletCategorical",
    "EMSettings",
    "Emission",
    "EstimatedConditionals",
    "FactorAnalysis",
    "Gaussian",
    "GaussianProcess",
    "Grid",
    "HasExactCurve",
    "HasOrderCurve",
    "HasOrderTotals",
    "HiddenMarkov",
    "ImportanceBank",
    "JointModel",
    "JointTable",
    "LatentBank",
    "LatentQuadrature",
    "Mixture",
    "ModelMixture",
    "NormalEmission",
    "NormalInverseGamma",
    "PoissonEmission",
    "PyroModel",
    "QuadratureError",
    "Restrictable",
    "StudentT",
    "fit_hidden_markov",
    "fitted_local_level",
    "fixed_noise_regression",
    "g_prior_regression",
    "linear_gaussian_state_space",
    "linear_regression",
    "local_level",
    "prior_grid",
    "regression_from_sklearn",
    "restrict",
    "ridge_regression",
]
