"""Whitened coordinates for Hamiltonian chains, around a reference that is renewed during warm-up.

The frame is renewed before each transition of warm-up, with the plain position kept, and stays the same while draws are
made, so that every draw is a transition of one Markov chain.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.hmc import HMCState
from jax import Array

from bpinn.coordinates import Coordinates, RawStreams, Reference, unit_scalars
from bpinn.likelihoods import LocationScale, Normal
from bpinn.methods.moves import LogDensity, Moves, Phase
from bpinn.methods.start import Start, prior_units
from bpinn.model import Model

HELD_AT, HELD_SHARE = 1.5, 0.05  # small noise: prior sds below its centre; at least this share of the readings' spread


class Frame(NamedTuple):
    """The state of a chain's whitened coordinates.

    ``mean`` is a running mean of the streams since the end of annealing, over ``age`` transitions; ``precision`` the
    curvature of the scalars on the real line; ``direction`` that of the largest curvature in the other parameters, in
    units of the prior, and ``curvature`` its size; ``hold`` is the pull of inferred noise levels to small values.
    """

    reference: Reference
    mean: RawStreams
    age: Array
    precision: Array | None
    direction: Array
    curvature: Array
    hold: Array


@dataclass(frozen=True)
class WhitenedMoves(Moves):
    """The chain moves in whitened coordinates.

    The residuals of the linear parameters have a curvature of one, while the hidden weights limit the step. So
    residuals and scalars are moved faster, by a factor that follows from the largest curvature in the hidden weights.
    """

    memory: int = 40  # transitions over which the reference is averaged
    renewals: tuple[int, ...] = (4, 10, 25, 50, 100, 200)  # transitions after annealing at which it is renewed
    share: float = 0.35  # of the largest frequency of the hidden weights, for the residuals
    probe: float = 0.2  # length of finite differences, in units of the curvature's radius
    learning: tuple[float, float] = (0.5, 0.2)  # weight of a new curvature during annealing, and after it
    # The least weight of a new curvature of the scalars after annealing. They differ from draw to draw by more than the
    # chain moves: with 0.2 one chain in eight had such a poor scale that a fifth of its transitions diverged.
    averaging: float = 0.05
    freeze: bool = True  # whether fields that are linear altogether may have a map that does not follow the scalars
    followed: int = 300  # linear parameters up to which it follows the scalars, if there are any
    rounds: int = 12  # measurements of each curvature for a frame around one vector
    hold: float = 10_000.0  # pull of inferred noise levels to small values in the first part of warm-up; 0 for none
    released: int = 20  # steps in which it ends
    lead: float = 1.0  # see `Coordinates`

    def first(self, model: Model, data: Any, z: Array) -> Array:
        """With small noise, and with fields drawn given the readings that are not annealed."""
        at = noise_levels(model)
        z = z.at[at].set(small_noise(model, data)) if self.hold and len(at) else z
        if self.lead == 1.0 or not model.leads or model.chunks > 1 or not model.linear_fields:
            return z
        one = unit_scalars(model)
        coordinates = self._coordinates(model, data, Reference(model.streams(z, data), one, one))
        v = z[model.linear] * jnp.sqrt(jnp.asarray(coordinates.precision, z.dtype))
        return coordinates.to_plain(z.at[model.linear].set(v), jnp.zeros((), z.dtype))[0]

    def _coordinates(self, model: Model, data: Any, reference: Reference) -> Coordinates:
        return Coordinates(model, data, reference, self.lead)

    def _density(self, model: Model, coordinates: Coordinates, hold: Array) -> Callable[[Array, Array], Array]:
        """The log density in whitened coordinates, with a pull of inferred noise levels to small values.

        Without it, fields that do not fit yet would make the noise large, and with a large noise flat fields fit.
        """
        at, first = noise_levels(model), model.parameters.num_weights
        if not (self.hold and len(at)):
            return coordinates.log_density
        scale, small = prior_units(model)[1][at], small_noise(model, coordinates.data)

        def held(w: Array, weight: Array) -> Array:
            factor = coordinates.reference.scalars
            scalars = w[first:] if factor is None else factor @ w[first:]
            off = (scalars[at - first] - small) / scale
            return coordinates.log_density(w, weight) - 0.5 * hold * jnp.vdot(off, off)

        return held

    def begin(self, model: Model, data: Any, start: Start, weight: Array) -> tuple[Any, HMCState]:
        streams = model.streams(start.z, data)
        scale = prior_units(model)[1][model.parameters.num_weights :]
        precision = jnp.diag(scale**-2.0) if len(scale) else None
        first = Reference(streams, None, None)
        if len(scale):
            first = Reference(streams, jnp.diag(scale), jnp.diag(1.0 / scale))
        if self._freezes(model):
            first = first._replace(frozen=self._coordinates(model, data, first).frozen(start.z, weight))
        hidden = self._hidden(model, self._coordinates(model, data, first))
        direction = hidden / jnp.sqrt(jnp.maximum(jnp.sum(hidden), 1.0))
        one = jnp.ones((), start.z.dtype)
        frame = Frame(first, streams, jnp.int32(0), precision, direction, one, jnp.zeros_like(one))
        coordinates = self._coordinates(model, data, first)
        w = coordinates.to_white(start.z, weight)
        return frame, HMCState(w, *jax.value_and_grad(self._density(model, coordinates, frame.hold))(w, weight))

    def frame_at(self, model: Model, data: Any, z: Array) -> Frame:
        """The frame around one plain vector, with curvatures measured there."""
        full = jnp.ones((), z.dtype)
        rounds = self.rounds * max(model.dim - model.parameters.num_weights, 1)

        def again(i: Array, carry: tuple[Frame, HMCState]) -> tuple[Frame, HMCState]:
            return self.renewed(model, data, *carry, Phase(full, full, i, rounds))

        first = self.begin(model, data, Start(z, full, jnp.zeros_like(z)), full)
        return jax.lax.fori_loop(0, rounds, again, first)[0]

    def renewed(self, model: Model, data: Any, frame: Any, state: HMCState, phase: Phase) -> tuple[Any, HMCState]:
        """The output layer is solved at the new weight, the reference follows, and curvatures are measured."""
        solved = self._coordinates(model, data, frame.reference).solve(state.position, phase.weight)
        annealing = phase.step <= phase.last_annealed
        age = jnp.where(annealing, 0, frame.age + 1)
        share = jnp.where(annealing, 1.0, 1.0 / jnp.minimum(age + 1, self.memory).astype(solved.z.dtype))
        mean = jax.tree.map(lambda new, old: old + share * (new - old), solved.streams, frame.mean)
        renew = annealing | jnp.any(age == jnp.asarray(self.renewals))
        streams = jax.tree.map(lambda new, old: jnp.where(renew, new, old), mean, frame.reference.streams)
        one = unit_scalars(model)
        plain = Reference(streams, one, one)
        if self._freezes(model):
            frozen = jax.lax.cond(
                renew,
                lambda: self._coordinates(model, data, plain).frozen(solved.z, phase.weight),
                lambda: frame.reference.frozen,
            )
            plain = plain._replace(frozen=frozen)
        unscaled = self._coordinates(model, data, plain)
        w = unscaled.to_white(solved.z, phase.weight)
        if self._freezes(model):  # the residuals stay when the weight changes, so that the fields follow it
            kept = w.at[model.linear].set(state.position[model.linear])
            w = jnp.where(annealing, kept, w)
        learning = jnp.where(annealing, *self.learning), self._share_of_scalars(model, phase)
        left = jnp.clip((phase.last_held - phase.step) / self.released, 0.0, 1.0)
        frame = frame._replace(mean=mean, age=age, hold=(self.hold * left).astype(frame.hold.dtype))
        frame, density, gradient = self._measured(model, unscaled, frame, w, phase, learning)
        frame = frame._replace(reference=_scaled(model, plain, frame.precision, self._held(model, frame)))
        factor, inverse = frame.reference.scalars, frame.reference.inverse
        if factor is not None:
            hidden, scalars = jnp.split(w, [model.parameters.num_weights])
            slope, slopes = jnp.split(gradient, [model.parameters.num_weights])
            w, gradient = jnp.append(hidden, inverse @ scalars), jnp.append(slope, factor.T @ slopes)
            density = density + jnp.sum(jnp.log(jnp.diag(factor)))
        return frame, HMCState(w, density, gradient)

    def _measured(
        self,
        model: Model,
        coordinates: Coordinates,
        frame: Frame,
        w: Array,
        phase: Phase,
        weights_of_new: tuple[Array, Array],
    ) -> tuple[Frame, Array, Array]:
        """Curvatures by finite differences of gradients; also density and gradient at ``w``.

        One scalar after another is probed, and the direction of the hidden weights is turned by a power iteration.
        ``weights_of_new`` are those of what is measured here, of hidden weights and of scalars.
        """
        learning, of_scalars = weights_of_new
        weights = model.parameters.num_weights
        unit = self.units(model)
        push = unit * frame.direction * self.probe / jnp.sqrt(frame.curvature)
        bends = len(white(model)) < model.dim  # whether there are hidden weights
        probes = [w, w + push, w - push] if bends else [w]
        if frame.precision is not None:
            which = jnp.mod(phase.step, len(frame.precision))
            least = prior_units(model)[1][weights:] ** -2.0
            held = self._held(model, frame)[which]
            reach = self.probe / jnp.sqrt(jnp.maximum(frame.precision[which, which] + held, least[which]))
            aside = jnp.zeros_like(w).at[weights + which].set(reach)
            probes += [w + aside, w - aside]
        density = jax.value_and_grad(self._density(model, coordinates, frame.hold))
        densities, gradients = jax.lax.map(lambda at: density(at, phase.weight), jnp.stack(probes))
        if bends:
            bend = self._hidden(model, coordinates) * unit * (gradients[2] - gradients[1])
            bend = bend * jnp.sqrt(frame.curvature) / (2 * self.probe)
            found = jnp.sqrt(jnp.sum(bend**2))
            usable = jnp.isfinite(found) & (found > 0)
            direction = jnp.where(usable, bend / jnp.where(usable, found, 1.0), frame.direction)
            log_curvature = jnp.log(jnp.where(usable, jnp.maximum(found, 1.0), frame.curvature))
            curvature = jnp.exp((1 - learning) * jnp.log(frame.curvature) + learning * log_curvature)
            frame = frame._replace(direction=direction, curvature=curvature)
        if frame.precision is not None:
            column = ((gradients[-1] - gradients[-2])[weights:] / (2 * reach)).at[which].add(-held)
            column = jnp.where(jnp.all(jnp.isfinite(column)), column, frame.precision[which])
            column = column.at[which].set(jnp.maximum(jnp.abs(column[which]), least[which]))
            new = (1 - of_scalars) * frame.precision[which] + of_scalars * column
            frame = frame._replace(precision=frame.precision.at[which].set(new))
        return frame, densities[0], gradients[0]

    def _share_of_scalars(self, model: Model, phase: Phase) -> Array:
        """The weight of a new curvature of the scalars: a mean since annealing ended, or noise levels were released."""
        released = (phase.step > phase.last_held) & bool(len(noise_levels(model)))
        since = phase.step - jnp.where(released, phase.last_held, phase.last_annealed)
        probes = since // max(model.dim - model.parameters.num_weights, 1)
        running = jnp.maximum(1.0 / (jnp.maximum(probes, 0) + 2), self.averaging)
        return jnp.where(phase.step <= phase.last_annealed, self.learning[0], running)

    def _held(self, model: Model, frame: Frame) -> Array:
        """The precision of each scalar by the pull that holds noise levels at small values, which will end."""
        at, scale = noise_levels(model), prior_units(model)[1]
        pull = jnp.zeros_like(scale).at[at].set(frame.hold / scale[at] ** 2 if self.hold else 0.0)
        return pull[model.parameters.num_weights :]

    def log_density(self, model: Model, data: Any, frame: Any, weight: Array) -> LogDensity:
        density = self._density(model, self._coordinates(model, data, frame.reference), frame.hold)
        return lambda w: density(w, weight)

    def plain(self, model: Model, data: Any, frame: Any, state: HMCState, weight: Array) -> tuple[Array, Array]:
        z, log_determinant = self._coordinates(model, data, frame.reference).to_plain(state.position, weight)
        return z, state.logdensity - log_determinant

    def shared(self, model: Model, data: Any, frame: Any, particles: Array, weight: Array, key: Array) -> Any:
        """Around the mean of the streams; curvatures are averages over particles chosen at random."""
        if frame is None:
            return self.begin(model, data, Start(particles[0], weight, particles[0]), weight)[0]
        each = jax.lax.map(lambda z: model.streams(z, data), particles)
        streams = jax.tree.map(lambda stream: jnp.mean(stream, axis=0), each)
        one = unit_scalars(model)
        unscaled = self._coordinates(model, data, Reference(streams, one, one))
        probes = self.rounds * max(model.dim - model.parameters.num_weights, 2)
        chosen = jax.random.randint(key, (probes,), 0, len(particles))

        def measured(i: Array, frame: Frame) -> Frame:
            w = unscaled.to_white(particles[chosen[i]], weight)
            phase = Phase(weight, weight, i, 0)
            share = jnp.asarray(self.learning[1], w.dtype)
            return self._measured(model, unscaled, frame, w, phase, (share, share))[0]

        frame = jax.lax.fori_loop(0, len(chosen), measured, frame)
        held = self._held(model, frame)
        return frame._replace(reference=_scaled(model, unscaled.reference, frame.precision, held), mean=streams)

    def position(self, model: Model, data: Any, frame: Any, z: Array, weight: Array) -> Array:
        return self._coordinates(model, data, frame.reference).to_white(z, weight)

    def units(self, model: Model) -> Array:
        """The prior's scale for what is not whitened."""
        unit = np.array(model.parameters.prior_location_scale[1])
        unit[white(model)] = 1.0
        return jnp.asarray(unit, dtype=float)

    def quickening(self, model: Model, frame: Any) -> Array | float:
        faster = jnp.maximum(self.share * jnp.sqrt(frame.curvature), 1.0)
        fast = np.zeros(model.dim, bool)
        fast[white(model)] = True
        return jnp.where(fast, faster, 1.0)

    def _freezes(self, model: Model) -> bool:
        """Whether the map is computed once for each reference: where fields have linear parameters only.

        If there are scalars, a map that follows them costs a factor of the precision for each gradient, but needs far
        fewer: equations with an unknown coefficient tie the fields to it more tightly than a fixed map can express.

        The response of readings whose noise is not normal depends on the reference's prediction. If residuals were kept
        while the map follows the likelihood's weight, predictions and responses would drive each other away.
        Neutral equations need a factor at every step anyway.
        """
        normal = all(isinstance(group.likelihood, Normal) for group in model.groups)
        many = model.num_linear > self.followed or model.dim == model.parameters.num_weights
        linear = model.is_linear and bool(model.linear_fields)
        return self.freeze and normal and linear and many and not model.neutral_fields

    def _hidden(self, model: Model, coordinates: Coordinates) -> Array:
        """One for what is neither a linear parameter nor a scalar, otherwise zero."""
        hidden = np.ones(model.dim)
        hidden[white(model)] = 0.0
        return jnp.asarray(hidden, dtype=float)


def noise_levels(model: Model) -> np.ndarray:
    """Where ``z`` has inferred noise levels."""
    slices = [model.parameters.slices[name] for name in _noise_names(model)]
    return np.concatenate([np.zeros(0, int), *(np.arange(part.start, part.stop) for part in slices)])


def small_noise(model: Model, data: Any) -> Array:
    """Small values of the inferred noise levels, on the real line: a low quantile of the prior.

    With a wide prior that would be far smaller than any noise, so it is at least a small share of the spread of the
    readings, but never above the prior's centre.
    """
    centre, scale = prior_units(model)
    scalars = {scalar.name: scalar for scalar in model.parameters.scalars}
    found = []
    for name in _noise_names(model):
        at = model.parameters.slices[name]
        small = centre[at] - HELD_AT * scale[at]
        groups = zip(model.groups, data["values"], data["readings"], strict=True)
        spreads = [
            own["spread"][0] if "spread" in own else jnp.std(values)
            for group, values, own in groups
            if group.noise_name == name and isinstance(group.likelihood, LocationScale)
        ]
        if spreads and scalars[name].real_shape == ():
            least = jnp.maximum(HELD_SHARE * jnp.min(jnp.stack(spreads)), jnp.finfo(centre.dtype).tiny)
            own = jnp.ravel(scalars[name].transform.inv(least))
            small = jnp.maximum(small, jnp.minimum(jnp.nan_to_num(own, nan=-jnp.inf), centre[at]))
        found.append(small)
    return jnp.concatenate(found)


def _noise_names(model: Model) -> list[str]:
    return list(dict.fromkeys(group.noise_name for group in model.groups if group.noise_name is not None))


def white(model: Model) -> np.ndarray:
    """The components that have unit curvature in whitened coordinates: linear parameters and scalars."""
    return np.concatenate([model.linear, np.arange(model.parameters.num_weights, model.dim)])


def _scaled(model: Model, reference: Reference, precision: Array | None, more: Array) -> Reference:
    """The reference with scalars in units of their curvature; ``more`` is added to that of each."""
    if precision is None:
        return reference
    least = prior_units(model)[1][model.parameters.num_weights :] ** -2.0
    factor, inverse = triangular_root(precision + jnp.diag(more), least)
    return reference._replace(scalars=factor, inverse=inverse)


def triangular_root(precision: Array, least: Array) -> tuple[Array, Array]:
    """An upper triangular F with F F' = P^-1 and its inverse, for a symmetric P that may not be positive.

    By a Cholesky factor P = L D L' whose pivots are replaced by their absolute values, and at least ``least``.
    """
    size = len(precision)
    if not size:
        return precision, precision
    symmetric = 0.5 * (precision + precision.T)
    number = jnp.arange(size)

    def factored(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        lower, pivots = carry
        column = symmetric[:, j] - lower @ (pivots * lower[j])
        pivot = jnp.maximum(jnp.abs(column[j]), least[j])
        column = jnp.where(number > j, column / pivot, jnp.where(number == j, 1.0, 0.0))
        return lower.at[:, j].set(column), pivots.at[j].set(pivot)

    empty = jnp.zeros_like(precision), jnp.zeros_like(least)
    lower, pivots = jax.lax.fori_loop(0, size, factored, empty)

    def inverted(i: Array, inverse: Array) -> Array:
        row = jnp.where(number < i, lower[i], 0.0)
        return inverse.at[i].set(jnp.where(number == i, 1.0, 0.0) - row @ inverse)

    inverse = jax.lax.fori_loop(0, size, inverted, jnp.zeros_like(precision))
    return inverse.T / jnp.sqrt(pivots), jnp.sqrt(pivots)[:, None] * lower.T
