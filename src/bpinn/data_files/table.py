"""A table as it is in its file: cells are converted only in the columns that are used."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bpinn.data_files import numbers, timestamps
from bpinn.data_files.numbers import WrongCell
from bpinn.data_files.timestamps import Clock, Moments
from bpinn.errors import InputError

UNIT = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\])]*)[\])]\s*$")
LOOSE_UNIT = re.compile(r"^(?P<name>[^/,]*?)\s*[/,]\s*(?P<unit>[^/,]{1,12})$")  # T / K and T, K
LONGEST_NAME = 200  # characters; longer ones are not searched for units
LOOKED_AT = 200  # cells of a column, to see what it holds
MOST_PLACES = 5  # rows named in a message

Cells = np.ndarray | list[str]


@dataclass(frozen=True)
class Places:
    """The numbers of rows in their file; ``counted`` says of what."""

    numbers: Sequence[int]
    counted: str = "line"

    def at(self, row: int) -> str:
        return f"{self.counted} {self.numbers[row]}"

    def listed(self, rows: Sequence[int] | np.ndarray) -> str:
        """The first few of some rows."""
        shown = [str(self.numbers[int(row)]) for row in rows[:MOST_PLACES]]
        more = len(rows) - len(shown)
        end = f" and {more} more" if more else ""
        text = ", ".join(shown) if more or len(shown) < 2 else f"{', '.join(shown[:-1])} and {shown[-1]}"
        return f"{self.counted}{'s' if len(rows) > 1 else ''} {text}{end}"


@dataclass(frozen=True)
class DataTable:
    """The columns of a file: arrays of numbers, or cells of text.

    Arguments:
        shown: the name of the file in messages.
        headers: the names of columns, as they are in the file.
        cells: one array or list for each header.
        places: where each row is in the file, for messages.
        notes: what was skipped, as sentences.

    Example:
        >>> from bpinn.data_files.table import DataTable, Places
        >>> table = DataTable("data.csv", ("x [m]", "note"), (["1,5", "NA"], ["first", "second"]), Places([2, 3]))
        >>> table.names
        ['x', 'note']
        >>> table.numbers("x")
        array([1.5, nan])
    """

    shown: str
    headers: tuple[str, ...]
    cells: tuple[Cells, ...]
    places: Places
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        lengths = {name_of(h): len(c) for h, c in zip(self.headers, self.cells, strict=True)}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{n} {c}" for n, c in lengths.items())
            raise InputError(f"{self.shown}: columns differ in length: {counts}")
        if not lengths or not next(iter(lengths.values())):
            raise InputError(f"{self.shown}: the file has no readings")

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns, without units in brackets; columns without a name are left out."""
        return [name for name in map(name_of, self.headers) if name]

    def __contains__(self, name: str) -> bool:
        return name in self._found

    @cached_property
    def _found(self) -> dict[str, list[int]]:
        """Columns by name, with and without its unit."""
        found: dict[str, list[int]] = {}
        for i, header in enumerate(self.headers):
            for name in dict.fromkeys((header, name_of(header))):
                if name:
                    found.setdefault(name, []).append(i)
        return found

    def column(self, name: str) -> Cells:
        """The cells of a column, by its name with or without the unit."""
        if name not in self:
            raise InputError(f"{self.shown}: there is no column {name!r}; it has {self.listed}")
        places = self._found[name]
        if len(places) > 1:
            raise InputError(
                f"{self.shown}: duplicate column {name!r}: {len(places)} have this name; rename all but one"
            )
        return self.cells[places[0]]

    def rows(self, keep: np.ndarray) -> "DataTable":
        """The same columns with some of the rows, which keep their places in the file."""
        chosen = np.flatnonzero(keep)
        cells = tuple(c[chosen] if isinstance(c, np.ndarray) else [c[int(i)] for i in chosen] for c in self.cells)
        places = Places([self.places.numbers[int(i)] for i in chosen], self.places.counted)
        return replace(self, cells=cells, places=places)

    def is_unique(self, name: str) -> bool:
        return len(self._found[name]) == 1

    @property
    def listed(self) -> str:
        """The names of the columns, for messages."""
        return ", ".join(self.names) or "no named columns"

    # --- what the cells hold ---

    def looks_numeric(self, name: str) -> bool:
        """Whether most of the first cells that are not missing are numbers."""
        cells = self.column(name)
        if isinstance(cells, np.ndarray):
            return bool(np.isfinite(cells).any())
        seen = [numbers.is_number(cell) for cell in cells[:LOOKED_AT] if not numbers.is_missing(cell)]
        return bool(seen) and 2 * sum(seen) > len(seen)

    def holds_times(self, *names: str) -> bool:
        """Whether most of the first cells, joined if there are several columns, are dates or times of day."""
        if any(isinstance(self.column(name), np.ndarray) for name in names):
            return False
        seen = [
            timestamps.is_timestamp(cell) for cell in _joined(self, names, LOOKED_AT) if not numbers.is_missing(cell)
        ]
        return bool(seen) and 2 * sum(seen) > len(seen)

    def numbers(self, name: str) -> np.ndarray:
        """A column of numbers, NaN where a cell is missing."""
        cells = self.column(name)
        try:
            if isinstance(cells, np.ndarray):
                wrong = np.flatnonzero(np.isinf(cells))
                if len(wrong):
                    raise WrongCell(int(wrong[0]), f"{cells[wrong[0]]} is not a finite number")
                return cells
            return numbers.to_numbers(cells, _decimal_sign_besides(cells, self.cells))
        except WrongCell as wrong_cell:
            raise _error(self, name, wrong_cell) from None

    def moments(self, *names: str, order: str | None = None) -> Moments:
        """A column of timestamps, or two columns, such as the date and the time of day."""
        try:
            return timestamps.read_moments(_joined(self, names), order)
        except WrongCell as wrong:
            raise _error(self, " ".join(names), wrong) from None

    def times(self, *names: str, clock: Clock, order: str | None = None) -> np.ndarray:
        """Timestamps as numbers, NaN where a cell is missing."""
        found = self.moments(*names, order=order)
        if found.kind != clock.kind:
            start, kinds = timestamps.shown(clock.start, clock.kind), timestamps.KINDS
            raise InputError(
                f"{self.shown}: column {' '.join(names)!r} has {kinds[found.kind]}, but time starts at {start}, among "
                f"{kinds[clock.kind]}; write both in the same way"
            )
        return clock.numbers(found)


def _joined(table: DataTable, names: Sequence[str], most: int | None = None) -> list[str]:
    """The cells of columns, joined row by row; empty where one is missing."""
    columns = [[str(cell).strip() for cell in table.column(name)[:most]] for name in names]
    return ["" if any(map(numbers.is_missing, row)) else " ".join(row) for row in zip(*columns, strict=True)]


def _decimal_sign_besides(mine: Cells, columns: Sequence[Cells]) -> str:
    """The decimal sign of the other columns, if they agree."""
    signs = {
        numbers.decimal_sign(cell)
        for cells in columns
        if cells is not mine and isinstance(cells, list)
        for cell in cells[:LOOKED_AT]
    }
    return next(iter(signs - {""})) if len(signs - {""}) == 1 else ""


def _error(table: DataTable, name: str, wrong: WrongCell) -> InputError:
    return InputError(f"{table.shown}: {table.places.at(wrong.row)}, column {name!r}: {wrong.reason}")


def probable(name: str, headers: Sequence[str]) -> str | None:
    """The column that was probably meant by a name: one that differs in case, unit or a letter."""
    known = {loose_name_of(header).casefold(): header for header in reversed(headers) if header.strip()}
    wanted = loose_name_of(name).casefold()
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, 1, cutoff=0.75)
    return known[close[0]] if close else None


def name_of(header: str) -> str:
    """A column's name without its unit: ``x [m]`` is ``x``."""
    found = UNIT.match(header.strip()) if len(header) <= LONGEST_NAME else None
    return found["name"].strip() if found and found["name"].strip() else header.strip()


def loose_name_of(header: str) -> str:
    """The same, also for ``T / K`` and ``T, K``."""
    name = name_of(header)
    found = LOOSE_UNIT.match(name) if len(name) <= LONGEST_NAME else None
    return found["name"].strip() if found and found["name"].strip() else name
