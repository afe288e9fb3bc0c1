"""Figures of results: fields with their uncertainty, posteriors of unknowns, traces, and an overview.

Every function returns a matplotlib `Figure` and leaves pyplot and the global style alone, so figures can be
made in a script, a notebook (after ``%matplotlib inline``) or a server:
``bp.plot.overview(result).savefig("overview.png")``.

Throughout, blue is the posterior (line: mean, shade: central interval), black dashes are the truth, orange
points are readings and grey is the prior; the colours are safe for colour-blind readers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bpinn import views
from bpinn.checks import numbers
from bpinn.diagnostics import rhat_of
from bpinn.errors import InputError
from bpinn.located import measured
from bpinn.quantities import Quantity, label
from bpinn.result import Result

BLUE, ORANGE, GREY, BLACK = "#0072B2", "#D55E00", "#7F7F7F", "#000000"  # Okabe and Ito's palette
CHAINS = (BLUE, "#E69F00", "#009E73", "#CC79A7", ORANGE, "#56B4E9", BLACK)
VALUES, ERRORS = "viridis", "cividis"  # colour maps of a quantity, and of its sd and error
STYLE = {
    "font.size": 10,
    "axes.labelsize": 11,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.dpi": 150,
    "text.usetex": False,  # names have underscores
}
ALONE, BESIDE, FLAT = (5.2, 3.2), (3.5, 2.8), (5.2, 2.0)  # inches of a panel

Draw = Callable[[Axes], None]  # draws one panel


def band(
    result: Result,
    quantity: Quantity,
    at: views.At = None,
    *,
    truth: Any = None,
    p: float = 0.95,
    ax: Axes | None = None,
    noise: views.Noise = False,
) -> Figure:
    """A quantity along one coordinate: posterior mean, central interval, and readings with one sd of noise.

    Arguments:
        quantity: what `Result.predict` takes: a field, a derivative, the name of sensors, a function of names.
        at: where; the whole domain unless given. With several coordinates fix all but one, such as
            ``{"x": grid, "t": 0.5}``; readings are shown if they lie on that slice.
        truth: a function of the coordinates, an array with a value for each point, or either by name.
        p: probability of the interval.
        ax: axes to draw into; a new figure unless given.
        noise: as in `Result.predict`; True shows the interval of new readings.

    Example:
        ``bp.plot.band(result, "u", truth=lambda x: np.sin(6 * x) ** 3).savefig("u.pdf")``
    """
    view = views.view(result, quantity, at, truth, f"band {label(quantity)!r}", noise=noise)
    view.check_varying(1)
    draw = partial(_draw_band, view=view, p=p)
    if ax is None:
        return _figure([draw], 1, ALONE)
    with matplotlib.rc_context(STYLE):
        draw(ax)
        ax.legend(frameon=True, framealpha=0.8, edgecolor="none")  # it may lie on the data
    return ax.get_figure(root=True)  # type: ignore[return-value]


def maps(result: Result, quantity: Quantity, at: views.At = None, *, truth: Any = None) -> Figure:
    """A quantity over two coordinates: mean and sd, and with a truth the truth and the error; dots are readings.

    ``at`` gives an axis of points for each of two coordinates (or a mesh, as `Problem.grid` does) and a number
    for every other one; the whole domain unless given. ``truth`` is as in `band`, an array in the mesh's shape.

    Example:
        ``bp.plot.maps(result, "u", {"x": np.linspace(0, 1, 50), "t": np.linspace(0, 2, 80), "y": 0.5})``
    """
    where = f"maps {label(quantity)!r}"
    if isinstance(at, Mapping):
        at = {c: numbers(a, f"{where}: positions of {c}") for c, a in at.items()}
        axes = {c: a for c, a in at.items() if a.ndim == 1 and a.size > 1}
        if len(axes) == 2 and all(a.ndim < 2 for a in at.values()):
            at = at | dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    view = views.view(result, quantity, at, truth, where)
    view.check_varying(2)
    panels = _map_panels(view)
    return _figure(list(panels.values()), 2 if len(panels) == 4 else len(panels), BESIDE)


def field(result: Result, name: Quantity, at: views.At = None, *, truth: Any = None, p: float = 0.95) -> Figure:
    """`band` or `maps`, by the number of coordinates that the quantity depends on and ``at`` does not fix.

    Example:
        ``bp.plot.field(result, "u", truth={"u": lambda x, t: np.exp(-t) * np.sin(x)})``
    """
    where = f"field {label(name)!r}"
    needed = views.coordinates(result.problem, measured(result.problem, name, where), where)
    fixed = [c for c in needed if isinstance(at, Mapping) and c in at and np.size(at[c]) == 1]
    if len(needed) - len(fixed) > 1:
        return maps(result, name, at, truth=truth)
    return band(result, name, at, truth=truth, p=p)


def unknowns(result: Result, *, truth: Any = None) -> Figure:
    """The posterior of each unknown and inferred noise: draws, mean, 95% interval, and the prior if it has a density.

    Example:
        ``bp.plot.unknowns(result, truth={"k": 0.7})``
    """
    panels = _posterior_panels(result, views.by_name(result.problem, truth, "unknowns"))
    if not panels:
        raise InputError("unknowns: the problem has no unknowns or inferred noises; use plot.field or plot.traces")
    return _figure(panels, 3, BESIDE)


def traces(result: Result) -> Figure:
    """Each chain's draws of every unknown, inferred noise and the log density, in order, with R-hat.

    Chains that have found the same posterior overlap, each like noise around one level.
    """
    shown = {s.label: s.draws for s in views.scalars(result)} | {"log density": result.stats["log_density"]}
    panels: list[Draw] = [partial(_draw_trace, name=name, draws=draws) for name, draws in shown.items()]
    return _figure(panels, 1 if len(panels) < 3 else 2, FLAT)


def overview(result: Result, *, truth: Any = None) -> Figure:
    """Everything in one figure: each field, each other measured quantity, and each unknown.

    Quantities of one coordinate are bands, others are maps (coordinates beyond the second at the middle of the
    domain). ``truth`` maps names of fields, sensors and unknowns to functions or values, or is a `bp.paper.Truth`.

    Example:
        ``paper = bp.paper.regression(); bp.plot.overview(bp.infer(paper.problem, seed=0), truth=paper.truth)``
    """
    problem, known = result.problem, views.by_name(result.problem, truth, "overview")
    planes: list[list[Draw]] = []
    others: list[Draw] = []
    for name, quantity in views.pictured(problem):
        where = f"overview {name!r}"
        needed = views.coordinates(problem, quantity, where)
        middle = {c: sum(problem.domain[c]) / 2 for c in needed[2:]}
        view = views.view(result, quantity, {**views.mesh(problem, needed[:2]), **middle}, truth, where, called=name)
        if len(needed) > 1:
            # the truth is seen in the error
            planes.append([draw for title, draw in _map_panels(view).items() if title != "truth"])
        elif needed:
            others.append(partial(_draw_band, view=view, p=0.95))
        else:
            others.append(partial(_draw_posterior, scalar=views.Scalar(name, view.prediction.draws), truth=view.truth))
    columns = max((len(row) for row in planes), default=3)
    rows = [panel for row in planes for panel in row + [None] * (columns - len(row))]
    return _figure([*rows, *others, *_posterior_panels(result, known)], columns, BESIDE)


# --- drawing ---


def _figure(panels: Sequence[Draw | None], columns: int, size: tuple[float, float]) -> Figure:
    """The panels row by row (None leaves a gap), below one legend with each label once."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width, height = ALONE if size == BESIDE and len(panels) == 1 else size
    entries: dict[str, Any] = {}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)  # type: ignore[union-attr, call-arg]
        for i, draw in enumerate(panels):
            if draw is None:
                continue
            ax = figure.add_subplot(rows, columns, i + 1)
            # ticks are made when the figure is drawn, and would not know of our style then
            ax.tick_params(labelsize=9)
            ax.locator_params(nbins=6)
            draw(ax)
            for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
                entries.setdefault(text, handle)
        fit = max(1, int(columns * width / 1.3))
        if entries:
            figure.legend(entries.values(), entries, loc="outside upper center", ncols=fit, columnspacing=1.4)
    return figure


def _draw_band(ax: Axes, view: views.View, p: float) -> None:
    (along,) = view.varying
    x = view.prediction.at[along].ravel()
    order = np.argsort(x, kind="stable")
    if not view.certain:
        low, high = (end.ravel()[order] for end in view.prediction.interval(p))
        text = f"{100 * p:g}% of new readings" if view.noisy else f"{100 * p:g}% interval"
        ax.fill_between(x[order], low, high, color=BLUE, alpha=0.25, lw=0, label=text)
    ax.plot(x[order], view.prediction.mean.ravel()[order], color=BLUE, label="posterior mean")
    if view.truth is not None:
        ax.plot(x[order], view.truth.ravel()[order], color=BLACK, ls="--", lw=1.2, label="truth")
    if view.values.size:
        dots: Any = {"fmt": "o", "ms": 3.5, "mew": 0, "color": ORANGE, "elinewidth": 1.0, "zorder": 3}
        ax.errorbar(view.at[along], view.values, view.noise, label="readings", **dots)
    ax.set(xlabel=views.math(along) + view.slice, ylabel=views.math(view.label))
    ax.margins(x=0.02)


def _map_panels(view: views.View) -> dict[str, Draw]:
    """Mean, sd, truth and error by these names; values share one scale, and errors another."""
    mean, sd, truth = view.prediction.mean, view.prediction.sd, view.truth
    shown = {"mean": mean} if view.certain else {"mean": mean, "sd": sd}
    if truth is not None:
        shown |= {"truth": truth, "|mean − truth|": np.abs(mean - truth)}
    values = np.stack([a for name, a in shown.items() if name in ("mean", "truth")])
    errors = np.stack([np.zeros_like(mean), *(a for name, a in shown.items() if name not in ("mean", "truth"))])
    ranges = {VALUES: (np.nanmin(values), np.nanmax(values)), ERRORS: (0.0, np.nanmax(errors))}
    panels: dict[str, Draw] = {}
    for name, array in shown.items():
        cmap = VALUES if name in ("mean", "truth") else ERRORS
        panels[name] = partial(_draw_map, view=view, name=name, values=array, cmap=cmap, limits=ranges[cmap])
    return panels


def _draw_map(
    ax: Axes, view: views.View, name: str, values: np.ndarray, cmap: str, limits: tuple[float, float]
) -> None:
    x, y = view.varying
    points = [np.squeeze(view.prediction.at[c]) for c in (x, y)]
    style: Any = {"cmap": cmap, "vmin": limits[0], "vmax": limits[1], "shading": "gouraud", "rasterized": True}
    mesh = ax.pcolormesh(*points, np.squeeze(values), **style)
    if name in ("mean", "sd") and view.values.size:
        ax.plot(view.at[x], view.at[y], "o", ms=3.5, c=ORANGE, mec="white", mew=0.5, clip_on=False, label="readings")
    wide, tall = (np.ptp(a) for a in points)
    if 0.5 <= wide / tall <= 2:
        ax.set_aspect("equal")
    ax.set(xlabel=views.math(x), ylabel=views.math(y), title=f"{views.math(view.label)}: {name}{view.slice}")
    # an inset is as tall as the panel whatever the aspect
    bar = ax.get_figure(root=True).colorbar(mesh, cax=ax.inset_axes((1.04, 0, 0.05, 1)))  # type: ignore[union-attr]
    bar.ax.tick_params(labelsize=9)
    bar.outline.set_visible(False)


def _posterior_panels(result: Result, known: Mapping[str, Any]) -> list[Draw]:
    panels: list[Draw] = []
    for scalar in views.scalars(result):
        truth = None
        if scalar.owner in known:
            value = numbers(known[scalar.owner], f"truth of {scalar.owner!r}")
            wanted = result.draws(scalar.owner).shape[2:]
            if value.shape != wanted:
                raise InputError(f"truth of {scalar.owner!r}: it has shape {value.shape}, wanted is {wanted}")
            truth = value.ravel()[scalar.component]
        panels.append(partial(_draw_posterior, scalar=scalar, truth=truth))
    return panels


def _draw_posterior(ax: Axes, scalar: views.Scalar, truth: Any = None) -> None:
    draws = scalar.draws[np.isfinite(scalar.draws)].astype(float)
    if not draws.size:
        raise InputError(f"unknowns: {scalar.label!r} has no finite draws; see result.diagnose()")
    mean, (low, high) = draws.mean(), np.quantile(draws, [0.025, 0.975])
    title = f"{views.math(scalar.label)} = {views.number(mean)}"
    if draws.size > 1:
        heights, edges = np.histogram(draws, bins=min(30, int(np.sqrt(draws.size)) + 1), density=True)
        # bins beyond the interval are left without width, so that the shade ends where it does
        ax.stairs(heights, np.clip(edges, low, high), fill=True, color=BLUE, alpha=0.25, lw=0, label="95% interval")
        ax.stairs(heights, edges, color=BLUE, lw=1.0)
        title += f" [{views.number(low)}, {views.number(high)}]"
    ax.axvline(mean, color=BLUE, label="posterior mean")
    if truth is not None:
        ax.axvline(float(truth), color=BLACK, ls="--", lw=1.2, label="truth")
    top, grid = ax.get_ylim()[1], np.linspace(*ax.get_xlim(), 201)
    density = scalar.prior_density(grid)
    if density is not None:
        ax.plot(grid, density, color=GREY, lw=1.0, label="prior")
    ax.set(xlim=grid[[0, -1]], ylim=(0, top), xlabel=views.math(scalar.label), yticks=[], title=title)
    ax.spines["left"].set_visible(False)


def _draw_trace(ax: Axes, name: str, draws: np.ndarray) -> None:
    for i, chain in enumerate(draws):
        # many thousand points a line would make a vector figure too large to open
        style: Any = {"lw": 0.6, "alpha": 0.8, "rasterized": True, "color": CHAINS[i % len(CHAINS)]}
        ax.plot(chain, label=f"chain {i + 1}", **style)
    ax.set(xlabel="draw", ylabel=views.math(name), title=rf"$\hat{{R}}$ = {rhat_of(draws):.3f}")
    ax.margins(x=0)
