"""Panels of advice on measurements: a score at all candidate places, as a curve, a map or points."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bpinn.design import NextSensor, Separation
from bpinn.design.candidates import Kind
from bpinn.errors import InputError
from bpinn.plot import drawing, views

BEST = drawing.ORANGE


def next_sensor(found: NextSensor) -> Figure:
    """Plot the expected reduction of `bp.next_sensor` at all candidates: curves along one coordinate, maps over two.

    With several readings there is a curve for each, given those before it. Ticks at the bottom are readings there are.

    Example:
        ``bp.plot.next_sensor(bp.next_sensor(result, "k")).savefig("next.png")``
    """
    if not isinstance(found, NextSensor):
        raise InputError(f"next_sensor: expected a result of bp.next_sensor, got {type(found).__name__}")
    return _figure(next_panels(found), "next_sensor")


def tell_apart(found: Separation) -> Figure:
    """Plot what `Result.tell_apart` found: the readings that each solution predicts, and how far apart they are.

    Example:
        ``bp.plot.tell_apart(result.tell_apart()).savefig("apart.png")``
    """
    if not isinstance(found, Separation):
        raise InputError(f"tell_apart: expected a result of result.tell_apart(), got {type(found).__name__}")
    return _figure(apart_panels(found), "tell_apart")


def _figure(panels: Sequence[drawing.Draw], where: str) -> Figure:
    if not panels:
        raise InputError(
            f"{where}: the candidates are at a single place, so there is nothing to plot; print it instead"
        )
    return drawing.figure(panels, min(2, len(panels)), drawing.BESIDE if len(panels) > 1 else drawing.ALONE)


def next_panels(found: NextSensor) -> list[drawing.Draw]:
    """For each kind of reading, the share of the variance that each choice removes, given those before it."""
    panels: list[drawing.Draw] = []
    starts = np.cumsum([0, *(kind.size for kind in found.kinds)])
    shares = 100 * found.choice.gains / found.variance
    top = float(np.nanmax(shares))
    for kind, start in zip(found.kinds, starts, strict=False):
        rows = shares[:, start : start + kind.size]
        marked = [(n + 1, j - start) for n, j in enumerate(found.choice.chosen) if start <= j < start + kind.size]
        text = f"variance of {found.target} removed (%)"
        panels += _panels(kind, rows, marked, text, ["first", *(f"after {n}" for n in range(1, len(rows)))], top)
    return panels


def apart_panels(found: Separation) -> list[drawing.Draw]:
    """For each kind of reading, what each solution predicts (along one coordinate), and the distance between them."""
    panels: list[drawing.Draw] = []
    starts = np.cumsum([0, *(kind.size for kind in found.kinds)])
    top = float(np.nanmax(found.scores))
    for kind, start in zip(found.kinds, starts, strict=False):
        part = slice(start, start + kind.size)
        marked = [(1, found.best - start)] if start <= found.best < start + kind.size else []
        if len(kind.varying) == 1 and np.isfinite(found.expected[:, part]).any():
            given = (found.expected[:, part], found.spread[:, part])
            panels.append(partial(_draw_solutions, kind=kind, means=given[0], spread=given[1], marked=marked))
        text = "distance (units of noise)"
        if len(found.pairs) > 1:
            text = "closest pair (units of noise)"
        panels += _panels(kind, found.scores[None, part], marked, text, [""], top)
    return panels


def _panels(
    kind: Kind, rows: np.ndarray, marked: Sequence[tuple[int, int]], text: str, names: Sequence[str], top: float
) -> list[drawing.Draw]:
    varying = kind.varying
    given: Any = {"kind": kind, "marked": marked, "text": text}
    if len(varying) == 1:
        return [partial(_draw_curves, rows=rows, names=names, top=top, **given)]
    if len(varying) == 2 and len(kind.shape) == 2:
        return [partial(_draw_map, values=rows[0], top=top, **given)]
    return [partial(_draw_points, values=rows[0], along=c, **given) for c in varying]


def _draw_curves(
    ax: Axes,
    kind: Kind,
    rows: np.ndarray,
    marked: Sequence[tuple[int, int]],
    text: str,
    names: Sequence[str],
    top: float,
) -> None:
    (along,) = kind.varying
    x, order = kind.at[along], np.argsort(kind.at[along], kind="stable")
    for n, (row, name) in enumerate(zip(rows, names, strict=True)):
        ax.plot(x[order], row[order], color=drawing.CHAINS[n % len(drawing.CHAINS)], label=name or None)
    for number, i in marked:
        ax.axvline(x[i], color=BEST, ls="--", lw=1.2, label="next reading" if number == marked[0][0] else None)
        if len(rows) > 1:
            here = ", ".join(str(n) for n, j in marked if j == i)
            ax.annotate(f" {here}", (x[i], 1.0), xycoords=("data", "axes fraction"), ha="left", va="top")
    _rug(ax, kind, along)
    ax.set(xlabel=views.math(along), ylabel=text, title=views.math(kind.name), ylim=(0, 1.08 * top or 1.0))
    ax.yaxis.label.set_fontsize(9)
    ax.margins(x=0.02)


def _draw_solutions(
    ax: Axes, kind: Kind, means: np.ndarray, spread: np.ndarray, marked: Sequence[tuple[int, int]]
) -> None:
    (along,) = kind.varying
    x, order = kind.at[along], np.argsort(kind.at[along], kind="stable")
    for n, (mean, sd) in enumerate(zip(means[:, order], spread[:, order], strict=True)):
        colour = drawing.CHAINS[n % len(drawing.CHAINS)]
        ax.plot(x[order], mean, color=colour, label=f"solution {n + 1}")
        ax.fill_between(x[order], mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.2, lw=0)
    for _, i in marked:
        ax.axvline(x[i], color=BEST, ls="--", lw=1.2, label="next reading")
    ax.set(xlabel=views.math(along), ylabel=f"reading of {views.math(kind.name)} (± 2 sd)")
    ax.margins(x=0.02)


def _draw_map(
    ax: Axes, kind: Kind, values: np.ndarray, marked: Sequence[tuple[int, int]], text: str, top: float
) -> None:
    x, y = kind.varying
    points = [kind.at[c].reshape(kind.shape) for c in (x, y)]
    style: Any = {"cmap": drawing.VALUES, "vmin": 0.0, "vmax": top or 1.0, "shading": "gouraud", "rasterized": True}
    mesh = ax.pcolormesh(*points, values.reshape(kind.shape), **style)
    for number, i in marked:
        name = "next reading" if number == marked[0][0] else None
        ax.plot(kind.at[x][i], kind.at[y][i], "X", ms=10, color=BEST, mec="white", clip_on=False, zorder=4, label=name)
        if len(marked) > 1:
            ax.annotate(str(number), (kind.at[x][i], kind.at[y][i]), (7, 5), textcoords="offset points")
    taken = _taken(kind)
    if taken and all(c in taken for c in (x, y)):
        style = {"ls": "none", "marker": "o", "ms": 3, "color": "white", "mec": drawing.BLACK, "mew": 0.5}
        ax.plot(taken[x], taken[y], label="readings", clip_on=False, **style)
    wide, tall = (np.ptp(a) for a in points)
    if 0.5 <= wide / tall <= 2:
        ax.set_aspect("equal")
    ax.set(xlabel=views.math(x), ylabel=views.math(y), title=f"{views.math(kind.name)}: {text}")
    ax.title.set_fontsize(9)
    drawing.colour_bar(ax, mesh)


def _draw_points(
    ax: Axes, kind: Kind, values: np.ndarray, along: str, marked: Sequence[tuple[int, int]], text: str
) -> None:
    ax.plot(kind.at[along], values, ".", ms=3, color=drawing.BLUE, label="candidates")
    for number, i in marked:
        name = "next reading" if number == marked[0][0] else None
        ax.axvline(kind.at[along][i], color=BEST, ls="--", lw=1.2, label=name)
    ax.set(xlabel=views.math(along), ylabel=text, title=views.math(kind.name))
    ax.yaxis.label.set_fontsize(9)
    ax.set_ylim(bottom=0)


def _taken(kind: Kind) -> dict[str, np.ndarray]:
    """Where this quantity is read already."""
    problem = kind.quantity.problem
    groups = [
        r
        for r in problem.sampled(views.MOST_READINGS).readings
        if r.equation == kind.quantity.quantity.terms[0].equation
    ]
    if not groups:
        return {}
    return {c: np.concatenate([r.at[c] for r in groups]) for c in groups[0].at if all(c in r.at for r in groups)}


def _rug(ax: Axes, kind: Kind, along: str) -> None:
    taken = _taken(kind).get(along)
    if taken is not None and len(taken):
        style: Any = {"transform": ax.get_xaxis_transform(), "color": drawing.BLACK, "ms": 4, "clip_on": False}
        ax.plot(taken, np.zeros(len(taken)), "|", mew=1.2, label="readings", **style)
