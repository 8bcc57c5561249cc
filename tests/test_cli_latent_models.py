"""Mixtures, exchangeable models and series models on the command line."""

import json

import numpy as np
import pytest

from mpt_bayes.cli import main


@pytest.mark.parametrize(
    ("model", "values"),
    [
        ("mixture", np.random.default_rng(0).normal(size=(30, 4)).cumsum(0)),
        ("bernoulli-mixture", np.random.default_rng(1).integers(0, 2, (30, 4))),
        ("categorical-mixture", np.random.default_rng(2).integers(0, 3, (30, 4))),
        ("poisson-mixture", np.random.default_rng(3).poisson(2, (30, 4))),
        ("beta-bernoulli", np.random.default_rng(4).integers(0, 2, (30, 4))),
        ("hmm", np.random.default_rng(5).normal(size=(6, 5))),
    ],
)
def test_both_sides_agree(model, values, tmp_path, capsys):
    path = tmp_path / "table.npy"
    np.save(path, values.astype(float))
    options = ["--data", str(path), "--components", "2"]
    assert main(["compare", model, *options, "--exhaustive", "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["cumulative_score"]["total"] == pytest.approx(content["log_marginal_likelihood"]["total"], abs=1e-8)
    assert main(["verify", model, *options]) == 0


def test_local_level_takes_a_series_and_names_a_table(tmp_path, capsys):
    assert main(["compare", "local-level", "--data", "nile", "--orders", "8", "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert abs(content["cumulative_score"]["z"]) < 5
    path = tmp_path / "table.npy"
    np.save(path, np.ones((3, 2)))
    assert main(["compare", "local-level", "--data", str(path)]) == 2
    assert "takes one series" in capsys.readouterr().err


def test_a_number_after_a_name_is_its_number_of_components(tmp_path, capsys):
    path = tmp_path / "table.npy"
    np.save(path, np.random.default_rng(0).normal(size=(30, 4)).cumsum(0))
    command = ["models", "--data", str(path), "--orders", "2", "--json", "-"]
    assert main([*command, "mixture:1", "mixture:2", "gaussian"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    evidence = [row["log marginal likelihood"]["value"] for row in rows.values()]
    assert evidence[0] != evidence[1]
    assert main([*command, "mixture:1", "gaussian:2"]) == 2
    assert "gaussian:2: expected" in capsys.readouterr().err


def test_a_column_is_one_series_of_a_chain(tmp_path, capsys):
    path = tmp_path / "series.csv"
    path.write_text("y\n" + "\n".join(["0.1", "-0.2", "5.1", "4.8", "0.2", "-0.1", "5.3", "4.9"]) + "\n")
    assert main(["compare", "hmm", "--data", str(path), "--components", "2", "--orders", "2"]) == 0
    assert "N = 1, D = 8" in capsys.readouterr().out
