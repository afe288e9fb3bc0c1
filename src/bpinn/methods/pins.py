"""Pins: values of fields that collapsed chains move like unknowns, because solutions are curved along them.

Within the posterior, solutions of equations that are not linear are curved, and a Gaussian of the coefficients does not
follow them. Those of ordinary differential equations are curved along as few directions as there are initial values: in
the systems of `verification/few_readings.py` all others hold less than 2% of it. Given a value of the field for each of
them, at places that tell most, the coefficients are nearly Gaussian.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.conditional import gaussian, rows_of
from bpinn.coordinates import Coordinates, Reference
from bpinn.linear_readings import Pins, RawStreams, System
from bpinn.methods.frames import triangular_root
from bpinn.model import Model
from bpinn.quantities import Partial

LEAD = 0.0  # readings of fields have their full weight from the first iteration, as in HMC
ROUNDS = 2  # iterations of Gauss and Newton for each proposal, from the mode
MOST_PINS = 8
WITHIN = 0.05  # sd of a value of a field around its pin, in posterior sds
SAMPLES = 6  # draws from which the curvature of the solutions is measured
CLOSE = 0.05  # a value of which less than this share of the variance is left, given other pins, is no pin
PROBE = 0.2  # finite differences, in standard deviations


class Places(NamedTuple):
    """The streams that have pins, by number, with the centre and the sd of each."""

    columns: Array
    centre: Array
    sd: Array

    def pins(self, held: Array, within: float = WITHIN) -> Pins:
        """Pins at ``held``, in sds from the centres."""
        return Pins(self.columns, self.centre + self.sd * held, 1.0 / (within * self.sd))


class Around(NamedTuple):
    """What the Gaussian of the coefficients is built around: a solution, and where there are pins."""

    reference: Reference
    places: Places | None = None

    def at(self, held: Array) -> Reference:
        return self.reference if self.places is None else self.reference._replace(pins=self.places.pins(held))


def num_scalars(model: Model) -> int:
    return model.dim - model.parameters.num_weights


def num_pins(model: Model) -> int:
    """One for each initial value of ordinary differential equations, if these are not linear."""
    if model.is_affine:
        return 0
    orders = {name: 0 for name, _, bounds, _ in model.sensors.fields if len(bounds) == 1}
    for task in model.sensors.tasks:
        for reference in task.references:
            if isinstance(reference, Partial) and reference.field in orders:
                orders[reference.field] = max(orders[reference.field], sum(reference.orders))
    return min(sum(order for name, order in orders.items() if name not in model.sensors.coefficients), MOST_PINS)


def solved_around(
    model: Model, data: Any, reference: Reference, scalars: Array, weight: Array, rounds: int
) -> Reference:
    """The reference after iterations of Gauss and Newton with these scalars."""
    if not rounds:
        return reference
    w = jnp.concatenate([jnp.zeros(model.parameters.num_weights, weight.dtype), scalars])[: model.dim]

    def again(_: Any, streams: RawStreams, fixed: Reference = reference, w: Array = w) -> RawStreams:
        return Coordinates(model, data, fixed._replace(streams=streams), LEAD).solve(w, weight).streams

    # Only the last iteration is differentiated: what the others find hardly changes its outcome.
    fixed = jax.lax.stop_gradient((reference, w))
    before = jax.lax.fori_loop(0, rounds - 1, partial(again, fixed=fixed[0], w=fixed[1]), fixed[0].streams)
    return reference._replace(streams=again(0, jax.lax.stop_gradient(before)))


class Curvature(NamedTuple):
    """The Gaussian of the coefficients at a point, and how the readings are curved within it.

    ``energy`` is the mean of D'D, where D is the change of the linearised readings, in whitened coordinates, from the
    centre to a draw; ``columns`` has what each stream does to whitened coordinates.
    """

    energy: Array
    columns: Array
    streams: Array


def curvature(model: Model, data: Any, reference: Reference, scalars: Array, key: Array) -> Curvature:
    first = model.parameters.num_weights
    z = jnp.concatenate([jnp.zeros(first, scalars.dtype), scalars])[: model.dim]

    def system_at(reference: Reference) -> System:
        return Coordinates(model, data, reference, LEAD).linearised(z)[0]

    system = system_at(reference)
    precision = jnp.asarray(Coordinates(model, data, reference, LEAD).precision, z.dtype)
    found = gaussian(
        system.layout, system.features, system.slopes, system.targets[None], precision, native=model.native
    )
    middle = rows_of(system.layout, system.features, system.slopes)

    def change(key: Array) -> Array:
        v = jax.random.normal(key, (first,), z.dtype)
        there = z.at[model.linear].set(found.means[0] + found.root @ v)
        other = system_at(reference._replace(streams=model.streams(there, data)))
        off = (rows_of(other.layout, other.features, other.slopes) - middle) @ found.root
        return jnp.nan_to_num(off.T @ off)

    energy = jnp.mean(jax.lax.map(change, jax.random.split(key, SAMPLES)), axis=0)
    each = jnp.split(found.root, np.cumsum(system.layout.sizes)[:-1])
    means = jnp.split(found.means[0], np.cumsum(system.layout.sizes)[:-1])
    columns = jnp.concatenate([part.T @ own for part, own in zip(each, system.features, strict=True)], axis=1)
    streams = jnp.concatenate([part @ own for part, own in zip(means, system.features, strict=True)])
    return Curvature(energy, columns, streams)


class Placed(NamedTuple):
    """Where pins are, their correlation given the scalars, and how much solutions are curved given the pins.

    ``bent`` is the mean square, in units of noise, of what one draw of the coefficients changes of the linearised
    readings of another one.
    """

    places: Places | None
    correlation: Array | None
    bent: Array


def placed(model: Model, data: Any, reference: Reference, scalars: Array, key: Array) -> Placed:
    """Pins where values of the fields tell most of how the solutions are curved."""
    count, keys = num_pins(model), jax.random.split(key)
    free = curvature(model, data, reference, scalars, keys[0])
    if not count:
        return Placed(None, None, jnp.trace(free.energy))
    columns = _candidates(model, data)
    sd = jnp.linalg.norm(free.columns[:, columns], axis=0)
    # Noise of single precision in values that hardly vary must not look like a direction.
    varies = sd > 1e-3 * jnp.max(sd)
    sd = jnp.where(varies, sd, 1.0)
    unit = jnp.where(varies, free.columns[:, columns] / sd, 0.0)
    left, chosen = unit, []
    for _ in range(count):
        size = jnp.sum(left**2, axis=0)
        usable = size > CLOSE
        told = jnp.sum(left * (free.energy @ left), axis=0) / jnp.where(usable, size, 1.0)
        best = jnp.argmax(jnp.where(usable, told + 1e-6 * size, -1.0))
        chosen.append(best)
        direction = left[:, best] / jnp.sqrt(jnp.maximum(size[best], CLOSE))
        left = left - direction[:, None] * (direction @ left)
    at = jnp.stack(chosen)
    places = Places(jnp.asarray(columns)[at], free.streams[jnp.asarray(columns)[at]], sd[at])
    pinned = Around(reference, places).at(jnp.zeros(count, sd.dtype))
    bent = jnp.trace(curvature(model, data, pinned, scalars, keys[1]).energy)
    return Placed(places, unit[:, at].T @ unit[:, at], bent)


def joint_root(
    model: Model, data: Any, reference: Reference, found: Placed, scalars: Array, root: Array
) -> tuple[Array, Array]:
    """A root of the covariance of scalars and pins, and its inverse, from that of the scalars.

    Pins follow the scalars, which are probed by finite differences.
    """
    places, covariance = found.places, found.correlation
    assert places is not None
    assert covariance is not None
    if num_scalars(model):
        one, reach = jnp.ones((), scalars.dtype), jnp.sqrt(jnp.sum(root**2, axis=1))
        loose = reference._replace(pins=places.pins(jnp.zeros_like(places.sd), np.inf))

        def probed(step: Array) -> Array:
            there = scalars + step
            solution = solved_around(model, data, loose, there, one, ROUNDS)
            w = jnp.concatenate([jnp.zeros(model.parameters.num_weights, one.dtype), there])
            pinned = Coordinates(model, data, solution, LEAD).solve(w, one).pinned
            assert pinned is not None
            return pinned / places.sd

        steps = PROBE * jnp.diag(reach)
        slopes = jax.lax.map(lambda step: probed(step) - probed(-step), steps).T / (2.0 * PROBE * reach)
        slopes = jnp.nan_to_num(slopes)
        own = root @ root.T
        both = slopes @ own
        covariance = jnp.block([[own, both.T], [both, both @ slopes.T + covariance]])
    factor, inverse = triangular_root(covariance, 1e-12 * jnp.diag(covariance))
    return inverse.T, factor.T


def _candidates(model: Model, data: Any) -> np.ndarray:
    """The streams that may be pins, by number: the values of fields of one coordinate that are not coefficients.

    Where a field is used by its derivatives only, those of lowest order take their place.
    """
    coordinates = Coordinates(model, data, Reference({}, None, None))
    scalars = {scalar.name: jnp.ones(scalar.real_shape) for scalar in model.parameters.scalars}
    bounds = {name: b for name, _, b, _ in model.sensors.fields}
    found, at = [], 0
    for name, field in coordinates.fields:
        wanted = model.sensors.wanted(name, scalars, False)
        own = len(bounds[name]) == 1 and name not in model.sensors.coefficients
        lowest = min(sum(index) for _, index in field.layout(wanted))
        for member, index in field.layout(wanted):
            count = wanted.sizes[member]
            found.append(np.arange(at, at + count) if own and sum(index) == lowest else np.zeros(0, int))
            at += count
    return np.concatenate(found)
