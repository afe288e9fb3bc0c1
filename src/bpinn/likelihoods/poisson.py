"""Counts."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import pdtr

from bpinn.errors import InputError
from bpinn.likelihoods.base import Likelihood, namespace, special
from bpinn.registry import register


def check_counts(likelihood: str, value: np.ndarray, where: str) -> None:
    """Raise `InputError` unless all readings are non-negative whole numbers."""
    if np.any(value < 0) or np.any(value != np.round(value)):
        wrong = value[(value < 0) | (value != np.round(value))][0]
        raise InputError(
            f"{where}: {likelihood} readings must be counts (0, 1, 2, ...), got {wrong:g}; give raw counts, and put "
            "factors such as an exposure time into the equation"
        )


def draw_counts(draw: Any, prediction: np.ndarray) -> np.ndarray:
    """Counts from ``draw``, a function of positive means; NaN where a prediction is not positive and none is valid."""
    valid = prediction > 0
    return np.where(valid, draw(np.where(valid, prediction, 1.0)), np.nan)


@register("poisson")
@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts of independent events; the prediction is their mean, so the field or the equation must be positive.

    It takes no ``noise``. For counts over an exposure time, use ``bp.Sensors(lambda u: seconds * u, ...)``.

    Example:
        >>> import bpinn as bp
        >>> bp.Sensors("u", at={"x": [0.0, 1.0]}, values=[3, 5], likelihood=bp.likelihoods.Poisson())
        Sensors('u', at=['x'], 2 readings, noise=NoneType)
    """

    has_scale: ClassVar[bool] = False
    positive: ClassVar[bool] = True

    def log_prob(self, value: Any, prediction: Any, scale: Any) -> Any:
        xp, functions = namespace(prediction), special(prediction)
        valid = prediction >= 0
        mean = xp.where(valid, prediction, 1.0)  # so that no branch has a derivative that is not finite
        log_prob = functions.xlogy(value, mean) - mean - functions.gammaln(value + 1.0)
        return xp.where(valid, log_prob, -xp.inf)

    def cdf(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        return pdtr(np.floor(value), prediction)

    def cdf_below(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        return np.where(value > 0, pdtr(np.maximum(np.ceil(value) - 1, 0), prediction), 0.0)

    def sample(self, rng: np.random.Generator, prediction: np.ndarray, scale: Any) -> np.ndarray:
        return draw_counts(rng.poisson, prediction)

    def sd(self, prediction: Any, scale: Any) -> Any:
        return namespace(prediction).sqrt(prediction)

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        return value

    def check(self, value: np.ndarray, where: str) -> None:
        check_counts("Poisson", value, where)

    def describe(self) -> str:
        return "counts (Poisson)"
