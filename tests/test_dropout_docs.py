"""The sessions of docs/dropout.md give what the page says."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "dropout.md"


def test_the_page_runs() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0
