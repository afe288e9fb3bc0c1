"""Figures of experiments, from the arrays of their outcomes."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bpinn.paper import PaperProblem
from bpinn.paper.cases import Outcome, Outcomes
from bpinn.plot import drawing, views
from bpinn.problem import Readings

PANEL, WIDE = (2.6, 2.1), (4.2, 3.0)  # inches of a panel


def in_words(label: str) -> str:
    """A label for a title: of the priors '(a) 20, 1' says their width and the sd of their weights."""
    return re.sub(r"^(\(\w\)) (\d+), (.*)", r"\1 width \2, weight sd \3", label)


def bands(
    outcomes: Outcomes, problems: dict[float, PaperProblem], quantities: Sequence[str], heading: str = ""
) -> list[list[Any]]:
    """Mean and two sd on the first data set; one row per noise and quantity, one panel per method."""
    seed = outcomes.seeds[0]
    rows: list[list[Any]] = []
    labels = outcomes.labels
    for noise in outcomes.noises:
        for name in quantities:
            shown = [outcomes.get(label, noise, seed) for label in labels]
            with_it = [o for o in shown if f"{name}/mean" in o.arrays]
            truths = np.concatenate([o.arrays[f"{name}/truth"] for o in with_it])
            low, high = truths.min(), truths.max()
            limits = (low - 0.6 * (high - low), high + 0.6 * (high - low))
            rows.append([])
            for label, outcome in zip(labels, shown, strict=True):
                title = f"{heading}{in_words(label)}, noise {noise:g}" if name == quantities[0] else ""
                panel = partial(_band, outcome=outcome, paper=problems[noise], name=name, title=title, limits=limits)
                rows[-1].append(panel if outcome in with_it else None)
    return rows


def of_bands(rows: Sequence[Sequence[Any]]) -> Figure:
    """Panels of bands with common axes; a single row of many methods is broken into rows of three."""
    panels = [panel for row in rows for panel in row]
    columns = 3 if len(rows) == 1 and len(panels) > 4 else len(rows[0])
    return drawing.figure(panels, columns, drawing.BESIDE if columns == 3 else PANEL, one_x=True, one_y="row")


def _band(ax: Axes, outcome: Outcome, paper: PaperProblem, name: str, title: str, limits: tuple[float, float]) -> None:
    ((coordinate, x),) = paper.problem.grid().items()
    mean, sd, truth = (outcome.arrays[f"{name}/{part}"] for part in ("mean", "sd", "truth"))
    if np.all(np.isfinite(sd)):
        ax.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=drawing.BLUE, alpha=0.25, lw=0, label="mean ± 2 sd")
    ax.plot(x, mean, color=drawing.BLUE, label="mean")
    ax.plot(x, truth, color=drawing.BLACK, ls="--", lw=1.2, label="truth")
    for readings in _readings_of(paper, name):
        drawing.draw_readings(ax, readings.at[coordinate], readings.values, readings.noise)
    ax.set(title=title, ylim=limits, xlabel=views.math(coordinate), ylabel=views.math(name))
    ax.margins(x=0.02)


def _readings_of(paper: PaperProblem, name: str) -> list[Readings]:
    """The readings of u, or of an equation by its name."""
    sensors = paper.problem.sensors
    return [r for r in paper.problem.readings if name == ("u" if sensors[r.name].quantity == "u" else r.name)]


def maps(outcomes: Outcomes, problems: dict[float, PaperProblem]) -> Figure:
    """Error of u (above) and its sd (below) on the first data set, for each noise; one column per method.

    The error and the sd of a method have one colour scale: an honest sd is about as large as the error.
    """
    seed = outcomes.seeds[0]
    panels: list[Any] = []
    for noise in outcomes.noises:
        rows: list[list[Any]] = [[], []]
        for label in outcomes.labels:
            outcome = outcomes.get(label, noise, seed)
            mean, sd, truth = (outcome.arrays[f"u/{part}"] for part in ("mean", "sd", "truth"))
            shown = {"error": np.abs(mean - truth), "sd": sd}
            top = float(np.nanmax(list(shown.values())))
            for row, (what, values) in zip(rows, shown.items(), strict=True):
                title = f"{label}, noise {noise:g}: {what}"
                grid = problems[noise].problem.grid()
                row.append(partial(_map, values=values, grid=grid, title=title, cmap=drawing.ERRORS, limits=(0.0, top)))
        panels += [*rows[0], *rows[1]]
    return drawing.figure(panels, len(outcomes.labels), PANEL, one_x=True, one_y="all")


def _map(
    ax: Axes, values: np.ndarray, grid: dict[str, np.ndarray], title: str, cmap: str, limits: tuple[float, float]
) -> None:
    style: Any = {"cmap": cmap, "vmin": limits[0], "vmax": limits[1], "shading": "gouraud", "rasterized": True}
    mesh = ax.pcolormesh(*grid.values(), values, **style)
    ax.set_aspect("equal")
    x, y = grid
    ax.set(xlabel=views.math(x), ylabel=views.math(y), title=title)
    drawing.colour_bar(ax, mesh)


def sensors(problems: dict[float, PaperProblem]) -> list[Any]:
    """Positions of the readings of u and f over the truth (the paper's figure of training data)."""
    paper = problems[min(problems)]
    grid = paper.problem.grid()

    def panel(ax: Axes, name: str) -> None:
        values = np.asarray(paper.truth.functions[name](**grid))
        title = f"truth of {views.math(name)} and places of its readings"
        _map(ax, values, grid, title, drawing.VALUES, (values.min(), values.max()))
        for readings in _readings_of(paper, name):
            x, y = readings.at.values()
            drawing.draw_places(ax, x, y)

    return [partial(panel, name="u"), partial(panel, name="f")]


def unknowns(outcomes: Outcomes, truth: float, papers: dict[float, dict[str, Any]]) -> list[Any]:
    """k for every method and data set next to the paper's, one panel per noise."""

    def panel(ax: Axes, noise: float) -> None:
        style: dict[str, Any] = {"ls": "none", "ms": 4, "elinewidth": 1.4}
        for place, label in enumerate(outcomes.labels):
            for i, seed in enumerate(outcomes.seeds):
                mean, sd = outcomes.get(label, noise, seed).k
                at = place - 0.1 + (i - (len(outcomes.seeds) - 1) / 2) * 0.05
                error = None if not np.isfinite(sd) else 2 * sd
                ax.errorbar(at, mean, error, fmt="o", color=drawing.OURS, label="bpinn, mean ± 2 sd", **style)
            if label in papers[noise]:
                mean, sd = papers[noise][label]
                error = None if sd is None else 2 * sd
                ax.errorbar(
                    place + 0.1, mean, error, fmt="s", color=drawing.THEIRS, label="the paper, mean ± 2 sd", **style
                )
        ax.axhline(truth, color=drawing.BLACK, ls="--", lw=1.2, label="truth")
        ax.set_xticks(range(len(outcomes.labels)), outcomes.labels)
        ax.set(title=f"noise {noise:g}", ylabel="$k$", xlim=(-0.5, len(outcomes.labels) - 0.5))

    return [partial(panel, noise=noise) for noise in outcomes.noises]


def bars(outcomes: Outcomes, minutes: dict[str, float]) -> Figure:
    """Run time of each method in seconds, next to the paper's (``minutes``)."""

    def panel(ax: Axes) -> None:
        labels = outcomes.labels
        ours = [
            np.median([o.numbers["seconds"] for o in outcomes.all if o.numbers["label"] == label]) for label in labels
        ]
        theirs = [60 * minutes.get(label, np.nan) for label in labels]
        place = np.arange(len(labels))
        for shift, values, colour, called in (
            (-0.2, ours, drawing.OURS, "bpinn"),
            (0.2, theirs, drawing.THEIRS, "the paper"),
        ):
            drawn = ax.barh(place + shift, values, 0.38, color=colour, label=called)
            ax.bar_label(drawn, [f"{v:,.0f}" for v in values], padding=3, fontsize=9)
        ax.set_yticks(place, labels)
        ax.set_xlabel("run time (s)")
        drawing.scale_bars(ax, [*ours, *theirs])
        ax.invert_yaxis()

    return drawing.figure([panel], 1, (5.2, 2.6))
