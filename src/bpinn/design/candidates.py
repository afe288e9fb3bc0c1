"""Readings that could be taken: kinds of readings, each at candidate places, with predictions from draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bpinn.errors import InputError
from bpinn.likelihoods import Likelihood, LocationScale
from bpinn.likelihoods.normal import Normal
from bpinn.measurements import Quantity, label, set_coordinates, terms_of
from bpinn.problem import Problem
from bpinn.quantities import StoredFunction
from bpinn.quantity_at import QuantityAt, measured
from bpinn.readings import Readings
from bpinn.result import Result

MOST_DRAWS = 1000
POINTS = {0: 1, 1: 101, 2: 25}  # of the default mesh along each coordinate, by their number
SCATTERED = 1000  # default points in three and more coordinates
INFORMATION_DRAWS = 100  # over which Fisher information is averaged

Noise = float | Mapping[str, float] | None


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of reading at candidate places: what is read, by which likelihood, with which noise.

    ``noise`` is a number, the name of an inferred noise, or None for a likelihood without a scale.
    """

    name: str
    quantity: QuantityAt
    likelihood: Likelihood
    noise: float | str | None

    @property
    def size(self) -> int:
        return self.quantity.size

    @property
    def shape(self) -> tuple[int, ...]:
        return self.quantity.shape

    @cached_property
    def at(self) -> dict[str, np.ndarray]:
        """The places, flat."""
        return {c: np.ravel(a) for c, a in self.quantity.at.items()}

    @property
    def varying(self) -> list[str]:
        """The coordinates in which the candidates differ."""
        return [c for c, a in self.at.items() if np.ptp(a) > 0]

    def place(self, i: int) -> dict[str, float]:
        return {c: float(a[i]) for c, a in self.at.items()}

    def named(self, i: int) -> str:
        """A reading in words: 'u at x=0.5', or 'reading 3 of wide' if its place is part of the quantity."""
        places = ", ".join(f"{c}={value:.4g}" for c, value in self.place(i).items())
        if self.quantity.quantity.is_by_reading or not places:
            return f"{self.name}, another reading like number {i + 1}" if self.size > 1 else f"{self.name}, once more"
        return f"{self.name} at {places}"

    def predicted(self, result: Result) -> np.ndarray:
        """Noise-free predictions of the readings, (draws, candidates)."""
        z = result.z.reshape(-1, result.z.shape[-1])
        parts = [self.quantity.evaluate(z, part) for part in self.quantity.slices()]
        return np.concatenate(parts, axis=1).astype(float)

    def scale(self, result: Result) -> Any:
        """The noise of each draw, (draws, 1), or a number, or None."""
        if isinstance(self.noise, str):
            return result.draws(self.noise).reshape(-1, 1).astype(float)
        return self.noise

    def noise_of(self, result: Result) -> float:
        """A number for the noise: the posterior mean of an inferred one; NaN without a scale."""
        scale = self.scale(result)
        return float(np.mean(scale)) if scale is not None else float("nan")

    def responses(self, predicted: np.ndarray, scale: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predictions in the space in which noise is additive, (draws, candidates), and its variance there.

        The variance is one over the Fisher information, averaged over draws, which is that of the noise if it is
        normal. Candidates at which some prediction is not allowed are NaN.
        """
        law = self.likelihood
        rows = np.unique(np.linspace(0, len(predicted) - 1, min(INFORMATION_DRAWS, len(predicted))).astype(int))
        some = predicted[rows]
        scales = scale[rows] if np.ndim(scale) else scale
        with np.errstate(all="ignore"):
            shown = np.asarray(law.transform(predicted), float) if isinstance(law, LocationScale) else predicted
            information = np.asarray(law.information(some, scales), float) * np.ones_like(some)
            if isinstance(law, LocationScale):
                slope = np.asarray(jax.vmap(jax.grad(lambda p: jnp.sum(law.transform(p))))(jnp.asarray(some)), float)
                information = information / slope**2
            variance = 1.0 / information.mean(axis=0)
        wrong = ~np.all(np.isfinite(shown), axis=0) | ~(variance >= 0)
        if law.positive:
            wrong |= np.any(predicted <= 0, axis=0)
        return np.where(wrong, np.nan, shown), np.where(wrong, np.nan, variance)


def kinds_of(
    problem: Problem, candidates: Any, noise: Noise, of: str | Sequence[str] | None, where: str
) -> tuple[list[Kind], list[str]]:
    """The kinds of readings to consider, and what is not considered, in words.

    By default they are the fields and other quantities that have noisy readings, with the noise of the largest group.
    A field without readings is considered if its noise is given.
    """
    groups = _groups(problem)
    names = [*dict.fromkeys([*(name for name in problem.fields if name in groups), *groups])]
    given = _noises(noise, where)
    wanted = [of] if isinstance(of, str) else None if of is None else list(of)
    if wanted is None:
        extra = [name for name in problem.fields if name not in groups and (name in given or "" in given)]
        wanted = [*names, *extra]
    if isinstance(candidates, Mapping) and any(isinstance(value, Mapping) for value in candidates.values()):
        for name in candidates:
            if name not in wanted:
                raise InputError(f"{where}: candidates of {name!r}, which is not considered; known: {_list(wanted)}")
    unused = [name for name in given if name and name not in wanted]
    if unused:
        raise InputError(f"{where}: noise of {unused[0]!r}, which is not considered; known readings: {_list(wanted)}")
    kinds = [_kind(problem, name, groups, given, _places(candidates, name, problem, where), where) for name in wanted]
    left = [
        f"{name} has no readings; noise={{{name!r}: ...}} would consider it"
        for name in problem.fields
        if of is None and name not in wanted
    ]
    if not kinds:
        raise InputError(
            f"{where}: the problem has no noisy readings to add another one to; name what can be read and its noise, "
            f"such as noise={{'{next(iter(problem.fields))}': 0.1}}"
        )
    return kinds, left


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _groups(problem: Problem) -> dict[str, Readings]:
    """The group of readings that another reading would belong to, by the name of the field or of the sensors.

    Exact conditions are no readings. Of several groups of one quantity it is the largest, because small ones are often
    boundary values, which are known better than readings elsewhere can be.
    """
    found: dict[str, Readings] = {}
    for readings in problem.readings:
        quantity = problem.sensors[readings.name].quantity
        if readings.is_exact or isinstance(readings.equation.function, StoredFunction):
            continue
        same = [n for n, r in found.items() if problem.names.same(problem.sensors[r.name].quantity, quantity)]
        name = same[0] if same else quantity if isinstance(quantity, str) else readings.name
        if name not in found or len(readings.values) > len(found[name].values):
            found[name] = readings
    return found


def _noises(noise: Noise, where: str) -> dict[str, float]:
    """Given noises by name; an empty name is for all kinds."""
    given: Mapping[str, Any] = {} if noise is None else noise if isinstance(noise, Mapping) else {"": noise}
    for name, value in given.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not 0 < value < np.inf:
            called = f" of {name!r}" if name else ""
            raise InputError(f"{where}: noise{called} must be a positive number, got {value!r}")
    return {name: float(value) for name, value in given.items()}


def _places(candidates: Any, name: str, problem: Problem, where: str) -> Any:
    """The candidates of one kind: given for all, or by name of the kind."""
    if candidates is None:
        return None
    if not isinstance(candidates, Mapping) or not candidates:
        first = next(iter(problem.domain))
        raise InputError(
            f"{where}: candidates must be a dictionary with an array for each coordinate, such as {{'{first}': ...}}, "
            f"got {candidates!r}"
        )
    if all(isinstance(value, Mapping) for value in candidates.values()):
        return candidates.get(name)
    return candidates


def _kind(
    problem: Problem, name: str, groups: Mapping[str, Readings], given: Mapping[str, float], at: Any, where: str
) -> Kind:
    if not isinstance(name, str):
        raise InputError(f"{where}: of= must be names of fields or sensors, got {name!r}")
    group = groups.get(name)
    if group is None:  # sensors by their own name
        group = next((r for r in groups.values() if r.name == name), None)
    if group is None and any(r.name == name and r.is_exact for r in problem.readings) and name not in given:
        raise InputError(f"{where}: {name!r} is an exact condition, not a reading; give its noise if it can be read")
    quantity: Quantity = problem.sensors[group.name].quantity if group is not None else measured(problem, name, where)
    law = group.likelihood if group is not None else Normal()
    scale = given.get(name, given.get(""))
    if scale is not None and not law.has_scale:
        raise InputError(f"{where}: {type(law).__name__} readings of {name!r} take no noise; remove it")
    own: float | str | None = scale
    if own is None and law.has_scale:
        if group is None:
            raise InputError(
                f"{where}: {name!r} has no readings, so its noise is unknown; give noise={{{name!r}: ...}}"
            )
        own = group.noise_name if group.noise is None else float(np.median(group.noise))
    if group is not None and group.quantity.is_by_reading:  # such as averages around positions of their own
        return Kind(name, QuantityAt.of_readings(problem, group), law, own)
    terms = terms_of(quantity, problem.names, where)
    fixed = set_coordinates(terms)
    needed = [c for c in problem.names.coordinates_of(terms[0].equation) if c not in fixed]
    at = (
        mesh(problem, needed) if at is None else {c: a for c, a in at.items() if c in needed or c not in problem.domain}
    )
    return Kind(name, QuantityAt.of(problem, quantity if group else name, at, f"{where}: {label(name)!r}"), law, own)


def mesh(problem: Problem, coordinates: Sequence[str]) -> dict[str, np.ndarray]:
    """Default places: a mesh in one and two coordinates, scattered points in more."""
    count = len(coordinates)
    if count in POINTS:
        axes = [np.linspace(*problem.domain[c], POINTS[count]) for c in coordinates]
        return dict(zip(coordinates, np.meshgrid(*axes, indexing="ij"), strict=True))
    from scipy.stats import qmc  # imported here because it takes a third of a second

    unit = qmc.Halton(count, scramble=False).random(SCATTERED + 1)[1:]
    lows, highs = np.array([problem.domain[c] for c in coordinates]).T
    return dict(zip(coordinates, (lows + unit * (highs - lows)).T, strict=True))


@dataclass(frozen=True, eq=False)
class Predicted:
    """All candidates of all kinds side by side, for the draws of one result.

    ``responses`` is (draws, candidates), ``variance`` that of the noise; ``values`` and ``scales`` have the
    predictions and the noise of each kind.
    """

    kinds: tuple[Kind, ...]
    responses: np.ndarray
    variance: np.ndarray
    values: tuple[np.ndarray, ...]
    scales: tuple[Any, ...]

    @classmethod
    def of(cls, kinds: Sequence[Kind], result: Result) -> "Predicted":
        values, scales = [kind.predicted(result) for kind in kinds], [kind.scale(result) for kind in kinds]
        found = [kind.responses(v, s) for kind, v, s in zip(kinds, values, scales, strict=True)]
        responses = np.concatenate([r for r, _ in found], axis=1)
        return cls(tuple(kinds), responses, np.concatenate([v for _, v in found]), tuple(values), tuple(scales))

    def owner(self, j: int) -> tuple[int, int]:
        """The kind of a candidate, and its number among those of this kind."""
        starts = np.cumsum([0, *(kind.size for kind in self.kinds)])
        which = int(np.searchsorted(starts, j, side="right")) - 1
        return which, j - int(starts[which])

    def split(self, scores: np.ndarray) -> list[np.ndarray]:
        """One array for each kind, from one value per candidate."""
        return np.split(scores, np.cumsum([kind.size for kind in self.kinds])[:-1])


def check_usable(usable: np.ndarray, kinds: Sequence[Kind], where: str) -> None:
    """Raise `InputError` if no candidate has predictions that its likelihood allows."""
    if np.any(usable):
        return
    law = next((type(kind.likelihood).__name__ for kind in kinds if kind.likelihood.positive), "")
    why = f"{law} readings need positive predictions" if law else "their predictions are not finite"
    raise InputError(f"{where}: no reading of {_list([kind.name for kind in kinds])} can be predicted: {why}")
