"""The README's quick start runs as printed."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_quick_start_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names = {}
    exec(compile(program, "README.md", "exec"), names)
    assert capsys.readouterr().out.count("\n") == 3 + 8  # seven identities and a summary
    assert names["shares"].shape == (178, 13)
    assert (tmp_path / "wine.png").stat().st_size > 10_000


def test_the_commands_shown_exist():
    from typer.main import get_command

    from mpt_bayes.cli.app import app

    shown = set(re.findall(r"^    mpt-bayes ([a-z]+)", README, flags=re.MULTILINE))
    assert {"compare", "data", "sweep", "verify"} <= shown <= set(get_command(app).commands)
