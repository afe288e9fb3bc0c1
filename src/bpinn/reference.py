"""Reference solutions: closed-form posteriors of linear problems.

`exact` is the exact posterior for Gaussian priors; `gp` replaces the prior of any surrogate by a Gaussian
process with the same mean and covariance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.linalg import solve_triangular

from bpinn.compiling import QUICKLY
from bpinn.errors import InputError
from bpinn.evaluation import Task
from bpinn.likelihoods import Normal
from bpinn.measurements import Quantity, label
from bpinn.parameters import Parameters
from bpinn.posterior import Posterior
from bpinn.prediction import GaussianPrediction
from bpinn.prior import moments
from bpinn.problem import Problem
from bpinn.quantities import Coordinate, Unknown
from bpinn.quantity_at import QuantityAt, Stacked
from bpinn.readings import extent

__all__ = ["GaussianPosterior", "GaussianPrediction", "exact", "gp"]

AFFINE = 1e-9  # relative deviation from linearity that is attributed to rounding
SINGULAR = 1e-13  # smallest acceptable squared pivot of a correlation matrix


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
        """The exact posterior of a quantity at points; the quantity must be linear in the parameters."""
        where = f"predict {label(quantity)!r}"
        located = QuantityAt.of(self.problem, quantity, at, where)
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

    This holds for Karhunen-Loève fields (and networks without hidden layers) in linear equations. Linearity of the
    equations is checked numerically.

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> posterior = bp.reference.exact(bp.paper.poisson_1d(surrogate=surrogate).problem)
        >>> posterior.mean.shape, posterior.covariance.shape
        ((20,), (20, 20))
    """
    _check(problem, "exact")
    _check_normal(problem)
    with jax.enable_x64(True):
        posterior = Posterior(problem).by_reading
        model, data = posterior.model, posterior.data

        def predicted(z: jax.Array) -> jax.Array:
            return jnp.concatenate(model.predicted(z, data))

        matrix, offset = _affine(predicted, model.dim, "exact")
        prior_mean, prior_sd = _prior(model.parameters)
    values, noise = _readings(problem)
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


def gp(
    problem: Problem,
    quantity: Quantity | None = None,
    at: Mapping[str, Any] | None = None,
    *,
    draws: int = 100_000,
    seed: int = 0,
) -> GaussianPrediction:
    """The posterior of a quantity as if the prior were a Gaussian process with the same mean and covariance.

    For a network this is the paper's "BNN-GPR": close to the network's posterior if its layers are wide, and
    computed without sampling it. The joint mean and covariance of all readings and of the quantity, which may be
    derivatives, are estimated from prior draws; conditioning on the readings is exact. Equations must be jointly
    linear in fields, derivatives and unknowns.

    Arguments:
        quantity: as in `Result.predict`; may be omitted if there is only one field.
        at: an array for each coordinate.
        draws: number of prior draws; estimated means are within about sd * sqrt(readings / draws) of the limit.
        seed: seed of the draws.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.Problem(
        ...     domain={"x": (0.0, 1.0)},
        ...     fields={"u": bp.MLP(hidden=())},  # u = w x + b
        ...     sensors={"u": bp.Sensors("u", at={"x": [0.0, 1.0]}, values=[0.0, 1.0], noise=0.1)},
        ... )
        >>> bp.reference.gp(problem, at={"x": [0.5]}).mean.round(2).tolist()
        [0.5]
    """
    if not isinstance(draws, int | np.integer) or isinstance(draws, bool) or draws < 1000:
        raise InputError(f"gp: draws must be a whole number of at least 1000, got {draws!r}")
    _check(problem, "gp")
    for name, prior in problem.unknowns.items():
        if not _has_variance(prior):
            raise InputError(f"gp: the prior of {name!r} has no finite variance; use bp.infer")
    if quantity is None:
        if len(problem.fields) > 1:
            raise InputError(f"gp: the problem has several fields, {', '.join(problem.fields)}; give quantity=")
        (quantity,) = problem.fields
    asked = QuantityAt.of(problem, quantity, at, f"gp {label(quantity)!r}")
    read = [QuantityAt.of_readings(problem, readings) for readings in problem.readings]
    for located in read:
        _check_linear(located, f"gp: {located.where}")
    _check_linear(asked, asked.where)
    values, noise = _readings(problem)
    count = len(values)
    if count >= draws:
        raise InputError(
            f"gp: the covariance of {extent(problem.readings)} is singular if estimated from {draws} draws; "
            "use more draws"
        )
    mean, covariance = moments(problem, [*read, asked], int(draws), seed)
    if not np.all(np.isfinite(covariance)):
        raise InputError("gp: draws of the prior are not finite at all points; the prior is too wide for the equations")
    scale = 1 / np.sqrt(np.diag(covariance)[:count] + noise**2)
    correlation = scale[:, None] * (covariance[:count, :count] + np.diag(noise**2)) * scale
    try:
        factor = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        factor = np.zeros((1, 1))
    if np.min(np.diag(factor)) ** 2 < SINGULAR:
        raise InputError(
            f"gp: the covariance of {extent(problem.readings)}, estimated from {draws} draws, is singular; "
            "use more draws or a larger noise"
        )
    cross = solve_triangular(factor, scale[:, None] * covariance[:count, count:], lower=True)
    residual = solve_triangular(factor, scale * (values - mean[:count]), lower=True)
    posterior_mean = (mean[count:] + cross.T @ residual).reshape(asked.shape)
    return GaussianPrediction(posterior_mean, covariance[count:, count:] - cross.T @ cross, asked.at, asked.label)


def _check(problem: Problem, where: str) -> None:
    if not isinstance(problem, Problem):
        raise InputError(f"{where}: expected a bp.Problem first, got {type(problem).__name__}")
    if not problem.readings:
        raise InputError(f"{where}: the problem has no sensors; give sensors= to bp.Problem")
    for name, field in problem.fields.items():
        if field.positive:
            raise InputError(f"{where}: field {name!r} is positive, so its posterior is not Gaussian; use bp.infer")
    if problem.scale_priors:
        name = next(iter(problem.scale_priors))
        raise InputError(f"{where}: the scale {name!r} is inferred, so the posterior is not Gaussian; use bp.infer")
    for readings in problem.readings:
        if readings.noise is None or not isinstance(readings.likelihood, Normal):
            raise InputError(
                f"{where}: the noise of sensors {readings.name!r} is not normal with a known standard deviation; "
                "use bp.infer"
            )


def _check_normal(problem: Problem) -> None:
    for name, prior in problem.unknowns.items():
        base = prior.base_dist if isinstance(prior, dist.Independent | dist.ExpandedDistribution) else prior
        base = base.base_dist if isinstance(base, dist.ExpandedDistribution) else base
        if not isinstance(base, dist.Normal):
            raise InputError(f"exact: the prior of {name!r} is {type(base).__name__}, not normal; use bp.infer")


def _has_variance(prior: dist.Distribution) -> bool:
    try:
        return bool(np.all(np.isfinite(prior.variance)))
    except NotImplementedError:  # the distribution does not provide it
        return True


def _check_linear(located: QuantityAt, where: str) -> None:
    """Check each equation numerically, in double precision, as a function of its fields, derivatives and unknowns."""
    with jax.enable_x64(True):
        tasks = Stacked(located.problem, [located]).evaluation.tasks
        placed = located.quantity
        for term, task, at in zip(placed.terms, tasks, placed.points(placed.rows), strict=True):
            priors = {r: located.problem.unknowns[r.name] for r in task.references if isinstance(r, Unknown)}
            known = {r: at[r.name] for r in task.references if isinstance(r, Coordinate)}
            given = {r: prior.sample(jax.random.key(0)) for r, prior in priors.items()}
            if not _is_straight(task, known | given, task.count):
                raise InputError(
                    f"{where}: {term.equation.label} is not linear in fields and derivatives; use bp.infer"
                )
            if not _is_straight(task, known, task.count, {r: prior.shape() for r, prior in priors.items()}):
                names = ", ".join(r.name for r in priors)
                raise InputError(
                    f"{where}: {term.equation.label} is not jointly linear in the fields and the unknown {names}; "
                    f"use bp.infer, or a number instead of {names}"
                )


def _is_straight(task: Task, known: dict, count: int, shapes: Mapping = MappingProxyType({})) -> bool:
    """Whether an equation is affine in all references not in ``known``; each is an array over points or in shapes."""
    moving = [r for r in task.references if r not in known]

    def value(values: list[jax.Array]) -> jax.Array:
        everything = known | dict(zip(moving, values, strict=True))
        return task([everything[r] for r in task.references])

    @partial(jax.jit, compiler_options=QUICKLY)
    def both(step: list[jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        origin, slope = jax.jvp(value, (zeros,), (step,))
        return origin, value(step), slope

    rng, zeros = np.random.default_rng(0), [jnp.zeros(shapes.get(r, (count,))) for r in moving]
    for scale in (0.3, 3.0, 30.0):
        origin, there, slope = map(np.asarray, both([jnp.asarray(scale * rng.standard_normal(a.shape)) for a in zeros]))
        size = max(float(np.max(np.abs(a))) for a in (origin, there, slope))
        if not np.all(np.abs(there - origin - slope) <= AFFINE * size):
            return False
    return True


def _readings(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """All values and their noise, concatenated."""
    values = np.concatenate([r.values for r in problem.readings])
    return values, np.concatenate([np.asarray(r.noise) for r in problem.readings])


def _prior(parameters: Parameters) -> tuple[np.ndarray, np.ndarray]:
    mean, sd = np.zeros(parameters.dim), np.ones(parameters.dim)
    for name, field, bounds in parameters.fields:
        sd[parameters.slices[name]] = field.prior_sd(bounds)
    for scalar in parameters.scalars:
        mean[parameters.slices[scalar.name]] = np.ravel(scalar.prior.mean)
        sd[parameters.slices[scalar.name]] = np.ravel(np.sqrt(scalar.prior.variance))
    return mean, sd


def _affine(function: Any, dim: int, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and offset of an affine function of ``z``; affinity is checked at random points."""
    both = jax.jit(lambda z: (function(z), jax.jacrev(function)(z)), compiler_options=QUICKLY)
    offset, matrix = map(np.asarray, both(jnp.zeros(dim)))
    rng = np.random.default_rng(0)
    for scale in (0.3, 3.0):
        z = scale * rng.standard_normal(dim)
        value, straight = np.asarray(both(jnp.asarray(z))[0]), matrix @ z + offset
        size = np.abs(matrix) @ np.abs(z) + np.abs(offset) + 1e-300
        if not np.all(np.abs(value - straight) <= AFFINE * size):
            raise InputError(f"{where}: not linear in the parameters, so there is no closed form; use bp.infer")
    return matrix, offset


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
