"""Do the readings fit the model? Each reading against what the posterior expects of it.

A model that cannot explain its data still has a posterior, as smooth and narrow as any. What shows it are the
readings: how far each lies from what the others lead one to expect, and how far they scatter altogether.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, ndtr, ndtri, stdtr

from bpinn.diagnostics import statistics
from bpinn.errors import InputError
from bpinn.located import Located
from bpinn.problem import Readings
from bpinn.result import Result

MOST_DRAWS = 1000
FAMILY = 0.05  # probability that any reading at all is called surprising where all is well
SCATTER_LOW, SCATTER_HIGH = 0.005, 0.995
FARTHEST = 30.0  # standard deviations beyond which a probability cannot be told from zero


@dataclass(frozen=True)
class SensorFit:
    """How the readings of one group of sensors fit.

    ``mean`` and ``sd`` are of what a new reading in the same place would be; ``p`` is the probability of a
    reading as far off as this one, given all others (by Pareto-smoothed importance sampling); ``scatter``
    that of readings that scatter more than these about the model, altogether: near zero they scatter too much for the
    stated noise, near one too little.
    """

    name: str
    at: dict[str, np.ndarray]
    values: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    p: np.ndarray
    khat: np.ndarray
    scatter: float

    @property
    def score(self) -> np.ndarray:
        """How many standard deviations each reading lies above what is expected of it, by its probability."""
        return np.sign(self.values - self.mean) * -ndtri(np.maximum(self.p, 1e-300) / 2)

    def place(self, i: int, equals: str = "=") -> str:
        """Where a reading was taken: 'x=0.5, t=1'."""
        return ", ".join(f"{c}{equals}{a[i]:.4g}" for c, a in self.at.items())

    @property
    def farthest(self) -> float:
        """The largest score, whatever its sign."""
        return float(np.max(np.abs(self.score)))

    @property
    def verdict(self) -> str:
        if self.scatter < SCATTER_LOW:
            return "scatter more than the stated noise allows"
        if self.scatter > SCATTER_HIGH:
            return "scatter less than the stated noise"
        return "fit"


@dataclass(frozen=True)
class Check:
    """Of all sensors; prints as a table, and says which readings are surprising."""

    groups: tuple[SensorFit, ...]

    @property
    def surprising(self) -> list[tuple[str, int]]:
        """Readings too far off for chance, as (name of sensors, number of the reading), the farthest first.

        The probability that there is any where all is well is one in twenty, however many readings there are.
        """
        limit = FAMILY / sum(len(group.p) for group in self.groups)
        found = [(group.p[i], group.name, int(i)) for group in self.groups for i in np.flatnonzero(group.p < limit)]
        return [(name, i) for _, name, i in sorted(found)]

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the model. Readings that scatter less than their noise do not: where exact
        physics or conditions are stated with a tolerance, they have no noise at all."""
        return not self.surprising and all(group.scatter >= SCATTER_LOW for group in self.groups)

    def __str__(self) -> str:
        lines = []
        for group in self.groups:
            count = len(group.values)
            lines.append(
                f"{group.name}: {count} reading{'s' if count > 1 else ''}, {group.verdict} "
                f"(p = {group.scatter:.3g}); farthest {group.farthest:.1f} sd"
            )
        by_name = {group.name: group for group in self.groups}
        for name, i in self.surprising:
            group = by_name[name]
            lines.append(
                f"  surprising: {name} at {group.place(i)} is {group.values[i]:.4g}, "
                f"expected {group.mean[i]:.3g} ± {group.sd[i]:.2g}"
            )
        return "\n".join(lines)

    __repr__ = __str__


def check(result: Result) -> Check:
    """Compare every reading with what the posterior expects of it.

    Example:
        ``print(bp.predictive.check(result))``
    """
    if not isinstance(result, Result):
        raise InputError(f"predictive.check: expected a result of bp.infer, got {type(result).__name__}")
    if result.method.estimate == "point":
        raise InputError("predictive.check: a single solution has no posterior to compare readings with")
    result = result.thinned(MOST_DRAWS)
    return Check(tuple(_check_group(result, readings) for readings in result.problem.readings))


def _check_group(result: Result, readings: Readings) -> SensorFit:
    located = Located.of_readings(result.problem, readings)
    flat = result.z.reshape(-1, result.z.shape[-1])
    expected = np.concatenate([located.evaluate(flat, part) for part in located.slices()], axis=1).astype(float)
    if readings.noise_name is None:
        sigma = np.broadcast_to(np.asarray(readings.noise, float), expected.shape)
    else:
        sigma = np.broadcast_to(result.draws(readings.noise_name).reshape(-1, 1).astype(float), expected.shape)
    residual = (readings.values - expected) / sigma
    normal = readings.likelihood == "normal"
    below = ndtr(residual) if normal else stdtr(readings.dof, residual)
    # As normal scores, so that their squares are chi-squared under either likelihood.
    scores = residual if normal else ndtri(np.clip(below, 1e-300, 1 - 1e-16))
    scatter = chdtrc(residual.shape[1], np.sum(np.clip(scores, -FARTHEST, FARTHEST) ** 2, axis=1)).mean()
    log_likelihood = _log_likelihood(residual, sigma, None if normal else readings.dof)
    weights, khat = _without_itself(log_likelihood)
    pit = np.clip(np.sum(weights * below, axis=0), 0.0, 1.0)
    spread = 1.0 if normal else np.sqrt(readings.dof / (readings.dof - 2)) if readings.dof > 2 else np.inf
    mean = np.sum(weights * expected, axis=0)
    variance = np.sum(weights * (expected - mean) ** 2, axis=0) + spread**2 * np.sum(weights * sigma**2, axis=0)
    return SensorFit(
        readings.name, dict(readings.at), readings.values, mean, np.sqrt(variance),
        2 * np.minimum(pit, 1 - pit), khat, float(scatter),
    )  # fmt: skip


def _log_likelihood(residual: np.ndarray, sigma: np.ndarray, dof: float | None) -> np.ndarray:
    """Up to a constant of each reading."""
    if dof is None:
        return -0.5 * residual**2 - np.log(sigma)
    return -0.5 * (dof + 1) * np.log1p(residual**2 / dof) - np.log(sigma)


def _without_itself(log_likelihood: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the draws, for each reading, under which they are of the posterior without it; and their k-hat."""
    draws, count = log_likelihood.shape
    weights, khat = np.full((draws, count), 1.0 / draws), np.full(count, np.inf)
    for i in range(count):
        column = log_likelihood[:, i]
        if draws < 25 or np.ptp(column) < 1e-12 or not np.all(np.isfinite(column)):
            khat[i] = 0.0 if np.ptp(column) < 1e-12 else np.inf
            continue
        try:
            with np.errstate(all="ignore"):
                smoothed, found = statistics().psislw(column)
        except ValueError:  # all weight is in draws that are the same
            continue
        if np.all(np.isfinite(smoothed)):
            weights[:, i], khat[i] = np.exp(smoothed - np.logaddexp.reduce(smoothed)), float(found)
    return weights, khat
