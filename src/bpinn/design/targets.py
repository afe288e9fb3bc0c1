"""What the next reading is for: draws of unknowns, or of a field at a point or over the domain."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpinn.design.candidates import mesh
from bpinn.errors import InputError
from bpinn.measurements import label, set_coordinates, terms_of
from bpinn.quantity_at import QuantityAt, measured
from bpinn.result import Result

MOST_POINTS = 200  # at which a field is averaged over the domain


@dataclass(frozen=True, eq=False)
class Target:
    """``draws`` are (draws, columns); the uncertainty is the sum of their variances over ``units`` squared."""

    label: str
    draws: np.ndarray
    units: np.ndarray

    @property
    def scaled(self) -> np.ndarray:
        """The draws in these units, centred."""
        return (self.draws - self.draws.mean(axis=0)) / self.units

    @property
    def sd(self) -> float:
        """The posterior sd, root-mean-square over columns; one if these are in different units."""
        return float(np.sqrt(np.mean(np.var(self.draws / self.units, axis=0, ddof=1))))


def target_of(result: Result, for_: Any, where: str) -> Target:
    """A target from its description: a name, (name, places), or a list of unknowns; None for all unknowns."""
    problem = result.problem
    if for_ is None:
        for_ = list(problem.unknowns) or list(problem.fields)[0:1]
    if isinstance(for_, tuple) and len(for_) == 2 and isinstance(for_[1], Mapping):
        return _quantity(result, *for_, where)
    names = [for_] if isinstance(for_, str) else for_
    if isinstance(names, Sequence) and names and all(isinstance(name, str) for name in names):
        if len(names) == 1 and not _is_number(result, names[0]):
            return _quantity(result, names[0], None, where)
        return _numbers(result, names, where)
    raise InputError(
        f"{where}: for_ must be an unknown ('k', 'k[1]'), a list of unknowns, a field ('u') or a field at a place "
        f"(('u', {{'{next(iter(problem.domain))}': 0.5}})), got {for_!r}"
    )


def _is_number(result: Result, name: str) -> bool:
    return name in result.names or re.sub(r"\[\d+\]$", "", name) in result.names


def _numbers(result: Result, names: Sequence[str], where: str) -> Target:
    labels, owners = result.monitor.number_names, [number.owner for number in result.monitor.numbers]
    flat = result.monitor.numbers_of(result.functionals).reshape(-1, len(labels)).astype(float)
    columns: list[int] = []
    for name in names:
        found = [i for i, owner in enumerate(owners) if name in (owner, labels[i])]
        if not found:
            known = ", ".join([*labels, *result.problem.fields])
            raise InputError(f"{where}: for_ names {name!r}, which is neither an unknown nor a field (known: {known})")
        if any(owners[i] in result.problem.noise_priors for i in found):
            raise InputError(
                f"{where}: {name!r} is an inferred noise, which the prediction of a reading does not depend on; name "
                "an unknown or a field"
            )
        columns += found
    columns = list(dict.fromkeys(columns))
    draws = flat[:, columns]
    sd = draws.std(axis=0, ddof=1)
    if not np.all(sd > 0):
        still = labels[columns[int(np.argmin(sd))]]
        raise InputError(f"{where}: {still} is the same in all draws, so no reading can lower its uncertainty")
    # Several unknowns have different units: each counts in units of its own sd.
    return Target(", ".join(labels[i] for i in columns), draws, sd if len(columns) > 1 else np.ones(1))


def _quantity(result: Result, quantity: Any, at: Mapping[str, Any] | None, where: str) -> Target:
    """A field, or another quantity, at places; over the domain if none are given."""
    where = f"{where}: for_ {label(quantity)!r}"
    itself = measured(result.problem, quantity, where)
    text = label(quantity)
    if at is None:
        terms = terms_of(itself, result.problem.names, where)
        fixed = set_coordinates(terms)
        needed = [c for c in result.problem.names.coordinates_of(terms[0].equation) if c not in fixed]
        at = {c: np.ravel(a) for c, a in mesh(result.problem, needed).items()}
        if needed:
            rows = np.linspace(0, len(at[needed[0]]) - 1, MOST_POINTS).round().astype(int)
            at = {c: a[np.unique(rows)] for c, a in at.items()}
            text += " over the domain"
    elif all(np.ndim(a) == 0 for a in at.values()):
        text += " at " + ", ".join(f"{c}={float(a):.4g}" for c, a in at.items() if c in result.problem.domain)
    else:
        text += f" at {max(np.size(a) for a in at.values())} places"
    located = QuantityAt.of(result.problem, itself, at, where)
    z = result.z.reshape(-1, result.z.shape[-1])
    draws = np.concatenate([located.evaluate(z, part) for part in located.slices()], axis=1).astype(float)
    if not np.all(np.isfinite(draws)):
        raise InputError(f"{where} is not finite at some draws")
    if not np.any(draws.std(axis=0) > 0):
        raise InputError(f"{where} is the same in all draws, so no reading can lower its uncertainty")
    return Target(text, draws, np.ones(draws.shape[1]))
