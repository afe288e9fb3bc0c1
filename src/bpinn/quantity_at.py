"""A quantity at points: from a user's request to its values for many parameter vectors.

Predictions from draws, from the prior and in closed form are all evaluated here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.compiling import FUSED
from bpinn.errors import InputError
from bpinn.evaluation import Evaluation
from bpinn.measurements import Placed, Quantity, label, set_coordinates, terms_of
from bpinn.parameters import Parameters
from bpinn.problem import Problem
from bpinn.quantities import trace_equation
from bpinn.readings import Readings

CHUNK_BYTES = 64 * 2**20  # of hidden-layer activations evaluated at once
DRAWS_AT_ONCE = 32


def measured(problem: Problem, quantity: Quantity, where: str) -> Quantity:
    """The quantity; the name of sensors gives the quantity they measure."""
    try:
        terms_of(quantity, problem.names, where)
    except InputError:
        if not isinstance(quantity, str) or quantity not in problem.sensors:
            raise
        return problem.sensors[quantity].quantity
    return quantity


def coordinates_of(problem: Problem, quantity: Quantity, where: str) -> tuple[str, ...]:
    """The coordinates that a quantity depends on, without those that it fixes itself."""
    terms = terms_of(quantity, problem.names, where)
    itself = set_coordinates(terms)
    return tuple(c for c in problem.names.coordinates_of(terms[0].equation) if c not in itself)


@dataclass(frozen=True, eq=False)
class QuantityAt:
    """A quantity at points of original shape ``shape``."""

    problem: Problem
    where: str
    label: str
    quantity: Placed
    shape: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem, quantity: Quantity, at: Mapping[str, Any] | None, where: str) -> "QuantityAt":
        quantity = measured(problem, quantity, where)
        placed, shape = problem.place_quantity(quantity, {} if at is None else at, where)
        if not np.prod(shape):
            raise InputError(f"{where}: no points; give at least one")
        found = cls(problem, where, label(quantity), placed, shape)
        # Report errors in the equation now, not when its values are computed.
        shapes = {name: prior.shape() for name, prior in problem.unknowns.items()}
        trace_equation(placed.terms[0].equation, found.chunk, shapes, where)
        return found

    @classmethod
    def of_readings(cls, problem: Problem, readings: Readings) -> "QuantityAt":
        """The quantity that sensors measure, at their positions."""
        where = f"sensors {readings.name!r}"
        return cls(problem, where, readings.name, readings.quantity, readings.values.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def at(self) -> dict[str, np.ndarray]:
        """The positions in their original shape."""
        return {c: a.reshape(self.shape) for c, a in self.quantity.at.items()}

    @cached_property
    def chunk(self) -> int:
        """Number of points evaluated at once."""
        width = max(term.width for term in self.quantity.terms)
        return max(1, min(self.size, CHUNK_BYTES // (DRAWS_AT_ONCE * width * bytes_of_a_point(self.problem))))

    @cached_property
    def values(self) -> "Stacked":
        """The values at ``chunk`` points: one compiled function serves all chunks."""
        return Stacked(self.problem, [self], [self.chunk])

    def prepare(self, part: slice) -> Any:
        """Arrays for the points of a slice, padded to ``chunk`` with the last point."""
        return self.values.prepare([np.minimum(np.arange(part.start, part.start + self.chunk), self.size - 1)])

    def evaluate(self, z: np.ndarray, part: slice) -> np.ndarray:
        """Values for each row of ``z`` at a slice of at most ``chunk`` points, shape (rows, points)."""
        prepared = self.prepare(part)
        batches = [
            np.asarray(self.values(padded(z[i : i + DRAWS_AT_ONCE], DRAWS_AT_ONCE), prepared))[: len(z) - i]
            for i in range(0, len(z), DRAWS_AT_ONCE)
        ]
        return np.concatenate(batches)[:, : part.stop - part.start]

    def slices(self) -> list[slice]:
        return [slice(i, min(i + self.chunk, self.size)) for i in range(0, self.size, self.chunk)]


class Stacked:
    """Several quantities concatenated into one vector, a function of ``z`` and of the points given to `prepare`.

    Two stacks that compute the same thing are equal, so that one can be a static argument of compiled functions.
    """

    def __init__(self, problem: Problem, quantities: Sequence[QuantityAt], counts: Sequence[int] | None = None):
        self.quantities = tuple(quantities)
        counts = [q.size for q in quantities] if counts is None else counts
        placed = [(q.quantity, n) for q, n in zip(quantities, counts, strict=True)]
        self.evaluation = Evaluation.of(problem, placed, quantities[-1].where)
        self.parameters = Parameters(problem)
        self.key = (self.evaluation.key, self.parameters.key)
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stacked) and self.key == other.key

    def prepare(self, rows: Sequence[np.ndarray] | None = None) -> Any:
        """Arrays for the given rows of each quantity's points; all points by default."""
        return self.evaluation.prepare([q.quantity for q in self.quantities], rows)

    def one(self, z: Array, prepared: Any) -> Array:
        """All values for one ``z``."""
        return jnp.concatenate(self.evaluation(*self.parameters.split(z), prepared))

    def __call__(self, z: Any, prepared: Any) -> Array:
        """All values for each row of ``z``."""
        return _evaluate(self, z, prepared)


@partial(jax.jit, static_argnames="stacked", compiler_options=FUSED)
def _evaluate(stacked: Stacked, z: Array, prepared: Any) -> Array:
    return jax.vmap(lambda row: stacked.one(row, prepared))(z)


def bytes_of_a_point(problem: Problem) -> int:
    """Approximate memory of the widest layer at one point for one draw, with a few derivatives."""
    width = max((field.width for field in problem.fields.values()), default=1)
    return 4 * width * jnp.dtype(jnp.result_type(float)).itemsize


def padded(rows: Any, count: int) -> Any:
    """Rows padded to ``count`` by repeating the last one."""
    return rows if len(rows) == count else rows[np.minimum(np.arange(count), len(rows) - 1)]
