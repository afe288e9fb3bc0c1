"""Model criticism: what a wrong model leaves in its residuals, its noise and its fields.

Chains of a wrong model agree as well as those of a right one. Each statistic here is compared with its distribution
under the model itself: readings are replicated from the posterior's draws, and the same statistic is computed for them
(posterior predictive checks with realised discrepancies, Gelman, Meng and Stern 1996). Such checks are conservative:
readings that a model was fitted to look better than new ones, so an alarm is rarely false.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpyro.distributions import constraints
from scipy.spatial import KDTree
from scipy.special import chdtrc, ndtri

from bpinn.diagnostics import MORE, Diagnosis
from bpinn.errors import BpinnWarning
from bpinn.fields import MLP
from bpinn.measurements import Measurement
from bpinn.misfit import smooth_misfit
from bpinn.problem import Problem, Sensors
from bpinn.readings import Readings
from bpinn.result import Result

NEIGHBOURS = 3  # of a reading, with several coordinates
FEWEST = 8  # readings of a group that can show structure
ALARM, LOUD = 3.0, 8.0  # standard deviations of a statistic under the model: usable with care, do not trust
RARE = 0.005  # and its probability under the model
SMOOTH = 0.003  # probability of smooth residuals, which is calibrated and so the share of false alarms
HARDLY = 0.05  # the same for too little scatter: with too large a noise the draws themselves scatter
FARTHEST = 30.0  # standard deviations at which residuals are cut
# Share of the readings' variance below which a fit explains next to nothing; a few readings may well be mostly noise.
EXPLAINED, FEWEST_EXPLAINED = 0.15, 20
# Squared residuals of an exact condition over those that its tolerance allows: with care, not at all; they are judged
# only if there is some room, and some residual, both in squared tolerances. Right models had 0.002 to 0.12, models with
# wrong fields or equations 0.6 and more (verification/models.py).
OFF_ZERO, FAR_OFF_ZERO, LEAST_ROOM, LEAST_OFF = 0.25, 1.0, 2.0, 5.0
CONFLICT = 1e-6  # probability of a field's parameters under their prior
LAST_TERMS = 0.25  # share of the terms of an expansion
EDGE, PILED = 0.02, 0.25  # share of the support next to its edge, and of the draws there
NOISE_TAIL = 1e-3
BETWEEN, TOLERATED = 3.0, 3.0  # residual between points, over that at points, and in tolerances

EXPANSION = (
    "a Karhunen-Loève expansion, bp.KarhunenLoeve(bp.SquaredExponential(length=...), terms=120) with a length of about "
    "a quarter of the domain"
)
# Noisy readings for each unknown below which points of an equation that is not neutral may outweigh them: with fields
# whose scales are inferred, with others. For logistic growth a Gaussian process was 2 sd off with 10 for each unknown,
# a network 1 sd with 3.5.
FEW_FOR_SCALES, FEW = 15, 5
WELL_KNOWN = 0.05  # sd over size of an unknown that precise readings determine; yeast has 0.012, and is right

WIDTHS = (1.5, 150)  # readings and points per output weight from which chains are slow; the width to advise, at most

# In the order of what is most often wrong.
CULPRITS = (
    "check units and boundary data, then the equations (a missing term, a wrong coefficient), then the field's prior "
    "(length, width, terms); a larger noise would only hide it"
)
PRIOR = (
    "a field that learns its scales: bp.GaussianProcess(), or bp.MLP(weight_sd=dist.HalfNormal(2.0)); a shorter "
    "length, more terms"
)
UNEVEN = "one noise for each reading, or sensors in groups with a noise of their own; LogNormal for relative errors"
SWALLOWED = "state the noise of the readings, or give its prior less room: the chains may be on a flat solution"
SMALLER = "a smaller noise: with the stated noise, error bars are wider than necessary"
DENSER = "more points for the equation"


@dataclass(frozen=True)
class Group:
    """The readings of one group of sensors, as the posterior's draws see them.

    ``scores`` are residuals as normal scores, (draws, readings); ``replicas`` the same for replicated readings;
    ``noise`` is that of each draw over its median, (draws, readings), or 1 if it is stated.
    """

    readings: Readings
    expected: np.ndarray
    scores: np.ndarray
    replicas: np.ndarray
    noise: Any = 1.0

    @classmethod
    def of(cls, result: Result, readings: Readings, expected: np.ndarray) -> "Group":
        scale = result.noise_of(readings, expected.shape)
        rng = np.random.default_rng(1)
        law, values = readings.likelihood, np.broadcast_to(readings.values, expected.shape)
        with np.errstate(all="ignore"):
            scores = law.normal_score(values, expected, scale, rng)
            replicated = law.sample(rng, expected, scale)
            replicas = law.normal_score(replicated, expected, scale, rng)
        scores, replicas = (np.clip(np.nan_to_num(part), -FARTHEST, FARTHEST) for part in (scores, replicas))
        noise = 1.0 if readings.noise_name is None or scale is None else scale / np.median(scale, axis=0)
        return cls(readings, expected, scores, replicas, noise)

    @property
    def is_telling(self) -> bool:
        """Whether there are enough noisy readings to show structure."""
        return len(self.readings.values) >= FEWEST and np.ptp(self.readings.values) > 0

    @cached_property
    def places(self) -> dict[str, np.ndarray]:
        """The coordinates that differ between readings, each from -1 to 1."""
        found = {}
        for name, at in self.readings.at.items():
            width = np.ptp(at)
            if width > 0:
                found[name] = 2 * (at - at.min()) / width - 1
        return found

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of neighbouring readings: successive ones along one coordinate, nearest ones in several."""
        at = np.stack(list(self.places.values()), axis=1)
        if at.shape[1] == 1:
            order = np.argsort(at[:, 0], kind="stable")
            return order[:-1], order[1:]
        nearest = _nearest(at)
        return np.repeat(np.arange(len(at)), nearest.shape[1]), nearest.ravel()


def _nearest(at: np.ndarray) -> np.ndarray:
    """The nearest other points of each point, nearest first."""
    return KDTree(at).query(at, k=1 + min(NEIGHBOURS, len(at) - 1))[1][:, 1:]


@dataclass(frozen=True)
class Finding:
    """A statistic far outside of its distribution under the model: ``size`` in sds, and ``p`` its probability."""

    size: float
    p: float
    value: float
    rare: float = RARE
    alarm: float = ALARM

    @property
    def is_alarm(self) -> bool:
        return self.size > self.alarm and self.p < self.rare

    @property
    def verdict(self) -> str:
        return "bad" if self.size > LOUD else "care"


def compared(real: np.ndarray, replicated: np.ndarray) -> Finding:
    """A statistic of each draw, for the readings and for their replicas."""
    p = (1 + np.sum(replicated >= real)) / (1 + len(real))
    size = (real.mean() - replicated.mean()) / max(replicated.std(), 1e-12)
    return Finding(float(size), float(p), float(real.mean()))


def _correlation(scores: np.ndarray, with_: np.ndarray) -> np.ndarray:
    """Of each draw's scores with a quantity, (readings,) or (draws, readings)."""
    a = scores - scores.mean(axis=1, keepdims=True)
    b = np.broadcast_to(with_, scores.shape)
    b = b - b.mean(axis=1, keepdims=True)
    norm = np.sqrt(np.sum(a**2, axis=1) * np.sum(b**2, axis=1))
    return np.sum(a * b, axis=1) / np.maximum(norm, 1e-300)


def structure(group: Group) -> Iterator[tuple[str, Finding, str, str]]:
    """Structure in the residuals of readings: its name, the finding, what to say of it, and advice."""
    s, r, name = group.scores, group.replicas, group.readings.name
    root = np.sqrt(s.shape[1])
    offset = compared(np.abs(s.mean(axis=1)) * root, np.abs(r.mean(axis=1)) * root)
    side = "above" if s.mean() > 0 else "below"
    yield (
        "offset",
        offset,
        f"the readings of {name} lie {side} the model by {abs(s.mean()):.1f} sd on average",
        CULPRITS,
    )
    for c, x in group.places.items():
        drift = compared(np.abs(_correlation(s, x)), np.abs(_correlation(r, x)))
        yield "drift", drift, f"the residuals of {name} drift along {c} (correlation {drift.value:.2f})", CULPRITS
    if group.places:
        i, j = group.neighbours
        pairs = [np.mean(part[:, i] * part[:, j], axis=1) / np.mean(part**2, axis=1) for part in (s, r)]
        found = compared(*pairs)
        what = f"neighbouring residuals of {name} are correlated ({found.value:.2f}): the model misses what they follow"
        yield "correlation", found, what, CULPRITS
        p = smooth_misfit(s * group.noise, np.stack(list(group.places.values()), axis=1))
        smooth = Finding(float(-ndtri(max(p, 1e-300))), p, p, SMOOTH, alarm=0.0)
        yield (
            "smooth",
            smooth,
            f"the residuals of {name} follow a smooth curve that the model misses (p = {p:.1g})",
            CULPRITS,
        )
    for c, x in group.places.items():
        uneven = compared(np.abs(_correlation(np.abs(s), x)), np.abs(_correlation(np.abs(r), x)))
        yield "scatter", uneven, f"the scatter of {name} changes along {c} (correlation {uneven.value:.2f})", UNEVEN
    if np.all(np.std(group.expected, axis=1) > 0):
        size = compared(
            np.abs(_correlation(np.abs(s), group.expected)), np.abs(_correlation(np.abs(r), group.expected))
        )
        yield "size", size, f"the scatter of {name} changes with its value (correlation {size.value:.2f})", UNEVEN


def explained(group: Group) -> float:
    """Share of the readings' variance that the posterior mean explains."""
    values = group.readings.values
    rest = values - group.expected.mean(axis=0)
    return 1.0 - float(np.sum(rest**2) / np.sum((values - values.mean()) ** 2))


def judge(health: Diagnosis, result: Result, expected: Sequence[np.ndarray], between: Any) -> None:
    """Add what speaks against the model to a diagnosis.

    ``expected`` are the noise-free predictions of each group of readings, (draws, readings); ``between(points)``
    evaluates the same groups at other points, given by name.
    """
    groups = [Group.of(result, r, values) for r, values in zip(result.problem.readings, expected, strict=True)]
    for group in groups:
        _judge_scatter(health, group)
        if group.is_telling:
            _judge_structure(health, group)
            _judge_explained(health, group)
    exact = [group for group in groups if group.readings.is_exact]
    for group in exact:
        _judge_off_zero(health, group)
    _judge_between(health, result, exact, between)
    _judge_noise(health, result)
    _judge_fields(health, result)
    _judge_edges(health, result)
    _judge_width(health, result)
    _judge_weight(health, result)


def _judge_scatter(health: Diagnosis, group: Group) -> None:
    """Whether readings scatter less than their stated noise; equal values, as of an exact condition, may."""
    if group.readings.noise is None or np.ptp(group.readings.values) == 0:
        return
    sizes = [-np.log(np.sum(part**2, axis=1) + np.finfo(float).tiny) for part in (group.scores, group.replicas)]
    if replace(compared(*sizes), rare=HARDLY).is_alarm:
        health.note("care", f"the readings of {group.readings.name} scatter less than their stated noise", SMALLER)


def _judge_structure(health: Diagnosis, group: Group) -> None:
    """The strongest of each kind; a correlation of neighbours also shows as drift, so one of both is enough."""
    found = [(kind, f, what, advice) for kind, f, what, advice in structure(group) if f.is_alarm]
    found.sort(key=lambda one: -one[1].size)
    seen: set[bool] = set()
    for kind, finding, what, advice in found:
        of_scatter = kind in ("scatter", "size")
        if of_scatter not in seen:
            seen.add(of_scatter)
            health.note(finding.verdict, what, advice)


def _judge_explained(health: Diagnosis, group: Group) -> None:
    if group.readings.noise_name is None or len(group.readings.values) < FEWEST_EXPLAINED:
        return
    share = explained(group)
    if share < EXPLAINED:
        health.note(
            "care",
            f"the model explains {max(share, 0.0):.0%} of the variance of {group.readings.name}; "
            f"{group.readings.noise_name}, which is inferred, takes the rest",
            SWALLOWED,
        )


def _judge_off_zero(health: Diagnosis, group: Group) -> None:
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
        f"right model needs a few percent); {abs(mean[i]):.1f} tolerances" + (f" at {place}" if place else ""),
        CULPRITS,
    )


def _judge_between(health: Diagnosis, result: Result, exact: Sequence[Group], between: Any) -> None:
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
        other = _nearest(at)[:, -1]
    return {c: 0.5 * (a + a[other]) for c, a in group.readings.at.items()}


def moved(problem: Problem, points: Mapping[str, Mapping[str, np.ndarray]]) -> Problem:
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


def _judge_noise(health: Diagnosis, result: Result) -> None:
    for name in result.problem.noise_priors:
        prior = result.problem.noise_priors[name]
        draws = np.asarray(prior.sample(jax.random.key(0), (4000,)), float).ravel()
        middle = float(np.median(result.draws(name)))
        above = float(np.mean(draws > middle))
        if min(above, 1 - above) < NOISE_TAIL:
            far = "above" if above < 0.5 else "below"
            health.note(
                "care",
                f"{name} is {middle:.2g}, far {far} what its prior expects ({np.median(draws):.2g})",
                f"if the prior is right: {CULPRITS}" if far == "above" else "a prior with room for this noise",
            )


def _judge_fields(health: Diagnosis, result: Result) -> None:
    """Parameters of fields far in the tail of their prior, all of them or the last terms of an expansion."""
    parameters = result.posterior.model.parameters
    for name, field, bounds in parameters.fields:
        scales = {scale: result.draws(f"{scale}_{name}") for scale in field.scale_priors(bounds)}
        for reason, advice in field.criticism(scales, bounds):
            health.note("care", f"field {name}: {reason}", advice)
        standard = result.z[..., parameters.slices[name]].astype(float) / field.prior_sd(bounds)
        flat = standard.reshape(-1, standard.shape[-1])
        terms = flat.shape[1]
        parts = {"parameters": slice(0, terms)}
        if field.linear(bounds) == slice(0, terms) and terms >= FEWEST:
            parts["last terms"] = slice(terms - max(int(LAST_TERMS * terms), 2), terms)
        for called, part in parts.items():
            squares = np.sum(flat[:, part] ** 2, axis=1)
            p = float(np.median(chdtrc(part.stop - part.start, squares)))
            if p < CONFLICT:
                size = np.sqrt(np.median(squares) / (part.stop - part.start))
                what = f"the {called} of {name} are {size:.1f} times as large as its prior expects"
                health.note("care", f"{what} (p = {p:.1g}): prior and readings conflict", PRIOR)
                break


def _judge_edges(health: Diagnosis, result: Result) -> None:
    for name, prior in result.problem.scalars.items():
        support = prior.support
        if not isinstance(support, type(constraints.interval(0.0, 1.0))) or prior.shape() != ():
            continue
        low, high = float(np.asarray(support.lower_bound)), float(np.asarray(support.upper_bound))
        share = (result.draws(name) - low) / (high - low)
        for edge, there in ((low, np.mean(share < EDGE)), (high, np.mean(share > 1 - EDGE))):
            if there > PILED:
                health.note(
                    "care",
                    f"{name} is at the edge of its prior: {there:.0%} of its draws are next to {edge:g}",
                    f"a wider prior; or, if {edge:g} is a hard limit, {CULPRITS}",
                )


def _judge_width(health: Diagnosis, result: Result) -> None:
    """Whether chains that do not agree are slow because the equations have more points than fields have output weights.

    Whitened coordinates take care of as many readings as there are output weights (docs/sampling.md).
    """
    most, widest = WIDTHS
    rows = sum(readings.sampled_from or len(readings.values) for readings in result.problem.readings)
    networks = {name: f for name, f in result.problem.fields.items() if isinstance(f, MLP) and f.hidden}
    outputs = sum(1 + f.hidden[-1] for f in networks.values())
    if MORE not in health.advice or not networks or rows <= most * outputs:
        return
    name, field = min(networks.items(), key=lambda one: one[1].hidden[-1])
    last = min(widest, 10 * -(-rows // (10 * len(networks))))
    several = len(result.problem.inputs(name)) > 1
    ways = [f"for {name} {EXPANSION}"] if several else []
    if last > field.hidden[-1]:
        share = (field.hidden[-1] / last) ** 0.5
        ways.append(
            f"a wider last layer for {name}: MLP(hidden={(*field.hidden[:-1], last)}, ...) with {share:.2g} times the "
            "weight_sd in the output layer, which keeps the spread of the prior"
        )
    if ways:
        reason = f"{rows} readings and points for {outputs} output weights: chains are slow"
        health.note("care", reason, "; or ".join([*ways, "bp.GaussianProcess()"]))


def _judge_weight(health: Diagnosis, result: Result) -> None:
    """Whether so few readings inform the unknowns that the points of an equation weigh them by themselves."""
    problem = result.problem
    laws = [r for r in problem.readings if r.is_exact and not r.neutral and r.unknowns]
    names = set().union(*(r.unknowns for r in laws))
    unknowns = sum(int(np.prod(problem.unknowns[name].shape())) for name in names)
    readings = sum(len(r.values) for r in problem.readings if not r.is_exact)
    scaled = sorted(f for f in set().union(*(r.fields for r in laws)) if _infers_scales(problem, f))
    if not unknowns or readings >= (FEW_FOR_SCALES if scaled else FEW) * unknowns:
        return
    draws = [np.asarray(result.draws(name), float).reshape(-1, *problem.unknowns[name].shape()) for name in names]
    if all(np.all(d.std(axis=0) < WELL_KNOWN * np.abs(np.median(d, axis=0))) for d in draws):
        return
    words = f"{readings} readings for {unknowns} unknown{'s' if unknowns > 1 else ''}"
    reason = f"{words}: the points of {laws[0].name} weigh the unknowns by themselves, and so few may not outweigh them"
    instead = "bp.Physics(..., neutral=True), or bp.MLP(), whose weight is less; " if scaled else ""
    health.worsen("care", reason, f"more readings; {instead}a comparison with a solver of the equation")


def _infers_scales(problem: Problem, name: str) -> bool:
    field, bounds = problem.fields[name], problem.bounds(name)
    return bool(field.scale_priors(bounds)) and field.linear(bounds) == slice(0, field.size(bounds))
