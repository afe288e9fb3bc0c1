"""Hamiltonian trajectories of the point of collapsed chains, see `bpinn.methods.collapsed`.

By hand rather than by blackjax, because what the density finds on its way, the coefficients, is needed at both ends,
and evaluating it again would cost as much as a step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

LENGTH = (0.8, 2.2)  # of a trajectory, in sds; a quarter of a period is pi / 2
MOST_STEPS = 12
FIRST_STEP = 0.6  # of leapfrog, in sds
ACCEPTED = 0.65

Evaluate = Callable[[Array], tuple[Array, Any]]  # the log density of a point, and what else is to be known there


class Ends(NamedTuple):
    """Both ends of a trajectory: what is known at the first one, and at the last; and whether that is accepted."""

    first: Any
    last: Any
    point: Array
    probability: Array
    accepted: Array


def trajectory(evaluate: Evaluate, root: Array, point: Array, log_step: Array, key: Array) -> Ends:
    """From a point, with a random momentum whose covariance is the inverse of R R', R being the ``root``.

    The gradient of ``evaluate`` may be approximate: the trajectory can be reversed all the same.
    """
    keys = jax.random.split(key, 3)
    size = jnp.exp(log_step)
    momentum = jax.random.normal(keys[0], point.shape, point.dtype)
    length = jax.random.uniform(keys[1], (), point.dtype, *LENGTH)
    count = jnp.clip(jnp.round(length / size), 1, MOST_STEPS).astype(jnp.int32)
    both = jax.value_and_grad(evaluate, has_aux=True)

    def one(i: Array, carry: tuple[Array, Array, Array, Any, Any]) -> tuple[Array, Array, Array, Any, Any]:
        point, momentum, density, first, _ = carry
        (value, found), slope = both(point)
        at_end = (i == 0) | (i == count)
        momentum = momentum + jnp.where(at_end, 0.5, 1.0) * size * (root.T @ slope)
        point = jnp.where(i == count, point, point + size * (root @ momentum))
        first = jax.tree.map(lambda new, old: jnp.where(i == 0, new, old), found, first)
        return point, momentum, jnp.where(i == 0, value, density), first, found

    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), jax.eval_shape(evaluate, point)[1])
    start = point, momentum, jnp.zeros((), point.dtype), nothing, nothing
    there, turned, density, first, last = jax.lax.fori_loop(0, count + 1, one, start)
    energy = 0.5 * (jnp.vdot(momentum, momentum) - jnp.vdot(turned, turned))
    ratio = last.marginal - density + energy
    ratio = jnp.where(jnp.isfinite(ratio), ratio, -jnp.inf)
    accepted = jnp.log(jax.random.uniform(keys[2], (), point.dtype)) < ratio
    return Ends(first, last, there, jnp.exp(jnp.minimum(ratio, 0.0)), accepted)
