"""What the columns of a data file are: coordinates, readings, noise, groups. For `bpinn new NAME --from FILE`."""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bpinn.data_files import WORKBOOKS, read_table
from bpinn.data_files.numbers import is_missing
from bpinn.data_files.table import DataTable, loose_name_of, name_of
from bpinn.data_files.timestamps import ORDERS, UNITS, Clock, has_date, has_time_of_day
from bpinn.errors import InputError
from bpinn.grouping import Grouping, find, kind_of
from bpinn.quantities import Names

TIME = (
    "t", "time", "timestamp", "datetime", "date", "elapsed", "zeit", "temps", "age", "year", "years", "month", "months",
    "week", "weeks", "day", "days", "hour", "hours", "minute", "minutes", "second", "seconds",
)  # fmt: skip
COORDINATES = {  # the names that columns of coordinates often have, and what they are called in the draft
    **dict.fromkeys(TIME, "t"), **{c: c for c in ("x", "y", "z", "r", "phi")}, "position": "x", "distance": "x",
    "pos": "x", "length": "x", "depth": "z", "height": "z", "radius": "r", "lon": "lon", "lat": "lat",
}  # fmt: skip
NOISES = ("noise", "sigma", "sd", "std", "stdev", "err", "error", "uncertainty", "standard deviation")
NUMBERINGS = (
    "", "no", "nr", "n", "id", "index", "number", "sample", "row", "#", "unnamed: 0", "channel", "record", "rownames",
    "rowname", "obs", "observation", "line", "key",
)  # fmt: skip
MOST_FIELDS = 4
FEW = 8  # rows, with which readings may all be zero and one


@dataclass(frozen=True)
class Seen:
    """What a data file holds: columns of coordinates, readings and noise, by their name in the draft."""

    table: DataTable
    coordinates: dict[str, list[str]]
    values: dict[str, str]
    noise: str | None
    clock: Clock | None
    order: str | None  # of dates
    ignored: list[str]
    reading: dict[str, str]  # keys of [[sensors]] that say how to read the file
    groups: Grouping | None  # of which the draft takes the first
    where: dict[str, dict[str, str]]  # the rows of each reading, by its name in the draft
    longest: float | None  # the longest time of a group, if each has a start of its own

    def part(self, name: str) -> np.ndarray:
        """The rows of a reading."""
        keep = np.ones(len(self.table.cells[0]), bool)
        for column, value in self.where[name].items():
            keep &= Grouping(column, (value,)).rows(self.table, value)
        return keep

    def numbers(self) -> dict[str, np.ndarray]:
        """Coordinates and readings, by their name in the draft."""
        found = {}
        for c, columns in self.coordinates.items():
            if self.clock is not None and self.table.holds_times(*columns):
                found[c] = self.table.times(*columns, clock=self.clock, order=self.order)
            else:
                found[c] = self.table.numbers(columns[0])
        return found | {name: self.table.numbers(column) for name, column in self.values.items()}


def look(source: Path, order: str | None = None) -> Seen:
    """Find coordinates, readings and noise among the columns of a file; ``order`` is that of its dates."""
    if order not in (None, *ORDERS):
        raise InputError(f"--dates {order}: not known; known orders are {', '.join(ORDERS)}")
    table, reading = _open(source)
    usable = [header for header in table.headers if name_of(header) and table.is_unique(header)]
    times = [h for h in usable if table.holds_times(h)]
    quantities, subjects = _groupings(table, usable, times, order)
    apart = [grouping.column for grouping in (quantities, subjects) if grouping is not None]
    numeric = [h for h in usable if h not in (*times, *apart) and table.looks_numeric(h) and _word(h) not in NUMBERINGS]
    for header in numeric:
        table.numbers(header)  # which says what is wrong
    numeric = [h for h in numeric if _word(h) in COORDINATES or not _is_label(table.numbers(h))]
    part = table.rows(subjects.rows(table, subjects.values[0])) if subjects is not None else table
    if subjects is not None:  # what does not vary in a group, such as the weight of a subject, is no coordinate
        numeric = [h for h in numeric if np.ptp(known(part.numbers(h))) > 0]
    coordinates = _coordinates(part, times, numeric)
    taken = {column for columns in coordinates.values() for column in columns}
    noises = [h for h in numeric if h not in taken and _word(h) in NOISES and _is_positive(table.numbers(h))]
    values = [h for h in numeric if h not in taken and h not in noises and np.ptp(known(part.numbers(h))) > 0]
    values = [h for h in values if not _is_flag(part.numbers(h))] or values
    if not coordinates or not values:
        raise InputError(
            f"{table.shown}: expected a column of positions or times and a column of readings, with numbers; it has "
            f"{table.listed}"
        )
    if quantities is not None:
        named = _named(quantities.values, list(coordinates))
        where = {name: {quantities.column: value} for name, value in named.items()}
        named = dict.fromkeys(named, values[0])
    else:
        named = _named(values[:MOST_FIELDS], list(coordinates))
        where = {name: {} for name in named}
    if subjects is not None:
        where = {name: {subjects.column: subjects.values[0], **rows} for name, rows in where.items()}
    clock = _clock(part if subjects is not None else table, coordinates["t"], order) if times else None
    longest = _longest(table, coordinates["t"], clock, subjects, order) if clock and subjects else None
    if clock is not None and longest is None:
        clock = Clock(clock.unit, table.moments(*coordinates["t"], order=order).earliest, clock.kind)
    only = noises[0] if noises and len(named) == 1 else None
    kept = {*taken, *named.values(), *apart, *([only] if only else [])}
    ignored = [name_of(h) for h in table.headers if name_of(h) and h not in kept]
    return Seen(table, coordinates, named, only, clock, order, ignored, reading, subjects, where, longest)


def _groupings(
    table: DataTable, usable: Sequence[str], times: Sequence[str], order: str | None
) -> tuple[Grouping | None, Grouping | None]:
    """The columns of different quantities and of different subjects, if the file has them."""
    words, whole = [h for h in usable if h not in times and not table.looks_numeric(h)], []
    numeric = [h for h in usable if h not in times and table.looks_numeric(h)]
    for header in numeric:
        cells = known(table.numbers(header))
        if np.all(cells == np.round(cells)) and (_word(header) not in COORDINATES and header != "T"):
            whole.append(header)
    named = [h for h in numeric if _word(h) in COORDINATES and h != "T"]
    along = {h: table.numbers(h) for h in named or [h for h in numeric if _word(h) not in NUMBERINGS]}
    if times:
        moments = table.moments(*_of_time(table, times), order=order or _any_order(table, times))
        along = {"t": np.where(moments.missing, np.nan, moments.micros.astype(float))}
    places = [table.numbers(h) for h in named if COORDINATES[_word(h)] != "t"]
    quantities = find(table, [h for h in words if kind_of(h) == "quantities"], along, ())
    if quantities is not None and len(quantities.values) > MOST_FIELDS:
        quantities = None
    of_subjects = [h for h in (*words, *whole) if quantities is None or h != quantities.column]
    return quantities, find(table, of_subjects, along, places if len(places) < len(named) or times else ())


def _any_order(table: DataTable, times: Sequence[str]) -> str | None:
    """An order in which dates can be read, where only their succession matters."""
    for order in (None, *ORDERS):
        try:
            table.moments(*_of_time(table, times), order=order)
        except InputError:
            continue
        return order
    return None


def _longest(
    table: DataTable, columns: Sequence[str], clock: Clock, subjects: Grouping, order: str | None
) -> float | None:
    """The longest time of a group, if the groups start at different times; None if they are beside each other."""
    moments = table.moments(*columns, order=order)
    at = np.where(moments.missing, np.nan, moments.micros.astype(float))
    inside = [own[np.isfinite(own)] for part in subjects.parts(table) if np.isfinite(own := at[part]).any()]
    starts, spans = [own.min() for own in inside], [np.ptp(own) for own in inside]
    if np.ptp(starts) < 0.5 * np.median(spans):
        return None
    return float(max(spans)) / (1e6 * UNITS[clock.unit])


def _coordinates(table: DataTable, times: Sequence[str], numeric: Sequence[str]) -> dict[str, list[str]]:
    """The columns of each coordinate."""
    coordinates: dict[str, list[str]] = {"t": _of_time(table, times)} if times else {}
    for header in numeric:
        role = COORDINATES.get(_word(header)) if header != "T" else None  # T is a temperature
        if role is not None and role not in coordinates:
            coordinates[role] = [header]
    if coordinates and all(h in itertools.chain(*coordinates.values()) for h in numeric):
        coordinates = _without_readings(coordinates, table, is_time=bool(times))
    if not coordinates and len(numeric) > 1:
        first = next((h for h in numeric if _is_sorted(table.numbers(h))), numeric[0])
        coordinates[_identifier(first)] = [first]
    return coordinates


def _without_readings(coordinates: dict[str, list[str]], table: DataTable, is_time: bool) -> dict[str, list[str]]:
    """The coordinates where every column has the name of one: y of x, a trajectory x, y of t, or z of x and y."""
    first = "t" if "t" in coordinates else next(iter(coordinates))
    if is_time or len(coordinates) == 2 or np.all(np.diff(known(table.numbers(coordinates[first][0]))) > 0):
        return {first: coordinates[first]}
    return dict(list(coordinates.items())[:-1]) | {first: coordinates[first]}


def _of_time(table: DataTable, columns: Sequence[str]) -> list[str]:
    """The first column of timestamps, or a date and the time of day that belongs to it."""
    cells = {column: [str(c) for c in table.column(column) if not is_missing(str(c))] for column in columns}
    dates = [column for column in columns if any(map(has_date, cells[column]))]
    clocks = [column for column in columns if column not in dates]
    if dates and clocks and not any(map(has_time_of_day, cells[dates[0]])):
        return [dates[0], clocks[0]]
    return (dates or clocks)[:1]


def _open(source: Path) -> tuple[DataTable, dict[str, str]]:
    """The table, with the encoding and the sheet that it takes to read it."""
    if source.suffix.lower() in WORKBOOKS:
        try:
            return read_table(source, source.name), {}
        except InputError as error:
            if "sheets; write sheet" not in str(error):
                raise
        return read_table(source, source.name, sheet=1), {"sheet": "1"}
    try:
        return read_table(source, source.name), {}
    except InputError as error:
        if "is not UTF-8 text" not in str(error):
            raise
    return read_table(source, source.name, encoding="cp1252"), {"encoding": '"cp1252"'}


def _word(header: str) -> str:
    return loose_name_of(header).casefold()


def known(values: np.ndarray) -> np.ndarray:
    found = values[np.isfinite(values)]
    return found if len(found) else np.zeros(1)


def _is_sorted(values: np.ndarray) -> bool:
    steps = np.diff(known(values))
    return bool(np.all(steps >= 0) and np.any(steps > 0))


def _is_label(values: np.ndarray) -> bool:
    """Whether a column numbers groups of rows, such as trees or runs: 1, 1, 1, 2, 2, 2, ..."""
    steps = np.flatnonzero(np.diff(values))
    sizes = np.diff([-1, *steps, len(values) - 1])
    counts = len(values) > 2 and values[0] in (0, 1) and bool(np.all(np.diff(values)[steps] == 1))
    return counts and len(steps) > 0 and bool(np.all(sizes > 1))


def _is_flag(values: np.ndarray) -> bool:
    """Whether a column says on or off in each of many rows."""
    return len(values) >= FEW and set(np.unique(known(values))) <= {0.0, 1.0}


def _is_positive(values: np.ndarray) -> bool:
    return bool(np.all(known(values) > 0))


def _plain(letter: str) -> str:
    """A letter without accents; Greek ones by their name."""
    called = unicodedata.name(letter, "")
    if called.startswith("GREEK ") and " LETTER " in called:
        word = called.split(" LETTER ")[1].split()[0].lower()
        return word.capitalize() if "CAPITAL" in called else word
    return "ss" if letter == "ß" else unicodedata.normalize("NFKD", letter)[0]


def _identifier(header: str) -> str:
    name = re.sub(r"\W+", "_", "".join(map(_plain, loose_name_of(header))), flags=re.ASCII).strip("_")
    return name if re.match(r"[A-Za-z]", name) else ""


def _named(values: Sequence[str], coordinates: Sequence[str]) -> dict[str, str]:
    """Names of fields for the columns of readings: their own, or u, u1, u2, ... where they cannot be."""
    domain = dict.fromkeys(coordinates, (0.0, 1.0))
    found: dict[str, str] = {}
    for i, header in enumerate(values):
        spare = "u" if len(values) == 1 else f"u{i + 1}"
        name = _identifier(header)
        if name in ("", "value", "values", "reading", "noise", *found):
            name = spare
        for candidate in (name, spare):
            try:
                Names(domain, dict.fromkeys([*found, candidate], tuple(coordinates)), ())
            except InputError:
                continue
            found[candidate] = header
            break
    return found


def _clock(table: DataTable, columns: Sequence[str], order: str | None) -> Clock:
    """A clock that starts at the first timestamp, in the largest unit of which the readings span at least two."""
    try:
        moments = table.moments(*columns, order=order)
    except InputError as error:
        what, _, instead = str(error).partition('; write dates = "')
        if not instead:
            raise
        raise InputError(f"{what}; pass --dates day-first or --dates month-first") from None
    span = (moments.micros[~moments.missing].max() - moments.earliest) / 1e6
    units = [unit for unit, seconds in UNITS.items() if span >= 2 * seconds] or ["milliseconds"]
    return Clock(units[-1], moments.earliest, moments.kind)
