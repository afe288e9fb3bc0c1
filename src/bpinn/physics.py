"""Exact physics: an equation that holds everywhere, stated at points with a tolerance."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import scipy  # which imports its parts when they are first used; together they take a second

from bpinn.errors import InputError
from bpinn.quantities import Coordinate, Equation, Names, Partial, label_of

POINTS = {1: 60, 2: 200}  # by the number of coordinates
MORE_POINTS, MOST_POINTS = 300, 1_000_000
SHARE = 0.01  # tolerance over the typical size of the equation
SAMPLES = 1000


@dataclass(frozen=True)
class Physics:
    """An equation that is zero everywhere in the domain; a value in ``sensors=`` like `Sensors`.

    A problem turns it into sensors: the equation at points that fill the domain evenly, with values of zero. What is
    not given is computed then, and is part of the problem: ``problem.sensors["law"].noise`` is the tolerance.

    Arguments:
        equation: a function whose arguments are names, and whose value is zero where the equation holds.
        points: number of points; by default 60 with one coordinate, 200 with two and 300 with more.
        tolerance: standard deviation of the residual; by default 1% of the equation's size at fields as large
            as the readings, with unknowns from their priors.
        focus: a part of the domain, by coordinate, which gets half of the points: ``{"t": (0.0, 0.1)}``.
        neutral: whether the equation leaves the priors of its unknowns as they are, see `Sensors`. The
            default is True for fields that are linear in their parameters, such as `GaussianProcess`. Equations that
            are not linear in their fields are linearised around each draw; hidden weights of networks are given.

    Example:
        >>> import bpinn as bp, numpyro.distributions as dist
        >>> def decay(u, u_t, rate):
        ...     return u_t + rate * u
        >>> problem = bp.Problem(
        ...     domain={"t": (0.0, 2.0)},
        ...     fields={"u": bp.GaussianProcess()},
        ...     unknowns={"rate": dist.LogNormal(0.0, 1.0)},
        ...     sensors={
        ...         "law": bp.Physics(decay),
        ...         "u": bp.Sensors("u", at={"t": [0.0, 1.0]}, values=[1.0, 0.4], noise=0.05),
        ...     },
        ... )
        >>> problem.sensors["law"].at["t"].shape
        (60,)
    """

    equation: Any
    points: int | None = None
    tolerance: float | None = None
    focus: Mapping[str, tuple[float, float]] | None = None
    neutral: bool | None = None

    def check(self, names: Names, where: str) -> Equation:
        whole = isinstance(self.points, int | np.integer) and not isinstance(self.points, bool)
        if self.points is not None and (not whole or not 2 <= self.points <= MOST_POINTS):
            raise InputError(f"{where}: points must be a whole number from 2 to {MOST_POINTS}, got {self.points!r}")
        number = isinstance(self.tolerance, int | float | np.number) and not isinstance(self.tolerance, bool)
        if self.tolerance is not None and (not number or not 0 < self.tolerance < np.inf):
            raise InputError(f"{where}: tolerance must be a positive number, got {self.tolerance!r}")
        if self.neutral is not None and not isinstance(self.neutral, bool):
            raise InputError(f"{where}: neutral must be True or False, got {self.neutral!r}")
        if isinstance(self.equation, str) or not callable(self.equation):
            raise InputError(
                f"{where}: Physics needs an equation, a function whose arguments are names, got {self.equation!r}; "
                "readings of a field are bp.Sensors"
            )
        return names.equation(self.equation, where)

    def place(self, equation: Equation, names: Names, where: str) -> dict[str, np.ndarray]:
        """Points that fill the domain of the coordinates that the equation depends on."""
        coordinates = names.coordinates_of(equation)
        if not coordinates:
            raise InputError(f"{where}: {label_of(self.equation)} depends on no coordinate; use bp.Sensors")
        count = self.points or POINTS.get(len(coordinates), MORE_POINTS)
        domain = {c: names.domain[c] for c in coordinates}
        if self.focus is None:
            return filled(domain, count)
        inside = dict(domain)
        for c, bounds in self.focus.items():
            if c not in domain:
                raise InputError(f"{where}: focus names {c!r}; the equation depends on {', '.join(domain)}")
            low, high = (float(bound) for bound in bounds)
            if not domain[c][0] <= low < high <= domain[c][1]:
                raise InputError(f"{where}: focus of {c} must be (low, high) inside the domain, got {bounds!r}")
            inside[c] = (low, high)
        parts = filled(domain, count - count // 2), filled(inside, count // 2, skip=2)
        return {c: np.concatenate([part[c] for part in parts]) for c in domain}


def filled(domain: Mapping[str, tuple[float, float]], count: int, skip: int = 1) -> dict[str, np.ndarray]:
    """Points that fill a box evenly, the same in every call: a grid in one dimension, a Halton sequence in more."""
    if len(domain) == 1:
        ((name, ends),) = domain.items()
        return {name: np.linspace(*ends, count)}
    qmc = scipy.stats.qmc
    halton = qmc.Halton(len(domain), scramble=False)
    halton.fast_forward(skip)
    low, high = zip(*domain.values(), strict=True)
    return dict(zip(domain, qmc.scale(halton.random(count), low, high).T, strict=True))


@dataclass(frozen=True)
class Arbitrary:
    """An equation where its fields are arbitrary: waves as large as the spread of their readings, around the mean of
    these, with unknowns from their priors.

    Without the mean, terms such as T - 285 of temperatures in kelvins would be a hundred times too large. Fields whose
    spread is not given, or is zero, have a size of one; those whose centre is not given are around zero.
    """

    equation: Equation
    names: Names
    priors: Mapping[str, dist.Distribution]
    spreads: Mapping[str, float] = field(default_factory=dict)
    centres: Mapping[str, float] = field(default_factory=dict)

    def typical_size(self) -> float:
        """The median size of the equation's value. A residual is small or large only in comparison with this."""
        found = self._at(self._values())
        finite = np.abs(found[np.isfinite(found)])
        return float(np.median(finite)) if finite.size else np.nan

    def _at(self, values: list[Any]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(self.equation.call(values), float), (SAMPLES,))

    def _values(self) -> list[Any]:
        rng, names = np.random.default_rng(0), self.names

        def values(reference: Any) -> Any:
            if isinstance(reference, Coordinate):
                return rng.uniform(*names.domain[reference.name], SAMPLES)
            if isinstance(reference, Partial):
                inputs = names.fields[reference.field]
                widths = [names.domain[c][1] - names.domain[c][0] for c in inputs]
                factor = np.prod([(2 * np.pi / w) ** n for w, n in zip(widths, reference.orders, strict=True)])
                waves = (self.spreads.get(reference.field) or 1.0) * float(factor) * rng.standard_normal(SAMPLES)
                return waves if any(reference.orders) else self.centres.get(reference.field, 0.0) + waves
            draws = np.asarray(self.priors[reference.name].sample(jax.random.key(0), (SAMPLES,)), float)
            return draws if draws.ndim == 1 else draws[SAMPLES // 2]

        # In an order of their own: the size of an equation must not depend on the order of its arguments.
        found = {reference: values(reference) for reference in sorted(self.equation.references, key=str)}
        return [found[reference] for reference in self.equation.references]
