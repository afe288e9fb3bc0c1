"""Posterior predictive checks: do the readings fit the model?

A model that cannot explain its data still has a posterior, as smooth and narrow as any. The readings reveal it: how far
each one lies from its prediction given the others, and how much they scatter in total.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from scipy.special import chdtrc, ndtri

from bpinn import criticism
from bpinn.advice import CULPRITS
from bpinn.approximate import FEWEST_DRAWS
from bpinn.compiling import QUICKLY
from bpinn.convergence import statistics
from bpinn.criticism.equations import moved_to
from bpinn.diagnostics import Diagnosis
from bpinn.errors import InputError
from bpinn.likelihoods import Normal
from bpinn.model import Model
from bpinn.prior import predicted
from bpinn.quantities import StoredFunction
from bpinn.readings import Readings, counted
from bpinn.result import Result
from bpinn.shown import Shown

__all__ = ["Check", "SensorFit", "check"]

MOST_DRAWS = 1000
MOST_READINGS = 5000  # of a group, that are compared with their predictions; of more, as many are chosen at random
FAMILY = 0.05  # probability that any reading is called surprising although the model is correct
SCATTER_LOW, SCATTER_HIGH = 0.005, 0.995
FARTHEST = 30.0  # standard deviations beyond which a probability is numerically zero
# The verdict on the whole run uses stricter limits, to give fewer false alarms.
HEALTH_FAMILY, HEALTH_SCATTER, HOPELESS_SCATTER = 0.005, 0.001, 1e-6


@dataclass(frozen=True)
class SensorFit:
    """How well the readings of one group of sensors fit, or how well an exact condition is met at its points.

    ``mean`` and ``sd`` are those of a new reading at the same point, and ``p`` is the probability of a reading at least
    as far off as this one, all given the other readings (by Pareto-smoothed importance sampling). ``scatter`` is the
    probability that readings scatter more around the model than these do: near zero they scatter too much for the
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
    is_exact: bool = False
    sampled_from: int = 0  # how many readings these were chosen from at random; 0 if these are all

    @property
    def unit(self) -> str:
        """What one of them is called: points of an exact condition are not readings."""
        return "point" if self.is_exact else "reading"

    @property
    def size(self) -> str:
        """How many there are, in words."""
        return counted(len(self.values), self.is_exact, self.sampled_from)

    @property
    def score(self) -> np.ndarray:
        """How many standard deviations each reading lies above its prediction, computed from ``p``."""
        return np.sign(self.values - self.mean) * -ndtri(np.maximum(self.p, 1e-300) / 2)

    def place(self, i: int, equals: str = "=") -> str:
        """Where a reading was taken, such as 'x=0.5, t=1'; nothing if it has no coordinates of its own."""
        return ", ".join(f"{c}{equals}{a[i]:.4g}" for c, a in self.at.items())

    def named(self, i: int) -> str:
        """A reading by its place, or counted from 1 if it has none: 'u at x=0.5', 'reading 3 of u'."""
        return f"{self.name} at {self.place(i)}" if self.at else f"{self.unit} {i + 1} of {self.name}"

    @property
    def farthest(self) -> float:
        """The largest absolute score."""
        return float(np.max(np.abs(self.score)))

    @property
    def scatters_too_much(self) -> bool:
        return self.scatter < SCATTER_LOW

    @property
    def verdict(self) -> str:
        if self.is_exact:
            return "off by more than the tolerance allows" if self.scatters_too_much else "within the tolerance"
        if self.scatters_too_much:
            return "scatter more than the stated noise allows"
        if self.scatter > SCATTER_HIGH:
            return "scatter less than the stated noise"
        return "fit"


@dataclass(frozen=True)
class Check(Shown):
    """The fit of all sensors; prints as a table, with the surprising readings."""

    groups: tuple[SensorFit, ...]

    @property
    def surprising(self) -> list[tuple[str, int]]:
        """Readings and points too far off for chance, as (name of sensors, index of the reading), the farthest first.

        If the model is correct, the probability of any such reading is one in twenty, however many readings there are.
        """
        return self._rarer(FAMILY)

    def _rarer(self, probability: float) -> list[tuple[str, int]]:
        limit = probability / sum(len(group.p) for group in self.groups)
        found = [(group.p[i], group.name, int(i)) for group in self.groups for i in np.flatnonzero(group.p < limit)]
        return [(name, i) for _, name, i in sorted(found)]

    @property
    def fits(self) -> bool:
        """Whether nothing contradicts the model. Readings that scatter less than their noise do not contradict it:
        exact physics or conditions stated with a tolerance have no noise at all."""
        return not self.surprising and all(group.scatter >= SCATTER_LOW for group in self.groups)

    def __str__(self) -> str:
        lines = [
            f"{group.name}: {group.size}, {group.verdict} (p = {group.scatter:.3g}); farthest {group.farthest:.1f} sd"
            for group in self.groups
        ]
        by_name = {group.name: group for group in self.groups}
        for name, i in self.surprising:
            group = by_name[name]
            lines.append(
                f"  surprising: {group.named(i)} is {group.values[i]:.4g}, "
                f"expected {group.mean[i]:.3g} ± {group.sd[i]:.2g}"
            )
        return "\n".join(lines)

    __repr__ = __str__


def check(result: Result) -> Check:
    """Compare every reading with its posterior prediction; of more than 5,000 in a group, as many chosen at random.

    Example:
        ``print(bp.predictive.check(result))``
    """
    if not isinstance(result, Result):
        raise InputError(f"predictive.check: expected a result of bp.infer, got {type(result).__name__}")
    if not result.method.has_spread:
        raise InputError("predictive.check: a single solution has no posterior to compare readings with; use bp.HMC()")
    result = _fewer(result)
    return _compared(result, expected_of(result, result.z))


def _fewer(result: Result) -> Result:
    """The result with so few draws and readings that matrices over both stay small."""
    problem, fewer = result.problem.sampled(MOST_READINGS), result.thinned(MOST_DRAWS)
    return fewer if problem is result.problem else replace(fewer, problem=problem)


@partial(jax.jit, static_argnames=("model", "n"), compiler_options=QUICKLY)
def _prior_draws(model: Model, key: Array, n: int) -> Array:
    return jax.vmap(model.parameters.sample_prior)(jax.random.split(key, n))


def expected_of(result: Result, z: np.ndarray) -> list[np.ndarray]:
    """Noise-free predictions of the readings, (draws, readings) for each group of sensors."""
    posterior = result.posterior.by_reading
    flat = z.reshape(-1, z.shape[-1])
    return [np.asarray(values, float) for values in predicted(posterior.model, flat, posterior.data)]


def _compared(result: Result, expected: Sequence[np.ndarray]) -> Check:
    pairs = zip(result.problem.readings, expected, strict=True)
    return Check(tuple(_check_group(result, readings, values) for readings, values in pairs))


def _check_group(result: Result, readings: Readings, expected: np.ndarray) -> SensorFit:
    scale = result.noise_of(readings, expected.shape)
    law, values = readings.likelihood, np.broadcast_to(readings.values, expected.shape)
    with np.errstate(all="ignore"):  # a draw whose prediction the likelihood does not allow has zero weight
        # As normal scores, so that their squares are chi-squared under any likelihood.
        scores = law.normal_score(values, expected, scale, np.random.default_rng(0))
        scatter = chdtrc(expected.shape[1], np.sum(np.clip(scores, -FARTHEST, FARTHEST) ** 2, axis=1)).mean()
        weights, khat = _without_itself(np.asarray(law.log_prob(values, expected, scale)))
        at_most = np.clip(np.sum(weights * law.cdf(values, expected, scale), axis=0), 0.0, 1.0)
        below = np.clip(np.sum(weights * law.cdf_below(values, expected, scale), axis=0), 0.0, 1.0)
        means = law.mean(expected, scale)
        mean = np.sum(weights * means, axis=0)
        variance = np.sum(weights * (means - mean) ** 2, axis=0)
        variance += np.sum(weights * law.sd(expected, scale) ** 2, axis=0)
    return SensorFit(
        readings.name, dict(readings.at), readings.values, mean, np.sqrt(variance),
        np.minimum(2 * np.minimum(at_most, 1 - below), 1.0), khat, float(scatter), readings.is_exact,
        readings.sampled_from,
    )  # fmt: skip


def _without_itself(log_likelihood: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out importance weights of the draws for each reading, and their k-hat."""
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


# --- findings for the health of a run ---

UNDEFINED = 0.01  # share of the prior's draws
AS_WIDE, WIDE, TIED = 0.9, 0.5, 0.95  # spread of an unknown relative to its prior (two limits); and a correlation


def judge(result: Result, health: Diagnosis) -> None:
    """Add to a diagnosis whether the readings fit, whether they inform the unknowns, and whether the equations are
    defined under the prior. For a result from a file without its equations, add the findings stored in the file."""
    fewer = _fewer(result)
    far = health.khat is not None and health.verdict == "bad"  # readings then say nothing about the model
    if far or not np.all(np.isfinite(fewer.z)):
        return
    if any(isinstance(r.equation.function, StoredFunction) for r in result.problem.readings):
        for told in result.readings_noted:
            health.note(*told)
        return
    if result.problem.readings:
        count = fewer.z.shape[0] * fewer.z.shape[1]  # the same as for the posterior, so that both share one compilation
        prior = np.asarray(_prior_draws(fewer.posterior.model, jax.random.key(0), count))
        _judge_defined(health, fewer.problem.readings, expected_of(fewer, prior))
        expected = expected_of(fewer, fewer.z)
        if all(np.all(np.isfinite(values)) for values in expected):
            health.check = _compared(fewer, expected)
            normal = {r.name for r in fewer.problem.readings if isinstance(r.likelihood, Normal)}
            _judge_readings(health, health.check, normal)

            def between(points: Any) -> dict[str, np.ndarray]:
                moved = moved_to(fewer.problem, points).sampled(MOST_READINGS)
                other = replace(fewer, problem=moved)
                values = expected_of(other, fewer.z)
                return {r.name: v for r, v in zip(other.problem.readings, values, strict=True) if r.name in points}

            criticism.judge(health, fewer, expected, between)
    _judge_unknowns(health, result)  # by all draws: a thousand would put widths near a limit on either side of it


def _judge_defined(health: Diagnosis, groups: Sequence[Readings], expected: Sequence[np.ndarray]) -> None:
    for readings, values in zip(groups, expected, strict=True):
        below = float(np.mean(np.any(values < 0, axis=1)))  # zero is an underflow of a positive field
        if readings.likelihood.positive and below > UNDEFINED:
            law = type(readings.likelihood).__name__
            health.note(
                "care",
                f"{law} readings of {readings.name} need positive predictions, but {below:.0%} of the prior draws "
                "predict negative ones, which the posterior excludes",
                "a field with positive=True, or an equation that cannot be negative",
            )
    share = float(np.mean(np.any([np.any(np.isnan(values), axis=1) for values in expected], axis=0)))
    if share > UNDEFINED:
        health.note(
            "care",
            f"the equations are undefined (NaN) at {share:.0%} of the prior draws, which the posterior excludes",
            "a prior that keeps logarithms, roots and quotients defined, such as LogNormal for positive quantities",
        )


def _judge_readings(health: Diagnosis, check: Check, normal: Set[str] = frozenset()) -> None:
    for group in check.groups:
        if group.scatter < HEALTH_SCATTER:
            verdict = "bad" if group.scatter < HOPELESS_SCATTER else "care"
            reason = (
                f"the residuals of {group.name} at its points are larger than its tolerance allows"
                if group.is_exact
                else f"the readings of {group.name} do not fit: they scatter around the model more than their noise "
                "allows"
            )
            health.note(verdict, f"{reason} (p = {group.scatter:.1g})", CULPRITS)
    far = check._rarer(HEALTH_FAMILY)
    by_name = {group.name: group for group in check.groups}
    if far:
        name, i = far[0]
        group = by_name[name]
        more = f", and {len(far) - 1} more" if len(far) > 1 else ""
        others = "all readings and other points" if group.is_exact else "all other readings"
        outliers = "check these readings"
        if name in normal:
            outliers += "; or likelihood='student_t', which is robust to outliers"
        health.note(
            "care",
            f"{group.named(i)} is {abs(group.score[i]):.1f} sd from its prediction by {others}{more}",
            CULPRITS if group.is_exact else outliers,
        )


def _judge_unknowns(health: Diagnosis, result: Result) -> None:
    """Note unknowns that are as uncertain as their prior, and pairs that are informed only in combination."""
    parameters = result.posterior.model.parameters
    scale = parameters.prior_location_scale[1]
    columns = {s.name: parameters.slices[s.name] for s in parameters.scalars if s.name in result.problem.unknowns}
    flat = result.z.reshape(-1, result.z.shape[-1])
    if len(flat) < FEWEST_DRAWS:
        return
    names, values = [], []
    for name, part in columns.items():
        size = part.stop - part.start
        names += [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]
        values += [flat[:, i] / scale[i] for i in range(part.start, part.stop)]
    spread = [0.5 * float(np.subtract(*np.quantile(v, [0.8413, 0.1587]))) for v in values]
    more = "sensors of what it acts on, or a narrower prior"
    for name, width in zip(names, spread, strict=True):
        if width > AS_WIDE:
            health.note("care", f"the readings hardly inform {name}: it is as uncertain as its prior", more)
    for i in range(len(names)):
        for j in range(i):
            if min(spread[i], spread[j]) > WIDE and max(spread[i], spread[j]) <= AS_WIDE:
                tied = float(np.corrcoef(values[i], values[j])[0, 1])
                if abs(tied) > TIED:
                    reason = f"the readings hardly distinguish {names[j]} and {names[i]} (correlation {tied:.2f})"
                    health.note("care", reason, more)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
