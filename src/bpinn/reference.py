"""Exact answers, where there are any: the closed-form posterior of a linear problem with Gaussian priors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bpinn.errors import InputError
from bpinn.located import Located, Stacked
from bpinn.parameters import Parameters
from bpinn.posterior import Posterior
from bpinn.prediction import GaussianPrediction
from bpinn.problem import Problem
from bpinn.quantities import Quantity, label

AFFINE = 1e-9  # relative departure from a straight line that is taken for rounding


@dataclass(frozen=True)
class GaussianPosterior:
    """The posterior of ``z`` in closed form: its mean and covariance, in the order of `Posterior`.

    ``log_evidence`` is the log probability density of the readings.
    """

    problem: Problem
    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float

    def predict(self, quantity: Quantity, at: Mapping[str, Any]) -> GaussianPrediction:
        """The exact posterior of a quantity at points; it must be linear in the parameters."""
        where = f"predict {label(quantity)!r}"
        located = Located.of(self.problem, quantity, at, where)
        with jax.enable_x64(True):
            values = Stacked(self.problem, [located])
            prepared = values.prepare()
            matrix, offset = _affine(lambda z: values.one(z, prepared), len(self.mean), where)
        mean = (matrix @ self.mean + offset).reshape(located.shape)
        return GaussianPrediction(mean, matrix @ self.covariance @ matrix.T, located.at, located.label)

    def sample(self, seed: int, n: int) -> np.ndarray:
        """Independent draws of ``z``, shape (n, dim)."""
        rng = np.random.default_rng(seed)
        return rng.multivariate_normal(self.mean, self.covariance, size=n, method="eigh")


def exact(problem: Problem) -> GaussianPosterior:
    """The posterior of a problem that is linear in its parameters, with normal priors and known normal noise.

    So are Karhunen-Loève fields (and networks without hidden layers) in linear equations. Whether the equations are
    linear is found by trying.

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> posterior = bp.reference.exact(bp.paper.poisson_1d(surrogate=surrogate).problem)
        >>> posterior.mean.shape, posterior.covariance.shape
        ((20,), (20, 20))
    """
    _check(problem)
    with jax.enable_x64(True):
        posterior = Posterior(problem)
        model, data = posterior.model, posterior.data

        def predicted(z: jax.Array) -> jax.Array:
            return jnp.concatenate(model.predicted(z, data))

        matrix, offset = _affine(predicted, model.dim, "exact")
        prior_mean, prior_sd = _prior(model.parameters)
    values = np.concatenate([r.values for r in problem.readings])
    noise = np.concatenate([np.asarray(r.noise) for r in problem.readings])
    design, target = matrix / noise[:, None], (values - offset - matrix @ prior_mean) / noise
    scaled = design * prior_sd  # in units of the prior, so that the system is well scaled
    precision = np.eye(len(prior_sd)) + scaled.T @ scaled
    factor = np.linalg.cholesky(precision)
    whitened = np.linalg.solve(factor, np.eye(len(prior_sd)))
    covariance = prior_sd[:, None] * (whitened.T @ whitened) * prior_sd
    mean = prior_mean + covariance @ design.T @ target
    misfit = target @ target - (mean - prior_mean) @ design.T @ target
    log_determinant = 2 * np.sum(np.log(np.diag(factor))) + 2 * np.sum(np.log(noise))
    log_evidence = -0.5 * (misfit + log_determinant + len(values) * np.log(2 * np.pi))
    return GaussianPosterior(problem, mean, covariance, float(log_evidence))


def _check(problem: Problem) -> None:
    if not problem.readings:
        raise InputError("exact: the problem has no sensors; add sensors=")
    for name, field in problem.fields.items():
        if field.positive:
            raise InputError(f"exact: field {name!r} is positive, so its posterior is not Gaussian; use bp.infer")
    for name, prior in problem.unknowns.items():
        base = prior.base_dist if isinstance(prior, dist.Independent | dist.ExpandedDistribution) else prior
        base = base.base_dist if isinstance(base, dist.ExpandedDistribution) else base
        if not isinstance(base, dist.Normal):
            raise InputError(f"exact: the prior of {name!r} is {type(base).__name__}, not normal; use bp.infer")
    for readings in problem.readings:
        if readings.noise is None or readings.likelihood != "normal":
            raise InputError(
                f"exact: the noise of sensors {readings.name!r} is not normal with a known standard deviation; "
                "use bp.infer"
            )


def _prior(parameters: Parameters) -> tuple[np.ndarray, np.ndarray]:
    mean, sd = np.zeros(parameters.dim), np.ones(parameters.dim)
    for name, field, bounds in parameters.fields:
        sd[parameters.slices[name]] = field.prior_sd(bounds)
    for scalar in parameters.scalars:
        mean[parameters.slices[scalar.name]] = np.ravel(scalar.prior.mean)
        sd[parameters.slices[scalar.name]] = np.ravel(np.sqrt(scalar.prior.variance))
    return mean, sd


def _affine(function: Any, dim: int, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and offset of a function of ``z``, which is checked to be affine at random points."""
    zero = jnp.zeros(dim)
    offset, matrix = np.asarray(function(zero)), np.asarray(jax.jacrev(function)(zero))
    rng = np.random.default_rng(0)
    for scale in (0.3, 3.0):
        z = scale * rng.standard_normal(dim)
        value, straight = np.asarray(function(jnp.asarray(z))), matrix @ z + offset
        size = np.abs(matrix) @ np.abs(z) + np.abs(offset) + 1e-300
        if not np.all(np.abs(value - straight) <= AFFINE * size):
            raise InputError(f"{where}: it is not linear in the parameters, so there is no closed form; use bp.infer")
    return matrix, offset
