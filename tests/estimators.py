"""Every function that takes a model and data, and a small model and table for them."""

import numpy as np
import torch

import mpt_bayes as mb

MODEL = mb.models.Gaussian(torch.zeros(3), torch.eye(3) + 0.5)
X = torch.tensor(np.random.default_rng(0).normal(size=(12, 3)))
ESTIMATORS = {
    "attribution": mb.attribution,
    "chain_rule": mb.chain_rule,
    "compare": mb.compare,
    "compare_models": lambda model, x: mb.compare_models({"it": model}, x),
    "convergence": mb.convergence,
    "cumulative_score": mb.cumulative_score,
    "log_marginal_likelihood": mb.log_marginal_likelihood,
    "masked_score": lambda model, x: mb.masked_score(model, x, rate=0.5),
    "plan": mb.plan,
    "score_curve": mb.score_curve,
    "score_difference": lambda model, x: mb.score_difference(MODEL, model, x),
    "sweep": lambda model, x: mb.sweep(model, x, [0.5]),
    "verify": mb.verify,
}
