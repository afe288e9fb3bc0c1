"""Whether equations and other exact conditions hold, at their points and between them."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bpinn.advice import CULPRITS, DENSER
from bpinn.criticism.residuals import Group, nearest
from bpinn.diagnostics import Diagnosis
from bpinn.errors import BpinnWarning
from bpinn.measurements import Measurement
from bpinn.problem import Problem, Sensors
from bpinn.result import Result

# Squared residuals of an exact condition over those that its tolerance allows: with care, not at all; they are judged
# only if there is some room, and some residual, both in squared tolerances. Right models had 0.002 to 0.12, models with
# wrong fields or equations 0.6 and more (verification/models.py).
OFF_ZERO, FAR_OFF_ZERO, LEAST_ROOM, LEAST_OFF = 0.25, 1.0, 2.0, 5.0
BETWEEN, TOLERATED = 3.0, 3.0  # residual between points, over that at points, and in tolerances


def judge_off_zero(health: Diagnosis, group: Group) -> None:
    """Whether an exact condition is met.

    The true solution has no residuals, so their posterior mean is small: the price for fitting some of the readings'
    noise. If the condition held only up to its tolerance, the mean of a residual would have the variance 1 - v in units
    of the tolerance, v being its posterior variance: then the tolerance is used up by something that the model lacks.
    """
    mean = group.scores.mean(axis=0)
    room = float(np.sum(np.maximum(1.0 - group.scores.var(axis=0), 0.0)))
    total = float(np.sum(mean**2))
    if room < LEAST_ROOM or total < LEAST_OFF or total < OFF_ZERO * room:
        return
    i = int(np.argmax(np.abs(mean)))
    place = ", ".join(f"{c}={a[i]:.3g}" for c, a in group.readings.at.items())
    health.note(
        "bad" if total > FAR_OFF_ZERO * room else "care",
        f"{group.readings.name} is not met: its residuals use up {total / room:.0%} of what the tolerance allows (a "
        f"correct model uses a few percent); {abs(mean[i]):.1f} tolerances" + (f" at {place}" if place else ""),
        CULPRITS,
    )


def judge_between(health: Diagnosis, result: Result, exact: Sequence[Group], between: Any) -> None:
    """Whether equations hold between their points as well as at them."""
    moved = {}
    for group in exact:
        quantity = result.problem.sensors[group.readings.name].quantity
        if isinstance(quantity, Measurement) or not group.places or len(group.readings.values) < 3:
            continue
        moved[group.readings.name] = _midpoints(group)
    if not moved:
        return
    found = between(moved)
    for group in exact:
        name = group.readings.name
        if name in moved and group.readings.noise is not None:
            tolerance = group.readings.noise
            at, off = (
                np.sqrt(np.mean(((values - group.readings.values) / tolerance) ** 2))
                for values in (group.expected, found[name])
            )
            if off > max(BETWEEN * at, TOLERATED):
                health.note(
                    "bad" if off > 10 * max(BETWEEN * at, TOLERATED) else "care",
                    f"{name} holds at its {len(tolerance)} points but not between them: residuals "
                    f"there are {off:.1f} tolerances, {at:.1f} at the points",
                    DENSER,
                )


def _midpoints(group: Group) -> dict[str, np.ndarray]:
    """As many points, halfway to a neighbour: the next one along one coordinate, a near one in several."""
    at = np.stack(list(group.places.values()), axis=1)
    if at.shape[1] == 1:
        order = np.argsort(at[:, 0], kind="stable")
        other = np.empty(len(order), int)
        other[order[:-1]], other[order[-1]] = order[1:], order[-2]
    else:
        other = nearest(at)[:, -1]
    return {c: 0.5 * (a + a[other]) for c, a in group.readings.at.items()}


def moved_to(problem: Problem, points: Mapping[str, Mapping[str, np.ndarray]]) -> Problem:
    """The problem with some sensors at other points: its model is the same, so nothing is compiled again."""
    sensors = dict(problem.sensors)
    for name, at in points.items():
        old = sensors[name]
        readings = next(r for r in problem.readings if r.name == name)
        noise = old.noise if readings.noise is None else readings.noise
        sensors[name] = Sensors(old.quantity, at, readings.values, noise, old.likelihood, old.dof)
    with warnings.catch_warnings():  # of points outside of the domain, which were said when the problem was made
        warnings.simplefilter("ignore", BpinnWarning)
        return Problem(problem.domain, problem.fields, sensors, problem.unknowns)
