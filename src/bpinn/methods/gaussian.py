"""Gaussians: the variational families, and the Laplace approximation as a starting point."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from bpinn.methods.spaces import Space

LEAST_PRECISION = 0.5  # in units of the space, for directions in which the log density is not concave


class Gaussian(NamedTuple):
    """``sd = softplus(rho)``; ``cross`` is empty, (dim, rank) or strictly lower triangular, in units of ``sd``."""

    mean: Array
    rho: Array
    cross: Array


class Shape(NamedTuple):
    """A Gaussian in the form used for evaluation: ``factor`` holds the correlations, in units of ``sd``.

    The factor is (dim, 0), (dim, rank), or lower triangular with a unit diagonal.
    """

    mean: Array
    sd: Array
    factor: Array
    log_sd: Array

    def carry(self, eps: Array, family: str) -> Array:
        """Transform standard normal ``eps`` into a draw; (dim + rank,) of them for the low-rank family, else (dim,)."""
        if family == "mean-field":
            return self.mean + self.sd * eps
        if family == "low-rank":
            size = len(self.sd)
            return self.mean + self.sd * (eps[:size] + self.factor @ eps[size:])
        return self.mean + self.sd * (self.factor @ eps)

    def log_prob(self, v: Array, family: str) -> Array:
        scaled = (v - self.mean) / self.sd
        constant = -0.5 * len(self.sd) * jnp.log(2 * jnp.pi) - self.log_sd
        if family == "mean-field":
            return constant - 0.5 * jnp.vdot(scaled, scaled)
        if family == "full-rank":
            eps = solve_triangular(self.factor, scaled, lower=True, unit_diagonal=True)
            return constant - 0.5 * jnp.vdot(eps, eps)
        # Woodbury: the covariance in units of sd is I + F F'.
        capacitance = jnp.eye(self.factor.shape[1], dtype=v.dtype) + self.factor.T @ self.factor
        root = jnp.linalg.cholesky(capacitance)
        reduced = solve_triangular(root, self.factor.T @ scaled, lower=True)
        kernel = jnp.vdot(scaled, scaled) - jnp.vdot(reduced, reduced)
        return constant - jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * kernel


def shape_of(gaussian: Gaussian, family: str) -> Shape:
    sd = jax.nn.softplus(gaussian.rho)
    factor = gaussian.cross
    if family == "full-rank":
        factor = jnp.tril(factor, -1) + jnp.eye(len(sd), dtype=sd.dtype)
    return Shape(gaussian.mean, sd, factor, jnp.sum(jnp.log(sd)))


def scale_tril(gaussian: Gaussian) -> Array:
    """The Cholesky factor of a full-rank Gaussian's covariance."""
    shape = shape_of(gaussian, "full-rank")
    return shape.sd[:, None] * shape.factor


def first(space: Space, start: Array, key: Array, laplace: bool, family: str, rank: int) -> Gaussian:
    """The initial Gaussian of a fit: narrow, or with the curvature of the log density at the starting point."""
    mean, sd = space.first(start)
    return _laplace(space, mean, key, family, rank) if laplace else _with_sd(mean, sd, family, rank, key)


def _laplace(space: Space, v: Array, key: Array, family: str, rank: int) -> Gaussian:
    """The Gaussian with the curvature of the log density at its mode."""
    smooth = space.smooth()
    curvature = -jax.hessian(lambda v: sum(smooth.log_density(v)))(v)
    if family != "full-rank":
        sd = 1.0 / jnp.sqrt(jnp.maximum(jnp.abs(jnp.diag(curvature)), LEAST_PRECISION))
        return _with_sd(v, sd, family, rank, key)
    precision, directions = jnp.linalg.eigh(0.5 * (curvature + curvature.T))
    root = directions.T / jnp.sqrt(jnp.maximum(jnp.abs(precision), LEAST_PRECISION))[:, None]
    # QR rather than Cholesky: the covariance may be too ill-conditioned for a Cholesky factor in single precision.
    lower = jnp.linalg.qr(root, mode="r").T
    lower = lower * jnp.sign(jnp.diag(lower))
    sd = jnp.diag(lower)
    return Gaussian(v, _inverse_softplus(sd), jnp.tril(lower / sd[:, None], -1))


def _with_sd(mean: Array, sd: Array, family: str, rank: int, key: Array) -> Gaussian:
    size = len(mean)
    shape = {"mean-field": (0,), "low-rank": (size, rank), "full-rank": (size, size)}[family]
    cross = 0.01 * jax.random.normal(key, shape) if family == "low-rank" else jnp.zeros(shape)
    return Gaussian(mean, _inverse_softplus(sd), cross.astype(mean.dtype))


def _inverse_softplus(sd: Array) -> Array:
    return sd + jnp.log(-jnp.expm1(-sd))
