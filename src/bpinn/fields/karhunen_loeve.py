"""A truncated Karhunen-Loève expansion: a Gaussian process restricted to its leading terms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.arrays import on_device
from bpinn.errors import InputError
from bpinn.fields.activations import MultiIndex
from bpinn.fields.base import Bounds, Features, Field, Request, Rows, Streams, Wanted
from bpinn.fields.kernels import Eigenpairs, Kernel, Stationary, eigenpairs
from bpinn.registry import register

FEW = 24  # eigenpairs of each of several inputs, to begin with


@register("kl")
@dataclass(frozen=True)
class KarhunenLoeve(Field):
    """u(x) = mean(x) + sum_i sqrt(alpha_i) psi_i(x) theta_i, with theta_i standard normal.

    alpha_i and psi_i are the eigenpairs of the kernel on an interval (with several inputs, the ``terms`` largest
    eigenpairs of a tensor product with one kernel per input). The field is linear in theta, so its
    basis and derivatives are computed once.

    Arguments:
        kernel: `Exponential`, `Matern32`, `Matern52`, `SquaredExponential`, `RationalQuadratic`, or any
            function of two numbers; one for all inputs, or a tuple with one per input.
        terms: number of terms.
        interval: (low, high), or a tuple with one such pair per input; the domain by default. It must contain the
            domain.
        mean: a number, or a function of the inputs written with ``jax.numpy``.
        inputs, positive: see `Field`.

    Example:
        >>> import bpinn as bp
        >>> field = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> round(field.energy_kept(), 5)
        0.91758
    """

    kernel: Kernel | tuple[Kernel, ...]
    terms: int = 20
    interval: tuple[float, float] | tuple[tuple[float, float], ...] | None = None
    mean: float | Callable[..., Any] = 0.0

    def __post_init__(self) -> None:
        self._normalise_inputs()
        kernels = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,)
        for kernel in kernels:
            if not callable(kernel) or isinstance(kernel, type):
                raise InputError(
                    f"KarhunenLoeve: kernel must be an object such as bp.Exponential(length=0.25), got {kernel!r}"
                )
            if isinstance(kernel, Stationary):
                kernel.fixed  # noqa: B018 (raises if a scale is to be inferred)
        whole = isinstance(self.terms, int | np.integer) and not isinstance(self.terms, bool)
        if not whole or not 1 <= self.terms <= 2000:
            raise InputError(f"KarhunenLoeve: terms must be a whole number from 1 to 2000, got {self.terms!r}")
        object.__setattr__(self, "terms", int(self.terms))
        if not callable(self.mean) and not (isinstance(self.mean, int | float) and abs(self.mean) < np.inf):
            raise InputError(f"KarhunenLoeve: mean must be a number or a function of the inputs, got {self.mean!r}")
        if self.interval is not None:
            object.__setattr__(self, "interval", _pairs(self.interval))

    def check(self, bounds: Bounds) -> None:
        intervals = self._intervals(bounds)
        for what, given in (("kernel", self.kernel), ("interval", intervals)):
            if isinstance(given, tuple) and len(given) not in (1, len(bounds)):
                raise InputError(f"{len(given)} {what}s for {len(bounds)} inputs; give one, or one per input")
        for (low, high), (a, b) in zip(bounds, intervals, strict=True):
            if low < a or high > b:
                raise InputError(
                    f"the domain [{low:g}, {high:g}] extends beyond the interval [{a:g}, {b:g}] of the Karhunen-Loève "
                    "expansion; widen the interval"
                )
        _basis(self, bounds)

    def _intervals(self, bounds: Bounds) -> Bounds:
        if self.interval is None:
            return bounds
        return self.interval * len(bounds) if len(self.interval) == 1 else self.interval  # type: ignore[return-value]

    def energy_kept(self, bounds: Bounds | None = None) -> float:
        """Fraction of the total prior variance over the interval that the terms capture."""
        if bounds is None:
            if self.interval is None:
                raise InputError("energy_kept: the field has no interval; give the bounds of its inputs")
            bounds = self.interval  # type: ignore[assignment]
        basis = _basis(self, bounds)
        return float(basis.values.sum() / basis.energy)

    def size(self, bounds: Bounds) -> int:
        return self.terms

    def prior_sd(self, bounds: Bounds) -> np.ndarray:
        return np.ones(self.terms)

    def unflatten(self, theta: Array, bounds: Bounds) -> Array:
        """The coefficients theta_i, largest eigenvalue first."""
        return theta

    def prepare(self, points: Sequence[np.ndarray], requests: Sequence[Request], bounds: Bounds) -> Any:
        return prepared(self, points, requests, bounds)

    def fixed_basis(self, points: np.ndarray, index: MultiIndex, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
        return _basis(self, bounds).at(points, index), mean_at(self.mean, points, index)

    def raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        return cut(prepared["basis"] @ theta + prepared["mean"], wanted)

    def linear(self, bounds: Bounds) -> slice:
        """All coefficients."""
        return slice(0, self.terms)

    def features(self, theta: Array, prepared: Any, wanted: Wanted) -> Features:
        return Features(cut(prepared["basis"], wanted), cut(prepared["mean"], wanted))

    def stacked(self, theta: Array, prepared: Any, wanted: Wanted) -> Array:
        return prepared["basis"].T  # rows are in the order of `layout`

    def describe(self) -> str:
        kernels = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,)
        names = " and ".join(dict.fromkeys(getattr(k, "__name__", type(k).__name__) for k in kernels))
        return f"Karhunen-Loève expansion, {self.terms} terms, {names} kernel"


def prepared(field: Field, points: Sequence[Any], requests: Sequence[Request], bounds: Bounds) -> dict[str, Array]:
    """The rows of a fixed basis at all points, and the mean there."""
    found = []
    for x, wanted in zip(points, field.needed(requests), strict=True):
        for index in wanted:
            is_rows = isinstance(x, Rows)
            found.append((x.matrix, np.zeros(len(x.matrix))) if is_rows else field.fixed_basis(x, index, bounds))
    rows, means = zip(*found, strict=True)
    return {
        "basis": on_device(np.concatenate(rows)),
        "mean": on_device(np.concatenate(means)),
    }


def cut(rows: Array, wanted: Wanted) -> list[Streams]:
    """Split stacked rows by group and derivative."""
    sizes = [size for size, indices in zip(wanted.sizes, wanted.requests, strict=True) for _ in indices]
    streams = iter(jax.lax.split(rows, sizes))
    return [{index: next(streams) for index in indices} for indices in wanted.requests]


def _pairs(interval: Any) -> tuple[tuple[float, float], ...]:
    """One pair (low, high), or one per input, as a tuple of pairs."""
    try:
        pairs = np.atleast_2d(np.asarray(interval, float))
        right = np.ndim(interval) in (1, 2) and pairs.shape[1] == 2 and np.all(np.isfinite(pairs))
    except (TypeError, ValueError):
        right = False
    if not right or not np.all(pairs[:, 0] < pairs[:, 1]):
        raise InputError(f"KarhunenLoeve: interval must be (low, high) with low < high, got {interval!r}")
    return tuple((float(low), float(high)) for low, high in pairs)


@dataclass(frozen=True, eq=False)
class _Basis:
    """Products of one-dimensional eigenpairs, largest eigenvalue first."""

    pairs: tuple[Eigenpairs, ...]
    chosen: np.ndarray  # (terms, inputs): index of the eigenpair of each input in a term
    values: np.ndarray
    energy: float

    def at(self, x: np.ndarray, index: MultiIndex) -> np.ndarray:
        """sqrt(alpha_i) times a derivative of psi_i, shape (points, terms)."""
        product = np.sqrt(self.values) * np.ones((len(x), 1))
        for i, (pair, order) in enumerate(zip(self.pairs, index, strict=True)):
            product *= pair.functions(x[:, i], order)[:, self.chosen[:, i]]
        return product


@lru_cache(maxsize=64)
def _basis(field: KarhunenLoeve, bounds: Bounds) -> _Basis:
    kernels = field.kernel if isinstance(field.kernel, tuple) else (field.kernel,)
    kernels = kernels * len(bounds) if len(kernels) == 1 else kernels
    intervals = field._intervals(bounds)
    # With several inputs, a term rarely has a high eigenfunction of any one of them, and many of these take long.
    count = field.terms if len(bounds) == 1 else min(field.terms, FEW)
    while True:
        pairs = tuple(eigenpairs(k, interval, count) for k, interval in zip(kernels, intervals, strict=True))
        sizes = [len(p.values) for p in pairs]
        indices = np.array(_products(sizes, field.terms))
        values = np.prod([p.values[i] for p, i in zip(pairs, indices.T, strict=True)], axis=0)
        order = np.argsort(-values, kind="stable")[: field.terms]
        cut_off = any(
            size == count and size - 1 in of_input for size, of_input in zip(sizes, indices[order].T, strict=True)
        )
        if count == field.terms or not (cut_off or (len(order) < field.terms and count in sizes)):
            break
        count = min(2 * count, field.terms)
    if len(order) < field.terms:
        raise InputError(
            f"the kernel has only {len(order)} eigenvalues above rounding error, but {field.terms} terms are "
            "requested; use fewer terms or a shorter length"
        )
    energy = float(np.prod([p.energy for p in pairs]))
    return _Basis(pairs, indices[order], values[order], energy)


def _products(counts: Sequence[int], terms: int) -> list[tuple[int, ...]]:
    """Indices of products that can be among the largest ``terms``: all products of larger factors would be, too."""
    if not counts:
        return [()]
    return [
        (first, *rest) for first in range(min(counts[0], terms)) for rest in _products(counts[1:], terms // (first + 1))
    ]


def mean_at(mean: float | Callable[..., Any], x: np.ndarray, index: MultiIndex) -> np.ndarray:
    """A derivative of the mean at points, in double precision."""
    if not callable(mean):
        return np.full(len(x), float(mean) if not any(index) else 0.0)
    function: Any = mean
    for i, order in enumerate(index):
        for _ in range(order):
            function = jax.grad(function, i)
    with jax.enable_x64(True):
        values = jax.vmap(function)(*(jnp.asarray(column) for column in x.T))
        return np.broadcast_to(np.asarray(values, dtype=float), len(x))
