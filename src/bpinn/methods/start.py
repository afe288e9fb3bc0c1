"""Where a chain or a fit starts: a draw from the prior, or small weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bpinn.model import Model

SMALL = 0.15  # of the prior's scale; from full prior draws Adam does not find a solution in two dimensions
TRIES = 20


class Start(NamedTuple):
    """A position, with the log likelihood and its gradient there."""

    z: Array
    log_likelihood: Array
    gradient: Array


def start_at(model: Model, data: Any, z: Array) -> Start:
    return Start(z, *jax.value_and_grad(model.log_likelihood)(z, data))


def draw_start(
    model: Model, data: Any, key: Array, shrink: float, change: Callable[[Array], Array] | None = None
) -> Start:
    """A prior draw, shrunk towards the prior's centre, with a finite log likelihood and gradient if one is found.

    ``change`` is applied to the draw.
    """
    centre = jnp.asarray(model.parameters.prior_location_scale[0], dtype=float)

    def unusable(carry: tuple[Array, Start]) -> Array:
        i, start = carry
        finite = jnp.isfinite(start.log_likelihood) & jnp.all(jnp.isfinite(start.gradient))
        return (i < TRIES) & ~finite

    def propose(carry: tuple[Array, Start]) -> tuple[Array, Start]:
        draw = model.parameters.sample_prior(jax.random.fold_in(key, carry[0]))
        z = centre + shrink * (draw - centre)
        return carry[0] + 1, start_at(model, data, z if change is None else change(z))

    # Start with a non-finite value, so that the likelihood is compiled once: its gradient dominates compile time.
    nothing = Start(centre, jnp.full((), jnp.nan, centre.dtype), jnp.zeros_like(centre))
    return jax.lax.while_loop(unusable, propose, (jnp.int32(0), nothing))[1]


def prior_units(model: Model) -> tuple[Array, Array]:
    """Centre and spread of the prior of each component of ``z``: ``z = centre + scale * v``."""
    centre, scale = model.parameters.prior_location_scale
    return jnp.asarray(centre, dtype=float), jnp.asarray(scale, dtype=float)


def small(model: Model, data: Any, key: Array) -> Array:
    """Small weights, in units of the prior."""
    centre, scale = prior_units(model)
    return (draw_start(model, data, key, SMALL).z - centre) / scale
