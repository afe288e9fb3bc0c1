"""The structure of a reading: a weighted sum of an equation at points.

A reading at a point is one term; a difference of two positions (and a periodic condition) has two; an average or an
integral over a window is one term evaluated at quadrature nodes. All code that evaluates quantities, for sensors,
monitoring or predictions, gets them from here as a `Placed`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bpinn.checks import is_whole, numbers
from bpinn.errors import InputError
from bpinn.quantities import Equation, Names, label_of

Position = float | tuple[float, ...]  # one for all readings, or one per reading
MOST_NODES = 64


@dataclass(frozen=True)
class Window:
    """An interval of a coordinate over which a term is integrated by Gauss-Legendre quadrature."""

    coordinate: str
    low: Position
    high: Position
    nodes: int
    is_mean: bool

    def nodes_and_weights(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both of shape (rows, nodes)."""
        nodes, weights = np.polynomial.legendre.leggauss(self.nodes)
        low, high = _at(self.low, rows)[:, None], _at(self.high, rows)[:, None]
        size = np.ones_like(low) if self.is_mean else high - low
        return 0.5 * (low + high) + 0.5 * (high - low) * nodes, 0.5 * weights * size


@dataclass(frozen=True)
class Term:
    """``sign`` times an equation, with some coordinates fixed and others integrated over."""

    equation: Equation
    sign: float = 1.0
    fixed: tuple[tuple[str, Position], ...] = ()
    windows: tuple[Window, ...] = ()

    @property
    def width(self) -> int:
        """Number of points at which the equation is evaluated per reading."""
        return math.prod(window.nodes for window in self.windows)

    @property
    def set_coordinates(self) -> set[str]:
        return {c for c, _ in self.fixed} | {window.coordinate for window in self.windows}

    def lengths(self) -> set[int]:
        """Numbers of readings for which positions are given per reading."""
        positions = [p for _, p in self.fixed] + [end for w in self.windows for end in (w.low, w.high)]
        return {len(p) for p in positions if isinstance(p, tuple)}

    def of_rows(self, rows: np.ndarray) -> "Term":
        def some(position: Position) -> Position:
            return tuple(position[i] for i in rows) if isinstance(position, tuple) else position

        windows = tuple(replace(w, low=some(w.low), high=some(w.high)) for w in self.windows)
        return replace(self, fixed=tuple((c, some(p)) for c, p in self.fixed), windows=windows)

    def points(self, at: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
        """Positions for a subset of the readings, shape (rows * width,) for each coordinate."""
        found = {c: np.repeat(a[rows], self.width) for c, a in at.items()}
        found |= {c: np.repeat(_at(position, rows), self.width) for c, position in self.fixed}
        after = self.width
        for window in self.windows:
            nodes = window.nodes_and_weights(rows)[0]
            after //= window.nodes
            before = self.width // (after * window.nodes)
            grid = np.broadcast_to(nodes[:, None, :, None], (len(rows), before, window.nodes, after))
            found[window.coordinate] = grid.reshape(-1)
        return found

    def weights(self, rows: np.ndarray) -> np.ndarray | None:
        """Quadrature weights of the points of each reading, shape (rows, width); None if there is one point."""
        if not self.windows:
            return None
        product = np.ones((len(rows), 1))
        for window in self.windows:
            product = (product[:, :, None] * window.nodes_and_weights(rows)[1][:, None, :]).reshape(len(rows), -1)
        return product


def _at(position: Position, rows: np.ndarray) -> np.ndarray:
    return np.asarray(position, float)[rows] if isinstance(position, tuple) else np.full(len(rows), float(position))


@dataclass(frozen=True, eq=False)
class Placed:
    """A quantity at the points of ``count`` readings: its terms, and the positions that they do not fix."""

    terms: tuple[Term, ...]
    at: dict[str, np.ndarray]
    count: int

    def points(self, rows: np.ndarray) -> list[dict[str, np.ndarray]]:
        """Positions of each term, for a subset of the readings."""
        return [term.points(self.at, rows) for term in self.terms]

    def weights(self, rows: np.ndarray) -> list[np.ndarray | None]:
        return [term.weights(rows) for term in self.terms]

    @property
    def rows(self) -> np.ndarray:
        return np.arange(self.count)

    def of_rows(self, rows: np.ndarray) -> "Placed":
        """The same for a subset of the readings."""
        terms = tuple(term.of_rows(rows) for term in self.terms)
        return Placed(terms, {c: a[rows] for c, a in self.at.items()}, len(rows))

    @property
    def is_by_reading(self) -> bool:
        """Whether it has positions per reading, which fix the number of readings."""
        return any(term.lengths() for term in self.terms)


@dataclass(frozen=True)
class Measurement(ABC):
    """A quantity not read at a single point. A subclass is a frozen dataclass that wraps another ``quantity``."""

    file_name: ClassVar[str]  # its key in problem files
    quantity: Any

    @abstractmethod
    def terms(self, names: Names, where: str) -> tuple[Term, ...]:
        """What it is made of."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What to call it in a table or a message."""


Quantity = str | Callable[..., Any] | Measurement


def label(quantity: Quantity) -> str:
    """The label of a quantity in tables and messages."""
    return quantity.label if isinstance(quantity, Measurement) else label_of(quantity)


def innermost(quantity: Quantity) -> str | Callable[..., Any]:
    """The field, derivative or equation inside all measurements."""
    return innermost(quantity.quantity) if isinstance(quantity, Measurement) else quantity


def terms_of(quantity: Quantity, names: Names, where: str) -> tuple[Term, ...]:
    """The terms of a quantity."""
    if isinstance(quantity, Measurement):
        return quantity.terms(names, where)
    return (Term(names.equation(quantity, where)),)


def set_coordinates(terms: Sequence[Term]) -> set[str]:
    """The coordinates whose positions the quantity itself fixes."""
    return {c for term in terms for c in term.set_coordinates}


@dataclass(frozen=True)
class Difference(Measurement):
    """A quantity at one position minus the same quantity at another, such as a pressure drop.

    Arguments:
        quantity: a field or derivative by name, an equation, or another measurement.
        at, minus: the two positions, in some or all coordinates: a number, or one per reading. The sensors' ``at``
            gives the other coordinates.

    Example:
        >>> import bpinn as bp
        >>> drop = bp.Difference("p", at={"x": 0.0}, minus={"x": [0.5, 1.0]})
        >>> bp.Sensors(drop, values=[0.2, 0.4], noise=0.01)
        Sensors('p at x=0 minus x=...', at=[], 2 readings, noise=0.01)
    """

    file_name: ClassVar[str] = "difference"
    quantity: Any
    at: Any
    minus: Any

    def __post_init__(self) -> None:
        for name in ("at", "minus"):
            object.__setattr__(self, name, _positions(getattr(self, name), f"Difference: {name}"))
        if {c for c, _ in self.at} != {c for c, _ in self.minus}:
            raise InputError("Difference: at and minus have different coordinates; give the same ones in both")

    @property
    def label(self) -> str:
        places = [", ".join(f"{c}={_shown(p)}" for c, p in place) for place in (self.at, self.minus)]
        return f"{label(self.quantity)} at {places[0]} minus {places[1]}"

    def terms(self, names: Names, where: str) -> tuple[Term, ...]:
        inner = terms_of(self.quantity, names, where)
        return (*_fixed(inner, 1.0, self.at, names, where), *_fixed(inner, -1.0, self.minus, names, where))


@dataclass(frozen=True)
class Periodic(Measurement):
    """A quantity at the upper end of a coordinate minus the same quantity at its lower end.

    With readings of zero it is a periodic boundary condition. The sensors' ``at`` gives the other
    coordinates; a field in one coordinate needs none.

    Example:
        >>> import bpinn as bp, numpy as np
        >>> ring = bp.Sensors(bp.Periodic("u", along="x"), at={"t": np.linspace(0, 1, 9)}, values=0.0, noise=1e-3)
        >>> slope = bp.Sensors(bp.Periodic("u_x", along="x"), values=0.0, noise=1e-3)
    """

    file_name: ClassVar[str] = "periodic"
    quantity: Any
    along: str

    @property
    def label(self) -> str:
        return f"{label(self.quantity)} around {self.along}"

    def terms(self, names: Names, where: str) -> tuple[Term, ...]:
        if self.along not in names.domain:
            raise InputError(
                f"{where}: Periodic along {self.along!r}, which is not a coordinate; "
                f"coordinates are {', '.join(names.domain)}"
            )
        low, high = names.domain[self.along]
        return Difference(self.quantity, at={self.along: high}, minus={self.along: low}).terms(names, where)


@dataclass(frozen=True)
class Integral(Measurement):
    """The integral of a quantity over a window of one or more coordinates, by Gauss-Legendre quadrature.

    Arguments:
        quantity: a field or derivative by name, an equation, or another measurement.
        over: for each coordinate, the ends of the window: numbers, or one per reading. The sensors' ``at``
            gives the other coordinates.
        nodes: quadrature points along each coordinate; exact for polynomials of degree ``2 * nodes - 1``.

    Example:
        >>> import bpinn as bp
        >>> heat = bp.Integral("u", over={"x": (0.0, 1.0)})
        >>> bp.Sensors(heat, at={"t": [0.0, 1.0]}, values=[1.0, 0.8], noise=0.01)
        Sensors('integral of u over x=0..1', at=['t'], 2 readings, noise=0.01)
    """

    file_name: ClassVar[str] = "integral"
    is_mean: ClassVar[bool] = False
    quantity: Any
    over: Any
    nodes: int = 8

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if not is_whole(self.nodes, 1) or self.nodes > MOST_NODES:
            raise InputError(f"{kind}: nodes must be a whole number from 1 to {MOST_NODES}, got {self.nodes!r}")
        object.__setattr__(self, "nodes", int(self.nodes))
        object.__setattr__(self, "over", _windows(self.over, kind))

    @property
    def label(self) -> str:
        ends = [(c, _shown(low), _shown(high)) for c, low, high in self.over]
        over = " and ".join(c if "..." in (low, high) else f"{c}={low}..{high}" for c, low, high in ends)
        return f"{type(self).__name__.lower()} of {label(self.quantity)} over {over}"

    def terms(self, names: Names, where: str) -> tuple[Term, ...]:
        found = []
        for term in terms_of(self.quantity, names, where):
            windows = tuple(Window(c, low, high, self.nodes, self.is_mean) for c, low, high in self.over)
            for window in windows:
                _check_coordinate(window.coordinate, term, names, f"{where}: {type(self).__name__}")
            found.append(Term(term.equation, term.sign, term.fixed, (*term.windows, *windows)))
        return tuple(found)


@dataclass(frozen=True)
class Average(Integral):
    """The average of a quantity over a window, as read by a sensor of finite size; same arguments as `Integral`.

    Example:
        >>> import bpinn as bp, numpy as np
        >>> centre, half = np.array([0.2, 0.5, 0.8]), 0.05
        >>> wide = bp.Average("u", over={"x": (centre - half, centre + half)})
        >>> bp.Sensors(wide, values=[0.1, 0.3, 0.2], noise=0.01)
        Sensors('average of u over x', at=[], 3 readings, noise=0.01)
    """

    file_name: ClassVar[str] = "average"
    is_mean: ClassVar[bool] = True


MEASUREMENTS: dict[str, Any] = {m.file_name: m for m in (Difference, Periodic, Integral, Average)}


def _shown(position: Position) -> str:
    return "..." if isinstance(position, tuple) else f"{position:g}"


def _position(value: Any, where: str) -> Position:
    array = numbers(value, where)
    if array.ndim > 1 or not array.size:
        raise InputError(f"{where}: expected a number, or one per reading, got an array of shape {array.shape}")
    return tuple(float(v) for v in array) if array.ndim else float(array)


def _positions(given: Any, where: str) -> tuple[tuple[str, Position], ...]:
    if isinstance(given, tuple):
        return given  # already converted
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"{where}: expected a dictionary with a position per coordinate, got {given!r}")
    return tuple((c, _position(value, f"{where}: {c}")) for c, value in given.items())


def _windows(given: Any, kind: str) -> tuple[tuple[str, Position, Position], ...]:
    if isinstance(given, tuple):
        return given
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"{kind}: over must be a dictionary of windows, such as {{'x': (0.0, 0.1)}}, got {given!r}")
    found = []
    for c, ends in given.items():
        if not isinstance(ends, tuple | list) or len(ends) != 2:
            raise InputError(f"{kind}: over {c} needs two ends (low, high), each a number or one per reading")
        low, high = (_position(end, f"{kind}: over {c}") for end in ends)
        if isinstance(low, tuple) and isinstance(high, tuple) and len(low) != len(high):
            raise InputError(f"{kind}: over {c} has {len(low)} low ends and {len(high)} high ends; give equally many")
        if not np.all(np.asarray(low) < np.asarray(high)):
            raise InputError(f"{kind}: over {c} has a window whose low end is not below its high end; give low < high")
        found.append((c, low, high))
    return tuple(found)


def _check_coordinate(name: str, term: Term, names: Names, where: str) -> None:
    known = names.coordinates_of(term.equation)
    if name not in known:
        raise InputError(
            f"{where} uses {name!r}, which {term.equation.label} does not depend on; it depends on {', '.join(known)}"
        )
    if name in term.set_coordinates:
        raise InputError(f"{where} uses {name!r}, which the measurement inside it already sets; remove it from one")


def _fixed(
    terms: Sequence[Term], sign: float, place: Sequence[tuple[str, Position]], names: Names, where: str
) -> list[Term]:
    found = []
    for term in terms:
        for c, _ in place:
            _check_coordinate(c, term, names, f"{where}: Difference")
        found.append(Term(term.equation, sign * term.sign, (*term.fixed, *place), term.windows))
    return found
