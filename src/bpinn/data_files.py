"""Read data files: CSV with a header, NumPy archives, Parquet. Every message names file, line and column."""

import csv
import io
import math
import re
from pathlib import Path

import numpy as np

from bpinn.errors import InputError
from bpinn.run_folder.files import read_arrays

LARGEST = 200 * 2**20  # bytes
MOST_CELLS = 2**22  # far more readings than inference can handle
DELIMITERS = (",", ";", "\t")
UNIT = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\])]*)[\])]\s*$")


def read_table(path: Path, shown: str | None = None) -> dict[str, np.ndarray]:
    """The columns of a table as float arrays, by name; units in brackets are stripped from names.

    ``shown`` is the name of the file in messages.
    """
    shown = str(path) if shown is None else shown
    try:
        if not path.is_file():
            raise InputError(f"{shown}: there is no such file")
        size = path.stat().st_size
        if size > LARGEST:
            raise InputError(f"{shown}: {size / 2**20:.0f} MiB exceed the limit of {LARGEST / 2**20:.0f} MiB")
        readers = {".npz": _read_npz, ".parquet": _read_parquet}
        columns = readers.get(path.suffix.lower(), _read_csv)(path, shown)
    except OSError as error:
        raise InputError(f"{shown}: cannot be read: {error.strerror or error}") from None
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{shown}: columns differ in length: {', '.join(f'{n} {c}' for n, c in lengths.items())}")
    if not columns or not next(iter(lengths.values())):
        raise InputError(f"{shown}: the file has no readings")
    for name, values in columns.items():
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise InputError(f"{shown}: column {name!r}: row {wrong[0] + 1} is {values[wrong[0]]}; remove such rows")
    return columns


def _name(header: str) -> str:
    """A column's name without its unit: ``x [m]`` is ``x``."""
    found = UNIT.match(header.strip())
    return found["name"].strip() if found and found["name"].strip() else header.strip()


def _unique(headers: list[str], shown: str) -> list[str]:
    names: dict[str, None] = {}  # an ordered set
    for i, name in enumerate(map(_name, headers)):
        if not name:
            raise InputError(f"{shown}: line 1: column {i + 1} has no name")
        if name in names:
            raise InputError(f"{shown}: line 1: duplicate column {name!r}")
        names[name] = None
    return list(names)


def _read_csv(path: Path, shown: str) -> dict[str, np.ndarray]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown}: byte {error.start + 1} is not UTF-8 text; save the file as UTF-8 CSV") from None
    if "\0" in text:
        raise InputError(f"{shown}: not a text file; expected CSV, .npz or .parquet")
    _check_cells(text.count("\n") + text.count("\r"), shown)  # before splitting into lines
    rows_of = enumerate(io.StringIO(text, newline=None), 1)
    lines = [(i, line.rstrip("\n")) for i, line in rows_of if line.strip() and not line.startswith("#")]
    if not lines:
        raise InputError(f"{shown}: the file is empty; expected a line of column names, then the readings")
    first = lines[0][1]
    delimiter = max(DELIMITERS, key=first.count)
    _check_cells(len(lines) * (first.count(delimiter) + 1), shown)
    names = _unique(_cells(first, delimiter, lines[0][0], shown), shown)
    if all(_is_number(name, delimiter) for name in names):
        raise InputError(f"{shown}: line {lines[0][0]} has only numbers; expected a line of column names first")
    rows = []
    for number, line in lines[1:]:
        cells = _cells(line, delimiter, number, shown)
        if len(cells) != len(names):
            raise InputError(f"{shown}: line {number} has {len(cells)} cells, but the header has {len(names)} columns")
        rows.append([_value(cell, delimiter, shown, number, name) for cell, name in zip(cells, names, strict=True)])
    table = np.array(rows, float).reshape(len(rows), len(names))
    return {name: table[:, i] for i, name in enumerate(names)}


def _check_cells(count: int, shown: str) -> None:
    if count > MOST_CELLS:
        raise InputError(f"{shown}: more than {MOST_CELLS:,} cells, which is the limit; thin or average the readings")


def _cells(line: str, delimiter: str, number: int, shown: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=delimiter, strict=True))]
    except (csv.Error, StopIteration) as error:
        raise InputError(f"{shown}: line {number} cannot be read: {error}") from None


def _decimal(cell: str, delimiter: str) -> str:
    """The cell with a decimal comma replaced by a point, unless commas separate cells."""
    return cell.replace(",", ".") if delimiter != "," and cell.count(",") == 1 and "." not in cell else cell


def _is_number(cell: str, delimiter: str) -> bool:
    try:
        float(_decimal(cell, delimiter))
    except ValueError:
        return False
    return True


def _value(cell: str, delimiter: str, shown: str, line: int, name: str) -> float:
    where = f"{shown}: line {line}, column {name!r}"
    if not cell:
        raise InputError(f"{where}: the cell is empty; fill it, or remove the line")
    if "_" in cell or not _is_number(cell, delimiter):
        raise InputError(f"{where}: {cell[:40]!r} is not a number")
    value = float(_decimal(cell, delimiter))
    if not math.isfinite(value):
        raise InputError(f"{where}: {cell[:40]!r} is not a finite number; remove the line")
    return value


def _read_npz(path: Path, shown: str) -> dict[str, np.ndarray]:
    arrays = {_name(name): array for name, array in read_arrays(path, shown, 16 * MOST_CELLS).items()}
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "fiu":
            raise InputError(
                f"{shown}: {name!r} has shape {array.shape} and type {array.dtype}; "
                "expected a 1-D array of real numbers"
            )
    return {name: array.astype(float) for name, array in arrays.items()}


def _read_parquet(path: Path, shown: str) -> dict[str, np.ndarray]:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise InputError(f"{shown}: reading Parquet needs pyarrow; pip install pyarrow, or save as CSV") from None
    try:
        about = parquet.read_metadata(path)
        _check_cells(about.num_rows * about.num_columns, shown)
        schema = parquet.read_schema(path)
        for name, kind in zip(schema.names, schema.types, strict=True):  # before unpacking text
            if not any(is_it(kind) for is_it in (types.is_integer, types.is_floating, types.is_decimal)):
                raise InputError(f"{shown}: column {name!r} has type {kind}; expected numbers")
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise InputError(f"{shown}: cannot be read as Parquet: {error}") from None
    names = _unique(list(table.column_names), shown)
    columns = {}
    for name, column in zip(names, table.columns, strict=True):
        if column.null_count:
            raise InputError(f"{shown}: column {name!r} has {column.null_count} missing values; remove those rows")
        try:
            columns[name] = np.asarray(column.to_numpy(), float)
        except (ValueError, TypeError):
            raise InputError(f"{shown}: column {name!r} has type {column.type}; expected numbers") from None
    return columns
