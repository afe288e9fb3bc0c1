"""Text and MathML for a problem and its settings."""

import textwrap
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np
import numpyro.distributions as dist
from markupsafe import Markup, escape

from bpinn.expressions import Expression
from bpinn.fields import Field
from bpinn.measurements import innermost, label
from bpinn.methods import Method
from bpinn.notation import mathml_name, mathml_number
from bpinn.problem import Problem
from bpinn.readings import Readings
from bpinn.storage import describe_quantity

COLOURS = {"good": "#009E73", "care": "#E69F00", "bad": "#D55E00"}  # of verdicts, from Okabe and Ito's palette
PARAMETERS: dict[type, dict[str, str]] = {
    dist.Normal: {"loc": "mean", "scale": "sd"},
    dist.HalfNormal: {"scale": "sd"},
    dist.LogNormal: {"loc": "log mean", "scale": "log sd"},
}


def math(inner: str, tall: bool = False, said: str | None = None) -> Markup:
    """A ``math`` element. ``inner`` comes from `bpinn.notation`, which escapes names."""
    display = ' displaystyle="true"' if tall else ""
    spoken = Markup(' alttext="{}"').format(said) if said else ""
    return Markup(f"<math{display}{spoken}>{inner}</math>")


def name(text: str) -> Markup:
    return math(mathml_name(text))


def equation(title: str, formula: Expression, stated: tuple[str, str] = ("", "")) -> Markup:
    """A formula with its name and, as MathML and as text, the values that it is read to have.

    These are an element of their own, which goes to the next line where the page is narrow.
    """
    inner = f"<mrow>{mathml_name(title)}<mo>=</mo>{formula.mathml}</mrow>"
    shown = math(inner, tall=True, said=f"{title} = {formula}")
    return shown + Markup("\n") + math(f"<mrow>{stated[0]}</mrow>", True, stated[1].strip()) if stated[0] else shown


def statement(readings: Readings) -> tuple[str, str]:
    """What readings say of their quantity, such as '= 0 ± 0.05' or '= data ± noise', as MathML and as text."""
    same = len(readings.values) > 1 and np.ptp(readings.values) == 0
    value = f"{readings.values[0]:.4g}"
    parts = [mathml_number(float(value)), value] if same else ["<mtext>data</mtext>", "data"]
    if readings.noise_name is not None:
        noise = [mathml_name(readings.noise_name), readings.noise_name]
    elif readings.noise is not None:
        low, high = (float(f"{v:.4g}") for v in (readings.noise.min(), readings.noise.max()))
        between = f"{low:g} to {high:g}"
        noise = [mathml_number(low), f"{low:g}"] if low == high else [f"<mtext>({between})</mtext>", f"({between})"]
    else:
        noise = []
    law = escape(readings.likelihood.describe())
    after = [f"<mtext>\u2002{law}</mtext>", f", {law}"] if law else ["", ""]
    mathml, text = ("".join(pair) for pair in zip(parts, ["<mo>±</mo>", " ± "], noise, strict=True)) if noise else parts
    return f"<mo>=</mo>{mathml}{after[0]}", f" = {text}{after[1]}"


def interval(low: float, high: float) -> Markup:
    ends = [f'<mo stretchy="false">{bracket}</mo>' for bracket in "[]"]
    return math(f"<mrow>{ends[0]}{mathml_number(low)}<mo>,</mo>{mathml_number(high)}{ends[1]}</mrow>")


def equations(problem: Problem, formulas: Mapping[str, Expression]) -> list[dict[str, Any]]:
    """Each measured equation, with the values that it is read to have.

    As a formula if one is known, otherwise as the source of its function. ``stated`` has what does not fit behind the
    formula: readings by several sensors, averages and the like, and anything about a function shown as source.
    """
    known = dict(formulas)
    codes: dict[str, str] = {}
    stated: dict[str, list[tuple[Readings, bool]]] = {title: [] for title in known}
    for readings in problem.readings:
        measured = problem.sensors[readings.name].quantity
        quantity = innermost(measured)
        if isinstance(quantity, str):
            continue
        title = label(quantity)
        stated.setdefault(title, []).append((readings, measured is quantity))
        formula = getattr(quantity, "expression", None)
        if title not in known and isinstance(formula, Expression):
            known[title] = formula
        if title not in known:
            about = describe_quantity(quantity)
            code = about["source"] or f"{about['function']}({', '.join(about['arguments'])})"
            codes[title] = textwrap.dedent(code).strip()
    return [_equation(title, known.get(title), codes.get(title), said) for title, said in stated.items()]


def _equation(
    title: str, formula: Expression | None, code: str | None, stated: list[tuple[Readings, bool]]
) -> dict[str, Any]:
    alone = formula is not None and len(stated) == 1 and stated[0][1]
    lines = []
    for readings, direct in () if alone else stated:
        mathml, text = statement(readings)
        left = mathml_name(title) if direct else f"<mtext>{escape(readings.name)}</mtext>"
        said = math(f"<mrow>{left}{mathml}</mrow>", said=f"{title if direct else readings.name}{text}")
        lines.append((said, f"{readings.name}, {readings.size}"))
    if formula is None:
        return {"math": None, "code": code, "stated": lines}
    return {
        "math": equation(title, formula, statement(stated[0][0]) if alone else ("", "")),
        "code": None,
        "stated": lines,
    }


def prior(distribution: dist.Distribution) -> str:
    """Such as 'Normal, mean 0, sd 1'."""
    kind = type(distribution).__name__
    if isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        shape = "×".join(str(n) for n in distribution.shape())
        return f"{prior(distribution.base_dist)} (each of {shape})"
    called = {"low": "from", "high": "to"} | PARAMETERS.get(type(distribution), {})
    parts = []
    for parameter in distribution.arg_constraints:
        value = getattr(distribution, parameter, None)
        if value is None or isinstance(value, dist.Distribution):
            continue
        parts.append(f"{called.get(parameter, parameter)} {_shown(value)}")
    return ", ".join([kind, *parts])


def _shown(value: Any) -> str:
    numbers = np.asarray(value)
    shown = [f"{v:.4g}".replace("-", "−") for v in numbers.ravel()[:6]]
    return shown[0] if numbers.ndim == 0 else f"[{', '.join(shown)}]"


def field(surrogate: Field) -> str:
    return surrogate.describe() + (", positive" if surrogate.positive else "")


def sensors(problem: Problem, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = []
    for readings in problem.readings:
        stated = problem.sensors[readings.name]
        if readings.noise_name is not None:
            noise = f"inferred ({readings.noise_name})"
        elif readings.noise is None:
            noise = ""
        else:
            low, high = readings.noise.min(), readings.noise.max()
            noise = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
            noise = f"tolerance {noise}" if readings.is_exact else noise
        rows.append(
            {
                "name": readings.name,
                "quantity": label(stated.quantity),
                "size": readings.size,
                "exact": readings.is_exact,
                "range": _range(readings.values),
                "noise": ", ".join(part for part in (noise, readings.likelihood.describe()) if part),
                "source": sources.get(readings.name, ""),
            }
        )
    return rows


def _range(values: np.ndarray) -> str:
    size = np.abs(values).max() or 1.0
    low, high = (float(np.round(v / size, 6) * size) + 0.0 for v in (values.min(), values.max()))
    return (f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}").replace("-", "−")


def settings(method: Method) -> dict[str, str]:
    """The method's settings by name; counts that it chooses itself are shown as "automatic"."""
    return {
        f.name: "automatic"
        if getattr(method, f.name) is None and f.name.startswith("num_")
        else str(getattr(method, f.name))
        for f in dataclass_fields(method)
    }
