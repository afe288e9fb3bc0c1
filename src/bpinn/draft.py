"""A draft of a problem file from a data file: `bpinn new NAME --from readings.csv`.

The draft has what can be seen in the file: coordinates, ranges, readings and their scatter. The equation is left to the
user, in a place that `bpinn check` names.
"""

import itertools
import json
import math
import re
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bpinn.data_files import WORKBOOKS, read_table
from bpinn.data_files.numbers import codes_for_missing, is_missing
from bpinn.data_files.table import DataTable, loose_name_of, name_of
from bpinn.data_files.timestamps import ORDERS, UNITS, Clock, has_date, has_time_of_day
from bpinn.errors import InputError
from bpinn.expressions import PLACEHOLDER
from bpinn.quantities import Names
from bpinn.scatter import scatter

TIME = (
    "t", "time", "timestamp", "datetime", "date", "elapsed", "zeit", "temps", "age", "year", "years", "month", "months",
    "week", "weeks", "day", "days", "hour", "hours", "minute", "minutes", "second", "seconds",
)  # fmt: skip
COORDINATES = {  # the names that columns of coordinates often have, and what they are called in the draft
    **dict.fromkeys(TIME, "t"), **{c: c for c in ("x", "y", "z", "r", "phi")}, "position": "x", "distance": "x",
    "pos": "x", "length": "x", "depth": "z", "height": "z", "radius": "r", "lon": "lon", "lat": "lat",
}  # fmt: skip
NOISES = ("noise", "sigma", "sd", "std", "stdev", "err", "error", "uncertainty", "standard deviation")
NUMBERINGS = ("", "no", "nr", "n", "id", "index", "number", "sample", "row", "#", "unnamed: 0", "channel", "record")
MOST_FIELDS = 4
SMOOTH = 0.01  # of the range of readings: the noise of readings without visible scatter


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

    def numbers(self) -> dict[str, np.ndarray]:
        """Coordinates and readings, by their name in the draft."""
        found = {}
        for c, columns in self.coordinates.items():
            if self.clock is not None and self.table.holds_times(*columns):
                found[c] = self.table.times(*columns, clock=self.clock, order=self.order)
            else:
                found[c] = self.table.numbers(columns[0])
        return found | {name: self.table.numbers(column) for name, column in self.values.items()}


def write_draft(source: Path, folder: Path, order: str | None = None) -> tuple[list[Path], list[str]]:
    """Write a problem file for a data file, and a copy of it, into a new folder; return them and what was seen."""
    seen = look(source, order)
    text, said = _text(seen, source.name)
    if folder.exists():
        raise InputError(f"{folder}: already exists; give another name")
    try:
        folder.mkdir(parents=True)
        (folder / "problem.toml").write_text(text, encoding="utf-8")
        shutil.copyfile(source, folder / source.name)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return [folder / "problem.toml", folder / source.name], said


def look(source: Path, order: str | None = None) -> Seen:
    """Find coordinates, readings and noise among the columns of a file; ``order`` is that of its dates."""
    if order not in (None, *ORDERS):
        raise InputError(f"--dates {order}: not known; known orders are {', '.join(ORDERS)}")
    table, reading = _open(source)
    usable = [header for header in table.headers if name_of(header) and table.is_unique(header)]
    times = [h for h in usable if table.holds_times(h)]
    numeric = [h for h in usable if h not in times and table.looks_numeric(h) and _word(h) not in NUMBERINGS]
    for header in numeric:
        table.numbers(header)  # which says what is wrong
    numeric = [h for h in numeric if _word(h) in COORDINATES or not _is_label(table.numbers(h))]
    coordinates: dict[str, list[str]] = {}
    if times:
        coordinates["t"] = _of_time(table, times)
    for header in numeric:
        role = COORDINATES.get(_word(header)) if header != "T" else None  # T is a temperature
        if role is not None and role not in coordinates:
            coordinates[role] = [header]
    if coordinates and all(h in itertools.chain(*coordinates.values()) for h in numeric):
        coordinates = _without_readings(coordinates, table, is_time=bool(times))
    if not coordinates and len(numeric) > 1:
        first = next((h for h in numeric if _is_sorted(table.numbers(h))), numeric[0])
        coordinates[_identifier(first)] = [first]
    taken = {column for columns in coordinates.values() for column in columns}
    noises = [h for h in numeric if h not in taken and _word(h) in NOISES and _is_positive(table.numbers(h))]
    values = [h for h in numeric if h not in taken and h not in noises and np.ptp(_known(table.numbers(h))) > 0]
    if not coordinates or not values:
        raise InputError(
            f"{table.shown}: expected a column of positions or times and a column of readings, with numbers; it has "
            f"{table.listed}"
        )
    named = _named(values[:MOST_FIELDS], list(coordinates))
    clock = _clock(table, coordinates["t"], order) if times else None
    kept = {*taken, *named.values(), *(noises if len(named) == 1 else ())}
    ignored = [name_of(h) for h in table.headers if name_of(h) and h not in kept]
    return Seen(
        table, coordinates, named, noises[0] if noises and len(named) == 1 else None, clock, order, ignored, reading
    )


def _without_readings(coordinates: dict[str, list[str]], table: DataTable, is_time: bool) -> dict[str, list[str]]:
    """The coordinates where every column has the name of one: y of x, a trajectory x, y of t, or z of x and y."""
    first = "t" if "t" in coordinates else next(iter(coordinates))
    if is_time or len(coordinates) == 2 or np.all(np.diff(_known(table.numbers(coordinates[first][0]))) > 0):
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


def _known(values: np.ndarray) -> np.ndarray:
    found = values[np.isfinite(values)]
    return found if len(found) else np.zeros(1)


def _is_sorted(values: np.ndarray) -> bool:
    steps = np.diff(_known(values))
    return bool(np.all(steps >= 0) and np.any(steps > 0))


def _is_label(values: np.ndarray) -> bool:
    """Whether a column numbers groups of rows, such as trees or runs: 1, 1, 1, 2, 2, 2, ..."""
    steps = np.flatnonzero(np.diff(values))
    sizes = np.diff([-1, *steps, len(values) - 1])
    counts = len(values) > 2 and values[0] in (0, 1) and bool(np.all(np.diff(values)[steps] == 1))
    return counts and len(steps) > 0 and bool(np.all(sizes > 1))


def _is_positive(values: np.ndarray) -> bool:
    return bool(np.all(_known(values) > 0))


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


# --- the text ---


def _text(seen: Seen, source: str) -> tuple[str, list[str]]:
    """The problem file, and what was seen, as sentences."""
    numbers = seen.numbers()
    said = [*seen.table.notes]
    title = Path(source).stem.replace("_", " ").capitalize()
    lines = [f"title = {_quoted(title)}", "", "[domain]"]
    for c, columns in seen.coordinates.items():
        low, high = _range(_known(numbers[c]), from_zero=seen.clock is not None and c == "t")
        what = f"{seen.clock}" if seen.clock is not None and c == "t" else f"column {' '.join(columns)}"
        lines.append(f"{c} = [{low:.12g}, {high:.12g}]".ljust(24) + f" # {what}")
        said.append(
            f"{c} is the coordinate in {' '.join(columns)!r}" + (f": {what}" if seen.clock and c == "t" else "")
        )
    if seen.clock is not None:
        start = str(seen.clock).split(" since ")[1]
        lines += ["", "[time]", f'unit = "{seen.clock.unit}"', f'start = "{start}"']
        lines += [f'dates = "{seen.order}"'] if seen.order else []
    for name in seen.values:
        lines += [
            "",
            f"[fields.{name}]",
            'surrogate = "gp"         # a smooth function; its length and size are inferred',
        ]
    lines += ["", *_equations(seen)]
    for name, header in seen.values.items():
        group, sentence = _sensors(seen, source, name, header, numbers)
        lines += ["", *group]
        said.append(sentence)
    lines += ["", "[inference]", "seed = 0", ""]
    if seen.ignored:
        said.append(f"not used: {', '.join(seen.ignored)}")
    return "\n".join(lines), said


def _range(values: np.ndarray, from_zero: bool) -> tuple[float, float]:
    """The range of a coordinate, rounded outwards to a hundredth of its size."""
    low, high = float(values.min()), float(values.max())
    step = 10.0 ** math.floor(math.log10(high - low or abs(high) or 1.0) - 1)
    low, high = (math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)
    return (0.0 if from_zero else low), (high if high > low else low + step)


def _equations(seen: Seen) -> list[str]:
    c = "t" if "t" in seen.coordinates else next(iter(seen.coordinates))
    first = next(iter(seen.values))
    lines = [
        "[unknowns]               # the numbers to infer: a name and a prior each",
        '# k = { prior = "lognormal", log_mean = 0.0, log_sd = 1.0 }',
        "",
        "[equations]              # expressions that are zero, "
        f"such as {first}_{c} + k*{first}, where {first}_{c} is the derivative along {c}",
    ]
    laws = {name: "law" if len(seen.values) == 1 else f"law_{name}" for name in seen.values}
    lines += [f'{law} = "{PLACEHOLDER}"' for law in laws.values()]
    for law in laws.values():
        lines += ["", "[[physics]]", f'equation = "{law}"']
    return lines


def _sensors(
    seen: Seen, source: str, name: str, header: str, numbers: Mapping[str, np.ndarray]
) -> tuple[list[str], str]:
    columns = {c: found for c, found in seen.coordinates.items() if found != [c]}
    pairs = [f"{c} = {_listed(found)}" for c, found in columns.items()]
    pairs += [f"value = {_quoted(header)}"] if header != "value" else []
    noise_column = seen.noise is not None and seen.noise != "noise"
    pairs += [f"noise = {_quoted(str(seen.noise))}"] if noise_column else []
    lines = ["[[sensors]]", f'quantity = "{name}"', f"data = {_quoted(source)}"]
    lines += [f"{key} = {value}" for key, value in seen.reading.items()]
    lines += [f"columns = {{ {', '.join(pairs)} }}"] if pairs else []
    codes = codes_for_missing(numbers[name])
    readings = np.where(np.isin(numbers[name], codes), np.nan, numbers[name])
    used = [*(numbers[c] for c in seen.coordinates), readings]
    used += [seen.table.numbers(seen.noise)] if seen.noise is not None else []
    complete = np.all(np.isfinite(used), axis=0)
    lacking = int(np.sum(~complete))
    how = f"missing = [{', '.join(f'{code:g}' for code in codes)}]" if codes else 'missing = "drop"'
    lines += [f"{how.ljust(24)} # cells are missing in {lacking} of {len(complete)} rows"] if lacking else []
    said = f"{name} has {int(complete.sum())} readings in {name_of(header)!r}"
    said += f", without {lacking} row{'s' * (lacking > 1)} in which a cell is missing" if lacking else ""
    said += f" or holds {', '.join(f'{code:g}' for code in codes)}" if codes else ""
    if seen.noise is not None:
        return lines, f"{said}; the noise of each is in {name_of(seen.noise)!r}"
    at = np.array([numbers[c][complete] for c in seen.coordinates])
    values = readings[complete]
    guess = scatter(at, values)
    why = (
        f"neighbouring readings scatter by about {guess:.2g}"
        if guess
        else "1% of the range; too few readings to see it"
    )
    guess = guess or SMOOTH * float(np.ptp(values))
    lines += [
        f"# The noise: {why}. If you know it, write noise = {guess:.2g}",
        f'noise = {{ prior = "lognormal", log_mean = {math.log(guess):.3g}, log_sd = 0.5 }}',
    ]
    return lines, f"{said}; the noise: {why}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _listed(columns: Sequence[str]) -> str:
    return _quoted(columns[0]) if len(columns) == 1 else f"[{', '.join(map(_quoted, columns))}]"
