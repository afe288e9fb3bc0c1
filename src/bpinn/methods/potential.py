"""The paper's potential flow (Appendix B): Euler steps along the gradient of a potential, which is a network.

One pass through the network gives the gradient, the Laplacian and the full Hessian of the potential exactly: with
pre-activations a, activations tanh(a) and g the derivative of the output with respect to a layer's activations, the
Hessian is the sum over layers of J' diag(g tanh''(a)) J, where J is the derivative of a with respect to the point.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Layers = tuple[tuple[Array, Array], ...]
NEWTON_STEPS = 50
FOLD = 100.0  # smallest penalty, in log density, for a step that folds the flow


class Slope(NamedTuple):
    """Gradient of the potential, and the factors of its Hessian: pairs of J (dim, width) and weights (width,)."""

    gradient: Array
    factors: tuple[tuple[Array, Array], ...]

    def laplacian(self) -> Array:
        return sum((jnp.sum(j * j * w) for j, w in self.factors), start=jnp.zeros((), self.gradient.dtype))

    def hessian(self) -> Array:
        size = self.gradient.shape[0]
        return sum(((j * w) @ j.T for j, w in self.factors), start=jnp.zeros((size, size), self.gradient.dtype))


def first_layers(key: Array, dim: int, hidden: Sequence[int]) -> Layers:
    """Glorot weights, with a small output layer, so that the flow starts near the identity."""
    shapes = list(pairwise([dim + 1, *hidden, 1]))
    keys = jax.random.split(key, len(shapes))
    scales = [(2.0 / (m + n)) ** 0.5 for m, n in shapes]
    scales[-1] *= 0.01
    return tuple(
        (scale * jax.random.normal(k, (m, n), float), jnp.zeros(n, float))
        for k, scale, (m, n) in zip(keys, scales, shapes, strict=True)
    )


def potential(layers: Layers, u: Array, t: Array | float) -> Array:
    """phi(u, t); the other functions of this module use its derivatives."""
    h = jnp.append(u, t)
    for weights, biases in layers[:-1]:
        h = jnp.tanh(h @ weights + biases)
    return (h @ layers[-1][0])[0]


def slope(layers: Layers, u: Array, t: Array | float) -> Slope:
    """The derivatives of the potential with respect to ``u``."""
    (weights, biases), *rest = layers[:-1]
    spatial = weights[:-1]
    y = jnp.tanh(u @ spatial + t * weights[-1] + biases)
    jacobian, jacobians, ys = spatial, [spatial], [y]
    for weights, biases in rest:
        jacobian = (jacobian * (1.0 - ys[-1] ** 2)) @ weights
        ys.append(jnp.tanh(ys[-1] @ weights + biases))
        jacobians.append(jacobian)
    factors = []
    g = layers[-1][0][:, 0]
    for depth in reversed(range(len(ys))):
        y = ys[depth]
        first = 1.0 - y * y
        factors.append((jacobians[depth], -2.0 * y * first * g))
        g = g * first
        if depth:
            g = layers[depth][0] @ g
    return Slope(spatial @ g, tuple(factors))


def forward(layers: Layers, z: Array, steps: int, *, laplacian: bool) -> tuple[Array, Array]:
    """The end point of ``z``, and the log determinant of the Jacobian.

    The determinant is that of the Euler map itself, or with ``laplacian`` the paper's: the sum of the Laplacians, which
    is the determinant of the flow in continuous time, with an error of order 1 / steps for the Euler map.
    """
    dt = 1.0 / steps

    def one(carry: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        u, total = carry
        s = slope(layers, u, i * dt)
        growth = dt * s.laplacian() if laplacian else _log_determinant(dt * s.hessian())
        return (u + dt * s.gradient, total + growth), None

    start = z, jnp.zeros((), z.dtype)
    return jax.lax.scan(one, start, jnp.arange(steps, dtype=z.dtype))[0]


def _log_determinant(bend: Array) -> Array:
    """log det(I + bend) of a symmetric matrix; a large negative penalty where I + bend is not positive definite.

    There the Euler step folds the flow over itself, and the determinant no longer gives the density. The penalty keeps
    training in the region where the flow is a bijection.
    """
    identity = jnp.eye(bend.shape[0], dtype=bend.dtype)
    whole = jnp.all(jnp.isfinite(jnp.linalg.cholesky(jax.lax.stop_gradient(identity + bend))))
    root = jnp.linalg.cholesky(identity + jnp.where(whole, bend, 0.0))
    return jnp.where(whole, 2.0 * jnp.sum(jnp.log(jnp.diag(root))), -FOLD * (1.0 + jnp.sum(bend * bend)))


def folds(layers: Layers, z: Array, steps: int) -> Array:
    """Whether an Euler step from ``z`` is so long that it folds the flow over itself."""
    dt = 1.0 / steps

    def one(u: Array, i: Array) -> tuple[Array, Array]:
        s = slope(layers, u, i * dt)
        return u + dt * s.gradient, jnp.linalg.eigvalsh(s.hessian())[0] <= -steps

    return jnp.any(jax.lax.scan(one, z, jnp.arange(steps, dtype=z.dtype))[1])


def inverse(layers: Layers, v: Array, steps: int) -> Array:
    """The point that is mapped to ``v``: each Euler step is inverted by Newton's method."""
    dt = 1.0 / steps
    identity = jnp.eye(v.shape[0], dtype=v.dtype)

    def undo(u: Array, i: Array) -> tuple[Array, None]:
        def newton(_: int, guess: Array) -> Array:
            s = slope(layers, guess, i * dt)
            return guess - jnp.linalg.solve(identity + dt * s.hessian(), guess + dt * s.gradient - u)

        return jax.lax.fori_loop(0, NEWTON_STEPS, newton, u - dt * slope(layers, u, i * dt).gradient), None

    return jax.lax.scan(undo, v, jnp.arange(steps, dtype=v.dtype)[::-1])[0]
