"""The figures of the gallery: fields with their readings, and the posteriors of unknowns."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import bpinn as bp
from bpinn.plot import drawing, views

if TYPE_CHECKING:
    from gallery.shared import Entry

MOST_BYTES, COLOURS = 80_000, 256


def figure_of(entry: "Entry", result: bp.Result, exact: Mapping[str, np.ndarray]) -> Figure:
    """Fields with their readings, as bands or maps, and the posteriors of the unknowns."""
    quantities = list(entry.show or result.problem.fields)
    planes = [q for q in quantities if q in result.problem.fields and len(result.problem.inputs(q)) > 1]
    panels: list[drawing.Draw | None] = [
        partial(band, entry=entry, result=result, quantity=q) for q in quantities if q not in planes
    ]
    panels += [
        partial(posterior, entry=entry, result=result, name=n, exact=exact.get(n)) for n in result.problem.unknowns
    ]
    if not planes:
        return drawing.figure(panels, 2 if len(panels) in (2, 4) else 3, drawing.BESIDE)
    maps = [maps_of(entry, result, quantity) for quantity in planes]
    if len(maps) == 1 and len(panels) == 2:  # the truth has a place of its own
        (of,) = maps
        laid = [of["mean"], of["truth"], panels[0], of["sd"], of["|mean − truth|"], panels[1]]
    else:  # the error shows it
        laid = [draw for of in maps for name, draw in of.items() if name != "truth"] + panels
    return drawing.figure(laid, 2 if len(laid) == 4 else 3, drawing.BESIDE)


def maps_of(entry: "Entry", result: bp.Result, quantity: str) -> dict[str, drawing.Draw]:
    """Maps of mean, sd, truth and error of a field over two coordinates."""
    view = views.view(result, quantity, None, entry.truth[quantity], f"gallery {entry.name}")
    return {
        name: partial(
            plane,
            draw=draw,
            entry=entry,
            along=view.varying,
            title=f"{entry.axes.get(quantity, views.math(quantity))}: {name}",
        )
        for name, draw in drawing.map_panels(view).items()
    }


def plane(ax: Axes, draw: drawing.Draw, entry: "Entry", along: Sequence[str], title: str) -> None:
    draw(ax)
    x, y = (entry.axes.get(c, views.math(c)) for c in along)
    ax.set(xlabel=x, ylabel=y, title=title)


def band(ax: Axes, entry: "Entry", result: bp.Result, quantity: str) -> None:
    view = views.view(result, quantity, None, entry.truth.get(quantity), f"gallery {entry.name}")
    drawing.draw_band(ax, view, 0.95)
    if entry.later:
        rows = np.genfromtxt(entry.folder / entry.later, delimiter=",", names=True)
        ax.plot(rows["t"], rows["value"], "x", color=drawing.BLACK, ms=4, label="not used")
    (along,) = view.varying
    ax.set(xlabel=entry.axes.get(along, views.math(along)), ylabel=entry.axes.get(quantity, views.math(quantity)))


def posterior(ax: Axes, entry: "Entry", result: bp.Result, name: str, exact: np.ndarray | None) -> None:
    """The posterior of an unknown, over that of a least-squares likelihood with the equation solved exactly."""
    draws = result.draws(name)
    drawing.draw_posterior(ax, views.NumberDraws(name, draws))
    ranges = [np.quantile(part, [0.003, 0.997]) for part in (draws, exact) if part is not None]
    low, high = np.min(ranges), np.max(ranges)
    if exact is not None:
        heights, edges = np.histogram(exact, np.linspace(low, high, 31), density=True)
        ax.stairs(heights, edges, color=drawing.SOLUTIONS, lw=1.4, label="equation solved exactly")
        ax.set_ylim(top=max(ax.get_ylim()[1], 1.05 * heights.max()))
    known = [(what, values[name]) for what in ("published", "truth") if name in (values := getattr(entry, what))]
    for what, value in known:
        ax.axvline(value, color=drawing.BLACK, ls="--", lw=1.2, label=what)
    ends = [low, high, *(value for _, value in known)]
    room = 0.04 * (max(ends) - min(ends))
    ax.set(xlim=(min(ends) - room, max(ends) + room), xlabel=entry.axes.get(name, views.math(name)))
    ax.locator_params(axis="x", nbins=5)


def thumbnail_of(entry: "Entry", result: bp.Result) -> Figure:
    """The first quantity, without labels."""
    quantity = next(iter(entry.show or result.problem.fields))
    with matplotlib.rc_context(drawing.STYLE):
        figure = Figure(figsize=(2.8, 1.7), layout="constrained")
        ax = figure.add_subplot()
        if quantity in result.problem.fields and len(result.problem.inputs(quantity)) > 1:
            view = views.view(result, quantity, None, None, f"gallery {entry.name}")
            x, y = view.varying
            points = [view.prediction.at[c] for c in (x, y)]
            ax.pcolormesh(*points, view.prediction.mean, cmap=drawing.VALUES, shading="gouraud")
            dots: Any = {"ls": "none", "color": drawing.ORANGE, "mec": "white", "mew": 0.5, "ms": 3.5, "clip_on": False}
            for called, chosen in view.shown_values():
                if called == "readings":
                    ax.plot(view.at[x][chosen], view.at[y][chosen], "o", **dots)
        else:
            band(ax, entry, result, quantity)
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    return figure


def png(figure: Figure, dots: int = 110) -> bytes:
    """As PNG with few colours, and fewer dots if the file would be too large."""
    while True:
        drawn, few = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dots)
        picture = Image.open(drawn).convert("RGB")
        # by coverage, which keeps the orange of a few dots beside a map
        picture = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        picture.save(few, "png", optimize=True)
        if few.tell() < MOST_BYTES or dots < 40:
            return few.getvalue()
        dots = int(0.8 * dots)
