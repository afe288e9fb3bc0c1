"""How formulas are written elsewhere (``u_t = k*u``, ``theta''``, ``d2u/dx2``, ``sin x``), and how they are here.

Nothing is accepted that way: the suggestions go into messages.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from functools import cache

SIGNS = {"−": "-", "–": "-", "·": "*", "×": "*", "⋅": "*", "÷": "/", "²": "**2", "³": "**3", "∂": "d", "π": "pi"}
NAME = r"[A-Za-z_]\w*"
LONGEST_WORD = 20  # looked at for derivatives without an underscore
ALONG = r"d\w+(?:\*\*\d)?"
DERIVATIVE = re.compile(rf"\bd(?:\*\*)?\d? ?({NAME}) ?/ ?(?:\(({ALONG}(?: {ALONG})*)\)|({ALONG}(?: {ALONG})*))")
PART = re.compile(r"d([A-Za-z_]\w*?)(?:\*\*)?(\d?)")
WORD = re.compile(rf"\b{NAME}\b(?! ?\()")
DOT = re.compile(rf"\b({NAME}?)_dot\b")
PRIMES = re.compile(rf"({NAME})('+|\u2032+|\u2033)")
SIZE = re.compile(r"\|([^|]+)\|")
NUMBER_TIMES = re.compile(r"(?<![\w.])(\d+\.?\d*) ?(?!e[+-]?\d)(?=[A-Za-z_(])")
BLANK_TIMES = re.compile(r"([\w.)]) (?=[\w(])")
CLOSED_TIMES = re.compile(r"\) ?(?=[A-Za-z_(])")
NAME_TIMES = re.compile(rf"\b({NAME})\((?! ?[\d.]+ ?\))")
WORDS = re.compile(NAME)
NOUGHT = re.compile(r"0\.?0*")
OTHER_NAMES = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "fabs": "abs"}


def rewritten(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    """A formula with the habits of other notations replaced, and what was wrong; nothing is wrong if it is as before.

    Example:
        >>> from bpinn.habits import rewritten
        >>> rewritten("du/dt = -k u", ["u", "k", "t", "u_t"].__contains__, ["sin"])
        ('u_t + k*u', 'a formula is the residual, without =; derivatives are written u_t; write * to multiply')
    """
    text, reasons = " ".join(text.split()), dict[str, None]()
    steps = (_signs, _powers, _derivatives, _primes, _functions, _products, _equals)
    for step in steps:
        after, why = step(text, is_name, functions)
        if after != text and why:
            reasons[why] = None
        text = after
    ordered = sorted(reasons, key=lambda why: not why.startswith("a formula"))
    return text, "; ".join(ordered)


def _signs(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    for sign, plain in SIGNS.items():
        text = text.replace(sign, plain)
    if text.isascii():
        return SIZE.sub(r"abs(\1)", text), "write plain signs"
    greek = "".join(
        unicodedata.name(letter).split()[-1].lower()
        if unicodedata.name(letter, "").startswith("GREEK SMALL LETTER")
        else letter
        for letter in text
    )
    return SIZE.sub(r"abs(\1)", greek), "write plain signs, and Greek letters by name"


def _powers(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    return text.replace("^", "**"), "write ** for a power"


def _derivatives(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    """``du/dt`` and ``d2u/dx2`` as ``u_t`` and ``u_xx``, where there are such names."""

    def replaced(found: re.Match[str]) -> str:
        field, parts = found[1].lstrip("0123456789"), (found[2] or found[3]).split()
        along = "".join(_along(part, is_name) for part in parts)
        name = f"{field}_{along}"
        return name if along and is_name(field) and is_name(name) else found[0]

    def with_underscore(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) > LONGEST_WORD or is_name(word) or word in functions:
            return word
        names = [f"{word[:i]}_{word[i:]}" for i in range(1, len(word))]
        return next(filter(is_name, names), word)

    after = WORD.sub(with_underscore, DERIVATIVE.sub(replaced, text))
    return after, f"derivatives are written {_first_difference(text, after)}"


def _along(part: str, is_name: Callable[[str], bool]) -> str:
    """The coordinates of ``dx2`` or ``dxdt``, each as often as it is meant; nothing if they are none."""
    found = PART.fullmatch(part)
    if found is None:
        return ""
    if is_name(found[1]):
        return found[1] * int(found[2] or 1)
    word = part[1:]
    both = ((word[:i], word[i + 1 :]) for i in range(1, min(len(word), LONGEST_WORD) - 1) if word[i] == "d")
    return next((a + b for a, b in both if is_name(a) and is_name(b)), "")


def _primes(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    """``theta''`` as ``theta_tt``; along another coordinate, if there is no t."""

    def replaced(found: re.Match[str]) -> str:
        count = 2 * found[2].count("\u2033") + len(found[2].replace("\u2033", ""))
        names = [f"{found[1]}_{c * count}" for c in "txyzrs" if is_name(c) and is_name(f"{found[1]}_{c * count}")]
        return names[0] if names else found[0]

    after = DOT.sub(r"\1'", text)
    after = PRIMES.sub(replaced, after)
    return after, f"derivatives are written with their coordinate, such as {_first_difference(text, after)}"


def _functions(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    for other, ours in OTHER_NAMES.items():
        if f"{other}(" in text and ours in functions and not is_name(other):
            return text.replace(f"{other}(", f"{ours}("), f"{other} is written {ours}"
    return _without_parentheses(tuple(functions)).sub(r"\1(\2)", text), "functions take parentheses"


@cache
def _without_parentheses(functions: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(functions)}) ({NAME}|\d[\d.]*)(?![\w.(])")


def _products(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    after = CLOSED_TIMES.sub(")*", BLANK_TIMES.sub(r"\1*", NUMBER_TIMES.sub(r"\1*", text)))

    def times(found: re.Match[str]) -> str:
        return f"{found[1]}*(" if found[1] not in functions and is_name(found[1]) else found[0]

    return NAME_TIMES.sub(times, after), "write * to multiply"


def _equals(text: str, is_name: Callable[[str], bool], functions: Collection[str]) -> tuple[str, str]:
    left, sign, right = text.replace("==", "=").partition("=")
    if not sign or "=" in right or not left.strip() or not right.strip():
        return text, ""
    left, right = left.strip(), right.strip()
    why = "a formula is the residual, without ="
    if NOUGHT.fullmatch(right):
        return left, why
    alone = not re.search(r"[+-]", re.sub(r"\([^()]*\)|[eE][+-]", "", right.removeprefix("-")))
    if right.startswith("-") and alone:
        return f"{left} + {right[1:].strip()}", why
    return f"{left} - {right if alone else f'({right})'}", why


def _first_difference(before: str, after: str) -> str:
    """The first word that is new."""
    old = set(WORDS.findall(before))
    return next((word for word in WORDS.findall(after) if word not in old), "u_t")
