"""Linear layers through oneDNN: the same numbers, only where they fit, only inside."""

import lm_support as support
import pytest
import torch
from torch.nn.functional import linear

import mpt_bayes.lm.linear as fast
from mpt_bayes.lm.linear import OneDnnLinear


@pytest.fixture
def counted(monkeypatch):
    calls = []
    through = fast._one_dnn

    def counting(*args):
        calls.append(args[0].shape)
        return through(*args)

    fast.available()
    monkeypatch.setattr(fast, "_one_dnn", counting)
    return calls


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "x",
    [random(7, 16), random(2, 5, 16), random(16, 5, 2).transpose(0, 2), random(1, 1, 16).expand(3, 4, 16)],
    ids=["matrix", "batch", "transposed", "expanded"],
)
def test_the_numbers_are_those_of_float64(x, bias, counted):
    weight, shift = random(9, 16), random(9) if bias else None
    exact = linear(x.double(), weight.double(), None if shift is None else shift.double())
    with torch.inference_mode(), OneDnnLinear():
        got = linear(x, weight, shift)
    torch.testing.assert_close(got.double(), exact, atol=1e-5, rtol=1e-5)
    assert counted == [x.shape] * fast.available()


@pytest.mark.parametrize("x", [random(16), random(0, 16), random(3, 16).double(), random(3, 16).bfloat16()], ids=str)
def test_what_does_not_fit_goes_the_usual_way(x, counted):
    weight = random(9, 16).to(x.dtype)
    with torch.inference_mode(), OneDnnLinear():
        got = linear(x, weight)
    assert torch.equal(got, linear(x, weight))
    assert counted == []


def test_a_model_runs_through_it_while_it_is_scored_and_at_no_other_time(counted):
    lm = support.tiny_lm()
    ids = lm.encode("the cat sat").ids[None]
    counted.clear()
    plain = lm.module(input_ids=ids).logits
    assert counted == []
    with lm.evaluating():
        inside = lm.module(input_ids=ids).logits
    assert (len(counted) > 10) == fast.available()
    torch.testing.assert_close(inside, plain, atol=1e-5, rtol=1e-5)
    counted.clear()
    lm.module(input_ids=ids).logits.sum().backward()
    assert counted == []


def test_an_operator_that_is_missing_or_wrong_is_not_used(monkeypatch, counted):
    monkeypatch.setattr(fast, "available", lambda: False)
    x, weight = random(3, 16), random(9, 16)
    with torch.inference_mode(), OneDnnLinear():
        assert torch.equal(linear(x, weight), x @ weight.T)
    assert counted == []
    monkeypatch.undo()
    for wrong in (lambda x, weight, bias=None: linear(x, weight) + 1, lambda *args: 1 / torch.tensor([]).item()):
        monkeypatch.setattr(fast, "_one_dnn", wrong)
        assert not fast.available.__wrapped__()
