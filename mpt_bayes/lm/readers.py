"""Texts from files: lines, JSONL, a column of a CSV or Parquet table, FASTA, or a Hugging Face data set on disk."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpt_bayes.errors import ArgumentError, DataError, DependencyError


@dataclass(frozen=True)
class Texts:
    """Texts with their names, and a prompt for each where the source has them."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    prompts: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.texts)


def read_texts(path: str | Path, *, column: str = "text", prompt_column: str | None = None) -> Texts:
    """The texts of a file, by its suffix; every row keeps its place.

    .txt: one text a line. .jsonl: one object a line, its field `column`. .csv, .parquet: the column `column`. .fasta,
    .fa, .faa: one sequence a record, named by its header. A folder: a Hugging Face data set saved with `save_to_disk`.

    Args:
        column: the field or column that holds the text.
        prompt_column: the one that holds a prompt, visible and unscored (JSONL, tables and data sets).

    Raises:
        ArgumentError: no such file, another suffix, prompts from a file of lines or sequences.
        DataError: no texts, a field that is not there or is not text (row named), a file that cannot be read.
        DependencyError: a folder, without the package `datasets`.
    """
    texts = _read(Path(path), column, prompt_column)
    if not len(texts):
        raise DataError(f"{Path(path).name} holds no texts")
    return texts


def _read(path: Path, column: str, prompt_column: str | None) -> Texts:
    if not path.exists():
        raise ArgumentError(f"there is no file {str(path)!r}: check the path")
    if path.is_dir():
        return _from_records(_saved_dataset(path), path, column, prompt_column)
    records: dict[str, Callable[[Path], Sequence[Any]]] = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
    suffix = path.suffix.lower()
    if suffix in records:
        return _from_records(records[suffix](path), path, column, prompt_column)
    plain = {".txt": read_lines, ".fasta": read_fasta, ".fa": read_fasta, ".faa": read_fasta}
    if suffix not in plain:
        raise ArgumentError(f"{path.name!r} is not a .txt, .jsonl, .csv, .parquet or .fasta file, or a data-set folder")
    if prompt_column is not None:
        raise ArgumentError(f"{path.name} has no columns and so no prompts: give them in JSONL, CSV or Parquet")
    return plain[suffix](path)


def read_fasta(path: Path) -> Texts:
    """Sequences in upper case without gaps or stops (`-`, `.`, `*`), named by the whole header line.

    Raises:
        DataError: letters before the first header, or not UTF-8.
    """
    names: list[str] = []
    parts: list[list[str]] = []
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        if line.startswith(">"):
            names.append(line[1:].strip())
            parts.append([])
        elif line.strip():
            if not names:
                raise DataError(f"{path.name}, line {number}: a sequence before the first '>' header")
            parts[-1].append(line.strip().upper().translate(str.maketrans("", "", "-.*")))
    return Texts(tuple("".join(part) for part in parts), tuple(names))


def read_lines(path: Path) -> Texts:
    """One text a line, whatever the file's suffix, named by its number.

    Raises:
        DataError: not UTF-8.
    """
    lines = _text_of(path).splitlines()
    return Texts(tuple(lines), tuple(str(row) for row in range(len(lines))))


def _jsonl(path: Path) -> list[Any]:
    records = []
    for row, line in enumerate(_text_of(path).splitlines()):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise DataError(f"{path.name}, row {row} is not JSON: {error.msg}") from error
    return records


def _csv(path: Path) -> list[Any]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name} is not a UTF-8 CSV file: {error}") from error


def _parquet(path: Path) -> list[Any]:
    import pyarrow.lib
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.lib.ArrowException as error:
        raise DataError(f"{path.name} is not a Parquet file: {str(error).splitlines()[0]}") from error
    rows: list[Any] = table.to_pylist()
    return rows


def _saved_dataset(path: Path) -> Sequence[Any]:
    try:
        import datasets
    except ImportError as error:
        raise DependencyError(f"{path} is a folder: reading a saved data set needs `pip install datasets`") from error
    loaded: Sequence[Any] = datasets.load_from_disk(str(path))
    return loaded


def _from_records(records: Sequence[Any], path: Path, column: str, prompt_column: str | None) -> Texts:
    names = tuple(str(row) for row in range(len(records)))
    texts = tuple(_field(record, column, path, row) for row, record in enumerate(records))
    if prompt_column is None:
        return Texts(texts, names)
    return Texts(texts, names, tuple(_field(record, prompt_column, path, row) for row, record in enumerate(records)))


def _field(record: Any, column: str, path: Path, row: int) -> str:
    fields = list(record) if isinstance(record, dict) else []
    if column not in fields:
        raise DataError(
            f"{path.name}, row {row} has no field {column!r}: it has {', '.join(map(repr, fields)) or 'none'}"
        )
    value = record[column]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{path.name}, row {row}: {column!r} holds {type(value).__name__}, not text")
    return value


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
