"""Tempered sequential Monte Carlo: a population moves from the prior to the posterior, and weights its solutions.

A Markov chain on one of several solutions rarely finds another, and several chains cannot tell how probable each
solution is. Here particles are drawn from the prior, and the weight of the likelihood is raised in tempering steps: at
each step, particles are weighted by the increase of the likelihood, resampled, and moved by Hamiltonian Monte Carlo.
The share of particles on a solution is its probability, and the weights give the evidence (Del Moral et al. 2006).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import hmc
from blackjax.smc.resampling import systematic
from jax import Array

from bpinn.diagnostics import Diagnosis, diagnose_particles
from bpinn.methods.base import Method, Record, Stage, check_choice, check_count, check_number
from bpinn.methods.frames import WhitenedMoves
from bpinn.methods.hmc import HMC
from bpinn.methods.moves import Moves, PlainMoves
from bpinn.model import Model
from bpinn.registry import register
from bpinn.run_output import RunOutput, SamplerStats

FIRST_STEP_SIZE, TRAJECTORY, FEWEST_LEAPFROG = 0.2, 1.5, 5  # in units of the prior's standard deviations
COORDINATES: dict[str, Moves] = {"whitened": WhitenedMoves(freeze=False, hold=0.0), "plain": PlainMoves()}
MOST_LEAPFROG = {"whitened": 20, "plain": 100}  # steps in a trajectory, unless given: steps are longer if whitened
BISECTIONS = 60
WEAKEST = 1e-15  # smallest increase of the likelihood's weight


class Population(NamedTuple):
    """``weight`` is that of the log likelihood; ``ancestors`` index the prior draws that particles descend from.

    Particles are plain vectors; ``frame`` is what the population knows about the coordinates that it moves in.
    """

    particles: Array
    ancestors: Array
    weight: Array
    log_step_size: Array
    log_evidence: Array
    acceptance: Array
    steps: Array
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
        return Population(particles, jnp.arange(count), zero, first, zero, zero, jnp.int32(0), frame)

    def step(self, model: Model, data: Any, state: Population, key: Array, step: Array) -> tuple[Population, Record]:
        done = state.weight >= 1.0
        state = jax.lax.cond(done, lambda: state, lambda: self._strengthen(model, data, state, key))
        told = {name: getattr(state, name) for name in ("weight", "log_evidence", "acceptance")}
        return state, Record(None, None, {"step": state.steps, "step_size": jnp.exp(state.log_step_size)} | told)

    def _strengthen(self, model: Model, data: Any, state: Population, key: Array) -> Population:
        count = self.settings.particles
        key_resampling, key_moves = jax.random.split(key)
        found = jax.lax.map(lambda z: model.log_likelihood(z, data), state.particles)
        found = jnp.where(jnp.isnan(found), -jnp.inf, found)
        more = _next_weight(found, 1.0 - state.weight, self.settings.share * count)
        log_weights = more * found
        total = jax.scipy.special.logsumexp(log_weights)
        chosen = systematic(key_resampling, jnp.exp(log_weights - total), count)
        state = state._replace(
            particles=state.particles[chosen],
            ancestors=state.ancestors[chosen],
            weight=jnp.where(more >= 1.0 - state.weight, 1.0, state.weight + more),
            log_evidence=state.log_evidence + total - jnp.log(count),
            steps=state.steps + 1,
        )
        # Weights are those of plain vectors, and the frame is fixed while particles move, so that each move leaves the
        # tempered posterior invariant.
        weight = state.weight
        frame = self.moves.shared(
            model, data, state.frame, state.particles, weight, jax.random.fold_in(key_moves, self.settings.num_moves)
        )
        positions = jax.lax.map(lambda z: self.moves.position(model, data, frame, z, weight), state.particles)
        moves = lambda i, s: self._move(model, data, s, jax.random.fold_in(key_moves, i))  # noqa: E731
        state = state._replace(particles=positions, frame=frame)
        state = jax.lax.fori_loop(0, self.settings.num_moves, moves, state)

        def plain(position: Array) -> Array:
            return self.moves.plain(model, data, frame, hmc.HMCState(position, weight, position), weight)[0]

        return state._replace(particles=jax.lax.map(plain, state.particles))

    def _move(self, model: Model, data: Any, state: Population, key: Array) -> Population:
        """Move every particle by one trajectory in the frame; the step size adapts to the acceptance rate."""
        step_size = jnp.exp(state.log_step_size)
        length = jnp.clip(TRAJECTORY / step_size, FEWEST_LEAPFROG, self.settings.most_leapfrog).astype(int)
        mass = (self.moves.units(model) * self.moves.quickening(model, state.frame)) ** 2
        log_density = self.moves.log_density(model, data, state.frame, state.weight)

        def one(given: tuple[Array, Array]) -> tuple[Array, Array]:
            key, position = given
            moved, info = HMC().move(key, hmc.init(position, log_density), log_density, step_size, mass, length)
            return moved.position, jnp.nan_to_num(info.acceptance_rate)

        keys = jax.random.split(key, self.settings.particles)
        particles, accepted = jax.lax.map(one, (keys, state.particles))
        acceptance = jnp.mean(accepted)
        return state._replace(
            particles=particles,
            acceptance=acceptance,
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


@dataclass(frozen=True)
class Particles(Stage):
    """Returns the particles, one after another, as draws."""

    name: ClassVar[str] = "draws"

    def init(self, model: Model, data: Any, key: Array, previous: Population) -> Population:
        return previous

    def step(self, model: Model, data: Any, state: Population, key: Array, step: Array) -> tuple[Population, Record]:
        z = state.particles[step]
        stats = {
            "log_density": model.log_density(z, data),
            "log_evidence": state.log_evidence,
            "ancestor": state.ancestors[step],
        }
        return state, Record(z, model.functionals(z, data), stats)

    def position(self, state: Population) -> Population:
        return state


@register("smc")
@dataclass(frozen=True, kw_only=True)
class SMC(Method):
    """Tempered sequential Monte Carlo, for equations with several solutions: it estimates how probable each one is.

    About ten times slower than `HMC`, without advantage if there is only one solution. ``result.modes()`` gives the
    solutions with their probabilities, ``result.stats["log_evidence"]`` the log evidence of each population.

    With ``infer(..., start=result)`` the verdict says which solutions of another result the populations have found.
    Particles are always drawn from the prior: on the way from a mixture of the prior and of known solutions to the
    posterior, a solution that is not known would lose nearly all its particles, whatever its probability, because
    known ones fit from the beginning.

    Arguments:
        particles: number of particles in a population; each becomes a draw.
        num_moves: trajectories of Hamiltonian Monte Carlo after each tempering step.
        num_leapfrog: most leapfrog steps in a trajectory; with large step sizes fewer are used. By default 20, or 100
            in plain coordinates, where steps are shorter.
        coordinates: "whitened" moves output weights and coefficients as standardised residuals of their conditional
            posterior, as in `HMC`; "plain" moves them as they are.
        share: share of the particles that must stay effective in a tempering step; values near one lead to many small
            steps.
        target_accept: the acceptance rate that step sizes aim for.
        most_steps: most tempering steps; the run ends there even if the posterior is not reached.
        chains: number of independent populations; their disagreement gives the error of the probabilities.

    Example:
        ``for mode in bp.infer(problem, bp.SMC(), seed=0).modes(): print(mode)``
    """

    fewer: ClassVar[str] = "fewer particles"
    unit: ClassVar[str] = "population"
    is_markov: ClassVar[bool] = False
    takes_statistics: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density", "log_evidence", "ancestor"})
    fitted: ClassVar[frozenset[str]] = frozenset({"weight"})
    before: ClassVar[dict[str, Any]] = {"coordinates": "plain"}

    particles: int = 200
    num_moves: int = 3
    num_leapfrog: int | None = None
    coordinates: str = "whitened"
    share: float = 0.8
    target_accept: float = 0.8
    most_steps: int = 2000
    chains: int = 4

    def __post_init__(self) -> None:
        check_count("SMC", "particles", self.particles, 20)
        for name in ("num_moves", "most_steps", "chains"):
            check_count("SMC", name, getattr(self, name))
        if self.num_leapfrog is not None:
            check_count("SMC", "num_leapfrog", self.num_leapfrog)
        check_choice("SMC", "coordinates", self.coordinates, tuple(COORDINATES))
        check_number("SMC", "share", self.share, 0.0, 1.0)
        check_number("SMC", "target_accept", self.target_accept, 0.0, 1.0)

    @property
    def most_leapfrog(self) -> int:
        """``num_leapfrog``, or its default in these coordinates."""
        return MOST_LEAPFROG[self.coordinates] if self.num_leapfrog is None else self.num_leapfrog

    def stages(self) -> tuple[Stage, ...]:
        return Tempering(self.most_steps, self.most_steps, self), Particles(self.particles, 0)

    def judge(self, run: RunOutput) -> Diagnosis:
        return diagnose_particles(run)

    def weights(self, visits: np.ndarray, stats: SamplerStats) -> np.ndarray | None:
        """Populations are weighted by their evidence."""
        assert stats.log_evidence is not None
        evidence = stats.log_evidence[:, 0].astype(float)
        return np.exp(evidence - evidence.max())
