"""Ensemble Kalman inversion: a population moves from the prior to the posterior without gradients of the model.

The likelihood is applied in parts, as in tempering: at each step readings with noise inflated by sqrt(a) are
assimilated by a Kalman update with the covariances of the ensemble, where the 1 / a add up to one (multiple data
assimilation, Emerick and Reynolds 2013; a is chosen by the misfit, Iglesias and Yang 2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from bpinn.methods.base import Record, Stage, check_count
from bpinn.methods.frames import noise_levels
from bpinn.methods.linearised import standardised
from bpinn.methods.members import Grouped, Members
from bpinn.methods.start import prior_units
from bpinn.model import Model
from bpinn.registry import register

LEAST_SHARE = 1e-8  # of the likelihood, in one step
APPROXIMATE = (
    "an ensemble Kalman inversion: exact for linear equations, normal noise and many members, approximate otherwise, "
    "and its members move only within their own span"
)


class Population(NamedTuple):
    """Members in units of the prior, the weight that the likelihood has, and the number of updates."""

    members: Array
    weight: Array
    steps: Array


@dataclass(frozen=True)
class Assimilation(Stage):
    """From the prior to the posterior; each step is one Kalman update."""

    name: ClassVar[str] = "assimilation"
    verb: ClassVar[str] = "Kalman update"
    has_history: ClassVar[bool] = True
    settings: "EnsembleKalman"

    @property
    def until_warm(self) -> bool:
        return True

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Population:
        centre, scale = prior_units(model)
        members = jax.vmap(model.parameters.sample_prior)(jax.random.split(key, self.settings.members))
        return Population((members - centre) / scale, jnp.zeros((), float), jnp.int32(0))

    def step(self, model: Model, data: Any, state: Population, key: Array, step: Array) -> tuple[Population, Record]:
        state = jax.lax.cond(state.weight >= 1.0, lambda: state, lambda: updated(model, data, state, key))
        return state, Record(None, None, {"step": state.steps, "weight": state.weight})

    def position(self, state: Population) -> Population:
        return state

    def finished(self, state: Population) -> bool:
        return bool(state.weight >= 1.0)

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        return [f"weight of the likelihood {min(float(stats['weight'][-1]) for stats in latest):.2g}"]


def updated(model: Model, data: Any, state: Population, key: Array) -> Population:
    """The population after an update with as much of the likelihood as its misfit allows."""
    centre, scale = prior_units(model)
    at, count = noise_levels(model), len(state.members)
    vectors = centre + scale * state.members
    predicted = jax.lax.map(lambda z: model.predicted(z, data), vectors)
    sizes = [part.shape[1] for part in predicted]
    # Where a member has no prediction it takes the others' mean, and has nothing to correct.
    means = [jnp.mean(part, axis=0, where=jnp.isfinite(part)) for part in predicted]
    means = [jnp.where(jnp.isfinite(mean), mean, 1.0) for mean in means]
    filled = [jnp.where(jnp.isfinite(part), part, mean) for part, mean in zip(predicted, means, strict=True)]
    middle = standardised(model, data, jnp.mean(vectors, axis=0), means)

    def off(given: tuple[Array, list[Array]]) -> Array:
        """How far readings are from a member's predictions, and its noise levels from theirs."""
        z, own = given
        found = standardised(model, data, z, own)
        usable = found.roots > 0
        gap = jnp.where(usable, found.scores[: len(usable)] / jnp.where(usable, found.roots, 1.0), 0.0)
        level = found.scores[len(usable) :]
        if len(at):
            level = solve_triangular(found.noise, level)
        return middle.values(gap, level)

    gaps = jax.lax.map(off, (vectors, filled))
    values = jax.vmap(middle.values)(jnp.concatenate(filled, axis=1), vectors[:, at])
    misfit = 0.5 * jnp.sum(gaps**2, axis=1)
    total = sum(sizes) + len(at)
    share = jnp.maximum(total / (2 * jnp.mean(misfit)), jnp.sqrt(total / (2 * jnp.var(misfit))))
    share = jnp.clip(jnp.nan_to_num(share, nan=LEAST_SHARE), LEAST_SHARE, 1.0 - state.weight)
    noise = jax.random.normal(key, gaps.shape, gaps.dtype)
    aims = gaps + (noise - jnp.mean(noise, axis=0)) / jnp.sqrt(share)
    root = jnp.sqrt(jnp.asarray(count - 1.0, gaps.dtype))
    own, others = ((part - jnp.mean(part, axis=0)) / root for part in (state.members, values))
    moves = aims @ _gain(jnp.sqrt(share) * others, jnp.sqrt(share) * own)
    members = state.members + jnp.where(jnp.isfinite(moves), moves, 0.0)
    weight = jnp.where(share >= 1.0 - state.weight, 1.0, state.weight + share)
    return Population(members, weight, state.steps + 1)


def _gain(values: Array, members: Array) -> Array:
    """The Kalman gain, (rows, dim), from deviations (members, rows) and (members, dim); readings have unit noise."""
    count, rows = values.shape
    if rows <= count:
        factor = jnp.linalg.cholesky(values.T @ values + jnp.eye(rows, dtype=values.dtype))
        return cho_solve((factor, True), values.T @ members)
    factor = jnp.linalg.cholesky(values @ values.T + jnp.eye(count, dtype=values.dtype))
    return values.T @ cho_solve((factor, True), members)


@register("ensemble-kalman")
@dataclass(frozen=True, kw_only=True)
class EnsembleKalman(Grouped):
    """Ensemble Kalman inversion: members drawn from the prior are moved by Kalman updates, without gradients.

    Quick, because it only evaluates the model. It is exact for linear equations, normal noise and priors, and many
    members. Members stay in the span of the ones they started from, so that networks, with many parameters and
    precise equations, are out of its reach; problems with few coefficients and unknowns are not. Inferred
    noise levels are coarse.

    Arguments:
        members: number of members, each of which becomes a draw; take several times the number of parameters.
        most_steps: most Kalman updates; the run ends there even if the posterior is not reached.
        chains: number of independent ensembles, whose disagreement shows their error.

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1, surrogate=surrogate).problem
        >>> result = bp.infer(problem, bp.EnsembleKalman(members=200), seed=0, progress=False)
        >>> result.draws("k").shape, result.diagnose().verdict != "good"
        ((2, 200), True)
    """

    fitted: ClassVar[frozenset[str]] = frozenset({"weight"})

    members: int = 1000
    most_steps: int = 100
    chains: int = 2

    def __post_init__(self) -> None:
        check_count("EnsembleKalman", "members", self.members, 10)
        check_count("EnsembleKalman", "most_steps", self.most_steps)
        check_count("EnsembleKalman", "chains", self.chains)

    @property
    def approximate(self) -> str:
        return APPROXIMATE

    def stages(self) -> tuple[Stage, ...]:
        return Assimilation(self.most_steps, self.most_steps, self), Members(self.members, 0, self)

    def plain_vectors(self, model: Model, data: Any, previous: Population) -> Array:
        centre, scale = prior_units(model)
        return centre + scale * previous.members
