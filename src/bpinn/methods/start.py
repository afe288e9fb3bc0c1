"""Where a chain starts: a draw from the prior, or the posterior's mode found from small weights."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from bpinn.methods.base import Record, Stage
from bpinn.posterior import Model

SMALL = 0.15  # of the prior's scale; from whole prior draws Adam stays lost in two dimensions
TRIES = 20


class _Climb(NamedTuple):
    z: Array
    optimiser: Any


class Start(NamedTuple):
    """A position, with the log likelihood and its gradient there."""

    z: Array
    log_likelihood: Array
    gradient: Array


def start_at(model: Model, data: Any, z: Array) -> Start:
    return Start(z, *jax.value_and_grad(model.log_likelihood)(z, data))


def draw_start(model: Model, data: Any, key: Array, shrink: float) -> Start:
    """A prior draw, shrunk towards the prior's centre, with a finite log likelihood and gradient if one is found."""
    centre = jnp.asarray(model.parameters.prior_location_scale[0], dtype=float)

    def unusable(carry: tuple[Array, Start]) -> Array:
        i, start = carry
        finite = jnp.isfinite(start.log_likelihood) & jnp.all(jnp.isfinite(start.gradient))
        return (i < TRIES) & ~finite

    def propose(carry: tuple[Array, Start]) -> tuple[Array, Start]:
        draw = model.parameters.sample_prior(jax.random.fold_in(key, carry[0]))
        return carry[0] + 1, start_at(model, data, centre + shrink * (draw - centre))

    # Starting from "not finite", so that the likelihood is compiled once: its gradient is most of what is compiled.
    nothing = Start(centre, jnp.full((), jnp.nan, centre.dtype), jnp.zeros_like(centre))
    return jax.lax.while_loop(unusable, propose, (jnp.int32(0), nothing))[1]


@dataclass(frozen=True)
class Climb(Stage):
    """Adam with a decaying rate, from small weights that differ for each chain, to the mode.

    Steps are in units of the prior's scale, so that one rate serves weights and unknowns alike.
    """

    name: ClassVar[str] = "start"
    rate: float = 1e-2

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(optax.cosine_decay_schedule(self.rate, self.num_steps, alpha=1e-2))

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> _Climb:
        z = draw_start(model, data, key, SMALL).z
        return _Climb(z, self._optimiser().init(z))

    def step(self, model: Model, data: Any, state: _Climb, key: Array, step: Array) -> tuple[_Climb, Record]:
        scale = jnp.asarray(model.parameters.prior_location_scale[1], dtype=float)
        value, gradient = jax.value_and_grad(model.log_density)(state.z, data)
        downhill = -jnp.nan_to_num(gradient) * scale
        move, optimiser = self._optimiser().update(downhill, state.optimiser, state.z)
        return _Climb(state.z + scale * move, optimiser), Record(None, None, {"log_density": value})

    def position(self, state: _Climb) -> Array:
        return state.z
