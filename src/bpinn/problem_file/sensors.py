"""The sensors of a problem file: readings from data files or given in the file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bpinn.errors import InputError
from bpinn.expressions import Expression, parse
from bpinn.measurements import MEASUREMENTS, Average, Difference, Integral, Periodic, Quantity
from bpinn.physics import Physics
from bpinn.problem import Sensors
from bpinn.problem_file.data import Columns, DataReader
from bpinn.problem_file.settings import read_likelihood, read_prior
from bpinn.problem_file.toml_table import Table, did_you_mean, finite, made, number, shown

MOST_POINTS = 1_000_000
OF_FILES, OF_POINTS = ("columns", "where", "missing", "sheet", "encoding"), ("at", "values", "random", "mesh")


@dataclass
class SensorReader:
    """Reads the sensors of a problem file; ``origins`` has their data files, by name of the sensors."""

    data: DataReader
    domain: Mapping[str, tuple[float, float]]
    equations: Mapping[str, Expression]
    is_measurable: Callable[[str], bool]
    formula: Callable[[str, str], Expression]
    needed: Callable[[Quantity], Sequence[str]]
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
                bounds = {c: self.read_window(ends, f"{table.at('focus')}.{c}", None) for c, ends in focus.items()}
            points = table.take("points", (int,), "a whole number", None)
            formula_name = text if text in self.equations else self.free_name(name, called)
            tolerance, neutral = table.number("tolerance", None), table.take("neutral", (bool,), "true or false", None)
            found[name] = Physics(formula.function(formula_name), points, tolerance, bounds, neutral)
            table.end()
        return found

    def read(self, given: Sequence[Any]) -> dict[str, Any]:
        sensors: dict[str, Any] = {}
        for i, inner in enumerate(given):
            table = Table(inner, f"sensors.{i}")
            text = str(table.content.get("quantity"))
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
            sensors[name] = self.read_sensors(table, quantity, text)
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

    def read_measurement(self, table: Table, quantity: Quantity, columns: Columns | None) -> Quantity:
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

    def read_window(self, ends: Any, where: str, columns: Columns | None) -> tuple[Any, Any]:
        if not isinstance(ends, list) or len(ends) != 2:
            raise InputError(f"{where}: expected two ends [low, high], got {shown(ends)}")
        low, high = (self.read_position(end, where, columns) for end in ends)
        return low, high

    def read_position(self, value: Any, where: str, columns: Columns | None) -> Any:
        if isinstance(value, str):
            if columns is None or value not in columns.positions:
                has = f"; it has {columns.table.listed}" if columns else "; there is no data file"
                raise InputError(f"{where}: there is no column {value!r}{has}")
            return columns.positions[value]
        return np.array([number(v, where) for v in value]) if isinstance(value, list) else number(value, where)

    def read_sensors(self, table: Table, quantity: Quantity, text: str) -> Sensors:
        source = table.content.get("data")
        for key in OF_FILES if source is None else OF_POINTS:
            if key in table.content:
                raise InputError(
                    f"{table.at(key)}: only valid with data, the name of a file; remove it"
                    if source is None
                    else f"{table.at(key)}: cannot be combined with data, which has the readings; remove one of them"
                )
        table.known |= {"data", *OF_FILES}
        if source is not None:
            columns = self.data.columns(table, text, self.needed(quantity))
            quantity = self.read_measurement(table, quantity, columns)
            at: dict[str, np.ndarray] = {c: columns.by_role[c] for c in self.domain if c in columns.by_role}
            values, noise = columns.by_role["value"], columns.by_role.get("noise")
        else:
            quantity = self.read_measurement(table, quantity, None)
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
