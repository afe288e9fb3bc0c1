"""Numbers in text cells: decimal points or commas, thousands separators, and the many ways to say "missing"."""

import math
import re
from collections.abc import Sequence

import numpy as np

MISSING = frozenset(
    ("", "-", "--", "---", "?", ".", "na", "n/a", "n.a.", "nan", "null", "none", "nil", "missing", "nd", "n.d.", "#n/a",
     "#na", "#value!", "#div/0!", "#num!", "#ref!", "#null!", "#name?", "1.#qnan", "-1.#ind")
)  # fmt: skip
AWAY = 3.0  # times the range of the readings, between them and a code for a missing one
LONGEST = 64  # characters of a number or a timestamp
POWER = r"(?:[eEdD][+-]?\d+)?"
PLAIN = re.compile(rf"[+-]?(?:\d+\.?\d*|\.\d+){POWER}")
COMMA = re.compile(rf"[+-]?(?:\d+,\d*|,\d+){POWER}")
GROUPED = {  # thousands separators that cannot be read in another way
    ",": re.compile(r"[+-]?\d{1,3}(?:(?:,\d{3}){2,}|(?:,\d{3})+\.\d*)"),
    ".": re.compile(r"[+-]?\d{1,3}(?:(?:\.\d{3}){2,}|(?:\.\d{3})+,\d*)"),
}
COULD_BE_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
LIMIT = re.compile(r"([<>])\s*=?\s*[+-]?[\d.,]+")
NUMBER_AND_UNIT = re.compile(r"[+-]?\d[\d.,]*\s*[^\d\s.,:/-]\S*")


class WrongCell(Exception):
    """A cell that cannot be used: its row, counted from 0, and the reason."""

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row, self.reason = row, reason


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no reading."""
    return cell.strip().lower() in MISSING


def is_number(cell: str) -> bool:
    """Whether a cell can be read as a number, with a decimal point or a decimal comma."""
    cell = _plain(cell)
    return len(cell) <= LONGEST and any(p.fullmatch(cell) for p in (PLAIN, COMMA, *GROUPED.values()))


def decimal_sign(cell: str) -> str:
    """The decimal sign of a number: "." or ",", or "" if it cannot be told."""
    cell = _plain(cell)
    for sign, other in (",.", ".,"):
        if GROUPED[other].fullmatch(cell) and sign in cell:
            return sign
    if COULD_BE_GROUPED.fullmatch(cell) or not is_number(cell):
        return ""
    return next((sign for sign in ".," if cell.count(sign) == 1), "")


def to_numbers(cells: Sequence[str], decimal_elsewhere: str = "") -> np.ndarray:
    """The numbers in the cells, NaN where a cell is missing; `WrongCell` for anything else.

    ``decimal_elsewhere`` is the decimal sign of the other columns, if it is known. It says whether 1,234 can be trusted
    to be a little more than one.

    Example:
        >>> from bpinn.data_files.numbers import to_numbers
        >>> to_numbers(["1,5", "-", "2e3"])
        array([1.5e+00,     nan, 2.0e+03])
    """
    found = np.full(len(cells), np.nan)
    first: dict[str, int] = {}  # the first row with each decimal sign
    in_doubt: dict[str, int] = {}  # the first row in which the sign could separate thousands
    for row, cell in enumerate(cells):
        cell = _plain(cell)
        if cell.lower() in MISSING:
            continue
        if len(cell) > LONGEST:
            raise WrongCell(row, f"{cell[:40]!r}... is not a number")
        sign = "." if PLAIN.fullmatch(cell) else "," if COMMA.fullmatch(cell) else ""
        if sign:
            text = cell.replace(",", ".")
            if sign in cell:
                (in_doubt if COULD_BE_GROUPED.fullmatch(cell) else first).setdefault(sign, row)
        elif GROUPED[","].fullmatch(cell):
            text = cell.replace(",", "")
            first.setdefault(".", row)
        elif GROUPED["."].fullmatch(cell):
            text = cell.replace(".", "").replace(",", ".")
            first.setdefault(",", row)
        else:
            raise WrongCell(row, f"{cell[:40]!r} is not a number{_hint(cell)}")
        found[row] = float(text.replace("d", "e").replace("D", "e"))
        if not math.isfinite(found[row]):
            raise WrongCell(row, f"{cell[:40]!r} is not a finite number")
    _check_signs(cells, first, in_doubt, decimal_elsewhere)
    return found


def codes_for_missing(values: np.ndarray) -> list[float]:
    """The values that probably stand for missing readings: 999 and the like, far away from all others.

    Example:
        >>> from bpinn.data_files.numbers import codes_for_missing
        >>> codes_for_missing(np.array([20.5, -999.0, 21.0, 22.5]))
        [-999.0]
    """
    known = values[np.isfinite(values)]
    like_codes = [v for v in np.unique(known) if re.fullmatch(r"-?99+(\.9+)?", f"{v:.12g}")]
    rest = known[~np.isin(known, like_codes)]
    if 2 * rest.size <= known.size:
        return []
    return [float(v) for v in like_codes if np.min(np.abs(rest - v)) > AWAY * np.ptp(rest)]


def _check_signs(cells: Sequence[str], first: dict[str, int], in_doubt: dict[str, int], elsewhere: str) -> None:
    """Refuse a column that uses both decimal signs, and 1,234 where other numbers have decimal points."""
    seen = {**in_doubt, **first}
    if len(seen) > 1:
        a, b = sorted(seen.values())
        raise WrongCell(b, f"{cells[b]!r} after {cells[a]!r}: decimal points and commas; use one of them throughout")
    for sign, row in in_doubt.items():
        if not first and elsewhere not in ("", sign):
            whole = cells[row].replace(sign, "")
            part = cells[row].replace(",", ".")
            others, without = ("points", "comma") if elsewhere == "." else ("commas", "point")
            raise WrongCell(
                row,
                f"{cells[row]!r} could be {part} or {whole}, as other columns have decimal {others}; "
                f"write it without the {without}",
            )


def _plain(cell: str) -> str:
    return cell.strip().replace("−", "-").replace("\u00a0", "").replace("\u202f", "")


def _hint(cell: str) -> str:
    limit = LIMIT.fullmatch(cell)
    if limit:
        side = "below" if limit[1] == "<" else "above"
        return (
            f"; for a limit of detection write the limit itself, and likelihood = {{ kind = 'censored', {side} = ... }}"
        )
    if NUMBER_AND_UNIT.fullmatch(cell):
        return "; move units to the column's name, such as T [K]"
    return ""
