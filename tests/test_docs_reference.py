"""Every public name is in the docs, with a docstring."""

import re

from docs.reference import PAGE, reference

ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", flags=re.MULTILINE)


def test_every_public_name_is_on_the_reference_page():
    there, wanted = PAGE.read_text(encoding="utf-8"), reference()
    names = [[name for name, _ in ROW.findall(text)] for text in (there, wanted)]
    assert names[0] == names[1], "run `python -m docs.reference`"
    assert len(names[1]) > 200


def test_every_public_name_has_a_docstring():
    assert [name for name, line in ROW.findall(reference()) if not line] == []
