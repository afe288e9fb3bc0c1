"""A result as ArviZ's DataTree: unknowns and fields, readings and their predictive draws, sampler statistics."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray as xr

from bpinn.errors import BpinnWarning, InputError
from bpinn.labelled import CHAIN, DRAW, axes_of, distinct
from bpinn.measurements import Quantity, label
from bpinn.prior import AT_ONCE, predicted
from bpinn.quantity_at import coordinates_of, measured, padded
from bpinn.result import Result

POINTS = {1: 51, 2: 11, 3: 5}  # of a grid along each of so many coordinates; 3 along each of more
SAMPLER = {"divergent": "diverging", "acceptance": "acceptance_rate", "log_density": "lp", "gradients": "n_steps"}
DRAWS_AT_ONCE = 500
MOST_VALUES = 10**8  # of draws and readings together


def to_arviz(
    result: Result, at: Mapping[str, Any] | None = None, quantities: Sequence[Quantity] | None = None, seed: int = 0
) -> xr.DataTree:
    """See `Result.to_arviz`."""
    if quantities is not None and (isinstance(quantities, str) or not isinstance(quantities, Sequence)):
        raise InputError(f"to_arviz: quantities must be a list such as ['u', 'u_x'], got {quantities!r}")
    names, readings = _sensor_names(result), result.problem.readings
    groups = {
        "posterior": _posterior(result, at, list(result.problem.fields) if quantities is None else quantities),
        **_by_reading(result, names, seed),
        "sample_stats": xr.Dataset({SAMPLER.get(n, n): ((CHAIN, DRAW), v) for n, v in result.stats.items()}),
        "observed_data": xr.Dataset({names[r.name]: (_along(names, r.name), r.values) for r in readings}),
        "constant_data": _places(result, names),
    }
    chains, draws = result.z.shape[:2]
    for name in groups.keys() & {"posterior", "posterior_predictive", "log_likelihood", "sample_stats"}:
        groups[name] = groups[name].assign_coords({CHAIN: np.arange(chains), DRAW: np.arange(draws)})
    tree = xr.DataTree.from_dict(groups)
    tree.attrs |= {"method": repr(result.method), "seed": result.seed, "inference_library": "bpinn", **result.versions}
    return tree


def _sensor_names(result: Result) -> dict[str, str]:
    """The variable of each group of sensors, whose name may be any text."""
    found: dict[str, str] = {}
    for readings in result.problem.readings:
        name = readings.name.replace("/", "_")  # which separates groups of a tree
        found[readings.name] = distinct(name, [CHAIN, DRAW, *found.values()], "sensors")
    return found


def _along(names: Mapping[str, str], sensors: str) -> tuple[str]:
    return (distinct(f"{names[sensors]}_reading", names.values()),)


def _posterior(result: Result, at: Mapping[str, Any] | None, quantities: Sequence[Quantity]) -> xr.Dataset:
    """Unknowns in their own space, and quantities at points."""
    points = _points(result, at)
    dimensions, coordinates = axes_of(points, np.broadcast_shapes(*(a.shape for a in points.values())))
    taken = [CHAIN, DRAW, *dimensions, *coordinates]
    variables: dict[str, xr.DataArray] = {}
    for name in result.names:
        values = result.draws(name)
        called = distinct(name, [*taken, *variables], "unknown")
        variables[called] = xr.DataArray(values, dims=(CHAIN, DRAW, *_numbered(called, values)))
    for quantity in quantities:
        where = f"to_arviz {label(quantity)!r}"
        needed = coordinates_of(result.problem, measured(result.problem, quantity, where), where)
        axes = [i for i in range(len(dimensions)) if any(_varies(points[c], i) for c in needed if c in points)]
        rest = tuple(slice(None) if i in axes else 0 for i in range(len(dimensions)))
        prediction = result.predict(quantity, {c: points[c][rest] for c in needed if c in points})
        called = distinct(label(quantity).replace("/", "_"), [*taken, *variables], "quantity")
        values, along = prediction.draws, tuple(dimensions[i] for i in axes)
        if values.ndim - 2 != len(along):  # a quantity with positions of its own, such as an average for each reading
            along = _numbered(called, values)
        where_it_is = {c: placed for c, placed in coordinates.items() if set(placed[0]) <= set(along)}
        variables[called] = xr.DataArray(values, where_it_is, (CHAIN, DRAW, *along))
    return xr.Dataset(variables)


def _numbered(name: str, values: np.ndarray) -> tuple[str, ...]:
    """ArviZ's names for the dimensions of a vector."""
    return tuple(f"{name}_dim_{i}" for i in range(values.ndim - 2))


def _varies(values: np.ndarray, axis: int) -> bool:
    return bool(np.any(values != values.take([0], axis=axis)))


def _points(result: Result, at: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """The points that were asked for, in one shape; by default a grid over the domain."""
    problem = result.problem
    if at is None:
        return problem.grid(**dict.fromkeys(problem.domain, POINTS.get(len(problem.domain), 3)))
    flat, shape = problem.place(at, (), "to_arviz")
    return {c: values.reshape(shape) for c, values in flat.items()}


def _by_reading(result: Result, names: Mapping[str, str], seed: int) -> dict[str, xr.Dataset]:
    """The groups with a number for each draw and each reading, unless these are too many."""
    count = sum(len(readings.values) for readings in result.problem.readings)
    if result.z.shape[0] * result.z.shape[1] * count > MOST_VALUES:
        warnings.warn(
            f"to_arviz: {count:,} readings at {result.z.shape[0] * result.z.shape[1]:,} draws are too many; "
            "posterior_predictive and log_likelihood are left out (result.thinned(200) has fewer draws)",
            BpinnWarning,
            stacklevel=4,
        )
        return {}
    return {"posterior_predictive": _predictive(result, names, seed), "log_likelihood": _log_likelihood(result, names)}


def _predictive(result: Result, names: Mapping[str, str], seed: int) -> xr.Dataset:
    """New readings at the places of the readings, noise included."""
    chains, draws, dim = result.z.shape
    posterior, rng = result.posterior.by_reading, np.random.default_rng(seed)
    values = predicted(posterior.model, result.z.reshape(-1, dim), posterior.data)
    found = {}
    for readings, mean in zip(result.problem.readings, values, strict=True):
        drawn = readings.likelihood.sample(rng, np.asarray(mean, float), result.noise_of(readings, mean.shape))
        shaped = np.asarray(drawn).reshape(chains, draws, -1)
        found[names[readings.name]] = ((CHAIN, DRAW, *_along(names, readings.name)), shaped)
    return xr.Dataset(found)


def _log_likelihood(result: Result, names: Mapping[str, str]) -> xr.Dataset:
    posterior = result.posterior.by_reading
    data = posterior.data
    one = partial(posterior.model.pointwise_log_likelihood, data=data)
    evaluate = jax.jit(lambda z: jax.lax.map(one, z, batch_size=AT_ONCE))
    flat = result.z.reshape(-1, result.z.shape[-1])
    size = min(DRAWS_AT_ONCE, len(flat))
    parts = [evaluate(padded(flat[i : i + size], size)) for i in range(0, len(flat), size)]
    found = {}
    for readings, values in zip(result.problem.readings, zip(*parts, strict=True), strict=True):
        shaped = np.concatenate(values)[: len(flat)].reshape(*result.z.shape[:2], -1)
        found[names[readings.name]] = ((CHAIN, DRAW, *_along(names, readings.name)), shaped)
    return xr.Dataset(found)


def _places(result: Result, names: Mapping[str, str]) -> xr.Dataset:
    """The coordinates of readings, such as ``u_x`` for the sensors ``u`` along x."""
    found: dict[str, Any] = {}
    along = {dimension for name in names for dimension in _along(names, name)}
    for readings in result.problem.readings:
        for c, values in readings.at.items():
            called = distinct(f"{names[readings.name]}_{c}", [*found, *along])
            found[called] = (_along(names, readings.name), values)
    return xr.Dataset(found)
