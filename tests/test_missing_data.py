"""Fitting and scoring with missing entries: EM on the observed ones, exact marginals, infinities never missing."""

import math

import pytest
import torch
from model_examples import normals, uniforms

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError, MptBayesWarning
from mpt_bayes.models import PPCA, EMSettings, FactorAnalysis, Gaussian

BOTH = pytest.mark.parametrize("estimator", [PPCA, FactorAnalysis])
THOROUGH = EMSettings(tolerance=1e-13, max_iterations=5000)


@pytest.fixture(scope="module")
def gaps():
    """60 rows of a one-factor model in 6 columns, one entry in six missing, one row with nothing observed."""
    x = normals(1, 60, 1) @ (normals(2, 1, 6) + 1) + 0.7 * normals(3, 60, 6) + torch.arange(6.0)
    x[uniforms(4, 60, 6) < 1 / 6] = math.nan
    x[7] = math.nan
    return x


def observed_log_likelihood(loading, noise, mean, x):
    """Row by row with dense sub-matrices, without the library."""
    covariance = loading @ loading.T + noise.diag()
    total = loading.new_zeros(())
    for row in x:
        seen = (~row.isnan()).nonzero()[:, 0]
        if len(seen):
            part = torch.distributions.MultivariateNormal(mean[seen], covariance[seen][:, seen])
            total = total + part.log_prob(row[seen])
    return total


@BOTH
def test_row_25_em_finds_a_stationary_point_of_the_observed_likelihood(estimator, gaps):
    model = estimator(latent_dim=1).fit(gaps, missing="marginalise", em=THOROUGH)
    total = mb.log_marginal_likelihood(model, gaps, missing="marginalise")
    assert float(total[7]) == 0
    parameters = [model.loading, model.noise_variance, model.mean]
    parameters = [p.clone().requires_grad_() for p in parameters]
    loading, noise, mean = parameters
    by_hand = observed_log_likelihood(loading, noise.expand(6), mean, gaps)
    assert float(total.sum()) == pytest.approx(float(by_hand.detach()), rel=1e-12)
    by_hand.backward()
    for parameter in parameters:
        assert float(parameter.grad.abs().max()) < 1e-3


@BOTH
def test_em_and_the_complete_data_fit_agree_where_nothing_is_missing(estimator, gaps):
    """EM from far away on data of which only one entry is missing in an otherwise empty row: the same maximum."""
    complete = torch.where(gaps.isnan(), 0.0, gaps)
    with_gap = torch.cat([complete, torch.full((1, 6), math.nan).double()])
    direct = estimator(latent_dim=1).fit(complete, em=EMSettings(tolerance=1e-10))
    ignored = estimator(latent_dim=1).fit(with_gap, missing="marginalise", em=EMSettings(tolerance=1e-10))
    torch.testing.assert_close(
        direct.log_marginal_likelihood(complete), ignored.log_marginal_likelihood(complete), rtol=1e-12, atol=0
    )
    with_gap[-1, 0] = float(complete[:, 0].mean())  # now EM runs, on data that are almost those
    near = estimator(latent_dim=1).fit(with_gap, missing="marginalise", em=THOROUGH)
    best = float(mb.log_marginal_likelihood(near, with_gap, missing="marginalise").sum())
    assert best > float(mb.log_marginal_likelihood(direct, with_gap, missing="marginalise").sum()) - 1e-9


@BOTH
def test_em_never_loses_likelihood(estimator, gaps):
    values = []
    for steps in (1, 2, 3, 5, 10, 30):
        with pytest.warns(MptBayesWarning, match="iterations"):
            model = estimator(latent_dim=1).fit(
                gaps, missing="marginalise", em=EMSettings(tolerance=1e-300, max_iterations=steps)
            )
        values.append(float(mb.log_marginal_likelihood(model, gaps, missing="marginalise").sum()))
    assert values == sorted(values)
    assert values[-1] > values[0]


@BOTH
def test_row_25_by_default_a_missing_entry_names_its_row(estimator, gaps):
    first = int(gaps.isnan().any(1).nonzero()[0])
    with pytest.raises(DataError, match=rf"\(NaN\) in row {first}"):
        estimator(latent_dim=1).fit(gaps)
    infinite = gaps.clone()
    infinite[3, 0] = -math.inf
    for missing in ("error", "marginalise"):
        with pytest.raises(DataError, match="infinite entry in row 3"):
            estimator(latent_dim=1).fit(infinite, missing=missing)
    with pytest.raises(ArgumentError, match="missing is 'drop'"):
        estimator(latent_dim=1).fit(gaps, missing="drop")


@BOTH
def test_columns_and_tables_without_observations_are_named(estimator, gaps):
    empty = gaps.clone()
    empty[:, 4] = math.nan
    with pytest.raises(DataError, match="column 4"):
        estimator(latent_dim=1).fit(empty, missing="marginalise")
    with pytest.raises(DataError, match="at least two"):
        estimator(latent_dim=1).fit(torch.ones(1, 3))
    with pytest.raises(DataError, match="every entry"):
        mb.log_marginal_likelihood(PPCA(torch.ones(6, 1), 1.0), torch.full((2, 6), math.nan), missing="marginalise")


def test_row_25_scores_of_rows_with_gaps_equal_those_of_the_marginal_model():
    covariance = normals(5, 4, 4) @ normals(5, 4, 4).T + torch.eye(4)
    model = Gaussian(torch.zeros(4), covariance)
    x = torch.tensor([[0.3, math.nan, -1.0, 0.2], [1.0, 2.0, math.nan, math.nan]], dtype=torch.float64)
    curve = mb.score_curve(model, x, design=mb.masks.Exhaustive(), missing="marginalise")
    expected = torch.zeros(3, dtype=torch.float64)  # no row has more than three coordinates
    for row in x:
        seen = (~row.isnan()).nonzero()[:, 0]
        part = Gaussian(torch.zeros(len(seen)), covariance[seen][:, seen])
        scores = mb.score_curve(part, row[None, seen], design=mb.masks.Exhaustive()).scores
        expected[: len(seen)] += torch.from_numpy(scores)
    torch.testing.assert_close(torch.from_numpy(curve.scores), expected, rtol=1e-12, atol=1e-12)
    sampled = mb.compare(
        model, x, design=mb.masks.RandomOrders(200), missing="marginalise", generator=torch.Generator().manual_seed(1)
    )
    assert abs(sampled.z) < 4


def test_em_settings_are_checked():
    with pytest.raises(ArgumentError, match="tolerance is 0"):
        EMSettings(tolerance=0)
    with pytest.raises(ArgumentError, match="max_iterations is 0"):
        EMSettings(max_iterations=0)


def test_a_score_that_is_not_finite_is_named_by_its_row_of_the_whole_data():
    x = torch.zeros(4, 2, dtype=torch.float64)
    x[0, 0] = x[2, 0] = torch.nan
    x[2, 1] = 1e200  # a squared residual beyond float64
    model = mb.models.Gaussian(torch.zeros(2), torch.eye(2))
    for scored in (mb.score_curve, mb.log_marginal_likelihood):
        with pytest.raises(mb.errors.NotFiniteError, match="row 2"):
            scored(model, x, missing="marginalise")
