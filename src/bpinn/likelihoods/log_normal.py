"""Multiplicative noise."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bpinn.errors import InputError
from bpinn.likelihoods.base import namespace
from bpinn.likelihoods.normal import Normal
from bpinn.registry import register


@register("lognormal")
@dataclass(frozen=True)
class LogNormal(Normal):
    """Multiplicative noise: log reading is normal around log prediction; the prediction is the median.

    ``noise`` is the standard deviation of the logarithm, approximately the relative error: 0.1 is ten percent. Readings
    and predictions must be positive, so use a field with ``positive=True`` or an equation that is positive.

    Example:
        >>> import numpy as np, bpinn as bp
        >>> bp.likelihoods.LogNormal().sd(np.array([1.0, 10.0]), 0.1).round(2).tolist()
        [0.1, 1.01]
    """

    positive: ClassVar[bool] = True

    def transform(self, value: Any) -> Any:
        return namespace(value).log(value)

    def log_prob(self, value: Any, prediction: Any, scale: Any) -> Any:
        return super().log_prob(value, prediction, scale) - self.transform(value)

    def prepare(self, values: np.ndarray, scale: np.ndarray | None) -> dict[str, np.ndarray]:
        prepared = super().prepare(values, scale)
        return prepared | {"constant": prepared["constant"] - np.log(values)}

    def sample(self, rng: np.random.Generator, prediction: np.ndarray, scale: Any) -> np.ndarray:
        return prediction * np.exp(scale * self.unit_sample(rng, np.shape(prediction)))

    def mean(self, prediction: Any, scale: Any) -> Any:
        return prediction * namespace(prediction).exp(0.5 * scale**2)

    def sd(self, prediction: Any, scale: Any) -> Any:
        xp = namespace(prediction)
        return self.mean(prediction, scale) * xp.sqrt(xp.expm1(scale**2))

    def normal_score(
        self, value: np.ndarray, prediction: np.ndarray, scale: Any, rng: np.random.Generator
    ) -> np.ndarray:
        return (np.log(value) - np.log(prediction)) / scale

    def information(self, prediction: Any, scale: Any) -> Any:
        return (1.0 / (prediction * scale)) ** 2

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        return prediction * (1.0 + namespace(prediction).log(value / prediction))

    def error_bar(self, value: np.ndarray, scale: Any) -> np.ndarray:
        return value * np.broadcast_to(scale, np.shape(value))

    def check(self, value: np.ndarray, where: str) -> None:
        if np.any(value <= 0):
            raise InputError(
                f"{where}: LogNormal readings must be positive, got {value.min():g}; remove it, mark it as below the "
                "detection limit with bp.likelihoods.Censored, or use normal noise"
            )

    def describe(self) -> str:
        return "multiplicative (log-normal) noise"
