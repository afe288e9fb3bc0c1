"""Whether the points of an equation decide its unknowns by themselves, where readings hardly inform them.

An equation that is not neutral (`bpinn.neutral`) makes values of its unknowns more probable for which more of the
prior's fields meet it. How much the unknowns would move without that follows from the evidence of its points, whose
logarithm has the mean gradient g with respect to the unknowns: to first order by -C g, C being their covariance.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.diagnostics import Diagnosis
from bpinn.errors import InputError
from bpinn.neutral import MOST_READINGS
from bpinn.posterior import Posterior
from bpinn.problem import Problem
from bpinn.readings import Readings
from bpinn.result import Result

DRAWS = 32  # at which the gradient is computed
REACH = 0.25  # standard deviations of an unknown, for finite differences
# Standard deviations by which an unknown may move. Scales and hidden weights would move, too, which may even turn the
# direction (oxygen demand). With networks, rates that would move by 0.3 to 0.4 were off by 0.8 to 1.4 sd
# (verification/few_readings.py).
MOST = 0.25
WELL_KNOWN = 0.05  # sd over size of an unknown that readings determine


def judge_weight(health: Diagnosis, result: Result) -> None:
    laws = [r for r in result.problem.readings if r.is_exact and not r.neutral and r.unknowns]
    moved = {name: shift for name, shift in shifts(result, laws).items() if not _is_known(result, name)}
    name = max(moved, key=lambda name: abs(moved[name]), default=None)
    if name is None or abs(moved[name]) < MOST:
        return
    law = next(r for r in laws if name in r.unknowns)
    fields = result.posterior.model.parameters.fields
    linear = all(f.linear(bounds) == slice(0, f.size(bounds)) for field, f, bounds in fields if field in law.fields)
    health.worsen(
        "care",
        f"the points of {law.name} favour some values of {name} by themselves, and the readings hardly outweigh them: "
        f"{name} may be off by a standard deviation or more",
        ("bp.Physics(..., neutral=True)" if linear else "bp.GaussianProcess(), with which equations are neutral")
        + "; more readings; a comparison with a solver of the equation",
    )


def _is_known(result: Result, name: str) -> bool:
    draws = np.asarray(result.draws(name), float)
    draws = draws.reshape(-1, *draws.shape[2:])
    return bool(np.all(draws.std(axis=0) < WELL_KNOWN * np.abs(np.median(draws, axis=0))))


def shifts(result: Result, laws: Sequence[Readings]) -> dict[str, float]:
    """How far unknowns would move if these equations were neutral, in standard deviations; on the real line.

    Nothing if there are none, or if their evidence cannot be computed.
    """
    problem, slices = result.problem, result.posterior.model.parameters.slices
    names = sorted(set().union(*(r.unknowns for r in laws)))
    if not names or sum(len(r.values) for r in problem.readings) > MOST_READINGS:
        return {}
    try:
        neutral = _neutral(problem, [r.name for r in laws])
    except InputError:
        return {}
    labels = [name for name in names for _ in range(slices[name].stop - slices[name].start)]
    at = np.concatenate([np.arange(slices[name].start, slices[name].stop) for name in names])
    flat = result.z.reshape(-1, result.z.shape[-1])
    unknowns = flat[:, at].astype(float)
    covariance = np.atleast_2d(np.cov(unknowns, rowvar=False))
    sds = np.sqrt(np.diag(covariance))
    if not np.all(np.isfinite(sds) & (sds > 0)):
        return {}
    chosen = flat[np.linspace(0, len(flat) - 1, min(DRAWS, len(flat))).astype(int)]
    posterior = Posterior(neutral, native=True)
    steps = np.zeros((len(at), flat.shape[1]), flat.dtype)
    steps[np.arange(len(at)), at] = REACH * sds

    @jax.jit
    def slope(z: Array, step: Array) -> Array:
        ends = jax.lax.map(
            lambda end: posterior.model.log_evidence(end, posterior.data), jnp.stack([z + step, z - step])
        )
        return ends[0] - ends[1]

    slopes = np.array([[slope(z, step) for step in steps] for z in chosen], float) / (2 * REACH * sds)
    moved = -covariance @ np.nanmean(np.where(np.isfinite(slopes), slopes, np.nan), axis=0) / sds
    found: dict[str, float] = {}
    for label, one in zip(labels, moved, strict=True):
        if np.isfinite(one) and abs(one) >= abs(found.get(label, 0.0)):
            found[label] = float(one)
    return found


def _neutral(problem: Problem, names: Sequence[str]) -> Problem:
    sensors = {name: replace(s, neutral=True) if name in names else s for name, s in problem.sensors.items()}
    return Problem(problem.domain, problem.fields, sensors, problem.unknowns)
