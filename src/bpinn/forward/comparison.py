"""Comparing solutions with the fields that they were started from, and with the readings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from bpinn.evaluation import Evaluation
from bpinn.forward.laws import WHERE
from bpinn.forward.system import System
from bpinn.likelihoods import LocationScale
from bpinn.quantities import Coordinate, Partial, Unknown
from bpinn.readings import Readings
from bpinn.shown import Shown

FARTHEST = 30.0  # standard deviations at which residuals are cut
# How much larger the squared residuals of solutions may be than those of fields, and than expected, in their standard
# deviations; twice the number of unknowns and initial values comes on top. Runs of right models had an excess of 0 to
# 0.4 (Lorenz's 5, all of it scatter), those whose equations lack a term 3 to 18. In the total, residuals beyond OUTLIER
# sd count as that. Scatter without a common error is no disagreement unless residuals are WIDE times as large as they
# should be.
EXCESS, TOTAL, OUTLIER, WIDE = 2.0, 3.0, 3.0, 2.0
SHIFT, NOTHING = 3.0, 0.01  # of the mean solution, in sd; and the deviation from the field that is too small to count
FLOOR = 0.1  # of the typical sd of a field

HOW = {
    "initial": "as an initial-value problem",
    "boundary": "as a boundary-value problem",
    "lines": "by the method of lines",
}
# The field fits better than the solutions; these scatter, without a common error; neither fits.
LOOSE = (
    "look for a missing term or a wrong coefficient in the equations, which the field makes up for by using up their "
    "tolerance; if the equations are right, a smaller tolerance or more points for them"
)
SCATTER = "a smaller tolerance: it leaves the unknowns more freedom than the readings do"
NEITHER = "check units, boundary data and the stated noise, then the equations"


class Solution(Protocol):
    """A solution: derivatives of its fields at points."""

    def values(self, wanted: Partial, at: Mapping[str, np.ndarray]) -> np.ndarray | None: ...


@dataclass(frozen=True, eq=False)
class Group:
    """Readings inside the region that depend on a solved field."""

    system: System
    readings: Readings
    rows: np.ndarray

    @property
    def field(self) -> str | None:
        """The field, if these are readings of a solved field itself."""
        quantity = self.system.problem.sensors[self.readings.name].quantity
        return quantity if isinstance(quantity, str) and quantity in self.system.fields else None

    @cached_property
    def evaluation(self) -> Evaluation:
        return Evaluation.of(self.system.problem, [(self.placed, len(self.rows))], WHERE)

    @cached_property
    def placed(self) -> Any:
        return self.readings.quantity.of_rows(self.rows)

    @cached_property
    def points(self) -> list[dict[str, np.ndarray]]:
        """The positions of each term."""
        return self.placed.points(self.placed.rows)

    @cached_property
    def needs(self) -> list[tuple[Partial, dict[str, np.ndarray]]]:
        """The derivatives that its terms are made of."""
        return [
            (r, {c: at[c] for c in self.system.problem.inputs(r.field)})
            for task, at in zip(self.evaluation.tasks, self.points, strict=True)
            for r in dict.fromkeys(task.references)
            if isinstance(r, Partial)
        ]

    def from_curves(self, curves: Sequence[Solution], own: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """The same as ``own``, (draws, points) for each need, with the solved fields from solutions; None if they
        do not have a derivative."""
        found = []
        for (wanted, at), values in zip(self.needs, own, strict=True):
            if wanted.field not in self.system.fields:
                found.append(values)
                continue
            solved = [curve.values(wanted, at) for curve in curves]
            if any(part is None for part in solved):
                return None
            found.append(np.array(solved, float).reshape(len(curves), values.shape[1]))
        return found

    def expected(self, needs: Sequence[np.ndarray], unknowns: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """The noise-free prediction of the readings, (draws, readings)."""
        rows = []
        weights = self.placed.weights(self.placed.rows)
        for i, scalars in enumerate(unknowns):
            parts, terms = iter(values[i] for values in needs), []
            for task, at in zip(self.evaluation.tasks, self.points, strict=True):
                values: dict[Any, Any] = {
                    r: next(parts) for r in dict.fromkeys(task.references) if isinstance(r, Partial)
                }
                values |= {r: at[r.name] for r in task.references if isinstance(r, Coordinate)}
                values |= {r: scalars[r.name] for r in task.references if isinstance(r, Unknown)}
                terms.append(task([values[r] for r in task.references]))
            rows.append(np.asarray(self.evaluation.summed(terms, weights)[0], float))
        return np.array(rows).reshape(len(unknowns), len(self.rows))

    def scores(self, expected: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
        """Residuals as normal scores, (draws, readings)."""
        values = np.broadcast_to(self.readings.values[self.rows], expected.shape)
        with np.errstate(all="ignore"):
            found = self.readings.likelihood.normal_score(values, expected, scale, np.random.default_rng(0))
        return np.clip(np.nan_to_num(found, nan=FARTHEST), -FARTHEST, FARTHEST)


def groups_of(system: System) -> list[Group]:
    """The readings to compare with; the equations themselves and exact conditions are none."""
    laws = {law.name for law in system.laws}
    same = [law.equation for law in system.laws]
    found = []
    for readings in system.problem.readings:
        equation = readings.equation
        is_exact = readings.noise is not None and isinstance(readings.likelihood, LocationScale)
        is_exact = is_exact and len(readings.values) > 1 and np.ptp(readings.values) == 0
        of_solved = any(isinstance(r, Partial) and r.field in system.fields for r in equation.references)
        if readings.name in laws or equation in same or is_exact or not of_solved:
            continue
        inside = np.ones(len(readings.values), bool)
        placed = readings.quantity
        for at in placed.points(placed.rows):
            for c, (low, high) in system.region.items():
                slack = 1e-6 * (high - low)
                if c in at:
                    outside = (at[c] < low - slack) | (at[c] > high + slack)
                    inside &= ~outside.reshape(len(inside), -1).any(axis=1)
        if inside.any():
            found.append(Group(system, readings, np.flatnonzero(inside)))
    return found


@dataclass(frozen=True, eq=False)
class FieldCompared:
    """A field: ``solved`` and ``drawn``, (draws, *points), are the solutions and the draws that they belong to.

    ``mean``, ``sd`` and ``interval`` (95%) are those of the posterior. ``at`` has the points of each coordinate.
    """

    name: str
    at: dict[str, np.ndarray]
    solved: np.ndarray
    drawn: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    interval: tuple[np.ndarray, np.ndarray]

    @property
    def relative(self) -> float:
        """The deviation of a solution from its draw over the size of the field, the median of all draws."""
        apart, size = (_rms(part) for part in (self.solved - self.drawn, self.drawn))
        return float(np.median(apart / np.maximum(size, 1e-300)))

    @property
    def in_sd(self) -> float:
        """The same in posterior standard deviations of the field; NaN for a single solution."""
        return float(np.median(_rms((self.solved - self.drawn) / self._floored)))

    @cached_property
    def shifts(self) -> np.ndarray:
        """How far the mean of the solutions is from the mean of their draws at each point, in standard deviations of
        the field or of the solutions, whichever are larger."""
        apart = np.abs(np.mean(self.solved - self.drawn, axis=0))
        return apart / np.maximum(self._floored, np.std(self.solved, axis=0))

    @property
    def shift(self) -> float:
        """The same, root-mean-square over all points."""
        return float(np.sqrt(np.mean(self.shifts**2)))

    @property
    def farthest(self) -> str:
        """Where the shift is largest."""
        i = int(np.argmax(self.shifts))
        return ", ".join(f"{c}={np.ravel(a)[i]:.3g}" for c, a in self.at.items())

    @property
    def _floored(self) -> np.ndarray:
        """The sd; where the field is fixed, not much below its sd elsewhere."""
        return np.maximum(self.sd, max(FLOOR * np.median(self.sd), 1e-9 * np.max(np.abs(self.mean)), 1e-300))


def _rms(values: np.ndarray) -> np.ndarray:
    """Root mean square over all points of each draw."""
    return np.sqrt(np.mean(values.reshape(len(values), -1) ** 2, axis=1))


@dataclass(frozen=True, eq=False)
class ReadingsCompared:
    """A group of readings, ``field`` if they are readings of a field itself.

    ``expected``, (draws, readings), is what the solutions predict. ``solved`` and ``drawn`` are residuals of
    the solutions and of the fields, in units of the noise (as normal scores, for any likelihood).
    """

    name: str
    field: str | None
    at: dict[str, np.ndarray]
    values: np.ndarray
    expected: np.ndarray
    solved: np.ndarray
    drawn: np.ndarray

    @property
    def solved_misfit(self) -> float:
        """The root-mean-square residual of the solutions, the median of all draws; near one if they fit."""
        return float(np.median(_rms(self.solved)))

    @property
    def drawn_misfit(self) -> float:
        """The same of the fields."""
        return float(np.median(_rms(self.drawn)))

    @property
    def excess(self) -> float:
        """How much larger the sum of squared residuals is for solutions than for fields, the median of all draws."""
        return float(np.median(np.sum(self.solved**2, axis=1) - np.sum(self.drawn**2, axis=1)))

    @property
    def mean_excess(self) -> float:
        """The same of residuals that are averaged over draws: that of a common error rather than of scatter."""
        return float(np.sum(self.solved.mean(axis=0) ** 2) - np.sum(self.drawn.mean(axis=0) ** 2))

    @property
    def total(self) -> float:
        """By how much the squares of averaged residuals exceed their expectation; outliers count as ``OUTLIER`` sd."""
        return float(np.sum(np.minimum(self.solved.mean(axis=0) ** 2, OUTLIER**2))) - self.solved.shape[1]


@dataclass(frozen=True, eq=False)
class ForwardCheck(Shown):
    """The solutions of the equations for draws of the unknowns, compared with fields and readings; prints as text.

    ``kind`` is "initial", "boundary" or "lines". ``tried`` draws were solved for, and ``unsolved`` says why some were
    not. ``freedom`` is the number of unknowns and initial values, which readings cannot determine exactly.

    Example:
        ``check = bp.forward_check(result); print(check); check.verdict``
    """

    kind: str
    fields: tuple[FieldCompared, ...]
    readings: tuple[ReadingsCompared, ...]
    tried: int
    unsolved: tuple[str, ...]
    freedom: int = 0

    @property
    def num_solved(self) -> int:
        return self.tried - len(self.unsolved)

    @property
    def how(self) -> str:
        """How the equations were solved, in words."""
        return HOW[self.kind]

    @property
    def verdict(self) -> str:
        """ "agrees", "disagrees", or "unsolved" if the equations could not be solved for most draws."""
        if 2 * len(self.unsolved) > self.tried:
            return "unsolved"
        return "disagrees" if self.reasons else "agrees"

    @property
    def reasons(self) -> list[str]:
        """What does not agree."""
        return [reason for reason, advice in self._found if advice != SCATTER]

    @property
    def notes(self) -> list[str]:
        """What else is worth knowing."""
        return [reason for reason, advice in self._found if advice == SCATTER]

    @property
    def advice(self) -> list[str]:
        """What to try."""
        return list(dict.fromkeys(advice for _, advice in self._found))

    @cached_property
    def _found(self) -> list[tuple[str, str]]:
        """What does not agree, and advice."""
        found = []
        for group in self.readings if self.num_solved else ():
            sd, freedom, name = np.sqrt(2 * len(group.values)), 2 * self.freedom, group.name
            limit, misfits = EXCESS * sd + freedom, (group.solved_misfit, group.drawn_misfit)
            sizes = "{:.1f} times the noise, those of the field {:.1f} times".format(*misfits)
            if group.excess > limit and (group.mean_excess > limit or misfits[0] > WIDE * max(1.0, misfits[1])):
                reason = f"the solutions do not reproduce the readings of {name}: their residuals are {sizes}"
                found.append((reason, LOOSE))
            elif group.total > TOTAL * sd + freedom:
                reason = f"neither the solutions nor the field reproduce the readings of {name}: residuals are {sizes}"
                found.append((reason, NEITHER))
            elif group.excess > limit:
                reason = f"the solutions scatter around the readings of {name}: their residuals are {sizes}"
                found.append((reason, SCATTER))
        for field in self.fields:
            if self.num_solved and field.shift > SHIFT and field.relative > NOTHING:
                reason = (
                    f"the solutions leave the band of {field.name}: their mean is {field.shift:.1f} sd away, "
                    f"{np.max(field.shifts):.1f} sd at {field.farthest}"
                )
                found.append((reason, LOOSE))
        return found

    def as_dict(self) -> dict[str, Any]:
        """The verdict and the numbers behind it, for JSON."""
        return {
            "verdict": self.verdict,
            "reasons": [*self.reasons, *self.notes],
            "advice": self.advice,
            "draws": self.tried,
            "unsolved": list(self.unsolved),
            "fields": {
                f.name: {"relative": f.relative, "shift": None if np.isnan(f.shift) else f.shift}
                for f in self.fields
                if self.num_solved
            },
            "readings": {
                g.name: {"solved": g.solved_misfit, "field": g.drawn_misfit} for g in self.readings if self.num_solved
            },
        }

    def __str__(self) -> str:
        solved = self.num_solved
        lines = [f"Forward check: {self.verdict}"]
        lines += [f"  - {reason}" for reason in (*self.reasons, *self.notes)]
        if self.unsolved:
            most = max(set(self.unsolved), key=self.unsolved.count)
            lines.append(f"  - {len(self.unsolved)} of {self.tried} draws could not be solved for: {most}")
        lines += [f"  try: {advice}" for advice in self.advice]
        if solved:
            lines.append(f"  {solved} draw{'s' if solved > 1 else ''} solved {self.how}")
        for field in self.fields if solved else ():
            sd = "" if np.isnan(field.in_sd) else f", {field.in_sd:.2g} sd of the posterior"
            lines.append(f"  {field.name}: a solution deviates from its draw by {field.relative:.2%}{sd}")
        for group in self.readings if solved else ():
            lines.append(
                f"  readings of {group.name}: residuals of the solutions {group.solved_misfit:.2f} times the noise, "
                f"of the field {group.drawn_misfit:.2f} times"
            )
        return "\n".join(lines)

    __repr__ = __str__
