"""Monitored functionals: the basis of convergence diagnostics, checks of chains and the verdict.

Network weights have symmetries, so chains are compared on quantities a user looks at: every field across the domain,
every other measured quantity at some of its sensors, and every unknown, inferred noise and inferred scale.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bpinn.measurements import Placed, terms_of
from bpinn.problem import Problem

POINTS_IN_ONE_DIMENSION, POINTS_OTHERWISE = 11, 25
MOST_SENSORS = 11  # sensors at which a measured quantity other than a field is monitored


@dataclass(frozen=True)
class MonitoredQuantity:
    """A field or another measured quantity at points."""

    name: str
    placed: Placed
    is_equation: bool

    def labels(self) -> list[str]:
        """The label of each value: 'u at x=0.5'; without coordinates just the name, numbered if there are several."""
        if not self.placed.at:
            count = self.placed.count
            return [self.name] if count == 1 else [f"{self.name}[{i}]" for i in range(count)]
        places = [", ".join(f"{c}={a[i]:.3g}" for c, a in self.placed.at.items()) for i in range(self.placed.count)]
        return [f"{self.name} at {place}" for place in places]


@dataclass(frozen=True)
class MonitoredNumber:
    """One component of an unknown, an inferred noise or an inferred scale: its owner and its label."""

    owner: str
    component: int
    label: str


class Monitor:
    """The functionals of a problem, in order: quantities at points, then numbers."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.quantities = (*_fields(problem), *_other_quantities(problem))
        self.numbers = tuple(
            MonitoredNumber(name, i, name if prior.shape() == () else f"{name}[{i}]")
            for name, prior in problem.scalars.items()
            for i in range(int(np.prod(prior.shape())))
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The label of each functional: 'u at x=0.5', ..., 'k'."""
        return (*(label for q in self.quantities for label in q.labels()), *self.number_names)

    @cached_property
    def number_names(self) -> tuple[str, ...]:
        return tuple(number.label for number in self.numbers)

    @cached_property
    def is_secondary(self) -> np.ndarray:
        """Which functionals are equations, or scales of a field's prior such as its length.

        They are means to an answer, and mix slowly: their limits of convergence are weaker than those of fields,
        unknowns and noise levels, which show whether they matter.
        """
        of_quantities = [q.is_equation for q in self.quantities for _ in range(q.placed.count)]
        return np.array(of_quantities + [number.owner in self.problem.scale_priors for number in self.numbers])

    def columns(self, owner: str) -> list[int]:
        """Indices of an unknown's or inferred noise's components among the functionals, counted from the end."""
        return [i - len(self.numbers) for i, number in enumerate(self.numbers) if number.owner == owner]

    def numbers_of(self, functionals: np.ndarray) -> np.ndarray:
        """The last columns of functionals: unknowns, inferred noise levels and scales."""
        return functionals[..., functionals.shape[-1] - len(self.numbers) :]


def _fields(problem: Problem) -> list[MonitoredQuantity]:
    found = []
    for name in problem.fields:
        at = _spread(problem, problem.inputs(name))
        placed = Placed(terms_of(name, problem.names, "monitor"), at, len(next(iter(at.values()))))
        found.append(MonitoredQuantity(name, placed, False))
    return found


def _other_quantities(problem: Problem) -> list[MonitoredQuantity]:
    found = []
    for readings in problem.readings:
        if problem.sensors[readings.name].quantity not in list(problem.fields):
            # Readings without any coordinate all have the same prediction.
            last = len(readings.values) - 1 if readings.at or readings.quantity.is_by_reading else 0
            rows = np.unique(np.linspace(0, last, MOST_SENSORS).astype(int))
            found.append(MonitoredQuantity(readings.name, readings.quantity.of_rows(rows), True))
    return found


def _spread(problem: Problem, inputs: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Points across the domain: equidistant in one dimension, a low-discrepancy sequence in more."""
    d = len(inputs)
    if d == 1:
        return {inputs[0]: np.linspace(*problem.domain[inputs[0]], POINTS_IN_ONE_DIMENSION)}
    root = 2.0
    for _ in range(50):  # the generalised golden ratio
        root = (1.0 + root) ** (1.0 / (d + 1))
    steps = np.arange(1, POINTS_OTHERWISE + 1)
    unit = [(0.5 + steps * root ** -(i + 1)) % 1.0 for i in range(d)]
    return {
        c: problem.domain[c][0] + u * (problem.domain[c][1] - problem.domain[c][0])
        for c, u in zip(inputs, unit, strict=True)
    }
