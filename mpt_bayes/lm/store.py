"""Finished units on disk: one SQLite file, appended a batch at a time; a killed run loses and repeats nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpt_bayes.errors import DataError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS units (
    run INTEGER NOT NULL, work TEXT NOT NULL, draw INTEGER NOT NULL, log_probs BLOB NOT NULL,
    PRIMARY KEY (run, work, draw)
) WITHOUT ROWID;
"""
_LOCK_SECONDS = 120


@dataclass(frozen=True)
class UnitStore:
    """Log-probabilities of finished units, keyed by content: (model and seed, text and design, draw).

    The file knows nothing of batches, order or processes; several processes may write it at once (on a local disk). A
    batch is one transaction: after `kill -9` each batch is there whole or not at all. Values are little-endian
    float32, one per scored token in order of position; nothing in the file is code.

    Args:
        path: the file; made if it is not there.
        key: what identifies the run, as JSON: model digest and seed.
    """

    path: Path
    key: str

    @classmethod
    def open(cls, path: str | Path, **key: Any) -> UnitStore:
        """The store at `path` for the run these values identify.

        Raises:
            DataError: the path is a file of another kind, or cannot be written.
        """
        store = cls(Path(path), json.dumps(key, sort_keys=True))
        try:
            with closing(store._connection()) as connection, connection:
                connection.executescript(_SCHEMA)
                connection.execute("INSERT OR IGNORE INTO runs (key) VALUES (?)", (store.key,))
        except sqlite3.Error as error:
            raise DataError(
                f"{path} cannot be used as a store ({error}): name a new file, or one of this kind"
            ) from error
        return store

    def read(self, works: Iterable[str]) -> dict[tuple[str, int], Tensor]:
        """Every finished unit of these works: (work key, draw) → float32 values."""
        found: dict[tuple[str, int], Tensor] = {}
        query = "SELECT draw, log_probs FROM units JOIN runs ON run = id WHERE key = ? AND work = ?"
        with closing(self._connection()) as connection:
            for work in works:
                for draw, blob in connection.execute(query, (self.key, work)):
                    found[work, draw] = torch.from_numpy(np.frombuffer(blob, dtype="<f4").copy())
        return found

    def append(self, units: Sequence[tuple[str, int]], values: Sequence[Tensor]) -> None:
        """A finished batch, all of it or nothing; units that are already there stay as they are."""
        with closing(self._connection()) as connection, connection:
            (run,) = connection.execute("SELECT id FROM runs WHERE key = ?", (self.key,)).fetchone()
            rows = [
                (run, work, draw, value.numpy().astype("<f4").tobytes())
                for (work, draw), value in zip(units, values, strict=True)
            ]
            connection.executemany("INSERT OR IGNORE INTO units VALUES (?, ?, ?, ?)", rows)

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_LOCK_SECONDS)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection
