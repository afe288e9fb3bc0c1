"""The flat log density: what a sampler sees of a problem."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.errors import InputError
from bpinn.evaluation import Evaluation
from bpinn.likelihoods import Likelihood
from bpinn.parameters import Parameters
from bpinn.problem import Problem
from bpinn.quantities import Equation, Leg, Quantity, label
from bpinn.quantity_at import QuantityAt

MONITORED_POINTS = {1: 11}
MONITORED_POINTS_OTHERWISE = 25


@dataclass(frozen=True)
class Group:
    """Static facts of one group of readings."""

    tasks: tuple[tuple[int, float], ...]
    likelihood: Likelihood
    noise_name: str | None


class Model:
    """The static half of a posterior: two problems that differ only in their data share it.

    Methods take the data as an argument, so that a compiled function serves any data. Two models
    are equal when they compute the same thing, whatever the names of the functions they came from.
    """

    def __init__(self, problem: Problem):
        self.parameters = Parameters(problem)
        self.dim = self.parameters.dim
        tasks: list[tuple[Equation, int]] = []
        self.groups: list[Group] = []
        for readings in problem.readings:
            start = len(tasks)
            tasks += [(leg.equation, len(readings.values)) for leg in readings.legs]
            signs = tuple((start + i, leg.sign) for i, leg in enumerate(readings.legs))
            self.groups.append(Group(signs, readings.likelihood, readings.noise_name))
        self.sensors = Evaluation.of(problem, tasks, "sensors")
        watched = monitored(problem)
        self.watched_signs = tuple(tuple(leg.sign for leg in w.legs) for w in watched)
        legs = [(leg.equation, w.count) for w in watched for leg in w.legs]
        self.monitor = Evaluation.of(problem, legs, "monitor")
        self.key = (
            self.sensors.key,
            self.monitor.key,
            self.watched_signs,
            self.parameters.key,
            tuple(self.groups),
        )
        self.native = False
        self._hash = hash(self.key)

    def compiled(self, native: bool = True) -> "Model":
        """The same, evaluated by the native kernel where there is one; it has gradients, and no other derivatives."""
        other = copy(self)
        other.native = native
        return other

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and (self.native, self.key) == (other.native, other.key)

    def data_of(self, problem: Problem) -> dict[str, Any]:
        """Everything that may change without compiling again."""
        as_array = partial(jnp.asarray, dtype=float)
        legs = [readings.points(leg) for readings in problem.readings for leg in readings.legs]
        return {
            "sensors": self.sensors.prepare(legs),
            "monitor": self.monitor.prepare([at for w in monitored(problem) for at in w.points()]),
            "values": [as_array(r.values) for r in problem.readings],
            "readings": [jax.tree.map(as_array, r.likelihood.prepare(r.values, r.noise)) for r in problem.readings],
        }

    def log_prior(self, z: Array) -> Array:
        return self.parameters.log_prior(z)

    def log_likelihood(self, z: Array, data: Any) -> Array:
        total = jnp.zeros((), z.dtype)
        for part in self.pointwise_log_likelihood(z, data):
            total += jnp.sum(part)
        return total

    def predicted(self, z: Array, data: Any) -> list[Array]:
        """What each reading would be without noise, an array for each group of sensors."""
        values = self.sensors(*self.parameters.split(z), data["sensors"], self.native)
        return [
            sum(sign * values[task] if sign != 1.0 else values[task] for task, sign in group.tasks)  # type: ignore[misc]
            for group in self.groups
        ]

    def pointwise_log_likelihood(self, z: Array, data: Any) -> list[Array]:
        """The log density of each reading, an array for each group of sensors."""
        scalars = self.parameters.split(z)[1]
        predicted = self.predicted(z, data)
        parts = []
        for group, prepared, mean in zip(self.groups, data["readings"], predicted, strict=True):
            inferred = None if group.noise_name is None else scalars[group.noise_name]
            parts.append(group.likelihood.log_prob_of(prepared, mean, inferred))
        return parts

    def saturated_log_likelihood(self, data: Any) -> Array:
        """The log likelihood of readings that are predicted exactly, inferred noises left out."""
        return sum(jnp.sum(prepared["constant"]) for prepared in data["readings"])  # type: ignore[return-value]

    def log_density(self, z: Array, data: Any) -> Array:
        return self.log_prior(z) + self.log_likelihood(z, data)

    def functionals(self, z: Array, data: Any) -> Array:
        """What convergence is judged on: fields and equations across the domain, then unknowns and noise."""
        theta, scalars = self.parameters.split(z)
        values = iter(self.monitor(theta, scalars, data["monitor"], self.native))
        watched = [sum(sign * next(values) for sign in signs) for signs in self.watched_signs]
        return jnp.concatenate([*watched, *(jnp.ravel(scalars[s.name]) for s in self.parameters.scalars)])


@dataclass(frozen=True)
class Watched:
    """A quantity that convergence is judged on: where its legs are evaluated, and what to call each value."""

    name: str
    legs: tuple[Leg, ...]
    at: dict[str, np.ndarray]
    is_equation: bool

    @property
    def count(self) -> int:
        return len(next(iter(self.at.values()), np.zeros(1)))

    def points(self) -> list[dict[str, np.ndarray]]:
        return [self.at | {c: np.full(self.count, v) for c, v in leg.fixed} for leg in self.legs]

    def labels(self) -> list[str]:
        places = [", ".join(f"{c}={a[i]:.3g}" for c, a in self.at.items()) for i in range(self.count)]
        return [f"{self.name} at {place}" if place else self.name for place in places]


def monitored(problem: Problem) -> list[Watched]:
    """Every field across the domain, and every other measured quantity at some of its sensors."""
    watched = [
        Watched(name, problem.names.legs(name, "monitor"), _spread(problem, problem.inputs(name)), False)
        for name in problem.fields
    ]
    for readings in problem.readings:
        if problem.sensors[readings.name].quantity not in list(problem.fields):
            pick = np.unique(np.linspace(0, len(readings.values) - 1, 11).astype(int))
            at = {c: a[pick] for c, a in readings.at.items()}
            watched.append(Watched(readings.name, readings.legs, at, True))
    return watched


def scalar_labels(problem: Problem) -> list[str]:
    """The numbers among the functionals, their last columns: unknowns and inferred noises, component by component."""
    labels = []
    for name, prior in {**problem.unknowns, **problem.noise_priors}.items():
        shape = prior.shape()
        labels += [name] if shape == () else [f"{name}[{i}]" for i in range(shape[0])]
    return labels


def equations_among(problem: Problem) -> np.ndarray:
    """Which of the functionals are equations, True or False each."""
    priors = {**problem.unknowns, **problem.noise_priors}
    scalars = sum(int(np.prod(prior.shape())) for prior in priors.values())
    return np.array([w.is_equation for w in monitored(problem) for _ in range(w.count)] + [False] * scalars)


def _spread(problem: Problem, inputs: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Points across the domain: equidistant in one dimension, a low-discrepancy sequence in more."""
    d = len(inputs)
    if d == 1:
        return {inputs[0]: np.linspace(*problem.domain[inputs[0]], MONITORED_POINTS[1])}
    root = 2.0
    for _ in range(50):  # the generalised golden ratio
        root = (1.0 + root) ** (1.0 / (d + 1))
    steps = np.arange(1, MONITORED_POINTS_OTHERWISE + 1)
    unit = [(0.5 + steps * root ** -(i + 1)) % 1.0 for i in range(d)]
    return {
        c: problem.domain[c][0] + u * (problem.domain[c][1] - problem.domain[c][0])
        for c, u in zip(inputs, unit, strict=True)
    }


# Compiled once for each model, so that calls outside of a user's own jit are not slow.


@partial(jax.jit, static_argnames="model")
def _log_prior(model: Model, z: Array) -> Array:
    return model.log_prior(z)


@partial(jax.jit, static_argnames="model")
def _log_likelihood(model: Model, z: Array, data: Any) -> Array:
    return model.log_likelihood(z, data)


@partial(jax.jit, static_argnames=("model", "n"))
def _sample_prior(model: Model, key: Array, n: int) -> Array:
    return jax.vmap(model.parameters.sample_prior)(jax.random.split(key, n))


class Posterior:
    """The log density of a problem on one flat vector ``z``, to plug a sampler into.

    ``z`` holds the parameters of every field, then every unknown and inferred noise on the real
    line. All normalising constants and the Jacobians of constrained unknowns are included. ``native=True`` evaluates
    networks by the native kernel where there is one: about twice as fast, with gradients but no other derivatives.

    Example:
        >>> import bpinn as bp, jax
        >>> problem = bp.Problem(
        ...     domain={"x": (0.0, 1.0)},
        ...     fields={"u": bp.MLP(hidden=())},
        ...     sensors={"u": bp.Sensors("u", at={"x": [0.0, 1.0]}, values=[0.0, 1.0], noise=0.1)},
        ... )
        >>> posterior = bp.Posterior(problem)
        >>> posterior.dim
        2
        >>> z = posterior.sample_prior(jax.random.key(0), 3)
        >>> z.shape, posterior.log_density(z[0]).shape
        ((3, 2), ())
    """

    def __init__(self, problem: Problem, *, native: bool = False):
        self.problem = problem
        self.model = Model(problem).compiled(native)
        self.data = self.model.data_of(problem)

    @property
    def dim(self) -> int:
        return self.model.dim

    def log_prior(self, z: Array) -> Array:
        return _log_prior(self.model, z)

    def log_likelihood(self, z: Array) -> Array:
        return _log_likelihood(self.model, z, self.data)

    def log_density(self, z: Array) -> Array:
        return self.log_prior(z) + self.log_likelihood(z)

    def sample_prior(self, key: Array, n: int) -> Array:
        """Draws of ``z`` from the prior, shape (n, dim)."""
        return _sample_prior(self.model, key, n)

    def unflatten(self, z: Array) -> dict[str, Any]:
        """Each field's parameters in their own shape, each unknown and noise in its own space."""
        return self.model.parameters.unflatten(jnp.asarray(z))

    def evaluate(self, z: Any, quantity: Quantity, at: Mapping[str, Any] | None = None) -> np.ndarray:
        """A field, derivative or equation at points, for draws of ``z`` from anywhere.

        ``z`` has shape (dim,) or (n, dim), the values (*points) or (n, *points); ``quantity`` and ``at`` are as in
        `Result.predict`. It is for looking at draws, compiled inside; it cannot be called within ``jax.jit``.

        Example:
            >>> import bpinn as bp, jax
            >>> posterior = bp.Posterior(bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=(8,))}))
            >>> z = posterior.sample_prior(jax.random.key(0), 5)
            >>> posterior.evaluate(z, "u_x", {"x": [0.0, 0.5, 1.0]}).shape
            (5, 3)
        """
        where = f"evaluate {label(quantity)!r}"
        rows = np.asarray(z)
        if rows.ndim == 0 or rows.shape[-1] != self.dim or rows.size == 0:
            raise InputError(f"{where}: z has shape {rows.shape}; wanted is ({self.dim},) or (n, {self.dim})")
        located = QuantityAt.of(self.problem, quantity, at, where)
        flat = rows.reshape(-1, self.dim)
        values = np.concatenate([located.evaluate(flat, part) for part in located.slices()], axis=1)
        return values.reshape(*rows.shape[:-1], *located.shape)
