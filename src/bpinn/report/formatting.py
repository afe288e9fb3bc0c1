"""Text and MathML for a problem and its settings."""

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np
import numpyro.distributions as dist
from markupsafe import Markup

from bpinn.expressions import Expression
from bpinn.fields import Field
from bpinn.measurements import innermost, label
from bpinn.methods import Method
from bpinn.notation import mathml_name, mathml_number
from bpinn.problem import Problem
from bpinn.storage import describe_quantity

PARAMETERS = {"loc": "mean", "scale": "sd", "low": "from", "high": "to"}


def math(inner: str, block: bool = False, said: str | None = None) -> Markup:
    """A ``math`` element. ``inner`` comes from `bpinn.notation`, which escapes names."""
    display = ' display="block"' if block else ""
    spoken = Markup(' alttext="{}"').format(said) if said else ""
    return Markup(f"<math{display}{spoken}>{inner}</math>")


def name(text: str) -> Markup:
    return math(mathml_name(text))


def equation(title: str, formula: Expression) -> Markup:
    return math(f"<mrow>{mathml_name(title)}<mo>=</mo>{formula.mathml}</mrow>", block=True, said=f"{title} = {formula}")


def interval(low: float, high: float) -> Markup:
    ends = [f'<mo stretchy="false">{bracket}</mo>' for bracket in "[]"]
    return math(f"<mrow>{ends[0]}{mathml_number(low)}<mo>,</mo>{mathml_number(high)}{ends[1]}</mrow>")


def equations(problem: Problem, formulas: Mapping[str, Expression]) -> list[dict[str, Any]]:
    """Each measured equation: as a formula if one is given, otherwise as the source of its function."""
    found: dict[str, dict[str, Any]] = {
        title: {"name": title, "math": equation(title, formula), "code": None} for title, formula in formulas.items()
    }
    for sensors in problem.sensors.values():
        quantity = innermost(sensors.quantity)
        if isinstance(quantity, str) or label(quantity) in found:
            continue
        about = describe_quantity(quantity)
        code = about["source"] or f"{about['function']}({', '.join(about['arguments'])})"
        found[label(quantity)] = {"name": label(quantity), "math": None, "code": code.strip()}
    return list(found.values())


def prior(distribution: dist.Distribution) -> str:
    """Such as 'Normal, mean 0, sd 1'."""
    kind = type(distribution).__name__
    if isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        shape = "×".join(str(n) for n in distribution.shape())
        return f"{prior(distribution.base_dist)} (each of {shape})"
    normal = isinstance(distribution, dist.Normal)
    parts = []
    for parameter in distribution.arg_constraints:
        value = getattr(distribution, parameter, None)
        if value is None or isinstance(value, dist.Distribution):
            continue
        said = PARAMETERS.get(parameter, parameter) if normal or parameter in ("low", "high") else parameter
        parts.append(f"{said} {_shown(value)}")
    return ", ".join([kind, *parts])


def _shown(value: Any) -> str:
    numbers = np.asarray(value)
    return f"{float(numbers):.4g}" if numbers.ndim == 0 else f"[{', '.join(f'{v:.4g}' for v in numbers.ravel()[:6])}]"


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
        rows.append(
            {
                "name": readings.name,
                "quantity": label(stated.quantity),
                "count": len(readings.values),
                "range": _range(readings.values),
                "noise": ", ".join(part for part in (noise, readings.likelihood.describe()) if part),
                "source": sources.get(readings.name, ""),
            }
        )
    return rows


def _range(values: np.ndarray) -> str:
    size = np.abs(values).max() or 1.0
    low, high = (float(np.round(v / size, 6) * size) + 0.0 for v in (values.min(), values.max()))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def settings(method: Method) -> dict[str, str]:
    """The method's settings by name; counts that it chooses itself are shown as "automatic"."""
    return {
        f.name: "automatic"
        if getattr(method, f.name) is None and f.name.startswith("num_")
        else str(getattr(method, f.name))
        for f in dataclass_fields(method)
    }
