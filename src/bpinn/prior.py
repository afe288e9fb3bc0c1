"""The prior of a problem: draws and covariances of fields, derivatives and equations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn import quantity_at
from bpinn.compiling import FUSED, QUICKLY
from bpinn.errors import InputError
from bpinn.measurements import Quantity, label
from bpinn.model import Model
from bpinn.parameters import Parameters
from bpinn.posterior import Posterior
from bpinn.prediction import Prediction
from bpinn.problem import Problem
from bpinn.quantity_at import QuantityAt, Stacked, bytes_of_a_point, padded
from bpinn.readings import Readings
from bpinn.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Expectation", "PriorCheck", "check", "covariance", "predict"]

UNEXPECTED = 0.01  # probability below which the prior hardly could have produced the readings
BATCH = 256  # prior draws evaluated at once, or fewer if there are many points
BLOCK_BYTES = 4 * 2**20  # draws accumulated into the covariance at once


def predict(
    problem: Problem, quantity: Quantity, at: Mapping[str, Any] | None = None, *, draws: int = 10_000, seed: int = 0
) -> Prediction:
    """The prior of a field, a derivative or an equation at points; sensors, if any, are ignored.

    Arguments are those of `Result.predict`. The draws are those of ``Posterior.sample_prior(jax.random.key(seed), n)``;
    they are recomputed from their keys when needed.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=(50, 50))})
        >>> band = bp.prior.predict(problem, "u_x", {"x": [0.0, 0.5, 1.0]}, draws=500)
        >>> band.draws.shape, band.sd.shape
        ((1, 500, 3), (3,))
    """
    at_points = _locate(problem, quantity, at)
    keys = _keys(draws, seed, at_points.where)

    def evaluate(part: slice) -> np.ndarray:
        batches = list(_batches(at_points.values, at_points.prepare(part), keys, at_points.chunk))
        return np.concatenate(batches)[None, :, : part.stop - part.start]

    itemsize = jnp.dtype(jnp.result_type(float)).itemsize
    return Prediction(evaluate, at_points.chunk, at_points.shape, 1, draws, itemsize, at_points.at, at_points.label)


def covariance(
    problem: Problem, quantity: Quantity, at: Mapping[str, Any] | None = None, *, draws: int = 100_000, seed: int = 0
) -> np.ndarray:
    """The prior covariance of a quantity between all pairs of points, shape (points, points), estimated from draws.

    An entry k(x, y) has a standard error of about sqrt((k(x, x) k(y, y) + k(x, y)^2) / draws).

    Example:
        >>> import bpinn as bp
        >>> problem = bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=())})  # u = w x + b
        >>> bp.prior.covariance(problem, "u", {"x": [0.0, 1.0]}).round(1).tolist()
        [[1.0, 1.0], [1.0, 2.0]]
    """
    at_points = _locate(problem, quantity, at)
    return moments(problem, [at_points], draws, seed)[1]


@dataclass(frozen=True)
class Expectation:
    """What the prior expects of the readings of one group of sensors: the spread of readings, and that of these.

    ``low`` and ``high`` contain the spread of readings in 95% of the prior's draws; ``p`` is the probability of one at
    least as far off as that of these readings.
    """

    name: str
    spread: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        words = (
            f"{self.name}: the prior expects readings that spread by {self.low:.2g} to {self.high:.2g}; these spread by"
        )
        if self.p >= UNEXPECTED:
            return f"{words} {self.spread:.2g}, so it could have produced them"
        how = "less" if self.spread < self.low else "more"
        return f"{words} {self.spread:.2g}, much {how}: check units, and the priors of fields, unknowns and noise"


@dataclass(frozen=True)
class PriorCheck(Shown):
    """The readings beside what the prior expects of them; prints in words, and `plot` draws it."""

    groups: tuple[Expectation, ...]
    problem: Problem = field(repr=False)
    seed: int = 0

    @property
    def is_possible(self) -> bool:
        """Whether the prior could have produced all readings."""
        return all(group.p >= UNEXPECTED for group in self.groups)

    def __str__(self) -> str:
        return "\n".join(str(group) for group in self.groups) or "there are no noisy readings to compare with the prior"

    __repr__ = __str__

    def plot(self) -> "Figure":
        """Draws of the prior behind the readings, as `bp.plot.prior_check` draws them."""
        from bpinn.plot import prior_check  # imported here because plot imports this module

        return prior_check(self)


def check(problem: Problem, *, draws: int = 1000, seed: int = 0) -> PriorCheck:
    """Could the prior have produced the readings? Before any run.

    Readings are drawn from the prior, noise included, and their spread is compared with that of the readings.
    Exact conditions, and single readings, are left out. ``check(problem).plot()`` draws it.

    Example:
        ``print(bp.prior.check(problem))``
    """
    if not isinstance(problem, Problem):
        raise InputError(f"prior.check: expected a bp.Problem, got {type(problem).__name__}")
    found = []
    problem = problem.sampled(MOST_READINGS)
    for readings, drawn in replicas(problem, draws, seed):
        if readings.is_exact or np.ptp(readings.values) == 0:  # no spread to compare
            continue
        spreads = drawn.std(axis=1)
        spreads = spreads[np.isfinite(spreads)]
        if not len(spreads):
            raise InputError(f"prior.check: no prior draw predicts finite readings of {readings.name!r}")
        own = float(np.std(readings.values))
        above = float(np.mean(spreads >= own))
        low, high = np.quantile(spreads, [0.025, 0.975])
        found.append(Expectation(readings.name, own, float(low), float(high), 2 * min(above, 1 - above)))
    return PriorCheck(tuple(found), problem, seed)


def replicas(problem: Problem, draws: int, seed: int) -> Iterator[tuple[Readings, np.ndarray]]:
    """Each group of sensors with readings drawn from the prior, noise included, (draws, readings)."""
    keys = _keys(draws, seed, "prior.check")
    posterior = Posterior(problem).by_reading
    z = _sample(posterior.model.parameters, keys)
    scalars = jax.vmap(lambda z: posterior.model.parameters.split(z)[1])(z)
    rng = np.random.default_rng(seed)
    for readings, values in zip(problem.readings, predicted(posterior.model, z, posterior.data), strict=True):
        scale: Any = readings.noise
        if readings.noise_name is not None:
            scale = np.asarray(scalars[readings.noise_name], float)[:, None]
        with np.errstate(all="ignore"):
            yield readings, np.asarray(readings.likelihood.sample(rng, np.asarray(values, float), scale), float)


MOST_READINGS = 2000  # of a group, that are compared with the prior; of more, as many are chosen at random
AT_ONCE = 25  # draws whose readings are computed together


@partial(jax.jit, static_argnames="model", compiler_options=QUICKLY)
def predicted(model: Model, z: Any, data: Any) -> list[Array]:
    """Noise-free predictions of the readings of each group of sensors, (draws, readings)."""
    return jax.lax.map(partial(model.predicted, data=data), z, batch_size=AT_ONCE)


def moments(problem: Problem, quantities: Sequence[QuantityAt], draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of concatenated quantities at points, in double precision, without storing the draws."""
    keys = _keys(draws, seed, quantities[-1].where)
    values = Stacked(problem, quantities)
    size = sum(q.size for q in quantities)
    count, mean, scatter = 0, np.zeros(size), np.zeros((size, size))
    for rows in _blocks(_batches(values, values.prepare(), keys, size)):
        centre = rows.mean(axis=0)
        rows -= centre
        shift, total = centre - mean, count + len(rows)
        # Chan, Golub and LeVeque's update, which keeps a small variance around a large mean accurate
        scatter += rows.T @ rows + np.outer(shift, shift) * (count * len(rows) / total)
        mean += shift * (len(rows) / total)
        count = total
    return mean, scatter / (count - 1)


def _blocks(batches: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Batches concatenated in double precision; for single batches, threading overhead would exceed the arithmetic."""
    held: list[np.ndarray] = []
    for batch in batches:
        held.append(batch)
        if sum(part.nbytes for part in held) > BLOCK_BYTES:
            yield np.concatenate(held, dtype=float)
            held = []
    if held:
        yield np.concatenate(held, dtype=float)


def _locate(problem: Problem, quantity: Quantity, at: Mapping[str, Any] | None) -> QuantityAt:
    where = f"prior {label(quantity)!r}"
    if not isinstance(problem, Problem):
        raise InputError(f"{where}: expected a bp.Problem first, got {type(problem).__name__}")
    return QuantityAt.of(problem, quantity, at, where)


def _keys(draws: int, seed: int, where: str) -> np.ndarray:
    """The data of a key for each draw, on the host: to cut it into batches compiles nothing there."""
    if not isinstance(draws, int | np.integer) or isinstance(draws, bool) or draws < 2:
        raise InputError(f"{where}: draws must be a whole number of at least 2, got {draws!r}")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise InputError(f"{where}: seed must be a whole number from 0 to 2**32 - 1, got {seed!r}")
    return np.asarray(jax.random.key_data(jax.random.split(jax.random.key(int(seed)), int(draws))))


def _batches(values: Stacked, prepared: Any, keys: np.ndarray, points: int) -> Iterator[np.ndarray]:
    """Values for successive batches of prior draws, each of shape (draws, points)."""
    width = max(term.width for quantity in values.quantities for term in quantity.quantity.terms)
    one = points * width * bytes_of_a_point(values.quantities[0].problem)
    batch = max(1, min(BATCH, len(keys), quantity_at.CHUNK_BYTES // one))
    for i in range(0, len(keys), batch):
        z = _sample(values.parameters, padded(keys[i : i + batch], batch))
        yield np.asarray(values(z, prepared))[: len(keys) - i]


# Compiled separately from the evaluation: fused, XLA computes some of the random numbers more than once.
@partial(jax.jit, static_argnames="parameters", compiler_options=FUSED)
def _sample(parameters: Parameters, keys: Any) -> Array:
    return jax.vmap(parameters.sample_prior)(jax.random.wrap_key_data(keys))


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
