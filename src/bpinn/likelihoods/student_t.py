"""Student-t noise, for readings with outliers."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import betainc, gammaln
from scipy.special import stdtr

from bpinn.likelihoods.base import LocationScale, check_positive, namespace
from bpinn.registry import register


@register("student_t")
@dataclass(frozen=True)
class StudentT(LocationScale):
    """Student-t noise with ``dof`` degrees of freedom and scale ``noise``; robust to outliers.

    Example:
        >>> import bpinn as bp
        >>> round(float(bp.likelihoods.StudentT(dof=4).sd(0.0, 0.1)), 4)
        0.1414
    """

    dof: float = 4.0

    def __post_init__(self) -> None:
        check_positive("StudentT", "dof", self.dof)
        object.__setattr__(self, "dof", float(self.dof))

    def log_kernel(self, residual: Any) -> Any:
        return -0.5 * (self.dof + 1) * namespace(residual).log1p(residual * residual / self.dof)

    def log_constant(self) -> float:
        with jax.ensure_compile_time_eval():
            gammas = float(gammaln((self.dof + 1) / 2) - gammaln(self.dof / 2))
        return float(gammas - 0.5 * np.log(self.dof * np.pi))

    def unit_cdf(self, residual: np.ndarray) -> np.ndarray:
        return stdtr(self.dof, residual)

    def unit_log_cdf(self, residual: Any) -> Any:
        if namespace(residual) is np:
            return np.log(stdtr(self.dof, residual))
        return _log_cdf(float(self.dof), residual)

    def unit_sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_t(self.dof, shape)

    def unit_sd(self) -> float:
        return float(np.sqrt(self.dof / (self.dof - 2))) if self.dof > 2 else np.inf

    def information(self, prediction: Any, scale: Any) -> Any:
        return (self.dof + 1) / (self.dof + 3) * (1.0 / scale) ** 2

    def response(self, value: Any, prediction: Any, scale: Any) -> Any:
        residual = value - prediction
        return prediction + residual * (self.dof + 3) / (self.dof + (residual / scale) ** 2)

    def describe(self) -> str:
        return f"Student t with {self.dof:g} degrees of freedom"


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_cdf(dof: float, residual: Array) -> Array:
    """Log of the distribution function. Where the tail underflows, its asymptotic form is used."""
    tail = 0.5 * betainc(0.5 * dof, 0.5, dof / (dof + residual**2))
    law, size = StudentT(dof), jnp.maximum(jnp.abs(residual), 1.0)
    far = law.log_kernel(size) + law.log_constant() + jnp.log((size**2 + dof) / (dof * size))  # off by 1 / size^2
    usable = tail > 1e-30
    left = jnp.where(usable, jnp.log(jnp.where(usable, tail, 1.0)), far)
    return jnp.where(residual < 0, left, jnp.log1p(-tail))


@_log_cdf.defjvp
def _log_cdf_slope(dof: float, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Density over distribution function: that of the incomplete beta function is not finite near zero."""
    (residual,), (direction,) = primals, tangents
    law = StudentT(dof)
    value = _log_cdf(dof, residual)
    return value, jnp.exp(law.log_kernel(residual) + law.log_constant() - value) * direction
