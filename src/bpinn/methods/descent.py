"""Levenberg-Marquardt fits: the modes that Laplace's approximation and ensembles are made of.

A member of a group minimises either the negative log posterior, or a randomised version of it: its prior is centred at
a draw of the prior, and the standardised score of each reading is moved by a standard normal number, which for normal
noise perturbs the reading by its noise. If everything is linear and normal, minima of the second kind are independent
draws of the posterior ("randomise then optimise", Bardsley et al. 2014).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.methods.base import Record, Stage
from bpinn.methods.frames import noise_levels
from bpinn.methods.linearised import Linearised, Pull, linearised, prior_pull, solved
from bpinn.methods.start import draw_start, prior_units
from bpinn.model import Model

FIRST_DAMPING = 1e4  # in units of the prior's precision; with less, first steps are long and lead some fits astray
LEAST_DAMPING, MOST_DAMPING = 1e-6, 1e12
SETTLED, LEFT = 0.05, 1.0  # gain of log density that the last step promises, and that damping may hide
ROUNDING, MOST_ROUNDING = 20.0, 1.0  # the same in units of the rounding error of the objective, and its largest value


class Randomised(NamedTuple):
    """What makes a member differ from the mode: the centre of its prior, and the shifts of its scores."""

    anchor: Array
    shifts: Array


class Member(NamedTuple):
    """A fit: its parameters in units of the prior, its damping, and whether it has converged."""

    v: Array
    damping: Array
    growth: Array
    promised: Array
    settled: Array
    randomised: Randomised | None


def begun(v: Array, randomised: Randomised | None) -> Member:
    def number(value: float) -> Array:
        return jnp.full((), value, v.dtype)

    return Member(v, number(FIRST_DAMPING), number(2.0), number(np.inf), jnp.bool_(False), randomised)


def random_start(model: Model, data: Any, key: Array) -> tuple[Array, Array]:
    """Where a fit starts, and the draw of the prior that it is made from, in units of the prior.

    Weights are those of the draw, and scalars at the prior's centre: an equation with a coefficient of the wrong sign
    leads a fit to another solution.
    """
    centre, scale = prior_units(model)
    draw = (draw_start(model, data, key, 1.0).z - centre) / scale
    return draw.at[model.parameters.num_weights :].set(0.0), draw


def improved(model: Model, data: Any, member: Member) -> Member:
    """One Levenberg-Marquardt step; the damping follows Nielsen (1999)."""
    centre, scale = prior_units(model)
    v, randomised = member.v, member.randomised
    lines = linearised(model, data, centre + scale * v)
    target, pull = lines.at.scores, prior_pull(model, v)
    if randomised is not None:
        target, pull = target + randomised.shifts, Pull(randomised.anchor - v, None)
    rows, slope = pull.apart(lines.rows), pull.apart(pull.gradient)
    move = solved(rows, target, slope, 1.0 + member.damping)
    along = rows @ move
    promised = target @ along - 0.5 * along @ along + slope @ move - 0.5 * move @ move
    trial = v + pull.together(move)
    old, new = (_objective(model, data, lines, randomised, point) for point in (v, trial))
    gained = new - old
    rounding = jnp.minimum(ROUNDING * jnp.finfo(v.dtype).eps * jnp.abs(old), MOST_ROUNDING)
    better = jnp.isfinite(new) & ((gained > 0) | ~jnp.isfinite(old))
    # Damping shortens a step, and hides at most this factor of what is left to gain.
    left = promised * (1.0 + member.damping)
    settled = jnp.isfinite(gained) & (promised < jnp.maximum(SETTLED, rounding)) & (left < jnp.maximum(LEFT, rounding))
    taken = better | (settled & (gained > -rounding))  # rounding may hide what the last step gains
    ratio = jnp.clip(gained / jnp.maximum(promised, jnp.finfo(v.dtype).tiny), 0.0, 1.0)
    shrunk = member.damping * jnp.maximum(1 / 5, 1 - (2 * ratio - 1) ** 3)
    damping = jnp.clip(jnp.where(taken, shrunk, member.damping * member.growth), LEAST_DAMPING, MOST_DAMPING)
    growth = jnp.where(taken, 2.0, jnp.minimum(2 * member.growth, 1e6))
    found, reached = jnp.where(taken, trial, v), jnp.where(taken, new, old)

    def undamped() -> Array:
        """The last step without damping, if it is better still: where all is linear it ends at the minimum itself."""
        whole = v + pull.together(solved(rows, target, slope, jnp.ones((), v.dtype)))
        return jnp.where(_objective(model, data, lines, randomised, whole) > reached, whole, found)

    found = jax.lax.cond(settled, undamped, lambda: found)
    return Member(found, damping, growth, promised, settled, randomised)


def _objective(model: Model, data: Any, lines: Linearised, randomised: Randomised | None, v: Array) -> Array:
    """What a step is to increase: the log density, with the shifts of scores as they are where the step begins."""
    centre, scale = prior_units(model)
    z = centre + scale * v
    if randomised is None:
        return model.log_density(z, data)
    predicted = model.predicted(z, data)
    values = lines.at.values(jnp.concatenate(predicted), z[noise_levels(model)])
    likelihood = model.log_likelihood_of(predicted, model.parameters.split(z)[1], data) - model.log_evidence(z, data)
    off = v - randomised.anchor
    return likelihood + randomised.shifts @ values - 0.5 * off @ off


class Fits(Protocol):
    """Settings of a method that descends: where the members of a group start."""

    @property
    def group(self) -> int:
        """Number of members."""

    def member(self, model: Model, data: Any, key: Array, previous: Any) -> Member:
        """A member before its first step."""


@dataclass(frozen=True)
class Descent(Stage):
    """Steps of all members of a group; those that have converged wait for the others."""

    name: ClassVar[str] = "descent"
    verb: ClassVar[str] = "Gauss-Newton step"
    has_history: ClassVar[bool] = True
    may_stop: ClassVar[bool] = True
    settings: Fits

    @property
    def until_warm(self) -> bool:
        return True

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Member:
        keys = jax.random.split(key, self.settings.group)
        return jax.lax.map(lambda key: self.settings.member(model, data, key, previous), keys)

    def step(self, model: Model, data: Any, state: Member, key: Array, step: Array) -> tuple[Member, Record]:
        def one(member: Member) -> Member:
            return jax.lax.cond(member.settled, lambda: member, lambda: improved(model, data, member))

        state = jax.lax.map(one, state)
        told = {
            "step": step + 1,
            "promised": jnp.max(jnp.where(state.settled, 0.0, state.promised)),
            "unsettled": jnp.mean(~state.settled, dtype=float),
        }
        return state, Record(None, None, told)

    def position(self, state: Member) -> Member:
        return state

    def finished(self, state: Member) -> bool:
        return bool(np.all(state.settled))

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        left = sum(round(float(stats["unsettled"][-1]) * self.settings.group) for stats in latest)
        return [f"{left} of {self.settings.group * len(latest)} fits not converged"]
