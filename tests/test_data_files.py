"""Files of readings: what is read, and what is said of what cannot be."""

import numpy as np
import pytest

import bpinn as bp
from bpinn.data_files import read_table

PLAIN = "x,value\n0.0,1.5\n1,-2e-3\n"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "x;value\n0.0;1.5\n1;-2e-3\n",
        "x\tvalue\n0.0\t1.5\n1\t-2e-3",
        "x [m],value [mol/l]\n0.0,1.5\n1,-2e-3\n",
        "x (m) , value\n 0.0 , 1.5\n1,-2e-3\n",
        "\ufeffx,value\r\n0.0,1.5\r\n1,-2e-3\r\n",
        "# measured on Tuesday\nx,value\n\n0.0,1.5\n# a break\n1,-2e-3\n",
        '"x","value"\n"0.0","1.5"\n1,-2e-3\n',
        "x;value\n0,0;1,5\n1;-0,002\n",
    ],
)
def test_tables_are_read(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode())
    columns = read_table(path)
    assert list(columns) == ["x", "value"]
    np.testing.assert_array_equal(columns["x"], [0.0, 1.0])
    np.testing.assert_array_equal(columns["value"], [1.5, -2e-3])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("# only this\n", "the file is empty"),
        ("x,value\n", "the file has no readings"),
        ("0.0,1.5\n1.0,2.5\n", "line 1 has only numbers"),
        ("x,value\n0.0\n", "line 2 has 1 cells, but the header has 2 columns"),
        ("x,value\n0.0,1,2\n", "line 2 has 3 cells"),
        ("x,value\n0.0,\n", "line 2, column 'value': the cell is empty"),
        ("x,value\n0,1\n\nabc,1\n", "line 4, column 'x': 'abc' is not a number"),
        ("x,value\n0,nan\n", "line 2, column 'value': 'nan' is not a finite number"),
        ("x,value\n0,1_0\n", "'1_0' is not a number"),
        ("x,value\n1e999,1\n", "not a finite number"),
        ("x,x\n0,1\n", "duplicate column 'x'"),
        ("x,x [m]\n0,1\n", "duplicate column 'x'"),
        ("x,\n0,1\n", "column 2 has no name"),
        ('x,value\n"0,1\n', "line 2 cannot be read"),
        ("x,value\n0,\x00\n", "not a text file"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, words):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(bp.InputError) as caught:
        read_table(path, "data.csv")
    assert words in str(caught.value)
    assert str(caught.value).startswith("data.csv: ")


def test_other_text_and_no_file(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("x,größe\n0,1\n".encode("latin-1"))
    with pytest.raises(bp.InputError, match="byte 5 is not UTF-8"):
        read_table(path)
    with pytest.raises(bp.InputError, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(bp.InputError, match="no such file"):
        read_table(tmp_path)


def test_archives(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(3), value=np.ones(3, np.float32))
    np.testing.assert_array_equal(read_table(path)["x"], [0.0, 1.0, 2.0])
    np.savez(path, x=np.arange(3), value=np.ones(2))
    with pytest.raises(bp.InputError, match="differ in length: x 3, value 2"):
        read_table(path)
    np.savez(path, x=np.ones((2, 2)))
    with pytest.raises(bp.InputError, match=r"shape \(2, 2\)"):
        read_table(path)
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(bp.InputError, match="not a NumPy archive of plain arrays"):
        read_table(path)
    np.savez(path, x=np.array([0.0, np.inf]))
    with pytest.raises(bp.InputError, match="row 2 is inf"):
        read_table(path)
    path.write_bytes(b"not an archive")
    with pytest.raises(bp.InputError, match="NumPy archive"):
        read_table(path)


@pytest.mark.parametrize("text", ["x,value\n" + "0,1\n" * 2**22, "x\n" + "\n" * 2**22, "x\n" + "\r" * 2**22])
def test_more_cells_than_can_be_used_are_not_read(text, tmp_path):
    (tmp_path / "long.csv").write_text(text)
    with pytest.raises(bp.InputError, match="more than 4,194,304 cells, which is the limit"):
        read_table(tmp_path / "long.csv")


def test_many_columns_and_large_archives_are_refused_before_they_are_read(tmp_path):
    (tmp_path / "wide.csv").write_text("x," * 2**22)
    with pytest.raises(bp.InputError, match="more than 4,194,304 cells, which is the limit"):
        read_table(tmp_path / "wide.csv")
    np.savez_compressed(tmp_path / "large.npz", x=np.zeros(2**23))
    with pytest.raises(bp.InputError, match="would unpack to 64 MiB, more than the limit of 64 MiB; leave some out"):
        read_table(tmp_path / "large.npz")


def test_lines_end_where_editors_end_them(tmp_path):
    (tmp_path / "mixed.csv").write_bytes(b"x,value\r\n0,1\r2,3\n")
    np.testing.assert_array_equal(read_table(tmp_path / "mixed.csv")["x"], [0.0, 2.0])
    (tmp_path / "odd.csv").write_text("x,value\n0,1\x0b2,3\n")
    with pytest.raises(bp.InputError, match="line 2 has 3 cells"):
        read_table(tmp_path / "odd.csv")


def test_parquet_needs_its_library(tmp_path):
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(bp.InputError, match=r"pyarrow|cannot be read as Parquet"):
        read_table(path)
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"x [m]": [0.0] * 2**22, "value": [0.0] * 2**22}), path)
    assert path.stat().st_size < 2**20
    with pytest.raises(bp.InputError, match="more than 4,194,304 cells, which is the limit"):
        read_table(path)
    parquet.write_table(pyarrow.table({"x": [0.0, 1.0], "value": ["a", "b"]}), path)
    with pytest.raises(bp.InputError, match="column 'value' has type string; expected numbers"):
        read_table(path)
    parquet.write_table(pyarrow.table({"x [m]": [0.0, 1.0], "value": [1, 2]}), path)
    np.testing.assert_array_equal(read_table(path)["x"], [0.0, 1.0])
