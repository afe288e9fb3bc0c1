"""Forward check: do the inferred coefficients, put into a classical solver, reproduce the field and the readings?

A field may follow readings that its equation cannot explain, by using up the tolerance of the equation. Its
coefficients then look as certain as any. Solving the equation with them shows it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bpinn.checks import is_whole
from bpinn.errors import InputError
from bpinn.forward.comparison import FieldCompared, ForwardCheck, Group, ReadingsCompared, Solution, groups_of
from bpinn.forward.laws import TIMES, WHERE, Sources
from bpinn.forward.lines import NODES, Lines, Unresolved
from bpinn.forward.one_coordinate import OneCoordinate
from bpinn.forward.pointwise import Unsolved
from bpinn.forward.system import System, unknowns_of, values_of
from bpinn.quantities import Partial
from bpinn.result import Result

__all__ = ["ForwardCheck", "forward_check"]

FEW_DRAWS = 8  # to solve for, for a report
MOST_DRAWS = 200  # from which the band of a field is computed
POINTS = {1: (201,), 2: (41, 21)}  # of the comparison, by the number of coordinates: space, then time
KINDS = ("initial", "boundary")


def forward_check(
    result: Result,
    draws: int = 20,
    *,
    kind: str | None = None,
    fields: Sequence[str] | None = None,
    sources: Sources | None = None,
) -> ForwardCheck:
    """Solve the equations with draws of the unknowns, and compare the solutions with the fields and the readings.

    Equations in one coordinate are solved as an initial-value or a boundary-value problem, those in one coordinate of
    space and in time by the method of lines. Initial values and boundary values come from the draw's own field. Fields
    that the equations do not determine, such as coefficients and sources, come from the draw too.

    Arguments:
        result: a result of `bp.infer`.
        draws: number of draws to solve for.
        kind: "initial" integrates from the left end of the coordinate; "boundary" uses values at both ends. By default
            "initial" if the coordinate is called t or time or all equations are of first order, otherwise "boundary".
        fields: the fields to solve for, as many as there are equations; by default those with the highest derivatives.
        sources: for equations with measured right-hand sides, these as functions of the coordinates, by the name
            of the sensors.

    Example:
        ``print(bp.forward_check(result))``
    """
    if not isinstance(result, Result):
        raise InputError(f"{WHERE}: expected a result of bp.infer, got {type(result).__name__}")
    if not is_whole(draws, 1):
        raise InputError(f"{WHERE}: draws must be a whole number of at least 1, got {draws!r}")
    if kind is not None and kind not in KINDS:
        raise InputError(f"{WHERE}: kind must be 'initial' or 'boundary', got {kind!r}")
    if sources is not None and not isinstance(sources, Mapping):
        raise InputError(f"{WHERE}: sources must be a dictionary of functions by name, got {type(sources).__name__}")
    system = System.of(result.problem, fields, sources)
    if kind is not None and system.space is not None:
        raise InputError(
            f"{WHERE}: kind is for equations in one coordinate; these depend on {', '.join(system.region)}"
        )
    if kind == "boundary" and max(system.orders) < 2:
        raise InputError(f"{WHERE}: equations of first order need values at one end only; use kind='initial'")
    if kind is None:
        kind = "initial" if system.along in TIMES or max(system.orders) < 2 else "boundary"
    with jax.enable_x64(True):
        found = _checked(result, system, kind, draws)
    result.forward_noted[:] = found.reasons if found.verdict == "disagrees" else []  # for the summary
    return found


def attempted(result: Result) -> ForwardCheck | str:
    """A quick forward check, or the reason why there is none."""
    try:
        return forward_check(result, FEW_DRAWS)
    except InputError as error:
        return str(error).removeprefix(f"{WHERE}: ")
    except (ArithmeticError, ValueError, RuntimeError) as error:  # of a solver, which must not cost a report
        return f"the solver failed ({type(error).__name__}: {error})"


def _checked(result: Result, system: System, kind: str, draws: int) -> ForwardCheck:
    fewer = result.thinned(max(MOST_DRAWS, draws))
    z = fewer.z.reshape(-1, fewer.z.shape[-1])
    tried = np.unique(np.linspace(0, len(z) - 1, min(draws, len(z))).round().astype(int))
    mesh, groups = _mesh(system), groups_of(system)
    grid = {c: a.ravel() for c, a in mesh.items()}
    wanted: list[tuple[Partial, Mapping[str, Any]]] = [(system.partial(f, 0), grid) for f in system.fields]
    wanted += [need for group in groups for need in group.needs]
    own = iter(values_of(system, z, wanted))  # all at once, which compiles once
    curves, unsolved = _solved(system, z[tried], kind)
    rows = tried[[i for i, curve in enumerate(curves) if curve is not None]]
    solved = [curve for curve in curves if curve is not None]
    fields = [_compared_field(system, f, mesh, solved, next(own), rows, fewer) for f in system.fields]
    unknowns = unknowns_of(system, z[rows])
    readings = [
        _compared_readings(g, solved, [next(own)[rows] for _ in g.needs], unknowns, rows, fewer) for g in groups
    ]
    freedom = sum(int(np.prod(prior.shape())) for prior in result.problem.unknowns.values()) + sum(system.orders)
    return ForwardCheck(
        kind if system.space is None else "lines", tuple(f for f in fields if f is not None),
        tuple(r for r in readings if r is not None), len(tried), tuple(unsolved), freedom,
    )  # fmt: skip


def _mesh(system: System) -> dict[str, np.ndarray]:
    names = [system.along] if system.space is None else [system.space, system.along]
    axes = [np.linspace(*system.region[c], n) for c, n in zip(names, POINTS[len(names)], strict=True)]
    return dict(zip(names, np.meshgrid(*axes, indexing="ij"), strict=True))


def _compared_field(
    system: System,
    field: str,
    mesh: dict[str, np.ndarray],
    curves: Sequence[Solution],
    own: np.ndarray,
    rows: np.ndarray,
    fewer: Result,
) -> FieldCompared | None:
    shape = next(iter(mesh.values())).shape
    found = [curve.values(system.partial(field, 0), {c: a.ravel() for c, a in mesh.items()}) for curve in curves]
    if any(values is None for values in found):
        return None
    new, old = np.array(found, float).reshape(len(curves), *shape), own.reshape(-1, *shape)
    has_spread = len(old) > 1 and fewer.method.has_spread
    sd = old.std(axis=0, ddof=1) if has_spread else np.full(shape, np.nan)
    low, high = np.quantile(old, [0.025, 0.975], axis=0)
    return FieldCompared(field, mesh, new, old[rows], old.mean(axis=0), sd, (low, high))


def _compared_readings(
    group: Group,
    curves: Sequence[Solution],
    own: Sequence[np.ndarray],
    unknowns: Sequence[Mapping[str, Any]],
    rows: np.ndarray,
    fewer: Result,
) -> ReadingsCompared | None:
    """None if the readings are of a derivative that the solver does not have."""
    theirs = group.from_curves(curves, own)
    if theirs is None:
        return None
    count = fewer.z.shape[0] * fewer.z.shape[1]
    noise = fewer.noise_of(group.readings, (count, len(group.readings.values)))
    scale = None if noise is None else noise[rows][:, group.rows]
    expected = [group.expected(values, unknowns) for values in (theirs, own)]
    scores = [group.scores(values, scale) for values in expected]
    at = {c: a[group.rows] for c, a in group.readings.at.items()}
    values = group.readings.values[group.rows]
    return ReadingsCompared(group.readings.name, group.field, at, values, expected[0], *scores)


def _solved(system: System, z: np.ndarray, kind: str) -> tuple[list[Any], list[str]]:
    """The solution of each draw, None where it has none, and why."""
    degrees = [0] if system.space is None else list(NODES)
    while True:
        degree = degrees.pop(0)
        solver: Any = Lines(system, z, degree) if degree else OneCoordinate(system, z, kind)
        curves: list[Any] = []
        unsolved: list[str] = []
        try:
            for i in range(len(z)):
                try:
                    curves.append(solver.solve(i))
                except Unsolved as error:
                    if isinstance(error, Unresolved) and degrees and not curves:
                        raise
                    curves.append(None)
                    unsolved.append(str(error))
        except Unresolved:
            continue
        return curves, unsolved
