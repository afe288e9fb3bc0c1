"""Equations in one coordinate: as an initial-value problem by LSODA, or as a boundary-value problem by collocation."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # which imports its parts when they are first used; together they take a second

from bpinn.forward.pointwise import Inner, Pointwise, Unsolved
from bpinn.forward.system import System, interpolated, unknowns_of, values_of
from bpinn.quantities import Partial

GRID = 401  # points at which coefficients from the draws are tabulated
CHUNK = 128  # points evaluated at once, so that meshes of any size share one compilation
TOLERANCE = 1e-6  # relative, of the solver
MESH, MOST_MESH = 101, 20_000
MOST_CALLS = 20_000


@dataclass(frozen=True, eq=False)
class Curve:
    """A solution along one coordinate."""

    solver: "OneCoordinate"
    draw: int
    states: Any  # a function of positions that gives (states, positions)

    def values(self, wanted: Partial, at: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """A derivative of a solved field at points; None if it is higher than those in the equations, or
        not determined by them."""
        system = self.solver.system
        i, order = system.fields.index(wanted.field), sum(wanted.orders)
        if order > system.orders[i]:
            return None
        x = np.asarray(at[system.along], float)
        y = np.atleast_2d(self.states(x))
        if order < system.orders[i]:
            return y[self.solver.first[i] + order]
        try:
            return self.solver.highest(x, y, self.draw)[i]
        except Unsolved:  # where a solution passes through a singular point
            return None


class OneCoordinate:
    """Solves a system along its coordinate for each draw.

    As an initial-value problem (``kind`` "initial") the fields and their derivatives at the left end come from the
    draw. As a boundary-value problem ("boundary") the lower half of a field's derivatives come from the draw at both
    ends (one more at the left end if the order is odd), and the draw's field is where the iterations start.
    """

    def __init__(self, system: System, z: np.ndarray, kind: str):
        self.system, self.kind, self.pointwise = system, kind, Pointwise(system)
        self.low, self.high = system.region[system.along]
        self.first = np.concatenate([[0], np.cumsum(system.orders)])[:-1].astype(int)
        self.count = int(sum(system.orders))
        x = np.linspace(self.low, self.high, GRID)
        at = {system.along: x}
        states = [system.partial(f, k) for f, n in zip(system.fields, system.orders, strict=True) for k in range(n)]
        wanted = [*states, *system.highest, *system.known]
        found = np.stack(values_of(system, z, [(p, at) for p in wanted]), axis=1)  # (draws, derivatives, points)
        right = np.stack([law.right_at(at) for law in system.laws])
        self.grid, self.states = x, found[:, : self.count]
        tops, known = (
            found[:, self.count : self.count + len(system.fields)],
            found[:, self.count + len(system.fields) :],
        )
        self.tables = [np.concatenate([t, k, right]) for t, k in zip(tops, known, strict=True)]
        self.unknowns = unknowns_of(system, z)
        position = {p: i for i, p in enumerate(states)}
        self.typical: list[float | None] = [None] * len(z)
        self.columns = np.array([position[p] for p in system.below], int)

    def highest(self, x: np.ndarray, y: np.ndarray, draw: int) -> np.ndarray:
        """The highest derivatives at points, (fields, points)."""
        width = 1 if len(x) == 1 else CHUNK
        n, q, parts = len(self.system.fields), len(self.system.known), []
        for i in range(0, len(x), width):
            rows = np.minimum(np.arange(i, i + width), len(x) - 1)
            row = interpolated(self.tables[draw], (x[rows] - self.low) / (self.high - self.low) * (GRID - 1))
            inner = Inner(
                y[self.columns][:, rows],
                row[n : n + q],
                row[n + q :],
                {self.system.along: x[rows]},
                self.unknowns[draw],
            )
            top, size = self.pointwise.solved(row[:n], inner, self.typical[draw])
            self.typical[draw] = max(self.typical[draw] or 0.0, float(np.max(np.abs(size))))
            parts.append(top[:, : len(x) - i])
        return np.concatenate(parts, axis=1)

    def slope(self, x: np.ndarray, y: np.ndarray, draw: int) -> np.ndarray:
        """The derivative of all states, (states, points)."""
        top = self.highest(x, y, draw)
        found = np.empty_like(y)
        for i, (first, order) in enumerate(zip(self.first, self.system.orders, strict=True)):
            if order:
                found[first : first + order - 1] = y[first + 1 : first + order]
                found[first + order - 1] = top[i]
        return found

    def solve(self, draw: int) -> Curve:
        """The solution for one draw; raises `Unsolved`."""
        if not np.all(np.isfinite(self.states[draw])):
            raise Unsolved("the draw's field is not finite")
        self.highest(self.grid, self.states[draw], draw)  # along the draw's own field
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return self._initial(draw) if self.kind == "initial" else self._boundary(draw)

    def _initial(self, draw: int) -> Curve:
        calls, start = 0, self.states[draw][:, 0]
        size = np.maximum(np.max(np.abs(self.states[draw]), axis=1), 1e-12)
        along, last = self.system.along, self.low

        def slope(x: float, y: np.ndarray) -> np.ndarray:
            nonlocal calls, last
            calls, last = calls + 1, x
            if calls > MOST_CALLS or not np.all(np.abs(y) < 1e6 * size):
                raise Unsolved(f"the solution grows without bound, or takes too many steps, near {along}={x:.4g}")
            return self.slope(np.array([x]), y[:, None], draw)[:, 0]

        found = scipy.integrate.solve_ivp(
            slope, (self.low, self.high), start, method="LSODA", rtol=TOLERANCE, atol=TOLERANCE * size * 1e-2,
            dense_output=True,
        )  # fmt: skip
        if not found.success:
            raise Unsolved(f"the solver stopped at {along}={last:.4g}: {found.message}")
        return Curve(self, draw, found.sol)

    def _boundary(self, draw: int) -> Curve:
        left = [int(f) + k for f, n in zip(self.first, self.system.orders, strict=True) for k in range(n - n // 2)]
        right = [int(f) + k for f, n in zip(self.first, self.system.orders, strict=True) for k in range(n // 2)]
        given = self.states[draw]
        size = np.maximum(np.max(np.abs(given), axis=1), 1e-12)

        def ends(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return np.concatenate(
                [(a * size - given[:, 0])[left] / size[left], (b * size - given[:, -1])[right] / size[right]]
            )

        rows = np.linspace(0, GRID - 1, MESH).round().astype(int)
        found = scipy.integrate.solve_bvp(
            lambda x, y: self.slope(x, y * size[:, None], draw) / size[:, None], ends, self.grid[rows],
            given[:, rows] / size[:, None], tol=1e-4, max_nodes=MOST_MESH,
        )  # fmt: skip
        if not found.success:
            raise Unsolved(f"the boundary-value problem was not solved: {found.message}")
        return Curve(self, draw, lambda x: found.sol(x) * size[:, None])
