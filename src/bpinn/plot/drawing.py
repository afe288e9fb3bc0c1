"""Drawing: the palette, the layout of panels, and a function for each kind of panel."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from bpinn.checks import numbers
from bpinn.convergence import rhat_of
from bpinn.errors import InputError
from bpinn.forward import ForwardCheck
from bpinn.forward.comparison import FieldCompared
from bpinn.forward.laws import TIMES
from bpinn.methods import Method
from bpinn.plot import views
from bpinn.result import Result

BLUE, ORANGE, GREY, BLACK = "#0072B2", "#D55E00", "#7F7F7F", "#000000"  # Okabe and Ito's palette
CHAINS = (BLUE, "#E69F00", "#009E73", "#CC79A7", ORANGE, "#56B4E9", "#8E7CC3")  # each visible on light and dark
# readings are data; points of exact conditions are not
MARKS = {"readings": {"marker": "o", "ms": 3.5, "mew": 0}, "points": {"marker": "x", "ms": 3.5, "mew": 0.9}}
SOLUTIONS = "#009E73"
OURS, THEIRS = BLUE, GREY  # what we measured, and what we compare it with
# the same colours on a dark page, where black, white and blue would not do
DARK = {
    "#000000": "#e8eaed",
    "#ffffff": "#17191c",
    "#7f7f7f": "#9aa0a6",
    "#0072b2": "#4aa3df",
    "#d55e00": "#f08a3c",
    "#56b4e9": "#a9d8f5",
    "#009e73": "#2fc496",
}
VALUES, ERRORS = "viridis", "cividis"  # colour maps: of values, and of sd and error
STYLE = {
    "font.size": 10,
    "axes.labelsize": 11,
    "axes.titlesize": 10,
    "axes.formatter.limits": (-3, 5),  # long labels of ticks would run into each other
    "axes.formatter.use_mathtext": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.dpi": 150,
    "text.usetex": False,  # names have underscores
}
PRIOR_BAND, PRIOR_CURVES = "95% of the prior", 12
ALONE, BESIDE, FLAT, SQUARE = (5.2, 3.2), (3.5, 2.8), (5.2, 2.0), (4.4, 3.6)  # inches of a panel

Draw = Callable[[Axes], None]  # draws one panel


class Drawn(Figure):
    """A figure that notebooks show without `%matplotlib inline`, which registers figures of pyplot only."""

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as picture:
            self.savefig(picture, format="png", dpi=100)
            return picture.getvalue()


class Ticks(ScalarFormatter):
    """Labels of ticks as plain text, and the power of ten beside an axis as a formula.

    Matplotlib writes both as formulas or neither, and reading the labels as formulas takes half the time of a figure.
    """

    def __call__(self, x: float, pos: int | None = None) -> str:
        return super().__call__(x, pos).removeprefix(r"$\mathdefault{").removesuffix("}$")


def figure(
    panels: Sequence[Draw | None], columns: int, size: tuple[float, float], *, one_x: bool = False, one_y: str = ""
) -> Figure:
    """Lay out panels row by row (None leaves a gap) under one shared legend without duplicate labels.

    With ``one_x`` all panels have the same range of x, named and numbered only below the last of each column. Panels
    have the same range of y in each row (``one_y="row"``) or everywhere ("all"), named only at the left.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width, height = ALONE if size == BESIDE and len(panels) == 1 else size
    entries: dict[str, Any] = {}
    with matplotlib.rc_context(STYLE):
        figure: Figure = Drawn(figsize=(columns * width, rows * height), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)  # type: ignore[union-attr, call-arg]
        placed: dict[tuple[int, int], Axes] = {}
        for i, draw in enumerate(panels):
            if draw is None:
                continue
            ax = placed[divmod(i, columns)] = figure.add_subplot(rows, columns, i + 1)
            # ticks are created when the figure is drawn, after our style has been reset
            ax.tick_params(labelsize=9)
            ax.locator_params(axis="x", nbins=6 if width > 3 else 4)
            ax.locator_params(axis="y", nbins=6)
            draw(ax)
            for handle, text in zip(*ax.get_legend_handles_labels(), strict=True):
                entries.setdefault(text, handle)
            for axis in [axis for axes in (ax, *ax.child_axes) for axis in (axes.xaxis, axes.yaxis)]:
                if type(axis.get_major_formatter()) is ScalarFormatter:
                    axis.set_major_formatter(Ticks())
        if one_x:
            _share(placed, "x", "all")
        if one_y:
            _share(placed, "y", one_y)
        if entries:
            style: Any = {"columnspacing": 1.4, "handlelength": 1.6, "ncols": _legend_columns(entries, columns * width)}
            figure.legend(entries.values(), entries, loc="outside upper center", **style)
    return figure


def _share(placed: Mapping[tuple[int, int], Axes], name: Literal["x", "y"], among: str) -> None:
    """Give panels, by row and column, the same range of an axis, and leave out its name and numbers between panels."""
    groups: dict[int, list[Axes]] = {}
    for (row, _), ax in placed.items():
        groups.setdefault(row if among == "row" else 0, []).append(ax)
    for group in groups.values():
        ends = np.array([ax.get_xlim() if name == "x" else ax.get_ylim() for ax in group])
        for ax in group:
            ax.set(**{f"{name}lim": (ends.min(), ends.max())})
    for (row, column), ax in placed.items():
        before = (row + 1, column) if name == "x" else (row, column - 1)
        if before in placed:
            ax.set(**{f"{name}label": ""})
            ax.tick_params(name, **{"labelbottom" if name == "x" else "labelleft": False})


def _legend_columns(texts: Iterable[str], width: float) -> int:
    """The most columns of a legend that fit into so many inches; entries fill one column after the other."""
    lengths = [len(text) for text in texts]
    for rows in range(1, len(lengths)):
        parts = [lengths[i : i + rows] for i in range(0, len(lengths), rows)]
        if sum(0.5 + 0.07 * max(part) for part in parts) <= width:
            return len(parts)
    return 1


def draw_readings(ax: Axes, x: Any, values: Any, noise: Any = None, called: str = "readings") -> None:
    """Readings along one coordinate, or points of exact conditions, with one sd of their noise."""
    dots: Any = {**MARKS[called], "color": ORANGE, "elinewidth": 1.0, "zorder": 3}
    ax.errorbar(x, values, noise, label=called, ls="none", **dots)


def draw_band(ax: Axes, view: views.View, p: float) -> None:
    (along,) = view.varying
    x = view.prediction.at[along].ravel()
    order = np.argsort(x, kind="stable")
    if not view.certain:
        low, high = (end.ravel()[order] for end in view.prediction.interval(p))
        text = f"{100 * p:g}% predictive interval" if view.noisy else f"{100 * p:g}% interval"
        ax.fill_between(x[order], low, high, color=BLUE, alpha=0.25, lw=0, label=text)
    ax.plot(
        x[order], view.prediction.mean.ravel()[order], color=BLUE, label="solution" if view.certain else view.mean_label
    )
    if view.truth is not None:
        ax.plot(x[order], view.truth.ravel()[order], color=BLACK, ls="--", lw=1.2, label="truth")
    for called, chosen in view.shown_values():
        draw_readings(ax, view.at[along][chosen], view.values[chosen], view.noise[chosen], called)
    ax.set(xlabel=views.math(along) + view.slice, ylabel=views.math(view.label))
    ax.margins(x=0.02)


def draw_prior(ax: Axes, view: views.PriorView) -> None:
    """Readings over the prior: curves and their 95% band along a coordinate, or the 95% range of each reading."""
    with np.errstate(invalid="ignore"):
        low, high = np.nanquantile(np.where(np.isfinite(view.draws), view.draws, np.nan), [0.025, 0.975], axis=0)
    if view.along is None:
        ax.vlines(view.x, low, high, color=GREY, alpha=0.4, lw=max(0.6, min(4.0, 120 / len(view.x))), label=PRIOR_BAND)
        ax.set(xlabel="readings, in the order of their values", ylabel=views.math(view.label))
    else:
        ax.fill_between(view.x, low, high, color=GREY, alpha=0.25, lw=0, label=PRIOR_BAND)
        for i, curve in enumerate(view.draws[:PRIOR_CURVES]):
            ax.plot(view.x, curve, color=GREY, lw=0.7, alpha=0.8, label=None if i else "prior draws")
        places = f" ({views.place(view.fixed)})" if view.fixed else ""
        ax.set(xlabel=views.math(view.along) + places, ylabel=views.math(view.label))
    draw_readings(ax, view.at, view.values, view.noise)
    ends = np.r_[low, high, view.values - view.noise, view.values + view.noise]
    ends = ends[np.isfinite(ends)]
    room = 0.05 * (np.ptp(ends) or 1.0)  # single draws may leave the picture
    ax.set_ylim(ends.min() - room, ends.max() + room)
    name, spread = view.expected.name, (view.expected.spread, view.expected.low, view.expected.high)
    ax.set_title("{}: spread {:.2g}; prior {:.2g} to {:.2g}".format(name if len(name) < 10 else f"{name}\n", *spread))
    ax.margins(x=0.02)


def map_panels(view: views.View) -> dict[str, Draw]:
    """Panels of mean, sd, truth and error, by name; mean and truth share one colour scale, sd and error another."""
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
    for called, chosen in view.shown_values() if name in ("mean", "sd") else ():
        draw_places(ax, view.at[x][chosen], view.at[y][chosen], called)
    wide, tall = (np.ptp(a) for a in points)
    if 0.5 <= wide / tall <= 2 and not {x, y} & {*TIMES}:  # a length and a time have no common scale
        ax.set_aspect("equal")
    ax.set(xlabel=views.math(x), ylabel=views.math(y), title=f"{views.math(view.label)}: {name}{view.slice}")
    colour_bar(ax, mesh)


def draw_places(ax: Axes, x: np.ndarray, y: np.ndarray, called: str = "readings") -> None:
    """Where readings are, or points of exact conditions, on a map."""
    style: Any = {"ls": "none", "c": ORANGE, "clip_on": False, "label": called, **MARKS[called]}
    style |= {"mec": "white", "mew": 0.5} if called == "readings" else {}
    ax.plot(x, y, **style)


def posterior_panels(result: Result, known: Mapping[str, Any]) -> list[Draw]:
    panels: list[Draw] = []
    for scalar in views.number_draws(result):
        truth = None
        if scalar.owner in known:
            value = numbers(known[scalar.owner], f"truth of {scalar.owner!r}")
            wanted = result.draws(scalar.owner).shape[2:]
            if value.shape != wanted:
                raise InputError(f"truth of {scalar.owner!r}: got shape {value.shape}, expected {wanted}")
            truth = value.ravel()[scalar.component]
        panels.append(partial(draw_posterior, scalar=scalar, truth=truth, spread=result.method.has_spread))
    return panels


def draw_posterior(ax: Axes, scalar: views.NumberDraws, truth: Any = None, spread: bool = True) -> None:
    draws = scalar.draws[np.isfinite(scalar.draws)].astype(float)
    if not draws.size:
        raise InputError(f"unknowns: {scalar.label!r} has no finite draws; see result.diagnose()")
    mean, (low, high) = draws.mean(), np.quantile(draws, [0.025, 0.975])
    title = f"{views.math(scalar.label)} = {views.number(mean)}"
    if draws.size > 1 and spread:
        heights, edges = np.histogram(draws, bins=min(30, int(np.sqrt(draws.size)) + 1), density=True)
        # bins outside the interval get zero width, so that the shading ends exactly at its bounds
        ax.stairs(heights, np.clip(edges, low, high), fill=True, color=BLUE, alpha=0.25, lw=0, label="95% interval")
        ax.stairs(heights, edges, color=BLUE, lw=1.0)
        title += f" [{views.number(low)}, {views.number(high)}]"
    ax.axvline(mean, color=BLUE, label="posterior mean" if spread else "solution")
    if truth is not None:
        ax.axvline(float(truth), color=BLACK, ls="--", lw=1.2, label="truth")
    top, grid = ax.get_ylim()[1], np.linspace(*ax.get_xlim(), 201)
    density = scalar.prior_density(grid)
    if density is not None:
        ax.plot(grid, density, color=GREY, lw=1.0, label="prior")
    ax.set(xlim=grid[[0, -1]], ylim=(0, top), xlabel=views.math(scalar.label), yticks=[], title=title)
    ax.spines["left"].set_visible(False)


def draw_trace(ax: Axes, name: str, draws: np.ndarray, method: Method) -> None:
    for i, chain in enumerate(draws):
        # thousands of points per line would make the SVG or PDF too large to open
        style: Any = {"lw": 0.6, "alpha": 0.8, "rasterized": True, "color": CHAINS[i % len(CHAINS)]}
        ax.plot(chain, label=f"{method.unit} {i}", **style)
    ax.set(xlabel="draw", ylabel=views.math(name))
    if method.is_markov:
        ax.set_title(rf"$\hat{{R}}$ = {rhat_of(draws):.3f}")
    ax.margins(x=0)


def draw_densities(ax: Axes, name: str, draws: np.ndarray, points: Sequence[str]) -> None:
    """Histogram outlines of draws of shape (draws, points), each with the normal of the same mean and sd."""
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    low, high = np.quantile(draws, [0.002, 0.998])
    edges = np.linspace(low, high, min(60, int(2 * np.cbrt(len(draws)))) + 1)
    grid = np.linspace(low, high, 301)
    for i, place in enumerate(points):
        colour = CHAINS[i % len(CHAINS)]
        # normalised by all draws, including those outside the edges
        heights = np.histogram(draws[:, i], edges)[0] / (len(draws) * np.diff(edges))
        ax.stairs(heights, edges, color=colour, lw=1.3, label=place)
        normal = np.exp(-0.5 * ((grid - mean[i]) / sd[i]) ** 2) / (sd[i] * np.sqrt(2 * np.pi))
        ax.plot(grid, normal, color=colour, lw=0.9)  # visible between the dashes: shows which point they belong to
        last = i == len(points) - 1
        ax.plot(grid, normal, color=BLACK, ls=(0, (4, 4)), lw=0.9, label="normal with the same sd" if last else None)
    ax.set(xlabel=views.math(name), xlim=(low, high), yticks=[])
    ax.set_ylim(bottom=0)
    ax.spines["left"].set_visible(False)


def draw_covariance(
    ax: Axes, x: np.ndarray, values: np.ndarray, along: str, title: str, limits: tuple[Any, Any] = (None, None)
) -> None:
    style: Any = {"cmap": VALUES, "vmin": limits[0], "vmax": limits[1], "shading": "gouraud", "rasterized": True}
    mesh = ax.pcolormesh(x, x, values, **style)
    ax.set_aspect("equal")
    name = views.math(along)
    other = f"{name[:-1]}'$" if name.endswith("$") else f"{name}'"
    ax.set(xlabel=name, ylabel=other, title=title)
    colour_bar(ax, mesh)


def colour_bar(ax: Axes, mesh: Any) -> None:
    # an inset is as tall as the panel for any aspect ratio
    bar = ax.get_figure(root=True).colorbar(mesh, cax=ax.inset_axes((1.04, 0, 0.05, 1)))  # type: ignore[union-attr]
    bar.ax.tick_params(labelsize=9)
    bar.outline.set_visible(False)


def scale_bars(ax: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis for horizontal bars, from a power of ten, with room for numbers at their ends."""
    known = [v for v in values if np.isfinite(v)]
    start = 10 ** np.floor(np.log10(0.8 * min(known)))
    ax.set(xscale="log", xlim=(start, max(known) * (max(known) / start) ** 0.2))
    ax.xaxis.set_minor_formatter(NullFormatter())


def forward_panels(check: ForwardCheck) -> dict[str, list[Draw]]:
    """Panels of a forward check, for each field that was solved for."""
    found: dict[str, list[Draw]] = {}
    for field in check.fields:
        if len(field.at) == 1 and len(field.solved):
            found[field.name] = [partial(draw_solutions, check=check, field=field)]
        elif len(field.solved):
            mean = field.solved.mean(axis=0)
            apart = np.abs(np.mean(field.solved - field.drawn, axis=0))
            found[field.name] = [
                partial(_draw_plane, field=field, values=mean, title="mean of the solutions", cmap=VALUES),
                partial(_draw_plane, field=field, values=apart, title="|mean − that of the draws|", cmap=ERRORS),
            ]
    return found


def draw_solutions(ax: Axes, check: ForwardCheck, field: FieldCompared) -> None:
    """Solutions along one coordinate over the band of the field."""
    ((along, x),) = field.at.items()
    if np.isfinite(field.sd).all():
        ax.fill_between(x, *field.interval, color=BLUE, alpha=0.25, lw=0, label="95% interval")
    ax.plot(x, field.mean, color=BLUE, label="posterior mean")
    for i, solution in enumerate(field.solved):
        ax.plot(x, solution, color=SOLUTIONS, lw=0.7, alpha=0.6, label=None if i else "solutions")
    groups = [group for group in check.readings if group.field == field.name]
    for i, group in enumerate(groups):
        style: Any = {"ms": 3.5, "mew": 0, "color": ORANGE, "zorder": 3}
        ax.plot(group.at[along], group.values, "o", label=None if i else "readings", **style)
    low, high = (np.min(field.interval[0]), np.max(field.interval[1]))
    values = np.concatenate([[low, high], *(group.values for group in groups)])
    margin = 0.5 * np.ptp(values)  # a solution that leaves the figure does not hide the rest
    bottom, top = ax.get_ylim()
    ax.set_ylim(max(bottom, values.min() - margin), min(top, values.max() + margin))
    ax.set(xlabel=views.math(along), ylabel=views.math(field.name))
    ax.margins(x=0.02)


def _draw_plane(ax: Axes, field: FieldCompared, values: np.ndarray, title: str, cmap: str) -> None:
    (x, a), (y, b) = field.at.items()
    mesh = ax.pcolormesh(a, b, values, cmap=cmap, shading="gouraud", rasterized=True)
    ax.set(xlabel=views.math(x), ylabel=views.math(y), title=f"{views.math(field.name)}: {title}")
    colour_bar(ax, mesh)


def draw_ranks(ax: Axes, name: str, pit: np.ndarray, band: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """The ECDF of the ranks minus the uniform one, with simultaneous confidence bands."""
    points, low, high = band
    ax.fill_between(points, low - points, high - points, color=GREY, alpha=0.25, lw=0, label="95% of uniform ranks")
    at = np.sort(pit)
    ax.step(
        np.r_[0, at, 1], np.r_[0, np.arange(1, len(at) + 1) / len(at), 1] - np.r_[0, at, 1], where="post", color=BLUE
    )
    ax.set_title(views.math_at(name))
    name_ranks(ax)


def name_ranks(ax: Axes) -> None:
    """The axes of curves of ranks."""
    ax.axhline(0, color=BLACK, lw=0.6)
    ax.set(xlabel="rank of the truth", ylabel="share below, less uniform", xlim=(0, 1))


def draw_history(ax: Axes, name: str, steps: np.ndarray, values: np.ndarray) -> None:
    bound = name == "elbo"
    shown = slice(len(steps) // 10, None) if bound else slice(None)
    for i, row in enumerate(values):
        style: Any = {"color": CHAINS[i % len(CHAINS)], "lw": 0.9, "marker": "." if len(steps) < 20 else None}
        ax.plot(steps[shown], row[shown], label=f"fit {i}" if len(values) > 1 else None, **style)
    ax.set(xlabel="step", ylabel="evidence lower bound" if bound else name)
    if not bound and np.nanmin(values) > 0:
        ax.set_yscale("log")
