"""Sufficient statistics: many readings that are linear in coefficients become a few with the same likelihood.

Readings with normal noise are y = A a + c + noise for the coefficients a of their fields. With the roots W of their
weights and the triangular factor R of W [A, y - c], the log likelihood is that of the rows of R, as if these were
readings with unit noise: at most one for each coefficient, and one that holds what no coefficients can fit. A common
noise that is inferred divides all rows. The factor is found once, in double precision, from blocks of readings; nothing
is squared, so that the rows can be used in single precision.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.affine import is_affine
from bpinn.checks import blocks, some
from bpinn.fields.base import Rows
from bpinn.likelihoods import Normal
from bpinn.measurements import Placed, Term
from bpinn.problem import Problem
from bpinn.quantities import Coordinate, Equation, Partial, Unknown
from bpinn.readings import Readings

LEAST = 1000  # readings of a group; fewer are evaluated as they are
RATIO = 2  # least number of points for each row that takes their place
MOST_COEFFICIENTS = 500  # the cost of the factor grows with their square
BLOCK = 8192  # points whose rows are held at once


@dataclass(frozen=True)
class Factored(Normal):
    """Normal noise of rows of a triangular factor, each of which stands for ``count`` readings."""

    def log_prob_of(self, prepared: dict[str, Array], prediction: Array, scale: Array | None) -> Array:
        residual = prediction - prepared["values"]
        if scale is None:
            return self.log_kernel(residual) + prepared["constant"]
        return self.log_kernel(residual / scale) + prepared["constant"] - prepared["count"] * jnp.log(scale)


@dataclass(frozen=True, eq=False)
class FactoredPlaces(Placed):
    """Rows of a triangular factor in place of points: those of each field by its name."""

    def points(self, rows: np.ndarray) -> list[dict[str, Any]]:
        return [{name: Rows(matrix[rows]) for name, matrix in self.at.items()}]


@dataclass(frozen=True)
class Statistics(Readings):
    """What stands for a group of readings in the log density."""

    original: Readings | None = None
    constant: np.ndarray | None = None  # the log density of each row if it is predicted exactly

    @property
    def _readings(self) -> Readings:
        assert self.original is not None
        return self.original

    @property
    def leads(self) -> bool:
        return self._readings.leads

    def prepared(self) -> dict[str, np.ndarray]:
        assert self.constant is not None
        count = np.ones(len(self.values))
        count[-1] = len(self._readings.values) - len(count) + 1
        spread = np.full(len(count), np.std(some(self._readings.values)))
        return {"values": self.values, "constant": self.constant, "count": count, "spread": spread}


_known: WeakKeyDictionary[Problem, Problem | None] = WeakKeyDictionary()


def summarised(problem: Problem) -> Problem:
    """The problem with the statistics of readings where they can take their place; the same one if nowhere.

    Its ``sensors`` still hold all of them.
    """
    if problem not in _known:
        found = tuple(_statistics(problem, readings) or readings for readings in problem.readings)
        other = None
        if any(isinstance(readings, Statistics) for readings in found):
            other = copy(problem)
            other.readings = found
        _known[problem] = other  # None for the problem itself, which must not keep itself alive
    return _known[problem] or problem


def _statistics(problem: Problem, readings: Readings) -> Statistics | None:
    if not _possible(problem, readings):
        return None
    factor = _factor(problem, readings)
    if factor is None:
        return None
    rows, target = factor[:, :-1], factor[:, -1]
    cuts = np.cumsum([problem.fields[name].size(problem.bounds(name)) for name in sorted(readings.fields)])[:-1]
    parts = dict(zip(sorted(readings.fields), np.split(rows, cuts, axis=1), strict=True))
    constant = np.full(len(target), readings.likelihood.prepare(readings.values[:1], np.ones(1))["constant"][0])
    constant[-1] *= len(readings.values) - len(target) + 1
    noise = None
    if readings.noise is not None:
        noise = np.ones(len(target))
        constant[-1] -= sum(float(np.sum(np.log(readings.noise[part]))) for part in blocks(len(readings.values)))
    placed = FactoredPlaces((Term(_sum(readings)),), parts, len(target))
    return Statistics(
        readings.name, placed, target, noise, readings.noise_name, Factored(), original=readings, constant=constant
    )


def _possible(problem: Problem, readings: Readings) -> bool:
    """Whether readings are many, with normal noise, and linear in the coefficients of fixed bases."""
    if type(readings.likelihood) is not Normal or readings.neutral or len(readings.values) < LEAST:
        return False
    fields = [(problem.fields[name], problem.bounds(name)) for name in sorted(readings.fields)]
    if not fields or any(field.positive or not field.has_fixed_basis for field, _ in fields):
        return False
    size = sum(field.size(bounds) for field, bounds in fields)
    terms = readings.quantity.terms
    points = len(readings.values) * sum(term.width for term in terms)
    few = size <= MOST_COEFFICIENTS and len(readings.values) > size and points >= RATIO * (size + 1)
    if not few or any(isinstance(r, Unknown) for term in terms for r in term.equation.references):
        return False
    return all(is_affine(term.equation, _size_of_block(readings) * term.width, {}) for term in terms)


def _size_of_block(readings: Readings) -> int:
    """How many readings have their rows in memory at once."""
    return min(len(readings.values), max(1, BLOCK // sum(term.width for term in readings.quantity.terms)))


@dataclass(frozen=True)
class _Slopes:
    """A term where its fields are zero, and its derivatives by what it reads of them, at points."""

    constant: np.ndarray
    slopes: dict[Partial, np.ndarray]

    @classmethod
    def of(cls, term: Term, points: Mapping[str, np.ndarray]) -> "_Slopes":
        references, count = term.equation.references, len(next(iter(points.values())))
        found: dict[Partial, np.ndarray] = {}
        with jax.enable_x64(True):
            given = [
                jnp.asarray(points[r.name], float) if isinstance(r, Coordinate) else jnp.zeros(count, float)
                for r in references
            ]
            constant, push = jax.linearize(lambda *values: term.equation.call(values), *given)
            for i, reference in enumerate(references):
                if isinstance(reference, Partial):
                    own = push(*(jnp.ones(count) if i == j else jnp.zeros(count) for j in range(len(references))))
                    found[reference] = found.get(reference, 0.0) + np.asarray(own, float)
        return cls(np.asarray(constant, float), found)


def _factor(problem: Problem, readings: Readings) -> np.ndarray | None:
    """The triangular factor of readings in units of their noise, targets in the last column; None if not finite."""
    quantity, factor = readings.quantity, None
    size = _size_of_block(readings)
    for first in range(0, quantity.count, size):
        block = _block(problem, readings, np.arange(first, min(first + size, quantity.count)))
        if not np.all(np.isfinite(block)):
            return None
        rows = block if factor is None else np.concatenate([factor, block])
        factor = np.asarray(np.linalg.qr(rows, mode="r"))
    assert factor is not None
    return np.where(np.diag(factor) < 0, -1.0, 1.0)[:, None] * factor


def _block(problem: Problem, readings: Readings, rows: np.ndarray) -> np.ndarray:
    """Rows of readings for the coefficients of all fields, and their targets, in units of their noise."""
    names, quantity = sorted(readings.fields), readings.quantity
    columns: dict[str, Any] = dict.fromkeys(names, 0.0)
    target = np.asarray(readings.values[rows], float)
    every = zip(quantity.terms, quantity.points(rows), quantity.weights(rows), strict=True)
    for term, points, weights in every:
        own, size = _Slopes.of(term, points), len(rows) * term.width
        weight = np.full(size, term.sign) if weights is None else term.sign * weights.ravel()
        starts = np.arange(0, size, term.width)
        target = target - np.add.reduceat(weight * own.constant, starts)
        for reference, slope in own.slopes.items():
            field, bounds = problem.fields[reference.field], problem.bounds(reference.field)
            places = np.stack([np.asarray(points[c], float) for c in problem.inputs(reference.field)], axis=1)
            basis, mean = field.fixed_basis(places, reference.orders, bounds)
            factor = weight * slope
            columns[reference.field] = columns[reference.field] + np.add.reduceat(factor[:, None] * basis, starts)
            target = target - np.add.reduceat(factor * mean, starts)
    block = np.concatenate([*(columns[name] for name in names), target[:, None]], axis=1)
    return block if readings.noise is None else block / np.asarray(readings.noise[rows], float)[:, None]


def _sum(readings: Readings) -> Equation:
    """The sum of the fields, as the equation of rows; each is read by the highest derivative that readings have."""
    highest: dict[str, Partial] = {}
    for term in readings.quantity.terms:
        for r in term.equation.references:
            if isinstance(r, Partial) and sum(r.orders) >= sum(highest.get(r.field, r).orders):
                highest[r.field] = r
    return Equation(f"statistics of {readings.name}", _added, tuple(highest[name] for name in sorted(highest)))


def _added(*parts: Any) -> Any:
    return sum(parts[1:], start=parts[0])
