"""Stochastic gradient Hamiltonian Monte Carlo: chains whose steps take a batch of the readings, for many readings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc import diffusions
from jax import Array

from bpinn.approximate import judge_stochastic
from bpinn.diagnostics import Diagnosis, diagnose_chains
from bpinn.methods.base import Method, Record, Stage, check_count, check_number
from bpinn.methods.linearised import linearised
from bpinn.methods.pinn import first_fit
from bpinn.methods.start import prior_units
from bpinn.model import Model
from bpinn.registry import register
from bpinn.run_output import RunOutput

LONGEST, SHORTEST = 1.5, 0.1  # step sizes at the two ends of a cycle, in units of their mean, nearly
MOST_LOST = 0.5  # share of the momentum that friction may take in one step
ROOM = 0.9  # share of the friction's noise that the noise of the gradient may replace
MEMORY = 20  # measurements over which the gradient's noise and the curvature are averaged
PROBE = 0.05  # length of finite differences, in units of the preconditioned parameters


class Centre(NamedTuple):
    """The fit that a chain starts at, and what is known there; everything is in units of the prior.

    ``v`` is the fit and ``slope`` the gradient of the log likelihood of all readings there. The parameters are
    ``v + C x``, where C is the root of the inverse of ``1 + directions' sizes^2 directions``: the precision of the
    linearised model in the directions that a batch of readings determines best.
    """

    v: Array
    slope: Array
    directions: Array
    sizes: Array

    def moved(self, x: Array) -> Array:
        """``C x``; C is symmetric."""
        shrink = 1.0 - 1.0 / jnp.sqrt(1.0 + self.sizes**2)
        return x - self.directions.T @ (shrink * (self.directions @ x))


class Measured(NamedTuple):
    """What warm-up measures: the variances of a batch's gradient, how much of it the control variate takes away (two
    sums, the ratio of which is its coefficient), and the largest curvature with its direction."""

    variance: Array
    along: Array
    own: Array
    curvature: Array
    direction: Array

    @property
    def coefficient(self) -> Array:
        return jnp.clip(self.along / jnp.where(self.own > 0, self.own, 1.0), 0.0, 1.0)


class State(NamedTuple):
    x: Array
    momentum: Array
    centre: Centre
    measured: Measured


@dataclass(frozen=True)
class Stochastic(Stage):
    """Cycles of steps, each of which ends with a draw. Warm-up measures what step size and friction depend on."""

    name: ClassVar[str] = "draws"
    settings: "SGHMC"

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> State:
        v = previous[0]
        centre, scale = prior_units(model)
        z = centre + scale * v
        slope = scale * jax.grad(model.log_likelihood)(z, data)
        # A reading of a batch stands for as many as there are batches.
        rows = linearised(model.batch, model.random_batch(data, key), z).rows * np.sqrt(model.batches)
        _, sizes, directions = jnp.linalg.svd(rows, full_matrices=False)
        rank = min(self.settings.rank, len(sizes))
        known = Centre(v, slope, directions[:rank], sizes[:rank])
        zero, one = jnp.zeros_like(v), jnp.ones((), v.dtype)
        direction = jax.random.normal(jax.random.fold_in(key, 1), v.shape, v.dtype)
        measured = Measured(zero, one, one, one, direction / jnp.linalg.norm(direction))
        return State(zero, jax.random.normal(jax.random.fold_in(key, 2), v.shape, v.dtype), known, measured)

    def _slopes(self, model: Model, known: Centre, x: Array, batch: Any) -> tuple[Array, Array]:
        """The gradient of the log density by ``x`` from a batch, and that of the log likelihood at the centre."""
        centre, scale = prior_units(model)

        def likelihood(v: Array) -> Array:
            return model.batches * model.batch.log_likelihood(centre + scale * v, batch)

        v = known.v + known.moved(x)
        here = jax.grad(lambda v: likelihood(v) + model.log_prior(centre + scale * v))(v)
        return known.moved(here), known.moved(jax.grad(likelihood)(known.v))

    def _gradient(self, model: Model, data: Any, state: State, x: Array, key: Array) -> Array:
        """An unbiased estimate of the gradient, with the gradient at the centre as control variate."""
        here, there = self._slopes(model, state.centre, x, model.random_batch(data, key))
        return here + state.measured.coefficient * (state.centre.moved(state.centre.slope) - there)

    def _step_size(self, measured: Measured) -> Array:
        return self.settings.step_size / jnp.sqrt(measured.curvature)

    def _friction(self, measured: Measured, longest: Array) -> tuple[Array, Array]:
        """The friction of each parameter, and how much of its noise the noise of the gradient takes the place of.

        Where the gradient is noisy there is more friction: otherwise its noise would heat up the parameter.
        """
        least = jnp.full_like(measured.variance, self.settings.friction)
        friction = jnp.clip(longest * measured.variance, least, jnp.maximum(MOST_LOST / longest, least))
        return friction, jnp.minimum(measured.variance, ROOM * 2 * friction / longest)

    def step(self, model: Model, data: Any, state: State, key: Array, step: Array) -> tuple[State, Record]:
        s = self.settings
        key, key_measure = jax.random.split(key)
        warming = step < self.num_warmup
        state = state._replace(
            measured=jax.lax.cond(
                warming, lambda: self._measured(model, data, state, key_measure, step), lambda: state.measured
            )
        )
        mean = self._step_size(state.measured)
        friction, heat = self._friction(state.measured, LONGEST * mean)
        move = diffusions.sghmc(friction, heat)

        def one(i: Array, moving: tuple[Array, Array]) -> tuple[Array, Array]:
            x, momentum = moving
            key_batch, key_noise = jax.random.split(jax.random.fold_in(key, i))
            share = SHORTEST + (LONGEST - SHORTEST) * 0.5 * (1 + jnp.cos(jnp.pi * (i + 1) / s.steps))
            # The integrator moves the position first. The gradient there, not before it, keeps the energy (symplectic
            # Euler): otherwise directions narrower than the friction's would heat up without limit.
            gradient = self._gradient(model, data, state, x + share * mean * momentum, key_batch)
            return move(key_noise, x, momentum, gradient, share * mean)

        x, momentum = jax.lax.fori_loop(0, s.steps, one, (state.x, state.momentum))
        fine = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(momentum))
        x = jnp.where(fine, x, state.x)
        momentum = jnp.where(fine, momentum, jax.random.normal(key_measure, x.shape, x.dtype))
        state = state._replace(x=x, momentum=momentum)
        centre, scale = prior_units(model)
        z = centre + scale * (state.centre.v + state.centre.moved(x))
        log_density, slope = jax.value_and_grad(model.log_density)(z, data)
        slope = state.centre.moved(scale * slope)
        known = state.centre.directions
        stats = {
            "log_density": log_density,
            "divergent": ~fine,
            "step_size": mean,
            "virial": -jnp.vdot(x, slope) / model.dim,
            "virial_known": -jnp.vdot(known @ x, known @ slope) / len(known),
            "excess": jnp.max(0.5 * mean * state.measured.variance / friction),
        }
        return state, Record(z, model.functionals(z, data), stats)

    def _measured(self, model: Model, data: Any, state: State, key: Array, step: Array) -> Measured:
        """The running measurements with one more: the gradients of two batches, and one at a point aside."""
        old = state.measured
        batches = [model.random_batch(data, k) for k in jax.random.split(key)]
        (first, first_there), (second, second_there) = (self._slopes(model, state.centre, state.x, b) for b in batches)
        aside, _ = self._slopes(model, state.centre, state.x + PROBE * old.direction, batches[0])
        bend = (first - aside) / PROBE
        size = jnp.linalg.norm(bend)
        usable = jnp.isfinite(size) & (size > 0)
        off, there = first - second, first_there - second_there
        share = 1.0 / jnp.minimum(step + 1, MEMORY).astype(size.dtype)
        along, own = (
            (old.along + share * (jnp.vdot(off, there) - old.along)),
            (old.own + share * (jnp.vdot(there, there) - old.own)),
        )
        new = old._replace(along=along, own=own)
        left = off - new.coefficient * there
        new = new._replace(
            variance=old.variance + share * (0.5 * left**2 - old.variance),
            # The largest of late rather than a mean: one step that is too long ends a chain.
            curvature=jnp.maximum(jnp.where(usable, size, 1.0), jnp.maximum(old.curvature * (1 - 1 / MEMORY), 1.0)),
            direction=jnp.where(usable, bend / jnp.where(usable, size, 1.0), old.direction),
        )
        return jax.tree.map(lambda a, b: jnp.where(jnp.all(jnp.isfinite(a)), a, b), new, old)

    def position(self, state: State) -> Array:
        return state.x

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        return [f"virial {np.mean([np.mean(stats['virial']) for stats in latest]):.2f} (1 is right)"]


@register("sghmc")
@dataclass(frozen=True, kw_only=True)
class SGHMC(Method):
    """Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014), on blackjax's integrator.

    For so many readings that a gradient over all of them takes too long: each step takes a batch of them. A chain
    starts at a fit, whose gradient over all readings is a control variate (Baker et al. 2019), and moves in
    coordinates in which the linearised model is standard normal there. Step sizes fall from long to short in each cycle
    (Zhang et al. 2020), which ends with a draw. Nothing is accepted or rejected, so draws are approximate whatever the
    settings: the verdict says by how much the spread is off, from the gradient over all readings at each draw.

    Arguments:
        batch: number of readings in each step, a random sample.
        steps: steps in a cycle, between draws.
        step_size: mean step size, in units of the narrowest direction; 2 is unstable, and the bias grows with it.
        friction: share of the momentum that is lost in a unit of time, in which a step moves by its step size; where
            batches differ much it is raised.
        rank: number of directions that are preconditioned, at most as many as readings in a batch.
        num_warmup: cycles that measure curvature and noise of the gradient, and are discarded.
        num_draws: draws of each chain.
        init_steps: steps of Adam to the fit, on batches as well.
        chains: number of chains, each from a fit of its own.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1).problem
        >>> method = bp.SGHMC(batch=20, steps=10, num_warmup=5, num_draws=10, init_steps=100, chains=2)
        >>> result = bp.infer(problem, method, seed=0, progress=False)
        >>> result.draws("k").shape, result.diagnose().verdict != "good"
        ((2, 10), True)
    """

    recorded: ClassVar[frozenset[str]] = frozenset({"log_density", "virial", "virial_known", "excess", "divergent"})

    batch: int = 1000
    steps: int = 100
    step_size: float = 0.3
    friction: float = 1.0
    rank: int = 300
    num_warmup: int = 200
    num_draws: int = 500
    init_steps: int = 10_000
    chains: int = 4

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("steps", 1), ("rank", 1), ("num_warmup", 1), ("num_draws", 4)):
            check_count("SGHMC", name, getattr(self, name), least)
        for name in ("init_steps", "chains"):
            check_count("SGHMC", name, getattr(self, name))
        check_number("SGHMC", "step_size", self.step_size, 0.0, 2.0)
        check_number("SGHMC", "friction", self.friction, 0.0, np.inf)

    @property
    def readings_at_once(self) -> int | None:
        return self.batch

    def stages(self) -> tuple[Stage, ...]:
        draws = Stochastic(self.num_warmup + self.num_draws, self.num_warmup, self)
        return first_fit(self.init_steps, "posterior", self.batch), draws

    def judge(self, run: RunOutput) -> Diagnosis:
        health = diagnose_chains(run)
        judge_stochastic(health, run.stats)
        return health
