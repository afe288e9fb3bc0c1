"""Markov chains of the unknowns alone, with the fields' coefficients integrated out.

If all fields are linear in their parameters, all readings linear in the fields, and all noise is normal, the
coefficients are Gaussian given unknowns, noise levels and scales. Then the posterior of these few numbers is known in
closed form up to a constant (Rasmussen and Williams 2006, chapter 5), and coefficients are drawn exactly for each of
them. Where only the fields are linear in their parameters, coefficients are proposed from a Gaussian, and accepted or
rejected together with the numbers that they were proposed for (`bpinn.methods.marginal`). A step needs the density
only, not its gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn import convergence
from bpinn.chunks import number_of_chunks
from bpinn.diagnostics import MORE, Diagnosis, diagnose_chains
from bpinn.errors import InputError
from bpinn.methods.base import Decision, Method, Pause, Policy, Record, Stage, check_count
from bpinn.methods.marginal import Drawn, drawn, found_mode
from bpinn.methods.pins import Around, num_pins, num_scalars
from bpinn.methods.proposals import Proposals, Views
from bpinn.methods.trajectories import ACCEPTED, FIRST_STEP, trajectory
from bpinn.model import MOST_LINEAR, Model
from bpinn.neutral import is_linear
from bpinn.problem import Problem
from bpinn.registry import register
from bpinn.run_output import RunOutput

LOOK = 40  # step after which lost chains are restarted
# Shares of warm-up, at whose ends proposals follow the draws so far: often with trajectories, whose steps move far.
UPDATES, OFTEN = (0.5, 1.0), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75)
LOST_BY = 40.0  # in log density: chains that are so far below another one are restarted
LEAST_DRAWS, ROUND = 300, 100
FEW = 9  # scalars of linear problems up to which there are no trajectories; with two proposals each, a step is as good
# Where readings are not linear: the share of steps that change the coefficients alone, and of these that are accepted.
ALONE, ALONE_ACCEPTED = 0.3, 0.4


class _State(NamedTuple):
    """``point`` has the scalars on the real line, then the pins; ``v`` is the residual of the coefficients.

    ``marginal`` estimates the log density of the point. Coefficients are changed by an ``angle``: the residual is
    turned so far towards an independent one.
    """

    z: Array
    point: Array
    v: Array
    log_density: Array
    marginal: Array
    proposals: Proposals
    around: Around
    angle: Array
    log_step: Array
    bent: Array


@dataclass(frozen=True)
class Marginal(Stage):
    """Random walks and independent proposals around the mode, adapted during warm-up."""

    name: ClassVar[str] = "draws"
    settings: "Collapsed"

    @property
    def most_restarts(self) -> int:
        return 3

    @property
    def until_good(self) -> bool:
        return self.settings.num_draws is None

    def policy(self) -> "CollapsedPolicy":
        return CollapsedPolicy(self.num_warmup, self.num_steps, self.until_good)

    def compiled(self) -> "Marginal":
        usual = {name: getattr(Collapsed, name) for name in ("num_draws", "most_draws", "chains")}
        return replace(self, num_steps=self.num_warmup, settings=replace(self.settings, **usual))

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> _State:
        key_mode, key_draw = jax.random.split(key)
        mode = found_mode(model, data, key_mode)
        v = jax.random.normal(key_draw, (model.parameters.num_weights,), mode.point.dtype)
        first = drawn(model, data, mode.around, mode.point, v)
        proposals = Proposals.around(Views(model, num_pins(model)), mode.point, mode.root, mode.inverse)
        angle, log_step = (jnp.asarray(x, v.dtype) for x in (0.5 * np.pi, np.log(FIRST_STEP)))
        return _State(
            point=mode.point, v=v, proposals=proposals, around=mode.around, angle=angle, log_step=log_step,
            bent=mode.bent, **first._asdict(),
        )  # fmt: skip

    def step(self, model: Model, data: Any, state: _State, key: Array, step: Array) -> tuple[_State, Record]:
        def again(i: Array, carry: tuple[_State, Array]) -> tuple[_State, Array]:
            state, accepted = self._transition(model, data, carry[0], jax.random.fold_in(key, i), step)
            return state, carry[1] + accepted

        repeats = jnp.where(step < self.num_warmup, 1, self.settings.thin * (1 if _has_trajectories(model) else 2))
        state, total = jax.lax.fori_loop(0, repeats, again, (state, jnp.zeros((), state.z.dtype)))
        stats = {
            "log_density": state.log_density, "sampler_log_density": state.marginal,
            "accepted": total / repeats, "misfit": model.misfit(state.z, data),
        }  # fmt: skip
        return state, Record(state.z, model.functionals(state.z, data), stats)

    def _transition(self, model: Model, data: Any, state: _State, key: Array, step: Array) -> tuple[_State, Array]:
        keys = jax.random.split(key)
        if _has_trajectories(model):
            along = partial(self._along, model, data, keys[0], step)
            state = jax.lax.cond(state.proposals.suffice, lambda state: state, along, state)
        return self._proposed(model, data, state, keys[1], step)

    def _updates(self, model: Model) -> Array:
        return jnp.asarray([int(share * self.num_warmup) for share in (OFTEN if _has_trajectories(model) else UPDATES)])

    def _rate(self, model: Model, step: Array) -> Array:
        """How fast step sizes and angles are adapted: ever slower after each update of the proposals."""
        updates = self._updates(model)
        last = jnp.max(jnp.where(step >= updates, updates, 0))
        return jnp.where(step < self.num_warmup, 0.5 * (1.0 + 0.15 * (step - last)) ** -0.75, 0.0)

    def _along(self, model: Model, data: Any, key: Array, step: Array, state: _State) -> _State:
        """A trajectory of the point."""
        key_v, key = jax.random.split(key)
        v = jax.random.normal(key_v, state.v.shape, state.v.dtype) if model.is_affine else state.v

        def evaluate(point: Array) -> tuple[Array, Drawn]:
            found = drawn(model, data, state.around, point, v)
            return found.marginal, found

        ends = trajectory(evaluate, state.proposals.root[0], state.point, state.log_step, key)
        found = jax.tree.map(lambda new, old: jnp.where(ends.accepted, new, old), ends.last, ends.first)
        rate = self._rate(model, step).astype(v.dtype)
        log_step = state.log_step + rate * (ends.probability - ACCEPTED)
        point = jnp.where(ends.accepted, ends.point, state.point)
        known = jnp.isfinite(ends.first.marginal)
        moved = state._replace(point=point, v=v, **found._asdict())
        state = jax.tree.map(lambda new, old: jnp.where(known, new, old), moved, state)
        return state._replace(log_step=log_step)

    def _proposed(self, model: Model, data: Any, state: _State, key: Array, step: Array) -> tuple[_State, Array]:
        """An independent proposal, a step of a random walk, or a change of the coefficients alone."""
        keys = jax.random.split(key, 4)
        views, dtype = Views(model, num_pins(model)), state.z.dtype
        fresh = jax.random.normal(keys[0], state.v.shape, dtype)
        moves = num_scalars(model) + num_pins(model) > 0
        if not moves and model.is_affine:
            state = state._replace(v=fresh, **drawn(model, data, state.around, state.point, fresh)._asdict())
            return state, jnp.ones((), bool)
        alone = jnp.asarray(not moves)
        if moves and not model.is_affine:
            alone = jax.random.uniform(keys[3], (), dtype) < ALONE
        v = fresh if model.is_affine else jnp.cos(state.angle) * state.v + jnp.sin(state.angle) * fresh
        proposed = state.proposals.propose(views, state.point, keys[1])
        usable = alone | jnp.all(jnp.isfinite(proposed.scalars))
        there = jnp.where(usable & ~alone, proposed.scalars, state.point)
        found = drawn(model, data, state.around, there, v)
        ratio = found.marginal - state.marginal + jnp.where(alone, 0.0, proposed.correction)
        # A chain that starts where the density is not finite takes any proposal where it is.
        ratio = jnp.where(jnp.isfinite(state.marginal), ratio, jnp.inf)
        ratio = jnp.where(usable & jnp.isfinite(found.marginal), ratio, -jnp.inf)
        accepted = jnp.log(jax.random.uniform(keys[2], (), dtype)) < ratio
        moved = state._replace(point=there, v=v, **found._asdict())
        state = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), moved, state)
        closes = jnp.any(step + 1 == self._updates(model))
        probability = jnp.exp(jnp.minimum(ratio, 0.0))
        warming = step < self.num_warmup
        if moves:
            proposed = proposed._replace(view=jnp.where(alone, -1, proposed.view))
            adapted = state.proposals.adapted(
                views, state.point, proposed, probability, closes, quick=_has_trajectories(model)
            )
            kept = jax.tree.map(lambda new, old: jnp.where(warming, new, old), adapted, state.proposals)
            state = state._replace(proposals=kept)
        if not model.is_affine:
            rate = jnp.where(alone, self._rate(model, step), 0.0)
            angle = jnp.clip(state.angle * jnp.exp(rate * (probability - ALONE_ACCEPTED)), 0.01, 0.5 * np.pi)
            state = state._replace(angle=angle.astype(dtype))
        return state, accepted

    def position(self, state: _State) -> Array:
        return state.z

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        return [f"accepted {np.mean([np.mean(stats['accepted']) for stats in latest]):.0%}"]


def _has_trajectories(model: Model) -> bool:
    """Whether they are worth what compiling them takes: not where proposals are enough for few scalars."""
    moving = num_scalars(model) + num_pins(model)
    return moving > 0 if not model.is_affine else moving > FEW


@dataclass(frozen=True)
class CollapsedPolicy(Policy):
    """Restarts chains that are lost from the first, and ends a run that has enough draws."""

    num_warmup: int
    num_steps: int
    until_good: bool

    def next_pause(self, done: int) -> int:
        if done < min(LOOK, self.num_warmup):
            return min(LOOK, self.num_warmup)
        if done < self.num_warmup or not self.until_good:
            return self.num_warmup if done < self.num_warmup else self.num_steps
        return min(max(done + ROUND, self.num_warmup + LEAST_DRAWS), self.num_steps)

    def review(self, pause: Pause) -> Decision:
        if pause.done <= self.num_warmup:
            marginal = pause.stats.sampler_log_density[:, -1]
            known = np.where(np.isfinite(marginal), marginal, -np.inf)
            return Decision(lost=tuple(int(i) for i in np.flatnonzero(known < known.max() - LOST_BY)))
        hopeless = convergence.is_hopeless(pause.stats.misfit)
        return Decision(enough=hopeless or convergence.enough(pause.functionals, pause.is_secondary))


@register("collapsed")
@dataclass(frozen=True, kw_only=True)
class Collapsed(Method):
    """Exact draws where the fields' coefficients can be integrated out: Gaussian processes and expansions.

    For fields that are linear in their parameters (`GaussianProcess`, `KarhunenLoeve`, `MLP` without hidden layers).
    Markov chains then move through unknowns, noise levels and scales alone, and the coefficients are drawn given each
    of them. The posterior is the same as that of `HMC`, in a fraction of the time. Without unknowns, inferred noise and
    inferred scales, draws of linear problems are independent.

    Where equations are not linear, fields positive or noise not normal, coefficients are proposed and then accepted or
    rejected. The more the solutions of an equation are curved within the posterior, the fewer are accepted. `infer`
    measures this, and chooses these chains or `HMC` by itself.

    Arguments:
        num_warmup: steps in which proposals are adapted; they are discarded.
        num_draws: draws of each chain; by default as many as the run needs to be judged good.
        most_draws: upper limit of draws of each chain if ``num_draws`` is not given.
        thin: keep every n-th step after warm-up.
        chains: number of chains, if `infer` is not given one.

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> problem = bp.paper.regression(noise=0.1, surrogate=surrogate).problem
        >>> bp.infer(problem, bp.Collapsed(num_draws=300), seed=0, progress=False).diagnose().verdict
        'good'
    """

    fewer: ClassVar[str] = "thin="
    takes_statistics: ClassVar[bool] = True

    num_warmup: int = 400
    num_draws: int | None = None
    most_draws: int = 4000
    thin: int = 1
    chains: int = 4

    def __post_init__(self) -> None:
        check_count("Collapsed", "num_warmup", self.num_warmup, 20)
        if self.num_draws is not None:
            check_count("Collapsed", "num_draws", self.num_draws, 4)
        for name in ("most_draws", "thin", "chains"):
            check_count("Collapsed", name, getattr(self, name))

    def check(self, problem: Problem) -> None:
        obstacle = why_not_collapsed(problem)
        if obstacle:
            raise InputError(f"Collapsed: {obstacle}; use bp.HMC()")

    def stages(self) -> tuple[Stage, ...]:
        draws = self.most_draws if self.num_draws is None else self.num_draws
        return (Marginal(self.num_warmup + draws, self.num_warmup, self),)

    def judge(self, run: RunOutput) -> Diagnosis:
        health = diagnose_chains(run)
        health.advice = [HMC_INSTEAD if advice == MORE else advice for advice in health.advice]
        return health


HMC_INSTEAD = "more draws (num_draws, most_draws) or a longer warm-up (num_warmup); or bp.HMC()"


def why_not_collapsed(problem: Problem) -> str:
    """What keeps the coefficients of fields from being integrated out, in words; nothing if they can be."""
    size = 0
    for name, field in problem.fields.items():
        bounds = problem.bounds(name)
        size += field.size(bounds)
        if field.linear(bounds) != slice(0, field.size(bounds)):
            return f"field {name!r} ({type(field).__name__}) is not linear in its parameters"
        if not any(name in readings.fields for readings in problem.readings):
            return f"no sensors measure field {name!r}"
    if size > MOST_LINEAR:
        return f"the fields have {size} coefficients, at most {MOST_LINEAR} can be integrated out"
    shapes = problem.fields, problem.names, problem.unknowns
    if number_of_chunks(problem) > 1 and not all(is_linear(readings, *shapes) for readings in problem.readings):
        return "there are too many readings for equations that are not linear"
    return ""
