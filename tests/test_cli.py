"""The command line from outside: exit codes, standard output and standard error."""

import json

import numpy as np
import pytest

from mpt_bayes.cli import main


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, np.random.default_rng(0).normal(size=(40, 5)) @ np.tri(5))
    return str(path)


def test_json_is_all_there_is_on_standard_output(table, capsys):
    assert main(["compare", "gaussian", "--data", table, "--exhaustive", "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["cumulative_score"]["total"] == pytest.approx(content["log_marginal_likelihood"]["total"], rel=1e-12)
    assert content["data"]["shape"] == [40, 5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "gaussian", "--data", "absent.csv"], "no file absent.csv"),
        (["compare", "gaussian", "--data", "absent"], "no data set called 'absent'"),
        (["compare", "nothing", "--data", "TABLE"], "no model called 'nothing'"),
        (["compare", "gaussian"], "--data"),
        (["compare", "gaussian", "--data", "TABLE", "--orders", "4", "--exhaustive"], "choose one"),
        (["compare", "gaussian", "--data", "TABLE", "--ridge", "-1"], "--ridge is -1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words, table, capsys):
    assert main([table if word == "TABLE" else word for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_debug_shows_the_traceback(capsys):
    assert main(["compare", "gaussian", "--data", "absent.csv", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
