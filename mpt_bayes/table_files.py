"""Numeric tables from CSV, Parquet and NPY files. What cannot be read is named by row and column."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpt_bayes.checks import counted
from mpt_bayes.errors import ArgumentError, DataError, MptBayesWarning

MISSING_MARKERS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Cells of a CSV file that are read as missing, in any case."""


class NumericTable(NamedTuple):
    """(N, D) float64 values, NaN where missing, and the names of the columns."""

    values: NDArray[np.float64]
    columns: tuple[str, ...]


def read_table(path: Path) -> NumericTable:
    """A CSV, Parquet or NPY file by its suffix.

    Raises:
        ArgumentError: no such file, or another suffix.
        DataError: an empty or ragged file, columns that are not numeric, a file that cannot be decoded.
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npy": _read_npy}
    if path.suffix.lower() not in readers:
        raise ArgumentError(f"{path.name!r} is not a .csv, .parquet or .npy file: convert it to one of them")
    if not path.is_file():
        raise ArgumentError(f"there is no file {str(path)!r}: check the path")
    table = readers[path.suffix.lower()](path)
    if table.values.size == 0:
        raise DataError(f"{path.name} has no numbers: its shape is {table.values.shape}")
    return table


def _read_csv(path: Path) -> NumericTable:
    """Comma-separated; the first line is a header unless all its cells are numbers or missing.

    A first line 0, 1, 2, ... is the header that pandas writes for columns without names.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            # a blank line is no row; a line of empty cells, or "" in a file of one column, is a row of missing values
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as fault:
        raise DataError(f"{path.name} is not a UTF-8 CSV file: {fault}") from fault
    if not lines:
        raise DataError(f"{path.name} is empty")
    width = len(lines[0][1])
    for number, row in lines:
        if len(row) != width:
            raise DataError(
                f"{path.name} is ragged: line {number} has {counted(len(row), 'cell')} and the "
                f"first line {width}{_separator_hint(lines[0][1])}"
            )
    has_header = _is_numbered_header(path.name, lines[0][1]) or not all(
        _is_number(cell) or cell.lower() in MISSING_MARKERS for cell in lines[0][1]
    )
    columns = tuple(lines[0][1]) if has_header else _numbered(width)
    if has_header and "" in columns:
        warnings.warn(
            f"{path.name}: column {columns.index('') + 1} has no name and is scored like the others: if it numbers the "
            "rows, drop it (pandas: to_csv(index=False))",
            MptBayesWarning,
            stacklevel=2,
        )
    body = lines[has_header:]
    values = np.full((len(body), width), np.nan)
    for i, (number, row) in enumerate(body):
        for j, cell in enumerate(row):
            if _is_number(cell):
                values[i, j] = float(cell)
            elif cell.lower() not in MISSING_MARKERS:
                remedy = _separator_hint([cell]) or ": drop the column or encode it as numbers"
                raise DataError(
                    f"{path.name}: column {columns[j]!r} is not numeric (line {number} has {cell!r}){remedy}"
                )
    return NumericTable(values, columns)


def _is_numbered_header(name: str, cells: list[str]) -> bool:
    """Whether a first line is pandas' header for columns without names, 0, 1, 2, ..., which could be a datum too.

    Raises:
        DataError: so few columns that a datum like that is no surprise.
    """
    names = cells[cells[0] == "" :]  # an index has no name
    if not names or names != [str(j) for j in range(len(names))]:
        return False
    line = f"{name}: the first line is {','.join(cells)}" if len(cells) < 8 else f"{name}: the first line is 0,1,2,..."
    if len(names) < 3:
        raise DataError(f"{line}, which may be pandas' header or a datum: put a line of names above the data")
    warnings.warn(
        f"{line} and taken for pandas' header, not for a datum: put a line of names above the data if it is one",
        MptBayesWarning,
        stacklevel=2,
    )
    return True


def _separator_hint(cells: list[str]) -> str:
    """What to do about cells that hold another separator; empty where they hold none."""
    found = [name for mark, name in ((";", "';'"), ("\t", "a tab")) if any(mark in cell for cell in cells)]
    return f": the separator looks like {found[0]}, save the file with commas between cells" if found else ""


def _read_parquet(path: Path) -> NumericTable:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as fault:
        raise DataError(f"{path.name} is not a Parquet file: {str(fault).splitlines()[0]}") from fault
    types = pyarrow.types
    for field in table.schema:
        numeric = types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)
        if not numeric:
            raise DataError(
                f"{path.name}: column {field.name!r} is not numeric (it holds {field.type}): drop the column or encode "
                "it as numbers"
            )
    floats = pyarrow.float64()
    columns = [
        # Arrow does not cast truth values to floats at once
        (column.cast(pyarrow.int8()) if types.is_boolean(column.type) else column).cast(floats).to_numpy()
        for column in table.columns
    ]
    return NumericTable(np.column_stack(columns) if columns else np.empty((0, 0)), tuple(table.column_names))


def _read_npy(path: Path) -> NumericTable:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as fault:
        raise DataError(f"{path.name} is not an NPY file of numbers") from fault
    if array.dtype.kind not in "buif":
        raise DataError(f"{path.name} holds {array.dtype}: expected real numbers")
    if array.ndim != 2:
        raise DataError(f"{path.name} has shape {array.shape}: expected (N, D); save one datum as array.reshape(1, -1)")
    return NumericTable(array.astype(np.float64), _numbered(array.shape[1]))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbered(width: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(width))
