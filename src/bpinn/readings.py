"""Sensors after validation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpyro.distributions as dist

from bpinn.likelihoods import Likelihood, LocationScale
from bpinn.measurements import Placed
from bpinn.quantities import Equation, Partial, Unknown


def is_exact(values: Any, count: int, noise: Any, likelihood: Any) -> bool:
    """Whether sensors state a condition that holds exactly, up to a tolerance, rather than noisy readings.

    Such as an equation at collocation points or a boundary value: several equal values with a stated, additive noise.
    """
    stated = noise is not None and not isinstance(noise, str | dist.Distribution)
    flat = np.ravel(values)
    return stated and isinstance(likelihood, str | LocationScale) and count > 1 and bool(np.all(flat == flat[:1]))


def counted(count: int, exact: bool, of: int = 0) -> str:
    """Such as '1 reading' or '60 points': readings are data; points of an exact condition are not."""
    return f"{count}{f' of {of}' if of else ''} {'point' if exact else 'reading'}{'' if count == 1 else 's'}"


def extent(readings: Sequence["Readings"]) -> str:
    """All readings and points in words, such as '12 readings and 60 points'."""
    totals = {exact: sum(len(r.values) for r in readings if r.is_exact == exact) for exact in (False, True)}
    return " and ".join(counted(total, exact) for exact, total in totals.items() if total) or counted(0, False)


@dataclass(frozen=True)
class Readings:
    """Sensors after validation: plain arrays and resolved names."""

    name: str
    quantity: Placed
    values: np.ndarray
    noise: np.ndarray | None
    noise_name: str | None
    likelihood: Likelihood
    neutral: bool = False
    sampled_from: int = 0  # how many readings these were chosen from at random; 0 if these are all

    def sampled(self, most: int) -> "Readings":
        """At most ``most`` of these readings, chosen at random, always the same ones."""
        count = len(self.values)
        if count <= most:
            return self
        rows = np.sort(np.random.default_rng(count).choice(count, most, replace=False))
        noise = None if self.noise is None else self.noise[rows]
        quantity = self.quantity.of_rows(rows)
        return replace(self, quantity=quantity, values=self.values[rows], noise=noise, sampled_from=count)

    @property
    def fields(self) -> set[str]:
        """The fields that the readings depend on."""
        return {r.field for term in self.quantity.terms for r in term.equation.references if isinstance(r, Partial)}

    @property
    def unknowns(self) -> set[str]:
        """The unknowns in the equations of the readings."""
        return {r.name for term in self.quantity.terms for r in term.equation.references if isinstance(r, Unknown)}

    @property
    def at(self) -> dict[str, np.ndarray]:
        """Positions of the readings."""
        return self.quantity.at

    @property
    def equation(self) -> Equation:
        return self.quantity.terms[0].equation

    @property
    def is_exact(self) -> bool:
        """Whether these are points of an exact condition, stated with a tolerance, rather than noisy readings."""
        return is_exact(self.values, len(self.values), self.noise, self.likelihood)

    @property
    def leads(self) -> bool:
        """Whether these are readings of fields, which lead equations while the likelihood is annealed."""
        return not (self.is_exact and len(self.equation.references) > 1)

    def prepared(self) -> dict[str, np.ndarray]:
        """Arrays that the log density needs, see `Likelihood.prepare`."""
        return self.likelihood.prepare(self.values, self.noise)

    @property
    def size(self) -> str:
        """How many there are, in words: '12 readings', '60 points'."""
        return counted(len(self.values), self.is_exact, self.sampled_from)
