"""Sub-networks of dropout: identities of Srivastava et al. (2014) and Gal & Ghahramani (2016) on random networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mpt_bayes.dropout import (
    all_subnetworks,
    curvature_gap,
    dropout_sites,
    effective_sample_size,
    model_precision,
    predictive_log_likelihood,
    predictive_standard_error,
    sampled_subnetworks,
    weight_scaled,
)
from mpt_bayes.dropout.interception import forward_with
from mpt_bayes.errors import ArgumentError, BudgetError, DataError, ModelError

RATES = st.floats(0.05, 0.9)
SEEDS = st.integers(0, 2**31)
EXACT = 1e-10


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randomised(net: nn.Module, seed: int) -> nn.Module:
    """All weights standard normal, in float64."""
    net = net.double()
    for k, parameter in enumerate(net.parameters()):
        parameter.data = normal(seed + k, *parameter.shape)
    return net.requires_grad_(False)


@given(seed=SEEDS, q=RATES, dim=st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_multipliers_have_mean_one_and_the_stated_variance(seed: int, q: float, dim: int) -> None:
    a = normal(seed, 2, dim)
    networks = all_subnetworks(nn.Dropout(q), a)
    assert networks.log_weight.exp().sum().item() == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(networks.mean(), a, atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(networks.variance(), q / (1 - q) * a.square(), atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(weight_scaled(nn.Dropout(q), a), a, atol=0, rtol=0)


@given(seed=SEEDS, q=RATES)
@settings(max_examples=20, deadline=None)
def test_the_gradient_uses_the_mask_and_scale_of_the_forward_pass(seed: int, q: float) -> None:
    a = normal(seed, 1, 5).requires_grad_()
    networks = all_subnetworks(nn.Dropout(q), a)
    upstream = normal(seed + 1, *networks.outputs.shape)
    for k in (0, 7, 31):
        (gradient,) = torch.autograd.grad(networks.outputs[k], a, upstream[k], retain_graph=True)
        expected = networks.kept[k].double() / (1 - q) * upstream[k]
        torch.testing.assert_close(gradient, expected, atol=EXACT, rtol=EXACT)


@given(seed=SEEDS, q=RATES, q2=RATES, depth=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_a_linear_network_of_any_depth_averages_to_its_scaled_forward_pass(
    seed: int, q: float, q2: float, depth: int
) -> None:
    layers = [part for k in range(depth) for part in (nn.Dropout(q if k % 2 else q2), nn.Linear(3, 3))]
    net = randomised(nn.Sequential(*layers), seed)
    x = normal(seed, 2, 3)
    torch.testing.assert_close(all_subnetworks(net, x).mean(), weight_scaled(net, x), atol=EXACT, rtol=EXACT)


@given(seed=SEEDS, q=RATES, dim=st.integers(1, 7), classes=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_one_softmax_layer_geometric_mean_is_the_scaled_network(seed: int, q: float, dim: int, classes: int) -> None:
    net = randomised(nn.Sequential(nn.Dropout(q), nn.Linear(dim, classes)), seed)
    x = normal(seed, 3, dim)
    networks = all_subnetworks(net, x)
    scaled = weight_scaled(net, x).log_softmax(-1)
    torch.testing.assert_close(networks.geometric_log_prob(), scaled, atol=EXACT, rtol=EXACT)
    by_definition = (networks.outputs.log_softmax(-1) * networks.log_weight.exp()[:, None, None]).sum(0)
    torch.testing.assert_close(by_definition.log_softmax(-1), scaled, atol=EXACT, rtol=EXACT)
    arithmetic = networks.arithmetic_log_prob()
    torch.testing.assert_close(arithmetic.exp().sum(-1), torch.ones(3, dtype=torch.float64), atol=EXACT, rtol=EXACT)
    assert (arithmetic >= by_definition - 1e-12).all()  # arithmetic ≥ unnormalised geometric mean, entry by entry


def test_the_arithmetic_mean_is_not_the_scaled_network() -> None:
    net = randomised(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)), 0)
    x = normal(1, 3, 4)
    gap = all_subnetworks(net, x).arithmetic_log_prob().exp() - weight_scaled(net, x).softmax(-1)
    assert gap.abs().max() > 0.05


@given(seed=SEEDS, q=RATES)
@settings(max_examples=20, deadline=None)
def test_equal_weights_are_right_at_one_half_only(seed: int, q: float) -> None:
    a = normal(seed, 1, 4).abs() + 0.1
    half = all_subnetworks(nn.Dropout(0.5), a)
    torch.testing.assert_close(half.outputs.mean(0), a, atol=EXACT, rtol=EXACT)
    other = all_subnetworks(nn.Dropout(q), a)
    expected = a * 0.5 / (1 - q)  # what equal weights give: off by the factor 1/2 / (1 - q)
    torch.testing.assert_close(other.outputs.mean(0), expected, atol=EXACT, rtol=EXACT)


@given(seed=SEEDS, q=RATES)
@settings(max_examples=20, deadline=None)
def test_the_average_over_masks_is_the_optimal_predictor_under_squared_error(seed: int, q: float) -> None:
    net = randomised(nn.Sequential(nn.Dropout(q), nn.Linear(3, 2), nn.Tanh(), nn.Dropout(q), nn.Linear(2, 1)), seed)
    x = normal(seed, 2, 3)
    networks = all_subnetworks(net, x)
    weight = networks.log_weight.exp()[:, None, None]
    candidate = normal(seed + 9, 2, 1)

    def loss(prediction: torch.Tensor) -> torch.Tensor:
        return (weight * (networks.outputs - prediction).square()).sum(0)

    excess = loss(candidate) - loss(networks.mean())
    torch.testing.assert_close(excess, (candidate - networks.mean()).square(), atol=EXACT, rtol=1e-8)
    torch.testing.assert_close(loss(networks.mean()), networks.variance(), atol=EXACT, rtol=EXACT)


def smooth_network(seed: int, depth: int, q: float) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Dropout(q), nn.Linear(3, 3), nn.Softplus()]
    return randomised(nn.Sequential(*layers), seed)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("q", [0.1, 0.5])
def test_weight_averaging_is_first_order_and_the_curvature_second(depth: int, q: float) -> None:
    """Noise multipliers 1 + δ(ε - 1): the gap falls as δ², what the curvature leaves as δ³."""
    net, x = smooth_network(3, depth, q), normal(4, 2, 3)
    sites, networks = dropout_sites(net, x), all_subnetworks(net, x)
    noise = networks.kept.double() / (1 - q) - 1
    curvature = curvature_gap(net, x)
    steps = [2.0**-k for k in range(3, 9)]
    gaps, remainders = [], []
    for delta in steps:
        outputs = forward_with(net, x, sites, 1 + delta * noise)
        gap = torch.tensordot(networks.log_weight.exp(), outputs, dims=1) - weight_scaled(net, x)
        gaps.append(float(gap.norm()))
        remainders.append(float((gap - delta**2 * curvature).norm()))
    assert order(steps, gaps) == pytest.approx(2, abs=0.15)
    assert order(steps, remainders) >= 2.85  # third order; fourth at q = 1/2, where the third moment of ε vanishes


def order(steps: list[float], sizes: list[float]) -> float:
    """The slope of log size against log step between the two smallest steps."""
    return math.log(sizes[-2] / sizes[-1]) / math.log(steps[-2] / steps[-1])


def test_as_the_rate_falls_the_gap_falls_as_q_and_the_curvature_is_no_better() -> None:
    """All central moments of ε are of order q: second order in the noise is not second order in q."""
    x, gaps, remainders, rates = normal(4, 2, 3), [], [], [0.02, 0.01, 0.005]
    for q in rates:
        net = smooth_network(3, 2, q)
        gap = all_subnetworks(net, x).mean() - weight_scaled(net, x)
        gaps.append(float(gap.norm()))
        remainders.append(float((gap - curvature_gap(net, x)).norm()))
    assert order(rates, gaps) == pytest.approx(1, abs=0.1)
    assert order(rates, remainders) == pytest.approx(1, abs=0.1)


def test_sampled_subnetworks_agree_within_standard_errors_and_do_not_depend_on_the_batch() -> None:
    net, x = smooth_network(1, 2, 0.3), normal(2, 4, 3)
    exact = all_subnetworks(net, x).mean()
    z = []
    for seed in range(40):
        sampled = sampled_subnetworks(net, x, 200, generator=torch.Generator().manual_seed(seed))
        assert (sampled.standard_error() > 0).all()
        z.append((sampled.mean() - exact) / sampled.standard_error())
    scores = torch.stack(z)[:, 0]  # rows share their masks: one row is 40 independent draws of each output
    assert scores.mean(0).abs().max() < 4 / math.sqrt(40)
    assert ((scores.std(0) > 0.6) & (scores.std(0) < 1.5)).all()
    few = sampled_subnetworks(net, x[2:3], 50, generator=torch.Generator().manual_seed(5), chunk=1)
    many = sampled_subnetworks(net, x, 200, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(few.outputs[:, 0], many.outputs[:50, 2], atol=EXACT, rtol=EXACT)


def test_every_dropout_call_is_a_site_functional_ones_too_and_modes_are_put_back() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.25)
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            once = self.drop(self.norm(x))
            return nn.functional.dropout(self.drop(once), p=0.5, training=self.training)

    net = Twice().double()
    net.norm.running_mean.fill_(1.0)
    net.drop.eval()
    x = torch.ones(2, 3, dtype=torch.float64)
    assert [site.rate for site in dropout_sites(net, x)] == [0.25, 0.25, 0.5]
    torch.testing.assert_close(all_subnetworks(net, x).mean(), weight_scaled(net, x), atol=EXACT, rtol=EXACT)
    assert net.training
    assert not net.drop.training
    assert net.norm.running_mean.eq(1).all()  # batch statistics were not touched


def test_attention_dropout_of_a_real_encoder_is_enumerated() -> None:
    from transformers import BertConfig, BertModel

    config = {"vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.3, "initializer_range": 0.5}
    bert = BertModel(BertConfig(**config, **rates, intermediate_size=4, attn_implementation="eager")).double()
    net = _Bare(bert)
    ids = torch.tensor([[1, 2, 3]])
    (site,) = dropout_sites(net, ids)
    assert site.shape == (1, 3, 3)
    exact, sampled = all_subnetworks(net, ids), sampled_subnetworks(net, ids, 400)
    z = (sampled.mean() - exact.mean()) / sampled.standard_error()
    assert z.abs().max() < 5
    sdpa = BertModel(BertConfig(**config, **rates, intermediate_size=4, attn_implementation="sdpa"))
    with pytest.raises(ModelError, match="attn_implementation='eager'"):
        dropout_sites(_Bare(sdpa), ids)


class _Bare(nn.Module):
    """An encoder as a plain function from ids to states."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=ids).last_hidden_state


@pytest.mark.parametrize(
    "layer",
    [
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True),
        nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True),
        nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True),
    ],
)
def test_dropout_that_cannot_be_seen_is_never_taken_for_exact(layer: nn.Module) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if isinstance(self.layer, nn.MultiheadAttention):
                return self.layer(x, x, x, need_weights=False)[0]
            result = self.layer(x)
            return result[0] if isinstance(result, tuple) else result

    with pytest.raises(ModelError, match="cannot be seen"):
        dropout_sites(Wrapped(), torch.randn(2, 3, 4, generator=seeded(0)))


class Call(nn.Module):
    """A function of a batch as a module."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


MIXING = [
    nn.BatchNorm1d(3, affine=False, track_running_stats=False),
    Call(lambda h: nn.functional.batch_norm(h, None, None, training=True)),
    Call(lambda h: h - h.mean(0)),
    Call(lambda h: h / h.norm()),
]


@pytest.mark.parametrize("mixing", MIXING)
def test_rows_that_depend_on_each_other_after_dropout_are_refused(mixing: nn.Module) -> None:
    net = randomised(nn.Sequential(nn.Dropout(0.3), nn.Linear(3, 3), mixing, nn.Linear(3, 1)), 0)
    for function in (all_subnetworks, dropout_sites, curvature_gap):
        with pytest.raises(ModelError, match="rows of a batch of Sequential depend on each other"):
            function(net, normal(1, 4, 3))


@pytest.mark.parametrize("mixing", MIXING[:3])
def test_normalisation_over_the_batch_before_dropout_is_right_whatever_the_chunk(mixing: nn.Module) -> None:
    """Every sub-network sees the whole batch, with nothing dropped in it yet: repeated, its statistics are the same."""
    net = randomised(nn.Sequential(nn.Linear(3, 3), mixing, nn.Dropout(0.3), nn.Linear(3, 1)), 0)
    x = normal(1, 4, 3)
    expected = all_subnetworks(net[2:], net[:2](x)).outputs
    for chunk in (1, 4096):
        torch.testing.assert_close(all_subnetworks(net, x, chunk=chunk).outputs, expected, atol=EXACT, rtol=EXACT)


def test_normalisation_with_running_statistics_or_within_a_row_does_not_depend_on_the_chunk() -> None:
    for norm in (nn.BatchNorm1d(3), nn.LayerNorm(3), nn.InstanceNorm1d(3, track_running_stats=True)):
        net = randomised(nn.Sequential(nn.Dropout(0.3), nn.Linear(3, 3), norm, nn.Linear(3, 1)), 0)
        x = normal(1, 3, 3, 3) if isinstance(norm, nn.InstanceNorm1d) else normal(1, 3, 3)
        one, many = (all_subnetworks(net, x, chunk=chunk).outputs for chunk in (1, 4096))
        torch.testing.assert_close(one, many, atol=EXACT, rtol=EXACT)
        if not isinstance(norm, nn.LayerNorm):
            assert norm.running_mean.eq(0).all()


@pytest.mark.parametrize(
    "drop",
    [
        lambda h: torch.dropout(h, 0.3, True),
        lambda h: torch.dropout(h, p=0.3, train=True),
        lambda h: nn.functional.dropout(h, 0.3, True, True),
        lambda h: (nn.functional.dropout(h, 0.3, inplace=True), h)[1],
        lambda h: (torch.dropout_(h, 0.3, True), h)[1],
    ],
)
def test_torch_dropout_and_dropout_in_place_are_sites_like_any_other(drop: Callable[[torch.Tensor], Any]) -> None:
    x = normal(0, 2, 3)
    expected = all_subnetworks(nn.Sequential(nn.Dropout(0.3), nn.Tanh()), x)
    given = x.clone()
    for chunk in (1, 4096):
        networks = all_subnetworks(nn.Sequential(Call(drop), nn.Tanh()), given, chunk=chunk)
        torch.testing.assert_close(networks.outputs, expected.outputs, atol=EXACT, rtol=EXACT)
    assert torch.equal(given, x)
    with pytest.raises(ModelError, match="feature_dropout"):
        dropout_sites(Call(lambda h: torch.feature_dropout(h, 0.3, True)), x)


@pytest.mark.parametrize(
    ("module", "x", "error", "words"),
    [
        (nn.Linear(3, 1), torch.zeros(0, 3), DataError, "x has no rows"),
        (nn.Linear(3, 1), torch.zeros(()), DataError, "single number"),
        (nn.Linear(3, 1), np.zeros((2, 3)), DataError, "x is a ndarray"),
        (nn.Linear(3, 1), torch.tensor([[0.0, 0.0, 0.0], [1.0, math.nan, 0.0]]), DataError, "NaN .* in row 1"),
        (nn.LSTM(3, 2, batch_first=True), torch.zeros(2, 4, 3), ModelError, "LSTM returns a tuple"),
        (Call(lambda h: h.argmax(1)), torch.zeros(2, 3), ModelError, r"Call returns torch\.int64"),
        (Call(torch.mean), torch.zeros(2, 3), ModelError, "the batch must come first"),
        (torch.tanh, torch.zeros(2, 3), ArgumentError, "expected a torch.nn.Module"),
    ],
)
def test_what_is_no_batch_or_no_output_is_one_line(module: Any, x: Any, error: type[Exception], words: str) -> None:
    for function in (all_subnetworks, weight_scaled, dropout_sites, curvature_gap):
        with pytest.raises(error, match=words) as raised:
            function(module, x)
        assert "\n" not in str(raised.value)
    with pytest.raises(error, match=words):
        sampled_subnetworks(module, x, 3)


def test_faults_are_named() -> None:
    x = torch.zeros(1, 40)
    with pytest.raises(BudgetError, match="40 units"):
        all_subnetworks(nn.Dropout(0.5), x)
    with pytest.raises(ArgumentError, match="rate is 1"):
        dropout_sites(nn.Dropout(1.0), x)
    with pytest.raises(ModelError, match="alpha_dropout"):
        dropout_sites(nn.AlphaDropout(0.5), x)
    with pytest.raises(ModelError, match="dropout2d"):
        dropout_sites(nn.Dropout2d(0.5), torch.zeros(1, 2, 3, 3))
    with pytest.raises(ArgumentError, match="n_samples"):
        sampled_subnetworks(nn.Dropout(0.5), x, 1)


@given(seed=SEEDS, q=RATES, tau=st.floats(0.1, 20))
@settings(max_examples=25, deadline=None)
def test_predictive_log_likelihood_is_the_log_density_of_the_mixture(seed: int, q: float, tau: float) -> None:
    net = randomised(nn.Sequential(nn.Dropout(q), nn.Linear(3, 2)), seed)
    x, y = normal(seed, 2, 3), normal(seed + 1, 2, 2)
    networks = all_subnetworks(net, x)
    normals = torch.distributions.Normal(networks.outputs, torch.tensor(tau, dtype=torch.float64).rsqrt())
    density = (networks.log_weight.exp()[:, None] * normals.log_prob(y).sum(-1).exp()).sum(0)
    result = predictive_log_likelihood(networks, y, tau)
    torch.testing.assert_close(result.exp(), density, atol=1e-12, rtol=1e-9)
    assert (predictive_standard_error(networks, y, tau) == 0).all()


def test_sampled_predictive_log_likelihood_is_within_its_standard_error() -> None:
    net = randomised(nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 1)), 3)
    x, y = normal(1, 3, 5), normal(2, 3, 1)
    exact = predictive_log_likelihood(all_subnetworks(net, x), y, 2.0)
    z = []
    for seed in range(30):
        networks = sampled_subnetworks(net, x, 500, generator=torch.Generator().manual_seed(seed))
        error = predictive_standard_error(networks, y, 2.0)
        assert (error < 0.2).all()
        assert (effective_sample_size(networks, y, 2.0) > 20).all()
        z.append((predictive_log_likelihood(networks, y, 2.0) - exact) / error)
    assert torch.stack(z).abs().max() < 5


def test_sampled_predictive_log_likelihood_is_low_by_half_the_squared_error() -> None:
    """Jensen's inequality, at second order, over 20,000 samples of 40 sub-networks each."""
    net = randomised(nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 1)), 3)
    x, y = normal(1, 1, 5), normal(2, 1, 1)
    networks = all_subnetworks(net, x)
    exact = predictive_log_likelihood(networks, y, 0.5)
    draws = torch.multinomial(networks.log_weight.exp(), 40 * 20_000, replacement=True, generator=seeded(0))
    outputs = networks.outputs[draws, 0].reshape(40, 20_000, 1)
    sampled = replace(networks, outputs=outputs, log_weight=torch.full((40,), -math.log(40)).double(), sampled=True)
    repeated = y.expand(20_000, 1)
    deviation = predictive_log_likelihood(sampled, repeated, 0.5) - exact
    expected = -predictive_standard_error(sampled, repeated, 0.5).square().mean() / 2
    assert expected < -1e-3
    assert deviation.mean().item() == pytest.approx(expected.item(), rel=0.25)


def test_precision_makes_dropout_training_the_gaussian_log_likelihood() -> None:
    """λ is (1 - q) l² / 2 over N τ: -1/(Nτ) times the variational bound is the dropout objective, up to a constant."""
    q, scale, n, decay = 0.3, 2.0, 17, 0.01
    tau = model_precision(q, length_scale=scale, n_data=n, weight_decay=decay)
    assert (1 - q) * scale**2 / 2 / (n * tau) == pytest.approx(decay, rel=1e-12)
    with pytest.raises(ArgumentError, match="n_data is 0"):
        model_precision(q, length_scale=scale, n_data=0, weight_decay=decay)
    for wrong in ({"weight_decay": math.nan}, {"weight_decay": math.inf}, {"length_scale": math.nan}):
        with pytest.raises(ArgumentError, match="expected a positive number"):
            model_precision(q, **{"length_scale": scale, "n_data": n, "weight_decay": decay, **wrong})


def test_predictive_shapes_are_checked_at_the_door() -> None:
    networks = all_subnetworks(nn.Dropout(0.5), torch.zeros(2, 3))
    with pytest.raises(DataError, match="targets"):
        predictive_log_likelihood(networks, torch.zeros(3), 1.0)
    for precision in (0.0, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="precision"):
            predictive_log_likelihood(networks, torch.zeros(2, 3), precision)
    for function in (predictive_log_likelihood, predictive_standard_error, effective_sample_size):
        with pytest.raises(DataError, match="targets has a NaN or infinite entry in row 1"):
            function(networks, torch.tensor([[0.0, 0.0, 0.0], [0.0, math.nan, 0.0]]), 1.0)
