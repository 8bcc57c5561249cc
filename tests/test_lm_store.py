"""Killed runs, several processes, damaged files: user report 14."""

import json
import os
import random
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import lm_support as support
import numpy as np
import pytest
import torch
import torch.distributed as dist

import mpt_bayes as mb
from mpt_bayes.errors import DataError
from mpt_bayes.lm.batches import BatchLimits
from mpt_bayes.lm.store import UnitStore

TEXTS = [*support.SENTENCES, "the cat sat on the mat a b d !", "un the bc mat sat cat a d b", "a b the cat on a mat"]


def scored(store, result, rank=0, world=1):
    """One process of a run: writes its totals to `result`."""
    torch.set_num_threads(1)
    if world > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{result}-rendezvous", rank=rank, world_size=world)
    score = mb.lm.score(support.tiny_lm(), TEXTS, budget=60, seed=3, batch=BatchLimits(4096, rows=4), store=store)
    totals = {"per_row": score.total.per_row.tolist(), "se": score.total.standard_error}
    Path(f"{result}-{rank}").write_text(json.dumps(totals))
    if world > 1:
        dist.destroy_process_group()


def finished(store, result, world=1):
    """The totals that each of `world` processes found."""
    processes = [support.SERVER.Process(target=scored, args=(store, result, rank, world)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    return [json.loads(Path(f"{result}-{rank}").read_text()) for rank in range(world)]


def contents(store):
    with closing(sqlite3.connect(store)) as connection:
        query = "SELECT key, work, draw, log_probs FROM units JOIN runs ON run = id ORDER BY key, work, draw"
        return connection.execute(query).fetchall()


def count(store):
    try:
        with closing(sqlite3.connect(store)) as connection:
            return connection.execute("SELECT count(*) FROM units").fetchone()[0]
    except sqlite3.OperationalError:
        return 0  # not made yet


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (totals,) = finished(folder / "store", folder / "result")
    return totals, contents(folder / "store")


class Slow(torch.nn.Module):
    """A model that dies at a given forward pass, as a machine would."""

    def __init__(self, dies_at=None):
        super().__init__()
        self.inner = support.tiny_module()
        self.calls, self.dies_at = 0, dies_at

    def forward(self, input_ids, attention_mask=None):
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


def test_row_14_an_interrupted_run_resumes_and_repeats_nothing(tmp_path):
    texts = [mb.lm.from_ids([5, 6, 7, 8, 9, 10]), mb.lm.from_ids([9, 9, 12])]
    options = {"budget": 40, "batch": BatchLimits(4096, rows=4)}
    whole = mb.lm.masked_diffusion(Slow(), mask_token_id=support.MASK)
    expected = mb.lm.score(whole, texts, store=tmp_path / "whole", **options)
    n_forwards = whole.module.calls
    dying = mb.lm.masked_diffusion(Slow(dies_at=6), mask_token_id=support.MASK)
    with pytest.raises(KeyboardInterrupt):
        mb.lm.score(dying, texts, store=tmp_path / "part", **options)
    assert 0 < count(tmp_path / "part") < count(tmp_path / "whole")
    before = count(tmp_path / "part") // 4
    fresh = mb.lm.masked_diffusion(Slow(), mask_token_id=support.MASK)
    resumed = mb.lm.score(fresh, texts, store=tmp_path / "part", **options)
    assert fresh.module.calls == n_forwards - before, "no finished batch is run again"
    assert resumed.total.value == expected.total.value
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    idle = mb.lm.masked_diffusion(Slow(), mask_token_id=support.MASK)
    again = mb.lm.score(idle, texts, store=tmp_path / "part", **options)
    assert idle.module.calls <= 1, "at most the vocabulary is asked for"
    assert again.total.value == expected.total.value


def test_row_14_twenty_kills_at_random_moments_lose_and_repeat_nothing(tmp_path, undisturbed):
    expected, stored = undisturbed
    store, result = tmp_path / "store", tmp_path / "result"
    chooser = random.Random(0)
    kills, seen = 0, []
    while kills < 20:
        if count(store) > 0.8 * len(stored):
            for path in tmp_path.glob("store*"):
                path.unlink()  # start over, so that kills fall everywhere
        limit = count(store) + chooser.randrange(1, 60)
        process = support.SERVER.Process(target=scored, args=(store, result))
        process.start()
        while count(store) < limit and process.is_alive():
            time.sleep(0.001)
        time.sleep(chooser.random() * 0.003)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        seen.append(count(store))
        assert count(store) <= len(stored)
    assert len(set(seen)) > 10, "the kills fell at different moments"
    assert finished(store, result) == [expected]
    assert contents(store) == stored


def test_row_14_one_and_two_processes_agree(tmp_path, undisturbed):
    expected, stored = undisturbed
    first, second = finished(tmp_path / "store", tmp_path / "pair", world=2)
    assert first == second
    np.testing.assert_allclose(first["per_row"], expected["per_row"], atol=1e-5)
    assert [row[:3] for row in contents(tmp_path / "store")] == [row[:3] for row in stored]
    (alone,) = finished(tmp_path / "store", tmp_path / "alone")
    assert alone == first, "one process reads what two wrote"
    without_store = finished(None, tmp_path / "bare", world=2)
    assert without_store == [first, first]


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_row_14_the_store_serves_any_batch_size(tmp_path, undisturbed, rows):
    expected, _ = undisturbed
    lm = support.tiny_lm()
    result = mb.lm.score(lm, TEXTS, budget=60, seed=3, batch=BatchLimits(4096, rows=rows), store=tmp_path / "s")
    np.testing.assert_allclose(result.total.per_row, expected["per_row"], atol=1e-5)
    again = mb.lm.score(lm, TEXTS[::-1], budget=60, seed=3, batch=BatchLimits(50), store=tmp_path / "s")
    assert again.total.per_row[::-1].tolist() == result.total.per_row.tolist(), "read back, not computed again"


def test_a_store_keeps_models_seeds_designs_and_measures_apart(tmp_path):
    store = tmp_path / "s"
    lm, other = support.tiny_lm(seed=0), support.tiny_lm(seed=1)
    text = support.SENTENCES[:1]
    runs = [
        lambda where: mb.lm.score(lm, text, budget=20, store=where),
        lambda where: mb.lm.score(other, text, budget=20, store=where),
        lambda where: mb.lm.score(lm, text, budget=20, seed=1, store=where),
        lambda where: mb.lm.score(lm, text, budget=21, store=where),
        lambda where: mb.lm.pseudo_log_likelihood(lm, text, store=where),
        lambda where: mb.lm.pseudo_log_likelihood(lm, text, variant="whole-word", store=where),
    ]
    for run in runs:
        assert run(store).total.value == run(None).total.value
    spread = mb.lm.order_spread(lm, text, n_orders=2, store=store)[0]
    assert spread.mean == mb.lm.order_spread(lm, text, n_orders=2)[0].mean


def test_a_model_that_was_trained_on_is_another_model(tmp_path):
    lm = support.tiny_lm()
    first = lm.digest
    assert lm.digest == first
    before = mb.lm.score(lm, ["the cat"], store=tmp_path / "s").total.value
    optimiser = torch.optim.SGD(lm.module.parameters(), lr=0.5)
    ids = torch.tensor([[0, support.MASK, 10, 2]])
    lm.module(input_ids=ids, labels=torch.tensor([[-100, 9, -100, -100]])).loss.backward()
    optimiser.step()
    assert lm.digest != first
    after = mb.lm.score(lm, ["the cat"], store=tmp_path / "s").total.value
    assert after != before
    assert after == mb.lm.score(lm, ["the cat"]).total.value


def test_a_large_corpus_is_taken_in_groups_without_changing_a_number(monkeypatch):
    lm = support.tiny_lm()
    whole = mb.lm.score(lm, TEXTS, budget=20)
    monkeypatch.setattr(mb.lm.engine, "UNITS_AT_ONCE", 30)
    parts = mb.lm.score(lm, TEXTS, budget=20)
    np.testing.assert_allclose(parts.total.per_row, whole.total.per_row, atol=1e-5)
    assert parts.total.standard_error == pytest.approx(whole.total.standard_error, rel=1e-4)


def test_files_of_another_kind_and_damage_are_named(tmp_path):
    (tmp_path / "text").write_text("not a store, but long enough to be looked at " * 50)
    with pytest.raises(DataError, match="cannot be used as a store"):
        mb.lm.score(support.tiny_lm(), ["cat"], store=tmp_path / "text")
    lm = support.tiny_lm()
    mb.lm.score(lm, ["the cat"], store=tmp_path / "s")
    with closing(sqlite3.connect(tmp_path / "s")) as connection, connection:
        connection.execute("UPDATE units SET log_probs = x'00000000' WHERE length(log_probs) = 8")
    with pytest.raises(DataError, match="it is damaged"):
        mb.lm.score(lm, ["the cat"], store=tmp_path / "s")


def test_row_19_a_store_holds_numbers_and_no_code(tmp_path):
    store = UnitStore.open(tmp_path / "s", model="m", seed=0)
    store.append([("work", 3)], [torch.tensor([-1.5, -0.25])])
    store.append([("work", 3)], [torch.tensor([9.0, 9.0])])
    assert store.read(["work", "other"])["work", 3].tolist() == [-1.5, -0.25], "what is there stays"
    assert contents(tmp_path / "s")[0][3] == np.array([-1.5, -0.25], dtype="<f4").tobytes()
    assert UnitStore.open(tmp_path / "s", model="m", seed=1).read(["work"]) == {}
