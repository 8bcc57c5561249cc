"""Pages of docs, run block by block: each prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)


@pytest.fixture
def restored_dtype():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("restored_dtype")
@pytest.mark.parametrize(("page", "least"), [("beyond_gaussians.md", 14), ("gaussian_engine.md", 3)])
def test_every_block_prints_what_is_shown(page, least):
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    assert len(blocks) >= least
    namespace = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        assert printed.getvalue() == shown, code
