"""Student-t noise, for readings with outliers."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import stdtr

from bpinn.likelihoods.base import LocationScale, check_positive, namespace, special
from bpinn.registry import register


@register("student_t")
@dataclass(frozen=True)
class StudentT(LocationScale):
    """Student-t noise with ``dof`` degrees of freedom and scale ``noise``; robust to outliers."""

    dof: float = 4.0

    def __post_init__(self) -> None:
        check_positive("StudentT", "dof", self.dof)

    def log_kernel(self, residual: Any) -> Any:
        return -0.5 * (self.dof + 1) * namespace(residual).log1p(residual * residual / self.dof)

    def log_constant(self) -> float:
        with jax.ensure_compile_time_eval():
            gammas = float(gammaln((self.dof + 1) / 2) - gammaln(self.dof / 2))
        return float(gammas - 0.5 * np.log(self.dof * np.pi))

    def unit_cdf(self, residual: np.ndarray) -> np.ndarray:
        return stdtr(self.dof, residual)

    def unit_log_cdf(self, residual: Any) -> Any:
        xp, functions = namespace(residual), special(residual)
        tail = 0.5 * functions.betainc(0.5 * self.dof, 0.5, self.dof / (self.dof + residual**2))
        return xp.where(residual < 0, xp.log(tail), xp.log1p(-tail))

    def unit_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_t(self.dof, shape)

    def unit_sd(self) -> float:
        return float(np.sqrt(self.dof / (self.dof - 2))) if self.dof > 2 else np.inf

    def information(self, prediction: Any, scale: Any) -> Any:
        return (self.dof + 1) / (self.dof + 3) / scale**2

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        residual = value - prediction
        score = (self.dof + 1) * residual / (self.dof * scale**2 + residual**2)
        return prediction + score / self.information(prediction, scale)

    def describe(self) -> str:
        return f"Student t with {self.dof:g} degrees of freedom"
