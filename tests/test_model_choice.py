"""Models side by side: every criterion against its definition, and the reversal of Lotfi et al. (2022)."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import mpt_bayes as mb
from mpt_bayes.cli.app import app
from mpt_bayes.errors import ArgumentError, DataError
from tests.model_examples import letters, normals, spd, table


def two_models():
    return {"a": mb.models.Gaussian(normals(1, 5), spd(2, 5)), "b": mb.models.Gaussian(normals(3, 5), spd(4, 5))}


def test_every_criterion_equals_its_definition():
    models, x, test = two_models(), normals(5, 6, 5), normals(6, 3, 5)
    result = mb.compare_models(models, x, rates=[0.4], fractions=[0.0, 0.6], test=test, design=mb.masks.Exhaustive())
    for name, model in models.items():
        row = {column: criterion.value for column, criterion in result.criteria[name].items()}
        exact = float(model.log_marginal_likelihood(x).sum())
        assert row["log marginal likelihood"] == pytest.approx(exact)
        assert row["cumulative score"] == pytest.approx(exact)
        assert row["conditional given 0"] == pytest.approx(exact)  # nothing visible: all of it
        loo = model.masked_log_prob(x, torch.eye(5, dtype=torch.bool)).sum()
        assert row["leave-one-out"] == pytest.approx(float(loo))
        curve = mb.score_curve(model, x, design=mb.masks.Exhaustive())
        assert row["score at rate 0.4"] == pytest.approx(curve.scores[1])
        assert row["conditional given 0.6"] == pytest.approx(curve.scores[:2].sum())
        assert row["held-out"] == pytest.approx(float(model.log_marginal_likelihood(test).sum()))


def fourier_data(n=100):
    """The Fourier regression of Lotfi et al. (2022), from the recipe of the reference values."""
    rng = np.random.RandomState(15)
    weights = (rng.randn(2, 9) / (np.arange(9) + 1) ** 2).ravel()
    rng = np.random.RandomState(6)
    x = np.linspace(0, 10, 500)
    rng.shuffle(x)
    y = fourier_features(x, 9) @ weights + 0.1 * rng.randn(500)
    return x[:n], torch.as_tensor(y[:n])[None]


def fourier_features(x, order):
    grid = x[:, None] * np.arange(1, order + 1)
    return np.concatenate([np.sin(grid), np.cos(grid)], 1)


def fourier_model(x, order, prior=None):
    """y ~ N(0, F diag(prior) Fᵀ + 0.01 I): low rank by construction."""
    features = torch.as_tensor(fourier_features(x, order))
    scale = torch.ones(order) if prior is None else torch.as_tensor(prior)
    return mb.models.PPCA(features * scale.sqrt().repeat(2), 0.01)


def test_row_33_evidence_and_conditional_evidence_disagree_and_are_shown_side_by_side():
    x, y = fourier_data()
    decay = 1 / (torch.arange(9) + 1.0) ** 2
    models = {"order 3": fourier_model(x, 3), "order 9": fourier_model(x, 9), "decaying": fourier_model(x, 9, decay)}
    result = mb.compare_models(models, y, fractions=[0.8], design=mb.masks.RandomOrders(16))
    assert result.criteria["order 3"]["log marginal likelihood"].value == pytest.approx(53.80367, abs=1e-3)
    ranks = result.ranks()
    assert ranks["log marginal likelihood"]["order 9"] > ranks["log marginal likelihood"]["order 3"]
    assert ranks["conditional given 0.8"]["order 9"] < ranks["conditional given 0.8"]["order 3"]


def test_row_31_different_data_are_refused():
    models = two_models()
    first = mb.compare_models({"a": models["a"]}, normals(5, 6, 5))
    same = mb.compare_models({"b": models["b"]}, normals(5, 6, 5))
    both = first + same
    assert set(both.criteria) == {"a", "b"}
    assert both.ranks() == mb.compare_models(models, normals(5, 6, 5)).ranks()
    with pytest.raises(DataError, match="different data"):
        first + mb.compare_models({"b": models["b"]}, normals(6, 6, 5))
    with pytest.raises(ArgumentError, match="in both tables"):
        first + first
    with pytest.raises(ArgumentError, match="different numbers of coordinates"):
        mb.compare_models({"a": models["a"], "c": mb.models.Gaussian(normals(1, 4), spd(2, 4))}, normals(5, 6, 5))


def test_masks_are_common_and_the_table_is_complete():
    models = {"one": two_models()["a"], "same": two_models()["a"]}
    frame = mb.compare_models(models, normals(5, 6, 5)).to_dataframe()
    values = frame.drop(columns=[column for column in frame if column.endswith("rank")])
    assert values.loc["one"].equals(values.loc["same"])
    assert not frame.isna().to_numpy().any()


def test_tables_have_no_held_out_gaussian_terms():
    result = mb.compare_models({"t": table(1, 2, 3, 2)}, letters(2, 4, 3, 2), rates=[], fractions=[])
    assert list(result.criteria["t"]) == ["log marginal likelihood", "leave-one-out", "cumulative score"]


def test_models_on_the_command_line():
    run = CliRunner().invoke(app, ["models", "ppca:1", "ppca:3", "gaussian", "--data", "wine", "--json", "-"])
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert list(document["models"]) == ["ppca:1", "ppca:3", "gaussian"]
    assert document["ranks"]["log marginal likelihood"]["gaussian"] == 1


def test_row_25_models_refuses_missing_entries_without_advice_it_cannot_take():
    with pytest.raises(DataError, match=r"co2 has a missing .* mpt-bayes models takes complete rows only"):
        CliRunner().invoke(
            app, ["models", "gp", "gp:rq", "--data", "co2"], catch_exceptions=False, standalone_mode=False
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gaussian", "gaussian"], "gaussian is named twice"),
        (["gaussian"], "gaussian is the only model: name two or more, or use mpt-bayes compare gaussian"),
        (["gaussian", "ppca", "--test", "iris"], "--test iris has 4 columns and wine has 13: name held-out rows"),
    ],
)
def test_models_that_do_not_compare_are_named_on_the_command_line(arguments, words):
    run = ["models", *arguments, "--data", "wine"]
    with pytest.raises((ArgumentError, DataError), match=words):
        CliRunner().invoke(app, run, catch_exceptions=False, standalone_mode=False)


def test_experiments_are_reproduced_by_name(tmp_path):
    run = CliRunner().invoke(app, ["reproduce", "fourier_regression", "--quick", "--out", str(tmp_path)])
    assert run.exit_code == 0, run.output
    results = json.loads((tmp_path / "fourier_regression" / "results.json").read_text())
    evidence = {name: row["log marginal likelihood"]["value"] for name, row in results["models"].items()}
    assert evidence["order 3"] == pytest.approx(53.80367, abs=1e-3)
    assert evidence["order 9"] < evidence["order 3"] < evidence["order 9, decaying prior"]
    assert (tmp_path / "fourier_regression" / "figure.png").stat().st_size > 5000
    with pytest.raises(ArgumentError, match="no experiment called 'nothing': choose one of"):
        CliRunner().invoke(app, ["reproduce", "nothing"], catch_exceptions=False, standalone_mode=False)
