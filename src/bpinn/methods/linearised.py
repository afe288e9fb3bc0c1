"""The model linearised at one vector, in units of noise and prior: what Gauss-Newton and Kalman methods are made of.

By Fisher scoring, readings of any likelihood become normal ones with unit noise: a prediction p with Fisher information
I becomes ``sqrt(I) p``, and the score of its reading becomes ``score / sqrt(I)``, which for normal noise is the
residual in units of the noise. Inferred noise levels do not move predictions. Each of them is one more row, whose
information is the curvature of the log likelihood with all predictions kept.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve

from bpinn.methods.frames import noise_levels, triangular_root
from bpinn.methods.start import prior_units
from bpinn.model import Model

LEAST_PRECISION = 0.1  # in units of the prior, for unknowns whose log prior is not concave
OVERSAMPLING = 10  # projections beyond the rank that is asked for
REFINEMENTS = 2  # of a solution in single precision
LEAST_NOISE = 1e-3  # the same for noise levels whose log likelihood is not concave


class Standardised(NamedTuple):
    """What the readings say at one vector: a row for each prediction, then one for each inferred noise level.

    ``roots`` are roots of the Fisher information of predictions, ``noise`` the root of the noise levels' information on
    the real line (upper triangular, so that noise levels s become ``noise @ s``), ``scores`` the standardised scores of
    all rows. Where something is not finite, root and score are zero.
    """

    roots: Array
    noise: Array
    scores: Array

    def values(self, predicted: Array, levels: Array) -> Array:
        """Predictions and noise levels in units of the rows."""
        return jnp.concatenate([self.roots * predicted, self.noise @ levels])


def standardised(model: Model, data: Any, z: Array, predicted: Sequence[Array]) -> Standardised:
    """The rows at a vector, from the prediction of each reading there."""
    at = noise_levels(model)
    scalars = model.parameters.split(z)[1]
    slopes = jax.grad(lambda p: model.log_likelihood_of(p, scalars, data))(list(predicted))
    roots, scores = [], []
    each = data.get("counted") or [True] * len(slopes)
    for group, mean, slope, fixed, counted in zip(model.groups, predicted, slopes, data["noise"], each, strict=True):
        information = group.likelihood.information(
            mean, fixed if group.noise_name is None else scalars[group.noise_name]
        )
        usable = jnp.isfinite(information) & (information > 0) & jnp.isfinite(slope) & counted
        root = jnp.sqrt(jnp.where(usable, information, 1.0))
        roots.append(jnp.where(usable, root, 0.0))
        scores.append(jnp.where(usable, slope / root, 0.0))
    if not len(at):
        return Standardised(jnp.concatenate(roots), jnp.zeros((0, 0), z.dtype), jnp.concatenate(scores))

    def by_levels(levels: Array) -> Array:
        return model.log_likelihood_of(predicted, model.parameters.split(z.at[at].set(levels))[1], data)

    slope, curvature = jax.grad(by_levels)(z[at]), -jax.hessian(by_levels)(z[at])
    least = jnp.full(len(at), LEAST_NOISE, z.dtype) / prior_units(model)[1][at] ** 2
    factor, root = triangular_root(jnp.where(jnp.isfinite(curvature), curvature, 0.0), least)
    own = factor.T @ jnp.where(jnp.isfinite(slope), slope, 0.0)
    return Standardised(jnp.concatenate(roots), root, jnp.concatenate([*scores, own]))


class Linearised(NamedTuple):
    """Derivatives of all rows by the parameters in units of the prior, (rows, dim), and the rows themselves."""

    rows: Array
    at: Standardised


def projected(model: Model, data: Any, z: Array, key: Array, rank: int) -> tuple[Array, Array]:
    """Rows that stand for those of `linearised` in the ``rank`` directions that the readings determine best.

    Also the size of the largest row that is left out; zero if there is none.

    By random projections (Halko et al. 2011), with two gradients and two directional derivatives of all predictions for
    each of them.
    """
    model = model.compiled(native=False)  # which has directional derivatives too
    at, scale = noise_levels(model), prior_units(model)[1]
    predicted = model.predicted(z, data)
    found = standardised(model, data, z, predicted)

    def values(v: Array) -> Array:
        moved = z + scale * v
        own = found.values(jnp.concatenate(model.predicted(moved, data)), moved[at])
        return jnp.where(jnp.isfinite(own), own, 0.0)

    start = jnp.zeros_like(z)
    push, pull = jax.linearize(values, start)[1], jax.vjp(values, start)[1]
    size = min(rank + OVERSAMPLING, len(found.scores), model.dim)
    basis = jax.random.normal(key, (size, len(found.scores)), z.dtype)
    for _ in range(2):
        inputs = jnp.linalg.qr(jax.lax.map(lambda row: pull(row)[0], basis).T)[0].T
        basis = jnp.linalg.qr(jax.lax.map(push, inputs).T)[0].T
    rows = jax.lax.map(lambda row: pull(row)[0], basis)
    _, sizes, directions = jnp.linalg.svd(rows, full_matrices=False)
    omitted = sizes[rank] if size > rank else jnp.zeros((), z.dtype)
    return (sizes[:, None] * directions)[:rank], omitted


def linearised(model: Model, data: Any, z: Array) -> Linearised:
    """The rows and their derivatives at a plain vector, by one gradient for each reading."""
    at, scale = noise_levels(model), prior_units(model)[1]
    predicted, pull = jax.vjp(lambda z: model.predicted(z, data), z)
    found = standardised(model, data, z, predicted)
    count = len(found.roots)

    def row(number: Array) -> Array:
        one = jnp.where(jnp.arange(count) == number, found.roots[number], 0.0)
        return pull(jax.lax.split(one, [len(part) for part in predicted]))[0]

    rows = jax.lax.map(row, jnp.arange(count))
    finite = jnp.all(jnp.isfinite(rows), axis=1)
    rows = jnp.where(finite[:, None], rows, 0.0)
    found = found._replace(scores=found.scores.at[:count].multiply(finite))
    if len(at):
        rows = jnp.concatenate([rows, jnp.zeros((len(at), model.dim), z.dtype).at[:, at].set(found.noise)])
    return Linearised(rows * scale, found)


class Pull(NamedTuple):
    """The prior at one vector: the gradient of its log, and a factor of its inverse curvature in the scalars.

    Both in units of the prior. The factor F is upper triangular, F F' is the inverse, and None is the identity.
    """

    gradient: Array
    factor: Array | None

    def apart(self, vectors: Array) -> Array:
        """``vectors @ F``, for vectors along the last axis; scalars come last."""
        if self.factor is None:
            return vectors
        first = vectors.shape[-1] - len(self.factor)
        return vectors.at[..., first:].set(vectors[..., first:] @ self.factor)

    def together(self, vector: Array) -> Array:
        """``F @ vector``."""
        if self.factor is None:
            return vector
        first = len(vector) - len(self.factor)
        return vector.at[first:].set(self.factor @ vector[first:])


def prior_pull(model: Model, v: Array) -> Pull:
    """The pull of the prior itself, whose log may be curved in any way in unknowns, noise levels and scales."""
    centre, scale = prior_units(model)
    first = model.parameters.num_weights

    def log_prior(v: Array) -> Array:
        return model.log_prior(centre + scale * v)

    gradient = jax.grad(log_prior)(v)
    gradient = jnp.where(jnp.isfinite(gradient), gradient, -v)
    if first == model.dim:
        return Pull(gradient, None)
    curvature = -jax.hessian(lambda scalars: log_prior(v.at[first:].set(scalars)))(v[first:])
    curvature = jnp.where(jnp.isfinite(curvature), curvature, jnp.eye(model.dim - first, dtype=v.dtype))
    least = jnp.full(model.dim - first, LEAST_PRECISION, v.dtype)
    return Pull(gradient, triangular_root(curvature, least)[0])


def solved(rows: Array, target: Array, pull: Array, damping: Array) -> Array:
    """The d that minimises ``|rows d - target|^2 + damping |d|^2 - 2 pull' d``; not finite if damping is too small.

    By a Cholesky factor of the smaller square matrix of the rows, which is refined: QR factors need no refinement, but
    took a hundred times as long where other programs used the processor. (Solvers of other libraries factor matrices
    over the parameters, of which networks have many more than there are readings.)
    """
    count, dim = rows.shape
    if count > dim:
        factor = jnp.linalg.cholesky(rows.T @ rows + damping * jnp.eye(dim, dtype=rows.dtype))
        right = rows.T @ target + pull
        return _refined(factor, lambda d: rows.T @ (rows @ d) + damping * d, right)
    factor = jnp.linalg.cholesky(rows @ rows.T + damping * jnp.eye(count, dtype=rows.dtype))
    first = pull / damping
    return first + rows.T @ _refined(factor, lambda x: rows @ (rows.T @ x) + damping * x, target - rows @ first)


def _refined(factor: Array, matrix: Callable[[Array], Array], right: Array) -> Array:
    found = cho_solve((factor, True), right)
    for _ in range(REFINEMENTS):
        found = found + cho_solve((factor, True), right - matrix(found))
    return found
