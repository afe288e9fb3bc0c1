"""What every likelihood offers: the law of a reading, given what the model predicts for it."""

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
    """``numpy`` or ``jax.numpy``, whichever an array is of, so that a formula is written once for both."""
    return array.__array_namespace__()


def special(array: Any) -> Any:
    """``scipy.special`` or ``jax.scipy.special``, whichever suits an array."""
    return scipy.special if namespace(array) is np else jax.scipy.special


@dataclass(frozen=True)
class Likelihood(ABC):
    """How a reading scatters about its prediction. A subclass is a frozen dataclass; its fields are its parameters.

    In all methods ``value`` is the reading, ``prediction`` what the model says it is without noise, and ``scale`` the
    ``noise`` of the sensors (None if ``has_scale`` is False); they broadcast. `log_prob`, `information` and `response`
    are differentiated and get JAX arrays inside samplers; with NumPy arrays they work in double precision. `namespace`
    and `special` make one formula serve both. The other methods get NumPy arrays.
    """

    registry: ClassVar[Registry] = Registry("likelihood")
    has_scale: ClassVar[bool] = True  # whether ``noise=`` belongs to it
    positive: ClassVar[bool] = False  # whether predictions must be positive

    @abstractmethod
    def log_prob(self, value: Any, prediction: Any, scale: Any) -> Any:
        """Log density (or log probability) of each reading, with its normalising constant."""

    @abstractmethod
    def cdf(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        """Probability of a reading of at most ``value``."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, prediction: np.ndarray, scale: Any) -> np.ndarray:
        """New readings, one for each prediction."""

    @abstractmethod
    def sd(self, prediction: Any, scale: Any) -> Any:
        """Standard deviation of a reading about its mean."""

    # --- what follows from these, and what may be overridden ---

    def mean(self, prediction: Any, scale: Any) -> Any:
        """Mean of a reading."""
        return prediction

    def cdf_below(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        """Probability of a reading below ``value``: other than `cdf` where single values have a probability."""
        return self.cdf(value, prediction, scale)

    def normal_score(
        self, value: np.ndarray, prediction: np.ndarray, scale: Any, rng: np.random.Generator
    ) -> np.ndarray:
        """A standard normal variable if the model is right: the normal quantile of the reading's probability.

        Where single values have a probability it is drawn uniformly from their interval (Dunn and Smyth 1996).
        """
        low, high = self.cdf_below(value, prediction, scale), self.cdf(value, prediction, scale)
        at = high if np.array_equal(low, high) else low + (high - low) * rng.uniform(size=np.shape(high))
        return ndtri(np.clip(at, LEAST, MOST))

    def information(self, prediction: Any, scale: Any) -> Any:
        """Fisher information that a reading has about its prediction; of a normal one with the same sd unless given."""
        return 1.0 / self.sd(prediction, scale) ** 2

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        """The working response: a normal reading with precision `information` that pulls as this one does.

        It is ``prediction + score / information``; for normal noise it is the reading itself.
        """
        score = jax.grad(lambda p: jnp.sum(self.log_prob(value, p, scale)))(jnp.asarray(prediction, dtype=float))
        return prediction + score / self.information(prediction, scale)

    def residual(self, value: Any, prediction: Any) -> Any:
        """What least squares makes small."""
        return prediction - value

    def error_bar(self, value: np.ndarray, scale: Any) -> np.ndarray:
        """Half the length of the error bar of a reading in a figure."""
        return np.broadcast_to(self.sd(value, scale), np.shape(value))

    def check(self, value: np.ndarray, where: str) -> None:  # noqa: B027
        """Raise `InputError` if these cannot be readings."""

    def describe(self) -> str:
        """In words, for reports; nothing for normal noise."""
        return type(self).__name__

    # --- the form in which samplers use it ---

    def prepare(self, values: np.ndarray, scale: np.ndarray | None) -> dict[str, np.ndarray]:
        """What the log density needs of readings, computed once in double precision; ``scale`` is None if inferred.

        ``constant`` is the log density of readings that are predicted exactly (their scale left out if it is inferred):
        what annealing measures the misfit from.
        """
        one = 1.0 if scale is None and self.has_scale else scale
        constant = np.broadcast_to(np.asarray(self.log_prob(values, values, one), float), values.shape)
        return {"values": values, "constant": constant} | ({} if scale is None else {"scale": scale})

    def log_prob_of(self, prepared: dict[str, Array], prediction: Array, scale: Array | None) -> Array:
        """`log_prob` from what `prepare` made; ``scale`` is given if it is inferred."""
        return self.log_prob(prepared["values"], prediction, prepared.get("scale", scale))


@dataclass(frozen=True)
class LocationScale(Likelihood):
    """A reading is its prediction plus symmetric noise: a density of the residual in units of ``scale``."""

    @abstractmethod
    def log_kernel(self, residual: Any) -> Any:
        """Log density of the residual in units of the scale, without its constant."""

    @abstractmethod
    def log_constant(self) -> float:
        """What `log_kernel` leaves out."""

    @abstractmethod
    def unit_cdf(self, residual: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def unit_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray: ...

    @abstractmethod
    def unit_sd(self) -> float: ...

    def unit_log_cdf(self, residual: Any) -> Any:
        """Log of `unit_cdf`, for JAX arrays too: what readings beyond a limit need. Optional."""
        raise InputError(f"{type(self).__name__}: it has no unit_log_cdf")

    @property
    def has_log_cdf(self) -> bool:
        return type(self).unit_log_cdf is not LocationScale.unit_log_cdf

    def transform(self, value: Any) -> Any:
        """The space in which noise is added, of readings and predictions alike."""
        return value

    def log_cdf(self, value: float, prediction: Any, scale: Any) -> Any:
        """Log probability of a reading below ``value``."""
        at = self.transform(namespace(prediction).asarray(value))
        return self.unit_log_cdf((at - self.transform(prediction)) / scale)

    def log_survival(self, value: float, prediction: Any, scale: Any) -> Any:
        """Log probability of a reading above ``value``; noise is symmetric."""
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
        """With the precision in place of a division, and constants in double precision."""
        residual, constant = self.transform(prediction) - prepared["values"], prepared["constant"]
        if scale is None:
            residual = residual * prepared["precision"]
        else:
            residual, constant = residual / scale, constant - jnp.log(scale)
        return self.log_kernel(residual) + constant


def check_positive(likelihood: str, name: str, value: Any) -> None:
    """A parameter that must be a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise InputError(f"{likelihood}: {name} must be a positive number, got {value!r}")
