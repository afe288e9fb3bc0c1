"""Text files with cells separated by commas, semicolons, tabs or blanks, as instruments and spreadsheets write them."""

import csv
import io
from collections import Counter
from pathlib import Path

from bpinn.data_files.limits import check_cells
from bpinn.data_files.numbers import is_missing, is_number
from bpinn.data_files.table import DataTable, Places
from bpinn.data_files.timestamps import is_timestamp
from bpinn.errors import InputError

DELIMITERS = (";", "\t", ",", " ")
COMMENTS = ("#", "%", "//")
ENCODINGS = ("utf-8", "utf-16", "latin-1", "cp1252", "cp1250", "cp437", "mac-roman", "shift-jis", "gb18030")
LOOKED_AT = 200  # lines, to find the separator and the header
FEWEST_ALIKE = 3  # lines that a table has below a preamble
LONGEST_UNIT = 24
MOST_JOINED = 20  # lines of one cell
KINDS = {  # how files that are not text begin
    b"PK\x03\x04": "a zip archive or an Excel workbook; name workbooks .xlsx and NumPy archives .npz",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save it as .xlsx or CSV",
    b"PAR1": "a Parquet file; name it .parquet",
    b"\x89HDF": "an HDF5 or MATLAB file; save the columns as CSV or .npz",
    b"\x1f\x8b": "compressed; unpack it first",
    b"%PDF": "a PDF; export the readings as CSV",
    b"\x93NUMPY": "a single NumPy array; save named columns with np.savez",
}

Line = tuple[int, str]


def read_text(path: Path, shown: str, encoding: str | None = None) -> DataTable:
    """The table in a text file."""
    text = _decoded(path.read_bytes(), shown, encoding)
    check_cells(text.count("\n") + text.count("\r"), shown)  # before splitting into lines
    numbered = _logical_lines(text)
    lines = [(i, line) for i, line in numbered if line.strip() and not _is_comment(line)]
    if not any(line.strip("; \t,") for _, line in lines):
        raise InputError(f"{shown}: the file is empty; expected a line of column names, then the readings")
    check_cells(len(lines) * (max(map(lines[0][1].count, ",;\t")) + 1), shown)
    delimiter = _delimiter(lines[:LOOKED_AT])
    lines, notes = _without_preamble(lines, delimiter, shown)
    headers = _cells(lines[0][1], delimiter, lines[0][0], shown)
    if all(is_number(cell) for cell in headers if cell):
        headers, above = _commented_header(numbered, lines[0][0], delimiter, len(headers), shown)
        notes.append(f"{shown}: the column names are those of the comment in line {above}")
    else:
        lines = lines[1:]
    check_cells(len(lines) * len(headers), shown)
    rows = [(i, _row(line, delimiter, i, len(headers), shown)) for i, line in lines]
    rows, skipped = without_units(rows, headers)
    notes += [f"{shown}: line {i} has units ({units}) and is skipped" for i, units in skipped]
    columns = tuple([row[i] for _, row in rows] for i in range(len(headers)))
    return DataTable(shown, tuple(headers), columns, Places([i for i, _ in rows]), tuple(notes))


def _decoded(content: bytes, shown: str, encoding: str | None) -> str:
    for start, what in KINDS.items():
        if content.startswith(start):
            raise InputError(f"{shown}: not a text file but {what}")
    if encoding is None:
        encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if b"\0" in content:
            raise _not_text(shown) from None
        name = encoding.removesuffix("-sig").upper()
        other = 'write encoding = "cp1252", which many Windows programs use, or ' if name == "UTF-8" else ""
        raise InputError(
            f"{shown}: byte {error.start + 1} is not {name} text; {other}save the file as UTF-8 CSV"
        ) from None
    if "\0" in text:
        raise _not_text(shown)
    return text


def _logical_lines(text: str) -> list[Line]:
    """Lines with their numbers; one that ends inside quotes goes on in the next, as notes in spreadsheets do."""
    found: list[Line] = []
    open_since: Line | None = None
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        line = line.rstrip("\n")
        if open_since is not None:
            line = f"{open_since[1]} {line}"
        elif _is_comment(line):
            found.append((number, line))
            continue
        start = number if open_since is None else open_since[0]
        if line.count('"') % 2 and number - start < MOST_JOINED:
            open_since = (start, line)
        else:
            found.append((start, line))
            open_since = None
    return found if open_since is None else [*found, open_since]


def _is_comment(line: str) -> bool:
    line = line.lstrip()
    return line.startswith(COMMENTS) and not is_missing(line.split()[0].split(",")[0].split(";")[0])


def _not_text(shown: str) -> InputError:
    return InputError(f"{shown}: not a text file; expected CSV, .npz, .parquet or .xlsx")


def _split(line: str, delimiter: str) -> list[str]:
    blanks = delimiter == " "
    reader = csv.reader(
        io.StringIO(" ".join(line.split()) if blanks else line), delimiter=delimiter, strict=True, skipinitialspace=True
    )
    return [cell.strip() for cell in next(reader)]


def _cells(line: str, delimiter: str, number: int, shown: str) -> list[str]:
    try:
        return _split(line, delimiter)
    except (csv.Error, StopIteration) as error:
        raise InputError(f"{shown}: line {number} cannot be read: {error}") from None


def _count(line: str, delimiter: str) -> int:
    try:
        return len(_split(line, delimiter))
    except (csv.Error, StopIteration):
        return 0


def _delimiter(lines: list[Line]) -> str:
    """The separator that gives most lines the same number of cells, at least two."""
    best, most = ",", 0
    for delimiter in DELIMITERS:
        counts = Counter(_count(line, delimiter) for _, line in lines)
        (size, times) = max(counts.items(), key=lambda item: (item[1], item[0]))
        if size > 1 and 2 * times >= len(lines) and times > most:
            best, most = delimiter, times
    return best


def _without_preamble(lines: list[Line], delimiter: str, shown: str) -> tuple[list[Line], list[str]]:
    """The lines from the header on: those above a table often name the instrument.

    They have fewer cells than the table, or, as spreadsheets write them, a single one and empty ones after it.
    """
    counts = [_count(line, delimiter) for _, line in lines[:LOOKED_AT]]
    size, times = Counter(counts).most_common(1)[0]
    whole = [i for i, count in enumerate(counts) if count == size]
    named = [i for i in whole if sum(map(bool, _split(lines[i][1], delimiter))) > 1]
    first = named[0] if named else whole[0]
    header = lines[first][1]
    is_header = not any(is_number(cell) for cell in _split(header, delimiter) if cell)
    if first == 0 or times < FEWEST_ALIKE or size < 2 or not is_header:
        return lines, []
    return lines[first:], [
        f"{shown}: {first} line{'s' * (first > 1)} above the column names in line {lines[first][0]} skipped"
    ]


def _commented_header(numbered: list[Line], first: int, delimiter: str, size: int, shown: str) -> tuple[list[str], int]:
    """Column names from the comment above the numbers, as `np.savetxt` writes them."""
    for number, line in reversed([one for one in numbered if one[0] < first]):
        text = line.strip().lstrip("#%/").strip()
        for sign in (delimiter, " "):
            names = _split(text, sign) if text and _count(text, sign) == size else []
            if names and not any(map(is_number, names)):
                return names, number
        if text:
            break
    raise InputError(f"{shown}: line {first} has only numbers; expected a line of column names first")


def _row(line: str, delimiter: str, number: int, size: int, shown: str) -> list[str]:
    cells = _cells(line, delimiter, number, shown)
    while len(cells) > size and not cells[-1]:  # separators at the end of the line
        cells.pop()
    if len(cells) != size:
        raise InputError(
            f"{shown}: line {number} has {len(cells)} cells, but the header has {size} columns; "
            "put text with separators in quotes"
        )
    return cells


def without_units(
    rows: list[tuple[int, list[str]]], headers: list[str]
) -> tuple[list[tuple[int, list[str]]], list[tuple[int, str]]]:
    """The rows without one that has units under the header, and that row.

    It has no number or timestamp, and text where the row below has a number or timestamp.
    """

    def is_value(cell: str) -> bool:
        return is_number(cell) or is_timestamp(cell)

    if len(rows) < 2:
        return rows, []
    (place, first), (_, second) = rows[0], rows[1]
    named = [a for a, header in zip(first, headers, strict=True) if header]
    above = [a for a, b in zip(first, second, strict=True) if is_value(b) and not is_missing(a)]
    if not above or any(map(is_value, named)) or any(len(a) > LONGEST_UNIT for a in above):
        return rows, []
    return rows[1:], [(place, ", ".join(a for a in named if a))]
