"""Censored readings: beyond a limit of the instrument, only that is known."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.errors import InputError
from bpinn.likelihoods.base import Likelihood, LocationScale, namespace
from bpinn.likelihoods.normal import Normal
from bpinn.registry import register

NORMAL = Normal()
NODES = 64  # quadrature nodes for the Fisher information


@register("censored")
@dataclass(frozen=True)
class Censored(Likelihood):
    """Readings at or below the limit ``below`` are only known to be below it; likewise for ``above``.

    Arguments:
        below: the detection limit. Any reading that is not above it counts as "below the limit", whatever its value.
        above: the saturation limit.
        of: the likelihood of the other readings: `Normal`, `StudentT`, `LogNormal` or another `LocationScale`.

    `mean` and `sd` ignore the limits; simulated readings are clipped to them. Put sensors with different limits
    into separate groups.

    Example:
        >>> import bpinn as bp
        >>> law = bp.likelihoods.Censored(below=0.05, of=bp.likelihoods.LogNormal())
        >>> trace = bp.Sensors("u", at={"x": [0.1, 0.5]}, values=[0.0, 0.31], noise=0.2, likelihood=law)
    """

    below: float | None = None
    above: float | None = None
    of: Likelihood = NORMAL

    def __post_init__(self) -> None:
        for name in ("below", "above"):
            value = getattr(self, name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
                    raise InputError(f"Censored: {name} must be a number, got {value!r}")
                object.__setattr__(self, name, float(value))
        if self.below is None and self.above is None:
            raise InputError("Censored: no limit; give below=, the detection limit, or above=, the saturation limit")
        if self.below is not None and self.above is not None and not self.below < self.above:
            raise InputError(f"Censored: below must be less than above, got {self.below:g} and {self.above:g}")
        if not isinstance(self.of, LocationScale) or not self.of.has_log_cdf:
            raise InputError(
                f"Censored: of= must be Normal(), StudentT(), LogNormal() or a LocationScale with unit_log_cdf, got "
                f"{self.of!r}"
            )
        object.__setattr__(self, "positive", self.of.positive)
        if self.positive:
            self.of.check(np.array([limit for limit in (self.below, self.above) if limit is not None]), "Censored")

    @property
    def _law(self) -> LocationScale:
        assert isinstance(self.of, LocationScale)
        return self.of

    def _limits(self) -> tuple[float, float]:
        return -np.inf if self.below is None else self.below, np.inf if self.above is None else self.above

    def log_prob(self, value: Any, prediction: Any, scale: Any) -> Any:
        xp, (low, high) = namespace(prediction), self._limits()
        # Clipped to the limits, so that both branches have finite derivatives.
        total = self.of.log_prob(xp.clip(value, low, high), prediction, scale)
        if self.below is not None:
            total = xp.where(value <= low, self._law.log_cdf(self.below, prediction, scale), total)
        if self.above is not None:
            total = xp.where(value >= high, self._law.log_survival(self.above, prediction, scale), total)
        return total

    def cdf(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        """A reading beyond a limit counts as one at the limit, whatever its value."""
        low, high = self._limits()
        recorded = np.clip(value, low, high)
        return np.where(recorded >= high, 1.0, self.of.cdf(recorded, prediction, scale))

    def cdf_below(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        low, high = self._limits()
        recorded = np.clip(value, low, high)
        return np.where(recorded <= low, 0.0, self.of.cdf(recorded, prediction, scale))

    def sample(self, rng: np.random.Generator, prediction: np.ndarray, scale: Any) -> np.ndarray:
        return np.clip(self.of.sample(rng, prediction, scale), *self._limits())

    def mean(self, prediction: Any, scale: Any) -> Any:
        return self.of.mean(prediction, scale)

    def sd(self, prediction: Any, scale: Any) -> Any:
        return self.of.sd(prediction, scale)

    def information(self, prediction: Any, scale: Any) -> Any:
        """The information of readings within the limits, by quadrature, plus that of being beyond a limit."""
        law, (low, high) = self._law, self._limits()
        mean, scale = jnp.asarray(prediction, dtype=float), jnp.asarray(scale, dtype=float)
        ends = [
            (law.transform(jnp.asarray(limit)) - law.transform(mean)) / scale
            if np.isfinite(limit)
            else jnp.broadcast_to(limit, jnp.broadcast_shapes(mean.shape, scale.shape))
            for limit in (low, high)
        ]
        # Substitute the residual r = t / (1 - t^2), so that infinite ends become finite in t.
        a, b = (jnp.where(jnp.isinf(r), jnp.sign(r), 2 * r / (1 + jnp.sqrt(1 + 4 * r**2))) for r in ends)
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        t = a[..., None] + (b - a)[..., None] * jnp.asarray(0.5 * (nodes + 1))
        residual, slope = t / (1 - t**2), (1 + t**2) / (1 - t**2) ** 2
        score = jax.grad(lambda r: jnp.sum(law.log_kernel(r)))
        density = jnp.exp(law.log_kernel(residual) + law.log_constant())
        total = jnp.sum(jnp.asarray(0.5 * weights) * score(residual) ** 2 * density * slope, axis=-1) * (b - a)
        for sign, end, limit in ((1.0, ends[0], self.below), (-1.0, ends[1], self.above)):
            if limit is not None:  # squared density at the limit over the probability beyond it
                log_density = law.log_kernel(end) + law.log_constant()
                total += jnp.exp(2 * log_density - law.unit_log_cdf(sign * end))
        per_unit = jax.grad(lambda m: jnp.sum(law.transform(m)))(mean) / scale
        return total * per_unit**2

    def residual(self, value: Any, prediction: Any) -> Any:
        xp, (low, high) = namespace(prediction), self._limits()
        beyond = xp.where(value <= low, xp.maximum(prediction - low, 0.0), xp.minimum(prediction - high, 0.0))
        return xp.where((value <= low) | (value >= high), beyond, prediction - value)

    def error_bar(self, value: np.ndarray, scale: Any) -> np.ndarray:
        low, high = self._limits()
        return np.where((value <= low) | (value >= high), 0.0, self.of.error_bar(value, scale))

    def check(self, value: np.ndarray, where: str) -> None:
        self.of.check(np.clip(value, *self._limits()), where)

    def describe(self) -> str:
        limits = [f"below {self.below:g}" if self.below is not None else ""]
        limits += [f"above {self.above:g}" if self.above is not None else ""]
        of = self.of.describe()
        return f"censored {' and '.join(part for part in limits if part)}" + (f" ({of})" if of else "")

    def prepare(self, values: np.ndarray, scale: np.ndarray | None) -> dict[str, np.ndarray]:
        low, high = self._limits()
        inner = self.of.prepare(np.clip(values, low, high), scale)
        beyond = (values <= low) | (values >= high)
        prepared = {"values": values, "constant": np.where(beyond, 0.0, inner["constant"])}
        return prepared | ({} if scale is None else {"scale": scale})

    def log_prob_of(self, prepared: dict[str, Array], prediction: Array, scale: Array | None) -> Array:
        return self.log_prob(prepared["values"], prediction, prepared.get("scale", scale))
