"""Tables of a problem file: keys are read one by one, and every message names its key."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bpinn.errors import InputError

NEEDED = object()


class Table:
    """A table of the file: keys are removed as they are read, and any left at the end are errors."""

    def __init__(self, content: Any, where: str):
        if not isinstance(content, dict):
            raise InputError(f"{where}: expected a table of keys and values, got {shown(content)}")
        self.content, self.where, self.known = dict(content), where, set[str]()

    def at(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def take(self, key: str, kinds: tuple[type, ...], wanted: str, default: Any = NEEDED) -> Any:
        self.known.add(key)
        if key not in self.content:
            if default is NEEDED:
                raise InputError(f"{self.at(key)}: is missing; expected {wanted}")
            return default
        value = self.content.pop(key)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InputError(f"{self.at(key)}: expected {wanted}, got {shown(value)}")
        return value

    def number(self, key: str, default: Any = NEEDED) -> Any:
        value = self.take(key, (int, float), "a number", default)
        return value if value is default else finite(value, self.at(key))

    def text(self, key: str, default: Any = NEEDED, wanted: str = "text") -> Any:
        return self.take(key, (str,), wanted, default)

    def table(self, key: str, default: Any = NEEDED) -> Any:
        return self.take(key, (dict,), "a table", default)

    def choice(self, key: str, known: Iterable[str], default: Any = NEEDED) -> str:
        known = list(known)
        value = self.text(key, default, f"one of {', '.join(known)}")
        if value not in known:
            raise InputError(f"{self.at(key)}: {shown(value)} is not known{did_you_mean(value, known)}")
        return value

    def end(self, coming: Iterable[str] = ()) -> None:
        """Refuse keys that were not read; ``coming`` are those that will be."""
        self.known |= set(coming)
        for key in (key for key in self.content if key not in self.known):
            raise InputError(f"{self.at(key)}: this key is not known{did_you_mean(key, sorted(self.known))}")


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(word), known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; known names are {', '.join(known)}"


def finite(value: float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if not np.isfinite(number):
        raise InputError(f"{where}: expected a finite number, got {shown(value)}")
    return value if isinstance(value, int) else number


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: expected a number, got {shown(value)}")
    return finite(value, where)


def made(kind: Callable[..., Any], where: str, **settings: Any) -> Any:
    """Build a settings object; prefix its error messages with the table in the file."""
    try:
        return kind(**settings)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: a setting has the wrong type ({error})") from None
