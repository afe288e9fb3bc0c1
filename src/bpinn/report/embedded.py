"""The numbers behind the page's figures, for its script: quantities, readings and traces, rounded and kept small.

What does not fit is left out, and a note on the page says so: the figures and tables have it all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
import numpy as np

from bpinn.convergence import rhat_of
from bpinn.plot import drawing, views
from bpinn.predictive import Check, SensorFit
from bpinn.problem import Problem
from bpinn.report.figures import Portrait
from bpinn.result import Result
from bpinn.solutions import Mode

MOST_NUMBERS = 300_000  # about 2 MB of text
MOST_READINGS = 2000  # of a group of sensors
MOST_CHAINS = 12
MOST_STEPS = 400  # of a trace
COLOURS = 33  # of a colour map

Numbers = list[float | None]


@dataclass
class Page:
    """What the page's script is given. ``left_out`` are sentences for the reader."""

    quantities: list[dict[str, Any]]
    readings: list[dict[str, Any]]
    traces: list[dict[str, Any]]
    choices: list[dict[str, Any]]
    unit: str
    left_out: list[str] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        maps = {"values": _colours(drawing.VALUES), "errors": _colours(drawing.ERRORS)}
        return {
            "quantities": self.quantities,
            "readings": self.readings,
            "traces": self.traces,
            "choices": self.choices,
            "unit": self.unit,
            "colours": maps,
        }


def gather(
    result: Result,
    found: Sequence[Portrait],
    check: Check | None,
    modes: Sequence[Mode],
    solutions: Sequence[Sequence[Portrait]],
) -> Page:
    """The numbers of a report; ``solutions`` are the portraits of each of ``modes``."""
    chains = result.z.shape[0]
    named = range(chains) if 1 < chains <= MOST_CHAINS and result.method.has_spread else range(0)
    choices: list[dict[str, Any]] = [{"name": "all draws", "chains": None}]
    choices += [{"name": f"solution {i}", "chains": _chains_of(result, mode)} for i, mode in enumerate(modes, 1)]
    choices += [{"name": f"{result.method.unit} {i}", "chains": [i]} for i in named]
    left_out = []
    if chains > MOST_CHAINS:
        left_out.append(f"There are too many {result.method.unit}s ({chains}) to show each separately.")
    fits = {} if check is None else {group.name: group for group in check.groups}
    readings, thinned = _readings(check)
    left_out += thinned
    traces = _traces(result) if len(named) else []
    room = MOST_NUMBERS - _size(readings) - _size(traces)
    quantities, alone, missing = [], [], []
    for i, portrait in enumerate(found):
        others = [those[i] for those in solutions]
        parts = [_parts(portrait.touched, None), *(_parts(other.touched, None) for other in others)]
        each = [_parts(portrait.touched, chain) for chain in named]
        one = _quantity(result, portrait, fits, parts + each)
        if _size(one) > room:
            one = _quantity(result, portrait, fits, parts[:1])
            if _size(one) <= room:
                alone.append(portrait.name)
            else:
                one |= {"kind": "none", "shown": [], "truth": None, "marks": []}
                missing.append(portrait.name)
        room -= _size(one)
        quantities.append(one)
    if alone:
        left_out.append(f"{', '.join(alone)}: only all draws together are shown, to keep the page small.")
    if missing:
        left_out.append(f"{', '.join(missing)}: too many points to be interactive; only figures and tables are shown.")
    return Page(quantities, readings, traces, choices if len(choices) > 1 else [], result.method.unit, left_out)


def _chains_of(result: Result, mode: Mode) -> list[int] | None:
    """The chains that a solution consists of, or None if its draws are from several chains."""
    groups = result.diagnose().branches
    part = mode.result.z
    return next((list(g) for g in groups if np.array_equal(result.z[list(g)], part)), None) if groups else None


def _quantity(
    result: Result, portrait: Portrait, fits: Mapping[str, SensorFit], parts: Sequence[dict[str, np.ndarray]]
) -> dict[str, Any]:
    problem, view = result.problem, portrait.touched
    axes, kind = view.varying, {1: "band", 2: "map", 3: "frames"}.get(len(view.varying), "none")
    decimals = _decimals(parts[0])
    at = {c: np.squeeze(view.prediction.at[c]) for c in axes}
    grid = [np.moveaxis(at[c], i, 0).reshape(at[c].shape[i], -1)[:, 0] for i, c in enumerate(axes)]
    marks = []
    for readings in views.groups_of(problem, view.quantity) if axes else ():
        fit = fits.get(readings.name)
        inside = view.contains(readings.at, problem)
        chosen = _some(np.flatnonzero(inside), None if fit is None else fit.score)
        values = {c: _places(readings.at[c][chosen], problem, c) for c in axes}
        marks.append(
            {
                "name": readings.name,
                "unit": "point" if readings.is_exact else "reading",
                "number": [int(i) + 1 for i in chosen],
                "at": values,
                "value": _rounded(readings.values[chosen], decimals),
                "noise": _rounded(views.error_bars(result, readings)[chosen], decimals),
                "score": None if fit is None else _rounded(fit.score[chosen], 2),
            }
        )
    return {
        "name": portrait.name,
        "math": views.symbol(portrait.name),
        "kind": kind,
        "decimals": decimals,
        "axes": [
            {"name": c, "math": views.symbol(c), "points": _places(a, problem, c)}
            for c, a in zip(axes, grid, strict=True)
        ],
        "fixed": views.plain_place(view.fixed),
        "shown": [{key: _rounded(values, decimals) for key, values in part.items()} for part in parts],
        "truth": None if view.truth is None else _rounded(view.truth, decimals),
        "marks": [mark for mark in marks if mark["value"]],
    }


def _parts(view: views.View, chain: int | None) -> dict[str, np.ndarray]:
    """Mean, and sd or interval, of all draws or of one chain."""
    prediction = view.prediction
    mean, sd = prediction.mean, prediction.sd
    wanted = len(view.varying) < 3 and not view.certain  # the ends are drawn in slices along one coordinate
    ends = prediction.interval(0.95) if wanted else None
    if chain is not None:
        draws = prediction.draws[chain].astype(float)
        mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1) if len(draws) > 1 else np.zeros(mean.shape)
        ends = tuple(np.quantile(draws, [0.025, 0.975], axis=0)) if wanted else None
    parts = {"mean": mean}
    if len(view.varying) > 1 and not view.certain:
        parts["sd"] = sd
    if ends is not None:
        parts |= {"low": ends[0], "high": ends[1]}
    return parts


def _readings(check: Check | None) -> tuple[list[dict[str, Any]], list[str]]:
    rows, notes = [], []
    surprising = set() if check is None else set(check.surprising)
    for group in () if check is None else check.groups:
        chosen = _some(np.arange(len(group.values)), group.score)
        if len(chosen) < len(group.values):
            notes.append(f"{group.name}: {len(chosen)} of {group.size} can be pointed at, with those farthest off.")
        decimals = _decimals({"mean": group.mean[chosen], "sd": group.sd[chosen]})
        rows.append(
            {
                "name": group.name,
                "unit": group.unit,
                "number": [int(i) + 1 for i in chosen],
                "at": {c: _rounded(a[chosen], _decimals({"mean": a})) for c, a in group.at.items()},
                "decimals": decimals,
                "value": _rounded(group.values[chosen], decimals),
                "expected": _rounded(group.mean[chosen], decimals),
                "sd": _rounded(group.sd[chosen], decimals),
                "score": _rounded(group.score[chosen], 2),
                "surprising": [n for n, i in enumerate(chosen) if (group.name, int(i)) in surprising],
            }
        )
    return rows, notes


def _some(rows: np.ndarray, score: np.ndarray | None) -> np.ndarray:
    """At most `MOST_READINGS` of the rows: a tenth are those farthest off, the others evenly spaced."""
    if len(rows) <= MOST_READINGS:
        return rows
    even = rows[np.linspace(0, len(rows) - 1, MOST_READINGS * 9 // 10).round().astype(int)]
    if score is None:
        return even
    return np.union1d(even, rows[np.argsort(-np.abs(score[rows]))[: MOST_READINGS // 10]])


def _traces(result: Result) -> list[dict[str, Any]]:
    shown = {s.label: s.draws for s in views.number_draws(result)} | {"log density": result.stats.log_density}
    rows = []
    for name, draws in shown.items():
        count = draws.shape[1]
        at = np.unique(np.linspace(0, count - 1, min(count, MOST_STEPS)).round().astype(int))
        decimals = _decimals({"mean": draws[:, at], "sd": draws[:, at].std(axis=1)})
        chains = [_rounded(chain[at], decimals) for chain in draws]
        row = {"name": name, "math": views.symbol(name), "decimals": decimals, "draw": at.tolist(), "chains": chains}
        rows.append(row | {"rhat": _rounded(rhat_of(draws), 3)[0] if result.method.is_markov else None})
    return rows


def _places(values: np.ndarray, problem: Problem, coordinate: str) -> Numbers:
    low, high = problem.domain[coordinate]
    return _rounded(values, 4 - int(np.floor(np.log10(high - low))))


def _decimals(parts: Mapping[str, np.ndarray]) -> int:
    """Decimals that give a typical sd three digits, and values at most seven; negative for large numbers."""
    mean = np.abs(parts["mean"][np.isfinite(parts["mean"])])
    largest = float(mean.max(initial=0.0)) or 1.0
    spread = np.zeros(0)
    if "sd" in parts:
        spread = parts["sd"]
    elif "high" in parts:
        spread = (parts["high"] - parts["low"]) / 4
    positive = spread[np.isfinite(spread) & (spread > 0)]
    typical = min(largest / 10, float(np.median(positive))) if positive.size else largest / 10
    wanted = 2 - int(np.floor(np.log10(typical)))
    return min(wanted, 6 - int(np.floor(np.log10(largest))))


def _rounded(values: Any, decimals: int) -> Numbers:
    flat = np.round(np.ravel(np.asarray(values, float)), decimals) + 0.0
    return [float(v) if np.isfinite(v) else None for v in flat]


def _size(what: Any) -> int:
    """How many numbers it has."""
    if isinstance(what, Mapping):
        return sum(_size(value) for value in what.values())
    return sum(_size(value) for value in what) if isinstance(what, list) else 1


def _colours(name: str) -> list[str]:
    return [matplotlib.colors.to_hex(c) for c in matplotlib.colormaps[name](np.linspace(0, 1, COLOURS))]
