"""`verify` passes on an example of every model."""

import pytest
from model_examples import EXAMPLES

import mpt_bayes as mb


@pytest.mark.parametrize("kind", list(EXAMPLES), ids=lambda kind: kind.__name__)
def test_verify_passes(kind):
    model, x = EXAMPLES[kind]()
    report = mb.verify(model, x)
    assert report.passed, report
