"""The figures of a report: each quantity across the domain, slices in time, and the numbers behind them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bpinn.design import NextSensor, Separation
from bpinn.diagnostics import LOG_DENSITY
from bpinn.forward import ForwardCheck
from bpinn.forward.laws import TIMES
from bpinn.labelled import columns
from bpinn.plot import advice, drawing, views
from bpinn.predictive import Check
from bpinn.prior import PriorCheck
from bpinn.problem import Problem
from bpinn.quantity_at import coordinates_of
from bpinn.result import Result

PANEL, WIDE, NARROW = (4.1, 3.2), (8.6, 3.6), (3.8, 3.2)  # inches: half the page, all of it, and a phone's
SLICES = (0.0, 1 / 3, 2 / 3, 1.0)
FRAMES = (25, 25, 11)  # points along three coordinates
LABELLED = 5  # surprising readings that get a label
# Groups of figures that do not belong to a quantity; "#" avoids clashes with names.
PRIOR, UNKNOWNS, READINGS, HEALTH, SOLUTIONS = "#prior", "#unknowns", "#readings", "#health", "#solutions"
FORWARD, NEXT = "#forward", "#next"


@dataclass(frozen=True)
class Picture:
    """A figure with its section in the report and its caption; a wide one has a narrow version for phones."""

    name: str
    group: str
    caption: str
    figure: Figure
    narrow: Figure | None = None

    @classmethod
    def wide(cls, name: str, group: str, caption: str, panel: drawing.Draw) -> "Picture":
        return cls(name, group, caption, *(drawing.figure([panel], 1, size) for size in (WIDE, NARROW)))


@dataclass(frozen=True)
class Portrait:
    """A quantity along one or two coordinates (others fixed at the middle of the domain), and slices in time.

    ``frames`` has a quantity of more coordinates along three of them, on a coarser grid.
    """

    name: str
    view: views.View
    slices: tuple[views.View, ...]
    frames: views.View | None = None

    @property
    def touched(self) -> views.View:
        """What can be looked at point by point."""
        return self.view if self.frames is None else self.frames

    @property
    def errors(self) -> dict[str, float] | None:
        """The relative L2 error of the mean, and the fraction of points where the truth is within two sd."""
        truth, mean, sd = self.view.truth, self.view.prediction.mean, self.view.prediction.sd
        if truth is None:
            return None
        apart, size = np.linalg.norm(mean - truth), np.linalg.norm(truth)
        within = float(np.mean(np.abs(mean - truth) <= 2 * sd)) if not self.view.certain else float("nan")
        return {"error": float(apart / size) if size else float(apart), "within": within}

    def table(self) -> dict[str, np.ndarray]:
        """Columns for a file: coordinates, mean, sd, bounds of the 95% interval, and the truth if known."""
        prediction, view = self.view.prediction, self.view
        found = {c: prediction.at[c] for c in view.needed} | columns(prediction)
        if view.truth is not None:
            found["truth"] = view.truth
        shape = prediction.mean.shape
        return {name: np.broadcast_to(values, shape).ravel() for name, values in found.items()}


def portraits(result: Result, truth: Mapping[str, Any]) -> list[Portrait]:
    """Portraits of every field and every other measured quantity."""
    problem, found = result.problem, []
    for name, quantity in views.pictured(problem):
        needed = coordinates_of(problem, quantity, f"report {name!r}")
        time = next((c for c in needed if c in TIMES), None)
        space = [c for c in needed if c != time]
        # a plane of two coordinates, including time if there is only one in space
        plane = ([*space, time] if time and len(space) < 2 else space)[:2]
        middle = {c: sum(problem.domain[c]) / 2 for c in needed if c not in plane}
        show = partial(views.view, result, quantity, truth=truth, where=f"report {name!r}", called=name)
        slices = []
        if time is not None and space:
            rest = {c: sum(problem.domain[c]) / 2 for c in space[2:]}
            low, high = problem.domain[time]
            grid = views.mesh(problem, space[:2])
            slices = [show(at={**grid, **rest, time: low + part * (high - low)}) for part in SLICES]
        moving = [*plane, *(c for c in (time, *space) if c and c not in plane)][:3]
        frames = None
        if len(moving) == 3:
            rest = {c: sum(problem.domain[c]) / 2 for c in needed if c not in moving}
            axes = [np.linspace(*problem.domain[c], size) for c, size in zip(moving, FRAMES, strict=True)]
            grid = dict(zip(moving, np.meshgrid(*axes, indexing="ij"), strict=True))
            frames = show(at={**grid, **rest})
        found.append(Portrait(name, show(at={**views.mesh(problem, plane), **middle}), tuple(slices), frames))
    return found


def prior_pictures(found: PriorCheck) -> Iterator[Picture]:
    """The readings of each group of sensors over draws of the prior."""
    for view in views.prior_views(found):
        name = view.expected.name
        panel = partial(drawing.draw_prior, view=view)
        yield Picture(f"prior-{name}", PRIOR, f"{name}: readings over the prior", drawing.figure([panel], 1, PANEL))


def pictures(result: Result, found: list[Portrait], check: Check | None, truth: Mapping[str, Any]) -> Iterator[Picture]:
    """Every figure of the report, one panel each, so that the page can lay them out for its width."""
    for portrait in found:
        yield from _quantity_pictures(portrait)
    known = {name: value for name, value in truth.items() if name in result.names}
    for scalar, panel in zip(views.number_draws(result), drawing.posterior_panels(result, known), strict=True):
        caption = f"{scalar.label}: posterior with mean and 95% interval, and prior"
        yield Picture(f"unknown-{scalar.label}", UNKNOWNS, caption, drawing.figure([panel], 1, PANEL))
    if check is not None:
        what = "reading and point" if any(group.is_exact for group in check.groups) else "reading"
        caption = f"leave-one-out z-score of each {what}"
        yield Picture.wide("check-of-readings", READINGS, caption, partial(draw_scores, check=check))
    yield from _health_pictures(result)


def solution_pictures(problem: Problem, solutions: Sequence[Sequence[Portrait]]) -> Iterator[Picture]:
    """Every field, for each of several solutions."""
    for number, found in enumerate(solutions, 1):
        for portrait in found:
            if portrait.name in problem.fields:
                for picture in _quantity_pictures(replace(portrait, slices=())):
                    name, caption = f"solution-{number}-{picture.name}", f"solution {number}, {picture.caption}"
                    yield replace(picture, name=name, group=SOLUTIONS, caption=caption)


def forward_pictures(check: ForwardCheck | str) -> Iterator[Picture]:
    """Each field that was solved for."""
    if isinstance(check, str):
        return
    for name, panels in drawing.forward_panels(check).items():
        for i, panel in enumerate(panels):
            about = "" if len(panels) == 1 else (": mean of the solutions", ": deviation of the mean from the draws")[i]
            caption = f"{name}: solutions of the equations for {check.tried} draws{about}"
            called = f"forward-{name}-{i + 1}"
            if len(panels) == 1:
                yield Picture.wide(called, FORWARD, caption, panel)
            else:
                yield Picture(called, FORWARD, caption, drawing.figure([panel], 1, PANEL))


def advice_pictures(found: NextSensor | Separation | str) -> Iterator[Picture]:
    """Where the next reading would help most."""
    if isinstance(found, str):
        return
    panels = advice.next_panels(found) if isinstance(found, NextSensor) else advice.apart_panels(found)
    what = f"reduction of the variance of {found.target}" if isinstance(found, NextSensor) else "distance of solutions"
    for i, panel in enumerate(panels, 1):
        yield Picture(f"next-{i}", NEXT, f"next reading: expected {what}", drawing.figure([panel], 1, PANEL))


def _quantity_pictures(portrait: Portrait) -> Iterator[Picture]:
    name, view = portrait.name, portrait.view
    if len(view.varying) == 2:
        for title, panel in drawing.map_panels(view).items():
            words = {"|mean − truth|": "error"}.get(title, title)
            caption = f"{name}: {title}{plain_slice(view)}"
            yield Picture(f"{name}-{words}", name, caption, drawing.figure([panel], 1, PANEL))
    elif len(view.varying) == 1:
        band = partial(drawing.draw_band, view=view, p=0.95)
        shown = "".join(f", with {called}" for called, _ in view.shown_values())
        caption = f"{name}: posterior mean and 95% interval{shown}{plain_slice(view)}"
        yield Picture.wide(name, name, caption, band)
    else:
        scalar = views.NumberDraws(name, view.prediction.draws)
        panel = partial(drawing.draw_posterior, scalar=scalar, truth=view.truth)
        yield Picture(name, name, f"{name}: posterior", drawing.figure([panel], 1, PANEL))
    for i, part in enumerate(portrait.slices, 1):
        if len(part.varying) == 1:
            panels: dict[str, drawing.Draw] = {"": partial(drawing.draw_band, view=part, p=0.95)}
        else:
            panels = {f"-{k}": panel for k, panel in drawing.map_panels(part).items() if k in ("mean", "sd")}
        for suffix, panel in panels.items():
            caption = f"{name}{suffix.replace('-', ': ')}{plain_slice(part)}"
            yield Picture(f"{name}-slice-{i}{suffix}", name, caption, drawing.figure([panel], 1, PANEL))


def _health_pictures(result: Result) -> Iterator[Picture]:
    if result.method.has_spread:
        shown = {s.label: s.draws for s in views.number_draws(result)} | {"log density": result.stats.log_density}
        for name, draws in shown.items():
            panel = partial(drawing.draw_trace, name=name, draws=draws, method=result.method)
            caption = f"{name}: trace, each {result.method.unit} in its own colour"
            caption += f". {LOG_DENSITY}" if name == "log density" and result.method.is_markov else ""
            yield Picture(f"trace-{name.replace(' ', '-')}", HEALTH, caption, drawing.figure([panel], 1, PANEL))
    for name, values in result.history.items():
        if name in ("elbo", "loss"):
            panel = partial(drawing.draw_history, name=name, steps=result.history["step"], values=values)
            yield Picture(f"fit-{name}", HEALTH, f"training history: {name}", drawing.figure([panel], 1, PANEL))


def plain_slice(view: views.View) -> str:
    """The values of the fixed coordinates as plain text, such as ', at t = 0.5'."""
    return f", at {views.plain_place(view.fixed)}" if view.fixed else ""


def draw_scores(ax: Any, check: Check) -> None:
    """Each reading's leave-one-out z-score; if the model fits, 95% of them are in the shaded range."""
    start, surprising = 0, check.surprising
    for i, group in enumerate(check.groups):
        x = start + np.arange(len(group.values))
        score = np.clip(group.score, -8, 8)
        colour, marker = drawing.CHAINS[i % len(drawing.CHAINS)], "os^D"[i // len(drawing.CHAINS) % 4]
        ax.plot(x, score, marker, ms=3.5, mew=0, color=colour, label=group.name)
        far = [j for name, j in surprising if name == group.name]
        ax.plot(x[far], score[far], "o", ms=9, mfc="none", mec=drawing.BLACK, label="surprising" if far else None)
        for j in far[:LABELLED]:
            ax.annotate(
                f"{group.unit} {j + 1}", (x[j], score[j]), xytext=(6, 4), textcoords="offset points", fontsize=8
            )
        start += len(x) + 2
    ax.axhspan(-1.96, 1.96, color=drawing.GREY, alpha=0.15, lw=0, label="expected range (95%)")
    ax.axhline(0, color=drawing.GREY, lw=0.8)
    ax.set(
        xticks=[],
        xlabel="sensors, one group after the other",
        ylabel="z-score",
        ylim=(min(ax.get_ylim()[0], -4), max(ax.get_ylim()[1], 4)),
    )
