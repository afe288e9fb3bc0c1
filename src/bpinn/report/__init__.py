"""The report: a self-contained HTML page, its figures as files, and the predictions as tables."""

import base64
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from bpinn import predictive, prior
from bpinn.design import NextSensor, Separation, attempted_advice
from bpinn.diagnostics import VERDICTS
from bpinn.errors import InputError
from bpinn.expressions import Expression
from bpinn.forward import ForwardCheck, attempted
from bpinn.plot import drawing, views
from bpinn.quantities import StoredFunction
from bpinn.report import embedded, formatting, images, tables
from bpinn.report.figures import (
    Picture,
    Portrait,
    advice_pictures,
    forward_pictures,
    pictures,
    portraits,
    prior_pictures,
    solution_pictures,
)
from bpinn.report.images import image as image
from bpinn.result import Result
from bpinn.run_folder.files import write_file
from bpinn.solutions import Mode

__all__ = ["image", "write"]

PAGE = "report.html"
SCRIPTS = ("axes.js", "panels.js", "page.js")
MOST_DRAWS = 1000  # used for figures and tables of fields


def write(
    result: Result,
    folder: str | Path,
    *,
    title: str = "Result",
    formulas: Mapping[str, Expression] | None = None,
    truth: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    forward: ForwardCheck | str | None = None,
    load_from: str | None = None,
) -> Path:
    """Write a result's report into a folder: report.html, figures/ (PNG and SVG) and tables/ (CSV).

    Arguments:
        result: a result of `bp.infer`.
        folder: the output folder; created if it does not exist.
        title: the title of the page.
        formulas: the equations as formulas, by name; by default the page shows the source of their functions.
        truth: known truths by name, functions of the coordinates or numbers, for comparison.
        sources: the file that the readings come from, by name of the sensors.
        notes: sentences about the data, such as what was left out, to show below them.
        forward: a forward check, or why there is none; by default it is made here.
        load_from: the path that the page's Python example loads.

    Returns:
        The path of the page.

    Example:
        ``bp.report.write(result, "report", title="Reaction rate")``
    """
    if not isinstance(result, Result):
        raise InputError(f"report: expected a Result from bp.infer as first argument, got {type(result).__name__}")
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"report: {folder} is a file; give a folder")
    truth = views.by_name(result.problem, truth, "report")
    fewer = result.thinned(MOST_DRAWS)
    found = portraits(fewer, truth)
    check = None if not result.method.has_spread else result.diagnose().check or predictive.check(fewer)
    forward = attempted(result) if forward is None else forward
    for inside in ("figures", "tables"):
        _make(folder / inside)
    shown: dict[str, list[dict[str, str]]] = {}
    modes = result.modes()
    modes = modes if len(modes) > 1 else []
    before = _prior_check(result)
    drawn = [*prior_pictures(before)] if before is not None else []
    following = attempted_advice(result)
    solutions = [portraits(mode.result.thinned(MOST_DRAWS), truth) for mode in modes]
    more = (*solution_pictures(result.problem, solutions), *forward_pictures(forward), *advice_pictures(following))
    for picture in (*drawn, *pictures(result, found, check, truth), *more):
        shown.setdefault(picture.group, []).append(_save_picture(picture, folder / "figures"))
    page = _page(
        result,
        found,
        check,
        before,
        forward,
        following,
        modes,
        title,
        formulas or {},
        sources or {},
        notes,
        shown,
        truth,
        tables.save(result, found, check, folder / "tables"),
        embedded.gather(result, found, check, modes, solutions),
        load_from,
    )
    write_file(folder / PAGE, page.encode())
    return folder / PAGE


def _prior_check(result: Result) -> prior.PriorCheck | None:
    """The readings beside the prior, if the method has one, the equations are known and there are noisy readings."""
    readings = result.problem.readings
    if not result.method.is_posterior or any(isinstance(r.equation.function, StoredFunction) for r in readings):
        return None
    try:
        found = prior.check(result.problem)
    except InputError:  # no finite draw; the verdict says so
        return None
    return found if found.groups else None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"report: {folder} cannot be created: {error.strerror or error}") from None


def _save_picture(picture: Picture, folder: Path) -> dict[str, str]:
    svg, stem = image(picture.figure, "svg"), tables.stem(picture.name)
    picture.figure.set_layout_engine("none")  # it has just been laid out
    write_file(folder / f"{stem}.svg", svg)
    write_file(folder / f"{stem}.png", image(picture.figure, "png"))
    narrow = picture.narrow
    return {
        "caption": picture.caption,
        "stem": stem,
        "data": images.embedded(svg),
        "narrow": "" if narrow is None else images.embedded(image(narrow, "svg")),
    }


def _number(value: float) -> str:
    return views.number(value) if np.isfinite(value) else "–"


def _with_error(mean: float, sd: float) -> str:
    """Such as 0.805 ± 0.066: two digits of the error, and the value with as many decimals."""
    if not np.isfinite(sd) or sd <= 0:
        return _number(mean)
    decimals = int(1 - np.floor(np.log10(sd)))
    if not 0 <= decimals <= 6:
        return f"{_number(mean)} ± {sd:.2g}"
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}".replace("-", "−")


@cache
def environment() -> Environment:
    """The templates of this package; they escape what is put into them."""
    loader = PackageLoader("bpinn", "report")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters["number"] = _number
    found.filters["hash"] = hash_source
    found.globals["colours"] = formatting.COLOURS
    found.globals["chain_colours"] = [(c, drawing.DARK.get(c.lower(), c)) for c in drawing.CHAINS]
    return found


def hash_source(text: str) -> str:
    """How a content policy names a script or style sheet in the page: by the hash of its text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def script() -> Markup:
    """The script of the page. It must not contain what would end its element."""
    source = "".join(files("bpinn.report").joinpath(name).read_text("utf-8") for name in SCRIPTS)
    return Markup(f'\n"use strict";\n(() => {{\n{source}}})();\n')


def _page(
    result: Result,
    found: list[Portrait],
    check: predictive.Check | None,
    before: prior.PriorCheck | None,
    forward: ForwardCheck | str,
    following: NextSensor | Separation | str,
    modes: list[Mode],
    title: str,
    formulas: Mapping[str, Expression],
    sources: Mapping[str, str],
    notes: Sequence[str],
    shown: dict[str, list[dict[str, str]]],
    truth: Mapping[str, Any],
    saved: list[tables.Table],
    touched: embedded.Page,
    load_from: str | None,
) -> str:
    health, problem = result.diagnose(), result.problem
    return environment().get_template("page.html").render(
        title=title,
        made=datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
        health=health,
        verdict=VERDICTS[health.verdict],
        extent=result.extent,
        method=type(result.method).__name__,
        stopped=result.interrupted,
        unknowns=_unknowns(result, truth),
        domain=[(formatting.name(c), formatting.interval(*bounds)) for c, bounds in problem.domain.items()],
        equations=formatting.equations(problem, formulas),
        fields=[(formatting.name(f), [formatting.name(c) for c in problem.inputs(f)], formatting.field(s))
                for f, s in problem.fields.items()],
        priors=[(formatting.name(u), formatting.prior(p))
                for u, p in problem.scalars.items()],
        sensors=formatting.sensors(problem, sources),
        notes=notes,
        solutions=[(mode, _unknowns(mode.result, truth)) for mode in modes],
        portraits=[(p.name, shown.get(p.name, []), p.errors) for p in found],
        pictures=shown,
        prior=[] if before is None else before.groups,
        check=check,
        forward=forward,
        following=[] if isinstance(following, str) else str(following).splitlines(),
        surprising=_surprising(check),
        chains=_chains(result),
        markov=result.method.is_markov,
        settings=formatting.settings(result.method),
        seed=result.seed,
        versions=result.versions,
        seconds=result.seconds,
        tables=saved,
        unknowns_table=next((t for t in saved if t.stem == tables.UNKNOWNS), None),
        script=script(),
        data=htmlsafe_json_dumps(touched.data, separators=(",", ":"), allow_nan=False),
        left_out=touched.left_out,
        load_from=load_from,
        most=MOST_DRAWS,
    )  # fmt: skip


def _unknowns(result: Result, truth: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    table = result.summary().table
    scalars = list(views.number_draws(result))
    for scalar in scalars:
        row = table.loc[scalar.label]
        known = truth.get(scalar.owner)
        known = None if known is None else float(np.ravel(known)[scalar.component])
        rows.append(
            {
                "name": scalar.label,
                "math": formatting.name(scalar.label.replace("[", "_").rstrip("]")),
                **{key: float(row.get(key, np.nan)) for key in ("mean", "sd", "2.5%", "97.5%", "rhat", "ess")},
                "truth": known,
                "shown": _with_error(float(row["mean"]), float(row["sd"])),
            }
        )
    return rows


def _surprising(check: predictive.Check | None) -> list[dict[str, Any]]:
    if check is None:
        return []
    groups = {group.name: group for group in check.groups}
    rows = []
    for name, i in check.surprising:
        group = groups[name]
        rows.append(
            {
                "sensors": name,
                "number": f"{group.unit} {i + 1}",
                "place": group.place(i, " = "),
                "value": group.values[i],
                "mean": group.mean[i],
                "sd": group.sd[i],
                "score": group.score[i],
            }
        )
    return rows


def _chains(result: Result) -> list[dict[str, Any]]:
    """Statistics of each chain; empty if the sampler records none."""
    stats = result.stats
    if stats.acceptance is None or stats.step_size is None:
        return []
    rows = []
    for i in range(result.z.shape[0]):
        row: dict[str, Any] = {
            "acceptance": float(stats.acceptance[i].mean()),
            "step_size": float(stats.step_size[i, -1]),
        }
        row["gradients"] = float(np.median(stats.gradients[i])) if stats.gradients is not None else np.nan
        row["divergent"] = int(stats.divergent[i].sum()) if stats.divergent is not None else 0
        rows.append(row | {"log_density": float(stats.log_density[i].mean())})
    return rows


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
