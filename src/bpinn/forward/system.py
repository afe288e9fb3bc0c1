"""The system of equations that a forward check solves, and what it takes from the draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.compiling import FUSED
from bpinn.errors import InputError
from bpinn.forward.laws import WHERE, Law, Sources, extent_of, fields_of, laws_of, of_field, order_of, roles_of
from bpinn.measurements import Placed, Term
from bpinn.parameters import Parameters
from bpinn.problem import Problem
from bpinn.quantities import Equation, Partial, identity
from bpinn.quantity_at import QuantityAt, Stacked

AT_ONCE = 4  # draws whose fields are evaluated together


@dataclass(frozen=True, eq=False)
class System:
    """Equations ``laws`` for as many ``fields``, whose highest derivatives along the coordinate ``along`` have the
    ``orders``; with a second coordinate ``space``, ``along`` is time. ``region`` is where the equations are stated.
    """

    problem: Problem
    laws: tuple[Law, ...]
    fields: tuple[str, ...]
    orders: tuple[int, ...]
    along: str
    space: str | None
    region: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, problem: Problem, fields: Sequence[str] | None = None, sources: Sources | None = None) -> "System":
        laws = laws_of(problem, sources or {})
        names = problem.names
        needed = {c for law in laws for c in names.coordinates_of(law.equation)}
        coordinates = [c for c in problem.domain if c in needed]
        along, space = roles_of(coordinates)
        found = fields_of(problem, laws, along, fields)
        orders = tuple(max(order_of(problem, p, along) for p in of_field(laws, f)) for f in found)
        for field in found:
            if set(problem.inputs(field)) != needed:
                raise InputError(
                    f"{WHERE}: the field {field!r} depends on {', '.join(problem.inputs(field))}, its equations on "
                    f"{', '.join(coordinates)}; only fields of all of these coordinates can be solved for"
                )
        region = {c: extent_of(problem, laws, c) for c in coordinates}
        system = cls(problem, laws, found, orders, along, space, region)
        if space is not None:
            system._check_lines()
        return system

    def _check_lines(self) -> None:
        for field, order in zip(self.fields, self.orders, strict=True):
            for p in of_field(self.laws, field):
                a, b = self.order(p, self.space), self.order(p, self.along)
                if order == 0 and a:
                    raise InputError(
                        f"{WHERE}: no equation has a derivative of {field!r} in {self.along}, so it is determined at "
                        f"each {self.along} by all of {self.space} at once; such systems are not solved"
                    )
                if b == order and a:
                    raise InputError(
                        f"{WHERE}: {self.spelled(p)} is the highest derivative of {field!r} in {self.along} and has "
                        f"derivatives in {self.space} too; such equations are not solved"
                    )

    def order(self, p: Partial, coordinate: str | None) -> int:
        """How often a derivative is taken in one coordinate."""
        return 0 if coordinate is None else order_of(self.problem, p, coordinate)

    def partial(self, field: str, along: int, space: int = 0) -> Partial:
        """A derivative of a field, by its orders along each coordinate."""
        counts = {self.along: along, self.space: space}
        return Partial(field, tuple(counts[c] for c in self.problem.inputs(field)))

    def spelled(self, p: Partial) -> str:
        suffix = "".join(c * n for c, n in zip(self.problem.inputs(p.field), p.orders, strict=True))
        return f"{p.field}_{suffix}" if suffix else p.field

    @property
    def highest(self) -> tuple[Partial, ...]:
        """The derivatives that the equations are solved for, one of each field."""
        return tuple(self.partial(f, n) for f, n in zip(self.fields, self.orders, strict=True))

    @property
    def known(self) -> tuple[Partial, ...]:
        """The derivatives of other fields in the equations, such as coefficients, which are taken from the draws."""
        found = dict.fromkeys(r for law in self.laws for r in law.equation.references if isinstance(r, Partial))
        return tuple(p for p in found if p.field not in self.fields)

    @property
    def below(self) -> tuple[Partial, ...]:
        """The derivatives of the solved fields in the equations, without the highest ones."""
        found = dict.fromkeys(r for law in self.laws for r in law.equation.references if isinstance(r, Partial))
        return tuple(p for p in found if p.field in self.fields and p not in self.highest)

    def place(self, at: Mapping[str, float]) -> str:
        return ", ".join(f"{c}={float(v):.4g}" for c, v in at.items())


# --- from the draws ---


def values_of(
    system: System, z: np.ndarray, wanted: Sequence[tuple[Partial, Mapping[str, np.ndarray]]]
) -> list[np.ndarray]:
    """Derivatives of fields at points, each for every row of ``z``, (draws, points), in double precision."""
    quantities = []
    for p, points in wanted:
        at = {c: np.asarray(a, float) for c, a in points.items()}
        count = len(next(iter(at.values())))
        placed = Placed((Term(Equation(system.spelled(p), identity, (p,))),), at, count)
        quantities.append(QuantityAt(system.problem, WHERE, system.spelled(p), placed, (count,)))
    if not quantities:
        return []
    stacked = Stacked(system.problem, quantities)
    flat = np.asarray(_evaluated(stacked, jnp.asarray(z, float), stacked.prepare()))
    ends = np.cumsum([q.size for q in quantities])
    return np.split(flat, ends[:-1], axis=1)


def unknowns_of(system: System, z: np.ndarray) -> list[dict[str, Array]]:
    parameters = Parameters(system.problem)
    return [{name: parameters.split(jnp.asarray(row, float))[1][name] for name in system.problem.unknowns} for row in z]


@partial(jax.jit, static_argnames="stacked", compiler_options=FUSED)
def _evaluated(stacked: Stacked, z: Array, prepared: Any) -> Array:
    return jax.lax.map(lambda row: stacked.one(row, prepared), z, batch_size=AT_ONCE)


def interpolated(table: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Rows of values at 0, 1, 2, ... at positions between them, by cubic interpolation."""
    first = np.clip(np.floor(position).astype(int) - 1, 0, table.shape[-1] - 4)
    s = position - first
    weights = (
        -(s - 1) * (s - 2) * (s - 3) / 6,
        s * (s - 2) * (s - 3) / 2,
        -s * (s - 1) * (s - 3) / 2,
        s * (s - 1) * (s - 2) / 6,
    )
    return sum(w * table[..., first + k] for k, w in enumerate(weights))
