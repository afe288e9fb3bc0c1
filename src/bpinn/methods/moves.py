"""The coordinates that a Hamiltonian chain moves in: the interface, and plain coordinates.

A frame is what a chain knows about its coordinates besides its position.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.hmc import HMCState
from jax import Array

from bpinn.methods.start import Start, prior_units
from bpinn.model import Model

LogDensity = Callable[[Array], Array]


class Phase(NamedTuple):
    """Where warm-up is: the new and the old weight of the likelihood, the step, and the last step of annealing.

    ``last_held`` is the last step at which inferred noise levels are held at small values.
    """

    weight: Array
    old_weight: Array
    step: Array
    last_annealed: int
    last_held: int = -1


@dataclass(frozen=True)
class Moves(ABC):
    """How a chain sees the posterior: the density it moves in, and the way back to plain vectors."""

    @abstractmethod
    def begin(self, model: Model, data: Any, start: Start, weight: Array) -> tuple[Any, HMCState]:
        """The first frame and state of a chain."""

    @abstractmethod
    def renewed(self, model: Model, data: Any, frame: Any, state: HMCState, phase: Phase) -> tuple[Any, HMCState]:
        """The frame and the state before a transition of warm-up."""

    @abstractmethod
    def log_density(self, model: Model, data: Any, frame: Any, weight: Array) -> LogDensity:
        """The log density that a chain moves in."""

    @abstractmethod
    def plain(self, model: Model, data: Any, frame: Any, state: HMCState, weight: Array) -> tuple[Array, Array]:
        """The plain vector of a state, and its log density."""

    @abstractmethod
    def units(self, model: Model) -> Array:
        """The unit of each component, before anything is known: a mass of one in these units."""

    @abstractmethod
    def shared(self, model: Model, data: Any, frame: Any, particles: Array, weight: Array, key: Array) -> Any:
        """The frame in which a population of plain vectors moves; ``frame`` is the previous one, None at first."""

    @abstractmethod
    def position(self, model: Model, data: Any, frame: Any, z: Array, weight: Array) -> Array:
        """The position of a plain vector."""

    def first(self, model: Model, data: Any, z: Array) -> Array:
        """Where a chain starts that would start at ``z``, if the likelihood is annealed."""
        return z

    def quickening(self, model: Model, frame: Any) -> Array | float:
        """How much faster than the others components move: the root of a factor on the inverse mass."""
        return 1.0


@dataclass(frozen=True)
class PlainMoves(Moves):
    """The chain moves in ``z`` itself; the frame is empty."""

    def begin(self, model: Model, data: Any, start: Start, weight: Array) -> tuple[Any, HMCState]:
        prior, slope = jax.value_and_grad(model.log_prior)(start.z)
        return (), HMCState(start.z, prior + weight * start.log_likelihood, slope + weight * start.gradient)

    def renewed(self, model: Model, data: Any, frame: Any, state: HMCState, phase: Phase) -> tuple[Any, HMCState]:
        """Density and gradient at the new weight follow from those at the old one."""
        prior, slope = jax.value_and_grad(model.log_prior)(state.position)
        ratio = jnp.where(phase.step <= phase.last_annealed, phase.weight / phase.old_weight, 1.0)
        rescaled = HMCState(
            state.position,
            prior + ratio * (state.logdensity - prior),
            slope + ratio * (state.logdensity_grad - slope),
        )
        return frame, jax.tree.map(lambda new, old: jnp.where(ratio == 1.0, old, new), rescaled, state)

    def log_density(self, model: Model, data: Any, frame: Any, weight: Array) -> LogDensity:
        return lambda z: model.log_prior(z) + weight * model.log_likelihood(z, data)

    def plain(self, model: Model, data: Any, frame: Any, state: HMCState, weight: Array) -> tuple[Array, Array]:
        return state.position, state.logdensity

    def shared(self, model: Model, data: Any, frame: Any, particles: Array, weight: Array, key: Array) -> Any:
        return ()

    def position(self, model: Model, data: Any, frame: Any, z: Array, weight: Array) -> Array:
        return z

    def units(self, model: Model) -> Array:
        return prior_units(model)[1]
