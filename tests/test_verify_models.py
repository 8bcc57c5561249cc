"""`verify` passes on an example of every model."""

import pytest
import torch
from model_examples import EXAMPLES

import mpt_bayes as mb


@pytest.mark.parametrize("kind", list(EXAMPLES), ids=lambda kind: kind.__name__)
def test_verify_passes(kind):
    model, x = EXAMPLES[kind]()
    report = mb.verify(model, x)
    assert report.passed, report


def test_a_verification_prints_every_identity():
    report = mb.verify(mb.models.Gaussian(torch.zeros(3), torch.eye(3) + 0.5), torch.ones(4, 3))
    lines = str(report).splitlines()
    assert [line.split("  ")[0] for line in lines[:-1]] == [check.name for check in report.checks]
    assert all(line.endswith("passed") for line in lines[:-1])
    assert lines[-1] == repr(report)
