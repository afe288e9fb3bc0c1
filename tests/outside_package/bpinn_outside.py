"""A package outside of bpinn, with a field, a sampler and a likelihood of its own. docs/extending.md explains it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import expit

import bpinn as bp
from bpinn.fields.base import Bounds, Features, Streams, Wanted
from bpinn.likelihoods import LocationScale, namespace

# --- a likelihood ---


@bp.register("logistic")
@dataclass(frozen=True)
class Logistic(LocationScale):
    """Noise with a logistic density: tails between the normal's and the Student-t's; ``noise`` is its scale."""

    def log_kernel(self, residual: Any) -> Any:
        xp = namespace(residual)
        size = xp.abs(residual)
        return -size - 2 * xp.log1p(xp.exp(-size))

    def log_constant(self) -> float:
        return 0.0

    def unit_cdf(self, residual: np.ndarray) -> np.ndarray:
        return expit(residual)

    def unit_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.logistic(size=shape)

    def unit_sd(self) -> float:
        return float(np.pi / np.sqrt(3))

    def information(self, prediction: Any, scale: Any) -> Any:
        return 1 / (3 * scale**2)

    def describe(self) -> str:
        return "logistic noise"


# --- a field ---


@bp.register("cosine")
@dataclass(frozen=True)
class Cosine(bp.Field):
    """A cosine series in one coordinate, whose amplitude is inferred: u = amplitude * sum_j theta_j cos(j pi s) / j.

    ``s`` runs from 0 to 1 over the domain.
    """

    terms: int = 8

    def size(self, bounds: Bounds) -> int:
        return self.terms

    def prior_sd(self, bounds: Bounds) -> np.ndarray:
        return np.ones(self.terms)

    def unflatten(self, theta: jax.Array, bounds: Bounds) -> jax.Array:
        return theta

    def scale_priors(self, bounds: Bounds) -> Mapping[str, dist.Distribution]:
        return {"amplitude": dist.HalfNormal(1.0)}

    def prepare(self, points: Any, requests: Any, bounds: Bounds) -> Any:
        return [
            {index: jnp.asarray(self._basis(x[:, 0], index[0], bounds), dtype=float) for index in wanted}
            for x, wanted in zip(points, self.needed(requests), strict=True)
        ]

    def _basis(self, x: np.ndarray, order: int, bounds: Bounds) -> np.ndarray:
        low, high = bounds[0]
        frequency = np.pi * np.arange(1, self.terms + 1) / (high - low)
        wave = np.cos(frequency * (x - low)[:, None] + 0.5 * np.pi * order)
        return frequency**order * wave / np.arange(1, self.terms + 1)

    def linear(self, bounds: Bounds) -> slice:
        return slice(0, self.terms)

    def features(self, theta: jax.Array, prepared: Any, wanted: Wanted) -> Features:
        amplitude = wanted.scales["amplitude"]
        columns = [{i: amplitude * rows for i, rows in group.items()} for group in prepared]
        return Features(columns, [{i: jnp.zeros(len(rows)) for i, rows in group.items()} for group in columns])

    def raw(self, theta: jax.Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        columns, _ = self.features(theta, prepared, wanted)
        return [{index: rows @ theta for index, rows in group.items()} for group in columns]

    def describe(self) -> str:
        return f"cosine series with {self.terms} terms"


# --- a sampler ---


class Walk(NamedTuple):
    """Where a chain is."""

    z: jax.Array
    log_density: jax.Array
    log_scale: jax.Array


@dataclass(frozen=True)
class Steps(bp.Stage):
    """Random-walk Metropolis; the scale of proposals is adapted in warm-up."""

    name: ClassVar[str] = "draws"
    every: int = 10

    def init(self, model: Any, data: Any, key: jax.Array, previous: Any) -> Walk:
        z = model.parameters.sample_prior(key)
        return Walk(z, model.log_density(z, data), jnp.log(jnp.asarray(0.1)))

    def step(self, model: Any, data: Any, state: Walk, key: jax.Array, step: jax.Array) -> tuple[Walk, bp.Record]:
        warming = step < self.num_warmup

        def one(i: jax.Array, carry: tuple[Walk, jax.Array]) -> tuple[Walk, jax.Array]:
            state, total = carry
            key_move, key_accept = jax.random.split(jax.random.fold_in(key, i))
            z = state.z + jnp.exp(state.log_scale) * jax.random.normal(key_move, state.z.shape)
            log_density = model.log_density(z, data)
            ratio = jnp.nan_to_num(log_density - state.log_density, nan=-jnp.inf)
            accepted = jnp.log(jax.random.uniform(key_accept)) < ratio
            rate = jnp.minimum(jnp.exp(ratio), 1.0)
            log_scale = jnp.where(warming, state.log_scale + 0.1 * (rate - 0.3), state.log_scale)
            moved = Walk(
                jnp.where(accepted, z, state.z), jnp.where(accepted, log_density, state.log_density), log_scale
            )
            return moved, total + rate

        state, total = jax.lax.fori_loop(0, self.every, one, (state, jnp.zeros(())))
        stats = {"log_density": state.log_density, "acceptance": total / self.every}
        return state, bp.Record(state.z, model.functionals(state.z, data), stats)

    def position(self, state: Walk) -> jax.Array:
        return state.z


@bp.register("random_walk")
@dataclass(frozen=True, kw_only=True)
class RandomWalk(bp.Method):
    """Random-walk Metropolis: one draw is kept of every ``every`` moves."""

    num_warmup: int = 500
    num_draws: int = 1000
    every: int = 10
    chains: int = 4

    def stages(self) -> tuple[bp.Stage, ...]:
        return (Steps(self.num_warmup + self.num_draws, self.num_warmup, self.every),)
