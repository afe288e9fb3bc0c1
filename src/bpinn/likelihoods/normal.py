"""Normal noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from bpinn.likelihoods.base import LocationScale, special
from bpinn.registry import register


@register("normal")
@dataclass(frozen=True)
class Normal(LocationScale):
    """Normal noise; ``noise`` is its standard deviation.

    Example:
        >>> import bpinn as bp
        >>> bp.Sensors("u", at={"x": [0.0, 1.0]}, values=[0.1, 0.9], noise=0.1, likelihood=bp.likelihoods.Normal())
        Sensors('u', at=['x'], 2 readings, noise=0.1)
    """

    def log_kernel(self, residual: Any) -> Any:
        return -0.5 * (residual * residual)

    def log_constant(self) -> float:
        return float(-0.5 * np.log(2 * np.pi))

    def unit_cdf(self, residual: np.ndarray) -> np.ndarray:
        return ndtr(residual)

    def unit_log_cdf(self, residual: Any) -> Any:
        return special(residual).log_ndtr(residual)

    def unit_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape)

    def unit_sd(self) -> float:
        return 1.0

    def normal_score(
        self, value: np.ndarray, prediction: np.ndarray, scale: Any, rng: np.random.Generator
    ) -> np.ndarray:
        return (value - prediction) / scale

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        return value

    def describe(self) -> str:
        return ""
