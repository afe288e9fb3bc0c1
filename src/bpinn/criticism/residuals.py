"""Statistics of the residuals, each compared with its distribution under the model itself.

Readings are replicated from the posterior's draws, and the same statistic is computed for them (posterior predictive
checks with realised discrepancies, Gelman, Meng and Stern 1996). Such checks are conservative: readings that a model
was fitted to look better than new ones, so an alarm is rarely false.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from scipy.special import ndtri

from bpinn.advice import CULPRITS, SMALLER, SWALLOWED, UNEVEN
from bpinn.diagnostics import Diagnosis
from bpinn.misfit import smooth_misfit
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
        near = nearest(at)
        return np.repeat(np.arange(len(at)), near.shape[1]), near.ravel()


def nearest(at: np.ndarray) -> np.ndarray:
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
        what = f"neighbouring residuals of {name} are correlated ({found.value:.2f}): the model misses some structure"
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


def judge_scatter(health: Diagnosis, group: Group) -> None:
    """Whether readings scatter less than their stated noise; equal values, as of an exact condition, may."""
    if group.readings.noise is None or np.ptp(group.readings.values) == 0:
        return
    sizes = [-np.log(np.sum(part**2, axis=1) + np.finfo(float).tiny) for part in (group.scores, group.replicas)]
    if replace(compared(*sizes), rare=HARDLY).is_alarm:
        health.note("care", f"the readings of {group.readings.name} scatter less than their stated noise", SMALLER)


def judge_structure(health: Diagnosis, group: Group) -> None:
    """The strongest of each kind; a correlation of neighbours also shows as drift, so one of both is enough."""
    found = [(kind, f, what, advice) for kind, f, what, advice in structure(group) if f.is_alarm]
    found.sort(key=lambda one: -one[1].size)
    seen: set[bool] = set()
    for kind, finding, what, advice in found:
        of_scatter = kind in ("scatter", "size")
        if of_scatter not in seen:
            seen.add(of_scatter)
            health.note(finding.verdict, what, advice)


def judge_explained(health: Diagnosis, group: Group) -> None:
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
