"""Covariance functions, each written for one pair of points, and their Karhunen-Loève eigenpairs on an interval.

A kernel is any function ``k(x, y)`` of two numbers written with ``jax.numpy``. The exponential kernel's eigenpairs
are known in closed form; all others are computed by a Galerkin method in Legendre polynomials. Its integrals use
Gauss-Legendre quadrature separately on both sides of the diagonal, where kernels have kinks.
"""

from collections.abc import Callable
from dataclasses import InitVar, dataclass
from functools import lru_cache
from math import lgamma
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import legendre

from bpinn.errors import InputError
from bpinn.fields.scales import Inferred, scale_of
from bpinn.registry import Registry, register

Kernel = Callable[[Any, Any], Any]


class Hilbert(NamedTuple):
    """What the Hilbert-space approximation of a kernel needs (see `bpinn.fields.gaussian_process`).

    Frequencies up to ``pi / 2`` times ``chosen`` over the length are used by default, on an interval of ``near``
    lengths to either side. With ``accurate`` and ``width`` in their place means are within 0.02 sd and sds within 2% of
    dense regression (tests/test_gaussian_process.py). With less than ``least`` the verdict says that terms are too few.
    """

    chosen: float
    least: float
    accurate: float
    near: float
    width: float


@dataclass(frozen=True)
class Stationary:
    """A stationary kernel: variance ``sd`` squared (1 if not given), and correlation length ``length``.

    In a `GaussianProcess` both may have priors, or be None for default ones. ``amplitude`` is another name of ``sd``.
    """

    registry: ClassVar[Registry] = Registry("kernel")
    differentiable: ClassVar[float] = 0  # how often its functions can be differentiated, in mean square
    hilbert: ClassVar[Hilbert | None] = None
    length: Any = None
    sd: Any = None
    amplitude: InitVar[Any] = None

    def __post_init__(self, amplitude: Any) -> None:
        kind, called = type(self).__name__, {"length": "length", "sd": "sd" if amplitude is None else "amplitude"}
        if amplitude is not None:
            if self.sd is not None:
                raise InputError(f"{kind}: sd and amplitude are the same; give one of them")
            object.__setattr__(self, "sd", amplitude)
        for name in ("length", "sd"):
            value = getattr(self, name)
            if isinstance(value, list | tuple | np.ndarray) and name == "length" and np.ndim(value) == 1 and len(value):
                parts = tuple(scale_of(one, f"{kind}: {name}") for one in value)
                if any(isinstance(part, Inferred) for part in parts):
                    raise InputError(f"{kind}: a length for each input must be numbers, or one prior of that shape")
                object.__setattr__(self, name, parts)
            else:
                found = scale_of(value, f"{kind}: {called[name]}")
                if name == "sd" and isinstance(found, Inferred) and found.prior.shape():
                    raise InputError(f"{kind}: the prior of {called[name]} must be a scalar, got {found.prior.shape()}")
                object.__setattr__(self, name, found)

    @property
    def fixed(self) -> tuple[float, float]:
        """The length and the standard deviation, where they must be numbers."""
        sd = 1.0 if self.sd is None else self.sd
        if not isinstance(self.length, float) or not isinstance(sd, float):
            raise InputError(
                f"{type(self).__name__}: a number is needed for the length here, and for sd if it is given; scales are "
                "inferred in bp.GaussianProcess"
            )
        return self.length, sd

    def log_spectrum(self, frequencies: Any, lengths: Any) -> Any:
        """Log spectral density for variance 1, at frequencies (terms, inputs), with one length per input.

        Needed in a `GaussianProcess` only, by kernels that set ``hilbert``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no spectral density")


@dataclass(frozen=True)
class Matern(Stationary):
    """The Matérn family; ``smoothness`` is its order."""

    smoothness: ClassVar[float]

    def log_spectrum(self, frequencies: Any, lengths: Any) -> Any:
        nu, d = self.smoothness, lengths.shape[0]
        constant = d * np.log(2) + 0.5 * d * np.log(np.pi) + lgamma(nu + 0.5 * d) - lgamma(nu) + nu * np.log(2 * nu)
        inside = 2 * nu + jnp.sum((frequencies * lengths) ** 2, axis=1)
        return constant + jnp.sum(jnp.log(lengths)) - (nu + 0.5 * d) * jnp.log(inside)


@register("exponential")
@dataclass(frozen=True)
class Exponential(Matern):
    """``sd^2 exp(-|x - y| / length)``: the paper's kernel; continuous, non-differentiable functions.

    Example:
        >>> import bpinn as bp
        >>> round(float(bp.Exponential(length=0.5, sd=1.0)(0.0, 0.5)), 3)
        0.368
    """

    smoothness: ClassVar[float] = 0.5

    def __call__(self, x: Any, y: Any) -> Any:
        length, sd = self.fixed
        return sd**2 * jnp.exp(-jnp.abs(x - y) / length)


@register("matern32")
@dataclass(frozen=True)
class Matern32(Matern):
    """The Matérn kernel with smoothness 3/2: once differentiable functions.

    Example:
        >>> import bpinn as bp
        >>> round(float(bp.Matern32(length=0.5, sd=1.0)(0.0, 0.5)), 3)
        0.483
    """

    smoothness: ClassVar[float] = 1.5
    differentiable: ClassVar[float] = 1
    hilbert: ClassVar[Hilbert | None] = Hilbert(6.0, 6.0, 22.0, 4.5, 4.5)

    def __call__(self, x: Any, y: Any) -> Any:
        length, sd = self.fixed
        r = jnp.sqrt(3.0) * jnp.abs(x - y) / length
        return sd**2 * (1.0 + r) * jnp.exp(-r)


@register("matern52")
@dataclass(frozen=True)
class Matern52(Matern):
    """The Matérn kernel with smoothness 5/2: twice differentiable functions.

    Example:
        >>> import bpinn as bp
        >>> round(float(bp.Matern52(length=0.5, sd=1.0)(0.0, 0.5)), 3)
        0.524
    """

    smoothness: ClassVar[float] = 2.5
    differentiable: ClassVar[float] = 2
    hilbert: ClassVar[Hilbert | None] = Hilbert(5.0, 5.0, 9.0, 4.1, 4.1)

    def __call__(self, x: Any, y: Any) -> Any:
        length, sd = self.fixed
        r = jnp.sqrt(5.0) * jnp.abs(x - y) / length
        return sd**2 * (1.0 + r + r**2 / 3.0) * jnp.exp(-r)


@register("squared_exponential")
@dataclass(frozen=True)
class SquaredExponential(Stationary):
    """``sd^2 exp(-(x - y)^2 / (2 length^2))``: smooth functions.

    Example:
        >>> import bpinn as bp
        >>> round(float(bp.SquaredExponential(length=0.5, sd=1.0)(0.0, 0.5)), 3)
        0.607
    """

    differentiable: ClassVar[float] = np.inf
    hilbert: ClassVar[Hilbert | None] = Hilbert(2.8, 2.8, 2.8, 4.0, 4.0)

    def __call__(self, x: Any, y: Any) -> Any:
        length, sd = self.fixed
        return sd**2 * jnp.exp(-0.5 * ((x - y) / length) ** 2)

    def log_spectrum(self, frequencies: Any, lengths: Any) -> Any:
        half = 0.5 * jnp.sum((frequencies * lengths) ** 2, axis=1)
        return 0.5 * lengths.shape[0] * np.log(2 * np.pi) + jnp.sum(jnp.log(lengths)) - half


@register("rational_quadratic")
@dataclass(frozen=True)
class RationalQuadratic(Stationary):
    """``sd^2 (1 + (x - y)^2 / (2 a length^2))^-a`` with a = (d + 1) / 2 for d inputs: smooth functions of many scales.

    Its spectral density falls exponentially with the frequency, as that of solutions of smooth equations does. That of
    `SquaredExponential` falls so fast that functions with a few faster parts are all but impossible.

    Example:
        >>> import bpinn as bp
        >>> round(float(bp.RationalQuadratic(length=0.5, sd=1.0)(0.0, 0.5)), 3)
        0.667
    """

    differentiable: ClassVar[float] = np.inf
    hilbert: ClassVar[Hilbert | None] = Hilbert(5.0, 1.8, 4.8, 2.5, 4.0)  # least: 2% of the variance are cut

    def __call__(self, x: Any, y: Any) -> Any:
        length, sd = self.fixed
        return sd**2 / (1.0 + 0.5 * ((x - y) / length) ** 2)

    def log_spectrum(self, frequencies: Any, lengths: Any) -> Any:
        d = lengths.shape[0]
        rate = np.sqrt(d + 1.0)
        constant = d * np.log(2 * np.sqrt(np.pi) * rate) + lgamma(0.5 * d) - np.log(2.0) - lgamma(d)
        # The root has no derivative at a frequency of zero, which periodic fields have.
        size = jnp.sqrt(jnp.sum((frequencies * lengths) ** 2, axis=1) + 1e-30)
        return constant + jnp.sum(jnp.log(lengths)) - rate * size


@dataclass(frozen=True, eq=False)
class Eigenpairs:
    """The largest eigenvalues of a kernel on an interval, and their orthonormal eigenfunctions.

    ``functions(x, order)`` returns derivatives of the eigenfunctions at points x, shape (points, terms);
    ``energy`` is the integral of the kernel along its diagonal, the sum of all eigenvalues.
    """

    values: np.ndarray
    functions: Callable[[np.ndarray, int], np.ndarray]
    energy: float


@lru_cache(maxsize=64)
def eigenpairs(kernel: Kernel, interval: tuple[float, float], terms: int) -> Eigenpairs:
    """At most ``terms`` eigenpairs, only those above rounding error; in closed form for the exponential kernel."""
    if isinstance(kernel, Exponential):
        return exponential_eigenpairs(kernel, interval, terms)
    return numerical_eigenpairs(kernel, interval, terms)


def exponential_eigenpairs(kernel: Exponential, interval: tuple[float, float], terms: int) -> Eigenpairs:
    """Closed form (Xiu 2010, example 4.1): alternating cosines and sines, with frequencies from tangent equations."""
    low, high = interval
    length, sd = kernel.fixed
    half, centre, c = 0.5 * (high - low), 0.5 * (high + low), 1.0 / length

    from scipy.optimize import brentq  # a slow import, needed only for this kernel

    def root(i: int) -> float:
        # The i-th root lies in ((i) pi/2, (i + 1) pi/2) / half; even i are cosines, odd ones sines.
        even = i % 2 == 0
        bracket = np.array([i, i + 1]) * 0.5 * np.pi / half

        def equation(w: float) -> float:
            s, k = np.sin(w * half), np.cos(w * half)
            return c * k - w * s if even else w * k + c * s

        return float(brentq(equation, bracket[0] + 1e-13 * (i == 0), bracket[1], xtol=1e-14, rtol=8.9e-16))

    w = np.array([root(i) for i in range(terms)])
    even = np.arange(terms) % 2 == 0
    norm = np.sqrt(half + np.where(even, 1.0, -1.0) * np.sin(2 * w * half) / (2 * w))
    phase = np.where(even, 0.0, -0.5 * np.pi)  # sin(t) = cos(t - pi/2)

    def functions(x: np.ndarray, order: int) -> np.ndarray:
        return w**order * np.cos(w * (x[:, None] - centre) + phase + 0.5 * np.pi * order) / norm

    values = sd**2 * 2 * c / (w**2 + c**2)
    return Eigenpairs(values, functions, sd**2 * 2 * half)


def numerical_eigenpairs(kernel: Kernel, interval: tuple[float, float], terms: int) -> Eigenpairs:
    """Galerkin method in orthonormal Legendre polynomials, enough of them to resolve ``terms`` eigenfunctions."""
    low, high = interval
    half, centre = 0.5 * (high - low), 0.5 * (high + low)
    degree = 3 * terms + 40
    nodes, weights = legendre.leggauss(degree + 20)
    # For each outer node x, inner nodes on [-1, x] and on [x, 1]: kernels have their kink on the diagonal.
    left, right = 0.5 * (nodes + 1.0)[:, None], 0.5 * (1.0 - nodes)[:, None]
    inner = np.concatenate([left * (nodes + 1.0) - 1.0, right * (nodes - 1.0) + 1.0], axis=1)
    inner_weights = np.concatenate([left * weights, right * weights], axis=1)
    scale = np.sqrt((2 * np.arange(degree) + 1) / 2.0)
    values = _evaluate(kernel, centre + half * np.broadcast_to(nodes[:, None], inner.shape), centre + half * inner)
    # Node by node: all at once would take gigabytes for a few hundred terms.
    weighted = zip(values * inner_weights, inner, strict=True)
    smoothed = np.stack([row @ legendre.legvander(points, degree - 1) for row, points in weighted]) * scale
    matrix = half * (legendre.legvander(nodes, degree - 1) * scale * weights[:, None]).T @ smoothed
    eigenvalues, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    order = np.argsort(eigenvalues)[::-1][:terms]
    order = order[eigenvalues[order] > 1e-12 * eigenvalues[order[0]]]  # smooth kernels have few above rounding error
    eigenvalues, vectors = eigenvalues[order], vectors[:, order]
    energy = half * float(_evaluate(kernel, centre + half * nodes, centre + half * nodes) @ weights)
    # Fix the signs, so that the basis does not depend on the linear algebra library.
    vectors = vectors * np.where(vectors.sum(axis=0) < 0, -1.0, 1.0)
    coefficients = vectors * scale[:, None] / np.sqrt(half)

    def functions(x: np.ndarray, order: int) -> np.ndarray:
        series = legendre.legder(coefficients, order) / half**order if order else coefficients
        return legendre.legval((x - centre) / half, series).T

    return Eigenpairs(eigenvalues, functions, energy)


def _evaluate(kernel: Kernel, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A kernel at pairs of points, in double precision regardless of JAX's default."""
    with jax.enable_x64(True):
        pairs = jnp.asarray(x).ravel(), jnp.asarray(y).ravel()
        try:
            values = np.asarray(jax.vmap(kernel)(*pairs), dtype=float)
        except Exception as error:
            raise InputError(
                f"KarhunenLoeve: calling the kernel with two numbers failed ({type(error).__name__}: {error}); "
                "write it for one pair of points with jax.numpy"
            ) from error
    if values.shape != (x.size,) or not np.all(np.isfinite(values)):
        raise InputError(
            "KarhunenLoeve: the kernel must return one finite number per pair of points, got NaN, infinity or the "
            f"wrong shape {values.shape}"
        )
    return values.reshape(x.shape)
