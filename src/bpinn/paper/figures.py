"""Figures of experiments, from the arrays of their outcomes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bpinn.paper import PaperProblem
from bpinn.paper.cases import Outcome, Outcomes
from bpinn.plot import drawing

PANEL, MAP = (2.6, 2.1), (2.5, 2.2)


def bands(
    outcomes: Outcomes, problems: dict[float, PaperProblem], quantities: Sequence[str], heading: str = ""
) -> list[Any]:
    """Mean and two sd on the first data set; one row per noise and quantity, one panel per method."""
    seed = outcomes.seeds[0]
    panels: list[Any] = []
    labels = outcomes.labels
    for noise in outcomes.noises:
        for name in quantities:
            shown = [outcomes.get(label, noise, seed) for label in labels]
            with_it = [o for o in shown if f"{name}/mean" in o.arrays]
            truths = np.concatenate([o.arrays[f"{name}/truth"] for o in with_it])
            low, high = truths.min(), truths.max()
            limits = (low - 0.6 * (high - low), high + 0.6 * (high - low))
            for label, outcome in zip(labels, shown, strict=True):
                if outcome not in with_it:
                    panels.append(None)
                    continue
                title = f"{heading}{label}, noise {noise:g}" if name == quantities[0] else ""
                panels.append(
                    partial(_band, outcome=outcome, paper=problems[noise], name=name, title=title, limits=limits)
                )
    return panels


def _band(ax: Axes, outcome: Outcome, paper: PaperProblem, name: str, title: str, limits: tuple[float, float]) -> None:
    ((coordinate, x),) = paper.problem.grid().items()
    mean, sd, truth = (outcome.arrays[f"{name}/{part}"] for part in ("mean", "sd", "truth"))
    if np.all(np.isfinite(sd)):
        ax.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=drawing.BLUE, alpha=0.25, lw=0, label="two sd")
    ax.plot(x, mean, color=drawing.BLUE, lw=1.3, label="mean")
    ax.plot(x, truth, color=drawing.BLACK, ls="--", lw=1.0, label="truth")
    for readings in paper.problem.readings:
        measured = paper.problem.sensors[readings.name].quantity
        if name == ("u" if measured == "u" else readings.name):
            ax.plot(readings.at[coordinate], readings.values, ".", ms=4, color=drawing.ORANGE, label="readings")
    ax.set(title=title, ylim=limits, xlabel=f"${coordinate}$", ylabel=f"${name}$")
    ax.tick_params(labelsize=7)


def maps(outcomes: Outcomes, problems: dict[float, PaperProblem]) -> Figure:
    """Error of u (above) and its sd (below) on the first data set, for each noise; one column per method."""
    seed = outcomes.seeds[0]
    panels: list[Any] = []
    for noise in outcomes.noises:
        rows: list[list[Any]] = [[], []]
        for label in outcomes.labels:
            outcome = outcomes.get(label, noise, seed)
            mean, sd, truth = (outcome.arrays[f"u/{part}"] for part in ("mean", "sd", "truth"))
            for row, (what, values) in zip(rows, (("error", np.abs(mean - truth)), ("sd", sd)), strict=True):
                title = f"{label}, {noise:g}: {what}"
                row.append(partial(_map, values=values, grid=problems[noise].problem.grid(), title=title))
        panels += [*rows[0], *rows[1]]
    return drawing.figure(panels, len(outcomes.labels), MAP)


def _map(ax: Axes, values: np.ndarray, grid: dict[str, np.ndarray], title: str) -> None:
    mesh = ax.pcolormesh(*grid.values(), values, cmap=drawing.ERRORS, shading="gouraud", rasterized=True, vmin=0.0)
    ax.set_aspect("equal")
    ax.set_title(title, fontsize=8)
    ax.tick_params(labelsize=7)
    drawing.colour_bar(ax, mesh)


def sensors(problems: dict[float, PaperProblem]) -> list[Any]:
    """Positions of the readings of u and f over the truth (the paper's figure of training data)."""
    paper = problems[min(problems)]
    grid = paper.problem.grid()

    def panel(ax: Axes, name: str, marker: str) -> None:
        values = np.asarray(paper.truth.functions[name](**grid))
        mesh = ax.pcolormesh(*grid.values(), values, cmap=drawing.VALUES, shading="gouraud", rasterized=True)
        for readings in paper.problem.readings:
            measured = paper.problem.sensors[readings.name].quantity
            if name == ("u" if measured == "u" else readings.name):
                ax.plot(*readings.at.values(), marker, ms=3, color=drawing.BLACK, mew=0.7, mfc="none", clip_on=False)
        ax.set_aspect("equal")
        ax.set_title(f"readings of {name}", fontsize=8)
        ax.tick_params(labelsize=7)
        drawing.colour_bar(ax, mesh)

    return [partial(panel, name="u", marker="o"), partial(panel, name="f", marker="x")]


def unknowns(outcomes: Outcomes, truth: float, papers: dict[float, dict[str, Any]]) -> list[Any]:
    """k for every method and data set next to the paper's, one panel per noise."""

    def panel(ax: Axes, noise: float) -> None:
        for place, label in enumerate(outcomes.labels):
            for i, seed in enumerate(outcomes.seeds):
                mean, sd = outcomes.get(label, noise, seed).k
                at = place + (i - (len(outcomes.seeds) - 1) / 2) * 0.05
                error = None if not np.isfinite(sd) else 2 * sd
                ax.errorbar(at, mean, error, fmt="o", ms=3, color=drawing.BLUE, lw=0.9, label="ours, two sd")
            if label in papers[noise]:
                mean, sd = papers[noise][label]
                ax.errorbar(
                    place + 0.38, mean, None if sd is None else 2 * sd, fmt="s", ms=3, color=drawing.ORANGE, lw=0.9,
                    label="the paper's, two sd",
                )  # fmt: skip
        ax.axhline(truth, color=drawing.BLACK, ls="--", lw=1.0, label="truth")
        ax.set_xticks(range(len(outcomes.labels)), outcomes.labels, rotation=20, fontsize=8)
        ax.set(title=f"k, noise {noise:g}", ylabel="$k$")

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
        ax.barh(place - 0.2, ours, 0.38, color=drawing.BLUE, label="ours")
        ax.barh(place + 0.2, theirs, 0.38, color=drawing.ORANGE, label="the paper's")
        ax.set_yticks(place, labels)
        ax.set(xscale="log", xlabel="seconds")
        ax.invert_yaxis()

    return drawing.figure([panel], 1, (5.2, 2.6))
