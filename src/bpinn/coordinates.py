"""Whitened coordinates: an exact change of variables in which linear parameters are nearly standard normal.

A field is linear in its output weights or coefficients a: given everything else, linearised readings make a Gaussian
posterior of a in closed form, with mean mu and precision L L'. Its standardised residual v, with a = mu + L^-T v, takes
the place of a. The map is exact whatever the linearisation is taken around, because neither mu nor L depends on a; only
the shape of the density in the new coordinates depends on it. Where readings are linear in the fields, v is standard
normal and independent of everything else.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.conditional import Gaussian, Layout, conditional, gaussian, residual
from bpinn.evaluation import Evaluation
from bpinn.fields.base import Field, Streams
from bpinn.posterior import Model

RawStreams = dict[str, list[Streams]]  # before the link, for each field and each task that uses it
ITERATIONS = 5  # of Gauss and Newton, for a reference that is not given


class Reference(NamedTuple):
    """What the map is built around: the streams of the fields at the sensors, and a scale of the scalars.

    Unknowns, noise levels and inferred scales on the real line are ``scalars @ w``, with an upper triangular matrix;
    ``inverse`` is its inverse. If there is a ``frozen`` map it replaces the one that depends on all other parameters:
    it is cheaper, and as good where the other parameters are a few unknowns.
    """

    streams: RawStreams
    scalars: Array | None  # None if there are none: XLA loses the type of native calls beside empty arrays
    inverse: Array | None
    frozen: Gaussian | None = None


class Solved(NamedTuple):
    """A plain vector, the log determinant of its derivative, and the streams of the fields at the sensors."""

    z: Array
    log_determinant: Array
    streams: RawStreams


class _Term(NamedTuple):
    """Where the values of a task go: value i is added to reading ``first_row + i // width``."""

    first_row: int
    width: int
    sign: float


@lru_cache(maxsize=64)
def _terms(evaluation: Evaluation) -> tuple[tuple[_Term, ...], int]:
    """The place of each task among the readings, and the number of readings."""
    terms, first, tasks = [], 0, iter(evaluation.tasks)
    for parts in evaluation.sums:
        rows = 0
        for sign, width in parts:
            terms.append(_Term(first, width, sign))
            rows = next(tasks).count // width
        first += rows
    return tuple(terms), first


class Coordinates:
    """The map between plain vectors ``z`` and whitened ones ``w`` of the same length; see `Posterior.coordinates`.

    ``w`` has the residuals v where ``z`` has the linear parameters, and the same hidden weights. ``weight`` multiplies
    the likelihood, as in annealing.
    """

    def __init__(self, model: Model, data: Any, reference: Reference):
        self.model, self.data, self.reference = model, data, reference
        parameters = model.parameters
        self.fields: list[tuple[str, Field]] = []
        sds, cuts = [np.zeros(0)], []
        for name, field, part in model.linear_fields:
            first = parameters.slices[name].start
            self.fields.append((name, field))
            sds.append(np.asarray(field.prior_sd({n: b for n, _, b in parameters.fields}[name]))[part])
            cuts += [first + part.start, first + part.stop]
        self.where = model.linear  # the linear parameters in z
        self.precision = np.concatenate(sds) ** -2.0
        self._sizes = np.diff([0, *cuts, parameters.num_weights, parameters.dim]).tolist()

    def to_plain(self, w: Array, weight: Array | float = 1.0) -> tuple[Array, Array]:
        """The plain vector, and the log determinant of its derivative by ``w``."""
        return self.solve(w, weight)[:2]

    def solve(self, w: Array, weight: Array | float = 1.0) -> Solved:
        """`to_plain`, with the streams of the fields at the sensors, which are found on the way."""
        z, v = self._parted(w, to_plain=True)
        log_determinant = jnp.zeros((), w.dtype)
        if self.reference.scalars is not None:
            log_determinant = jnp.sum(jnp.log(jnp.diag(self.reference.scalars)))
        theta, scalars = self.model.parameters.split(z)
        evaluation, native = self.model.sensors, self.model.native
        streams = self._fixed(theta, scalars)
        frozen = self.reference.frozen
        if frozen is not None:
            log_determinant = log_determinant + jnp.sum(jnp.log(jnp.diag(frozen.root)))
            z = self._with(z, frozen.mean + frozen.root @ v)
            streams = evaluation.raw(self.model.parameters.split(z)[0], scalars, self.data["sensors"], native)
        elif self.fields:
            layout, features, slopes, targets, offsets = self._system(theta, scalars, weight, streams)
            precision = jnp.asarray(self.precision, w.dtype)
            a, flat, own = conditional(layout, features, slopes, targets, v, precision, native)
            z, log_determinant = self._with(z, a), log_determinant + own
            blocks = iter(jax.lax.split(flat, [block[0] for of_field in layout.blocks for block in of_field]))
            for name, field in self.fields:
                wanted = evaluation.wanted(name, scalars, native)
                found: list[Streams] = [{} for _ in wanted.requests]
                for member, index in field.layout(wanted):
                    found[member][index] = next(blocks)
                if offsets[name] is not None:
                    found = jax.tree.map(jnp.add, found, offsets[name])
                streams[name] = found
        return Solved(z, log_determinant, streams)

    def to_white(self, z: Array, weight: Array | float = 1.0) -> Array:
        """The whitened vector of a plain one."""
        w, a = self._parted(z, to_plain=False)
        if not self.fields:
            return w
        if self.reference.frozen is not None:
            return self._with(w, self.reference.frozen.inverse @ (a - self.reference.frozen.mean))
        blank = self._with(z, jnp.zeros_like(a))  # neither factor nor centre may depend on the linear parameters
        theta, scalars = self.model.parameters.split(blank)
        layout, features, slopes, targets, _ = self._system(theta, scalars, weight, self._fixed(theta, scalars))
        precision = jnp.asarray(self.precision, z.dtype)
        return self._with(w, residual(layout, features, slopes, targets, a, precision, self.model.native))

    def frozen(self, z: Array, weight: Array | float = 1.0) -> Gaussian:
        """The map given the other parameters in ``z``, which is exact for any others too if it is kept fixed."""
        blank = self._with(z, jnp.zeros(len(self.where), z.dtype))
        theta, scalars = self.model.parameters.split(blank)
        layout, features, slopes, targets, _ = self._system(theta, scalars, weight, self._fixed(theta, scalars))
        return gaussian(layout, features, slopes, targets, jnp.asarray(self.precision, z.dtype), self.model.native)

    def log_density(self, w: Array, weight: Array | float = 1.0) -> Array:
        """Log density of the posterior in whitened coordinates, the determinant included."""
        solved = self.solve(w, weight)
        return self.log_density_of(solved, weight) + solved.log_determinant

    def log_density_of(self, solved: Solved, weight: Array | float = 1.0) -> Array:
        """Log density of the posterior in plain coordinates, from the streams of the fields."""
        scalars = self.model.parameters.split(solved.z)[1]
        predicted = self.model.sensors.of_streams(solved.streams, scalars, self.data["sensors"])
        return self.model.log_prior(solved.z) + weight * self.model.log_likelihood_of(predicted, scalars, self.data)

    # --- the parts of a vector ---

    def _parted(self, vector: Array, to_plain: bool) -> tuple[Array, Array]:
        """The vector with zeros for its linear parameters and with scalars in the other coordinates; what was there."""
        pieces = self._pieces(vector)
        linear = [piece for kind, piece in pieces if kind == "linear"]
        factor = self.reference.scalars if to_plain else self.reference.inverse
        kept = []
        for kind, piece in pieces:
            if kind == "linear":
                kept.append(jnp.zeros_like(piece))
            else:
                kept.append(factor @ piece if kind == "scalars" and factor is not None else piece)
        return jnp.concatenate(kept), jnp.concatenate(linear) if linear else jnp.zeros(0, vector.dtype)

    def _with(self, vector: Array, a: Array) -> Array:
        """The vector with these linear parameters."""
        pieces = self._pieces(vector)
        parts = iter(jax.lax.split(a, [len(piece) for kind, piece in pieces if kind == "linear"]))
        return jnp.concatenate([next(parts) if kind == "linear" else piece for kind, piece in pieces])

    def _pieces(self, vector: Array) -> list[tuple[str, Array]]:
        """A vector cut into hidden weights, linear parameters and scalars; none of the pieces is empty."""
        kinds = ["linear" if i % 2 else "hidden" for i in range(len(self._sizes) - 1)] + ["scalars"]
        sizes = [(kind, size) for kind, size in zip(kinds, self._sizes, strict=True) if size]
        found = jax.lax.split(vector, [size for _, size in sizes])
        return [(kind, piece) for (kind, _), piece in zip(sizes, found, strict=True)]

    # --- the linearised readings ---

    def _fixed(self, theta: Mapping[str, Array], scalars: Mapping[str, Array]) -> RawStreams:
        """The streams of fields without linear parameters."""
        sensors, prepared, native = self.model.sensors, self.data["sensors"]["fields"], self.model.native
        linear = {name for name, _ in self.fields}
        return {
            name: field.raw(theta[name], prepared[name], sensors.wanted(name, scalars, native))
            for name, field, *_ in sensors.fields
            if name in sensors.requests and name not in linear
        }

    def _system(
        self, theta: Mapping[str, Array], scalars: Mapping[str, Array], weight: Array | float, fixed: RawStreams
    ) -> tuple[Layout, list[Array], Array, Array, dict[str, list[Streams] | None]]:
        """The linearised readings in units of their noise: slopes of all streams, targets, and features of all fields.

        Features and offsets do not look at the linear parameters in ``theta``.
        """
        sensors, native = self.model.sensors, self.model.native
        terms, num_rows = _terms(sensors)
        features, offsets, orders, blocks = [], {}, {}, []
        for name, field in self.fields:
            wanted = sensors.wanted(name, scalars, native)
            prepared = self.data["sensors"]["fields"][name]
            features.append(field.stacked(theta[name], prepared, wanted))
            offsets[name] = field.offset(theta[name], prepared, wanted)
            orders[name] = field.layout(wanted)
            users = sensors.requests[name][0]
            places = [(wanted.sizes[member], terms[users[member]]) for member, _ in orders[name]]
            blocks.append(tuple((size, term.first_row, term.width) for size, term in places))
        slopes, values, constants = self._linearised(scalars, fixed, offsets)
        roots, targets = self._weighted(values, constants, scalars, weight)
        flat = []
        for name, _ in self.fields:
            users = sensors.requests[name][0]
            for member, index in orders[name]:
                task = users[member]
                root = roots[
                    terms[task].first_row : terms[task].first_row + sensors.tasks[task].count // terms[task].width
                ]
                slope = slopes[task][name][index]
                if terms[task].width > 1:
                    root = jnp.repeat(root, terms[task].width)
                usable = jnp.where(root > 0, slope, 0.0)
                flat.append(root * usable)
        layout = Layout(tuple(len(f) for f in features), tuple(blocks), num_rows)
        return layout, features, jnp.concatenate(flat), targets, offsets

    def _linearised(
        self, scalars: Mapping[str, Array], fixed: RawStreams, offsets: Mapping[str, list[Streams] | None]
    ) -> tuple[list[dict[str, Streams]], list[Array], list[Array]]:
        """For each task its slopes by the streams; for each quantity its value at the reference, and the constant.

        Slopes include the sign and the weight of the term in its sum.
        """
        sensors, prepared = self.model.sensors, self.data["sensors"]
        slopes: list[dict[str, Streams]] = []
        values, constants = [], []
        for i, (term, weights) in enumerate(zip(_terms(sensors)[0], prepared["weights"], strict=True)):
            places = {name: users.index(i) for name, (users, _) in sensors.requests.items() if i in users}
            moving = {name: self.reference.streams[name][at] for name, at in places.items() if name not in fixed}
            still = {name: fixed[name][at] for name, at in places.items() if name in fixed}

            def value_of(moving: dict[str, Streams], i: int = i, still: Any = still) -> Array:
                return sensors.term(i, moving | still, scalars, prepared)

            value, push = jax.linearize(value_of, moving)
            constant, own = value, dict[str, Streams]()
            factor = term.sign if weights is None else term.sign * jnp.ravel(weights)
            for name, streams in moving.items():
                own[name] = {}
                offset = offsets[name]
                for index, stream in streams.items():
                    nothing = jax.tree.map(jnp.zeros_like, moving)
                    nothing[name][index] = jnp.ones_like(stream)
                    slope = push(nothing)
                    shift = -stream if offset is None else offset[places[name]][index] - stream
                    constant = constant + slope * shift
                    own[name][index] = slope if isinstance(factor, float) and factor == 1.0 else factor * slope
            slopes.append(own)
            values.append(value)
            constants.append(constant)
        return slopes, sensors.summed(values, prepared["weights"]), sensors.summed(constants, prepared["weights"])

    def _weighted(
        self, values: list[Array], constants: list[Array], scalars: Mapping[str, Array], weight: Array | float
    ) -> tuple[Array, Array]:
        """For each reading the root of its weight, and its target in these units; 0 where it is not finite."""
        roots, targets = [], []
        readings = zip(self.model.groups, values, constants, self.data["values"], self.data["noise"], strict=True)
        for group, value, constant, reading, noise in readings:
            scale = noise if group.noise_name is None else scalars[group.noise_name]
            # What is not finite is replaced before it is used, or its derivative would not be finite either.
            known = jnp.isfinite(value) & jnp.isfinite(constant)
            known &= (value > 0) | (not group.likelihood.positive)
            value = jnp.where(known, value, 1.0)
            information = weight * group.likelihood.information(value, scale)
            off = group.likelihood.response(reading, value, scale) - jnp.where(known, constant, 0.0)
            usable = known & jnp.isfinite(information) & (information > 0) & jnp.isfinite(off)
            root = jnp.sqrt(jnp.where(usable, information, 0.0))
            roots.append(jnp.broadcast_to(root, value.shape))
            targets.append(jnp.broadcast_to(root * jnp.where(usable, off, 0.0), value.shape))
        return jnp.concatenate(roots), jnp.concatenate(targets)


@partial(jax.jit, static_argnames="model")
def found_reference(model: Model, data: Any, key: Array) -> Reference:
    """The streams of a solution: hidden weights from the prior, linear parameters by Gauss-Newton iterations."""

    def one(_: Any, z: Array) -> Array:
        coordinates = Coordinates(model, data, reference_at(model, data, z))
        return coordinates.to_plain(z.at[coordinates.where].set(0.0))[0]

    return reference_at(model, data, jax.lax.fori_loop(0, ITERATIONS, one, model.parameters.sample_prior(key)))


@partial(jax.jit, static_argnames="model")
def reference_at(model: Model, data: Any, z: Array) -> Reference:
    """The streams of a plain vector at the sensors, with scalars as they are."""
    streams = model.sensors.raw(*model.parameters.split(z), data["sensors"], model.native)
    one = unit_scalars(model)
    return Reference(streams, one, one)


def unit_scalars(model: Model) -> Array | None:
    """The matrix of scalars that leaves them as they are."""
    size = model.dim - model.parameters.num_weights
    return jnp.eye(size, dtype=float) if size else None
