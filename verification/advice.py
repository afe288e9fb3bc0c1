"""Follow the first advice of a verdict as mechanically as one can, without thinking about the model.

Advice must do no harm: a wrong model that is changed in this way must not become "good" while a truth is outside. Where
advice says what to check (units, boundary data, equations), a person who does not think takes what comes next, a more
flexible field.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np
import numpyro.distributions as dist

import bpinn as bp

MORE_DRAWS = bp.HMC(most_draws=8000)


def _readings(problem: bp.Problem) -> list[str]:
    """Names of sensors that are readings, not exact conditions."""
    return [r.name for r in problem.readings if len(r.values) > 1 and np.ptp(r.values) > 0]


def _with_sensors(problem: bp.Problem, changed: dict[str, bp.Sensors | None]) -> bp.Problem:
    kept = {name: s for name, s in {**problem.sensors, **changed}.items() if s is not None}
    return bp.Problem(problem.domain, problem.fields, kept, problem.unknowns)


def robust(problem: bp.Problem, result: bp.Result) -> bp.Problem:
    changed = {n: replace(problem.sensors[n], likelihood="student_t", dof=4.0) for n in _readings(problem)}
    return _with_sensors(problem, changed)


def flexible(problem: bp.Problem, result: bp.Result) -> bp.Problem:
    fields = {name: bp.GaussianProcess(inputs=f.inputs, positive=f.positive) for name, f in problem.fields.items()}
    return bp.Problem(problem.domain, fields, problem.sensors, problem.unknowns)


def groups(problem: bp.Problem, result: bp.Result) -> bp.Problem:
    """Two groups along the first coordinate, each with an inferred noise of its own."""
    changed: dict[str, bp.Sensors | None] = {}
    for name in _readings(problem):
        sensors = problem.sensors[name]
        first = np.asarray(next(iter(sensors.at.values())))
        low = first <= np.median(first)
        noise = dist.HalfNormal(float(np.std(sensors.values)))
        for called, part in (("low", low), ("high", ~low)):
            at = {c: np.asarray(x)[part] for c, x in sensors.at.items()}
            changed[f"{name}_{called}"] = replace(sensors, at=at, values=np.asarray(sensors.values)[part], noise=noise)
        changed[name] = None
    return _with_sensors(problem, changed)


def smaller(problem: bp.Problem, result: bp.Result) -> bp.Problem:
    """The noise that the residuals have, for readings that state a larger one."""
    changed = {}
    for readings in problem.readings:
        if readings.name in _readings(problem) and readings.noise is not None:
            sensors = problem.sensors[readings.name]
            residual = readings.values - result.predict(sensors.quantity, sensors.at).mean
            found = float(np.sqrt(np.mean(residual**2)))
            if found < np.min(readings.noise):
                changed[readings.name] = replace(problem.sensors[readings.name], noise=found)
    return _with_sensors(problem, changed)


def stated(problem: bp.Problem, result: bp.Result) -> bp.Problem:
    """The lower decile of the prior of an inferred noise."""
    changed = {}
    for name in _readings(problem):
        noise = problem.sensors[name].noise
        if isinstance(noise, dist.Distribution):
            low = float(np.quantile(np.asarray(noise.sample(jax.random.key(0), (4000,))), 0.1))
            changed[name] = replace(problem.sensors[name], noise=low)
    return _with_sensors(problem, changed)


def denser(problem: bp.Problem, result: bp.Result) -> bp.Problem:
    """Three times as many points for conditions along one coordinate."""
    changed = {}
    for readings in problem.readings:
        sensors = problem.sensors[readings.name]
        if readings.name not in _readings(problem) and len(readings.values) > 1 and len(sensors.at) == 1:
            ((c, x),) = sensors.at.items()
            more = np.linspace(np.min(x), np.max(x), 3 * len(readings.values))
            changed[readings.name] = replace(sensors, at={c: more}, values=float(readings.values[0]))
    return _with_sensors(problem, changed)


FOLLOWED: list[tuple[str, Callable[[bp.Problem, bp.Result], bp.Problem]]] = [
    ("student_t", robust),
    ("check units and boundary data", flexible),
    ("bp.GaussianProcess()", flexible),
    ("groups of sensors", groups),
    ("a smaller noise", smaller),
    ("state the noise", stated),
    ("more points for the equation", denser),
]


def followed(problem: bp.Problem, result: bp.Result, advice: str) -> tuple[bp.Problem, bp.Method | None]:
    """The problem, and the method, after following an advice; unchanged if it cannot be followed mechanically."""
    if advice.startswith("more draws"):
        return problem, MORE_DRAWS
    for words, change in FOLLOWED:
        if words in advice:
            return change(problem, result), None
    return problem, None
