"""The population of sequential Monte Carlo, and its way from the prior to the posterior."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import hmc
from blackjax.smc.resampling import systematic
from jax import Array

from bpinn.methods.base import Record, Stage
from bpinn.methods.frames import WhitenedMoves
from bpinn.methods.hmc import HMC
from bpinn.methods.moves import Moves, PlainMoves
from bpinn.model import Model

if TYPE_CHECKING:
    from bpinn.methods.smc import SMC

FIRST_STEP_SIZE, TRAJECTORY = 0.2, 1.5  # in units of the prior's standard deviations
COORDINATES: dict[str, Moves] = {"whitened": WhitenedMoves(freeze=False, hold=0.0), "plain": PlainMoves()}
BISECTIONS = 60
WEAKEST = 1e-15  # smallest increase of the likelihood's weight


class Population(NamedTuple):
    """``weight`` is that of the log likelihood; ``ancestors`` index the prior draws that particles descend from.

    Particles are plain vectors; ``frame`` is what the population knows about the coordinates that it moves in.
    ``gradients`` are those of all particles so far.
    """

    particles: Array
    ancestors: Array
    weight: Array
    log_step_size: Array
    log_evidence: Array
    acceptance: Array
    steps: Array
    gradients: Array
    frame: Any = ()


@dataclass(frozen=True)
class Tempering(Stage):
    """From the prior to the posterior; each step is one tempering step."""

    name: ClassVar[str] = "tempering"
    verb: ClassVar[str] = "tempering step"
    has_history: ClassVar[bool] = True
    settings: "SMC"

    @property
    def until_warm(self) -> bool:
        return True

    @property
    def moves(self) -> Moves:
        return COORDINATES[self.settings.coordinates]

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Population:
        count, zero = self.settings.particles, jnp.zeros((), float)
        particles = jax.vmap(model.parameters.sample_prior)(jax.random.split(key, count))
        first = jnp.log(jnp.asarray(FIRST_STEP_SIZE, float))
        frame = self.moves.shared(model, data, None, particles, zero, key)
        return Population(particles, jnp.arange(count), zero, first, zero, zero, jnp.int32(0), zero, frame)

    def step(self, model: Model, data: Any, state: Population, key: Array, step: Array) -> tuple[Population, Record]:
        done = state.weight >= 1.0
        state = jax.lax.cond(done, lambda: state, lambda: self._strengthen(model, data, state, key))
        told = {name: getattr(state, name) for name in ("weight", "log_evidence", "acceptance", "gradients")}
        return state, Record(None, None, {"step": state.steps, "step_size": jnp.exp(state.log_step_size)} | told)

    def _strengthen(self, model: Model, data: Any, state: Population, key: Array) -> Population:
        settings = self.settings
        key_resampling, key_moves = jax.random.split(key)
        found = jax.lax.map(lambda z: model.log_likelihood(z, data), state.particles)
        found = jnp.where(jnp.isnan(found), -jnp.inf, found)
        more = _next_weight(found, 1.0 - state.weight, settings.share * settings.particles)
        log_weights = more * found
        total = jax.scipy.special.logsumexp(log_weights)
        # Particles that come from the same one are neighbours, and stay so: systematic resampling keeps the order. It
        # hardly changes the share of any family, and so of any solution.
        chosen = systematic(key_resampling, jnp.exp(log_weights - total), settings.starts)
        state = state._replace(
            particles=state.particles[chosen],
            ancestors=state.ancestors[chosen],
            weight=jnp.where(more >= 1.0 - state.weight, 1.0, state.weight + more),
            log_evidence=state.log_evidence + total - jnp.log(settings.particles),
            steps=state.steps + 1,
        )
        return self._moved(model, data, state, key_moves)

    def _moved(self, model: Model, data: Any, state: Population, key: Array) -> Population:
        """The population after its moves; without waste, every state on the way is a particle.

        Weights are those of plain vectors, and the frame is fixed while particles move, so that each move leaves the
        tempered posterior invariant.
        """
        settings, weight = self.settings, state.weight
        key_frame = jax.random.fold_in(key, settings.num_moves)
        frame = self.moves.shared(model, data, state.frame, state.particles, weight, key_frame)
        positions = jax.lax.map(lambda z: self.moves.position(model, data, frame, z, weight), state.particles)
        visited = jnp.zeros((settings.num_moves if settings.waste_free else 1, *positions.shape), positions.dtype)

        def move(i: Array, carry: tuple[Population, Array]) -> tuple[Population, Array]:
            state, visited = carry
            state = self._move(model, data, state, jax.random.fold_in(key, i))
            return state, visited.at[jnp.minimum(i, len(visited) - 1)].set(state.particles)

        begin = state._replace(particles=positions, frame=frame), visited
        state, visited = jax.lax.fori_loop(0, settings.num_moves, move, begin)

        def plain(position: Array) -> Array:
            return self.moves.plain(model, data, frame, hmc.HMCState(position, weight, position), weight)[0]

        # If moves do not divide the number of particles, the first states of some are left out.
        kept = jnp.swapaxes(visited, 0, 1).reshape(-1, positions.shape[1])[-settings.particles :]
        ancestors = jnp.repeat(state.ancestors, len(visited))[-settings.particles :]
        return state._replace(particles=jax.lax.map(plain, kept), ancestors=ancestors)

    def _move(self, model: Model, data: Any, state: Population, key: Array) -> Population:
        """Move every particle by one trajectory in the frame; the step size adapts to the acceptance rate."""
        step_size = jnp.exp(state.log_step_size)
        length = jnp.clip(TRAJECTORY / step_size, 1, self.settings.most_leapfrog).astype(int)
        mass = (self.moves.units(model) * self.moves.quickening(model, state.frame)) ** 2
        log_density = self.moves.log_density(model, data, state.frame, state.weight)

        def one(given: tuple[Array, Array]) -> tuple[Array, Array, Array]:
            key, position = given
            moved, info = HMC().move(key, hmc.init(position, log_density), log_density, step_size, mass, length)
            steps = jnp.asarray(info.num_integration_steps, float)
            return moved.position, jnp.nan_to_num(info.acceptance_rate), steps

        keys = jax.random.split(key, len(state.particles))
        particles, accepted, steps = jax.lax.map(one, (keys, state.particles))
        acceptance = jnp.mean(accepted)
        return state._replace(
            particles=particles,
            acceptance=acceptance,
            gradients=state.gradients + jnp.sum(steps + 1.0),
            log_step_size=state.log_step_size + acceptance - self.settings.target_accept,
        )

    def position(self, state: Population) -> Population:
        return state

    def finished(self, state: Population) -> bool:
        return bool(state.weight >= 1.0)

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        weight = min(float(stats["weight"][-1]) for stats in latest)
        accepted = np.mean([stats["acceptance"][-1] for stats in latest])
        return [f"weight of the likelihood {weight:.2g}", f"accepted {accepted:.0%}"]


def _next_weight(log_likelihood: Array, most: Array, wanted: Array | float) -> Array:
    """The largest increase of the likelihood's weight that leaves ``wanted`` effective particles."""

    def effective(more: Array) -> Array:
        log_weights = more * log_likelihood
        weights = jnp.exp(log_weights - jnp.max(log_weights))
        return jnp.sum(weights) ** 2 / jnp.sum(weights**2)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        enough = effective(jnp.exp(middle)) >= wanted
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, high = jnp.log(jnp.asarray(WEAKEST, most.dtype)), jnp.log(most)
    found = jnp.exp(jax.lax.fori_loop(0, BISECTIONS, halve, (low, high))[0])
    return jnp.where(effective(most) >= wanted, most, jnp.minimum(found, most))
