"""The interface of likelihoods: the distribution of a reading given the model's prediction."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special
from jax import Array
from scipy.special import ndtri

from bpinn.errors import InputError
from bpinn.registry import Registry

LEAST, MOST = 1e-300, 1 - 1e-16  # probabilities whose normal quantiles are finite


def namespace(array: Any) -> Any:
    """``numpy`` or ``jax.numpy``, depending on the array, so that one formula serves both."""
    return array.__array_namespace__()


def special(array: Any) -> Any:
    """``scipy.special`` or ``jax.scipy.special``, depending on the array."""
    return scipy.special if namespace(array) is np else jax.scipy.special


@dataclass(frozen=True)
class Likelihood(ABC):
    """The distribution of a reading given its prediction. A subclass is a frozen dataclass; its fields are parameters.

    In all methods ``value`` is the reading, ``prediction`` the model's noise-free prediction of it, and ``scale`` the
    ``noise`` of the sensors (None if ``has_scale`` is False); they broadcast. `log_prob`, `information` and `response`
    are differentiated and get JAX arrays inside samplers; with NumPy arrays they work in double precision. With
    `namespace` and `special` one formula serves both. The other methods get NumPy arrays.

    Example:
        >>> import numpy as np, bpinn as bp
        >>> bp.likelihoods.Poisson().sd(np.array([4.0, 9.0]), None).tolist()
        [2.0, 3.0]
    """

    registry: ClassVar[Registry] = Registry("likelihood")
    has_scale: ClassVar[bool] = True  # whether it takes ``noise=``
    positive: ClassVar[bool] = False  # whether predictions must be positive

    @abstractmethod
    def log_prob(self, value: Any, prediction: Any, scale: Any) -> Any:
        """Log density (or log probability) of each reading, with its normalising constant."""

    @abstractmethod
    def cdf(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        """Probability of a reading of at most ``value``."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, prediction: np.ndarray, scale: Any) -> np.ndarray:
        """Simulated readings, one per prediction."""

    @abstractmethod
    def sd(self, prediction: Any, scale: Any) -> Any:
        """Standard deviation of a reading."""

    # --- derived from these; may be overridden ---

    def mean(self, prediction: Any, scale: Any) -> Any:
        """Mean of a reading."""
        return prediction

    def cdf_below(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        """Probability of a reading strictly below ``value``; differs from `cdf` for discrete readings."""
        return self.cdf(value, prediction, scale)

    def normal_score(
        self, value: np.ndarray, prediction: np.ndarray, scale: Any, rng: np.random.Generator
    ) -> np.ndarray:
        """The normal quantile of the reading's cdf: standard normal if the model is correct.

        For discrete readings these are randomized quantile residuals (Dunn and Smyth 1996).
        """
        low, high = self.cdf_below(value, prediction, scale), self.cdf(value, prediction, scale)
        at = high if np.array_equal(low, high) else low + (high - low) * rng.uniform(size=np.shape(high))
        return ndtri(np.clip(at, LEAST, MOST))

    def information(self, prediction: Any, scale: Any) -> Any:
        """Fisher information of a reading about its prediction; by default that of a normal with the same sd."""
        return (1.0 / self.sd(prediction, scale)) ** 2  # the square of a small sd has no derivative in single precision

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        """The working response: a normal reading with precision `information` and the same score as this one.

        It is ``prediction + score / information``; for normal noise it is the reading itself.
        """
        score = jax.grad(lambda p: jnp.sum(self.log_prob(value, p, scale)))(jnp.asarray(prediction, dtype=float))
        root = jnp.sqrt(self.information(prediction, scale))
        return prediction + score / root / root

    def residual(self, value: Any, prediction: Any) -> Any:
        """The residual that least squares minimizes."""
        return prediction - value

    def error_bar(self, value: np.ndarray, scale: Any) -> np.ndarray:
        """Half the length of a reading's error bar in figures."""
        return np.broadcast_to(self.sd(value, scale), np.shape(value))

    def check(self, value: np.ndarray, where: str) -> None:  # noqa: B027
        """Raise `InputError` if these are not valid readings."""

    def describe(self) -> str:
        """A short description for reports; empty for normal noise."""
        return type(self).__name__

    # --- used by samplers ---

    def prepare(self, values: np.ndarray, scale: np.ndarray | None) -> dict[str, np.ndarray]:
        """Arrays that the log density needs, computed once in double precision; ``scale`` is None if it is inferred.

        ``constant`` is the log density of readings that are predicted exactly (with unit scale if it is inferred);
        annealing measures the misfit relative to it.
        """
        one = 1.0 if scale is None and self.has_scale else scale
        constant = np.broadcast_to(np.asarray(self.log_prob(values, values, one), float), values.shape)
        return {"values": values, "constant": constant} | ({} if scale is None else {"scale": scale})

    def log_prob_of(self, prepared: dict[str, Array], prediction: Array, scale: Array | None) -> Array:
        """`log_prob` from the output of `prepare`; ``scale`` is given if it is inferred."""
        return self.log_prob(prepared["values"], prediction, prepared.get("scale", scale))


@dataclass(frozen=True)
class LocationScale(Likelihood):
    """A reading is its prediction plus symmetric noise, with a density of the residual in units of ``scale``."""

    @abstractmethod
    def log_kernel(self, residual: Any) -> Any:
        """Log density of the residual in units of the scale, without its normalising constant."""

    @abstractmethod
    def log_constant(self) -> float:
        """The log normalising constant that `log_kernel` omits."""

    @abstractmethod
    def unit_cdf(self, residual: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def unit_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray: ...

    @abstractmethod
    def unit_sd(self) -> float: ...

    def unit_log_cdf(self, residual: Any) -> Any:
        """Log of `unit_cdf`, also for JAX arrays; needed for censored readings. Optional."""
        raise InputError(f"{type(self).__name__}: unit_log_cdf is not implemented")

    @property
    def has_log_cdf(self) -> bool:
        return type(self).unit_log_cdf is not LocationScale.unit_log_cdf

    def transform(self, value: Any) -> Any:
        """Transform readings and predictions to the space in which noise is additive."""
        return value

    def log_cdf(self, value: float, prediction: Any, scale: Any) -> Any:
        """Log probability of a reading below ``value``."""
        at = self.transform(namespace(prediction).asarray(value))
        return self.unit_log_cdf((at - self.transform(prediction)) / scale)

    def log_survival(self, value: float, prediction: Any, scale: Any) -> Any:
        """Log probability of a reading above ``value``; uses the symmetry of the noise."""
        at = self.transform(namespace(prediction).asarray(value))
        return self.unit_log_cdf((self.transform(prediction) - at) / scale)

    def log_prob(self, value: Any, prediction: Any, scale: Any) -> Any:
        xp = namespace(prediction)
        residual = (self.transform(prediction) - self.transform(value)) / scale
        return self.log_kernel(residual) + (self.log_constant() - xp.log(scale))

    def cdf(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        return self.unit_cdf((self.transform(value) - self.transform(prediction)) / scale)

    def sample(self, rng: np.random.Generator, prediction: np.ndarray, scale: Any) -> np.ndarray:
        return prediction + scale * self.unit_sample(rng, np.shape(prediction))

    def sd(self, prediction: Any, scale: Any) -> Any:
        return self.unit_sd() * scale

    def error_bar(self, value: np.ndarray, scale: Any) -> np.ndarray:
        return np.broadcast_to(scale, np.shape(value))

    def prepare(self, values: np.ndarray, scale: np.ndarray | None) -> dict[str, np.ndarray]:
        constant = np.full(len(values), self.log_constant())
        prepared = {"values": self.transform(values), "constant": constant}
        if scale is not None:
            prepared |= {"precision": 1.0 / scale, "constant": constant - np.log(scale)}
        return prepared

    def log_prob_of(self, prepared: dict[str, Array], prediction: Array, scale: Array | None) -> Array:
        """Multiplies by the precision instead of dividing, with constants computed in double precision."""
        residual, constant = self.transform(prediction) - prepared["values"], prepared["constant"]
        if scale is None:
            residual = residual * prepared["precision"]
        else:
            residual, constant = residual / scale, constant - jnp.log(scale)
        return self.log_kernel(residual) + constant


def check_positive(likelihood: str, name: str, value: Any) -> None:
    """Raise `InputError` unless a parameter is a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise InputError(f"{likelihood}: {name} must be a positive number, got {value!r}")
