"""The runs of a sweep: one for each combination of what varies, and each seed."""

import itertools
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpinn.errors import InputError
from bpinn.problem_file import read_problem, read_toml
from bpinn.problem_file.data import DataReader
from bpinn.problem_file.rows import chosen, groups, read_where
from bpinn.problem_file.toml_table import Table

DATA = "data"  # stands for the data file of all sensors
WHERE = "where."  # and this, for the groups of rows that sensors read
PATTERN = re.compile(r"[*?\[]")
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Member:
    """One run: its name, which is that of its folder, its values of what varies, its seed, and changes of the file."""

    name: str
    values: tuple[str, ...]
    seed: int
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep; ``keys`` are what varies."""

    path: Path
    title: str
    keys: tuple[str, ...]
    members: tuple[Member, ...]


def plan(path: Path, over: Sequence[str], seeds: int, changes: Sequence[str], allow_outside: bool) -> Plan:
    """Read what varies; every combination is checked as a problem file before anything runs."""
    path, content = read_toml(path)
    columns = {one.partition("=")[0].strip().removeprefix(WHERE).strip() for one in over}
    variations = [_variation(one, path, content, allow_outside, columns) for one in over]
    keys = tuple(key for key, _ in variations)
    if len(set(keys)) < len(keys):
        raise InputError(f"--over: {max(keys, key=keys.count)!r} is given twice; list its values in one option")
    found: list[Member] = []
    first = None
    for together in itertools.product(*(values for _, values in variations)):
        said = [*changes, *(change for value in together for change in value.changes)]
        file = read_problem(path, said, allow_outside=allow_outside)
        first = file if first is None else first
        if set(file.problem.unknowns) != set(first.problem.unknowns):
            raise InputError("--over: the unknowns must be the same in all runs")
        label = "_".join(value.label for value in together) or "run"
        for seed in range(file.seed, file.seed + seeds):
            values = tuple(value.label for value in together)
            found.append(Member(f"{label}-seed-{seed}", values, seed, (*said, f"inference.seed={seed}")))
            if len(found) > MOST_RUNS:
                raise InputError(f"sweep: more than {MOST_RUNS:,} runs; sweep over fewer values or seeds")
    assert first is not None
    return Plan(path, first.title, keys, tuple(found))


@dataclass(frozen=True)
class _Value:
    label: str
    changes: tuple[str, ...]


def _variation(
    text: str, path: Path, content: dict[str, Any], allow_outside: bool, columns: set[str]
) -> tuple[str, list[_Value]]:
    key, equals, given = (part.strip() for part in text.partition("="))
    if not equals or not key or not given:
        raise InputError(f'--over {text}: expected KEY=VALUES, such as "data=*.csv" or "sensors.0.noise=0.1,0.2"')
    if key.startswith(WHERE):
        return key, _groups(text, key.removeprefix(WHERE).strip(), given, path, content, allow_outside, columns)
    targets = _data_keys(text, content) if key == DATA else [key]
    values = _files(text, given, path) if PATTERN.search(given) and not given.startswith("[") else _listed(given)
    labels = _labels(values)
    return key, [
        _Value(label, tuple(f"{target}={value}" for target in targets))
        for label, value in zip(labels, values, strict=True)
    ]


def _groups(
    text: str, column: str, given: str, path: Path, content: dict[str, Any], allow_outside: bool, columns: set[str]
) -> list[_Value]:
    """Rows with each value of a column, in all sensors that read some of its values.

    `*` is each value that all of them have in the rows that their other conditions choose; ``columns`` are swept, too.
    """
    rows = content["sensors"] if isinstance(content.get("sensors"), list) else []
    found = {
        i: row
        for i, row in enumerate(rows)
        if isinstance(row, dict) and isinstance(row.get("where"), dict) and column in row["where"]
    }
    if not found:
        raise InputError(
            f"--over {text}: no [[sensors]] of the file has where = {{ {json.dumps(column)} = ... }}; add it to those "
            "that vary"
        )
    values = [part.strip("\"'") for part in _listed(given)]
    if given == "*":
        reader, of_each = DataReader(path.parent, allow_outside, {}), []
        for i, row in found.items():
            of_file = {k: v for k, v in row.items() if k in ("data", "sheet", "encoding")}
            others = {"where": {c: v for c, v in row["where"].items() if c != column and c not in columns}}
            wanted = read_where(Table(others, f"sensors.{i}")) if others["where"] else {}
            data = chosen(f"sensors.{i}.where", wanted, reader.open(Table(of_file, f"sensors.{i}")))
            of_each.append(groups(data.column(column)))
        values = [value for value in of_each[0] if all(value in own for own in of_each)]
        if not values:
            raise InputError(f"--over {text}: no value of {column!r} is in the files of all sensors that use it")
    said = [json.dumps(value, ensure_ascii=False) for value in values]
    return [
        _Value(name, tuple(f"sensors.{i}.where.{json.dumps(column)}={value}" for i in found))
        for name, value in zip(_labels(said), said, strict=True)
    ]


def _data_keys(text: str, content: dict[str, Any]) -> list[str]:
    """Keys of the data file, if all sensors with data read the same one."""
    sensors = content.get("sensors")
    rows = sensors if isinstance(sensors, list) else []
    named = {f"sensors.{i}.data": row["data"] for i, row in enumerate(rows) if isinstance(row, dict) and "data" in row}
    files = sorted({str(file) for file in named.values()})
    if not named:
        raise InputError(f"--over {text}: no [[sensors]] of the file has data; name a key, such as sensors.0.values")
    if len(files) > 1:
        each = ", ".join(f"{key} ({file})" for key, file in named.items())
        raise InputError(f"--over {text}: its sensors read different files; name the key that varies: {each}")
    return list(named)


def _files(text: str, pattern: str, path: Path) -> list[str]:
    root = path.parent
    given = Path(pattern)
    if given.is_absolute():
        found = [str(file) for file in Path(given.anchor).glob(str(given.relative_to(given.anchor)))]
    else:
        found = [str(file.relative_to(root)) for file in root.glob(pattern) if file.is_file()]
    if not found:
        raise InputError(f"--over {text}: no file in {root or '.'} matches {pattern!r}")
    return [f'"{name}"' for name in sorted(found, key=_natural)]


def _natural(name: str) -> list[Any]:
    """Sort cup-2 before cup-10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _listed(given: str) -> list[str]:
    try:
        tomllib.loads(f"value = [{given}]")
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in given.split(",") if part.strip()]
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(given):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append(given[begin:at].strip())
            begin = at + 1
    return [part for part in [*parts, given[begin:].strip()] if part]


def _labels(values: Sequence[str]) -> list[str]:
    """Short names that can be names of folders: of files their stems, if those differ."""
    plain = [value.strip('"') for value in values]
    stems = [Path(value).stem if value.startswith('"') else value for value in values]
    chosen = stems if len(set(stems)) == len(stems) else plain
    safe = [re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "value" for name in chosen]
    if len({name.lower() for name in safe}) < len(safe):
        safe = [f"{number}-{name}" for number, name in enumerate(safe, 1)]
    return safe
