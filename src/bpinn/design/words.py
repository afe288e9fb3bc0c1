"""What the program is told about the next reading, as text."""

from collections.abc import Sequence
from typing import Any

from bpinn.errors import InputError


def target(words: Sequence[str]) -> Any:
    """A target of `bp.next_sensor` from words: unknowns, a field, or 'u@x=0.5,t=1'.

    Example:
        >>> from bpinn.design.words import target
        >>> target(["k"]), target(["u@x=0.5,t=1"])
        (['k'], ('u', {'x': 0.5, 't': 1.0}))
    """
    if len(words) == 1 and "@" in words[0]:
        name, _, places = words[0].partition("@")
        return name, {c: _number(value, words[0]) for c, value in (_pair(part, words[0]) for part in places.split(","))}
    return list(words) or None


def noises(words: Sequence[str]) -> Any:
    """The noise of `bp.next_sensor` from words: '0.1', or 'u=0.1' for each of several.

    Example:
        >>> from bpinn.design.words import noises
        >>> noises(["0.1"]), noises(["u=0.1", "f=1"]), noises([])
        (0.1, {'u': 0.1, 'f': 1.0}, None)
    """
    if len(words) == 1 and "=" not in words[0]:
        return _number(words[0], words[0])
    return {name: _number(value, word) for word in words for name, value in (_pair(word, word),)} or None


def _pair(part: str, word: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals or not name.strip():
        raise InputError(f"{word!r}: expected NAME=NUMBER, got {part!r}")
    return name.strip(), value


def _number(value: str, word: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{word!r}: expected a number, got {value!r}") from None
