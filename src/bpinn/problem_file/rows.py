"""The rows of a data file that sensors use: `where = { Seed = 301 }`, one of several groups in a file."""

import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from bpinn.data_files.numbers import PLAIN, is_missing
from bpinn.data_files.table import Cells, DataTable, probable
from bpinn.errors import InputError
from bpinn.problem_file.toml_table import Table, shown

WHOLE = re.compile(r"[+-]?\d{1,64}")
MOST_NAMED = 6  # values of a column that a message names


def read_where(table: Table) -> dict[str, list[float | str]]:
    """The values that rows must have, by column; a table of sensors without `where` has none."""
    wanted = "a table of columns and their values, such as { Seed = 301 } or { plate = ['A', 'B'] }"
    found: dict[str, list[float | str]] = {}
    given = table.take("where", (dict,), wanted, None)
    if given == {}:
        raise InputError(f"{table.at('where')}: expected {wanted}, got an empty table")
    for column, value in (given or {}).items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(v, int | float | str) and not isinstance(v, bool) for v in values):
            raise InputError(
                f"{table.at('where')}.{column}: expected a number, a text, or a list of them, got {shown(value)}"
            )
        found[column] = values
    return found


def chosen(where: str, wanted: dict[str, list[float | str]], data: DataTable) -> DataTable:
    """The rows of a file that have the values; ``where`` is the key in messages."""
    for column, values in wanted.items():
        if column not in data:
            like = probable(column, data.headers)
            hint = f"; did you mean {like!r}?" if like else f"; it has {data.listed}"
            raise InputError(f"{where}: {data.shown} has no column {column!r}{hint}")
        cells = [label(cell) for cell in data.column(column)]
        keep = np.isin(cells, [label(value) for value in values])
        if not keep.any():
            what = " or ".join(map(str, values))
            raise InputError(f"{where}: no row of {data.shown} has {column} = {what}; it has {listed(cells)}")
        data = data.rows(keep)
    return data


def groups(cells: Cells) -> list[str]:
    """The different values of a column, in the order of their first rows; missing cells are none."""
    return [value for value in dict.fromkeys(map(label, cells)) if not is_missing(value)]


def label(cell: Any) -> str:
    """A value as text, by which cells are compared: 301, 301.0 and "301" are the same, "1_1" and 11 are not."""
    text = cell.strip() if isinstance(cell, str) else str(cell)
    if WHOLE.fullmatch(text):
        return str(int(text))
    number = float(text) if PLAIN.fullmatch(text) else np.nan
    if not np.isfinite(number):
        return text
    return str(int(number)) if number == round(number) and abs(number) < 2**53 else repr(number)


def listed(values: Iterable[str]) -> str:
    """Different values, the first few by name."""
    found = groups([*values])
    more = len(found) - MOST_NAMED
    return ", ".join(found[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def written(value: str) -> str:
    """A value of a column as it is written in a problem file."""
    try:
        return value if np.isfinite(float(value)) else json.dumps(value)
    except ValueError:
        return json.dumps(value, ensure_ascii=False)
