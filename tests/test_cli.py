"""The command line from outside: exit codes, standard output and standard error."""

import json
import os
import subprocess
import sys
from importlib import resources

import jsonschema
import numpy as np
import pandas as pd
import pytest
import torch

from mpt_bayes.cli import demo, demo_antibody, main
from mpt_bayes.models import Gaussian


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
        (["compare", "gaussian", "--data", "absent.csv"], "no file 'absent.csv'"),
        (["compare", "gaussian", "--data", "absent"], "no data set 'absent'"),
        (["compare", "nothing", "--data", "TABLE"], "no model called 'nothing'"),
        (["compare", "gaussian"], "--data"),
        (["compare", "gaussian", "--data", "TABLE", "--orders", "4", "--exhaustive"], "choose one"),
        (["compare", "gaussian", "--data", "TABLE", "--orders", "4", "--budget", "50"], "or a design"),
        (["compare", "gaussian", "--data", "TABLE", "--budget", "0"], "'--budget'"),
        (["compare", "gaussian", "--data", "TABLE", "--budget", "2"], "(command line: --budget counts it once)"),
        (["compare", "gaussian", "--data", "TABLE", "--target-se", "0"], "--target-standard-error is 0: expected"),
        (["compare", "gaussian", "--data", "TABLE", "--orders", "0"], "'--orders'"),
        (["compare", "gaussian", "--data", "TABLE", "--masks-per-size", "0"], "'--masks-per-size'"),
        (["compare", "mixture", "--data", "TABLE", "--components", "0"], "'--components'"),
        (["sweep", "gaussian", "--data", "TABLE", "--masks", "0"], "'--masks'"),
        (["verify", "gaussian", "--data", "TABLE", "--orders", "1"], "'--orders'"),
        (["verify", "gaussian", "--data", "TABLE", "--rows", "0"], "'--rows'"),
        (["models", "gaussian", "ppca", "--data", "TABLE", "--fractions", "half"], "--fractions is half: expected"),
        (["attribution", "gaussian", "--data", "TABLE", "--orders", "4", "--exhaustive"], "choose one"),
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


def schema(command):
    return json.loads((resources.files("mpt_bayes") / "schemas" / f"{command}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", ["attribution", "compare", "models", "sweep", "verify"])
def test_json_obeys_the_shipped_schema(command, table, capsys):
    names = ["gaussian", "ppca:1"] if command == "models" else ["gaussian"]
    assert main([command, *names, "--data", table, "--json", "-"]) == 0
    jsonschema.Draft202012Validator(schema(command)).validate(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("command", ["attribution", "compare", "sweep", "verify"])
def test_schemas_refuse_a_document_without_its_model(command, table, capsys):
    main([command, "gaussian", "--data", table, "--json", "-"])
    content = json.loads(capsys.readouterr().out)
    del content["model"]
    with pytest.raises(jsonschema.ValidationError, match="model"):
        jsonschema.Draft202012Validator(schema(command)).validate(content)


@pytest.mark.parametrize(
    ("command", "words"),
    [("attribution", "share"), ("compare", "difference"), ("sweep", "bias"), ("verify", "relabelling")],
)
def test_people_get_a_table_and_files_what_they_ask_for(command, words, table, capsys, tmp_path):
    target = tmp_path / "result.json"
    assert main([command, "gaussian", "--data", table, "--json", str(target)]) == 0
    assert words in capsys.readouterr().out
    assert json.loads(target.read_text())["command"] == command


@pytest.mark.parametrize("command", ["attribution", "compare", "sweep"])
def test_plots_are_written(command, table, tmp_path):
    target = tmp_path / "figure.png"
    assert main([command, "gaussian", "--data", table, "--plot", str(target)]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "design"),
    [
        ([], "RandomOrders(n_orders=64)"),
        (["--orders", "3"], "RandomOrders(n_orders=3)"),
        (["--masks-per-size", "4"], "PerSize(masks_per_size=4)"),
        (["--budget", "20"], "Budget(n_evaluations=20)"),
        (["--target-se", "2.5"], "Budget(target_standard_error=2.5)"),
    ],
)
def test_the_design_asked_for_is_the_one_that_is_run(options, design, table, capsys):
    assert main(["compare", "gaussian", "--data", table, *options, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["design"] == design


def test_kernels_are_chosen_by_name(table, capsys):
    evidence = []
    for kernel in ("linear", "matern32"):
        assert main(["compare", "gp", "--data", table, "--kernel", kernel, "--orders", "2", "--json", "-"]) == 0
        content = json.loads(capsys.readouterr().out)
        assert kernel in json.dumps(content["model"])
        evidence.append(content["log_marginal_likelihood"]["total"])
    assert evidence[0] != evidence[1]
    assert main(["compare", "gp", "--data", table, "--kernel", "nothing"]) == 2
    assert "'nothing' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize("design", [[], ["--exhaustive"], ["--orders", "4"]])
def test_shares_add_up_to_the_evidence(design, table, capsys):
    assert main(["attribution", "gaussian", "--data", table, *design, "--json", "-"]) == 0
    shares = json.loads(capsys.readouterr().out)
    assert main(["compare", "gaussian", "--data", table, "--orders", "2", "--json", "-"]) == 0
    exact = json.loads(capsys.readouterr().out)["log_marginal_likelihood"]["total"]
    assert shares["total"] == pytest.approx(exact, rel=1e-12)
    assert sum(shares["per_coordinate"]) == pytest.approx(exact, rel=1e-12)
    assert np.shape(shares["shares"]) == (40, 5)
    assert all(error > 0 for error in shares["per_coordinate_standard_error"]) == (design[:1] == ["--orders"])


def test_a_plot_of_an_unknown_kind_is_bad_input(table, tmp_path, capsys):
    assert main(["compare", "gaussian", "--data", table, "--plot", str(tmp_path / "figure.xyz")]) == 2
    assert "xyz" in capsys.readouterr().err


def test_a_broken_identity_is_exit_code_1(table, monkeypatch, capsys):
    monkeypatch.setattr(Gaussian, "log_marginal_likelihood", lambda self, x: torch.zeros(len(x), dtype=torch.float64))
    assert main(["verify", "gaussian", "--data", table]) == 1
    assert "BROKEN  identity" in capsys.readouterr().out


def test_the_seed_is_the_masks(table, capsys):
    totals = []
    for seed in ["1", "1", "2"]:
        main(["compare", "gaussian", "--data", table, "--orders", "3", "--seed", seed, "--json", "-"])
        totals.append(json.loads(capsys.readouterr().out)["cumulative_score"]["total"])
    assert totals[0] == totals[1] != totals[2]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
def test_files_of_every_kind_hold_the_same_data(kind, table, tmp_path, capsys):
    x = np.load(table)
    path = tmp_path / f"again.{kind}"
    frame = pd.DataFrame(x, columns=list("abcde"))
    {"csv": lambda: frame.to_csv(path, index=False), "parquet": lambda: frame.to_parquet(path)}.get(
        kind, lambda: np.save(path, x)
    )()
    digests = []
    for name in [table, str(path)]:
        main(["compare", "gaussian", "--data", name, "--exhaustive", "--json", "-"])
        digests.append(json.loads(capsys.readouterr().out)["data"]["sha256"])
    assert digests[0] == digests[1]


def test_a_column_of_words_is_named(tmp_path, capsys):
    path = tmp_path / "words.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    assert main(["compare", "gaussian", "--data", str(path)]) == 2
    assert "'b'" in capsys.readouterr().err


def test_row_26_standardising_reports_the_jacobian_that_restores_the_units(table, capsys):
    found = []
    for extra in [[], ["--standardise"]]:
        main(["compare", "gaussian", "--data", table, "--exhaustive", "--json", "-", *extra])
        found.append(json.loads(capsys.readouterr().out))
    raw, scaled = found
    restored = scaled["log_marginal_likelihood"]["total"] + scaled["data"]["log_jacobian"]
    assert restored == pytest.approx(raw["log_marginal_likelihood"]["total"], rel=1e-12)
    assert raw["data"]["log_jacobian"] == 0


def test_row_28_positive_log_densities_are_explained(tmp_path, capsys):
    path = tmp_path / "narrow.npy"
    np.save(path, 1e-3 * np.random.default_rng(0).normal(size=(40, 3)))
    assert main(["compare", "gaussian", "--data", str(path)]) == 0
    assert "can be positive" in " ".join(capsys.readouterr().out.split())


def test_row_28_negative_log_densities_are_not_explained(table, capsys):
    main(["compare", "gaussian", "--data", table])
    assert "can be positive" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("rates", ["a", "0.1:0.2", "0.1:0.9:0", "0.9:0.1:0.1", "0.1:0.9:0.0000001", "1.5"])
def test_bad_rates_are_bad_input(rates, table, capsys):
    assert main(["sweep", "gaussian", "--data", table, "--rates", rates]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_no_progress_bar_in_a_pipe(table):
    command = [sys.executable, "-m", "mpt_bayes", "compare", "gaussian", "--data", table, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert json.loads(done.stdout)["command"] == "compare"


def test_ppca_on_digits_prints_json_that_obeys_the_schema(capsys):
    arguments = ["compare", "ppca", "--data", "digits", "--latent-dim", "10", "--orders", "2", "--json", "-"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    jsonschema.Draft202012Validator(schema("compare")).validate(content)
    assert content["data"]["shape"] == [1797, 64]
    assert abs(content["cumulative_score"]["z"]) < 64  # two orders: a t variable with one degree of freedom


@pytest.mark.parametrize("arguments", [["factor-analysis", "--data", "wine", "--standardise"], ["ppca"], ["gp"]])
def test_every_model_name_passes_its_own_verification(arguments, table, capsys):
    given = arguments if "--data" in arguments else [*arguments, "--data", table]
    assert main(["verify", *given, "--rows", "8", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["failures"] == []


def test_data_lists_what_is_at_hand(capsys):
    assert main(["data", "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema("data")).validate(content)
    found = {entry["name"]: entry for entry in content["data"]}
    assert found["wine"]["shape"] == [178, 13]
    assert found["co2"]["missing_entries"] > 0
    assert main(["data"]) == 0
    assert "Mauna Loa" in capsys.readouterr().out


def test_row_25_missing_entries_are_an_error_unless_marginalised(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(40, 4))
    x[7, 2] = np.nan
    path = tmp_path / "holes.npy"
    np.save(path, x)
    assert main(["compare", "ppca", "--data", str(path)]) == 2
    assert "row 7" in capsys.readouterr().err
    assert (
        main(["compare", "ppca", "--data", str(path), "--missing", "marginalise", "--exhaustive", "--json", "-"]) == 0
    )
    content = json.loads(capsys.readouterr().out)
    assert content["cumulative_score"]["total"] == pytest.approx(content["log_marginal_likelihood"]["total"], rel=1e-12)


def test_the_demo_writes_a_table_figures_and_json(tmp_path, capsys, monkeypatch):
    wine = [case for case in demo.CASES if case.model == "factor-analysis"]
    monkeypatch.setattr(demo, "CASES", wine)
    monkeypatch.setattr(demo_antibody, "N_SEQUENCES", 2)
    monkeypatch.setattr(demo_antibody, "PASSES", 16)
    assert main(["demo", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "FA, wine" in printed
    assert "same, random weights" in printed
    protein = json.loads((tmp_path / "antibody.json").read_text())
    jsonschema.Draft202012Validator(schema("lm_curve")).validate(protein)
    assert protein["difference"]["value"] > 300, "pre-training gains nats"
    assert (tmp_path / "antibody.png").stat().st_size > 10_000
    content = json.loads((tmp_path / "factor_analysis.json").read_text())
    jsonschema.Draft202012Validator(schema("compare")).validate(content)
    assert abs(content["cumulative_score"]["z"]) < 4
    assert (tmp_path / "factor_analysis.png").stat().st_size > 10_000


def test_standardised_targets_of_a_process_take_their_own_jacobian(tmp_path, capsys):
    path = tmp_path / "xy.csv"
    t = np.linspace(0, 30, 15)
    np.savetxt(path, np.c_[t, 7 * np.sin(t / 5) + np.random.default_rng(0).normal(size=15)], delimiter=",")
    found = []
    for extra in [[], ["--standardise"]]:
        assert main(["compare", "gp", "--data", str(path), "--orders", "2", "--json", "-", *extra]) == 0
        found.append(json.loads(capsys.readouterr().out))
    raw, scaled = (content["log_marginal_likelihood"]["total"] + content["data"]["log_jacobian"] for content in found)
    assert scaled == pytest.approx(raw, abs=0.01)  # two fits; the inputs' own Jacobian would be 15 log 9 = 33 nats off


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--json", "FOLDER/absent/x.json"], "there is no folder"),
        (["--json", "FOLDER"], "it is a folder"),
        (["--plot", "FOLDER/absent/x.png"], "there is no folder"),
        (["--plot", "FOLDER/x"], "a figure is a .png, .pdf, .svg file"),
        (["--plot", "-"], "a figure is a .png, .pdf, .svg file"),
    ],
)
def test_what_could_not_be_written_is_refused_before_the_work(extra, words, table, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mpt_bayes.compare", lambda *_, **__: pytest.fail("the work was done"))
    extra = [word.replace("FOLDER", str(tmp_path)) for word in extra]
    assert main(["compare", "gaussian", "--data", table, *extra]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "gaussian", "--data", "TABLE", "--seed", "9" * 30], "--seed"),
        (["compare", "gaussian", "--data", "TABLE", "--seed", "-1"], "--seed"),
        (["compare", "gaussian", "--data", "TABLE", "--ridge", "nan"], "--ridge is nan"),
        (["sweep", "gaussian", "--data", "TABLE", "--rates", "inf:1:0.1"], "--rates is inf:1:0.1"),
        (["compare", "gaussian", "--data", "nile"], "1 row and 100 columns"),
    ],
)
def test_odd_numbers_are_bad_input(arguments, words, table, capsys):
    assert main([table if word == "TABLE" else word for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "mpt-bayes 0.1.0\n"


def test_an_output_without_greek_letters_is_no_traceback(table):
    command = [sys.executable, "-m", "mpt_bayes", "compare", "gaussian", "--data", table, "--orders", "2"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert b"S(m)" in done.stdout


def test_an_interrupted_command_says_so(table, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mpt_bayes.compare", interrupted)
    assert main(["compare", "gaussian", "--data", table]) == 130
    assert capsys.readouterr().err == "mpt-bayes: interrupted\n"


def test_a_constant_column_is_named_before_a_covariance_fails(tmp_path, capsys):
    path = tmp_path / "flat.csv"
    path.write_text("a,b\n1,3\n2,3\n4,3\n")
    assert main(["compare", "gaussian", "--data", str(path)]) == 2
    assert "column 'b' is constant" in capsys.readouterr().err
