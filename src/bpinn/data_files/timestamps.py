"""Timestamps in text cells: ISO dates, day-first and month-first ones where they can be told apart, times of day."""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bpinn.data_files.numbers import LONGEST, WrongCell, is_missing

ORDERS = ("day-first", "month-first", "year-first")
UNITS = {
    "milliseconds": 1e-3, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0,
    "years": 31557600.0,
}  # fmt: skip
SHORT = {
    "ms": "milliseconds",
    "s": "seconds",
    "sec": "seconds",
    "min": "minutes",
    "h": "hours",
    "hr": "hours",
    "d": "days",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FULL_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
               "november", "december")  # fmt: skip
KINDS = {
    "date": "dates without a time zone", "zoned": "dates with a time zone", "clock": "times of day without a date",
}  # fmt: skip

SECOND = r"(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?"
TIME = rf"(?P<hour>\d{{1,3}}):(?P<minute>\d{{2}})(?::{SECOND})?(?:\s*(?P<half>[AaPp]\.?[Mm]\.?))?"
ZONE = r"(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?))?"
DATES = (
    r"(?P<y>\d{4})(?P<sign>[-/.])(?P<m>\d{1,2})(?P=sign)(?P<d>\d{1,2})",
    r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})(?=[T ])",
    r"(?P<a>\d{1,2})(?P<sign>[-/.])(?P<b>\d{1,2})(?P=sign)(?P<c>\d{4}|\d{2})",
    r"(?P<d>\d{1,2})[-/. ]?(?P<month>[A-Za-z]{3,9})[-/., ]+(?P<y>\d{4})",
    r"(?P<month>[A-Za-z]{3,9})\.? (?P<d>\d{1,2}),? (?P<y>\d{4})",
)
PATTERNS = tuple(re.compile(rf"{date}(?:(?:[T ]|,)\s*{TIME}{ZONE})?") for date in DATES)
CLOCK = re.compile(TIME)


@dataclass(frozen=True)
class Moments:
    """Microseconds since 1970, or since midnight if there is no date; ``missing`` says which are not known."""

    micros: np.ndarray
    missing: np.ndarray
    kind: str  # one of KINDS

    @property
    def earliest(self) -> int:
        return int(self.micros[~self.missing].min())


@dataclass(frozen=True)
class Clock:
    """How timestamps become numbers: the ``unit`` since ``start``.

    Example:
        >>> from bpinn.data_files.timestamps import Clock, read_moments
        >>> clock = Clock.from_start("2024-03-01 08:00", "hours")
        >>> clock.numbers(read_moments(["2024-03-01 09:30", "2.3.2024 8:00"]))
        array([ 1.5, 24. ])
        >>> print(clock)
        hours since 2024-03-01 08:00:00
    """

    unit: str
    start: int
    kind: str

    @classmethod
    def from_start(cls, start: str, unit: str, order: str | None = None) -> "Clock":
        found = read_moments([start], order)
        return cls(unit, found.earliest, found.kind)

    def numbers(self, moments: Moments) -> np.ndarray:
        """The moments in the unit since the start; NaN where they are missing."""
        found = (moments.micros - self.start) / (1e6 * UNITS[self.unit])
        return np.where(moments.missing, np.nan, found)

    def __str__(self) -> str:
        return f"{self.unit} since {shown(self.start, self.kind)}"


def shown(micros: int, kind: str) -> str:
    """A moment as text that `read_moments` reads."""
    if kind == "clock":
        seconds, part = divmod(micros, 10**6)
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return text + (f".{part:06d}".rstrip("0") if part else "")
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
    text = moment.isoformat(" ")
    return (text.rstrip("0") if moment.microsecond else text) + ("Z" if kind == "zoned" else "")


def is_timestamp(cell: str) -> bool:
    """Whether a cell has the form of a date or a time of day."""
    cell = cell.strip()
    if len(cell) > LONGEST:
        return False
    if CLOCK.fullmatch(cell):
        return True
    found = next((f for f in (p.fullmatch(cell) for p in PATTERNS) if f), None)
    return found is not None and ("month" not in found.groupdict() or _month(found["month"]) is not None)


def has_time_of_day(cell: str) -> bool:
    """Whether a timestamp is more than a date."""
    return ":" in cell


def has_date(cell: str) -> bool:
    """Whether a timestamp is more than a time of day."""
    return not CLOCK.fullmatch(cell.strip())


def read_moments(cells: Sequence[str], order: str | None = None) -> Moments:
    """The moments in the cells of a column; `WrongCell` if one is none, or if day and month cannot be told apart.

    ``order`` is one of `ORDERS`; by default it is the one in which every cell is a date.
    """
    alive = list(ORDERS) if order is None else [order]
    micros = {o: np.zeros(len(cells), np.int64) for o in alive}
    missing = np.zeros(len(cells), bool)
    kind, before = "", -1
    for row, cell in enumerate(map(str.strip, cells)):
        if is_missing(cell):
            missing[row] = True
            continue
        read = {o: found for o, found in _readings(cell, row) if o in alive}
        if not read:
            raise WrongCell(row, f"{cell[:40]!r} is not a date or time of day" + _in_order(order, alive))
        alive = [o for o in alive if o in read]
        this = read[alive[0]][1]
        if kind and this != kind:
            raise WrongCell(row, f"{cell[:40]!r}: {KINDS[this]} after {KINDS[kind]}; write all in the same way")
        kind = this
        for o in alive:
            micros[o][row] = read[o][0]
        if kind == "clock":
            now = read[alive[0]][0]
            if now < before:
                raise WrongCell(row, f"{cell[:40]!r} is before the time above it; add the date to times past midnight")
            before = now
    for other in alive[1:]:
        differs = np.flatnonzero(micros[alive[0]] != micros[other])
        if len(differs):
            row = int(differs[0])
            both = f"{_day(micros[alive[0]][row])} or {_day(micros[other][row])}"
            write = " or ".join(f'dates = "{o}"' for o in alive)
            raise WrongCell(row, f"{cells[row].strip()[:40]!r} could be {both}; write {write} in [time]")
    return Moments(micros[alive[0]], missing, kind or "date")


def _in_order(order: str | None, alive: list[str]) -> str:
    if order is not None:
        return f" ({order})"
    return f" ({alive[0]}, as the dates above it)" if len(alive) < len(ORDERS) else ""


def _day(micros: int) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=int(micros))
    return f"{moment.day} {FULL_MONTHS[moment.month - 1].capitalize()} {moment.year}"


def _month(word: str) -> int | None:
    word = word.lower().rstrip(".")
    if word in FULL_MONTHS:
        return FULL_MONTHS.index(word) + 1
    short = word[:3] if word == "sept" else word
    return MONTHS.index(short) + 1 if short in MONTHS else None


def _readings(cell: str, row: int) -> Iterator[tuple[str, tuple[int, str]]]:
    """Each order of day, month and year in which a cell is a moment, with its microseconds and kind."""
    if len(cell) > LONGEST:
        return
    clock = CLOCK.fullmatch(cell)
    if clock:
        micros = _micros_of_day(clock, most_hours=1000)
        if micros is not None:
            yield from ((order, (micros, "clock")) for order in ORDERS)
        return
    found = next((f for f in (p.fullmatch(cell) for p in PATTERNS) if f), None)
    if found is None:
        return
    for order, (year, month, day) in _dates(found):
        try:
            date = datetime.date(year, month, day)
        except ValueError:
            continue
        micros = _micros_of_day(found, most_hours=24) if found["hour"] else 0
        if micros is None:
            return
        zone = found["zone"]
        total = (date - datetime.date(1970, 1, 1)).days * 86_400_000_000 + micros
        if zone and zone[0] in "+-":
            digits = zone[1:].replace(":", "").ljust(4, "0")
            minutes = int(digits[:2]) * 60 + int(digits[2:])
            total -= (1 if zone[0] == "+" else -1) * minutes * 60_000_000
        yield order, (total, "zoned" if zone else "date")


def _dates(found: re.Match[str]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    parts = found.groupdict()
    if "a" not in parts:
        month = _month(parts["month"]) if "month" in parts else int(parts["m"])
        yield from ((order, (int(parts["y"]), month or 0, int(parts["d"]))) for order in ORDERS)
        return
    a, b, c = int(parts["a"]), int(parts["b"]), int(parts["c"])
    short = len(parts["c"]) == 2
    yield "day-first", (c + 2000 * short, b, a)
    if parts["sign"] == ".":  # always day-first
        yield "month-first", (c + 2000 * short, b, a)
        yield "year-first", (c + 2000 * short, b, a)
        return
    yield "month-first", (c + 2000 * short, a, b)
    if short:
        yield "year-first", (a + 2000, b, c)


def _micros_of_day(found: re.Match[str], most_hours: int) -> int | None:
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"][0] in "pP" else 0)
    if hour > most_hours or minute >= 60 or second >= 60 or (hour == most_hours and minute + second > 0):
        return None
    part = int((found["part"] or "").ljust(6, "0")[:6])
    return ((hour * 60 + minute) * 60 + second) * 10**6 + part
