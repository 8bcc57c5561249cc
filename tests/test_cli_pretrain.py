"""`mpt-bayes lm pretrain` and `lm rank`, and every shipped experiment at a reduced size."""

import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import jsonschema
import lm_support as support
import pytest

from mpt_bayes.cli import main
from mpt_bayes.lm import pretraining

EXPERIMENTS = sorted((Path(__file__).parent.parent / "experiments" / "pretraining").glob("*.toml"))
SMALL = """
[corpus]
kind = "hmm"
length = 8
held_out = 12
states = 3
letters = 5
[model]
layers = 2
width = 16
heads = 2
[training]
steps = 6
batch = 4
save_every = 4
warmup = 2
[evaluation]
every = 3
rows = 12
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(SMALL + '[variants.bert]\n[variants.mae.model]\narchitecture = "mae_lm"\n')
    return path


def test_a_study_is_trained_compared_drawn_and_ranked(study, tmp_path, capsys):
    out = tmp_path / "runs"
    runs = support.answered(["lm", "pretrain", str(study), "--out", str(out)], capsys)["runs"]
    assert [run["run"] for run in runs] == ["bert", "mae"]
    assert runs[0]["difference"] == 0
    assert runs[1]["flops"] < runs[0]["flops"] * 1.5
    for name in ("bert", "mae"):
        assert {path.name for path in (out / name / "figures").iterdir()} == {"curve.png", "training.png"}
    models = support.answered(["lm", "rank", str(out / "bert"), str(out / "mae"), "--center"], capsys)["models"]
    assert [model["name"] for model in models] == ["bert", "mae"]
    assert [row["mask"] is None for row in models[1]["layers"]] == [True] * 3
    assert all(model["center"] for model in models)


@pytest.mark.parametrize(("command", "field"), [("lm pretrain", "runs"), ("lm rank", "models")])
def test_schemas_refuse_a_document_without_its_numbers(command, field):
    validator = jsonschema.Draft202012Validator(support.schema_of(command))
    head = {"schema_version": 1, "command": command, "seconds": 1.0, "versions": {}, "units": "nats"}
    known = {key: value for key, value in head.items() if key in support.schema_of(command)["properties"]}
    with pytest.raises(jsonschema.ValidationError, match=f"'{field}' is a required property"):
        validator.validate(known)
    with pytest.raises(jsonschema.ValidationError, match="required property"):
        validator.validate(known | {field: [{"name": "bert", "run": "bert"}]})


def test_a_finished_study_is_not_trained_again_but_may_be_resumed(study, tmp_path, capsys):
    arguments = ["lm", "pretrain", str(study), "--out", str(tmp_path / "runs"), "--only", "bert"]
    assert main(arguments) == 0
    before = (tmp_path / "runs" / "bert" / "metrics.jsonl").read_text()
    assert main(arguments) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0
    assert (tmp_path / "runs" / "bert" / "metrics.jsonl").read_text() == before


def test_a_finished_study_is_resumed_with_its_own_configuration_only(study, tmp_path, capsys):
    arguments = ["lm", "pretrain", str(study), "--out", str(tmp_path / "runs"), "--only", "bert"]
    assert main(arguments) == 0
    study.write_text(study.read_text().replace("steps = 6", "steps = 9"))
    assert main([*arguments, "--resume"]) == 2
    error = capsys.readouterr().err
    assert "training.steps is 6 there and 9 now" in error
    assert main(arguments) == 2
    assert "holds a run already: pass resume" in capsys.readouterr().err


def test_tables_keep_every_number_at_80_columns(study, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = ("fixed_15_80_10_10", "3ml_cross_uniform")
    study.write_text(study.read_text().replace(".bert]", f".{names[0]}]").replace(".mae.", f".{names[1]}."))
    written = tmp_path / "runs.json"
    assert main(["lm", "pretrain", str(study), "--out", str(tmp_path / "runs"), "--json", str(written)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    for run in json.loads(written.read_text())["runs"]:
        scores = [name for name in run if name not in ("run", "flops", "parameters", "seconds")]
        assert len(scores) == 8
        for number in (*(f"{run[name]:.3f}" for name in scores), f"{run['flops']:.1e}", f"{run['parameters']:,}"):
            assert number in printed, number


def test_a_run_that_did_not_go_to_its_end_is_said(study, tmp_path, capsys):
    runs = tmp_path / "runs"
    arguments = ["lm", "pretrain", str(study), "--out", str(runs)]
    assert main([*arguments, "--only", "bert"]) == 0
    capsys.readouterr()
    (runs / "bert" / "result.json").unlink()
    assert main(["lm", "rank", str(runs / "bert")]) == 2
    assert "did not go to its end: pretrain it with resume" in capsys.readouterr().err


def test_a_name_that_is_neither_a_folder_nor_on_the_hub_is_said(capsys):
    """The hub takes no name with two slashes: nothing is requested."""
    assert main(["lm", "rank", "no/such/model"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "no/such/model cannot be loaded: there is no folder of that name, and as a name on the hub: " in error


def test_another_seed_trains_another_network_for_the_same_held_out_set(study, tmp_path, capsys):
    arguments = ["lm", "pretrain", str(study), "--only", "bert"]
    assert main([*arguments, "--out", str(tmp_path / "a")]) == 0
    assert main([*arguments, "--out", str(tmp_path / "b"), "--seed", "1"]) == 0
    first, second = pretraining.compare_runs({name: tmp_path / name / "bert" for name in "ab"})
    assert second.difference.total != 0
    assert first.result["held_out_digest"] == second.result["held_out_digest"]
    assert pretraining.RunFolder(tmp_path / "b" / "bert").config().seed == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pretrain", "absent.toml", "--out", "x"], "absent.toml cannot be read"),
        (["pretrain", "STUDY", "--out", "x", "--only", "gpt"], "--only gpt is no variant"),
        (["rank", "ABSENT"], "there is no folder"),
        (["rank", "RUN", "--input", "absent.txt"], "absent.txt cannot be read"),
        (["rank", "RUN", "--input", "EMPTY"], "texts is empty: give at least one"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words, study, tmp_path, capsys):
    if "RUN" in arguments:
        config = pretraining.Study.from_toml(study).configs["bert"]
        pretraining.pretrain(config, tmp_path / "run")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    given = {"EMPTY": str(empty), "STUDY": str(study), "RUN": str(tmp_path / "run"), "ABSENT": str(tmp_path / "absent")}
    assert main(["lm", *(given.get(argument, argument) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def reduced(path):
    """The experiment with everything that costs made small; what is studied stays."""
    table = tomllib.loads(path.read_text())
    table["training"] |= {"steps": 4, "batch": 2, "save_every": 4, "warmup": 1}
    table["evaluation"] |= {"every": 2, "rows": 4}
    table["corpus"] |= {"held_out": 6, "length": min(8, table["corpus"].get("length", 8))}
    if table["corpus"]["kind"] == "docstrings":
        table["corpus"]["kind"] = "pydoc"
    for variant in [table, *table["variants"].values()]:
        variant.get("training", {}).pop("batch", None)
        if "width" in variant.get("model", {}):
            variant["model"]["width"] = 16
    table["training"]["batch"] = 2
    return pretraining.Study.from_dict(table)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=[path.stem for path in EXPERIMENTS])
def test_every_shipped_experiment_runs_at_a_reduced_size(path, tmp_path):
    study = reduced(path)
    for name, config in study.configs.items():
        pretraining.pretrain(config, tmp_path / name)
    compared = pretraining.compare_runs({name: tmp_path / name for name in study.configs})
    assert [comparison.name for comparison in compared] == list(study.configs)
    assert all(comparison.scores.total < 0 for comparison in compared)


def script(name):
    """An experiment's script as a module."""
    spec = importlib.util.spec_from_file_location(name, EXPERIMENTS[0].parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_figures_and_tables_are_made_from_finished_studies(study, tmp_path, capsys):
    """The study stands for each of the studies the page is made of."""
    config = pretraining.Study.from_toml(study).configs["bert"]
    for name in ("hmm_laws/uniform", "hmm_architectures/bert_uniform", "hmm_architectures_1/bert_uniform"):
        pretraining.pretrain(config, tmp_path / "runs" / name)
    figures = tmp_path / "figures"
    figures.mkdir()
    script("figures").main(str(tmp_path / "runs"), str(figures), str(tmp_path / "results"))
    kept = json.loads((tmp_path / "results" / "hmm_laws.json").read_text())
    assert [run["run"] for run in kept] == ["uniform"]
    assert [row["step"] for row in kept[0]["evaluations"]] == [0, 3, 6]
    drawn = {path.name for path in figures.iterdir()}
    assert drawn == {f"language_{name}.png" for name in ("share", "training", "flops", "sequences")}
    printed = capsys.readouterr().out
    assert "| uniform |" in printed
    assert "2 seeds" in printed
    assert "network - exact" in printed


def test_ppca_goes_from_noise_to_evidence_beside_a_network(study, tmp_path):
    pretraining.pretrain(pretraining.Study.from_toml(study).configs["bert"], tmp_path / "run")
    moments = script("noise_to_evidence").main(str(tmp_path / "run"), str(tmp_path / "figure.png"), steps=60)
    values = [moment.log_marginal_likelihood for moment in moments]
    assert values[-1] > values[0] + 1
    for moment in moments:  # the area under each curve is the log marginal likelihood
        assert moment.curve.sum() == pytest.approx(moment.log_marginal_likelihood, abs=0.2)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_there_are_experiments():
    assert {"hmm_architectures", "hmm_laws", "hmm_plateau", "table", "text"} <= {path.stem for path in EXPERIMENTS}
