"""The data files of a problem file: which columns the sensors use, timestamps, missing cells."""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.data_files import read_table
from bpinn.data_files.delimited import ENCODINGS
from bpinn.data_files.numbers import WrongCell, codes_for_missing
from bpinn.data_files.table import DataTable, loose_name_of, name_of, probable
from bpinn.data_files.timestamps import ORDERS, SHORT, UNITS, Clock, Moments
from bpinn.errors import InputError
from bpinn.problem_file.rows import chosen, read_where
from bpinn.problem_file.toml_table import Table, did_you_mean, shown

POSITIONED = ("average", "integral", "difference")  # keys whose positions may be columns
TIME_NAMES = ("time", "date", "timestamp", "datetime", "zeit", "temps", "tiempo", "tempo", "elapsed")
TIMES = "a date in quotes, such as '2024-03-01 08:00'"


@dataclass(frozen=True)
class Columns:
    """What sensors read from their file: coordinates, value and noise, and positions by the names of their columns."""

    by_role: dict[str, np.ndarray]
    positions: dict[str, np.ndarray]
    table: DataTable


@dataclass
class DataReader:
    """Opens the data files of a problem file in ``folder``; ``notes`` says what was skipped or converted."""

    folder: Path
    allow_outside: bool
    domain: Mapping[str, tuple[float, float]]
    renamed: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    clock: Clock | None = None
    order: str | None = None
    _opened: dict[Any, DataTable] = field(default_factory=dict)

    # --- timestamps ---

    def read_time(self, table: Table, sensors: Sequence[Any]) -> None:
        """Set the clock: the table [time], and the earliest timestamp of all files if it does not state the start."""
        stated = bool(table.content)
        unit = table.text("unit", "seconds", f"one of {', '.join(UNITS)}")
        unit = SHORT.get(unit, unit if unit.endswith("s") else unit + "s")
        if unit not in UNITS:
            raise InputError(f"{table.at('unit')}: {shown(unit)} is not known{did_you_mean(unit, [*UNITS])}")
        self.order = table.choice("dates", ORDERS, None) if "dates" in table.content else None
        start = table.take("start", (str, datetime.date, datetime.time), TIMES, None)
        table.end()
        found = [*self._all_moments(sensors)]
        if start is not None:
            text = start if isinstance(start, str) else start.isoformat()
            try:
                self.clock = Clock.from_start(text, unit, self.order)
            except WrongCell as wrong:
                raise InputError(f"{table.at('start')}: {wrong.reason}; expected {TIMES}") from None
        elif found:
            self.clock = Clock(unit, min(moments.earliest for moments in found), found[0].kind)
        if stated and not found:
            raise InputError("time: no coordinate column holds dates or times of day; remove [time]")
        if found:
            self.notes.append(f"timestamps: {self.clock}")

    def _all_moments(self, sensors: Sequence[Any]) -> Iterator[Moments]:
        for i, inner in enumerate(sensors):
            if not isinstance(inner, dict) or not isinstance(inner.get("data"), str):
                continue
            table = Table(inner, f"sensors.{i}")
            data = self.open(table)
            fixed, roles = _fixed(table), self._roles(table)
            of_coordinates = [roles[c] for c in self.domain if c not in fixed]
            for names in (*of_coordinates, *([name] for name in _position_names(table))):
                if all(name in data for name in names) and data.holds_times(*names):
                    moments = data.moments(*names, order=self.order)
                    if not moments.missing.all():
                        yield moments

    # --- columns ---

    def open(self, table: Table) -> DataTable:
        """The rows that sensors use of the file that they name, which is read once."""
        source = table.text("data", None, "the name of a file")
        sheet = table.take("sheet", (str, int), "the name of a sheet, or its number", None)
        encoding = table.choice("encoding", ENCODINGS) if "encoding" in table.content else None
        key = (source, sheet, encoding)
        if key not in self._opened:
            path = self.inside(source, table.at("data"))
            self._opened[key] = read_table(path, source, sheet=sheet, encoding=encoding)
            self.notes += self._opened[key].notes
        return chosen(table.at("where"), read_where(table), self._opened[key])

    def _roles(self, table: Table) -> dict[str, list[str]]:
        """The columns of coordinates, value and noise: one, or several that are joined, such as date and time."""
        given = Table(table.table("columns", {}), table.at("columns"))
        wanted = "the name of a column, or a list of names such as ['date', 'time']"
        found = {}
        for role in (*self.domain, "value", "noise"):
            name = given.take(role, (str, list), wanted, role)
            found[role] = [name] if isinstance(name, str) else name
            if not found[role] or not all(isinstance(n, str) for n in found[role]):
                raise InputError(f"{given.at(role)}: expected {wanted}, got {shown(name)}")
            if len(found[role]) > 1 and role not in self.domain:
                raise InputError(f"{given.at(role)}: only a coordinate can have several columns; name one")
        given.end()
        return found

    def columns(self, table: Table, quantity: str, needed: Sequence[str]) -> Columns:
        """The columns of one group of sensors, without the rows in which a cell is missing if it says so.

        ``needed`` are the coordinates that must be there.
        """
        named = "columns" in table.content and isinstance(table.content["columns"], dict) and table.content["columns"]
        conditions = table.content.get("where")
        data = self.open(table)
        if conditions:
            said = " and ".join(f"{column} = {_quoted(value)}" for column, value in conditions.items())
            self.notes.append(f"{data.shown}: {len(data.cells[0])} rows have {said}")
        roles = self._roles(table)
        missing, codes = _missing(table)
        for role, names in roles.items():
            for name in names:
                if name not in data and named and role in named:
                    like = probable(name, data.headers)
                    hint = f"; did you mean {like!r}?" if like else f"; it has {data.listed}"
                    raise InputError(f"{table.at('columns')}.{role}: {data.shown} has no column {name!r}{hint}")
        fixed = _fixed(table)
        self._check_present(table, data, roles, [c for c in needed if c not in fixed], quantity)
        used: dict[str, np.ndarray] = {}
        for role, names in roles.items():
            stated = role == "noise" and "noise" in table.content
            if all(name in data for name in names) and role not in fixed and not stated:
                used[role] = self._numbers(data, names, is_coordinate=role in self.domain)
        positions = {
            name: self._numbers(data, [name], is_coordinate=True) for name in _position_names(table) if name in data
        }
        used["value"] = self._decoded(table, data, roles, used["value"], codes)
        keep = self._kept(table, data, {**positions, **used}, roles, drop=missing == "drop")
        return Columns({r: v[keep] for r, v in used.items()}, {n: v[keep] for n, v in positions.items()}, data)

    def _numbers(self, data: DataTable, names: list[str], is_coordinate: bool) -> np.ndarray:
        if is_coordinate and self.clock is not None and data.holds_times(*names):
            return data.times(*names, clock=self.clock, order=self.order)
        if len(names) > 1:
            data.moments(*names, order=self.order)  # which says what is wrong
            raise InputError(f"{data.shown}: columns {' and '.join(names)} do not hold dates and times")
        return data.numbers(names[0])

    def _check_present(
        self, table: Table, data: DataTable, roles: Mapping[str, list[str]], needed: Sequence[str], quantity: str
    ) -> None:
        """Every column that is needed is there; otherwise suggest the one that was probably meant."""
        absent = [role for role in (*needed, "value") if not all(name in data for name in roles[role])]
        taken = {name for role in roles if role not in absent for name in roles[role]}
        meant = {}
        for role in sorted(absent, key=lambda role: role != "value"):
            found = self._meant(data, role, quantity, taken)
            if found is not None:
                meant[role] = found
                taken.add(found)
        for role in absent:
            what = "for the readings" if role == "value" else f"for the coordinate {role}"
            pairs = ", ".join(f"{r} = {_quoted(meant[r])}" for r in absent if r in meant)
            hint = (
                f"; if it is {_quoted(meant[role])}, write columns = {{ {pairs} }} in {table.where}"
                if role in meant
                else ""
            )
            raise InputError(f"{data.shown}: there is no column {roles[role][0]!r} {what}; it has {data.listed}{hint}")

    def _meant(self, data: DataTable, role: str, quantity: str, taken: set[str]) -> str | None:
        """The header of the column that a coordinate or the readings are probably in."""
        free = [h for h in data.headers if name_of(h) and not {h, name_of(h)} & taken and data.is_unique(h)]
        words = (role, quantity) if role == "value" else (role,)
        found = [h for word in words for h in free if loose_name_of(h) == word]
        if role == "t":
            found = found or [h for h in free if data.holds_times(h)]
            found = found or [h for h in free if loose_name_of(h).casefold() in TIME_NAMES]
        found = found or [like for word in words if (like := probable(word, data.headers)) in free and like]
        if role == "value" and not found:
            numeric = [h for h in free if data.looks_numeric(h) and name_of(h) not in self.domain]
            found = numeric if len(numeric) == 1 else []
        return found[0] if found else None

    def _decoded(
        self,
        table: Table,
        data: DataTable,
        roles: Mapping[str, list[str]],
        values: np.ndarray,
        codes: Sequence[float] | None,
    ) -> np.ndarray:
        """The readings, NaN where they hold a code for a missing one; codes that are not stated are an error."""
        if codes is not None:
            return np.where(np.isin(values, codes), np.nan, values)
        for code in codes_for_missing(values):
            where = data.places.listed(np.flatnonzero(values == code))
            raise InputError(
                f"{data.shown}: column {roles['value'][0]!r} holds {code:g} in {where}, far from all other readings; "
                f"if it stands for a missing one, write missing = [{code:g}] in {table.where} to leave it out, and "
                "missing = [] if it is a reading"
            )
        return values

    def _kept(
        self, table: Table, data: DataTable, used: Mapping[str, np.ndarray], roles: Mapping[str, list[str]], drop: bool
    ) -> np.ndarray:
        """Which rows to keep: those in which no cell that is used is missing."""
        lacking = {" ".join(roles.get(role, [role])): np.isnan(values) for role, values in used.items()}
        keep = ~np.any([*lacking.values()], axis=0)
        if keep.all():
            return keep
        rows = np.flatnonzero(~keep)
        said = ", ".join(
            f"column {name!r} has {count} missing cell{'s' * (count > 1)}"
            for name, count in ((name, int(is_nan.sum())) for name, is_nan in lacking.items()) if count
        )  # fmt: skip
        where = f"{data.shown}: {said}, in {data.places.listed(rows)}"
        if not drop:
            it = "this row" if len(rows) == 1 else "these rows"
            raise InputError(f'{where}; fill them, or write missing = "drop" in {table.where} to leave {it} out')
        if not keep.any():
            raise InputError(f"{where}; no reading is left")
        self.notes.append(f"{where}; {len(rows)} of {len(keep)} rows dropped")
        return keep

    def inside(self, source: str, where: str) -> Path:
        """The path of a data file, which must lie in the folder of the problem file once links are resolved."""
        folder = self.folder.resolve()
        source = self.renamed.get(source, source)
        try:
            path = (folder / source).resolve()
            outside = not path.is_relative_to(folder)
        except (OSError, ValueError, RuntimeError):
            raise InputError(f"{where}: {shown(source)} is not a valid file name") from None
        if (outside or Path(source).is_absolute()) and not self.allow_outside:
            raise InputError(
                f"{where}: {shown(source)} is outside the folder of the problem file; move it there, or use "
                "--allow-outside"
            )
        return path


def _missing(table: Table) -> tuple[str, Sequence[float] | None]:
    """What to do with missing readings, and the numbers that stand for them, if these are stated."""
    wanted = "'error', 'drop', or a list of the numbers that stand for a missing reading, such as [-999]"
    given = table.take("missing", (str, list, int, float), wanted, "error")
    if given in ("error", "drop"):
        return given, None
    codes = given if isinstance(given, list) else [given]
    if not all(isinstance(code, int | float) and not isinstance(code, bool) for code in codes):
        raise InputError(f"{table.at('missing')}: expected {wanted}, got {shown(given)}")
    return "drop" if codes else "error", codes


def _fixed(table: Table) -> set[str]:
    """The coordinates whose positions a measurement fixes."""
    found = {table.content["periodic"]} if isinstance(table.content.get("periodic"), str) else set()
    for key in ("average", "integral"):
        found |= set(table.content[key]) if isinstance(table.content.get(key), dict) else set()
    places = table.content.get("difference")
    at = places.get("at") if isinstance(places, dict) else None
    return found | (set(at) if isinstance(at, dict) else set())


def _position_names(table: Table) -> set[str]:
    """The texts among the positions of averages, integrals and differences."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from texts(inner)

    return {text for key in POSITIONED if key in table.content for text in texts(table.content[key])}


def _quoted(header: Any) -> str:
    return json.dumps(header, ensure_ascii=False)  # the quotes and escapes of TOML
