"""Trained hidden weights, and the Gaussian of the output layer given them: an approximate posterior by a fit.

A field is linear in its output layer, so its posterior given the hidden weights and the scalars is a Gaussian in closed
form, and so is the marginal density of everything else (see `bpinn.coordinates`). Hidden weights are trained on that
marginal density, kept close to a draw of their prior, so that they have its typical size: at the maximum of their own
density networks would be far smoother than those of the posterior. As in anchored ensembles (Pearce et al. 2020), fits
with different draws differ where the readings leave the hidden weights free.

With batches all parameters are trained, on the anchored density of a batch: the marginal density would need all
readings in each step, and with many readings both have nearly the same maximum.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc.resampling import systematic
from jax import Array
from jax.scipy.linalg import solve_triangular

from bpinn.approximate import diagnose_last_layer
from bpinn.coordinates import ITERATIONS, Coordinates, Frozen, RawStreams, Reference, unit_scalars
from bpinn.diagnostics import Diagnosis
from bpinn.errors import InputError
from bpinn.methods.base import check_count
from bpinn.methods.frames import triangular_root
from bpinn.methods.start import prior_units, small
from bpinn.methods.training import Trained
from bpinn.model import Model
from bpinn.problem import Problem
from bpinn.readings import extent
from bpinn.registry import register
from bpinn.run_output import RunOutput
from bpinn.sufficient import summarised

MOST_READINGS = 4000  # above this, matrices over the readings are too large
PROBE = 0.2  # length of finite differences, in units of the curvature's radius


class Memory(NamedTuple):
    """The draw that hidden weights are kept close to, in units of the prior, and the streams of the last solution."""

    anchor: Array
    streams: RawStreams


class Fitted(NamedTuple):
    """What draws are made from, with parameters in units of the prior.

    Each row of ``scalars`` is the displacement of the scalars of one draw, which moves all of ``params`` by
    ``response``; ``log_weights`` are the importance weights with which these rows were chosen. Without scalars there
    is nothing to displace, and draws differ in the output layer only.
    """

    params: Array
    streams: RawStreams
    response: Array | None
    scalars: Array | None
    log_weights: Array
    frozen: Frozen | None = None  # the Gaussian of the output layer, if it is the same for all draws


@register("last-layer")
@dataclass(frozen=True, kw_only=True)
class LastLayer(Trained):
    """Trained hidden weights with the exact Gaussian of the output layer: approximate error bars from a fit.

    Output weights and coefficients are drawn from their Gaussian given everything else, which is exact where equations
    are linear in the fields. Unknowns, inferred noise levels and scales are drawn from a Gaussian with the linearised
    model's covariance, and hidden weights only follow them. Karhunen-Loève fields have no hidden weights: the Gaussian
    of the unknowns is then corrected by importance weights, and the draws are those of the posterior if equations are
    linear in the fields.

    Arguments:
        num_steps: steps of Adam.
        learning_rate: learning rate of Adam, in units of the prior's standard deviations.
        schedule: "cosine" decreases the learning rate to a hundredth; "constant" keeps it.
        patience: window, in steps; stop when the mean marginal density over a window is no better than over the
            previous one. By default there is no early stopping.
        num_draws: draws of each fit.
        chains: number of fits, each with hidden weights close to another draw of their prior; their differences show
            some of the uncertainty of the hidden weights.
        batch: number of readings in each step of Adam, a random sample; by default all of them. The Gaussian of the
            output layer is that of all readings all the same; a draw takes one pass over them if there are unknowns,
            inferred noise levels or scales. The covariance of these is estimated from up to 4,000 readings.
        instead_of: the method that this fit is a preview of; set by `infer` when it returns one.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1).problem
        >>> result = bp.infer(problem, bp.LastLayer(num_steps=200, num_draws=50), seed=0, progress=False)
        >>> result.draws("k").shape, result.diagnose().verdict != "good"
        ((2, 50), True)
    """

    is_posterior: ClassVar[bool] = True
    takes_statistics: ClassVar[bool] = True
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density", "log_weight"})
    objective: ClassVar[str] = "log_marginal"
    sign: ClassVar[float] = -1.0

    num_draws: int = 1000
    chains: int = 2
    instead_of: str = ""
    batch: int | None = None

    def __post_init__(self) -> None:
        self._check()
        check_count("LastLayer", "num_draws", self.num_draws, 4)
        if self.batch is not None:
            check_count("LastLayer", "batch", self.batch)

    @property
    def readings_at_once(self) -> int | None:
        return self.batch

    def check(self, problem: Problem) -> None:
        count = sum(len(readings.values) for readings in summarised(problem).readings)
        if self.batch is None and count > MOST_READINGS:
            raise InputError(
                f"LastLayer: the problem has {extent(problem.readings)}, but matrices over them are limited to "
                f"{MOST_READINGS}; use batch=1000, fewer points for the equations, or bp.HMC()"
            )
        if self.batch is not None and self.batch > MOST_READINGS:
            raise InputError(f"LastLayer: batch must be at most {MOST_READINGS}, got {self.batch}; use a smaller one")

    @property
    def _num_draws(self) -> int:
        return self.num_draws

    def judge(self, run: RunOutput) -> Diagnosis:
        health = diagnose_last_layer(run)
        if self.instead_of:
            reason = f"a preview: {self.instead_of} was stopped before its draws could be used"
            health.worsen("care", reason, f"more time for {self.instead_of}")
        return health

    # --- training ---

    def begin(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Array, Memory]:
        """Hidden weights from the prior, scalars close to the centre of theirs; zeros for the output layer.

        Equations are linearised around fields that are zero until there is a solution.
        """
        key_start, key_hidden = jax.random.split(key)
        centre, scale = prior_units(model)
        draw = (model.parameters.sample_prior(key_hidden) - centre) / scale
        params = jnp.where(_hidden(model) > 0, draw, small(model, data, key_start))
        if self.batch is not None:
            return params, Memory(params, RawStreams())
        params = params.at[model.linear].set(0.0)
        return params, Memory(params, model.streams(centre + scale * params, data))

    def learn(self, model: Model, data: Any, params: Array, memory: Memory, key: Array) -> tuple[Array, Memory]:
        """The anchored marginal density, linearised around the last solution, and the new solution."""
        if self.batch is not None:
            centre, scale = prior_units(model)
            z = centre + scale * params
            likelihood = model.batches * model.batch.log_likelihood(z, model.random_batch(data, key))
            return -(likelihood + model.log_prior(z) + _anchored(model, params, memory)), memory
        log_density, streams = _marginal(model, data, params, memory)
        return -log_density, memory._replace(streams=jax.lax.stop_gradient(streams))

    def cost(self, model: Model, data: Any, params: Array, memory: Memory, key: Array) -> Array:
        return self.learn(model, data, params, memory, key)[0]

    # --- draws ---

    def prepared(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Fitted, tuple[()]]:
        params, memory = previous
        if self.batch is not None:
            memory = memory._replace(streams=_settled(model, data, params))
        even = jnp.zeros(self.num_draws, params.dtype)
        first, size = model.parameters.num_weights, model.dim - model.parameters.num_weights
        if not size:
            frozen = None
            if self.batch is not None:
                centre, scale = prior_units(model)
                frozen = _coordinates(model, data, memory.streams).frozen(centre + scale * params)
            return Fitted(params, memory.streams, None, None, even, frozen), ()
        precision, response = _linearised(model, data, params, memory)
        factor = triangular_root(precision, jnp.ones(size, params.dtype))[0]
        key_scalars, key_chosen = jax.random.split(key)
        eps = jax.random.normal(key_scalars, (self.num_draws, size), params.dtype)
        scalars = eps @ factor.T
        if first > len(model.linear):  # there are hidden weights, and weights would be those of fixed ones
            return Fitted(params, memory.streams, response, scalars, even), ()

        def log_weight(given: tuple[Array, Array]) -> Array:
            eps, scalars = given
            return _marginal(model, data, params + response @ scalars, memory)[0] + 0.5 * jnp.vdot(eps, eps)

        log_weights = jax.lax.map(log_weight, (eps, scalars))
        log_weights = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
        log_weights = jnp.where(jnp.any(jnp.isfinite(log_weights)), log_weights, 0.0)
        chosen = systematic(key_chosen, jax.nn.softmax(log_weights), self.num_draws)
        return Fitted(params, memory.streams, response, scalars[chosen], log_weights), ()

    def draw(
        self, model: Model, data: Any, params: Fitted, memory: Any, key: Array, number: Array
    ) -> tuple[Array, dict[str, Array]]:
        centre, scale = prior_units(model)
        moved = params.params
        if params.response is not None and params.scalars is not None:
            moved = moved + params.response @ params.scalars[number]
        w = centre + scale * moved
        v = jax.random.normal(key, (len(model.linear),), w.dtype)
        z = _coordinates(model, data, params.streams, params.frozen).to_plain(w.at[model.linear].set(v))[0]
        return z, {"log_weight": params.log_weights[number]}


def _hidden(model: Model) -> Array:
    """One for parameters of fields that are not linear, otherwise zero."""
    hidden = np.ones(model.dim)
    hidden[model.linear] = 0.0
    hidden[model.parameters.num_weights :] = 0.0
    return jnp.asarray(hidden, dtype=float)


def _coordinates(model: Model, data: Any, streams: RawStreams, frozen: Frozen | None = None) -> Coordinates:
    one = unit_scalars(model)
    return Coordinates(model, data, Reference(streams, one, one, frozen))


def _settled(model: Model, data: Any, params: Array) -> RawStreams:
    """The streams of a solution with these hidden weights and scalars, and the output layer that fits all readings."""
    centre, scale = prior_units(model)
    z = centre + scale * params

    def solved(_: Any, streams: RawStreams) -> RawStreams:
        return _coordinates(model, data, streams).solve(z.at[model.linear].set(0.0)).streams

    return jax.lax.fori_loop(0, ITERATIONS, solved, model.streams(z, data))


def _marginal(model: Model, data: Any, params: Array, memory: Memory) -> tuple[Array, RawStreams]:
    """Log density of hidden weights and scalars without the output layer, with the anchor as the prior's centre.

    Up to a constant; also the streams of the solution, whose output layer is at the centre of its Gaussian.
    """
    centre, scale = prior_units(model)
    coordinates = _coordinates(model, data, memory.streams)
    w = (centre + scale * params).at[model.linear].set(0.0)
    solved = coordinates.solve(w)
    density = coordinates.log_density_of(solved) + solved.log_determinant
    return density + _anchored(model, params, memory), solved.streams


def _anchored(model: Model, params: Array, memory: Memory) -> Array:
    """What the log prior gains if its centre is at the anchor, for hidden weights."""
    return 0.5 * jnp.sum(_hidden(model) * (params**2 - (params - memory.anchor) ** 2))


def _linearised(model: Model, data: Any, params: Array, memory: Memory) -> tuple[Array, Array]:
    """The precision of the scalars in the linearised model, and the response of all parameters to them.

    With readings linear in all weights x and scalars k, in units of noise and prior, y = X x + K k + noise, the scalars
    have the precision 1 + K' M^-1 K, M = 1 + X X', and given k the weights have the mean -X' M^-1 K k. Scalars that
    no prediction depends on are noise levels, whose curvature is measured.
    """
    first, size = model.parameters.num_weights, model.dim - model.parameters.num_weights
    jacobian = _jacobian(model, data, params, memory)
    weights, scalars = jacobian[:, :first], jacobian[:, first:]
    # By QR of the stacked rows: M spans too many orders of magnitude for its Cholesky factor in single precision.
    factor = jnp.linalg.qr(weights.T, mode="r")
    root = jnp.linalg.qr(jnp.concatenate([factor, jnp.eye(len(weights), dtype=factor.dtype)]), mode="r")
    half = solve_triangular(root, scalars, trans=1)
    precision = jnp.eye(size, dtype=params.dtype) + half.T @ half
    response = -weights.T @ solve_triangular(root, half)
    response = _hidden(model)[:first, None] * response
    silent = jnp.all(scalars == 0, axis=0)
    if any(group.noise_name for group in model.groups):
        measured = _measured(model, data, params, memory, precision)
        precision = jnp.where(silent[:, None] | silent, measured, precision)
    return precision, jnp.concatenate([response, jnp.eye(size, dtype=params.dtype)])


def _jacobian(model: Model, data: Any, params: Array, memory: Memory) -> Array:
    """Derivatives of predictions, in units of their noise, by all parameters, in units of their prior.

    Of all readings; with batches of as many of these as a matrix can hold, each of which stands for more readings.
    """
    centre, scale = prior_units(model)
    w = (centre + scale * params).at[model.linear].set(0.0)
    z = _coordinates(model, data, memory.streams).to_plain(w)[0]
    if not model.batches:
        return _rows(model, data, z)
    number = min(model.batches, max(1, MOST_READINGS // sum(model.batch.counts)))
    some = jax.tree.map(lambda stacked: stacked[:number], data["batches"])
    rows = jax.lax.map(lambda batch: _rows(model.batch, batch, z), some)
    return rows.reshape(-1, model.dim) * np.sqrt(model.batches / number)


def _rows(model: Model, data: Any, z: Array) -> Array:
    scale = prior_units(model)[1]
    levels = model.parameters.split(z)[1]
    predicted, pull = jax.vjp(lambda z: jnp.concatenate(model.predicted(z, data)), z)
    roots, at = [], 0
    each = data.get("counted") or [True] * len(model.groups)
    for group, values, noise, counted in zip(model.groups, data["values"], data["noise"], each, strict=True):
        mean = predicted[at : at + len(values)]
        information = group.likelihood.information(
            mean, noise if group.noise_name is None else levels[group.noise_name]
        )
        roots.append(jnp.where(counted, jnp.broadcast_to(jnp.sqrt(information), mean.shape), 0.0))
        at += len(values)
    rows = jax.lax.map(lambda row: pull(row)[0], jnp.diag(jnp.concatenate(roots)))
    return jnp.where(jnp.isfinite(rows), rows, 0.0) * scale


def _measured(model: Model, data: Any, params: Array, memory: Memory, precision: Array) -> Array:
    """The curvature of the marginal density in the scalars, by finite differences of gradients."""
    first = model.parameters.num_weights
    slope = jax.grad(lambda params: _marginal(model, data, params, memory)[0])

    def column(given: tuple[Array, Array]) -> Array:
        which, reach = given
        push = jnp.zeros_like(params).at[first + which].set(reach)
        low, high = jax.lax.map(slope, jnp.stack([params - push, params + push]))
        return (low - high)[first:] / (2 * reach)

    def once(_: Array, precision: Array) -> Array:
        reach = PROBE / jnp.sqrt(jnp.maximum(jnp.diag(precision), 1.0))
        return jax.lax.map(column, (jnp.arange(len(reach)), reach))

    found = jax.lax.fori_loop(0, 2, once, precision)
    return jnp.where(jnp.isfinite(found), 0.5 * (found + found.T), precision)
