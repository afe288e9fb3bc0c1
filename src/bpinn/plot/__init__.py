"""Plots of results and of the prior: fields with their uncertainty, posteriors of unknowns, traces, an overview.

Every function returns a matplotlib `Figure` and does not touch pyplot or the global style, so it works in a script,
in a notebook and on a server: ``bp.plot.overview(result).savefig("overview.png")``.

Blue is the posterior (line: mean, shaded: central interval), dashed black the truth, orange points the readings and
grey the prior. The palette is colour-blind safe.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bpinn import prior
from bpinn.calibration import Calibration
from bpinn.checks import numbers
from bpinn.errors import InputError
from bpinn.forward import ForwardCheck
from bpinn.measurements import Quantity, label
from bpinn.plot import drawing, views
from bpinn.plot.advice import next_sensor as next_sensor
from bpinn.plot.advice import tell_apart as tell_apart
from bpinn.prediction import Prediction
from bpinn.problem import Problem
from bpinn.quantity_at import QuantityAt, coordinates_of, measured
from bpinn.result import Result

__all__ = [
    "band",
    "calibration",
    "covariance",
    "field",
    "forward",
    "history",
    "maps",
    "modes",
    "next_sensor",
    "overview",
    "prior_check",
    "prior_density",
    "tell_apart",
    "traces",
    "unknowns",
]


def band(
    result: Result | Prediction,
    quantity: Quantity | None = None,
    at: views.At = None,
    *,
    truth: Any = None,
    p: float = 0.95,
    ax: Axes | None = None,
    noise: views.Noise = False,
) -> Figure:
    """Plot a quantity along one coordinate: posterior mean, central interval, and readings with one sd of noise.

    Arguments:
        result: a result of `bp.infer`; or a `Prediction`, such as one of `bp.reference.gp`, which is plotted at its
            own points, without readings and without ``quantity``, ``at`` and ``noise``.
        quantity: as in `Result.predict`: a field, a derivative, the name of sensors, or a function of names.
        at: the points; the whole domain by default. With several coordinates, fix all but one, such as
            ``{"x": grid, "t": 0.5}``; only readings on that slice are shown.
        truth: a function of the coordinates, an array with one value per point, or a dictionary of these by name.
        p: probability of the interval.
        ax: axes to draw into; a new figure by default.
        noise: as in `Result.predict`; True plots the predictive interval of new readings.

    Example:
        ``bp.plot.band(result, "u", truth=lambda x: np.sin(6 * x) ** 3).savefig("u.pdf")``
    """
    if isinstance(result, Prediction):
        if quantity is not None or at is not None or noise is not False:
            raise InputError("band: a Prediction has its own quantity, points and noise; leave these arguments out")
        view = views.of_prediction(result, truth, f"band {result.label!r}")
    else:
        _check_result(result, "band")
        if quantity is None:
            raise InputError("band: no quantity given; name one, such as band(result, 'u')")
        view = views.view(result, quantity, at, truth, f"band {label(quantity)!r}", noise=noise)
    view.check_varying(1)
    draw = partial(drawing.draw_band, view=view, p=p)
    if ax is None:
        return drawing.figure([draw], 1, drawing.ALONE)
    with matplotlib.rc_context(drawing.STYLE):
        draw(ax)
        ax.legend(frameon=True, framealpha=0.8, edgecolor="none")  # the legend may cover data
    return ax.get_figure(root=True)  # type: ignore[return-value]


def maps(result: Result, quantity: Quantity, at: views.At = None, *, truth: Any = None) -> Figure:
    """Plot a quantity over two coordinates: mean and sd, and with ``truth`` the truth and the error; dots are readings.

    ``at`` gives a 1-D array of points for each of two coordinates (or a mesh, as from `Problem.grid`) and a number
    for every other coordinate; the whole domain by default. ``truth`` is as in `band`; an array has the mesh's shape.

    Example:
        ``bp.plot.maps(result, "u", {"x": np.linspace(0, 1, 50), "t": np.linspace(0, 2, 80), "y": 0.5})``
    """
    _check_result(result, "maps")
    where = f"maps {label(quantity)!r}"
    if isinstance(at, Mapping):
        at = {c: numbers(a, f"{where}: positions of {c}") for c, a in at.items()}
        axes = {c: a for c, a in at.items() if a.ndim == 1 and a.size > 1}
        if len(axes) == 2 and all(a.ndim < 2 for a in at.values()):
            at = at | dict(zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True))
    view = views.view(result, quantity, at, truth, where)
    view.check_varying(2)
    panels = drawing.map_panels(view)
    return drawing.figure(list(panels.values()), 2 if len(panels) == 4 else len(panels), drawing.BESIDE)


def field(result: Result, name: Quantity, at: views.At = None, *, truth: Any = None, p: float = 0.95) -> Figure:
    """Call `band` or `maps`, depending on how many coordinates the quantity has that ``at`` does not fix.

    Example:
        ``bp.plot.field(result, "u", truth={"u": lambda x, t: np.exp(-t) * np.sin(x)})``
    """
    _check_result(result, "field")
    where = f"field {label(name)!r}"
    needed = coordinates_of(result.problem, measured(result.problem, name, where), where)
    fixed = [c for c in needed if isinstance(at, Mapping) and c in at and np.size(at[c]) == 1]
    if len(needed) - len(fixed) > 1:
        return maps(result, name, at, truth=truth)
    return band(result, name, at, truth=truth, p=p)


def modes(result: Result, name: Quantity, at: views.At = None, *, truth: Any = None, p: float = 0.95) -> Figure:
    """Plot a quantity for each solution in the posterior (see `Result.modes`): its band, or maps of mean and sd.

    If there are several solutions, the last panels are their mixture: all draws together.

    Example:
        ``bp.plot.modes(result, "u").savefig("solutions.png")``
    """
    _check_result(result, "modes")
    where = f"modes {label(name)!r}"
    panels: list[drawing.Draw] = []
    found = result.modes()
    shown = [(f"solution {i}", mode.weight, mode.result) for i, mode in enumerate(found, 1)]
    if len(found) > 1:
        shown.append(("mixture", "all draws", result))
    for called, weight, part in shown:
        view = views.view(part, name, at, truth, where)
        if len(view.varying) == 1:
            drawn: dict[str, drawing.Draw] = {"": partial(drawing.draw_band, view=view, p=p)}
        else:
            view.check_varying(2)
            drawn = {f", {k}": panel for k, panel in drawing.map_panels(view).items() if k in ("mean", "sd")}
        panels += [partial(_titled, draw=draw, title=f"{called}{what}: {weight}") for what, draw in drawn.items()]
    return drawing.figure(panels, min(2, len(panels)), drawing.BESIDE)


def _titled(ax: Axes, draw: drawing.Draw, title: str) -> None:
    draw(ax)
    ax.set_title(title)


def unknowns(result: Result, *, truth: Any = None) -> Figure:
    """Plot the posterior of each unknown and inferred noise: histogram, mean, 95% interval, and the prior density.

    Example:
        ``bp.plot.unknowns(result, truth={"k": 0.7})``
    """
    _check_result(result, "unknowns")
    panels = drawing.posterior_panels(result, views.by_name(result.problem, truth, "unknowns"))
    if not panels:
        raise InputError("unknowns: the problem has no unknowns and no inferred noise; use plot.field or plot.traces")
    return drawing.figure(panels, 3, drawing.BESIDE)


def traces(result: Result) -> Figure:
    """Trace plots of every unknown, every inferred noise and the log density, one line per chain, with R-hat.

    Chains that have converged overlap and look like noise around a constant level.

    Example:
        ``bp.plot.traces(result).savefig("traces.png")``
    """
    _check_result(result, "traces")
    if not result.method.has_spread:
        raise InputError("traces: a single solution has no draws to trace; use plot.history")
    shown = {s.label: s.draws for s in views.number_draws(result)} | {"log density": result.stats.log_density}
    panels: list[drawing.Draw] = [
        partial(drawing.draw_trace, name=name, draws=draws, method=result.method) for name, draws in shown.items()
    ]
    return drawing.figure(panels, 1 if len(panels) < 3 else 2, drawing.FLAT)


def history(result: Result) -> Figure:
    """Plot the evidence lower bound or the loss against the training step, one line per fit.

    If it has not levelled off at the end, use more steps. Positive losses have a logarithmic scale; the first tenth of
    the evidence lower bound is left out, because it starts far below.

    Example:
        ``bp.plot.history(bp.infer(problem, bp.VI(), seed=0)).savefig("history.png")``
    """
    _check_result(result, "history")
    told = {name: values for name, values in result.history.items() if name in ("elbo", "loss")}
    if not told:
        raise InputError(f"history: {type(result.method).__name__} records no training history; use plot.traces")
    steps = result.history["step"]
    panels: list[drawing.Draw] = [
        partial(drawing.draw_history, name=name, steps=steps, values=values) for name, values in told.items()
    ]
    return drawing.figure(panels, 1, drawing.ALONE)


def overview(result: Result, *, truth: Any = None) -> Figure:
    """Plot everything in one figure: each field, each other measured quantity, and each unknown.

    Quantities of one coordinate are bands, others are maps (any third and further coordinate is fixed at the middle of
    the domain). ``truth`` maps names of fields, sensors and unknowns to functions or values, or is a `bp.paper.Truth`.

    Example:
        ``paper = bp.paper.regression(); bp.plot.overview(bp.infer(paper.problem, seed=0), truth=paper.truth)``
    """
    _check_result(result, "overview")
    problem, known = result.problem, views.by_name(result.problem, truth, "overview")
    planes: list[list[drawing.Draw]] = []
    others: list[drawing.Draw] = []
    for name, quantity in views.pictured(problem):
        where = f"overview {name!r}"
        needed = coordinates_of(problem, quantity, where)
        middle = {c: sum(problem.domain[c]) / 2 for c in needed[2:]}
        view = views.view(result, quantity, {**views.mesh(problem, needed[:2]), **middle}, truth, where, called=name)
        if len(needed) > 1:
            # the error already shows the truth
            planes.append([draw for title, draw in drawing.map_panels(view).items() if title != "truth"])
        elif needed:
            others.append(partial(drawing.draw_band, view=view, p=0.95))
        else:
            others.append(
                partial(drawing.draw_posterior, scalar=views.NumberDraws(name, view.prediction.draws), truth=view.truth)
            )
    columns = max((len(row) for row in planes), default=3)
    rows = [panel for row in planes for panel in row + [None] * (columns - len(row))]
    return drawing.figure([*rows, *others, *drawing.posterior_panels(result, known)], columns, drawing.BESIDE)


def prior_density(
    problem: Problem,
    quantities: Sequence[Quantity] | None = None,
    at: views.At = None,
    *,
    draws: int = 20_000,
    seed: int = 0,
) -> Figure:
    """Plot the prior density of quantities at a few points, one panel per quantity; dashed: normal with the same sd.

    The values of a wide network are nearly normal; its derivatives have heavier tails.

    Arguments:
        quantities: the first field and its first two derivatives by default.
        at: a few points; both ends and the middle of the domain by default.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.paper.regression().problem
        >>> figure = bp.plot.prior_density(problem, ("u", "u_x"), {"x": [0.0, 0.5, 1.0]}, draws=1000)
        >>> len(figure.axes)
        2
    """
    _check_problem(problem, "prior_density")
    if quantities is None:
        name = next(iter(problem.fields))
        along = problem.inputs(name)[0]
        quantities = (name, f"{name}_{along}", f"{name}_{along}{along}")
    elif isinstance(quantities, str) or not isinstance(quantities, Sequence) or not quantities:
        raise InputError(f"prior_density: quantities must be a list such as ('u', 'u_x'), got {quantities!r}")
    if at is None:
        at = {c: np.linspace(*bounds, 3) for c, bounds in problem.domain.items()}
    panels: list[drawing.Draw] = []
    for quantity in quantities:
        band = prior.predict(problem, quantity, at, draws=draws, seed=seed)
        flat = band.draws.reshape(draws, -1).astype(float)
        if flat.shape[1] > len(drawing.CHAINS):
            raise InputError(f"prior_density: {flat.shape[1]} points; give at most {len(drawing.CHAINS)}")
        places = [views.place({c: a.ravel()[i] for c, a in band.at.items()}) for i in range(flat.shape[1])]
        panels.append(partial(drawing.draw_densities, name=band.label, draws=flat, points=places))
    return drawing.figure(panels, 3, drawing.BESIDE)


def prior_check(found: prior.PriorCheck | Problem) -> Figure:
    """Plot the readings over draws of the prior, one panel for each group of sensors: could the prior have made them?

    Readings along one coordinate are drawn over curves of the prior and their 95% band; others, each with the 95%
    range of readings at its place. Exact conditions are left out.

    Arguments:
        found: a problem, or what `bp.prior.check` found; ``bp.prior.check(problem).plot()`` is the same.

    Example:
        ``bp.plot.prior_check(problem).savefig("prior.png")``
    """
    if not isinstance(found, prior.PriorCheck):
        _check_problem(found, "prior_check")
        found = prior.check(found)
    panels: list[drawing.Draw] = [partial(drawing.draw_prior, view=view) for view in views.prior_views(found)]
    if not panels:
        raise InputError("prior_check: the problem has no noisy readings to compare with the prior; use prior_density")
    return drawing.figure(panels, min(2, len(panels)), drawing.BESIDE if len(panels) > 1 else drawing.ALONE)


def covariance(
    problem: Problem, quantity: Quantity | None = None, at: views.At = None, *, draws: int = 20_000, seed: int = 0
) -> Figure:
    """Plot the prior covariance of a quantity between points along one coordinate, estimated from draws.

    ``quantity`` is the first field by default. ``at`` gives points along one coordinate and a number for every other
    one; by default the first coordinate varies and the others are fixed at the middle of the domain.

    Example:
        ``bp.plot.covariance(problem, "u_x").savefig("covariance.png")``
    """
    _check_problem(problem, "covariance")
    quantity = next(iter(problem.fields)) if quantity is None else quantity
    where = f"covariance {label(quantity)!r}"
    if at is None:
        first, *others = coordinates_of(problem, measured(problem, quantity, where), where) or ("",)
        at = {c: sum(problem.domain[c]) / 2 for c in others}
        at |= {first: np.linspace(*problem.domain[first], 51)} if first else {}
    located = QuantityAt.of(problem, quantity, at, where)
    varying = [c for c, a in located.quantity.at.items() if np.ptp(a) > 0]
    if len(varying) != 1:
        came = f"{', '.join(varying)} vary" if varying else "no coordinate varies"
        raise InputError(f"{where}: {came}; give points along one coordinate, and a number for each other one, in at")
    order = np.argsort(located.quantity.at[varying[0]], kind="stable")
    values = prior.covariance(problem, quantity, at, draws=draws, seed=seed)[np.ix_(order, order)]
    fixed = views.place({c: a[0] for c, a in located.quantity.at.items() if c not in varying})
    title = f"prior covariance of {views.math(located.label)}" + (f" ({fixed})" if fixed else "")
    x = located.quantity.at[varying[0]][order]
    return drawing.figure(
        [partial(drawing.draw_covariance, x=x, values=values, along=varying[0], title=title)], 1, drawing.SQUARE
    )


def calibration(found: Calibration, names: Sequence[str] | None = None) -> Figure:
    """Plot the SBC ranks of the truths, one panel per quantity: within the shaded band the posterior is calibrated.

    The line is the ECDF of the ranks minus the uniform one. First above the band and then below it means error bars
    that are too narrow; the opposite, too wide; on one side throughout, a bias. ``names`` defaults to the unknowns, the
    log likelihood and a selection of the other quantities.

    Example:
        ``bp.plot.calibration(bp.calibration.sbc(problem)).savefig("sbc.png")``
    """
    if not isinstance(found, Calibration):
        raise InputError(f"calibration: expected a Calibration from bp.calibration.sbc, got {type(found).__name__}")
    if names is None:
        last = [name for name in found.names if " at " not in name]
        others = [name for name in found.names if " at " in name]
        names = [*others[:: max(1, len(others) // 5)], *last]
    band = found.band()
    panels: list[drawing.Draw] = [
        partial(drawing.draw_ranks, name=name, pit=found.pit[:, found.column(name)], band=band) for name in names
    ]
    return drawing.figure(panels, 3, drawing.BESIDE, one_x=True, one_y="all")


def forward(check: ForwardCheck) -> Figure:
    """Plot a forward check: the solutions of the equations over the band of each field, with its readings.

    In space and time: the mean of the solutions, and how far it is from the field.

    Example:
        ``bp.plot.forward(bp.forward_check(result)).savefig("forward.png")``
    """
    if not isinstance(check, ForwardCheck):
        raise InputError(f"forward: expected a result of bp.forward_check, got {type(check).__name__}")
    panels = [panel for panels in drawing.forward_panels(check).values() for panel in panels]
    if not panels:
        raise InputError("forward: the equations could not be solved for any draw, so there is nothing to plot")
    return drawing.figure(panels, 2, drawing.BESIDE)


def _check_problem(problem: Problem, where: str) -> None:
    if not isinstance(problem, Problem):
        hint = "; use result.problem" if isinstance(problem, Result) else ""
        raise InputError(f"{where}: expected a bp.Problem as first argument, got {type(problem).__name__}{hint}")


def _check_result(result: Result, where: str) -> None:
    if not isinstance(result, Result):
        raise InputError(f"{where}: expected a Result from bp.infer as first argument, got {type(result).__name__}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
