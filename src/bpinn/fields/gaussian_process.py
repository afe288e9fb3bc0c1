"""A Gaussian process whose scales are inferred, by the Hilbert-space approximation.

On an interval that extends beyond the domain, a stationary kernel is close to a sum over the eigenfunctions of the
Laplacian, weighted by the kernel's spectral density at their frequencies (Solin and Särkkä 2020). The eigenfunctions do
not depend on the scales, so that derivatives are computed once, and the field is linear in its coefficients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from bpinn.errors import InputError
from bpinn.fields.activations import MultiIndex
from bpinn.fields.base import Bounds, Features, Field, Request, Streams, Wanted
from bpinn.fields.karhunen_loeve import cut, mean_at, prepared
from bpinn.fields.kernels import RationalQuadratic, Stationary
from bpinn.fields.scales import Inferred, far_above
from bpinn.registry import register

SMOOTH = RationalQuadratic()
MOST_TERMS, MOST_INPUTS = 400, 3
# Quantiles of a length's prior that terms and interval are chosen for. With several inputs there are not enough terms
# for both ends; where the posterior leaves the range that is resolved, `criticism` says so.
RANGE, RANGE_OF_SEVERAL = (0.025, 0.975), (0.025, 0.85)
LEAST_SHARE = 1e-3  # of the largest reading of a positive field, at which smaller ones are cut before the link
UNIT_SHARE = 0.3  # of the mean of its readings, at which its link bends
SLACK = 1.1  # beyond the range of lengths that are resolved
# Lengths from the middle to the ends of the interval with which the verdict is content: where readings end, means are
# then within about 0.1 sd, and sds within 10%.
NEAREST = 2.5
CORNERS = 1.2  # with several inputs, high frequencies in two of them at once are left out
CHOSEN_TERMS = {1: 400, 2: 250, 3: 300}  # at most, by the number of inputs: more make chains slow
SHORTEST_FACTOR = 1.2  # half-width of the interval over that of the domain
# Terms of an expansion to advise for smooth fields of several inputs, and its length, as a share of the length found.
EXPANDED, SHORTER = {2: 120, 3: 250}, 0.7
LENGTH_SHARE, LENGTH_SPREAD = 0.2, 0.5  # default prior of a length: median as a share of the domain, sd of its log
AMPLITUDE_SPREAD, FREE_SPREAD = 1.0, 1.5  # sd of the log of the amplitude, if there are readings of the field, or none


@register("gp")
@dataclass(frozen=True)
class GaussianProcess(Field):
    """A Gaussian process with a stationary kernel, whose length and amplitude may have priors.

    What is not given is chosen from the domain and the readings when the problem is made, and is then part of the
    problem: priors of the scales, the mean, the number of terms and the interval. With one input, terms and interval
    follow from the 2.5% and 97.5% quantiles of the length; with two (three) inputs, at most 250 (300) terms cover as
    much as they can. `resolved` says for which lengths means are within 0.02 sd of dense regression, and sds within 2%;
    for other lengths the prior is that of the terms, and the verdict says so.

    Arguments:
        kernel: `RationalQuadratic` (the default), `SquaredExponential`, `Matern52` or `Matern32`. ``length`` and
            ``amplitude`` are numbers, positive ``numpyro.distributions`` priors, or None for a default prior. Every
            input has a length of its own: ``length`` may be a tuple with one entry per input.
        mean: a number, or a function of the inputs written with ``jax.numpy``; by default the mean of the readings.
        terms: number of terms, at most 400.
        factor: width of the interval over that of the domain, one number or one per input.
        periodic: names of inputs in which the field is periodic over the domain; needs ``inputs``.
        unit: of a positive field, ``unit * softplus(process / unit)``: larger values are nearly those of the process,
            smaller ones nearly an exponential of it; by default 0.3 of the mean of the readings.
        inputs, positive: see `Field`; at most 3 inputs.

    Example:
        >>> import bpinn as bp, numpyro.distributions as dist
        >>> smooth = bp.GaussianProcess()
        >>> rough = bp.GaussianProcess(bp.Matern52(length=dist.LogNormal(-1.0, 0.5), amplitude=1.0))
        >>> rough.size(((0.0, 1.0),))
        145
    """

    kernel: Stationary = SMOOTH
    mean: float | Callable[..., Any] | None = None
    terms: int | None = None
    factor: float | tuple[float, ...] | None = None
    periodic: tuple[str, ...] = ()
    unit: float | None = None

    def __post_init__(self) -> None:
        self._normalise_inputs()
        if not isinstance(self.kernel, Stationary):
            raise InputError(f"GaussianProcess: kernel must be an object such as bp.Matern52(), got {self.kernel!r}")
        if self.kernel.hilbert is None:
            raise InputError(
                f"GaussianProcess: functions with the kernel {type(self.kernel).__name__} are too rough for this "
                "approximation; use bp.KarhunenLoeve, or a smoother kernel"
            )
        if self.terms is not None:
            whole = isinstance(self.terms, int | np.integer) and not isinstance(self.terms, bool)
            if not whole or not 1 <= self.terms <= MOST_TERMS:
                raise InputError(
                    f"GaussianProcess: terms must be a whole number from 1 to {MOST_TERMS}, got {self.terms!r}"
                )
            object.__setattr__(self, "terms", int(self.terms))
        number = isinstance(self.mean, int | float) and not isinstance(self.mean, bool) and abs(self.mean) < np.inf
        if not (self.mean is None or callable(self.mean) or number):
            raise InputError(f"GaussianProcess: mean must be a number or a function, got {self.mean!r}")
        if self.unit is not None:
            size = isinstance(self.unit, int | float) and not isinstance(self.unit, bool)
            if not size or not 0 < self.unit < np.inf:
                raise InputError(f"GaussianProcess: unit must be a positive number, got {self.unit!r}")
            if not self.positive:
                raise InputError("GaussianProcess: unit is of a field with positive=True; add that, or remove unit")
        if self.factor is not None:
            object.__setattr__(self, "factor", _factors(self.factor))
        names = (self.periodic,) if isinstance(self.periodic, str) else self.periodic
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"GaussianProcess: periodic must be names of inputs, got {self.periodic!r}")
        object.__setattr__(self, "periodic", tuple(names))
        if names and self.inputs is None:
            raise InputError("GaussianProcess: periodic needs inputs, all coordinates that the field depends on")
        strange = [name for name in names if name not in (self.inputs or ())]
        if strange:
            raise InputError(f"GaussianProcess: periodic names {strange[0]!r}, which is not one of its inputs")

    # --- what is chosen from the problem ---

    def completed(self, values: np.ndarray, bounds: Bounds) -> "GaussianProcess":
        """With priors, mean, terms and interval; ``values`` are all readings of the field itself."""
        unit = self.unit
        if self.positive:
            values = np.maximum(values, LEAST_SHARE * np.max(np.abs(values), initial=1e-30))
            unit = unit or float(f"{UNIT_SHARE * np.mean(values) if len(values) else 1.0:.3g}")
            values = values + unit * np.log(-np.expm1(-values / unit))  # before the link
        centre = float(np.mean(values)) if len(values) else 0.0
        spread = float(np.std(values)) if len(values) > 1 else 0.0
        sized = spread > 1e-12 * max(abs(centre), 1e-300)
        mean = self.mean if self.mean is not None else _rounded(centre, spread if sized else 0.0)
        kernel = self.kernel
        if kernel.sd is None:
            typical = float(f"{spread if sized else abs(centre) or 1.0:.3g}")
            prior = dist.LogNormal(float(np.log(typical)), AMPLITUDE_SPREAD if sized else FREE_SPREAD)
            kernel = replace(kernel, sd=prior)
        if kernel.length is None:
            lengths = [LENGTH_SHARE * (high - low) for low, high in bounds]
            medians = np.log(lengths) if len(lengths) > 1 else np.log(lengths[0])
            prior = dist.LogNormal(medians, LENGTH_SPREAD)
            kernel = replace(kernel, length=prior if len(lengths) == 1 else prior.to_event(1))
        whole = replace(self, kernel=kernel, mean=mean, unit=unit)
        grid = _grid(whole, bounds)
        return replace(whole, terms=len(grid.frequencies), factor=grid.factors)

    def check(self, bounds: Bounds) -> None:
        if len(bounds) > MOST_INPUTS:
            raise InputError(
                f"GaussianProcess has {len(bounds)} inputs, at most {MOST_INPUTS} are possible; use bp.MLP()"
            )
        if isinstance(self.factor, tuple) and len(self.factor) not in (1, len(bounds)):
            raise InputError(f"GaussianProcess: {len(self.factor)} factors for {len(bounds)} inputs")
        if self.kernel.length is not None:
            shape = np.shape(_typical(self.kernel.length, 0.5))
            if shape not in ((), (len(bounds),)):
                raise InputError(
                    f"GaussianProcess: lengths of shape {shape} for {len(bounds)} inputs; give one, or one per input"
                )

    def check_derivatives(self, requests: Sequence[Request]) -> None:
        highest = max((sum(index) for request in requests for index in request), default=0)
        if highest > self.kernel.differentiable:
            raise InputError(
                f"a Gaussian process with the kernel {type(self.kernel).__name__} has no derivative of order {highest} "
                f"(at most {self.kernel.differentiable:g}); use a smoother kernel, such as bp.RationalQuadratic()"
            )

    # --- the field ---

    @property
    def link_unit(self) -> float:
        return 1.0 if self.unit is None else self.unit

    def size(self, bounds: Bounds) -> int:
        return len(_grid(self, bounds).frequencies)

    def prior_sd(self, bounds: Bounds) -> np.ndarray:
        return np.ones(self.size(bounds))

    def unflatten(self, theta: Array, bounds: Bounds) -> Array:
        """The standardised coefficients."""
        return theta

    def scale_priors(self, bounds: Bounds) -> Mapping[str, dist.Distribution]:
        found = {}
        length, amplitude = self.kernel.length, self.kernel.sd
        if isinstance(length, Inferred):
            prior = length.prior
            if prior.shape() == () and len(bounds) > 1:
                prior = prior.expand([len(bounds)]).to_event(1)
            found["length"] = prior
        if isinstance(amplitude, Inferred):
            found["amplitude"] = amplitude.prior
        return found

    def prepare(self, points: Sequence[np.ndarray], requests: Sequence[Request], bounds: Bounds) -> Any:
        self.check_derivatives(requests)
        return prepared(self, points, requests, bounds)

    def fixed_basis(self, points: np.ndarray, index: MultiIndex, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
        mean = self.mean if self.mean is not None else 0.0
        return _grid(self, bounds).at(points, index), mean_at(mean, points, index)

    def _roots(self, wanted: Wanted) -> Array:
        """Prior standard deviation of each coefficient, given the scales."""
        length = wanted.scales.get("length", _number(self.kernel.length))
        amplitude = wanted.scales.get("amplitude", _number(self.kernel.sd))
        frequencies = jnp.asarray(_grid(self, wanted.bounds).frequencies, dtype=float)
        lengths = jnp.broadcast_to(jnp.asarray(length, dtype=float), (len(wanted.bounds),))
        return amplitude * jnp.exp(0.5 * self.kernel.log_spectrum(frequencies, lengths))

    def raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        return cut(prepared["basis"] @ (self._roots(wanted) * theta) + prepared["mean"], wanted)

    def linear(self, bounds: Bounds) -> slice:
        """All coefficients."""
        return slice(0, self.size(bounds))

    def features(self, theta: Array, prepared: Any, wanted: Wanted) -> Features:
        return Features(cut(prepared["basis"] * self._roots(wanted), wanted), cut(prepared["mean"], wanted))

    def stacked(self, theta: Array, prepared: Any, wanted: Wanted) -> Array:
        return (prepared["basis"] * self._roots(wanted)).T  # rows are in the order of `layout`

    def resolved(self, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
        """The shortest and the longest lengths, one per input, for which the approximation is accurate."""
        grid = _grid(self, bounds)
        half = np.array([0.5 * (high - low) for low, high in bounds])
        assert self.kernel.hilbert is not None
        shortest = 0.5 * np.pi * self.kernel.hilbert.accurate / grid.frequencies.max(axis=0)
        shortest = shortest * (1.0 if len(bounds) == 1 else CORNERS)
        longest = np.where(grid.is_periodic, np.inf, np.array(grid.factors) * half / self.kernel.hilbert.width)
        return shortest, longest

    def criticism(self, scales: Mapping[str, np.ndarray], bounds: Bounds) -> list[tuple[str, str]]:
        """Lengths that the terms and the interval do not resolve, and an amplitude far above its prior."""
        of_amplitude = {name: draws for name, draws in scales.items() if name == "amplitude"}
        large = far_above(of_amplitude, self.scale_priors(bounds))
        if "length" not in scales or self.kernel.hilbert is None:
            return large
        draws = np.asarray(scales["length"], float)
        found = np.broadcast_to(
            np.median(draws.reshape(-1, draws.shape[-1] if draws.ndim > 2 else 1), axis=0), len(bounds)
        )
        shortest, longest = self.resolved(bounds)
        needed = self.kernel.hilbert
        shortest, longest = (
            shortest * needed.least / needed.accurate,
            longest * needed.width / min(needed.near, NEAREST),
        )
        told = []
        for length, low, high in zip(found, shortest, longest, strict=True):
            if length < low / SLACK or length > high * SLACK:
                reason = (
                    f"is {length:.2g}, but its {self.size(bounds)} terms resolve lengths from {low:.2g} to {high:.2g}"
                )
                more = "more terms" if length < low else "a larger factor, and more terms"
                advice = f"bp.GaussianProcess(terms=..., factor=...) with {more}, or bp.MLP()"
                if length < low and self.size(bounds) * low / length > MOST_TERMS:
                    advice = f"a smaller domain, because at most {MOST_TERMS} terms are possible, or bp.MLP()"
                elif length > high and len(bounds) > 1:
                    advice = _smooth(found, float(np.median(scales.get("amplitude", self.kernel.sd))))
                told.append((f"a length {reason}", advice))
        return told + large

    def describe(self) -> str:
        terms = f", {self.terms} terms" if self.terms else ""
        return f"Gaussian process, {type(self.kernel).__name__} kernel{terms}"


def _rounded(centre: float, spread: float) -> float:
    """The mean of the readings, to a hundredth of their spread; as it is if they do not differ."""
    return round(centre, 2 - int(np.floor(np.log10(spread)))) if spread else centre


def _smooth(lengths: np.ndarray, sd: float) -> str:
    """The expansion to advise for a field that is smoother than the terms of several inputs resolve."""
    kernels = [f"bp.SquaredExponential(length={SHORTER * length:.2g}" for length in lengths]
    kernels[0] += f", amplitude={sd:.2g}"
    given = ", ".join(f"{kernel})" for kernel in kernels)
    return f"an expansion, which infers no length: bp.KarhunenLoeve(({given}), terms={EXPANDED[len(lengths)]})"


def _number(value: Any) -> Any:
    return None if value is None or isinstance(value, Inferred) else np.asarray(value, float)


def _typical(value: Any, quantile: float) -> np.ndarray:
    """A quantile of a scale's prior; a number is its own."""
    if not isinstance(value, Inferred):
        return np.asarray(value, float)
    return value.quantile(quantile)


def _factors(factor: Any) -> tuple[float, ...]:
    try:
        found = np.atleast_1d(np.asarray(factor, float))
        right = found.ndim == 1 and np.all(np.isfinite(found)) and np.all(found >= 1.0)
    except (TypeError, ValueError):
        right = False
    if not right:
        raise InputError(f"GaussianProcess: factor must be a number of at least 1, or one per input, got {factor!r}")
    return tuple(float(one) for one in found)


@dataclass(frozen=True, eq=False)
class _Grid:
    """The basis: products of waves, one per input, lowest frequencies in units of the lengths first."""

    centres: np.ndarray
    halves: np.ndarray  # of the enlarged interval; for a periodic input, of the domain
    is_periodic: np.ndarray
    numbers: np.ndarray  # (terms, inputs)
    frequencies: np.ndarray  # (terms, inputs)
    factors: tuple[float, ...]

    def at(self, x: np.ndarray, index: MultiIndex) -> np.ndarray:
        """A derivative of each basis function, shape (points, terms)."""
        product = np.ones((len(x), len(self.numbers)))
        for i, order in enumerate(index):
            w, half = self.frequencies[:, i], self.halves[i]
            if self.is_periodic[i]:  # 1, cos, sin, cos, sin, ...
                phase = np.where(self.numbers[:, i] % 2, 0.0, -0.5 * np.pi)
                phase = np.where(self.numbers[:, i] == 0, 0.0, phase)
                norm = np.sqrt(np.where(self.numbers[:, i] == 0, 2.0, 1.0) * half)
            else:  # sin(w (x - centre + half)) = cos(w (x - centre) + w half - pi / 2)
                phase, norm = w * half - 0.5 * np.pi, np.sqrt(half)
            turned = w * (x[:, i, None] - self.centres[i]) + phase + 0.5 * np.pi * order
            product *= w**order * np.cos(turned) / norm
        return product


@lru_cache(maxsize=64)
def _grid(field: GaussianProcess, bounds: Bounds) -> _Grid:
    """The basis for a field; what is not given is chosen from the prior of the lengths."""
    inputs = len(bounds)
    low, high = np.array(bounds, float).T
    centres, halves = 0.5 * (low + high), 0.5 * (high - low)
    needed = field.kernel.hilbert
    assert needed is not None
    lengths = field.kernel.length if field.kernel.length is not None else LENGTH_SHARE * (high - low)
    quantiles = RANGE if inputs == 1 else RANGE_OF_SEVERAL
    shortest, longest = (np.broadcast_to(_typical(lengths, q), (inputs,)) for q in quantiles)
    periodic = np.array([name in field.periodic for name in field.inputs or [""] * inputs])
    if field.factor is None:
        factors = np.maximum(needed.near * longest / halves, SHORTEST_FACTOR)
        factors = np.ceil(100 * factors) / 100
    else:
        factors = np.broadcast_to(np.array(field.factor), (inputs,))
    factors = np.where(periodic, 1.0, factors)
    wide = factors * halves
    highest = 0.5 * np.pi * needed.chosen  # frequency that is needed, in units of the shortest length
    waves = []
    for i in range(inputs):
        number = np.arange(MOST_TERMS)
        wave = np.pi * ((number + 1) // 2) / halves[i] if periodic[i] else 0.5 * np.pi * (number + 1) / wide[i]
        waves.append(wave)
    candidates = np.array(_products(inputs, MOST_TERMS))
    frequencies = np.stack([waves[i][candidates[:, i]] for i in range(inputs)], axis=1)
    radius = np.sum((frequencies * shortest) ** 2, axis=1)
    order = np.argsort(radius, kind="stable")
    if field.terms is None:
        inside = int(np.sum(radius <= highest**2 * (1 + 1e-9)))
        order = order[: min(max(inside, 1), CHOSEN_TERMS[inputs])]
    else:
        order = order[: field.terms]
    return _Grid(centres, wide, periodic, candidates[order], frequencies[order], tuple(float(f) for f in factors))


@lru_cache(maxsize=8)
def _products(inputs: int, most: int) -> list[tuple[int, ...]]:
    """All indices from 0 that can be among the ``most`` lowest: those with at most so many below them."""
    if inputs == 0:
        return [()]
    return [(first, *rest) for first in range(most) for rest in _products(inputs - 1, most // (first + 1))]
