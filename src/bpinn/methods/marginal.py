"""The density of unknowns, noise levels and scales with the coefficients of fields integrated out, and its mode.

Where readings are linear in the coefficients and noise is normal, it is known in closed form up to a constant.
Elsewhere it is estimated from one draw of the coefficients: they are drawn from the Gaussian around a solution of Gauss
and Newton, and their exact density over that of the draw is an unbiased estimate, on which chains are as exact as on
the density itself (Andrieu and Roberts 2009). It scatters the more, the more solutions are curved within the width of
the posterior, so that some values of the fields are moved by chains like unknowns (`bpinn.methods.pins`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bpinn.coordinates import Coordinates, Reference, unit_scalars
from bpinn.methods.frames import noise_levels, small_noise, triangular_root
from bpinn.methods.pins import LEAD, PROBE, ROUNDS, Around, joint_root, num_pins, num_scalars, placed, solved_around
from bpinn.methods.start import prior_units
from bpinn.model import Model

NEWTON, ANNEALED = 50, 30  # iterations for the mode, and those in which the weight of equations rises
FIRST_WEIGHT = 1e-4
# Inferred noise levels are pulled to small values while the weight rises, and some iterations longer: with a large
# noise flat fields fit, and chains would stay there.
PULL, HELD = 10_000.0, 35
SHORTER = (1.0, 0.25, 0.06, 0.015)  # shares of a Newton step that are tried
SETTLED = 0.02  # in standard deviations: Newton's method ends with a shorter step
FAR = 3.0  # longest Newton step, in standard deviations of the prior
FIRST, LAST = 3, 5  # iterations of Gauss and Newton before the others, and after them


class Drawn(NamedTuple):
    """A plain vector with its log density, and the estimate of the log density of the point."""

    z: Array
    log_density: Array
    marginal: Array


class Mode(NamedTuple):
    """A mode, with a root of the inverse of the curvature there, and the root's own inverse.

    A point is the scalars on the real line, then the pins. ``bent`` is that of `Placed`.
    """

    point: Array
    root: Array
    inverse: Array
    around: Around
    bent: Array


def scale_of(model: Model) -> Array:
    """Spread of the prior of each scalar; at least one number."""
    return prior_units(model)[1][model.parameters.num_weights :] if num_scalars(model) else jnp.ones(1, float)


def drawn(
    model: Model,
    data: Any,
    around: Around,
    point: Array,
    v: Array,
    weight: Array | float = 1.0,
    rounds: int | None = None,
) -> Drawn:
    """Coefficients given the point, ``v`` being their residual in whitened coordinates, and what is known of the point.

    Around a solution for this point after so many iterations; for linear readings none are needed.
    """
    count, first = num_scalars(model), model.parameters.num_weights
    held = point[count:]
    reference, full = around.at(held), jnp.asarray(weight, point.dtype)
    rounds = (0 if model.is_affine else ROUNDS) if rounds is None else rounds
    reference = solved_around(model, data, reference, point[:count], full, rounds)
    coordinates = Coordinates(model, data, reference, LEAD)
    solved = coordinates.solve(jnp.concatenate([v, point[:count]]) if count else v, full)
    density = coordinates.log_density_of(solved, full)
    marginal = density + solved.log_determinant + 0.5 * jnp.vdot(v[:first], v[:first])
    if reference.pins is not None and solved.pinned is not None:
        off = (solved.pinned - reference.pins.values) * reference.pins.tightness
        marginal = marginal - 0.5 * jnp.vdot(off, off)
    return Drawn(solved.z, density, marginal)


# --- the mode ---


class _Found(NamedTuple):
    """The mode of the scalars so far, with the root of the inverse of the curvature, and the solution."""

    scalars: Array
    root: Array
    inverse: Array
    reference: Reference


def found_mode(model: Model, data: Any, key: Array) -> Mode:
    """Newton's method from a draw of the prior, while the weight of the equations rises to one."""
    key_start, key_bent = jax.random.split(key)
    found = _mode_of_scalars(model, data, key_start)
    around, straight = Around(found.reference), jnp.zeros((), found.scalars.dtype)
    if model.is_affine:
        return Mode(found.scalars, found.root, found.inverse, around, straight)
    scalars = found.scalars[: num_scalars(model)]
    pins = placed(model, data, found.reference, scalars, key_bent)
    if not num_pins(model):
        return Mode(found.scalars, found.root, found.inverse, around, pins.bent)
    root, inverse = joint_root(model, data, found.reference, pins, scalars, found.root)
    point = jnp.concatenate([scalars, jnp.zeros(num_pins(model), scalars.dtype)])
    return Mode(point, root, inverse, Around(found.reference, pins.places), pins.bent)


def _mode_of_scalars(model: Model, data: Any, key: Array) -> _Found:
    first, scale = model.parameters.num_weights, scale_of(model)
    start = model.parameters.sample_prior(key)
    at = noise_levels(model)
    start = start.at[at].set(small_noise(model, data)) if len(at) else start
    one = unit_scalars(model)
    scalars = start[first:] if num_scalars(model) else jnp.zeros(1, start.dtype)
    least, full = jnp.asarray(FIRST_WEIGHT, start.dtype), jnp.ones((), start.dtype)
    if model.is_affine:
        reference = Reference(model.streams(start.at[:first].set(0.0), data), one, one)
    else:  # from different solutions, if there are several
        reference = Reference(model.streams(start, data), one, one)
        reference = solved_around(model, data, reference, scalars, least, FIRST)
    v = jnp.zeros(first, start.dtype)

    def density(scalars: Array, reference: Reference, weight: Array, held: Array) -> Array:
        pull = jnp.zeros((), scalars.dtype)
        if len(at):
            off = (scalars[at - first] - small_noise(model, data)) / scale[at - first]
            pull = jnp.where(held, -0.5 * PULL * jnp.vdot(off, off), 0.0)
        return drawn(model, data, Around(jax.lax.stop_gradient(reference)), scalars, v, weight, 0).marginal + pull

    def one_step(carry: tuple[Array, Array, _Found]) -> tuple[Array, Array, _Found]:
        i, _, found = carry
        weight = least ** jnp.clip(1.0 - i / ANNEALED, 0.0, 1.0)
        reference = found.reference
        if not model.is_affine:
            reference = solved_around(model, data, reference, found.scalars, weight, 1)
        now = partial(density, reference=reference, weight=weight, held=i < HELD)
        value, slope, root, inverse = _measured(now, found, scale)
        step = root @ (root.T @ slope)
        step = jnp.nan_to_num(step / jnp.maximum(jnp.max(jnp.abs(step) / (FAR * scale)), 1.0))

        def tried(j: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
            there = found.scalars + jnp.asarray(SHORTER, step.dtype)[j] * step
            value_there = now(there)
            better = (best[0] == value) & (value_there > value)  # the longest step that is uphill
            return jax.tree.map(lambda new, old: jnp.where(better, new, old), (value_there, there), best)

        value = jnp.where(jnp.isfinite(value), value, -jnp.inf)
        there = jax.lax.fori_loop(0, len(SHORTER), tried, (value, found.scalars))[1]
        moved = jnp.max(jnp.abs(inverse @ (there - found.scalars)))
        return i + 1, moved, _Found(there, root, inverse, reference)

    def unfinished(carry: tuple[Array, Array, _Found]) -> Array:
        i, moved, _ = carry
        return (i < NEWTON) & ((i <= HELD + 2) | ~(moved < SETTLED))

    begin = _Found(scalars, jnp.diag(scale), jnp.diag(1.0 / scale), reference)
    if model.is_affine and not num_scalars(model):
        return begin
    found = jax.lax.while_loop(unfinished, one_step, (jnp.int32(0), jnp.ones((), scale.dtype), begin))[2]
    if model.is_affine:
        return found
    return found._replace(reference=solved_around(model, data, found.reference, found.scalars, full, LAST))


def _measured(density: Callable[[Array], Array], found: _Found, scale: Array) -> tuple[Array, Array, Array, Array]:
    """The density and its gradient; a root R of the inverse of the curvature, and its own inverse.

    The curvature is that of finite differences of gradients, and at least that of the prior.
    """
    size, both = len(scale), jax.value_and_grad(density)
    spread = PROBE * jnp.sqrt(jnp.sum(found.root**2, axis=1))

    def probed(i: Array, found_so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        side = jnp.where(i < size, 1.0, -1.0) * (i < 2 * size)  # the last one is in the middle
        value, slope = both(found.scalars + jnp.where(jnp.arange(size) == i % size, side * spread, 0.0))
        return value, found_so_far[1].at[i].set(slope)

    empty = jnp.zeros((), scale.dtype), jnp.zeros((2 * size + 1, size), scale.dtype)
    value, slopes = jax.lax.fori_loop(0, 2 * size + 1, probed, empty)
    rows = (slopes[size : 2 * size] - slopes[:size]) / (2.0 * spread[:, None])
    return value, slopes[-1], *triangular_root(jnp.nan_to_num(rows), scale**-2.0)
