"""DATA on the command line: a set that ships in an installed package, or a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mpt_bayes.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

FILES = (".csv", ".npy", ".parquet")


@dataclass(frozen=True)
class Table:
    """Data as a command line names them.

    Attributes:
        name: of the set, or of the file.
        x: (N, D) float64, NaN where missing.
        sha256: of x before any transformation.
        log_jacobian: what a transformation added to the log density of one complete datum, in nats.
    """

    name: str
    x: Tensor
    sha256: str
    log_jacobian: float = 0.0
    transform: str = "none"

    def standardised(self) -> Table:
        """Columns with mean 0 and variance 1 (divisor N), missing entries left out of both.

        Raises:
            DataError: a constant column, which has no scale.
        """
        centred = self.x - self.x.nanmean(0)
        scale = centred.square().nanmean(0).sqrt()
        if bool((scale == 0).any()):
            column = int((scale == 0).nonzero()[0])
            raise DataError(f"column {column} of {self.name} is constant and cannot be standardised: drop that column")
        return replace(
            self, x=centred / scale, log_jacobian=float(scale.log().sum()), transform="standardised columns, divisor N"
        )

    def regression(self) -> tuple[Tensor, Tensor]:
        """Inputs (n, d) and targets (n,) for a Gaussian process: the last column from those before it.

        A table of one column is a series, and its inputs are 0, 1, 2, …
        """
        n, dim = self.x.shape
        inputs = self.x[:, :-1] if dim > 1 else torch.arange(n, dtype=torch.float64)[:, None]
        return inputs, self.x[:, -1]

    def to_dict(self) -> dict[str, Any]:
        """The `data` field of the JSON output."""
        return {
            "name": self.name,
            "shape": list(self.x.shape),
            "sha256": self.sha256,
            "transform": self.transform,
            "log_jacobian_per_datum": self.log_jacobian,
        }


def load(name: str, *, standardise: bool = False) -> Table:
    """The data set or file called `name`.

    Raises:
        DataError: no such set or file, or a file that is not a table of numbers.
    """
    x = _read(Path(name))
    table = Table(name, x, hashlib.sha256(x.numpy().tobytes()).hexdigest())
    return table.standardised() if standardise else table


def _read(path: Path) -> Tensor:
    if path.suffix not in FILES:
        raise DataError(f"no data set called '{path}': see `mpt-bayes data`, or name a {', '.join(FILES)} file")
    if not path.exists():
        raise DataError(f"there is no file {path}")
    if path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise DataError(f"{path} holds an array of shape {array.shape}, {array.dtype}: expected (N, D) numbers")
        return torch.as_tensor(array).to(torch.float64)
    import pandas as pd

    return _numbers(pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path), path)


def _numbers(frame: pd.DataFrame, path: Path) -> Tensor:
    words = [str(name) for name, kind in frame.dtypes.items() if getattr(kind, "kind", "O") not in "fiub"]
    if words:
        raise DataError(f"{path} has columns that are not numbers ({', '.join(words[:3])}): drop or encode them")
    return torch.as_tensor(frame.to_numpy(dtype=np.float64, copy=True))
