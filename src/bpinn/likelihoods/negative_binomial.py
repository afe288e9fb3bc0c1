"""Overdispersed counts."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jax import Array
from scipy.special import betainc, gammaln

from bpinn.likelihoods.base import Likelihood, namespace, special
from bpinn.likelihoods.poisson import check_counts, draw_counts
from bpinn.registry import register


@register("negative_binomial")
@dataclass(frozen=True)
class NegativeBinomial(Likelihood):
    """Counts with mean m, the prediction, and variance ``m + (noise * m)**2``.

    ``noise`` is the relative overdispersion compared to Poisson: 0.3 if the mean itself varies by thirty percent
    from reading to reading. It can be inferred like any other noise.

    Example:
        >>> import numpy as np, bpinn as bp
        >>> bp.likelihoods.NegativeBinomial().sd(np.array([100.0]), 0.3).round(1).tolist()
        [31.6]
    """

    positive: ClassVar[bool] = True

    def log_prob(self, value: Any, prediction: Any, scale: Any) -> Any:
        shape = 1.0 / scale**2
        # Gamma(y + r) / (Gamma(r) y!) = 1 / ((y + r) B(r, y + 1)): the difference of two large log gammas would lose
        # all digits in single precision if the overdispersion is small.
        xp, functions = namespace(prediction), special(prediction)
        ways = -functions.betaln(shape, value + 1.0) - xp.log(value + shape)
        return ways + self._log_powers(value, prediction, shape)

    def _log_powers(self, value: Any, mean: Any, shape: Any) -> Any:
        xp, functions = namespace(mean), special(mean)
        valid = mean >= 0
        mean = xp.where(valid, mean, 1.0)  # so that no branch has a derivative that is not finite
        log_powers = functions.xlogy(value, mean / (shape + mean)) - shape * xp.log1p(mean / shape)
        return xp.where(valid, log_powers, -xp.inf)

    def prepare(self, values: np.ndarray, scale: np.ndarray | None) -> dict[str, np.ndarray]:
        prepared = super().prepare(values, scale)
        if scale is None:
            return prepared
        shape = 1.0 / scale**2
        ways = gammaln(values + shape) - gammaln(shape) - gammaln(values + 1.0)
        return prepared | {"shape": shape, "ways": ways}

    def log_prob_of(self, prepared: dict[str, Array], prediction: Array, scale: Array | None) -> Array:
        """Uses the terms that do not depend on the prediction, precomputed in double precision."""
        if scale is not None:
            return self.log_prob(prepared["values"], prediction, scale)
        return prepared["ways"] + self._log_powers(prepared["values"], prediction, prepared["shape"])

    def cdf(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        shape = 1.0 / scale**2
        return betainc(shape, np.floor(value) + 1.0, shape / (shape + prediction))

    def cdf_below(self, value: np.ndarray, prediction: np.ndarray, scale: Any) -> np.ndarray:
        before = np.maximum(np.ceil(value) - 1, 0)
        return np.where(value > 0, self.cdf(before, prediction, scale), 0.0)

    def sample(self, rng: np.random.Generator, prediction: np.ndarray, scale: Any) -> np.ndarray:
        shape = 1.0 / np.asarray(scale, float) ** 2
        return draw_counts(lambda mean: rng.negative_binomial(shape, shape / (shape + mean)), prediction)

    def sd(self, prediction: Any, scale: Any) -> Any:
        return namespace(prediction).sqrt(prediction + (scale * prediction) ** 2)

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        return value

    def check(self, value: np.ndarray, where: str) -> None:
        check_counts("NegativeBinomial", value, where)

    def describe(self) -> str:
        return "overdispersed counts (negative binomial)"
