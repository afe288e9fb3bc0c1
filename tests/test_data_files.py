"""Files of readings: what is read, and what is said of what cannot be."""

import datetime
import json
import sys
import zipfile

import numpy as np
import pytest

import bpinn as bp
from bpinn.data_files import limits, read_table
from bpinn.data_files.numbers import WrongCell, codes_for_missing, to_numbers
from bpinn.data_files.table import probable
from bpinn.data_files.timestamps import UNITS, Clock, read_moments

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
        "x value\n0.0   1.5\n1 -2e-3\n",
        "  x   value\n  0,0   1,5\n  1  -0,002\n",
        "% from an instrument\nx,value\n0.0,1.5\n// a break\n1,−2d-3\n",
        'x,value\n"0,0","1,5"\n1,"-0,002"\n',
        "# x value\n0.0 1.5\n1.0 -2e-3\n",
        "#x,value\n0.0,1.5\n1.0,-2e-3\n",
        "x,value\nm,\n0.0,1.5\n1,-2e-3\n",
        "x,value\n[m],[mol/l]\n0.0,1.5\n1,-2e-3\n",
        "x,value,\n0.0,1.5,\n1,-2e-3,\n",
        "Instrument: A 17\nOperator: B\nx;value\n0,0;1,5\n1;-0,002\n",
    ],
)
def test_tables_are_read(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode())
    table = read_table(path)
    assert table.names == ["x", "value"]
    np.testing.assert_array_equal(table.numbers("x"), [0.0, 1.0])
    np.testing.assert_array_equal(table.numbers("value"), [1.5, -2e-3])


def used(path, **options):
    """What sensors do: read the table, then the columns x and value."""
    table = read_table(path, path.name, **options)
    return table.numbers("x"), table.numbers("value")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("# only this\n", "the file is empty"),
        ("x,value\n", "the file has no readings"),
        ("0.0,1.5\n1.0,2.5\n", "line 1 has only numbers"),
        ("x,value\n0.0\n", "line 2 has 1 cells, but the header has 2 columns"),
        ("x,value\n0.0,1,2\n", "line 2 has 3 cells"),
        ("x,value\n0,1\n\nabc,1\n", "line 4, column 'x': 'abc' is not a number"),
        (
            "x,value\n0,<0.5\n",
            "line 2, column 'value': '<0.5' is not a number; for a limit of detection write the limit",
        ),
        ("x,value\n0,21 °C\n", "line 2, column 'value': '21 °C' is not a number; move units to the column's name"),
        ("x,value\n0,inf\n", "line 2, column 'value': 'inf' is not a number"),
        ("x;value\n0;1.5\n0;2,5\n", "line 3, column 'value': '2,5' after '1.5': decimal points and commas"),
        (
            "x;value\n0.5;1,234\n",
            "line 2, column 'value': '1,234' could be 1.234 or 1234, as other columns have decimal points; write it without the comma",
        ),
        (
            "x;value\n0,5;1.234\n",
            "line 2, column 'value': '1.234' could be 1.234 or 1234, as other columns have decimal commas; write it without the point",
        ),
        ("x,value\n0,1_0\n", "'1_0' is not a number"),
        ("x,value\n1e999,1\n", "not a finite number"),
        ("x,x\n0,1\n", "duplicate column 'x'"),
        ("x,x [m]\n0,1\n", "duplicate column 'x'"),
        ("x,\n0,1\n", "there is no column 'value'; it has x"),
        ("1,2\n3,4\n# x,value\n", "line 1 has only numbers"),
        ("# two, words, here\n1,2\n3,4\n", "line 2 has only numbers"),
        ('x,value\n"0,1\n', "line 2 cannot be read"),
        ("x,value\n0,\x00\n", "not a text file"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, words):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(bp.InputError) as caught:
        used(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith("data.csv: ")


def test_other_text_and_no_file(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("x,größe\n0,1\n".encode("latin-1"))
    with pytest.raises(bp.InputError, match='byte 5 is not UTF-8 text; write encoding = "cp1252"'):
        read_table(path)
    assert read_table(path, encoding="latin-1").names == ["x", "größe"]
    path.write_bytes("x,größe\n0,1\n".encode("utf-16"))  # with the mark that says so
    assert read_table(path).names == ["x", "größe"]
    with pytest.raises(bp.InputError, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(bp.InputError, match="no such file"):
        read_table(tmp_path)


def test_archives(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(3), value=np.ones(3, np.float32))
    np.testing.assert_array_equal(read_table(path).numbers("x"), [0.0, 1.0, 2.0])
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
    with pytest.raises(bp.InputError, match="row 2, column 'x': inf is not a finite number"):
        read_table(path).numbers("x")
    np.savez(path, t=np.array(["2024-03-01T00:00", "NaT"], "datetime64[s]"), label=np.array(["a", "b"]))
    assert read_table(path).column("t") == ["2024-03-01T00:00:00.000000", ""]
    path.write_bytes(b"not an archive")
    with pytest.raises(bp.InputError, match="NumPy archive"):
        read_table(path)


@pytest.mark.parametrize("text", ["x,value\n" + "0,1\n" * 2**22, "x\n" + "\n" * 2**22, "x\n" + "\r" * 2**22])
def test_more_cells_than_can_be_used_are_not_read(text, tmp_path):
    (tmp_path / "long.csv").write_text(text)
    with pytest.raises(bp.InputError, match="more than 4,194,304 cells, which is the limit"):
        read_table(tmp_path / "long.csv")


def test_many_columns_and_large_archives_are_refused_before_they_are_read(tmp_path, monkeypatch):
    (tmp_path / "wide.csv").write_text("x," * 2**22)
    with pytest.raises(bp.InputError, match="more than 4,194,304 cells, which is the limit"):
        read_table(tmp_path / "wide.csv")
    monkeypatch.setattr(limits, "MOST_NUMBERS", 2**23)
    np.savez_compressed(tmp_path / "large.npz", x=np.zeros(2**23))
    with pytest.raises(bp.InputError, match="would unpack to 64 MiB, more than the limit of 64 MiB; leave some out"):
        read_table(tmp_path / "large.npz")


def test_lines_end_where_editors_end_them(tmp_path):
    (tmp_path / "mixed.csv").write_bytes(b"x,value\r\n0,1\r2,3\n")
    np.testing.assert_array_equal(read_table(tmp_path / "mixed.csv").numbers("x"), [0.0, 2.0])
    (tmp_path / "odd.csv").write_text("x,value\n0,1\x0b2,3\n")
    with pytest.raises(bp.InputError, match="line 2 has 3 cells"):
        read_table(tmp_path / "odd.csv")


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_groups_have_a_column_in_each_array(version, tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "data.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    x = np.linspace(0.0, 1.0, 1000)
    group.create_array("x", data=x, chunks=(300,))
    group.create_array("n", data=np.arange(1000, dtype="i4"))
    table = read_table(path)
    assert table.names == ["n", "x"]
    np.testing.assert_array_equal(table.numbers("x"), x)
    np.testing.assert_array_equal(table.numbers("n"), np.arange(1000))
    monkeypatch.setattr(limits, "MOST_CELLS", 1000)
    monkeypatch.setattr(limits, "MOST_NUMBERS", 1000)
    with pytest.raises(bp.InputError, match="2,000 numbers, more than the limit of 1,000"):
        read_table(path)
    monkeypatch.undo()
    group.create_array("map", data=np.zeros((2, 500)))
    with pytest.raises(bp.InputError, match=r"'map' has shape \(2, 500\).*expected a 1-D array"):
        read_table(path)
    with pytest.raises(bp.InputError, match="only text files have an encoding"):
        read_table(path, encoding="utf-8")


def test_zarr_arrays_that_could_run_code_are_refused(tmp_path):
    pytest.importorskip("zarr")
    folder = tmp_path / "data.zarr" / "x"
    folder.mkdir(parents=True)
    about = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<f8", "compressor": None, "fill_value": 0}
    (folder / ".zarray").write_text(json.dumps({**about, "order": "C", "filters": [{"id": "pickle", "protocol": 5}]}))
    with pytest.raises(bp.InputError, match="'x' is packed with 'pickle'; save it with one of"):
        read_table(tmp_path / "data.zarr")
    (folder / ".zarray").write_text("{")
    with pytest.raises(bp.InputError, match="cannot be read as Zarr"):
        read_table(tmp_path / "data.zarr")
    (folder / ".zarray").unlink()
    with pytest.raises(bp.InputError, match="there are no arrays in it"):
        read_table(tmp_path / "data.zarr")


def test_parquet_needs_its_library(tmp_path, monkeypatch):
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(bp.InputError, match=r"pyarrow|cannot be read as Parquet"):
        read_table(path)
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"x [m]": [0.0] * 2**22, "value": [0.0] * 2**22}), path)
    assert path.stat().st_size < 2**20
    assert len(read_table(path).numbers("x")) == 2**22
    monkeypatch.setattr(limits, "MOST_NUMBERS", 2**22)
    with pytest.raises(bp.InputError, match="8,388,608 numbers, more than the limit of 4,194,304 on this machine"):
        read_table(path)
    parquet.write_table(pyarrow.table({"label": ["a"] * (2**22 + 1)}), path)
    with pytest.raises(bp.InputError, match="more than 4,194,304 cells, which is the limit"):
        read_table(path)
    parquet.write_table(pyarrow.table({"x": [0.0, 1.0], "value": ["a", "b"]}), path)
    with pytest.raises(bp.InputError, match="row 1, column 'value': 'a' is not a number"):
        read_table(path).numbers("value")
    day = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
    parquet.write_table(pyarrow.table({"t": [day, None], "value": [1.0, None], "list": [[1], [2]]}), path)
    table = read_table(path)
    assert table.names == ["t", "value"]
    assert table.moments("t").kind == "zoned"
    np.testing.assert_array_equal(table.numbers("value"), [1.0, np.nan])
    parquet.write_table(pyarrow.table({"x [m]": [0.0, 1.0], "value": [1, 2]}), path)
    np.testing.assert_array_equal(read_table(path).numbers("x"), [0.0, 1.0])


# --- columns that are not used, and what is skipped ---


def test_columns_that_are_not_used_may_hold_anything(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(
        ',x,operator,value,flag,flag,"a, b"\n0,0.0,Anna,1.5,ok,,"one, two"\n1,1,"Bo\nremark",-2e-3,7,,\n#N/A,2,,3,,,\n'
    )
    x, value = used(path)
    np.testing.assert_array_equal(x, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(value, [1.5, -2e-3, 3.0])
    table = read_table(path)
    assert table.places.at(2) == "line 5"  # the remark has a line of its own
    with pytest.raises(bp.InputError, match="line 2, column 'operator': 'Anna' is not a number"):
        table.numbers("operator")
    with pytest.raises(bp.InputError, match="duplicate column 'flag': 2 have this name"):
        table.numbers("flag")


def test_what_was_skipped_is_said(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("Logger 5, serial 12\n\ntime;T\nh;degC\n0;20,5\n1;21\n2;22\n")
    table = read_table(path, "data.txt")
    assert table.notes == (
        "data.txt: 1 line above the column names in line 3 skipped",
        "data.txt: line 4 has units (h, degC) and is skipped",
    )
    np.testing.assert_array_equal(table.numbers("T"), [20.5, 21.0, 22.0])
    assert table.places.at(0) == "line 5"


def test_a_title_that_a_spreadsheet_filled_up_with_empty_cells_is_skipped(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("Export of 3 May;;\n;;\nt;T;remark\n0;20,5;\n1;21;late\n2;22;\n")
    table = read_table(path, "data.csv")
    assert table.notes == ("data.csv: 2 lines above the column names in line 3 skipped",)
    np.testing.assert_array_equal(table.numbers("T"), [20.5, 21.0, 22.0])


def test_a_file_of_empty_cells_is_empty(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(";;\n;;\n")
    with pytest.raises(bp.InputError, match="the file is empty"):
        read_table(path, "data.csv")


def test_a_first_row_with_a_number_is_no_row_of_units(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,value\nabc,1\n0,1\n")
    with pytest.raises(bp.InputError, match="line 2, column 'x': 'abc' is not a number"):
        used(path)


@pytest.mark.parametrize("cell", ["", "NA", "n/a", "NaN", "-", "--", "?", "null", "None", "#N/A", "#DIV/0!", " "])
def test_missing_cells_are_nan(cell):
    np.testing.assert_array_equal(to_numbers(["1", cell, "2"]), [1.0, np.nan, 2.0])


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([20.5, -999.0, 21.0, 22.0, -9999.0], [-9999.0, -999.0]),
        ([1013.2, 1012.9, 999.9, 1001.0], []),  # in the range of the others
        ([5.0, 5.1, 99.99, np.nan, 5.2], [99.99]),
        ([0.0, 1.0, 2.0, -998.0], []),  # far away, but no code
        ([9999.0, 9999.0, 1.0], []),  # mostly
        ([0.0, 300.0, 999.0], []),  # not far enough
    ],
)
def test_codes_for_missing(values, codes):
    assert codes_for_missing(np.array(values)) == codes


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,5", "2"], [1.5, 2.0]),
        (["1.234,5", "2,5"], [1234.5, 2.5]),
        (["1,234.5", "2.5"], [1234.5, 2.5]),
        (["1,234,567"], [1234567.0]),
        ([".5", "5.", "1e3", "1D3"], [0.5, 5.0, 1e3, 1e3]),
        (["1,013", "0,5"], [1.013, 0.5]),
        (["1,013"], [1.013]),
    ],
)
def test_decimal_signs(cells, expected):
    np.testing.assert_array_equal(to_numbers(cells), expected)


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PK\x03\x04", "an Excel workbook; name workbooks .xlsx"), (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
        (b"\x89HDF", "HDF5"), (b"\x1f\x8b", "unpack it first"), (b"%PDF-1.7", "a PDF"),
    ],
)  # fmt: skip
def test_files_that_are_not_text_are_named(start, what, tmp_path):
    (tmp_path / "data.csv").write_bytes(start + bytes(range(256)))
    with pytest.raises(bp.InputError, match=what):
        read_table(tmp_path / "data.csv")


def test_a_column_that_was_probably_meant(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("Time (s),theta [rad],T / K,note\n0,1,2,a\n")
    table = read_table(path)
    assert table.names == ["Time", "theta", "T / K", "note"]
    assert table.numbers("theta [rad]") == table.numbers("theta")
    meant = {"time": "Time (s)", "Theta (rad)": "theta [rad]", "t": "T / K", "theat": "theta [rad]", "pressure": None}
    assert {name: probable(name, table.headers) for name in meant} == meant


# --- timestamps ---


def hours(cells, start="2024-03-01 08:00", **options):
    return Clock.from_start(start, "hours").numbers(read_moments(cells, **options))


@pytest.mark.parametrize(
    "cell",
    [
        "2024-03-02 09:30", "2024-03-02T09:30:00", "2024-03-02 09:30:00.000", "2024/03/02 9:30", "20240302T09:30",
        "02.03.2024 09:30", "2.3.2024, 9:30", "2 March 2024 09:30", "02-Mar-2024 09:30:00", "Mar 2, 2024 9:30 AM",
        "2.3.24 09:30:00,0",
    ],
)  # fmt: skip
def test_dates_as_instruments_write_them(cell):
    np.testing.assert_array_equal(hours([cell]), [25.5])


def test_day_and_month_are_told_apart_by_the_whole_column():
    np.testing.assert_array_equal(hours(["01/03/2024 08:00", "13/03/2024 08:00"]), [0.0, 12 * 24])
    np.testing.assert_array_equal(hours(["03/01/2024 08:00 AM", "03/13/2024 08:00 AM"]), [0.0, 12 * 24])
    np.testing.assert_array_equal(hours(["03/03/2024 08:00"]), [48.0])  # the same either way
    with pytest.raises(WrongCell, match=r"could be 1 March 2024 or 3 January 2024; write dates = \"day-first\" or"):
        read_moments(["01/03/2024"])
    np.testing.assert_array_equal(hours(["01/03/2024 08:00"], order="day-first"), [0.0])
    np.testing.assert_array_equal(hours(["03/01/2024 08:00"], order="month-first"), [0.0])
    np.testing.assert_array_equal(hours(["24/03/01 08:00"], order="year-first"), [0.0])
    with pytest.raises(WrongCell, match="'03/13/2024' is not a date or time of day") as caught:
        read_moments(["13/03/2024", "03/13/2024"])
    assert caught.value.row == 1


def test_time_zones_and_times_of_day():
    moments = read_moments(["2024-03-01T08:00Z", "2024-03-01 10:00+01:00", "NA"])
    assert moments.kind == "zoned"
    numbers = Clock.from_start("2024-03-01T08:00Z", "minutes").numbers(moments)
    np.testing.assert_array_equal(numbers, [0.0, 60.0, np.nan])
    elapsed = read_moments(["0:00:00", "23:59:59.5", "25:00:00"])
    np.testing.assert_array_equal(Clock.from_start("0:00", "seconds").numbers(elapsed), [0.0, 86399.5, 90000.0])
    for cells, words in (
        (["2024-03-01 08:00", "2024-03-01T08:00Z"], "dates with a time zone after dates without a time zone"),
        (["23:59", "00:01"], "add the date to times past midnight"),
        (["2024-02-30"], "not a date"),
        (["2024-03-01 25:00"], "not a date"),
        (["yesterday"], "not a date"),
    ):
        with pytest.raises(WrongCell, match=words):
            read_moments(cells)


@pytest.mark.parametrize("unit", list(UNITS))
def test_a_start_is_shown_as_it_is_read(unit):
    for start in ("2024-03-01 08:00:00", "2024-03-01 08:00:00.25", "2024-03-01 08:00:00Z", "08:00:00", "108:00:00.5"):
        clock = Clock.from_start(start, unit)
        assert str(clock) == f"{unit} since {start}"


# --- workbooks ---


@pytest.fixture
def workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "raw data"
    for row in (
        ["Run of 1 March"], [], ["time", "x", "note", "value"], ["", "m", None, "K"],
        [datetime.datetime(2024, 3, 1, 8), 0.5, "0,5", 1.234], [datetime.datetime(2024, 3, 1, 9, 30), 1, None, 1.5],
        [datetime.datetime(2024, 3, 1, 10), 2.0, "broken", "#DIV/0!"],
    ):  # fmt: skip
        sheet.append(row)
    book.create_sheet("summary").append(["nothing"])
    book.save(tmp_path / "data.xlsx")
    return tmp_path / "data.xlsx"


def test_workbooks(workbook):
    with pytest.raises(bp.InputError, match=r'has 2 sheets; write sheet = "raw data" \(or summary\)'):
        read_table(workbook)
    with pytest.raises(bp.InputError, match="there is no sheet 'row data'; it has raw data, summary"):
        read_table(workbook, sheet="row data")
    with pytest.raises(bp.InputError, match="the file has no readings"):
        read_table(workbook, sheet=2)
    for sheet in ("raw data", 1):
        table = read_table(workbook, "data.xlsx", sheet=sheet)
        assert table.names == ["time", "x", "note", "value"]
        np.testing.assert_array_equal(table.numbers("value"), [1.234, 1.5, np.nan])
        assert table.moments("time").micros.tolist() == [1709280000 * 10**6, 1709285400 * 10**6, 1709287200 * 10**6]
        assert table.places.at(2) == "row 7"
        assert table.notes == (
            "data.xlsx: 1 row above the column names in row 3 skipped",
            "data.xlsx: row 4 has units (m, K) and is skipped",
        )


def test_workbooks_that_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "data.xlsx"
    path.write_bytes(b"x,value")
    with pytest.raises(bp.InputError, match=r"cannot be read as an Excel workbook|openpyxl"):
        read_table(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(201 * 2**20))
    with pytest.raises(bp.InputError, match=r"would unpack to 201 MiB, more than the limit of 200 MiB|openpyxl"):
        read_table(path)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(bp.InputError, match=r"pip install 'bpinn\[excel\]', or save as CSV"):
        read_table(path)


def test_settings_of_other_kinds_of_files_are_refused(tmp_path):
    (tmp_path / "data.csv").write_text(PLAIN)
    with pytest.raises(bp.InputError, match="only Excel workbooks have sheets"):
        read_table(tmp_path / "data.csv", sheet=1)
    with pytest.raises(bp.InputError, match="only text files have an encoding"):
        read_table(tmp_path / "data.npz", encoding="cp1252")


@pytest.mark.parametrize(
    "cell", ["1" * 5000 + "x", "1,111" * 1500, "2024-" * 1000, "12:" * 2000, "(" * 5000, "a (" * 2000, "/" * 5000]
)
def test_long_cells_are_refused_without_being_searched(cell, tmp_path):
    """Regular expressions that are tried on them would take a time that grows with the square of their length."""
    (tmp_path / "data.csv").write_text(f"x;value;{cell}\n0;1;\n1;{cell};\n")
    with pytest.raises(bp.InputError, match=r"line 3, column 'value': '.{40}'\.\.\. is not a number"):
        used(tmp_path / "data.csv")
    assert not read_table(tmp_path / "data.csv").holds_times("value")
