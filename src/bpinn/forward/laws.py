"""Which equations a forward check solves, for which fields, along which coordinate, and where they are stated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpinn.errors import InputError
from bpinn.measurements import Measurement
from bpinn.problem import Problem
from bpinn.quantities import Equation, Partial, StoredFunction
from bpinn.readings import Readings

TIMES = ("t", "time")
NEAR = 0.1  # of the domain's width: points of an equation that come this close to an end are meant to reach it

WHERE = "forward_check"
Sources = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Law:
    """One equation: its value is ``right``, a number or a function of the coordinates."""

    name: str
    equation: Equation
    right: float | Callable[..., Any]
    at: dict[str, np.ndarray]

    def right_at(self, points: Mapping[str, np.ndarray]) -> np.ndarray:
        if not callable(self.right):
            return np.full(len(next(iter(points.values()))), self.right)
        try:
            values = np.asarray(self.right(**points), float)
            return np.broadcast_to(values, np.shape(next(iter(points.values()))))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise InputError(
                f"{WHERE}: the source of {self.name!r} failed as a function of {', '.join(points)} ({why})"
            ) from error


def is_inside(problem: Problem, readings: Readings) -> bool:
    """Whether some points are inside the domain, not all on its boundary as those of a boundary condition are."""
    inside = np.ones(len(readings.values), bool)
    for c, at in readings.at.items():
        low, high = problem.domain[c]
        slack = 1e-6 * (high - low)
        inside &= (at > low + slack) & (at < high - slack)
    return bool(np.sum(inside) > 1) and all(np.ptp(at) > 0 for at in readings.at.values())


def laws_of(problem: Problem, sources: Sources) -> tuple[Law, ...]:
    for name, source in sources.items():
        if name not in problem.sensors:
            raise InputError(f"{WHERE}: sources names {name!r}; known sensors: {', '.join(problem.sensors) or 'none'}")
        if not callable(source):
            raise InputError(f"{WHERE}: the source of {name!r} must be a function of the coordinates, got {source!r}")
    found: list[Law] = []
    measured, seen = [], []
    for readings in problem.readings:
        quantity, equation = problem.sensors[readings.name].quantity, readings.equation
        partials = [r for r in equation.references if isinstance(r, Partial)]
        is_law = any(any(p.orders) for p in partials) or (not isinstance(quantity, str) and len(partials) > 1)
        if isinstance(quantity, Measurement) or not is_law or not is_inside(problem, readings):
            continue
        if isinstance(equation.function, StoredFunction):
            raise InputError(
                f"{WHERE}: the equation {equation.label} was stored as text; pass the function: "
                f"bp.load(path, functions={{'{equation.label}': {equation.label}}})"
            )
        right: Any = sources.get(readings.name)
        if right is None and np.ptp(readings.values) > 0:
            measured.append(readings.name)
            continue
        if quantity in seen:  # the same equation at more points
            continue
        seen.append(quantity)
        found.append(Law(readings.name, equation, float(readings.values[0]) if right is None else right, readings.at))
    of_laws = {law.name: [r for r in law.equation.references if isinstance(r, Partial)] for law in found}
    if len(found) > len({p.field for of_law in of_laws.values() for p in of_law}):
        # An algebraic equation of fields that have derivatives, such as a conserved total, follows from the others.
        moving = {p.field for of_law in of_laws.values() for p in of_law if any(p.orders)}
        found = [
            law
            for law in found
            if any(any(p.orders) for p in of_laws[law.name]) or not {p.field for p in of_laws[law.name]} <= moving
        ]
    if found:
        return tuple(found)
    if measured:
        name = measured[0]
        raise InputError(
            f"{WHERE}: the right-hand side of {name!r} is known only by its readings; give it as a function of the "
            f"coordinates, sources={{'{name}': lambda x: ...}}, or state the equation with its source, as bp.Physics"
        )
    raise InputError(
        f"{WHERE}: no equation is stated inside the domain; state one with bp.Physics(equation), or as bp.Sensors with "
        "values=0.0 (averages and differences of equations are not solved)"
    )


def roles_of(coordinates: Sequence[str]) -> tuple[str, str | None]:
    if len(coordinates) == 1:
        return coordinates[0], None
    time = [c for c in coordinates if c in TIMES]
    if len(coordinates) == 2 and time:
        return time[0], next(c for c in coordinates if c != time[0])
    if len(coordinates) == 2:
        raise InputError(
            f"{WHERE}: the equations depend on {' and '.join(coordinates)}, and none of them is called t or time; "
            "equations in one coordinate, or in one of space and in time, are solved"
        )
    raise InputError(
        f"{WHERE}: the equations depend on {len(coordinates)} coordinates ({', '.join(coordinates)}); those in one "
        "coordinate, or in one of space and in time, are solved"
    )


def order_of(problem: Problem, p: Partial, coordinate: str) -> int:
    inputs = problem.inputs(p.field)
    return p.orders[inputs.index(coordinate)] if coordinate in inputs else 0


def of_field(laws: Sequence[Law], field: str) -> list[Partial]:
    references = (r for law in laws for r in law.equation.references)
    return [r for r in references if isinstance(r, Partial) and r.field == field]


def fields_of(problem: Problem, laws: Sequence[Law], along: str, given: Sequence[str] | None) -> tuple[str, ...]:
    """The fields that are solved for: as many as equations, those of the highest orders."""
    orders = {}
    for field in problem.fields:
        partials = of_field(laws, field)
        if partials and along in problem.inputs(field):
            orders[field] = (max(order_of(problem, p, along) for p in partials), max(sum(p.orders) for p in partials))
    count = len(laws)
    equations = f"{count} equation{'s' if count > 1 else ''} ({', '.join(law.name for law in laws)})"
    if given is not None:
        names = (given,) if isinstance(given, str) else tuple(given)
        unknown = [name for name in names if name not in orders]
        if unknown or len(set(names)) != count:
            raise InputError(
                f"{WHERE}: fields must name {count} of {', '.join(orders)}, one for each of {equations}, got {given!r}"
            )
        return names
    if len(orders) < count:
        raise InputError(
            f"{WHERE}: {equations} for {len(orders)} field{'s' if len(orders) != 1 else ''} ({', '.join(orders)}); "
            "they must be equally many"
        )
    ranked = sorted(orders, key=lambda field: orders[field], reverse=True)
    if count < len(ranked) and orders[ranked[count]] == orders[ranked[count - 1]]:
        raise InputError(
            f"{WHERE}: {equations} for {len(orders)} fields ({', '.join(orders)}); say which ones are solved for, such "
            f"as fields=({ranked[0]!r},): the others are taken from the draws"
        )
    chosen = ranked[:count]
    if not any(any(orders[field]) for field in chosen):
        raise InputError(f"{WHERE}: the equations have no derivatives, so there is nothing to solve")
    return tuple(field for field in problem.fields if field in chosen)


def extent_of(problem: Problem, laws: Sequence[Law], coordinate: str) -> tuple[float, float]:
    """Where all equations are stated, along one coordinate."""
    low, high = problem.domain[coordinate]
    for law in laws:
        if coordinate in law.at:
            first, last = float(law.at[coordinate].min()), float(law.at[coordinate].max())
            width = problem.domain[coordinate][1] - problem.domain[coordinate][0]
            low = max(low, first) if first - problem.domain[coordinate][0] > NEAR * width else low
            high = min(high, last) if problem.domain[coordinate][1] - last > NEAR * width else high
    if not low < high:
        raise InputError(f"{WHERE}: the equations are stated at different ranges of {coordinate}")
    return low, high
