"""Results, verdicts, problems and predictions as they appear in a notebook: a table, a verdict, a small figure.

Nothing is fitted here, and nothing that takes long is computed: a large prediction that has not been evaluated, or the
verdict on many readings, is announced instead.
"""

import base64
from collections.abc import Mapping, Sequence
from functools import partial, singledispatch
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from bpinn.diagnostics import VERDICTS, Diagnosis
from bpinn.forward import ForwardCheck
from bpinn.labelled import columns
from bpinn.plot import drawing, views
from bpinn.prediction import Prediction
from bpinn.predictive import Check
from bpinn.prior import PriorCheck
from bpinn.problem import Problem
from bpinn.report import environment, formatting, image
from bpinn.result import Result
from bpinn.solutions import Mode
from bpinn.summary import Summary, table_of

MOST_ROWS = 20  # of a table
MOST_PANELS = 3
MOST_BYTES = 32 * 2**20  # of draws that are evaluated to be shown
MOST_JUDGED = 2_000_000  # readings times draws
SMALL = (3.3, 2.4)  # inches of a panel
DPI = 110

Part = Mapping[str, Any]


def html(what: Any) -> str:
    """An object as HTML. All text is escaped: names and messages may hold anything."""
    return environment().get_template("cell.html").render(parts=parts_of(what))


@singledispatch
def parts_of(what: Any) -> list[Part]:
    """The parts of an object, from top to bottom."""
    return [_line(repr(what))]


@parts_of.register
def _(health: Diagnosis) -> list[Part]:
    return [_verdict(health.verdict, VERDICTS[health.verdict], health.reasons, health.advice)]


@parts_of.register
def _(summary: Summary) -> list[Part]:
    judged = [*parts_of(summary.health), *_disagrees(summary.forward)]
    return [*_numbers(summary.table, bool(summary.warning)), _line(summary.about), *judged]


def _disagrees(reasons: Sequence[str]) -> list[Part]:
    """What a forward check found, if one was made and disagrees."""
    return [_verdict("bad", "forward check: disagrees", reasons)] if reasons else []


@parts_of.register
def _(result: Result) -> list[Part]:
    quick = "_diagnosis" in vars(result) or _readings(result.problem) * result.z[..., 0].size <= MOST_JUDGED
    bad = quick and result.diagnose().verdict == "bad"
    judged = parts_of(result.diagnose()) if quick else [_line("Not judged yet: result.diagnose() gives the verdict.")]
    found = [
        _line(result.about),
        *_numbers(table_of(result.monitor, result.mixture.functionals, result.method), bad),
        *judged,
    ]
    found += _disagrees(result.forward_noted)
    scalars = list(views.number_draws(result))
    finite = [s for s in scalars[:MOST_PANELS] if np.any(np.isfinite(s.draws))]
    panels: list[drawing.Draw] = [
        partial(drawing.draw_posterior, scalar=s, spread=result.method.has_spread) for s in finite
    ]
    if panels:
        more = f"; the first {len(panels)} of {len(scalars)}" if len(scalars) > MOST_PANELS else ""
        found.append(_figure(panels, f"posterior of {', '.join(s.label for s in finite)}{more}"))
    return found


@parts_of.register
def _(mode: Mode) -> list[Part]:
    return [_line(str(mode)), *parts_of(mode.result)]


@parts_of.register
def _(problem: Problem) -> list[Part]:
    name, comma = formatting.name, Markup(", ")
    places = [Markup("{} in {}").format(name(c), formatting.interval(*ends)) for c, ends in problem.domain.items()]
    about = [("domain", comma.join(places))]
    for field, surrogate in problem.fields.items():
        inputs = comma.join(name(c) for c in problem.inputs(field))
        about.append(("field", Markup("{}({}): {}").format(name(field), inputs, formatting.field(surrogate))))
    about += [
        ("unknown", Markup("{}: {}").format(name(unknown), formatting.prior(prior)))
        for unknown, prior in problem.scalars.items()
    ]
    rows = [[s["name"], s["quantity"], s["size"], s["range"], s["noise"]] for s in formatting.sensors(problem, {})]
    found = [_line(Markup("{}: {}").format(*pair)) for pair in about[:MOST_ROWS]]
    found += [{"kind": "equation", "math": e["math"], "code": e["code"]} for e in formatting.equations(problem, {})]
    return [*found, *_table(["sensors", "quantity", "size", "values", "noise"], rows)] if rows else found


@parts_of.register
def _(prediction: Prediction) -> list[Part]:
    found = [_line(repr(prediction))]
    if not prediction.is_quick(MOST_BYTES):
        return [*found, _line("Not evaluated yet: mean, sd, interval and draws do so.")]
    where = f"prediction of {prediction.label!r}"
    view = views.of_prediction(prediction, None, where)
    free, is_mesh = view.varying, np.squeeze(prediction.mean).ndim == 2
    if len(free) == 1 and prediction.mean.size > 2 and np.all(np.isfinite(prediction.mean)):
        return [*found, _figure([partial(drawing.draw_band, view=view, p=0.95)], where, (4.8, 2.8))]
    if len(free) == 2 and is_mesh and np.all(np.isfinite(prediction.mean)):
        return [*found, _figure(list(drawing.map_panels(view).values()), where)]
    numbers = {c: prediction.at[c] for c in prediction.at} | columns(prediction)
    flat = {c: np.broadcast_to(values, prediction.mean.shape).ravel() for c, values in numbers.items()}
    rows = [[i, *row] for i, row in enumerate(zip(*([f"{v:.4g}" for v in a] for a in flat.values()), strict=True))]
    return [*found, *_table(["", *flat], rows, "right")]


@parts_of.register
def _(check: Check) -> list[Part]:
    rows = [[g.name, g.size, f"{g.scatter:.3g}", g.verdict, f"{g.farthest:.1f}"] for g in check.groups]
    by_name = {group.name: group for group in check.groups}
    far = [
        f"{by_name[name].named(i)} is {by_name[name].values[i]:.4g}, expected {by_name[name].mean[i]:.3g} ± "
        f"{by_name[name].sd[i]:.2g}"
        for name, i in check.surprising[:MOST_ROWS]
    ]
    words = "nothing contradicts the model" if check.fits else "check the readings"
    judged = _verdict("good" if check.fits else "care", words, far)
    return [*_table(["sensors", "size", "p", "verdict", "largest z-score"], rows), judged]


@parts_of.register
def _(check: ForwardCheck) -> list[Part]:
    kind = {"agrees": "good", "disagrees": "bad"}.get(check.verdict, "care")
    return [_verdict(kind, f"forward check: {check.verdict}", [*check.reasons, *check.notes], check.advice)]


@parts_of.register
def _(check: PriorCheck) -> list[Part]:
    words = "the prior could have produced the readings" if check.is_possible else "check the prior"
    return [_verdict("good" if check.is_possible else "care", words, [str(group) for group in check.groups])]


def _readings(problem: Problem) -> int:
    return sum(len(readings.values) for readings in problem.readings)


def _line(text: str) -> Part:
    return {"kind": "line", "text": text}


def _verdict(verdict: str, words: str, reasons: Sequence[str], advice: Sequence[str] = ()) -> Part:
    return {"kind": "verdict", "verdict": verdict, "words": words, "reasons": reasons, "advice": advice}


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[Any]], side: str = "left", struck: bool = False
) -> list[Part]:
    """A table; words are aligned at the left side, numbers at the right."""
    shown = {"kind": "table", "columns": titles, "rows": rows[:MOST_ROWS], "side": side, "struck": struck}
    more = [_line(f"… and {len(rows) - MOST_ROWS} more")] if len(rows) > MOST_ROWS else []
    return [shown, *more]


def _numbers(table: Any, struck: bool) -> list[Part]:
    """The table of unknowns, as a summary prints it; struck through if it is not to be trusted."""
    if table.empty:
        return []
    titles, formats = Summary.formats(table)
    rows = [[name, *(f(v) for f, v in zip(formats, row, strict=True))] for name, *row in table.itertuples(name=None)]
    return _table(["", *titles], rows, "right", struck)


def _figure(panels: Sequence[drawing.Draw], about: str, size: tuple[float, float] = SMALL) -> Part:
    drawn: Figure = drawing.figure(panels, MOST_PANELS, size)
    data = "data:image/png;base64," + base64.b64encode(image(drawn, "png", DPI)).decode()
    return {"kind": "figure", "data": data, "about": about}
