"""The data behind a figure: a quantity at points with its truth and readings, and the draws of unknowns."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpyro.distributions as dist

from bpinn.errors import InputError
from bpinn.measurements import Quantity, label
from bpinn.paper import Truth
from bpinn.prediction import Prediction
from bpinn.prior import Expectation, PriorCheck, predict, replicas
from bpinn.problem import Problem, Readings
from bpinn.quantity_at import coordinates_of, measured
from bpinn.result import Result

GREEK = "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|kappa|mu|nu|xi|rho|sigma|tau|phi|chi|psi|omega"

MOST_READINGS = 2000  # of a group, that a figure draws; of more, as many are chosen at random
PRIOR_DRAWS, SAME_DRAWS = 300, 1000  # the latter as in `prior.check`, so that both share one compilation

At = Mapping[str, Any] | None
Noise = bool | str | float


@dataclass(frozen=True)
class View:
    """A quantity at points, with the readings in that range: ``at``, ``values`` and ``noise`` have equal lengths.

    ``exact`` tells which of them are points of exact conditions rather than readings.
    """

    where: str
    label: str
    quantity: Quantity
    prediction: Prediction
    needed: tuple[str, ...]
    truth: np.ndarray | None
    at: dict[str, np.ndarray]
    values: np.ndarray
    noise: np.ndarray
    exact: np.ndarray
    noisy: bool
    mean_label: str = "posterior mean"

    @property
    def varying(self) -> list[str]:
        return [c for c in self.needed if np.ptp(self.prediction.at[c]) > 0]

    @property
    def certain(self) -> bool:
        """True for a single solution, which has no sd."""
        return not np.isfinite(self.prediction.sd).any()

    def shown_values(self) -> Iterator[tuple[str, np.ndarray]]:
        """What the values are called in a legend, with a mask of them: readings, and points of exact conditions."""
        for called, chosen in (("readings", ~self.exact), ("points", self.exact)):
            if np.any(chosen):
                yield called, chosen

    @property
    def fixed(self) -> dict[str, float]:
        """The values of the coordinates that do not vary."""
        return {c: float(self.prediction.at[c].flat[0]) for c in self.needed if c not in self.varying}

    @property
    def slice(self) -> str:
        """The values of the fixed coordinates, such as ' (t = 0.5)', or an empty string."""
        return f" ({place(self.fixed)})" if self.fixed else ""

    def contains(self, places: Mapping[str, np.ndarray], problem: Problem) -> np.ndarray:
        """Which places are in the range of the points, which is one value for a fixed coordinate."""
        return _inside(places, self.prediction, self.needed, problem)

    def check_varying(self, wanted: int) -> None:
        free = self.varying
        if len(free) > wanted:
            fix = ", ".join(f"'{c}': {self.prediction.at[c].mean():.3g}" for c in free[wanted:])
            also = ", or use plot.maps" if len(free) == 2 else ""
            all_but = "one" if wanted == 1 else "two"
            raise InputError(f"{self.where}: {', '.join(free)} vary; fix all but {all_but}, such as {fix}, in at{also}")
        if len(free) < wanted:
            alone = f"only {free[0]} varies" if free else "no coordinate varies"
            other = "plot.band" if free else "plot.unknowns for a number" if not self.needed else "more points"
            raise InputError(f"{self.where}: {alone}; use {other}")
        if wanted == 2 and np.squeeze(self.prediction.at[free[0]]).ndim != 2:
            raise InputError(f"{self.where}: the points form no mesh; give 1-D arrays of {' and '.join(free)}")


def view(
    result: Result, quantity: Quantity, at: At, truth: Any, where: str, noise: Noise = False, called: str | None = None
) -> View:
    problem, called = result.problem, called or label(quantity)
    itself = measured(problem, quantity, where)
    needed = coordinates_of(problem, itself, where)
    prediction = result.predict(quantity, mesh(problem, needed) if at is None else at, noise=noise)
    groups = groups_of(problem.sampled(MOST_READINGS), itself)
    if isinstance(truth, Mapping | Truth):
        known = by_name(problem, truth, where)
        truth = next((known[name] for name in (called, *(r.name for r in groups)) if name in known), None)
    truth = None if truth is None else _truth_values(truth, prediction, needed, where)

    def join(arrays: Sequence[Any]) -> np.ndarray:
        return np.concatenate([np.empty(0), *arrays])

    places = {c: join([r.at[c] for r in groups]) for c in needed}
    values = join([r.values for r in groups])
    sd = join([error_bars(result, r) for r in groups])
    exact = join([np.full(len(r.values), r.is_exact) for r in groups]).astype(bool)
    shown = _inside(places, prediction, needed, problem) & np.ones(len(values), bool)
    places = {c: a[shown] for c, a in places.items()}
    kept = values[shown], sd[shown], exact[shown]
    return View(where, called, itself, prediction, needed, truth, places, *kept, noise is not False)


def error_bars(result: Result, readings: Readings) -> np.ndarray:
    """One sd of the noise of each reading; of an inferred noise, its mean."""
    scale = result.draws(readings.noise_name).mean() if readings.noise_name else readings.noise
    return readings.likelihood.error_bar(readings.values, scale)


def groups_of(problem: Problem, quantity: Quantity) -> list[Readings]:
    """The readings of a quantity, by groups of sensors."""
    return [r for r in problem.readings if problem.names.same(problem.sensors[r.name].quantity, quantity)]


def _inside(
    places: Mapping[str, np.ndarray], prediction: Prediction, needed: Sequence[str], problem: Problem
) -> np.ndarray:
    inside = np.ones((), bool)
    for c in needed:
        slack = 1e-6 * np.ptp(problem.domain[c])
        low, high = prediction.at[c].min() - slack, prediction.at[c].max() + slack
        inside = inside & (places[c] >= low) & (places[c] <= high)
    return inside


def of_prediction(prediction: Prediction, truth: Any, where: str) -> View:
    """The view of a prediction alone; without a problem there are no readings."""
    needed, none = tuple(prediction.at), np.empty(0)
    if isinstance(truth, Truth):
        truth = truth.functions
    if isinstance(truth, Mapping):
        truth = truth.get(prediction.label)
    truth = None if truth is None else _truth_values(truth, prediction, needed, where)
    at = dict.fromkeys(needed, none)
    kept = none, none, none.astype(bool)
    return View(
        where, prediction.label, prediction.label, prediction, needed, truth, at, *kept, False, mean_label="mean"
    )


@dataclass(frozen=True)
class PriorView:
    """The readings of one group of sensors and what the prior expects of them.

    With one coordinate ``along``, ``x`` are points of it and ``draws`` the prior's values there, (draws, points);
    otherwise ``x`` numbers the readings, in the order of their values, and ``draws`` are readings from the prior.
    """

    expected: Expectation
    label: str
    along: str | None
    fixed: dict[str, float]
    x: np.ndarray
    draws: np.ndarray
    at: np.ndarray
    values: np.ndarray
    noise: np.ndarray


def prior_views(found: PriorCheck) -> Iterator[PriorView]:
    """A view for each group of noisy readings."""
    problem, expected = found.problem, {group.name: group for group in found.groups}
    drawn: dict[str, np.ndarray] = {}
    for readings in problem.readings:
        if readings.name not in expected:
            continue
        quantity = problem.sensors[readings.name].quantity
        kept = expected[readings.name], label(quantity)
        varying = [c for c, a in readings.at.items() if np.ptp(a) > 0]
        if len(varying) == 1 and not readings.quantity.is_by_reading:
            (along,) = varying
            fixed = {c: float(a[0]) for c, a in readings.at.items() if c != along}
            x = np.linspace(*problem.domain[along], 101)
            draws = predict(problem, quantity, {along: x, **fixed}, draws=PRIOR_DRAWS, seed=found.seed).draws[0]
            sd = np.zeros(len(readings.values))  # an inferred noise has no one size yet
            if readings.noise_name is None:
                sd = readings.likelihood.error_bar(readings.values, readings.noise)
            yield PriorView(*kept, along, fixed, x, draws, readings.at[along], readings.values, sd)
        else:
            drawn = drawn or {r.name: values for r, values in replicas(problem, SAME_DRAWS, found.seed)}
            order = np.argsort(readings.values, kind="stable")
            x, values = np.arange(1.0, len(order) + 1), readings.values[order]
            yield PriorView(*kept, None, {}, x, drawn[readings.name][:, order], x, values, np.zeros(len(x)))


def pictured(problem: Problem) -> list[tuple[str, Quantity]]:
    """Each field, then each other measured quantity, without duplicates, with its name.

    Quantities that are defined only at their readings, such as averages around their positions, are left out.
    """
    found: list[tuple[str, Quantity]] = [(name, name) for name in problem.fields]
    by_reading = {readings.name for readings in problem.readings if readings.quantity.is_by_reading}
    for name, sensors in problem.sensors.items():
        if name not in by_reading and not any(problem.names.same(sensors.quantity, quantity) for _, quantity in found):
            found.append((name, sensors.quantity))
    return found


def mesh(problem: Problem, coordinates: Sequence[str]) -> dict[str, np.ndarray]:
    axes = [np.linspace(*problem.domain[c], 101 if len(coordinates) == 1 else 41) for c in coordinates]
    return dict(zip(coordinates, np.meshgrid(*axes, indexing="ij"), strict=True))


def by_name(problem: Problem, truth: Any, where: str) -> dict[str, Any]:
    """The truths as one dictionary by name."""
    if isinstance(truth, Truth):
        return {**truth.functions, **truth.unknowns}
    if truth is not None and not isinstance(truth, Mapping):
        raise InputError(f"{where}: truth must be a dictionary by name, got {type(truth).__name__}")
    for name in truth or ():
        if name not in problem.sensors and name not in problem.scalars:
            problem.names.resolve(name, f"{where}: truth")  # raises for an unknown name
    return dict(truth or {})


def _truth_values(truth: Any, prediction: Prediction, needed: Sequence[str], where: str) -> np.ndarray:
    """The truth at the points of a prediction, broadcast to their shape."""
    if callable(truth):
        try:
            truth = _call(truth, {c: prediction.at[c] for c in needed})
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise InputError(f"{where}: truth failed as a function of {', '.join(needed)} ({why})") from error
    try:
        values = np.asarray(truth, float)
    except (TypeError, ValueError):
        raise InputError(f"{where}: truth must be a function or numbers, got {type(truth).__name__}") from None
    shape = np.broadcast_shapes(*(a.shape for a in prediction.at.values()))
    if values.shape not in (shape, ()):
        raise InputError(f"{where}: truth has shape {values.shape}, the points have {shape}; give one value per point")
    return np.broadcast_to(values, shape)


def _call(function: Callable[..., Any], at: Mapping[str, np.ndarray]) -> Any:
    """Call by keyword if the arguments are named like the coordinates, otherwise by position in the domain's order."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C may have no signature
        return function(*at.values())
    if {p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD} >= set(at):
        return function(**at)
    return function(*at.values())


@dataclass(frozen=True)
class NumberDraws:
    """One component of an unknown: draws of shape (chains, draws), its index and its prior."""

    label: str
    draws: np.ndarray
    owner: str = ""
    component: int = 0
    prior: dist.Distribution | None = None

    def prior_density(self, at: np.ndarray) -> np.ndarray | None:
        """The marginal prior density of this component, or None if the prior has no such density."""
        base = self.prior.base_dist if isinstance(self.prior, dist.Independent) else self.prior
        if base is None or base.event_shape:
            return None
        points = at.reshape(-1, *(1 for _ in base.batch_shape))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the next line handles points outside the support
            density = np.where(base.support(points), np.exp(base.log_prob(points)), 0.0)
        return np.broadcast_to(density, (len(at), *base.batch_shape)).reshape(len(at), -1)[:, self.component]


def number_draws(result: Result) -> Iterator[NumberDraws]:
    for number in result.monitor.numbers:
        draws = result.mixture.draws(number.owner)
        flat = draws.reshape(*draws.shape[:2], -1)
        prior = result.problem.scalars[number.owner]
        yield NumberDraws(number.label, flat[..., number.component], number.owner, number.component, prior)


def symbol(name: str) -> tuple[str, str]:
    """A name as a letter, Latin or the name of a Greek one, and its subscript; words stay as they are."""
    found = re.fullmatch(rf"([a-zA-Z]|{GREEK})(?:_(\w+)|\[(\d+)\])?", name)
    return (found[1], found[2] or found[3] or "") if found else (name, "")


def math(name: str) -> str:
    """A name in mathtext: 'u_xx' becomes u with a subscript; words stay as they are."""
    letter, below = symbol(name)
    if letter == name and not re.fullmatch(rf"[a-zA-Z]|{GREEK}", name):
        return name
    letter = letter if len(letter) == 1 else f"\\{letter}"
    below = below.replace("_", r"\_") if len(below) < 4 else rf"\mathrm{{{below}}}".replace("_", r"\_")
    return f"${letter}_{{{below}}}$" if below else f"${letter}$"


def math_at(name: str) -> str:
    """A name and the place that may follow it, in mathtext: 'u_x at x=-0.5' becomes 'u_x at x = −0.5' in symbols."""
    name, at, place = name.partition(" at ")
    parts = (part.partition("=") for part in place.split(", ")) if at else ()
    return math(name) + at + ", ".join(f"{math(c)} = {value.replace('-', '−')}" for c, _, value in parts)


def place(at: Mapping[str, float]) -> str:
    """Coordinates with their values, such as 'x = 0.5, t = 1'."""
    return ", ".join(f"{math(c)} = {number(value)}" for c, value in at.items())


def plain_place(at: Mapping[str, float]) -> str:
    """The same as plain text."""
    return ", ".join(f"{c} = {number(value)}" for c, value in at.items())


def number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
