"""NumPy archives, Parquet files and Excel workbooks."""

import datetime
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.data_files.delimited import without_units
from bpinn.data_files.limits import LARGEST, check_cells, check_numbers, most_numbers
from bpinn.data_files.numbers import is_missing
from bpinn.data_files.table import Cells, DataTable, Places
from bpinn.errors import InputError
from bpinn.run_folder.files import read_arrays


def read_npz(path: Path, shown: str) -> DataTable:
    """The 1-D arrays of a NumPy archive."""
    arrays = read_arrays(path, shown, 8 * most_numbers())
    cells: list[Cells] = []
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "fiuUM":
            raise InputError(
                f"{shown}: {name!r} has shape {array.shape} and type {array.dtype}; "
                "expected a 1-D array of real numbers"
            )
        if array.dtype.kind == "M":
            cells.append(dates_of(array))
        else:
            cells.append([str(cell) for cell in array] if array.dtype.kind == "U" else array.astype(float))
    places = range(1, 1 + max(map(len, cells), default=0))
    return DataTable(shown, tuple(arrays), tuple(cells), Places(places, "row"))


def dates_of(array: np.ndarray) -> list[str]:
    """Times as text, which is empty where there is none."""
    texts = np.datetime_as_string(array.astype("datetime64[us]"))
    return ["" if text == "NaT" else str(text) for text in texts]


def read_parquet(path: Path, shown: str) -> DataTable:
    """The columns of a Parquet file; those of other types than numbers, text and timestamps are left out."""
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise InputError(f"{shown}: reading Parquet needs pyarrow; pip install pyarrow, or save as CSV") from None
    try:
        about = parquet.read_metadata(path)
        schema = parquet.read_schema(path)
        readable = (types.is_integer, types.is_floating, types.is_decimal, types.is_timestamp, types.is_date)
        texts = (types.is_string, types.is_large_string)
        kept = [name for name, kind in zip(schema.names, schema.types, strict=True)
                if any(is_it(kind) for is_it in (*readable, *texts))]  # fmt: skip
        written = sum(any(is_it(kind) for is_it in texts) for kind in schema.types)
        check_cells(about.num_rows * written, shown)
        check_numbers(about.num_rows * (len(kept) - written), shown)
        table = parquet.read_table(path, columns=kept)
    except (ArrowException, OSError) as error:
        raise InputError(f"{shown}: cannot be read as Parquet: {error}") from None
    cells: list[Cells] = []
    for column in table.columns:
        if any(is_it(column.type) for is_it in texts):
            cells.append(["" if cell is None else cell.strip() for cell in column.to_pylist()])
        elif types.is_timestamp(column.type) or types.is_date(column.type):
            zone = "Z" if getattr(column.type, "tz", None) else ""  # arrow keeps such times in UTC
            moments = column.combine_chunks().to_numpy(zero_copy_only=False)
            cells.append([date and date + zone for date in dates_of(moments)])
        else:
            cells.append(np.asarray(column.to_pandas(), float))
    return DataTable(shown, tuple(table.column_names), tuple(cells), Places(range(1, table.num_rows + 1), "row"))


def read_workbook(path: Path, shown: str, sheet: str | int | None = None) -> DataTable:
    """A sheet of an Excel workbook: by name, by number from 1, or the only one."""
    try:
        import openpyxl
    except ImportError:
        raise InputError(
            f"{shown}: reading Excel workbooks needs openpyxl; pip install 'bpinn[excel]', or save as CSV"
        ) from None
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > LARGEST:
            raise InputError(
                f"{shown}: would unpack to {unpacked / 2**20:.0f} MiB, more than the limit of {LARGEST / 2**20:.0f} MiB"
            )
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            chosen = _sheet(book, sheet, shown)
            rows = _rows(chosen, shown)
        finally:
            book.close()
    except InputError:
        raise
    except Exception as error:  # openpyxl raises whatever its parsers do
        raise InputError(f"{shown}: cannot be read as an Excel workbook: {error or type(error).__name__}") from None
    return _as_table(rows, shown)


def _sheet(book: Any, sheet: str | int | None, shown: str) -> Any:
    names = [one.title for one in book.worksheets]
    if sheet is None and len(names) == 1:
        return book.worksheets[0]
    if sheet is None:
        raise InputError(f'{shown}: has {len(names)} sheets; write sheet = "{names[0]}" (or {", ".join(names[1:])})')
    if isinstance(sheet, int) and 1 <= sheet <= len(names):
        return book.worksheets[sheet - 1]
    if sheet not in names:
        raise InputError(f"{shown}: there is no sheet {sheet!r}; it has {', '.join(names)}")
    return book[sheet]


def _rows(sheet: Any, shown: str) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, as text, with their numbers."""
    if hasattr(sheet, "reset_dimensions"):
        sheet.reset_dimensions()  # what a file says of its size may be wrong
    rows, cells = [], 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        cells += 1 + len(row)
        check_cells(cells, shown)
        texts = [_text(value) for value in row]
        while texts and not texts[-1]:
            texts.pop()
        if texts and not texts[0].startswith("#"):
            rows.append((number, texts))
    return rows


class NumberCell(str):
    """A cell that holds a number rather than text, whatever its decimal sign on the screen."""


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.timedelta):
        seconds, part = divmod(value // datetime.timedelta(microseconds=1), 10**6)
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:06d}"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat().removesuffix("T00:00:00")  # a date, which may have its time in another column
    if isinstance(value, int | float) and not isinstance(value, bool):
        return NumberCell(repr(value))
    return str(value).strip()


def _column(cells: list[str]) -> Cells:
    """Numbers, if no cell holds text; NaN where a cell is missing."""
    if not all(isinstance(cell, NumberCell) or is_missing(cell) for cell in cells):
        return cells
    return np.array([float(cell) if isinstance(cell, NumberCell) else np.nan for cell in cells])


def _as_table(rows: list[tuple[int, list[str]]], shown: str) -> DataTable:
    """The rows below the first one that is as wide as the table; what is above it is skipped."""
    if not rows:
        raise InputError(f"{shown}: the sheet is empty; expected a row of column names, then the readings")
    size = max(len(row) for _, row in rows)
    first = next((i for i, (_, row) in enumerate(rows) if len(row) > 1 or size == 1), 0)
    headers = rows[first][1] + [""] * (size - len(rows[first][1]))
    notes = [f"{shown}: {first} row{'s' * (first > 1)} above the column names in row {rows[first][0]} skipped"] * (
        first > 0
    )
    below = [(i, row + [""] * (size - len(row))) for i, row in rows[first + 1 :]]
    below, skipped = without_units(below, headers)
    notes += [f"{shown}: row {i} has units ({units}) and is skipped" for i, units in skipped]
    columns = tuple(_column([row[i] for _, row in below]) for i in range(size))
    return DataTable(shown, tuple(headers), columns, Places([i for i, _ in below], "row"), tuple(notes))
