"""Which solutions are there? Fits from random starts, grouped by what their fields are, not by their weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpinn.checks import is_whole
from bpinn.diagnostics import difference
from bpinn.errors import InputError
from bpinn.inference import infer
from bpinn.methods import Ensemble
from bpinn.problem import Problem
from bpinn.result import Result
from bpinn.shown import Shown
from bpinn.solutions import of_rows

SAME = 0.1  # fits are on the same solution if no field or unknown differs by more than this share of its size
ZERO = 1e-3  # and values that are so small, as a share of the largest of all fits, are the same
OUTLYING = 5.0  # misfit, in units of that of the best fit, above which a fit does not meet the readings
FITS = 2.0  # mean squared residual in units of noise below which a fit meets the readings in any case


@dataclass(frozen=True)
class FoundSolution(Shown):
    """One of several solutions, found by fits.

    ``share`` is the share of the starts that led to it, which says nothing about its probability; ``log_density`` that
    of the posterior at its best fit, ``misfit`` the mean squared residual in units of the noise, and ``result`` the
    best fit as a result with a single draw. ``differs`` says where it differs most from the first solution.

    Example:
        ``for one in bp.find_solutions(problem): print(one, one.result.predict("u", {"x": grid}).mean)``
    """

    share: float
    log_density: float
    misfit: float
    differs: str
    result: Result

    def __str__(self) -> str:
        differs = f"; differs most in {self.differs}" if self.differs else ""
        return f"{self.share:.0%} of the starts; log density {self.log_density:.1f}, misfit {self.misfit:.2g}{differs}"

    __repr__ = __str__


@dataclass(frozen=True)
class FoundSolutions(Shown):
    """The solutions that fits from random starts found, that of the largest log density first.

    ``failed`` is the share of the starts whose fits do not meet the readings.

    Example:
        ``found = bp.find_solutions(problem); print(found, len(found), found[0].share)``
    """

    solutions: tuple[FoundSolution, ...]
    starts: int
    failed: float

    def __iter__(self) -> Iterator[FoundSolution]:
        return iter(self.solutions)

    def __len__(self) -> int:
        return len(self.solutions)

    def __getitem__(self, number: int) -> FoundSolution:
        return self.solutions[number]

    def __str__(self) -> str:
        lines = [f"solution {number}: {one}" for number, one in enumerate(self, 1)]
        if self.failed:
            lines.append(f"{self.failed:.0%} of the starts led to no fit")
        several = "; bp.infer(problem, bp.SMC(), seed=0) estimates how probable each is" if len(self) > 1 else ""
        return "\n".join([*lines, f"from {self.starts} starts{several}"])

    __repr__ = __str__


def find_solutions(problem: Problem, starts: int = 20, *, seed: int = 0, progress: Any = False) -> FoundSolutions:
    """Look for solutions of a problem by fits from random starts, in seconds.

    Each fit starts at a draw of the prior and climbs to a mode of the posterior (`Ensemble` without anchors). Fits are
    grouped by fields and unknowns, so that networks with different weights and the same function are one solution. A
    solution that few starts lead to may be missed, or more probable than others: the share of the starts is no
    probability. For probabilities use `SMC`.

    Arguments:
        problem: the domain, fields, unknowns and sensors.
        starts: number of fits, at least 2.
        seed: a whole number; the same seed gives the same fits.
        progress: as in `infer`.

    Example:
        >>> import bpinn as bp
        >>> sensors = {
        ...     "f": bp.Sensors(lambda u: u**2, {"x": [0.1, 0.3, 0.5, 0.7, 0.9]}, [0.8, 1.0, 1.1, 1.0, 0.8], 0.05),
        ...     "u": bp.Sensors("u", {"x": [0.0]}, [0.2], 0.6),
        ... }
        >>> field = bp.KarhunenLoeve(bp.SquaredExponential(0.5), terms=3)
        >>> found = bp.find_solutions(bp.Problem({"x": (0.0, 1.0)}, {"u": field}, sensors))
        >>> [bool(one.result.predict("u", {"x": [0.5]}).mean[0] > 0) for one in found]
        [True, False]
    """
    if not is_whole(starts, 2):
        raise InputError(f"find_solutions: starts must be a whole number of at least 2, got {starts!r}")
    fits = Ensemble(members=max(2, -(-starts // 2)), anchored=False, chains=2)
    return grouped(infer(problem, fits, seed=seed, progress=progress), starts)


def grouped(result: Result, starts: int) -> FoundSolutions:
    """The solutions among the first ``starts`` of the fits in a result."""
    values = result.functionals.reshape(-1, result.functionals.shape[-1]).astype(float)[:starts]
    density = result.stats.log_density.reshape(-1).astype(float)[:starts]
    misfit = np.asarray(result.stats.misfit, float).reshape(-1)[:starts]
    secondary, names = result.monitor.is_secondary, result.functional_names
    usable = np.isfinite(density) & np.isfinite(misfit) & np.all(np.isfinite(values), axis=1)
    if not np.any(usable):
        raise InputError("find_solutions: no fit is finite; check the equations for division by zero or logarithms")
    usable &= misfit <= max(FITS, OUTLYING * float(misfit[usable].min()))
    owners = np.array([name.split(" at ")[0] for name in names])[~secondary]
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(-density[rows], kind="stable")]
    read = values[:, ~secondary]
    floor = ZERO * np.abs(read[usable]).max(axis=0)
    groups: list[list[int]] = []
    for row in rows:
        of = [g for g in groups if any(_same(read[row], read[i], owners, floor) for i in g)]
        groups = [g for g in groups if g not in of]
        groups.append([*(i for g in of for i in g), int(row)])
    groups.sort(key=lambda group: -density[group].max())
    found: list[FoundSolution] = []
    for group in groups:
        best = group[int(np.argmax(density[group]))]
        first = found[0].result.functionals if found else None
        differs = "" if first is None else difference(names, values[best][None], first, secondary)
        one = of_rows(result, np.array([best]), 1)
        found.append(FoundSolution(len(group) / starts, float(density[best]), float(misfit[best]), differs, one))
    return FoundSolutions(tuple(found), starts, float(1.0 - usable.mean()))


def _same(one: np.ndarray, other: np.ndarray, owners: np.ndarray, floor: np.ndarray) -> bool:
    """Whether two fits differ by little, each field and unknown in units of its size; ``floor`` counts as nothing."""
    for owner in np.unique(owners):
        own = owners == owner
        size = max(np.abs(one[own]).max(), np.abs(other[own]).max())
        if np.any(np.abs(one[own] - other[own]) > np.maximum(SAME * size, floor[own])):
            return False
    return True
