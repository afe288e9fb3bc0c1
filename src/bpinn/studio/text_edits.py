"""Edits of a problem file that keep its comments and layout, and the line that a message is about."""

import re
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from bpinn.errors import InputError

AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")
WHERE = re.compile(r"^[^:]*: (?P<where>\w[\w.]*)[:,. ]")
HEADER = re.compile(r"^\s*(?P<open>\[\[?)\s*(?P<name>[\w.\s\"'-]+?)\s*\]\]?\s*(#.*)?$")
DEEPEST = 8
REMOVE, RENAME, SET = "remove", "rename", "set"


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """The text after edits: each sets, removes or renames the key at a path of names and numbers.

    A number that is the length of its list appends to it.
    """
    try:
        document = tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise InputError(f"problem.toml: not valid TOML: {error}; fix it in the text first") from None
    for one in edits:
        try:
            path, kind = one["path"], one["do"]
            right = isinstance(path, list) and 0 < len(path) <= DEEPEST
            if not right or not all(isinstance(key, str | int) and not isinstance(key, bool) for key in path):
                raise TypeError(path)
            _apply(document, path, kind, one.get("value"))
        except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"edit {str(one)[:200]}: cannot be applied to this file ({error})") from None
    return tomlkit.dumps(document)


def _apply(document: Any, path: list[Any], kind: str, value: Any) -> None:
    *parents, last = path
    inner: Any = document
    for depth, key in enumerate(parents):
        if isinstance(key, str) and key not in inner:
            nested = depth == 0 and isinstance(path[depth + 1], str)
            inner[key] = tomlkit.table(is_super_table=key == "fields") if nested else tomlkit.aot()
        inner = inner[key]
    if kind == REMOVE:
        del inner[last]
        if parents and isinstance(inner, AoT) and not len(inner):
            del document[parents[0]]  # an empty list of tables has no text
        return
    if kind == RENAME:
        _rename(inner, str(last), str(value))
        return
    if kind != SET:
        raise ValueError(f"{kind} is none of set, remove, rename")
    own = len(path) == 2 and (path[0] == "fields" or isinstance(last, int))  # a table with a header of its own
    item = tomlkit.item(value) if not isinstance(value, dict) else _table(value, inline=not own)
    if isinstance(inner, list) and last == len(inner):
        inner.append(item)
    else:
        inner[last] = item


def _table(content: dict[str, Any], inline: bool) -> Any:
    table = tomlkit.inline_table() if inline else tomlkit.table()
    for key, value in content.items():
        table[key] = _table(value, True) if isinstance(value, dict) else value
    return table


def _rename(table: Any, old: str, new: str) -> None:
    if new in table:
        raise ValueError(f"{new} already exists")
    if not re.fullmatch(r"[A-Za-z_]\w{0,40}", new):
        raise ValueError(f"{new!r} is not a name: letters, digits and _")
    content = [(key, table[key]) for key in table]  # order matters to the reader
    for key, _ in content:
        del table[key]
    for key, value in content:
        table[new if key == old else key] = value


def flattened(content: Any, prefix: str = "") -> dict[str, Any]:
    """Values by their whole key, such as sensors.0.noise; lists of plain values stay whole."""
    if isinstance(content, dict):
        pairs = list(content.items())
    elif isinstance(content, list) and any(isinstance(one, dict) for one in content):
        pairs = list(enumerate(content))
    else:
        return {prefix: content}
    found: dict[str, Any] = {}
    for key, value in pairs:
        found |= flattened(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def line_of(text: str, message: str) -> int | None:
    """The line, from 1, that a message of `bpinn check` is about, if it can be told."""
    at = AT_LINE.search(message)
    if at:
        return int(at[1])
    where = WHERE.match(message)
    if not where:
        return None
    wanted = where["where"].rstrip(".").split(".")
    place = [""]  # the table that a line is in
    counts: dict[str, int] = {}  # how often each list of tables came
    deepest, best = 0, None
    for number, line in enumerate(text.splitlines(), 1):
        header = HEADER.match(line)
        if header:
            name = [part.strip().strip("\"'") for part in header["name"].split(".")]
            if header["open"] == "[[":
                counts[header["name"]] = counts.get(header["name"], -1) + 1
                name.append(str(counts[header["name"]]))
            place, key = name, name
        else:
            found = re.match(r"\s*[\"']?([\w-]+)[\"']?\s*=", line)
            if not found:
                continue
            key = [part for part in place if part] + [found[1]]
        if key == wanted[: len(key)] and len(key) > deepest:
            deepest, best = len(key), number
    return best
