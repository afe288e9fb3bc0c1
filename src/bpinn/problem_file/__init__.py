"""Read problem files: from TOML and data files to a `Problem` and a method."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bpinn.choosing import default_method
from bpinn.errors import InputError
from bpinn.expressions import PLACEHOLDER, Expression, parse
from bpinn.measurements import Quantity, terms_of
from bpinn.methods import Method
from bpinn.problem import Problem
from bpinn.problem_file.data import DataReader
from bpinn.problem_file.sensors import SensorReader
from bpinn.problem_file.settings import read_field, read_inference, read_prior
from bpinn.problem_file.toml_table import Table, did_you_mean, finite, number, shown
from bpinn.quantities import Names, Partial
from bpinn.run_folder.manifest import MANIFEST

LARGEST = 2**20  # bytes of a problem file
HIGHEST_ORDER = 8
PROBLEM = "problem.toml"
DATA_SUFFIXES = (".csv", ".tsv", ".dat", ".xlsx", ".xlsm", ".npz", ".parquet")


@dataclass(frozen=True)
class ProblemFile:
    """The content of a problem file: the problem, the method, and the texts for reports.

    ``stated`` is the method if the file has one.
    """

    path: Path
    title: str
    problem: Problem
    stated: Method | None
    seed: int
    chains: int | None
    equations: dict[str, Expression]
    truth: dict[str, Expression] = field(default_factory=dict)
    sources: tuple[str, ...] = ()  # data files, relative to the problem file
    origins: dict[str, str] = field(default_factory=dict)  # data file of each group of sensors, by its name
    notes: tuple[str, ...] = ()  # what was skipped, dropped or converted in data files, as sentences

    @property
    def method(self) -> Method:
        return self.stated or default_method(self.problem)


def read_problem(
    path: str | Path,
    changes: Sequence[str] = (),
    *,
    allow_outside: bool = False,
    renamed: Mapping[str, str] | None = None,
    text: str | None = None,
) -> ProblemFile:
    """Read a problem file and its data files.

    Arguments:
        path: the TOML file.
        changes: key=value texts such as "inference.chains=2", each of which sets a key.
        allow_outside: allow data files outside the folder of the problem file.
        renamed: actual paths of data files by their name in the file, where they differ, as in the folder of a run.
        text: the content of the file, if it is not the one on disk.
    """
    path, content = read_toml(Path(path)) if text is None else (Path(path), parse_toml(text, Path(path)))
    for change in changes:
        _change(content, change)
    try:
        return _FileReader(path, content, allow_outside, renamed or {}).read()
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None


def read_toml(path: Path) -> tuple[Path, dict[str, Any]]:
    """The problem file that a path names, or the one in a folder, and its tables as they are."""
    path = _file_in(path)
    return path, _load(path)


def _file_in(path: Path) -> Path:
    """The problem file: the path itself, or the one in a folder."""
    if not path.is_dir():
        return path
    if (path / MANIFEST).is_file():
        raise InputError(
            f"{path}: the folder of a run, not of a problem; `bpinn resume {path}` continues it or shows its result; "
            f"its problem file is in {path / 'problem'}"
        )
    found = [path / PROBLEM] if (path / PROBLEM).is_file() else sorted(path.glob("*.toml"))
    if len(found) != 1:
        listed = f"it has {', '.join(one.name for one in found)}; name one of them" if found else "it has no .toml file"
        raise InputError(f"{path}: a folder, and {listed}")
    return found[0]


def _load(path: Path) -> dict[str, Any]:
    try:
        if path.suffix.lower() in DATA_SUFFIXES:
            raise InputError(
                f"{path}: a data file, not a problem file; `bpinn new NAME --from {path}` drafts one for it"
            )
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; `bpinn new NAME` creates one from a template")
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path}: larger than {LARGEST // 2**20} MiB; move the readings to data files")
        return parse_toml(path.read_bytes().decode(), path)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start + 1} is not UTF-8 text") from None


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The tables of a problem file; ``path`` is its name in messages."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    except (RecursionError, ValueError):  # deeply nested tables; numbers with thousands of digits
        raise InputError(f"{path}: cannot be parsed as TOML: nested too deeply, or a number is too long") from None


DOTS = re.compile(r'\.(?=(?:[^"]*"[^"]*")*[^"]*$)')  # those that are not in quotes


def _change(content: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    names = [name.strip().strip('"') for name in DOTS.split(key)]
    if not equals or not all(names):
        raise InputError(f"--set {change}: expected key=value, such as inference.chains=2")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        value = text.strip()  # a string without quotes
    table: Any = content
    for name in names[:-1]:
        if isinstance(table, list):
            if not name.isdigit() or int(name) >= len(table):
                raise InputError(f"--set {change}: {name!r} is not a number from 0 to {len(table) - 1}")
            table = table[int(name)]
        else:
            table = table.setdefault(name, {})
        if not isinstance(table, dict | list):
            raise InputError(f"--set {change}: {name!r} is a value, not a table")
    if isinstance(table, list):
        raise InputError(f"--set {change}: name a key in one of its {len(table)} tables, such as sensors.0.noise")
    table[names[-1]] = value


TABLES = ("title", "domain", "fields", "unknowns", "equations", "sensors", "physics", "time", "truth", "inference")


class _FileReader:
    def __init__(self, path: Path, content: dict[str, Any], allow_outside: bool, renamed: Mapping[str, str]):
        self.path, self.content, self.allow_outside, self.renamed = path, content, allow_outside, renamed

    def read(self) -> ProblemFile:
        top = Table(self.content, "")
        top.end(coming=TABLES)  # a misspelt table is reported before what it should have stated is missed
        title = top.text("title", self.path.stem)
        self.domain = self.read_domain(Table(top.table("domain"), "domain"))
        self.fields = self.each(top.table("fields"), "fields", lambda table: read_field(table, self.domain))
        unknowns = self.each(top.table("unknowns", {}), "unknowns", read_prior)
        inputs = {name: f.inputs or tuple(self.domain) for name, f in self.fields.items()}
        self.names = Names(self.domain, inputs, tuple(unknowns))
        equations = Table(top.table("equations", {}), "equations")
        self.equations: dict[str, Expression] = {}
        self.equations = {name: self.formula(equations.text(name), equations.at(name)) for name in [*equations.content]}
        for name in self.equations:
            if name in self.fields or name in unknowns or name in self.domain:
                raise InputError(f"equations.{name}: this name is already taken; rename the equation")
        data = DataReader(self.path.parent, self.allow_outside, self.domain, self.renamed)
        reader = SensorReader(data, self.domain, self.equations, self.is_measurable, self.formula, self.needed)
        given = top.take("sensors", (list,), "tables that start with [[sensors]]", [])
        data.read_time(Table(top.table("time", {}), "time"), given)
        sensors = reader.read(given)
        sensors |= reader.read_physics(top.take("physics", (list,), "tables that start with [[physics]]", []), sensors)
        truth = self.read_truth(Table(top.table("truth", {}), "truth"), [*self.fields, *unknowns])
        inference = Table(top.table("inference", {}), "inference")
        problem = Problem(self.domain, self.fields, sensors, unknowns)
        method, seed, chains = read_inference(inference, problem)
        problem.check_used()
        if method is not None:
            method.check(problem)
        sources = tuple(dict.fromkeys(reader.origins.values()))
        return ProblemFile(
            self.path, title, problem, method, seed, chains, self.equations, truth, sources, reader.origins,
            tuple(data.notes),
        )  # fmt: skip

    def each(self, content: dict[str, Any], where: str, read: Callable[[Table], Any]) -> dict[str, Any]:
        found = {}
        for name, inner in content.items():
            table = Table(inner, f"{where}.{name}")
            found[name] = read(table)
            table.end()
        return found

    def read_domain(self, table: Table) -> dict[str, tuple[float, float]]:
        domain = {}
        for name in [*table.content]:
            bounds = table.take(name, (list,), "two numbers [low, high]")
            if len(bounds) != 2:
                raise InputError(f"{table.at(name)}: expected two numbers [low, high], got {shown(bounds)}")
            low, high = (number(b, table.at(name)) for b in bounds)
            if not low < high:
                raise InputError(f"{table.at(name)}: the low bound {low:g} is not below the high one {high:g}")
            domain[name] = (float(low), float(high))
        if not domain:
            raise InputError("domain: no coordinates; give at least one, such as x = [0.0, 1.0]")
        return domain

    # --- formulas ---

    def is_name(self, name: str) -> bool:
        try:
            found = self.names.resolve(name, "")
        except InputError:
            return False
        return not isinstance(found, Partial) or sum(found.orders) <= HIGHEST_ORDER

    def is_measurable(self, name: str) -> bool:
        """A field or a derivative."""
        return self.is_name(name) and isinstance(self.names.resolve(name, ""), Partial)

    def needed(self, quantity: Quantity) -> list[str]:
        """The coordinates that a quantity depends on."""
        (term, *_) = terms_of(quantity, self.names, "")
        return [*self.names.coordinates_of(term.equation)]

    def formula(self, text: str, where: str) -> Expression:
        if text.strip() == PLACEHOLDER:
            raise InputError(
                f"{where}: the equation is not filled in yet; write a formula that is zero "
                f"({self.names.known()}), or remove it and its [[physics]] for a curve without an equation"
            )
        near = [*self.fields, *self.names.unknowns, *self.domain, *self.equations]
        known = f"{self.names.known()}; a number that is unknown needs a prior in [unknowns]"
        return parse(text, self.is_name, where, near, known)

    def read_truth(self, table: Table, known: list[str]) -> dict[str, Expression]:
        truth = {}
        for name in [*table.content]:
            if name not in known and name not in self.equations:
                raise InputError(f"{table.at(name)}: not a field, an equation or an unknown{did_you_mean(name, known)}")
            value = table.take(name, (int, float, str), "a number, or a formula in the coordinates")
            text = value if isinstance(value, str) else repr(float(finite(value, table.at(name))))
            truth[name] = parse(text, self.domain, table.at(name))
        return truth
