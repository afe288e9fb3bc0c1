"""Equations that are neutral about their unknowns: which can be, and which are.

The points of an equation, with values of zero, have a probability of their own before any reading of a field: the
evidence of the equation, which depends on the unknowns. A neutral equation is divided by it. There is a closed form in
the linear parameters of fields: all of a Gaussian process or an expansion, the output layer of a network, whose other
weights are given. Equations that are not linear in them, also because a field is positive, are linearised around each
field, which is an approximation: on the solutions of an equation this leaves the prior of what moves along them
(verification/few_readings.py compares it with solved equations).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpyro.distributions as dist

from bpinn.affine import is_affine
from bpinn.errors import InputError
from bpinn.fields import Field
from bpinn.likelihoods import Normal
from bpinn.quantities import Names
from bpinn.readings import Readings

MOST_LINEAR = 500  # coefficients of fields in neutral equations by default; the cost grows with their cube
MOST_READINGS = 5000  # with which they are neutral by default; all of them are evaluated at once

Fields = Mapping[str, Field]
Priors = Mapping[str, dist.Distribution]


def neutral_ones(names_of: Iterable[str], readings: Sequence[Readings], fields: Fields, names: Names) -> list[str]:
    """Which of these equations are neutral if nothing is said: those that can be, with something to be neutral about.

    Equations that share a field are neutral together or not at all. With many readings it makes no difference.
    """
    if sum(len(r.values) for r in readings) > MOST_READINGS:
        return []
    by_name = {r.name: r for r in readings}
    found: list[str] = []
    for together in _connected([by_name[name] for name in names_of]):
        own = set().union(*(r.fields for r in together))
        scales = [scale for f in own for scale in fields[f].scale_priors(_bounds(names, f))]
        size = sum(fields[f].size(_bounds(names, f)) for f in own)
        matters = bool(scales) or any(r.unknowns for r in together)
        linear = own and all(_is_linear(fields[f], _bounds(names, f)) for f in own)
        possible = linear and matters and size <= MOST_LINEAR and not any(_obstacle(r, fields, names) for r in together)
        if possible:
            found += [r.name for r in together]
    return found


def is_linear(readings: Readings, fields: Fields, names: Names, unknowns: Priors) -> bool:
    """Whether readings are linear in the parameters of their fields, up to a constant."""
    whole = all(
        _is_linear(fields[name], _bounds(names, name)) and not fields[name].positive for name in readings.fields
    )
    shapes = {name: prior.shape() for name, prior in unknowns.items()}
    count = len(readings.values)
    return whole and all(is_affine(term.equation, count * term.width, shapes) for term in readings.quantity.terms)


def check_neutral(readings: Readings, fields: Fields, names: Names, where: str) -> None:
    """Raise `InputError` if an equation cannot be neutral."""
    obstacle = _obstacle(readings, fields, names)
    if obstacle:
        raise InputError(f"{where}: a neutral equation needs {obstacle}; remove neutral=True")


def _obstacle(readings: Readings, fields: Fields, names: Names) -> str:
    """What keeps an equation from being neutral; nothing if it can be."""
    if not isinstance(readings.likelihood, Normal) or readings.noise is None:
        return "a tolerance that is stated, and a normal likelihood"
    if not readings.fields:
        return "a field, and this one has none"
    for name in sorted(readings.fields):
        if fields[name].linear(_bounds(names, name)) == slice(0, 0):
            return (
                "fields with linear parameters, such as bp.GaussianProcess() or the output layer of bp.MLP(), but "
                f"{name!r} is {type(fields[name]).__name__}"
            )
    return ""


def _is_linear(field: Field, bounds: Any) -> bool:
    """Whether a field is linear in all its parameters."""
    return field.linear(bounds) == slice(0, field.size(bounds))


def _connected(readings: Sequence[Readings]) -> list[list[Readings]]:
    """Readings that share fields, directly or through others."""
    groups: list[tuple[set[str], list[Readings]]] = []
    for r in readings:
        touching = [group for group in groups if group[0] & r.fields]
        groups = [group for group in groups if not group[0] & r.fields]
        groups.append((r.fields.union(*(g[0] for g in touching)), [*(x for g in touching for x in g[1]), r]))
    return [group[1] for group in groups]


def _bounds(names: Names, field: str) -> Any:
    return tuple(names.domain[c] for c in names.fields[field])
