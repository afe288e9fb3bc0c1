"""Validation of user input, with one clear message for each possible mistake."""

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.constraints import dependent

from bpinn.errors import BpinnWarning, InputError

if TYPE_CHECKING:
    from bpinn.fields import Field

BLOCK = 2**16  # readings
MOST_LOOKED_AT = 2**20  # readings from which priors and tolerances are chosen
FEWEST_STEPS = 4  # of floating point numbers near a reading, within its noise; with one, HMC does not leave warm-up

NOT_NUMBERS = {  # by the kind of an array, with what to do
    "U": "text; convert it with np.asarray(..., dtype=float)",
    "S": "text; convert it with np.asarray(..., dtype=float)",
    "M": "dates; convert them to numbers, such as (dates - dates[0]) / np.timedelta64(1, 'D') for days",
    "m": "durations; divide them by a unit, such as np.timedelta64(1, 'D') for days",
    "b": "truth values (bool); convert them with np.asarray(..., dtype=float)",
}


def count(shape: tuple[int, ...]) -> str:
    return str(shape[0]) if len(shape) == 1 else str(int(np.prod(shape))) if not shape else str(shape)


def is_whole(value: Any, least: int) -> bool:
    """Whether a value is a Python or NumPy integer of at least ``least``."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least


def blocks(count: int) -> Iterator[slice]:
    """Parts of arrays that are looked at together, so that files on disk are not read whole into memory."""
    return (slice(first, first + BLOCK) for first in range(0, count, BLOCK))


def some(values: np.ndarray) -> np.ndarray:
    """The values, or of very many evenly spaced ones."""
    return values[:: max(1, len(values) // MOST_LOOKED_AT)]


def numbers(value: Any, where: str) -> np.ndarray:
    """The value as a float64 array of finite real numbers that floating point can hold.

    A memory map of such numbers stays on disk, in its own precision.
    """
    if isinstance(value, np.memmap) and value.ndim == 1 and value.dtype in (np.float32, np.float64):
        for part in blocks(len(value)):
            numbers(np.array(value[part]), where if part.start == 0 else f"{where} from index {part.start} on")
        return np.asarray(value)
    if np.ma.isMaskedArray(value):
        value = np.where(np.ma.getmaskarray(value), np.nan, value.data) if np.ma.is_masked(value) else value.data
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: expected numbers, got {type(value).__name__}") from None
    if np.iscomplexobj(array):
        raise InputError(
            f"{where}: expected real numbers, got complex ones; model the real and the imaginary part as two fields"
        )
    if array.dtype == object or array.dtype.kind in "USbmM" or value is None:
        raise InputError(f"{where}: expected numbers, got {_describe(value, array)}")
    largest = 2 ** (53 if jnp.result_type(float) == jnp.float64 else 24)
    if array.dtype.kind in "iu" and array.size and max(abs(int(array.min())), abs(int(array.max()))) > largest:
        raise InputError(
            f"{where}: integers beyond {largest} cannot be represented exactly in floating point; rescale them"
        )
    array = array.astype(float)
    if not np.all(np.isfinite(array)):
        bad = int(np.sum(~np.isfinite(array)))
        first = int(np.flatnonzero(~np.isfinite(array.ravel()))[0])
        raise InputError(
            f"{where}: {bad} of {array.size} are NaN, masked or infinite (the first at index {first}); "
            "remove those points"
        )
    size, kind = np.abs(array).max(initial=0.0), jnp.finfo(jnp.result_type(float))
    if size and not float(kind.tiny) <= size <= float(kind.max):
        raise InputError(f"{where}: {size:g} is beyond the range of floating point; use units in which it is near 1")
    return array


def warn_precision(values: np.ndarray, noise: np.ndarray, where: str) -> bool:
    """Warn if readings have more digits than floating point does: chains would see steps, not a smooth density."""
    kind = jnp.finfo(jnp.result_type(float))
    lost = noise < FEWEST_STEPS * float(kind.eps) * np.abs(values)
    if np.any(lost):
        at, double = int(np.argmax(lost)), kind.bits == 64
        other = "" if double else ", or call jax.config.update('jax_enable_x64', True) first"
        warnings.warn(
            f"{where}: a reading of {values[at]:g} with a noise of {noise[at]:g} has more digits than "
            f"{'double' if double else 'single'} precision holds; subtract a constant from the readings{other}",
            BpinnWarning,
            stacklevel=4,
        )
    return bool(np.any(lost))


def _describe(value: Any, array: np.ndarray) -> str:
    if value is None:
        return "None"
    if array.dtype == object:
        return f"{type(value).__name__} of uneven or mixed entries"
    return NOT_NUMBERS.get(array.dtype.kind, f"an array of {array.dtype}")


def check_domain(domain: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(domain, Mapping) or not domain:
        raise InputError(
            f"domain: expected a dictionary of coordinates with bounds, such as {{'x': (0.0, 1.0)}}, got {domain!r}"
        )
    checked = {}
    for name, bounds in domain.items():
        try:
            low, high = (float(b) for b in bounds)
        except (TypeError, ValueError):
            raise InputError(f"domain: coordinate {name!r} needs two bounds (low, high), got {bounds!r}") from None
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise InputError(
                f"domain: coordinate {name!r} needs finite bounds with low < high, got ({low:g}, {high:g})"
            )
        checked[name] = (low, high)
    return checked


def check_fields(fields: Any, domain: Mapping[str, Any]) -> "dict[str, Field]":
    from bpinn.fields.base import Field  # imported here because kernels check their priors

    if not isinstance(fields, Mapping) or not fields:
        raise InputError("fields: expected a dictionary of surrogates, such as {'u': bp.MLP()}")
    for name, surrogate in fields.items():
        if not isinstance(surrogate, Field):
            raise InputError(f"field {name!r}: expected a surrogate such as bp.MLP(), got {surrogate!r}")
        for c in surrogate.inputs or ():
            if c not in domain:
                raise InputError(
                    f"field {name!r}: input {c!r} is not a coordinate; coordinates are {', '.join(domain)}"
                )
        if surrogate.inputs is not None and len(set(surrogate.inputs)) != len(surrogate.inputs):
            raise InputError(f"field {name!r}: inputs {surrogate.inputs} repeat a coordinate")
        if surrogate.inputs == ():
            raise InputError(f"field {name!r}: no inputs; make it an unknown instead")
    return dict(fields)


def check_unknowns(unknowns: Any) -> dict[str, dist.Distribution]:
    if not isinstance(unknowns, Mapping):
        raise InputError("unknowns: expected a dictionary of priors, such as {'k': dist.Normal(0.0, 1.0)}")
    for name, prior in unknowns.items():
        check_prior(prior, f"unknown {name!r}")
    return dict(unknowns)


def check_prior(prior: Any, where: str) -> None:
    if not isinstance(prior, dist.Distribution):
        hint = f"; call it, such as {prior.__name__}(...)" if isinstance(prior, type) else ""
        raise InputError(
            f"{where}: the prior must be a numpyro distribution, such as dist.Normal(0.0, 1.0), "
            f"got {prior if isinstance(prior, type) else type(prior).__name__}{hint}"
        )
    if prior.support is None or prior.support.is_discrete:
        raise InputError(f"{where}: the prior {type(prior).__name__} is discrete; use a continuous distribution")
    for name, constraint in prior.arg_constraints.items():
        value = getattr(prior, name, None)
        if not isinstance(value, int | float | np.ndarray | jax.Array) or isinstance(constraint, type(dependent)):
            continue
        if not np.all(np.isfinite(value)) or not np.all(constraint(value)):
            raise InputError(
                f"{where}: {type(prior).__name__} has {name}={np.asarray(value).tolist()}, which must be {constraint}"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpyro warns about draws outside the support
        improper = isinstance(prior, dist.ImproperUniform)
        usable = not improper and np.all(np.isfinite(prior.log_prob(prior.sample(jax.random.key(0)))))
    if not usable:
        raise InputError(
            f"{where}: the prior {type(prior).__name__} has no finite density at a draw from it; check its parameters"
        )
    if len(prior.shape()) > 1:
        raise InputError(f"{where}: the prior has shape {prior.shape()}; use a scalar or a vector")


def check_positive(prior: dist.Distribution, where: str, scalar: bool = True) -> None:
    if scalar and prior.shape() != ():
        raise InputError(f"{where}: the prior of a noise must be a scalar, got shape {prior.shape()}")
    draws = np.asarray(prior.sample(jax.random.key(0), (1000,)))
    if np.any(draws <= 0):
        raise InputError(
            f"{where}: {type(prior).__name__} allows negative values; use a positive prior, such as "
            "dist.HalfNormal(1.0) or dist.LogNormal(-2.0, 1.0)"
        )
