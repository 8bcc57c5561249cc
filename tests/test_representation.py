"""Effective rank."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpt_bayes.errors import ArgumentError, DataError
from mpt_bayes.representation import effective_rank

SEEDS = st.integers(0, 2**31)


@given(seed=SEEDS, n=st.integers(1, 12), d=st.integers(1, 8), tau=st.floats(0.05, 1), center=st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_is_the_smallest_number_of_directions(seed: int, n: int, d: int, tau: float, center: bool) -> None:
    x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    centred = x - x.mean(0) if center else x
    eigenvalues = torch.linalg.eigvalsh(centred.T @ centred).flip(0).clamp_min(0)
    k = effective_rank(x, tau=tau, center=center)
    total = float(eigenvalues.sum())
    if center and n == 1:
        assert k == 0
    else:
        assert float(eigenvalues[:k].sum()) >= tau * total * (1 - 1e-9)
        assert float(eigenvalues[: k - 1].sum()) < tau * total * (1 + 1e-9)
        assert effective_rank(3 * x, tau=tau, center=center) == k


def test_centring_can_change_one_into_many() -> None:
    x = torch.randn(200, 32, generator=torch.Generator().manual_seed(0)) + 20
    assert effective_rank(x) == 1
    assert effective_rank(x, center=True) > 25


def test_defined_ends() -> None:
    assert effective_rank(torch.zeros(3, 2)) == 0
    assert effective_rank(torch.full((5, 3), 0.1), center=True) == 0
    assert effective_rank(torch.diag(torch.tensor([1.0, 1.0, 0.0])), tau=1.0) == 2
    with pytest.raises(ArgumentError, match="tau is 0"):
        effective_rank(torch.eye(2), tau=0)
    with pytest.raises(DataError, match="expected"):
        effective_rank(torch.zeros(0, 2))
    with pytest.raises(DataError, match="not finite"):
        effective_rank(torch.tensor([[torch.nan]]))
