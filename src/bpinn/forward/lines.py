"""Equations in one coordinate of space and in time: the method of lines, with Chebyshev collocation in space.

Every field is given by its values at Chebyshev points, which an implicit Runge-Kutta method integrates in time. The
draw gives the initial values, and the values of the field on the boundary; with derivatives of order 2m in space also
its first m - 1 derivatives there.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # which imports its parts when they are first used; together they take a second

from bpinn.errors import InputError
from bpinn.forward.laws import WHERE
from bpinn.forward.one_coordinate import MOST_CALLS
from bpinn.forward.pointwise import Inner, Pointwise, Unsolved
from bpinn.forward.system import System, interpolated, unknowns_of, values_of
from bpinn.quantities import Partial

METHOD, TOLERANCE = "Radau", 1e-4  # implicit, and without much damping of waves
TIMES = 101  # at which boundary values and coefficients from the draws are tabulated
NODES = (40, 80, 160)  # the next more if a solution is not resolved
UNRESOLVED = 1e-3  # the last Chebyshev coefficients over the largest


class Unresolved(Unsolved):
    """The solution has more detail than the points in space can show."""


def chebyshev(low: float, high: float, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev points from ``low`` to ``high``, and the matrix that differentiates values there (Trefethen 2000)."""
    angle = np.pi * np.arange(degree + 1) / degree
    x = -np.cos(angle)
    weights = np.where((np.arange(degree + 1) % degree) == 0, 2.0, 1.0) * (-1.0) ** np.arange(degree + 1)
    apart = x[:, None] - x[None, :] + np.eye(degree + 1)
    matrix = np.outer(weights, 1 / weights) / apart
    matrix -= np.diag(matrix.sum(axis=1))
    return low + 0.5 * (high - low) * (x + 1), 2 / (high - low) * matrix


def barycentric(nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The matrix from values at Chebyshev points to values at ``x``."""
    weights = (-1.0) ** np.arange(len(nodes)) * np.where(np.arange(len(nodes)) % (len(nodes) - 1) == 0, 0.5, 1.0)
    apart = x[:, None] - nodes[None, :]
    exact = apart == 0
    with np.errstate(divide="ignore"):
        rows = np.where(exact.any(axis=1)[:, None], exact, weights / np.where(exact, 1.0, apart))
    return rows / rows.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Block:
    """One time derivative of one field at the nodes: ``values = free @ y[part] + given @ boundary[conditions]``."""

    field: int
    order: int
    part: slice
    conditions: slice
    free: np.ndarray
    given: np.ndarray
    rows: np.ndarray  # the nodes whose values are free


@dataclass(frozen=True, eq=False)
class Surface:
    """A solution in space and time."""

    solver: "Lines"
    draw: int
    states: Any  # a function of times that gives (states, times)

    def values(self, wanted: Partial, at: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """A derivative of a solved field at points; None if the solver does not have it."""
        system, solver = self.solver.system, self.solver
        i = system.fields.index(wanted.field)
        a, b = system.order(wanted, system.space), system.order(wanted, system.along)
        if b >= system.orders[i]:
            return None
        times, number = np.unique(np.asarray(at[system.along], float), return_inverse=True)
        nodal = solver.nodal(self.states(times), times, i, b, self.draw)  # (nodes, times)
        slopes = np.linalg.matrix_power(solver.matrix, a) @ nodal
        rows = barycentric(solver.nodes, np.asarray(at[str(system.space)], float))
        return np.sum(rows * slopes.T[number.ravel()], axis=1)


class Lines:
    """Solves a system in space and time for each draw."""

    def __init__(self, system: System, z: np.ndarray, degree: int):
        self.system, self.z, self.pointwise = system, z, Pointwise(system)
        self.space = str(system.space)
        self.nodes, self.matrix = chebyshev(*system.region[self.space], degree)
        self.start, self.end = system.region[system.along]
        self.times = np.linspace(self.start, self.end, TIMES)
        self.unknowns = unknowns_of(system, z)
        self.conditions = [self._conditions(i) for i in range(len(system.fields))]
        self.blocks = self._blocks()
        self.size = max(block.part.stop for block in self.blocks)
        self.active = np.unique(np.concatenate([block.rows for block in self.blocks]))
        self._tabulate()
        self.typical: list[float | None] = [None] * len(z)
        self.operators = [
            (
                np.linalg.matrix_power(self.matrix, system.order(p, system.space)),
                (system.fields.index(p.field), system.order(p, system.along)),
            )
            for p in system.below
        ]

    def _conditions(self, i: int) -> list[tuple[int, int]]:
        """The boundary conditions of a field: (node, order of the derivative in space)."""
        system, field = self.system, self.system.fields[i]
        references = [p for p in system.below if p.field == field]
        order = max([system.order(p, system.space) for p in references], default=0)
        if order == 1 and system.orders[i] == 1:
            return self._inflow(i)
        if order % 2:
            raise InputError(
                f"{WHERE}: {field!r} has derivatives of order {order} in {system.space}; even orders, and the first "
                "order for fields with a first derivative in time, are solved"
            )
        return [(node, k) for node in (0, -1) for k in range(order // 2)]

    def _inflow(self, i: int) -> list[tuple[int, int]]:
        """Where a field of first order in space flows into the region: there its values are given."""
        system = self.system
        first = [f for f in system.fields if self._is_carried(f)]
        if len(first) > 1:
            raise InputError(
                f"{WHERE}: {', '.join(first)} all have only first derivatives in {system.space}; it is not known at "
                "which end each of them needs boundary values, so such systems are not solved"
            )
        slope = system.partial(system.fields[i], 0, 1)
        times = np.linspace(self.start, self.end, 5)
        found = []
        for node, x in ((0, self.nodes[0]), (-1, self.nodes[-1])):
            at = {system.along: times, self.space: np.full(5, x)}
            wanted = [*system.highest, *system.below, *system.known]
            values = np.stack(values_of(system, self.z, [(p, at) for p in wanted]), axis=1)
            n, m = len(system.highest), len(system.below)

            speeds = []
            for v, unknowns in zip(values, self.unknowns, strict=True):
                inner = Inner(v[n : n + m], v[n + m :], np.zeros((len(system.laws), 5)), at, unknowns)
                speeds.append(-np.asarray(self.pointwise.by_below(v[:n], inner))[i, system.below.index(slope)])
            mean = np.mean(speeds)
            if mean > 0 if node == 0 else mean < 0:
                found.append((node, 0))
        return found

    def _is_carried(self, field: str) -> bool:
        system = self.system
        return max([system.order(p, system.space) for p in system.below if p.field == field], default=0) == 1

    def _blocks(self) -> list[Block]:
        count, blocks, start, given = len(self.nodes), [], 0, 0
        for i, order in enumerate(self.system.orders):
            conditions = self.conditions[i]
            low = list(range(sum(node == 0 for node, _ in conditions)))
            bound = np.array(low + [count - 1 - k for k in range(len(conditions) - len(low))], int)
            rows = np.setdiff1d(np.arange(count), bound)
            stated = np.stack([np.zeros(count), *(np.linalg.matrix_power(self.matrix, k)[n] for n, k in conditions)])[
                1:
            ]
            inverse = np.linalg.inv(stated[:, bound])
            free, from_given = np.zeros((count, len(rows))), np.zeros((count, len(conditions)))
            free[rows] = np.eye(len(rows))
            free[bound], from_given[bound] = -inverse @ stated[:, rows], inverse
            for b in range(order):
                part, held = slice(start, start + len(rows)), slice(given, given + len(conditions))
                blocks.append(Block(i, b, part, held, free, from_given, rows))
                start, given = part.stop, held.stop
        return blocks

    def _tabulate(self) -> None:
        """What comes from the draws: values at the start, and tables over time."""
        system, along, x = self.system, self.system.along, self.nodes
        mesh_x, mesh_t = (a.ravel() for a in np.meshgrid(x[self.active], self.times, indexing="ij"))
        mesh, first = {self.space: mesh_x, along: mesh_t}, {self.space: x, along: np.full(len(x), self.start)}
        wanted: list[Any] = [(p, mesh) for p in (*system.highest, *system.known)]
        wanted += [(system.partial(system.fields[b.field], b.order), first) for b in self.blocks]
        for block in self.blocks:
            for node, k in self.conditions[block.field]:
                edge = {self.space: np.full(TIMES, x[node]), along: self.times}
                wanted.append((system.partial(system.fields[block.field], block.order, k), edge))
        found = values_of(system, self.z, wanted)
        count, many = len(self.active), len(system.highest) + len(system.known)
        right = np.concatenate([law.right_at(mesh).reshape(count, TIMES) for law in system.laws])
        self.tables, self.starts = [], []
        for i in range(len(self.z)):
            inside = [part[i].reshape(count, TIMES) for part in found[:many]]
            edges = [part[i][None] for part in found[many + len(self.blocks) :]]
            self.tables.append(np.concatenate([*inside, right, *edges]))
            parts = found[many : many + len(self.blocks)]
            self.starts.append(np.concatenate([p[i][b.rows] for p, b in zip(parts, self.blocks, strict=True)]))
        self.num_conditions = sum(len(self.conditions[b.field]) for b in self.blocks)

    def inner(self, y: np.ndarray, t: float, draw: int) -> tuple[np.ndarray, Inner]:
        """Starts of Newton's method at the active nodes, and what the equations have there."""
        system, count = self.system, len(self.active)
        row = interpolated(self.tables[draw], np.array((t - self.start) / (self.end - self.start) * (TIMES - 1)))
        n, q = len(system.fields), len(system.known)
        inside = row[: (2 * n + q) * count].reshape(2 * n + q, count)
        boundary = row[(2 * n + q) * count :]
        values = {(b.field, b.order): b.free @ y[b.part] + b.given @ boundary[b.conditions] for b in self.blocks}
        below = [matrix[self.active] @ values[key] for matrix, key in self.operators]
        at = {self.space: self.nodes[self.active], system.along: np.full(count, float(t))}
        stacked = np.stack([*below, np.zeros(count)])[:-1]
        return inside[:n], Inner(stacked, inside[n : n + q], inside[n + q :], at, self.unknowns[draw])

    def slope(self, y: np.ndarray, t: float, draw: int) -> np.ndarray:
        """The derivative of all states in time."""
        top, size = self.pointwise.solved(*self.inner(y, t, draw), self.typical[draw])
        self.typical[draw] = max(self.typical[draw] or 0.0, float(np.max(np.abs(size))))
        found, whole = np.empty_like(y), np.zeros((len(self.system.fields), len(self.nodes)))
        whole[:, self.active] = top
        for b, following in zip(self.blocks, [*self.blocks[1:], None], strict=True):
            is_last = b.order == self.system.orders[b.field] - 1
            found[b.part] = whole[b.field][b.rows] if is_last or following is None else y[following.part]
        return found

    def jacobian(self, y: np.ndarray, t: float, draw: int) -> np.ndarray:
        """How the slope changes with the states."""
        start, inner = self.inner(y, t, draw)
        by_below = np.zeros((len(self.system.fields), len(self.operators), len(self.nodes)))
        by_below[..., self.active] = np.asarray(self.pointwise.by_below(self.pointwise.newton(start, inner)[0], inner))
        found, blocks = np.zeros((len(y), len(y))), {(b.field, b.order): b for b in self.blocks}
        for b in self.blocks:
            if b.order < self.system.orders[b.field] - 1:
                found[b.part, blocks[b.field, b.order + 1].part] = np.eye(len(b.rows))
                continue
            for i, (matrix, key) in enumerate(self.operators):
                part = by_below[b.field, i, b.rows][:, None] * (matrix[b.rows] @ blocks[key].free)
                found[b.part, blocks[key].part] += part
        return found

    def nodal(self, y: np.ndarray, times: np.ndarray, field: int, order: int, draw: int) -> np.ndarray:
        """A time derivative of a field at the nodes, (nodes, times)."""
        block = next(b for b in self.blocks if (b.field, b.order) == (field, order))
        table = self.tables[draw]
        edges = table[len(table) - self.num_conditions :]
        boundary = interpolated(edges, (times - self.start) / (self.end - self.start) * (TIMES - 1))
        return block.free @ y[block.part] + block.given @ boundary[block.conditions]

    def solve(self, draw: int) -> Surface:
        """The solution for one draw; raises `Unsolved`."""
        system, start, table = self.system, self.starts[draw], self.tables[draw]
        if not np.all(np.isfinite(start)) or not np.all(np.isfinite(table)):
            raise Unsolved("the draw's field is not finite")
        size = np.concatenate([np.full(b.rows.size, np.max(np.abs(start[b.part]), initial=1e-12)) for b in self.blocks])
        most = 1e6 * max(np.max(np.abs(table)), np.max(size))
        calls = 0

        def slope(t: float, y: np.ndarray) -> np.ndarray:
            nonlocal calls
            calls += 1
            if calls > MOST_CALLS or not np.all(np.abs(y) < most):
                place = system.place({system.along: t})
                raise Unsolved(f"the solution grows without bound, or takes too many steps, near {place}")
            return self.slope(y, t, draw)

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = scipy.integrate.solve_ivp(
                slope, (self.start, self.end), start, method=METHOD, rtol=TOLERANCE, atol=TOLERANCE * size,
                jac=lambda t, y: self.jacobian(y, t, draw), dense_output=True,
            )  # fmt: skip
        if not found.success:
            raise Unsolved(f"the solver stopped at {system.place({system.along: found.t[-1]})}: {found.message}")
        surface = Surface(self, draw, found.sol)
        self._check_resolved(surface)
        return surface

    def _check_resolved(self, surface: Surface) -> None:
        times = np.linspace(self.start, self.end, 9)
        x = 2 * (self.nodes - self.nodes[0]) / (self.nodes[-1] - self.nodes[0]) - 1
        basis = np.polynomial.chebyshev.chebvander(x, len(self.nodes) - 1)
        for i, order in enumerate(self.system.orders):
            if order:
                sizes = np.abs(np.linalg.solve(basis, self.nodal(surface.states(times), times, i, 0, surface.draw)))
                if np.max(sizes[-3:]) > UNRESOLVED * np.max(sizes):
                    raise Unresolved(f"{len(self.nodes)} points in {self.space} do not resolve the solution")
