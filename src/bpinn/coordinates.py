"""Whitened coordinates: an exact change of variables in which linear parameters are nearly standard normal.

A field is linear in its output weights or coefficients a: given everything else, linearised readings make a Gaussian
posterior of a in closed form, with mean mu and precision L L'. Its standardised residual v, with a = mu + L^-T v, takes
the place of a. The map is exact whatever the linearisation is taken around, because neither mu nor L depends on a; only
the shape of the density in the new coordinates depends on it. Where readings are linear in the fields, v is standard
normal and independent of everything else.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.conditional import Layout, conditional, conditional_in_chunks, gaussian, gaussian_in_chunks, residual
from bpinn.fields.base import Streams
from bpinn.linear_readings import LinearReadings, Pins, RawStreams, System, precisions
from bpinn.model import Model

ITERATIONS = 5  # of Gauss and Newton, for a reference that is not given


class Frozen(NamedTuple):
    """A map that does not follow the other parameters, except that the mean shifts in proportion to the scalars.

    ``a = mean + shift @ scalars + root @ v``: the shift is that of the mean to first order, as scalars move and linear
    parameters follow so that the linearised readings are met.
    """

    mean: Array
    shift: Array | None  # None if there are no scalars
    root: Array
    inverse: Array

    def centre(self, scalars: Array) -> Array:
        return self.mean if self.shift is None else self.mean + self.shift @ scalars


class Reference(NamedTuple):
    """What the map is built around: the streams of the fields at the sensors, and a scale of the scalars.

    Unknowns, noise levels and inferred scales on the real line are ``scalars @ w``, with an upper triangular matrix;
    ``inverse`` is its inverse. If there is a ``frozen`` map it replaces the one that depends on all other parameters:
    it is cheaper, and nearly as good where the other parameters are a few unknowns. ``pins`` hold the centre of the map
    near values of some streams.
    """

    streams: RawStreams
    scalars: Array | None  # None if there are none: XLA loses the type of native calls beside empty arrays
    inverse: Array | None
    frozen: Frozen | None = None
    pins: Pins | None = None


class Solved(NamedTuple):
    """A plain vector, the log determinant of its derivative, and the streams of the fields at the sensors.

    ``pinned`` are the streams that the reference has pins for.
    """

    z: Array
    log_determinant: Array
    streams: RawStreams
    pinned: Array | None = None


class Coordinates:
    """The map between plain vectors ``z`` and whitened ones ``w`` of the same length; see `Posterior.coordinates`.

    ``w`` has the residuals v where ``z`` has the linear parameters, and the same hidden weights. ``weight`` multiplies
    the likelihood, as in annealing. With a ``lead`` below one, readings of fields have the weight to that power: they
    are ahead of the equations, so that fields follow the readings before equations choose their unknowns by them.
    """

    def __init__(self, model: Model, data: Any, reference: Reference, lead: float = 1.0):
        self.model, self.data, self.reference = model, data, reference
        self.lead = lead if model.leads and model.chunks == 1 else 1.0
        parameters = model.parameters
        self.fields = tuple((name, field) for name, field, *_ in model.linear_fields)
        cuts = []
        for name, _, part in model.linear_fields:
            first = parameters.slices[name].start
            cuts += [first + part.start, first + part.stop]
        bounds = {name: b for name, _, b in parameters.fields}
        self.where = model.linear  # the linear parameters in z
        self.precision = precisions([(field, bounds[name], part) for name, field, part in model.linear_fields])
        every = (True,) * len(model.groups)
        self.readings = LinearReadings(model.sensors, model.groups, self.fields, every, model.native, data)
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
        frozen = self.reference.frozen
        if frozen is not None:
            log_determinant = log_determinant + jnp.sum(jnp.log(jnp.diag(frozen.root)))
            z = self._with(z, frozen.centre(z[self.model.parameters.num_weights :]) + frozen.root @ v)
        elif self.fields and self.model.chunks > 1:
            systems, precision = _Systems(self.model.part), jnp.asarray(self.precision, w.dtype)
            given = theta, scalars, jnp.asarray(weight, w.dtype)
            a, own = conditional_in_chunks(systems, native, given, self._chunks(), v, precision)
            z, log_determinant = self._with(z, a), log_determinant + own
        if frozen is not None or self.model.chunks > 1:
            return Solved(z, log_determinant, self.model.streams(z, self.data))
        streams = self.readings.fixed(theta, scalars)
        pins, pinned = self.reference.pins, None
        if self.fields:
            system = self._system(theta, scalars, streams, weight)
            precision = jnp.asarray(self.precision, w.dtype)
            a, flat, own = conditional(*system.arrays, v, precision, native)
            z, log_determinant = self._with(z, a), log_determinant + own
            blocks = iter(jax.lax.split(flat, [block[0] for of_field in system.layout.blocks for block in of_field]))
            for name, field in self.fields:
                wanted = evaluation.wanted(name, scalars, native)
                found: list[Streams] = [{} for _ in wanted.requests]
                for member, index in field.layout(wanted):
                    found[member][index] = next(blocks)
                if system.offsets[name] is not None:
                    found = jax.tree.map(jnp.add, found, system.offsets[name])
                streams[name] = found
                if pins is not None:
                    own = next(blocks)
                    pinned = own if pinned is None else pinned + own
        return Solved(z, log_determinant, streams, pinned)

    def to_white(self, z: Array, weight: Array | float = 1.0) -> Array:
        """The whitened vector of a plain one."""
        w, a = self._parted(z, to_plain=False)
        if not self.fields:
            return w
        frozen = self.reference.frozen
        if frozen is not None:
            off = a - frozen.centre(z[self.model.parameters.num_weights :])
            return self._with(w, frozen.inverse @ off)
        if self.model.chunks > 1:
            found = self.frozen(z, weight)
            return self._with(w, found.inverse @ (a - found.mean))
        system, precision = self.linearised(z, weight)[0], jnp.asarray(self.precision, z.dtype)
        return self._with(w, residual(*system.arrays, a, precision, self.model.native))

    def frozen(self, z: Array, weight: Array | float = 1.0) -> Frozen:
        """The map given the other parameters in ``z``, which is exact for any others too if it is kept fixed.

        In chunks its mean does not shift with the scalars.
        """
        if self.model.chunks > 1:
            theta, scalars = self.model.parameters.split(self._with(z, jnp.zeros(len(self.where), z.dtype)))
            systems, precision = _Systems(self.model.part), jnp.asarray(self.precision, z.dtype)
            given = theta, scalars, weight
            cut = gaussian_in_chunks(systems, given, self._chunks(), precision, self.model.native)
            return Frozen(cut.means[0], None, cut.root, cut.inverse)
        system, fixed = self.linearised(z, weight)
        at = z[self.model.parameters.num_weights :]
        rows = system.targets[None]
        if len(at):

            def predicted(at: Array) -> list[Array]:
                others = self.model.parameters.split(z.at[self.model.parameters.num_weights :].set(at))[1]
                return self.model.sensors.of_streams(self.reference.streams | fixed, others, self.data["sensors"])

            shifts = -system.roots * jnp.concatenate(jax.jacfwd(predicted)(at)).T
            rows = jnp.concatenate([rows, jnp.where(jnp.isfinite(shifts), shifts, 0.0)])
        precision = jnp.asarray(self.precision, z.dtype)
        found = gaussian(system.layout, system.features, system.slopes, rows, precision, self.model.native)
        if not len(at):
            return Frozen(found.means[0], None, found.root, found.inverse)
        shift = found.means[1:].T
        return Frozen(found.means[0] - shift @ at, shift, found.root, found.inverse)

    def linearised(self, z: Array, weight: Array | float = 1.0) -> tuple[System, RawStreams]:
        """The linearised readings, and the streams of the fields that are not solved for.

        Neither factor nor centre may depend on the linear parameters in ``z``.
        """
        theta, scalars = self.model.parameters.split(self._with(z, jnp.zeros(len(self.where), z.dtype)))
        fixed = self.readings.fixed(theta, scalars)
        return self._system(theta, scalars, fixed, weight), fixed

    def _system(self, theta: Any, scalars: Any, fixed: RawStreams, weight: Array | float) -> System:
        system = self.readings.system(theta, scalars, self.reference.streams, fixed, self._of_groups(weight))
        return system if self.reference.pins is None else system.pinned(self.reference.pins)

    def log_density(self, w: Array, weight: Array | float = 1.0) -> Array:
        """Log density of the posterior in whitened coordinates, the determinant included."""
        solved = self.solve(w, weight)
        return self.log_density_of(solved, weight) + solved.log_determinant

    def log_density_of(self, solved: Solved, weight: Array | float = 1.0) -> Array:
        """Log density of the posterior in plain coordinates, from the streams of the fields."""
        if self.model.chunks > 1:
            return self.model.log_prior(solved.z) + weight * self.model.log_likelihood(solved.z, self.data)
        prior = self.model.log_prior(solved.z)
        if self.lead == 1.0:
            return prior + weight * self.model.log_likelihood_at(solved.z, solved.streams, self.data)
        weights = jnp.asarray(weight) ** self.lead, jnp.asarray(weight)
        return prior + self.model.log_likelihood_at(solved.z, solved.streams, self.data, weights)

    def _of_groups(self, weight: Array | float) -> Array | float:
        """The weight of each group of readings."""
        if self.lead == 1.0:
            return weight
        return jnp.asarray(weight) ** np.array([self.lead if group.leads else 1.0 for group in self.model.groups])

    def _chunks(self) -> tuple[Any, RawStreams]:
        """What `_Systems` takes for each chunk: its data, and the reference's streams."""
        return self.data["chunks"], self.reference.streams

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


@dataclass(frozen=True)
class _Systems:
    """The linearised readings in a chunk, given the parameters of fields, the scalars and the likelihood's weight."""

    model: Model

    def __call__(
        self, given: tuple[Any, Any, Array], chunk: tuple[Any, RawStreams]
    ) -> tuple[Layout, list[Array], Array, Array]:
        theta, scalars, weight = given
        data, streams = chunk
        readings = Coordinates(self.model, data, Reference(streams, None, None)).readings
        return readings.system(theta, scalars, streams, readings.fixed(theta, scalars), weight).arrays


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
    streams = model.streams(z, data)
    one = unit_scalars(model)
    return Reference(streams, one, one)


def unit_scalars(model: Model) -> Array | None:
    """The matrix of scalars that leaves them as they are."""
    size = model.dim - model.parameters.num_weights
    return jnp.eye(size, dtype=float) if size else None
