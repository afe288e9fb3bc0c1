"""Normalizing flows: the paper's potential flow (Algorithm 3), and coupling flows, which are much faster."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from bpinn.errors import InputError
from bpinn.methods import gaussian, potential
from bpinn.methods.approximation import Approximation
from bpinn.methods.base import check_choice, check_count
from bpinn.methods.gaussian import Gaussian, scale_tril
from bpinn.model import Model
from bpinn.parameters import Parameters
from bpinn.problem import Problem
from bpinn.registry import register

KINDS = ("coupling", "spline", "potential")
DENSITIES = ("exact", "laplacian")
REACH = 5.0  # splines act on the interval from minus to plus this value; outside of it they are the identity
FIRST_OUTPUT = 0.01  # scale of the conditioners' last layers, so that a flow starts near the identity


@register("flow")
@dataclass(frozen=True, kw_only=True)
class Flow(Approximation):
    """A normalizing flow: a trained bijection transforms standard normal draws into draws of the posterior.

    Draws are independent, and unlike a Gaussian a flow can represent curved posteriors. It is meant for problems with
    up to a few hundred parameters, such as Karhunen-Loève fields.

    Arguments:
        kind: "coupling" (affine coupling layers), "spline" (coupling layers with rational quadratic splines, slower),
            or "potential" (the paper's, along the gradient of a potential, slower still).
        layers: number of coupling layers.
        knots: number of knots of each spline.
        hidden: widths of the conditioners' hidden layers (all equal), or of the potential's network.
        steps: Euler steps of the potential flow.
        density: density of the potential flow: "exact" is that of the Euler map; "laplacian" is the paper's, that of
            the flow in continuous time. With few steps the latter makes the standard deviations too small.
        affine: append a learned linear map to the flow, which represents scales and correlations.
        num_samples, num_steps, learning_rate, schedule, patience, num_draws, chains, coordinates, init, init_steps: as
            in `VI`; "auto" initialises the linear map with "laplace".

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1, surrogate=surrogate).problem
        >>> flow = bp.Flow(kind="coupling", layers=2, num_steps=200, num_draws=50)
        >>> bp.infer(problem, flow, seed=0, progress=False).draws("k").shape
        (1, 50)
    """

    every: ClassVar[int] = 20

    kind: str = "coupling"
    layers: int = 6
    knots: int = 8
    hidden: tuple[int, ...] = (64,)
    steps: int = 10
    density: str = "exact"
    affine: bool = True
    num_samples: int = 16
    num_steps: int = 10_000
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple | list):
            raise InputError(f"Flow: hidden must be widths such as (64,), got {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        self._check()
        check_choice("Flow", "kind", self.kind, KINDS)
        check_choice("Flow", "density", self.density, DENSITIES)
        for name in ("layers", "knots", "steps"):
            check_count("Flow", name, getattr(self, name))
        if not self.hidden:
            raise InputError("Flow: hidden must have the width of at least one hidden layer, such as (64,)")
        for width in self.hidden:
            check_count("Flow", "each width in hidden", width)
        if self.kind != "potential" and len(set(self.hidden)) > 1:
            raise InputError(f"Flow: hidden layers of coupling flows must be equally wide, got hidden={self.hidden!r}")
        if not isinstance(self.affine, bool):
            raise InputError(f"Flow: affine must be True or False, got {self.affine!r}")
        if not self.affine and self.init in ("fit", "laplace"):
            raise InputError(
                f"Flow: init={self.init!r} initialises the linear map, which affine=False removes; use init='small'"
            )

    @classmethod
    def paper(cls, steps: int = 50, **changes: Any) -> "Flow":
        """The paper's settings: 50 Euler steps in forward problems, 10 in inverse ones; 100,000 steps of Adam."""
        settings = cls(
            kind="potential", steps=steps, hidden=(128, 128, 128), density="laplacian", affine=False, init="small",
            num_samples=16, num_steps=100_000, learning_rate=1e-4, schedule="constant", num_draws=10_000,
            coordinates="plain",
        )  # fmt: skip
        return replace(settings, **changes)

    def check(self, problem: Problem) -> None:
        self._check_size(problem, "bp.VI()")
        size = Parameters(problem).dim
        if size < 2 and self.kind != "potential":
            raise InputError("Flow: coupling flows need at least 2 parameters; use kind='potential' or bp.HMC()")

    @property
    def _start(self) -> str:
        if not self.affine:
            return "small"
        return "laplace" if self.init == "auto" else self.init

    def begin(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[tuple[Gaussian | None, Any], Any]:
        key_bijection, key_affine = jax.random.split(key)
        space, start, key_affine = self.space(model, data, key_affine, previous)
        affine = None
        if self.affine:
            affine = gaussian.first(space, start, key_affine, self._start == "laplace", "full-rank", 0)
        if self.kind == "potential":
            bijection: Any = potential.first_layers(key_bijection, model.dim, self.hidden)
        else:
            bijection = _layers(self, model.dim).first_arrays(key_bijection)
        return (affine, bijection), space.anchor

    def forward(self, params: Any, eps: Array, *, training: bool = False) -> tuple[Array, Array]:
        """The image of a standard normal draw, and the log determinant of the Jacobian."""
        affine, inner = params
        if self.kind == "potential":
            v, growth = potential.forward(inner, eps, self.steps, laplacian=training and self.density == "laplacian")
        else:
            v, growth = _layers(self, eps.shape[0]).transform(inner, eps)
        if affine is None:
            return v, growth
        lower = scale_tril(affine)
        return affine.mean + lower @ v, growth + jnp.sum(jnp.log(jnp.diag(lower)))

    def inverse(self, params: Any, v: Array) -> tuple[Array, Array]:
        """The standard normal draw that is mapped to ``v``, and the log determinant of the inverse's Jacobian."""
        affine, inner = params
        growth = jnp.zeros((), v.dtype)
        if affine is not None:
            lower = scale_tril(affine)
            v = solve_triangular(lower, v - affine.mean, lower=True)
            growth -= jnp.sum(jnp.log(jnp.diag(lower)))
        if self.kind == "potential":
            eps = potential.inverse(inner, v, self.steps)
            return eps, growth - potential.forward(inner, eps, self.steps, laplacian=False)[1]
        eps, shrinkage = _layers(self, v.shape[0]).invert(inner, v)
        return eps, growth + shrinkage

    def carry(self, ready: Any, eps: Array) -> tuple[Array, Array]:
        v, growth = self.forward(ready, eps, training=True)
        if self.kind != "coupling":
            return v, _log_normal(eps) - growth
        # As in VI's gradient="path": omit the gradient of the density with respect to its parameters, whose mean is
        # zero. For the other kinds the inverse is too slow for this, or too inexact in single precision.
        eps, shrinkage = self.inverse(jax.lax.stop_gradient(ready), v)
        return v, _log_normal(eps) + shrinkage

    def exact(self, ready: Any, eps: Array) -> tuple[Array, Array, dict[str, Array]]:
        v, growth = self.forward(ready, eps)
        folded = {"folded": potential.folds(ready[1], eps, self.steps)} if self.kind == "potential" else {}
        return v, _log_normal(eps) - growth, folded


def _log_normal(eps: Array) -> Array:
    return -0.5 * jnp.vdot(eps, eps) - 0.5 * eps.shape[0] * jnp.log(2 * jnp.pi)


class _Layers(NamedTuple):
    """The parts of a coupling flow that are not trained: a flowjax layer without its arrays, and the permutations."""

    layer: Any
    shapes: tuple[tuple[int, ...], ...]
    structure: Any
    permutations: np.ndarray

    def transform(self, arrays: tuple[Array, ...], x: Array) -> tuple[Array, Array]:
        def one(carry: tuple[Array, Array], at: Any) -> tuple[tuple[Array, Array], None]:
            y, growth = self._layer(at[0]).transform_and_log_det(carry[0])
            return (y[at[1]], carry[1] + growth), None

        return jax.lax.scan(one, (x, jnp.zeros((), x.dtype)), (arrays, self.permutations))[0]

    def invert(self, arrays: tuple[Array, ...], y: Array) -> tuple[Array, Array]:
        def one(carry: tuple[Array, Array], at: Any) -> tuple[tuple[Array, Array], None]:
            x, growth = self._layer(at[0]).inverse_and_log_det(carry[0][at[1]])
            return (x, carry[1] + growth), None

        back = np.argsort(self.permutations, axis=1)
        return jax.lax.scan(one, (y, jnp.zeros((), y.dtype)), (arrays, back), reverse=True)[0]

    def _layer(self, arrays: tuple[Array, ...]) -> Any:
        import equinox as eqx
        from paramax import unwrap

        return unwrap(eqx.combine(jax.tree.unflatten(self.structure, arrays), self.layer))

    def first_arrays(self, key: Array) -> tuple[Array, ...]:
        """Weights of all layers, stacked; the last ones small, so that the flow starts near the identity."""
        keys = jax.random.split(key, len(self.shapes))
        limits = [1.0 / shape[-1] ** 0.5 for shape in self.shapes]
        limits[-2:] = [FIRST_OUTPUT * limits[-2], 0.0]
        count = len(self.permutations)
        return tuple(
            limit * jax.random.uniform(k, (count, *shape), float, -1.0, 1.0)
            for k, shape, limit in zip(keys, self.shapes, limits, strict=True)
        )


@lru_cache(maxsize=32)
def _coupling(settings: Flow, dim: int, double: bool) -> _Layers:
    # Imported here because it takes half a second and only flows need it.
    import equinox as eqx
    from flowjax.bijections import Affine, Coupling, RationalQuadraticSpline

    def build() -> _Layers:
        with jax.enable_x64(double):
            spline = settings.kind == "spline"
            layer = Coupling(
                jax.random.key(0),
                transformer=RationalQuadraticSpline(knots=settings.knots, interval=REACH) if spline else Affine(),
                untransformed_dim=dim // 2,
                dim=dim,
                nn_width=settings.hidden[0],
                nn_depth=len(settings.hidden),
                nn_activation=jax.nn.tanh,
            )
        arrays, rest = eqx.partition(layer, eqx.is_inexact_array)
        leaves, structure = jax.tree.flatten(arrays)
        rng = np.random.default_rng(0)
        # The halves swap places, so that each layer transforms what the previous one left unchanged.
        half = dim // 2
        permutations = np.stack(
            [np.append(rng.permutation(np.arange(half, dim)), rng.permutation(half)) for _ in range(settings.layers)]
        )
        return _Layers(rest, tuple(leaf.shape for leaf in leaves), structure, permutations)

    # A separate thread is outside of any trace; equinox's checks fail in jax.ensure_compile_time_eval.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(build).result()


def _layers(settings: Flow, dim: int) -> _Layers:
    return _coupling(settings, dim, jnp.result_type(float) == jnp.float64)
