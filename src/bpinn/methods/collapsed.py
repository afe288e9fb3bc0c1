"""Markov chains of the unknowns alone, where the fields' coefficients can be integrated out exactly.

If all fields are linear in their parameters, all readings linear in the fields, and all noise is normal, the
coefficients are Gaussian given unknowns, noise levels and scales. Then the posterior of these few numbers is known in
closed form up to a constant (Rasmussen and Williams 2006, chapter 5), and coefficients are drawn exactly for each of
them. A step needs the density only, not its gradient.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn import convergence
from bpinn.coordinates import Coordinates, Reference, unit_scalars
from bpinn.diagnostics import MORE, Diagnosis, diagnose_chains
from bpinn.errors import InputError
from bpinn.likelihoods import Normal
from bpinn.methods.base import Decision, Method, Pause, Policy, Record, Stage, check_count
from bpinn.methods.frames import noise_levels, small_noise, triangular_root
from bpinn.methods.hmc import HMC
from bpinn.methods.proposals import Proposals, Views
from bpinn.methods.start import prior_units
from bpinn.model import MOST_LINEAR, Model
from bpinn.neutral import is_linear
from bpinn.problem import Problem
from bpinn.registry import register
from bpinn.run_output import RunOutput

NEWTON, ANNEALED = 50, 30  # iterations for the mode, and those in which the weight of equations rises
FIRST_WEIGHT, LEAD = 1e-4, 0.0  # readings of fields have their full weight from the first iteration, as in HMC
# Inferred noise levels are pulled to small values while the weight rises, and some iterations longer: with a large
# noise flat fields fit, and chains would stay there.
PULL, HELD = 10_000.0, 35
PROBE = 0.2  # finite differences of gradients, in standard deviations
SHORTER = (1.0, 0.25, 0.06, 0.015)  # shares of a Newton step that are tried
SETTLED = 0.02  # in standard deviations: Newton's method ends with a shorter step
FAR = 3.0  # longest Newton step, in standard deviations of the prior
LOOK = 40  # step after which lost chains are restarted
UPDATES = (0.5, 1.0)  # shares of warm-up, at whose ends proposals follow the draws so far
# With which it is the default. Of amplitudes of a source with log-normal priors, which readings inform little, three to
# six were sampled well, eight in three of four data sets with as many draws as there may be, and twelve not.
MOST_SCALARS, MOST_UNKNOWNS = 15, 6
LOST_BY = 40.0  # in log density: chains that are so far below another one are restarted
LEAST_DRAWS, ROUND = 300, 100


class _State(NamedTuple):
    """``scalars`` are on the real line; ``marginal`` is their log density with the coefficients integrated out."""

    z: Array
    scalars: Array
    log_density: Array
    marginal: Array
    proposals: Proposals
    reference: Reference


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
        mode = _mode(model, data, key_mode)
        zero = jnp.zeros((), mode.scalars.dtype)
        z, density, marginal = _drawn(model, data, mode.reference, mode.scalars, zero + 1.0, key_draw)
        proposals = Proposals.around(Views(model), mode.scalars, mode.root, mode.inverse)
        return _State(z, mode.scalars, density, marginal, proposals, mode.reference)

    def step(self, model: Model, data: Any, state: _State, key: Array, step: Array) -> tuple[_State, Record]:
        def again(i: Array, carry: tuple[_State, Array]) -> tuple[_State, Array]:
            state, accepted = self._transition(model, data, carry[0], jax.random.fold_in(key, i), step)
            return state, carry[1] + accepted

        repeats = jnp.where(step < self.num_warmup, 1, self.settings.thin)
        state, total = jax.lax.fori_loop(0, repeats, again, (state, jnp.zeros((), state.z.dtype)))
        stats = {
            "log_density": state.log_density, "sampler_log_density": state.marginal,
            "accepted": total / repeats, "misfit": model.misfit(state.z, data),
        }  # fmt: skip
        return state, Record(state.z, model.functionals(state.z, data), stats)

    def _transition(self, model: Model, data: Any, state: _State, key: Array, step: Array) -> tuple[_State, Array]:
        keys = jax.random.split(key, 3)
        views, one = Views(model), jnp.ones((), state.z.dtype)
        if not _has_scalars(model):
            z, density, marginal = _drawn(model, data, state.reference, state.scalars, one, keys[0])
            return state._replace(z=z, log_density=density, marginal=marginal), jnp.ones((), bool)
        proposed = state.proposals.propose(views, state.scalars, keys[1])
        usable = jnp.all(jnp.isfinite(proposed.scalars))
        there = jnp.where(usable, proposed.scalars, state.scalars)
        z, density, marginal = _drawn(model, data, state.reference, there, one, keys[0])
        ratio = marginal - state.marginal + proposed.correction
        # A chain that starts where the density is not finite takes any proposal where it is.
        ratio = jnp.where(jnp.isfinite(state.marginal), ratio, jnp.inf)
        ratio = jnp.where(usable & jnp.isfinite(marginal), ratio, -jnp.inf)
        accepted = jnp.log(jax.random.uniform(keys[2], (), one.dtype)) < ratio
        moved = state._replace(z=z, scalars=there, log_density=density, marginal=marginal)
        state = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), moved, state)
        closes = jnp.any(step + 1 == jnp.asarray([int(share * self.num_warmup) for share in UPDATES]))
        probability = jnp.exp(jnp.minimum(ratio, 0.0))
        adapted = state.proposals.adapted(views, state.scalars, proposed, probability, closes)
        warming = step < self.num_warmup
        kept = jax.tree.map(lambda new, old: jnp.where(warming, new, old), adapted, state.proposals)
        return state._replace(proposals=kept), accepted

    def position(self, state: _State) -> Array:
        return state.z

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        return [f"accepted {np.mean([np.mean(stats['accepted']) for stats in latest]):.0%}"]


def _has_scalars(model: Model) -> bool:
    return model.dim > model.parameters.num_weights


def _size(model: Model) -> int:
    """Number of scalars; at least one, because XLA loses the type of native calls beside empty arrays."""
    return max(model.dim - model.parameters.num_weights, 1)


def _scale(model: Model) -> Array:
    """Spread of the prior of each scalar."""
    return prior_units(model)[1][model.parameters.num_weights :] if _has_scalars(model) else jnp.ones(1, float)


def _drawn(
    model: Model, data: Any, reference: Reference, scalars: Array, weight: Array, key: Array | None
) -> tuple[Array, Array, Array]:
    """Coefficients drawn given the scalars, or their mean without a key: the plain vector, its log density, and that of
    the scalars alone."""
    first = model.parameters.num_weights
    v = jnp.zeros(first, scalars.dtype) if key is None else jax.random.normal(key, (first,), scalars.dtype)
    coordinates = Coordinates(model, data, reference, LEAD)
    solved = coordinates.solve(jnp.concatenate([v, scalars]) if _has_scalars(model) else v, weight)
    density = coordinates.log_density_of(solved, weight)
    return solved.z, density, density + solved.log_determinant + 0.5 * jnp.vdot(v, v)


# --- the mode ---


class _Mode(NamedTuple):
    """A mode of the scalars, with a root of the inverse of the curvature there, as in `_State`."""

    scalars: Array
    root: Array
    inverse: Array
    reference: Reference


def _mode(model: Model, data: Any, key: Array) -> _Mode:
    """Newton's method from a draw of the prior, while the weight of the equations rises to one."""
    first, scale = model.parameters.num_weights, _scale(model)
    start = model.parameters.sample_prior(key)
    at = noise_levels(model)
    start = start.at[at].set(small_noise(model, data)) if len(at) else start
    one = unit_scalars(model)
    reference = Reference(model.streams(start.at[:first].set(0.0), data), one, one)
    scalars = start[first:] if _has_scalars(model) else jnp.zeros(1, start.dtype)

    def density(scalars: Array, weight: Array, held: Array) -> Array:
        pull = jnp.zeros((), scalars.dtype)
        if len(at):
            off = (scalars[at - first] - small_noise(model, data)) / scale[at - first]
            pull = jnp.where(held, -0.5 * PULL * jnp.vdot(off, off), 0.0)
        return _drawn(model, data, reference, scalars, weight, None)[2] + pull

    def one_step(carry: tuple[Array, Array, _Mode]) -> tuple[Array, Array, _Mode]:
        i, _, mode = carry
        weight = jnp.asarray(FIRST_WEIGHT, scale.dtype) ** jnp.clip(1.0 - i / ANNEALED, 0.0, 1.0)
        now = partial(density, weight=weight, held=i < HELD)
        value, slope, root, inverse = _measured(now, mode, scale)
        step = root @ (root.T @ slope)
        step = jnp.nan_to_num(step / jnp.maximum(jnp.max(jnp.abs(step) / (FAR * scale)), 1.0))

        def tried(j: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
            there = mode.scalars + jnp.asarray(SHORTER, step.dtype)[j] * step
            found = now(there)
            better = (best[0] == value) & (found > value)  # the longest step that is uphill
            return jax.tree.map(lambda new, old: jnp.where(better, new, old), (found, there), best)

        value = jnp.where(jnp.isfinite(value), value, -jnp.inf)
        there = jax.lax.fori_loop(0, len(SHORTER), tried, (value, mode.scalars))[1]
        moved = jnp.max(jnp.abs(inverse @ (there - mode.scalars)))
        return i + 1, moved, _Mode(there, root, inverse, reference)

    def unfinished(carry: tuple[Array, Array, _Mode]) -> Array:
        i, moved, _ = carry
        return (i < NEWTON) & ((i <= HELD + 2) | ~(moved < SETTLED))

    begin = _Mode(scalars, jnp.diag(scale), jnp.diag(1.0 / scale), reference)
    if not _has_scalars(model):
        return begin
    return jax.lax.while_loop(unfinished, one_step, (jnp.int32(0), jnp.ones((), scale.dtype), begin))[2]


def _measured(density: Callable[[Array], Array], mode: _Mode, scale: Array) -> tuple[Array, Array, Array, Array]:
    """The density and its gradient; a root R of the inverse of the curvature, and its own inverse.

    The curvature is that of finite differences of gradients, and at least that of the prior.
    """
    size, both = len(scale), jax.value_and_grad(density)
    spread = PROBE * jnp.sqrt(jnp.sum(mode.root**2, axis=1))

    def probed(i: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        side = jnp.where(i < size, 1.0, -1.0) * (i < 2 * size)  # the last one is in the middle
        value, slope = both(mode.scalars + jnp.where(jnp.arange(size) == i % size, side * spread, 0.0))
        return value, found[1].at[i].set(slope)

    empty = jnp.zeros((), scale.dtype), jnp.zeros((2 * size + 1, size), scale.dtype)
    value, slopes = jax.lax.fori_loop(0, 2 * size + 1, probed, empty)
    rows = (slopes[size : 2 * size] - slopes[:size]) / (2.0 * spread[:, None])
    return value, slopes[-1], *triangular_root(jnp.nan_to_num(rows), scale**-2.0)


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
    """Exact draws where the fields' coefficients can be integrated out: linear equations with normal noise.

    For fields that are linear in their parameters (`GaussianProcess`, `KarhunenLoeve`, `MLP` without hidden layers),
    not positive, equations that are linear in the fields (unknowns may enter in any way), and normal noise, stated or
    inferred. Markov chains then move through unknowns, noise levels and scales alone, and the coefficients are drawn
    given each of them. The posterior is the same as that of `HMC`, in a fraction of the time. Without unknowns,
    inferred noise and inferred scales, draws are independent. `infer` chooses it by itself where it is possible.

    Arguments:
        num_warmup: steps in which proposals are adapted; they are discarded.
        num_draws: draws of each chain; by default as many as the run needs to be judged good.
        most_draws: upper limit of draws of each chain if ``num_draws`` is not given.
        thin: keep every n-th draw after warm-up.
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
    thin: int = 2
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


def default_method(problem: Problem) -> Method:
    """What `infer` does if it is given no method."""
    scalars, unknowns = (
        sum(int(np.prod(prior.shape())) for prior in priors.values()) for priors in (problem.scalars, problem.unknowns)
    )
    many = scalars > MOST_SCALARS or unknowns > MOST_UNKNOWNS
    return HMC() if many or why_not_collapsed(problem) else Collapsed()


def why_not_collapsed(problem: Problem) -> str:
    """What keeps the coefficients of fields from being integrated out, in words; nothing if they can be."""
    size = 0
    for name, field in problem.fields.items():
        bounds = problem.bounds(name)
        size += field.size(bounds)
        if field.positive:
            return f"field {name!r} is positive, so readings are not linear in its parameters"
        if field.linear(bounds) != slice(0, field.size(bounds)):
            return f"field {name!r} ({type(field).__name__}) is not linear in its parameters"
        if not any(name in readings.fields for readings in problem.readings):
            return f"no sensors measure field {name!r}"
    if size > MOST_LINEAR:
        return f"the fields have {size} coefficients, at most {MOST_LINEAR} can be integrated out"
    for readings in problem.readings:
        if not isinstance(readings.likelihood, Normal):
            return f"the noise of sensors {readings.name!r} is not normal"
        if not is_linear(readings, problem.fields, problem.names, problem.unknowns):
            return f"the equation of sensors {readings.name!r} is not linear in its fields"
    return ""
