"""The sensors of a problem file: readings from data files or given in the file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.data_files import read_table
from bpinn.errors import InputError
from bpinn.expressions import Expression, parse
from bpinn.measurements import MEASUREMENTS, Average, Difference, Integral, Periodic, Quantity
from bpinn.physics import Physics
from bpinn.problem import Sensors
from bpinn.problem_file.settings import read_likelihood, read_prior
from bpinn.problem_file.toml_table import Table, did_you_mean, finite, made, number, shown

MOST_POINTS = 1_000_000


@dataclass
class SensorReader:
    """Reads the sensors of a problem file in ``folder``; ``origins`` has their data files, by name of the sensors."""

    folder: Path
    allow_outside: bool
    domain: Mapping[str, tuple[float, float]]
    equations: Mapping[str, Expression]
    is_measurable: Callable[[str], bool]
    formula: Callable[[str, str], Expression]
    renamed: Mapping[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def read_physics(self, given: Sequence[Any], taken: Mapping[str, Any]) -> dict[str, Physics]:
        """Equations that hold exactly."""
        found: dict[str, Physics] = {}
        for i, inner in enumerate(given):
            table = Table(inner, f"physics.{i}")
            text = table.text("equation", wanted="the name of an equation, or a formula that is zero")
            called = text if text in self.equations else f"physics_{i}"
            formula = self.equations[text] if text in self.equations else self.formula(text, table.at("equation"))
            name = table.text("name", called)
            if name in taken or name in found:
                raise InputError(f"{table.at('name')}: the name {name!r} is already taken; use another name")
            focus = table.table("focus", None)
            bounds = None
            if focus is not None:
                bounds = {c: self.read_window(ends, f"{table.at('focus')}.{c}", {}) for c, ends in focus.items()}
            points = table.take("points", (int,), "a whole number", None)
            formula_name = text if text in self.equations else self.free_name(name, called)
            found[name] = Physics(formula.function(formula_name), points, table.number("tolerance", None), bounds)
            table.end()
        return found

    def read(self, given: Sequence[Any]) -> dict[str, Any]:
        sensors: dict[str, Any] = {}
        for i, inner in enumerate(given):
            table = Table(inner, f"sensors.{i}")
            quantity, called = self.read_quantity(table)
            name = table.text("name", None)
            if name is None:
                name = called if called not in sensors else f"{called}_{i}"
            elif not re.fullmatch(r"[A-Za-z_]\w{0,40}", name):
                raise InputError(f"{table.at('name')}: expected letters, digits and _, got {shown(name)}")
            if name in sensors:
                raise InputError(f"{table.at('name')}: the name {name!r} is already taken; use another name")
            if isinstance(table.content.get("data"), str):
                self.origins[name] = table.content["data"]
            sensors[name] = self.read_sensors(table, quantity)
            table.end()
        return sensors

    def read_quantity(self, table: Table) -> tuple[Quantity, str]:
        text = table.text("quantity", wanted="a field, a derivative, the name of an equation, or a formula")
        quantity: Quantity = text
        called = text
        if text in self.equations:
            quantity = self.equations[text].function(text)
        elif not self.is_measurable(text):
            called = f"sensors_{table.where.split('.')[1]}"
            formula = self.formula(text, table.at("quantity"))
            quantity = formula.function(self.free_name(table.content.get("name"), called))
        kinds = [key for key in MEASUREMENTS if key in table.content]
        if len(kinds) > 1:
            raise InputError(f"{table.at(kinds[1])}: cannot be combined with {kinds[0]}; remove one of them")
        return quantity, "_".join([called, *kinds])

    def free_name(self, name: Any, otherwise: str) -> str:
        """What a formula without a name is called: as its sensors, unless an equation has that name."""
        return name if isinstance(name, str) and name not in self.equations else otherwise

    def read_measurement(self, table: Table, quantity: Quantity, columns: Mapping[str, np.ndarray]) -> Quantity:
        """The quantity as measured: at points, or as an average, an integral or a difference of two positions.

        Positions are a number, a list with one per reading, or the name of a column of the data.
        """
        along = table.text("periodic", None, "a coordinate")
        if along is not None:
            self.check_coordinate(along, table.at("periodic"))
            return Periodic(quantity, along)
        for key, kind in (("average", Average), ("integral", Integral)):
            windows = table.table(key, None)
            if windows is not None:
                over = {c: self.read_window(ends, f"{table.at(key)}.{c}", columns) for c, ends in windows.items()}
                for c in over:
                    self.check_coordinate(c, table.at(key))
                nodes = table.take("nodes", (int,), "a whole number", 8)
                return made(kind, table.at(key), quantity=quantity, over=over, nodes=nodes)
        places = table.table("difference", None)
        if places is None:
            return quantity
        inner = Table(places, table.at("difference"))
        settings = {}
        for key in ("at", "minus"):
            given = inner.table(key)
            for c in given:
                self.check_coordinate(c, inner.at(key))
            settings[key] = {c: self.read_position(p, f"{inner.at(key)}.{c}", columns) for c, p in given.items()}
        inner.end()
        return made(Difference, table.at("difference"), quantity=quantity, **settings)

    def check_coordinate(self, name: str, where: str) -> None:
        if name not in self.domain:
            raise InputError(f"{where}: {name!r} is not a coordinate{did_you_mean(name, [*self.domain])}")

    def read_window(self, ends: Any, where: str, columns: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
        if not isinstance(ends, list) or len(ends) != 2:
            raise InputError(f"{where}: expected two ends [low, high], got {shown(ends)}")
        low, high = (self.read_position(end, where, columns) for end in ends)
        return low, high

    def read_position(self, value: Any, where: str, columns: Mapping[str, np.ndarray]) -> Any:
        if isinstance(value, str):
            if value not in columns:
                has = _has(columns) if columns else "; there is no data file"
                raise InputError(f"{where}: there is no column {value!r}{has}")
            return columns[value]
        return np.array([number(v, where) for v in value]) if isinstance(value, list) else number(value, where)

    def read_sensors(self, table: Table, quantity: Quantity) -> Sensors:
        source = table.text("data", None, "the name of a file")
        if source is not None:
            for key in ("at", "values", "random", "mesh"):
                if key in table.content:
                    raise InputError(
                        f"{table.at(key)}: cannot be combined with data, which has the readings; remove one of them"
                    )
            columns = read_table(self.inside(source, table.at("data")), source)
            quantity = self.read_measurement(table, quantity, columns)
            at, values, noise = self.from_columns(table, source, columns, quantity)
        else:
            quantity = self.read_measurement(table, quantity, {})
            at = self.read_points(table)
            values, noise = self.read_values(table, at), None
        stated = table.take(
            "noise", (int, float, str, list, dict), "a number, a prior, or the name of an unknown", None
        )
        if isinstance(stated, dict):
            inner = Table(stated, table.at("noise"))
            noise = read_prior(inner)
            inner.end()
        elif isinstance(stated, list):
            noise = np.array([number(v, table.at("noise")) for v in stated])
        elif stated is not None:
            noise = stated
        said = "a name, or a table such as { kind = 'student_t', dof = 3 }"
        given = table.take("likelihood", (str, dict), said, "normal")
        dof = table.number("dof", None)
        if dof is not None:
            if given != "student_t":
                raise InputError(f"{table.at('dof')}: only valid with likelihood = 'student_t'; remove it")
            given = {"kind": given, "dof": float(dof)}
        likelihood = read_likelihood(given, table.at("likelihood"))
        if not likelihood.has_scale and source is not None and stated is None:
            noise = None  # ignore a noise column
        if noise is None and likelihood.has_scale:
            column = ", or a column 'noise' in the data" if source else ""
            raise InputError(f"{table.at('noise')}: is missing; give the standard deviation of a reading{column}")
        return Sensors(quantity, at, values, noise, likelihood)

    def from_columns(
        self, table: Table, source: str, columns: Mapping[str, np.ndarray], quantity: Quantity
    ) -> tuple[dict[str, np.ndarray], np.ndarray, Any]:
        renamed = Table(table.table("columns", {}), table.at("columns"))
        wanted = [*self.domain, "value", "noise"]
        names = {key: renamed.text(key, key, "the name of a column") for key in wanted}
        renamed.end()
        for key in wanted:
            if names[key] != key and names[key] not in columns:
                raise InputError(f"{table.at('columns')}.{key}: {source} has no column {names[key]!r}{_has(columns)}")
        if names["value"] not in columns:
            raise InputError(f"{source}: there is no column {names['value']!r} for the readings{_has(columns)}")
        itself = self.set_by(quantity)
        at = {c: columns[names[c]] for c in self.domain if names[c] in columns and c not in itself}
        noise = columns.get(names["noise"])
        return at, columns[names["value"]], noise

    @staticmethod
    def set_by(quantity: Quantity) -> set[str]:
        """The coordinates whose positions a measurement fixes."""
        if isinstance(quantity, Periodic):
            return {quantity.along}
        if isinstance(quantity, Difference):
            return {c for c, _ in quantity.at}
        return {c for c, *_ in quantity.over} if isinstance(quantity, Integral) else set()

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

    def read_points(self, table: Table) -> dict[str, np.ndarray]:
        random = table.take("random", (int,), "a number of random points in the domain", None)
        given = Table(table.table("at", {}), table.at("at"))
        mesh = table.take("mesh", (bool,), "true or false", False)
        if random is not None:
            if given.content or mesh:
                raise InputError(f"{table.at('random')}: cannot be combined with at or mesh; remove one of them")
            if not 1 <= random <= MOST_POINTS:
                raise InputError(f"{table.at('random')}: expected 1 to {MOST_POINTS} points, got {random}")
            rng = np.random.default_rng(0)  # the same points every time the file is read
            return {c: rng.uniform(low, high, random) for c, (low, high) in self.domain.items()}
        at = {}
        for name in [*given.content]:
            if name not in self.domain:
                raise InputError(f"{given.at(name)}: not a coordinate{did_you_mean(name, [*self.domain])}")
            value = given.take(name, (int, float, list, dict), "a number, a list, or { from = , to = , count = }")
            at[name] = self.read_axis(value, given.at(name))
        if mesh:
            if np.prod([float(len(axis)) for axis in at.values()]) > MOST_POINTS:
                raise InputError(f"{table.at('mesh')}: more than {MOST_POINTS} points; use fewer")
            grids = np.meshgrid(*at.values(), indexing="ij")
            return {name: grid.ravel() for name, grid in zip(at, grids, strict=True)}
        longest = max((len(axis) for axis in at.values()), default=0)
        return {name: np.repeat(axis, longest) if len(axis) == 1 else axis for name, axis in at.items()}

    def read_axis(self, value: Any, where: str) -> np.ndarray:
        if isinstance(value, dict):
            table = Table(value, where)
            low, high = table.number("from"), table.number("to")
            count = table.take("count", (int,), "a whole number")
            table.end()
            if not 1 <= count <= MOST_POINTS:
                raise InputError(f"{where}.count: expected 1 to {MOST_POINTS}, got {count}")
            return np.linspace(low, high, count)
        values = value if isinstance(value, list) else [value]
        if not values:
            raise InputError(f"{where}: the list is empty")
        return np.array([float(number(v, where)) for v in values])

    def read_values(self, table: Table, at: Mapping[str, np.ndarray]) -> Any:
        value = table.take("values", (int, float, list, str), "numbers, or a formula in the coordinates", 0.0)
        where = table.at("values")
        if isinstance(value, list):
            return np.array([float(number(v, where)) for v in value])
        if isinstance(value, str):
            formula = parse(value, self.domain, where)
            missing = [name for name in formula.names if name not in at]
            if missing:
                raise InputError(f"{where}: {missing[0]!r} has no positions; add it to at")
            count = len(next(iter(at.values()), np.zeros(1)))
            return np.broadcast_to(np.asarray(formula.evaluate(at), float), (count,)).copy()
        return finite(value, where)


def _has(columns: Mapping[str, Any]) -> str:
    return f"; it has {', '.join(columns)}"
