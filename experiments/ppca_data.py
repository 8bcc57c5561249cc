"""The PPCA settings of Moreno-Muñoz, Recasens and Hauberg (2023), as published and as the model says.

As published, one noise value (sd 1/5) is SHARED by all coordinates of a row, while the model has independent noise of
variance 1/5: data and model do not match. `right` draws what the model says.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mpt_bayes.models import PPCA

GENERATORS = ("published", "right")


def ppca_setting(generator: str, n: int, dim: int, latent_dim: int, seed: int) -> tuple[PPCA, Tensor]:
    """The model of the recipe, and N rows from either generator; draws in float32 in the published sequence."""
    random = torch.Generator().manual_seed(seed)
    loading = torch.randn(dim, latent_dim, generator=random)
    latent = torch.randn(n, latent_dim, generator=random)
    if generator == "published":
        noise = torch.randn(n, 1, generator=random) / 5
    else:
        noise = torch.randn(n, dim, generator=random) / 5**0.5
    return PPCA(loading, 0.2), (latent @ loading.T + noise).to(torch.float64)
