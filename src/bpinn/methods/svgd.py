"""Stein variational gradient descent: particles that follow the gradient of the density and repel each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from blackjax.vi import svgd
from jax import Array

from bpinn.methods.base import Record, Stage, check_choice, check_count, check_number
from bpinn.methods.members import Grouped, Members
from bpinn.methods.pinn import first_fit
from bpinn.methods.spaces import SPACES
from bpinn.model import Model
from bpinn.registry import register

EVERY = 10  # steps in a record
APPROXIMATE = (
    "Stein variational gradient descent: particles represent the posterior in the limit of many; with fewer of them "
    "than parameters their spread is too small"
)


class Particles(NamedTuple):
    """The particles in the coordinates of their space, the space's anchor, and the state of Adam."""

    state: svgd.SVGDState
    anchor: Any
    steps: Array


@dataclass(frozen=True)
class Transport(Stage):
    """Steps of all particles; a record is made every few of them."""

    name: ClassVar[str] = "transport"
    verb: ClassVar[str] = "step"
    has_history: ClassVar[bool] = True
    may_stop: ClassVar[bool] = True
    settings: "SVGD"

    @property
    def steps_per_record(self) -> int:
        return EVERY

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Particles:
        s = self.settings
        start = previous[0]
        space = SPACES[s.coordinates].around(model, data, start)
        mean, sd = space.first(start)
        particles = mean + sd * jax.random.normal(key, (s.particles, model.dim), mean.dtype)
        state = svgd.init(particles, {"length_scale": jnp.ones((), mean.dtype)}, s.optimiser())
        return Particles(svgd.update_median_heuristic(state), space.anchor, jnp.int32(0))

    def step(self, model: Model, data: Any, state: Particles, key: Array, step: Array) -> tuple[Particles, Record]:
        s = self.settings
        space = SPACES[s.coordinates](model, data, state.anchor)
        kernel = svgd.build_kernel(s.optimiser())

        def slope(v: Array) -> Array:
            gradient = jax.grad(lambda v: sum(space.log_density(v)))(v)
            return jnp.where(jnp.all(jnp.isfinite(gradient)), gradient, 0.0)

        def one(_: Array, moving: svgd.SVGDState) -> svgd.SVGDState:
            return svgd.update_median_heuristic(kernel(moving, slope, svgd.rbf_kernel))

        count = jnp.minimum(EVERY, s.num_steps - step * EVERY)
        moved = jax.lax.fori_loop(0, count, one, state.state)
        density = jnp.mean(jax.lax.map(lambda v: sum(space.log_density(v)), moved.particles))
        steps = state.steps + count
        return Particles(moved, state.anchor, steps), Record(None, None, {"step": steps, "log_density": density})

    def position(self, state: Particles) -> tuple[Array, Any]:
        return state.state.particles, state.anchor

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        return [f"mean log density {min(float(stats['log_density'][-1]) for stats in latest):.5g}"]


@register("svgd")
@dataclass(frozen=True, kw_only=True)
class SVGD(Grouped):
    """Stein variational gradient descent (Liu and Wang 2016), by blackjax.

    Particles follow the gradient of the log density and repel each other by a Gaussian kernel, whose width is set by
    the median of their distances. In many dimensions the repulsion is weak and the particles' spread too small;
    whitened coordinates help, but networks have many more weights than there are particles.

    Arguments:
        particles: number of particles in a population; each becomes a draw.
        num_steps: steps of Adam.
        learning_rate: learning rate of Adam, in units of the coordinates.
        coordinates: "whitened" moves standardised residuals of output weights and coefficients, as in `VI`; "plain"
            moves the parameters in units of their prior.
        init_steps: steps of the fit around which particles start.
        chains: number of independent populations.

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1, surrogate=surrogate).problem
        >>> method = bp.SVGD(particles=20, num_steps=100, init_steps=200)
        >>> bp.infer(problem, method, seed=0, progress=False).draws("k").shape
        (2, 20)
    """

    fewer: ClassVar[str] = "fewer particles"
    unit: ClassVar[str] = "population"

    particles: int = 50
    num_steps: int = 1000
    learning_rate: float = 1e-2
    coordinates: str = "whitened"
    init_steps: int = 5000
    chains: int = 2

    def __post_init__(self) -> None:
        check_count("SVGD", "particles", self.particles, 4)
        for name in ("num_steps", "init_steps", "chains"):
            check_count("SVGD", name, getattr(self, name))
        check_number("SVGD", "learning_rate", self.learning_rate, 0.0, np.inf)
        check_choice("SVGD", "coordinates", self.coordinates, tuple(SPACES))

    @property
    def approximate(self) -> str:
        return APPROXIMATE

    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(optax.cosine_decay_schedule(self.learning_rate, self.num_steps, alpha=1e-2))

    def stages(self) -> tuple[Stage, ...]:
        records = -(-self.num_steps // EVERY)
        return (
            first_fit(self.init_steps, "likelihood"),
            Transport(records, records, self),
            Members(self.particles, 0, self),
        )

    def plain_vectors(self, model: Model, data: Any, previous: Any) -> Array:
        particles, anchor = previous
        space = SPACES[self.coordinates](model, data, anchor)
        return jax.lax.map(lambda v: space.to_plain(v)[0], particles)
