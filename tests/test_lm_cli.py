"""`mpt-bayes lm score` and `lm curve`, and the files they read: user reports 6, 12, 14, 19."""

import json
import os
import socket
import sys
from importlib import resources
from types import SimpleNamespace

import lm_support as support
import numpy as np
import pandas as pd
import pytest
from lm_support import answered

import mpt_bayes as mb
from mpt_bayes.cli import main
from mpt_bayes.errors import ArgumentError, DataError, DependencyError
from mpt_bayes.lm import read_texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    support.tiny_module().save_pretrained(path)
    support.fast_tokenizer().save_pretrained(path)
    return str(path)


def test_score_is_that_of_the_library_as_json_and_parquet(folder, capsys, tmp_path):
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(support.SENTENCES) + "\n")
    arguments = ["lm", "score", "--model", folder, "--input", str(source), "--budget", "20", "--seed", "3"]
    content = answered([*arguments, "--parquet", str(tmp_path / "table.parquet")], capsys)
    expected = mb.lm.score(mb.lm.load(folder), support.SENTENCES, budget=20, seed=3)
    assert content["total"]["value"] == pytest.approx(expected.total.value, abs=1e-5)
    assert content["total"]["standard_error"] == pytest.approx(expected.total.standard_error, abs=1e-5)
    assert content["perplexity"]["n_words"] == 6 + 3 + 3 + 1
    assert content["model"]["sha256"] == expected.model_digest
    frame = pd.read_parquet(tmp_path / "table.parquet")
    np.testing.assert_allclose(frame.total, expected.total.per_row, atol=1e-5)


def test_score_prints_a_table_with_a_total_for_people(folder, capsys):
    assert main(["lm", "score", "--model", folder, "--text", "the cat", "--text", "", "--empty", "skip"]) == 0
    captured = capsys.readouterr()
    assert "expected order-agnostic log-likelihood" in captured.out
    assert "skipped: the text is empty" in captured.out
    assert "all" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize("variant", ["original", "whole-word", "within-word"])
def test_row_5_the_measure_asked_for_is_the_one_given(folder, capsys, variant):
    content = answered(["lm", "score", "--model", folder, "--text", "a unhappiness !", "--variant", variant], capsys)
    assert content["total"]["estimand"] == f"pseudo-log-likelihood ({variant})"
    expected = mb.lm.pseudo_log_likelihood(mb.lm.load(folder), ["a unhappiness !"], variant=variant)
    assert content["total"]["value"] == pytest.approx(expected.total.value, abs=1e-5)


def test_row_14_resume_takes_up_a_store(folder, capsys, tmp_path):
    store = tmp_path / "work.sqlite"
    arguments = ["lm", "score", "--model", folder, "--text", "the cat sat on the mat", "--budget", "20"]
    first = answered([*arguments, "--store", str(store)], capsys)
    size = store.stat().st_size
    again = answered([*arguments, "--resume", str(store), "--batch-size", "3"], capsys)
    assert again["total"] == first["total"]
    assert store.stat().st_size == size


def one_of_two(rank, port, folder, output):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    texts = [word for sentence in support.SENTENCES for word in ("--text", sentence)]
    os._exit(main(["lm", "score", "--model", folder, *texts, "--budget", "20", "--json", f"{output}-{rank}"]))


def test_row_14_processes_of_torchrun_share_the_work_and_one_reports(folder, capsys, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pair = [support.SERVER.Process(target=one_of_two, args=(rank, port, folder, tmp_path / "out")) for rank in range(2)]
    for process in pair:
        process.start()
    for process in pair:
        process.join(300)
        assert process.exitcode == 0
    assert not (tmp_path / "out-1").exists()
    shared = json.loads((tmp_path / "out-0").read_text())
    texts = [word for sentence in support.SENTENCES for word in ("--text", sentence)]
    alone = answered(["lm", "score", "--model", folder, *texts, "--budget", "20"], capsys)
    assert shared["total"]["value"] == pytest.approx(alone["total"]["value"], abs=1e-5)


def test_prompts_and_columns(folder, capsys, tmp_path):
    frame = pd.DataFrame({"question": ["the cat", "a"], "answer": ["sat", "b d"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in frame.to_dict("records")))
    totals = []
    for name in ("t.csv", "t.parquet", "t.jsonl"):
        columns = ["--column", "answer", "--prompt-column", "question"]
        content = answered(["lm", "score", "--model", folder, "--input", str(tmp_path / name), *columns], capsys)
        totals.append(content["total"])
        assert content["total"]["estimand"].endswith("given the prompt")
    assert totals[0] == totals[1] == totals[2]


@pytest.mark.parametrize("work", [["--budget", "16"], ["--target-standard-error", "0.5"]])
def test_curve_shows_the_model_beside_its_twin(folder, capsys, tmp_path, work):
    texts = ["--text", "the cat sat on the mat", "--text", "a b the cat !"]
    figure = tmp_path / "curve.png"
    content = answered(["lm", "curve", "--model", folder, *texts, "--bins", "4", "--plot", str(figure), *work], capsys)
    assert figure.stat().st_size > 5000
    assert [round(point["rate"], 3) for point in content["curve"]] == [0.125, 0.375, 0.625, 0.875]
    gained = content["total"]["value"] - content["twin"]["total"]["value"]
    assert content["difference"]["value"] == pytest.approx(gained, abs=1e-6)
    assert content["difference"]["standard_error"] is not None
    assert main(["lm", "curve", "--model", folder, *texts, "--bins", "4"]) == 0
    assert "random twin" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--text", "a", "--input", "b.txt"], "one of the two"),
        ([], "one of the two"),
        (["--input", "absent.txt"], "no file"),
        (["--text", ""], "row 0 has no tokens"),
        (["--text", "the cat sat " * 9], "--long-text|long_text"),
        (["--text", "a", "--device", "cuda:7"], "no usable GPU|invalid"),
        (["--text", "a", "--device", "gpu0"], "is no device"),
        (["--text", "a", "--budget", "4", "--target-se", "1"], "give one"),
        (["--text", "a", "--variant", "original", "--budget", "4"], "takes every token once"),
        (["--text", "a", "--batch-size", "0"], "'--batch-size'"),
        (["--text", "a", "--budget", "0"], "'--budget'"),
        (["--text", "a", "--target-se", "-1"], "--target-standard-error is -1: expected a positive number"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, capsys, arguments, words):
    assert main(["lm", "score", "--model", folder, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert any(word in captured.err for word in words.split("|"))


def test_a_model_that_is_not_there_is_one_line(capsys, tmp_path):
    assert main(["lm", "score", "--model", str(tmp_path / "nothing"), "--text", "a"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_fasta_names_its_sequences_and_drops_gaps(tmp_path):
    (tmp_path / "s.fasta").write_text(">one protein\nEVQ-L\nv*\n\n>two\nDIQ\n")
    found = read_texts(tmp_path / "s.fasta")
    assert found.texts == ("EVQLV", "DIQ")
    assert found.names == ("one protein", "two")
    (tmp_path / "bad.fa").write_text("EVQ\n>late\n")
    with pytest.raises(DataError, match="line 1: a sequence before"):
        read_texts(tmp_path / "bad.fa")
    with pytest.raises(ArgumentError, match="no prompts"):
        read_texts(tmp_path / "s.fasta", prompt_column="p")


def test_row_6_blank_lines_keep_their_places(tmp_path):
    (tmp_path / "t.txt").write_text("a\n\nb\n")
    assert read_texts(tmp_path / "t.txt").texts == ("a", "", "b")


def test_row_19_faulty_files_are_named_and_nothing_is_unpickled(tmp_path):
    (tmp_path / "t.pkl").write_bytes(b"\x80\x04")
    with pytest.raises(ArgumentError, match=r"is not a \.txt"):
        read_texts(tmp_path / "t.pkl")
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    with pytest.raises(DataError, match="row 1: 'text' holds int"):
        read_texts(tmp_path / "t.jsonl")
    (tmp_path / "u.jsonl").write_text('{"text": "a"}\nnot json\n')
    with pytest.raises(DataError, match="row 1 is not JSON"):
        read_texts(tmp_path / "u.jsonl")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="row 0 has no field 'text': it has 'a', 'b'"):
        read_texts(tmp_path / "t.csv")
    (tmp_path / "t.parquet").write_text("no")
    with pytest.raises(DataError, match="not a Parquet file"):
        read_texts(tmp_path / "t.parquet")
    (tmp_path / "t.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="not UTF-8"):
        read_texts(tmp_path / "t.txt")


def test_saved_data_sets_are_read_where_the_package_is_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DependencyError, match="pip install datasets"):
        read_texts(tmp_path)
    rows = [{"text": "a"}, {"text": None}]
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_from_disk=lambda path: rows))
    assert read_texts(tmp_path).texts == ("a", "")


def test_the_bundled_sequences_are_those_of_the_library():
    path = resources.files("mpt_bayes") / "data" / "antibodies.fasta"
    found = read_texts(path)
    assert dict(zip(found.names, found.texts, strict=True)) == mb.lm.antibody_sequences()
