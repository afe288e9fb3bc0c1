"""Evaluate many quantities at many points: the one place where equations are applied to fields and terms are summed.

An `Evaluation` is static: which equations, at how many points. The part that depends on the data is a
tree of arrays from `prepare`. Sensors, monitored quantities and predictions are all evaluations.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.extend.linear_util import WrappedFun

from bpinn.arrays import on_device
from bpinn.fields import Field
from bpinn.fields.base import Bounds, Streams, Wanted
from bpinn.measurements import Placed
from bpinn.problem import Problem
from bpinn.quantities import Coordinate, Partial, Reference, Unknown, trace_equation


@dataclass(frozen=True, eq=False)
class Task:
    """One equation at ``count`` points, frozen as a jaxpr: later changes to globals do not affect it."""

    references: tuple[Reference, ...]
    count: int
    jaxpr: ClosedJaxpr

    @cached_property
    def key(self) -> tuple:
        """Tasks that compute the same thing have equal keys."""
        digest = hashlib.sha256()
        _fingerprint(self.jaxpr, digest)
        return self.references, self.count, str(self.jaxpr), digest.hexdigest()

    def is_coefficient(self, field: str) -> bool | None:
        """Whether a field is a coefficient of others; None if it is not in the equation or is itself the quantity."""
        partials = [r for r in self.references if isinstance(r, Partial)]
        own = [sum(r.orders) for r in partials if r.field == field]
        others = [sum(r.orders) for r in partials if r.field != field]
        if not own or (not others and own == [0] and len(self.references) == 1):
            return None
        if max(own) >= max(others, default=-1):
            return False
        rng = np.random.default_rng(0)

        def value() -> np.ndarray:
            given = []
            for reference, aval in zip(self.references, self.jaxpr.in_avals, strict=True):
                is_other = isinstance(reference, Partial) and reference.field != field
                fixed = 0.0 if is_other else 0.7
                moving = isinstance(reference, Partial) and not is_other
                array = rng.uniform(0.5, 1.5, aval.shape) if moving else np.full(aval.shape, fixed)
                given.append(jnp.asarray(array, aval.dtype))
            return np.asarray(self(given))

        with jax.ensure_compile_time_eval():
            return bool(np.array_equal(value(), value()))

    def __call__(self, values: Sequence[Any]) -> Array:
        (out,) = jaxpr_as_fun(self.jaxpr)(*values)
        return jnp.broadcast_to(out, (self.count,))


def _fingerprint(part: Any, digest: Any) -> None:
    """Hash what the text of a jaxpr omits: constants, including those of nested functions, and opaque functions by id.

    A task keeps its jaxpr alive, so the id of a function in it cannot be reused meanwhile.
    """
    if isinstance(part, ClosedJaxpr):
        for constant in part.consts:
            array = np.asarray(constant)
            digest.update(f"{array.shape} {array.dtype} ".encode() + array.tobytes())
        _fingerprint(part.jaxpr, digest)
    elif isinstance(part, Jaxpr):
        for equation in part.eqns:
            for name in sorted(equation.params):
                _fingerprint(equation.params[name], digest)
    elif isinstance(part, tuple | list):
        for inner in part:
            _fingerprint(inner, digest)
    elif isinstance(part, np.ndarray | jax.Array):
        digest.update(np.asarray(part).tobytes())
    elif isinstance(part, WrappedFun):  # a custom derivative rule
        digest.update(str(id(part.f)).encode())
    elif callable(part) and not isinstance(part, type):
        digest.update(str(id(part)).encode())


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Quantities at points, for fields with given bounds: one task per term."""

    fields: tuple[tuple[str, Field, Bounds, tuple[str, ...]], ...]
    tasks: tuple[Task, ...]
    sums: tuple[tuple[tuple[float, int], ...], ...]  # sign and width of each term of each quantity

    @classmethod
    def of(cls, problem: Problem, quantities: Sequence[tuple[Placed, int]], where: str) -> "Evaluation":
        """From each quantity with the number of points to evaluate at once."""
        shapes = {name: prior.shape() for name, prior in problem.unknowns.items()}
        fields = tuple((n, f, problem.bounds(n), problem.inputs(n)) for n, f in problem.fields.items())
        tasks = tuple(
            Task(t.equation.references, n * t.width, trace_equation(t.equation, n * t.width, shapes, where))
            for quantity, n in quantities
            for t in quantity.terms
        )
        return cls(fields, tasks, tuple(tuple((t.sign, t.width) for t in q.terms) for q, _ in quantities))

    @cached_property
    def key(self) -> tuple:
        return self.fields, tuple(task.key for task in self.tasks), self.sums

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evaluation) and self.key == other.key

    @cached_property
    def coefficients(self) -> frozenset[str]:
        """The fields that are coefficients of others, such as k in (k u_x)_x: in all equations that name them.

        If the others are zero, an equation does not depend on its coefficients, whose derivatives are of lower order
        than theirs. The field itself may be read, but no other equation may have it alone.
        """
        roles = {name: [task.is_coefficient(name) for task in self.tasks] for name, *_ in self.fields}
        return frozenset(name for name, own in roles.items() if True in own and False not in own)

    @cached_property
    def requests(self) -> dict[str, tuple[tuple[int, ...], tuple[tuple, ...]]]:
        """For each field, the tasks that use it and the derivatives each of them needs."""
        requests = {}
        for name, *_ in self.fields:
            users, wanted = [], []
            for i, task in enumerate(self.tasks):
                partials = {r.orders for r in task.references if isinstance(r, Partial) and r.field == name}
                if partials:
                    users.append(i)
                    wanted.append(tuple(sorted(partials)))
            if users:
                requests[name] = (tuple(users), tuple(wanted))
        return requests

    def prepare(self, quantities: Sequence[Placed], rows: Sequence[np.ndarray] | None = None) -> dict[str, Any]:
        """Arrays for the given rows of each quantity's points; all points by default."""
        rows = [quantity.rows for quantity in quantities] if rows is None else rows
        at = [points for q, r in zip(quantities, rows, strict=True) for points in q.points(r)]
        weights = [w for q, r in zip(quantities, rows, strict=True) for w in q.weights(r)]
        prepared: dict[str, Any] = {}
        for name, field, bounds, inputs in self.fields:
            if name in self.requests:
                users, wanted = self.requests[name]
                # Statistics of readings have rows of fields in place of coordinates, see `bpinn.sufficient`.
                points = [at[i][name] if name in at[i] else np.stack([at[i][c] for c in inputs], axis=1) for i in users]
                prepared[name] = field.prepare(points, wanted, bounds)
        coordinates = [
            {r.name: on_device(at[i][r.name]) for r in task.references if isinstance(r, Coordinate)}
            for i, task in enumerate(self.tasks)
        ]
        as_arrays = [None if w is None else on_device(w) for w in weights]
        return {"fields": prepared, "coordinates": coordinates, "weights": as_arrays}

    def wanted(self, name: str, unknowns: Mapping[str, Array], native: bool = False) -> Wanted:
        """What is requested of a field: the derivatives that each task needs before the link."""
        field, bounds = next((f, b) for n, f, b, _ in self.fields if n == name)
        users, requests = self.requests[name]
        scales = {scale: unknowns[f"{scale}_{name}"] for scale in field.scale_priors(bounds)}
        return Wanted(field.needed(requests), tuple(self.tasks[i].count for i in users), bounds, native, scales)

    def raw(
        self, theta: Mapping[str, Array], unknowns: Mapping[str, Array], prepared: Any, native: bool = False
    ) -> dict[str, list[Streams]]:
        """The streams of each field before its link, for each task that uses it."""
        return {
            name: field.raw(theta[name], prepared["fields"][name], self.wanted(name, unknowns, native))
            for name, field, *_ in self.fields
            if name in self.requests
        }

    def __call__(
        self, theta: Mapping[str, Array], unknowns: Mapping[str, Array], prepared: Any, native: bool = False
    ) -> list[Array]:
        """The value of each quantity, an array over its points."""
        return self.of_streams(self.raw(theta, unknowns, prepared, native), unknowns, prepared)

    def of_streams(self, raw: Mapping[str, list[Streams]], unknowns: Mapping[str, Array], prepared: Any) -> list[Array]:
        """The value of each quantity, from the streams of the fields before their links."""
        terms = []
        for i in range(len(self.tasks)):
            own = {name: raw[name][users.index(i)] for name, (users, _) in self.requests.items() if i in users}
            terms.append(self.term(i, own, unknowns, prepared))
        return self.summed(terms, prepared["weights"])

    def term(self, i: int, raw: Mapping[str, Streams], unknowns: Mapping[str, Array], prepared: Any) -> Array:
        """The value of one task, from the streams of its fields before their links."""
        linked = {}
        for name, field, bounds, _ in self.fields:
            if name in raw:
                users, wanted = self.requests[name]
                linked[name] = field.linked([raw[name]], [wanted[users.index(i)]], bounds)[0]

        def look_up(reference: Reference) -> Array:
            if isinstance(reference, Partial):
                return linked[reference.field][reference.orders]
            if isinstance(reference, Unknown):
                return unknowns[reference.name]
            return prepared["coordinates"][i][reference.name]

        return self.tasks[i]([look_up(r) for r in self.tasks[i].references])

    def summed(
        self, values: Sequence[Array], weights: Sequence[Array | None], chosen: Sequence[bool] | None = None
    ) -> list[Array]:
        """Terms added up to quantities, all or the chosen ones; values are (points,) or (points, ...)."""
        terms = iter(zip(values, weights, strict=True))
        found = []
        for parts in self.sums if chosen is None else compress(self.sums, chosen):
            total: Any = 0
            for sign, width in parts:
                value, weight = next(terms)
                if weight is not None:
                    value = value.reshape(-1, width, *value.shape[1:])
                    value = jnp.sum(value * weight.reshape(*weight.shape, *(1 for _ in value.shape[2:])), axis=1)
                total = total + sign * value
            found.append(total)
        return found
