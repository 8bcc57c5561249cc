"""The page docs/beyond_gaussians.md, run block by block: each prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parent.parent / "docs" / "beyond_gaussians.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)


@pytest.fixture
def restored_dtype():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("restored_dtype")
def test_every_block_prints_what_is_shown():
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 14
    namespace = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        assert printed.getvalue() == shown, code
