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


def draw_start(model: Model, data: Any, key: Array, shrink: float) -> Array:
    """A prior draw, shrunk towards the prior's centre, with a finite log density and gradient."""
    centre, _ = (jnp.asarray(a, dtype=float) for a in model.parameters.prior_location_scale)

    def propose(i: Array) -> Array:
        return centre + shrink * (model.parameters.sample_prior(jax.random.fold_in(key, i)) - centre)

    def unusable(carry: tuple[Array, Array]) -> Array:
        i, z = carry
        value, gradient = jax.value_and_grad(model.log_density)(z, data)
        return (i < TRIES) & ~(jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)))

    return jax.lax.while_loop(unusable, lambda c: (c[0] + 1, propose(c[0] + 1)), (jnp.int32(0), propose(jnp.int32(0))))[
        1
    ]


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
        z = draw_start(model, data, key, SMALL)
        return _Climb(z, self._optimiser().init(z))

    def step(self, model: Model, data: Any, state: _Climb, key: Array, step: Array) -> tuple[_Climb, Record]:
        scale = jnp.asarray(model.parameters.prior_location_scale[1], dtype=float)
        value, gradient = jax.value_and_grad(model.log_density)(state.z, data)
        downhill = -jnp.nan_to_num(gradient) * scale
        move, optimiser = self._optimiser().update(downhill, state.optimiser, state.z)
        return _Climb(state.z + scale * move, optimiser), Record(None, None, {"log_density": value})

    def position(self, state: _Climb) -> Array:
        return state.z
