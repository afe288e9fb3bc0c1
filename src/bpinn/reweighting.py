"""How much a tolerance or a noise decides, by importance weights of the draws."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from bpinn.approximate import khat_of
from bpinn.errors import InputError
from bpinn.posterior import Posterior
from bpinn.predictive import MOST_DRAWS, expected_of
from bpinn.result import Result


@dataclass(frozen=True)
class Sensitivity:
    """How unknowns move when the tolerance of an equation, or a noise, is changed by ``factor``.

    ``shift`` is the change of each mean in posterior standard deviations, ``khat`` says whether it can be
    told from these draws (below 0.7).
    """

    name: str
    factor: float
    shift: dict[str, float]
    khat: float

    def __str__(self) -> str:
        moves = ", ".join(f"{name} by {shift:+.2f} sd" for name, shift in self.shift.items()) or "nothing"
        told = "" if self.khat < 0.7 else f" (not reliable: Pareto k-hat {self.khat:.2f}; run it again to know)"
        return f"{self.factor:g} times the noise of {self.name} moves {moves}{told}"


def sensitivity(result: Result, name: str, factor: float = 0.5) -> Sensitivity:
    """How the unknowns move if the noise or tolerance of one group of sensors is multiplied by a factor.

    By importance weights of the draws, without another run.

    Example:
        ``print(bp.sensitivity(result, "law"))``
    """
    if not isinstance(result, Result):
        raise InputError(f"sensitivity: expected a result of bp.infer, got {type(result).__name__}")
    known = {r.name: i for i, r in enumerate(result.problem.readings)}
    if name not in known:
        raise InputError(f"sensitivity: no sensors called {name!r}; known sensors: {', '.join(known)}")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor < np.inf:
        raise InputError(f"sensitivity: factor must be a positive number, got {factor!r}")
    readings = result.problem.readings[known[name]]
    if readings.noise is None and readings.noise_name is None:
        raise InputError(f"sensitivity: the readings of {name!r} have no noise to change")
    fewer = result.thinned(MOST_DRAWS)
    expected = expected_of(fewer, fewer.z)[known[name]]
    scale, law = np.asarray(fewer.noise_of(readings, expected.shape)), readings.likelihood
    logs = [np.sum(np.asarray(law.log_prob(readings.values, expected, f * scale), float), axis=1) for f in (factor, 1)]
    weights = logs[0] - logs[1] - _evidence_ratio(fewer, known[name], float(factor))
    khat, share = khat_of(weights)
    weight = np.exp(weights - weights.max())
    weight /= weight.sum()
    shift = {}
    values = fewer.monitor.numbers_of(fewer.functionals)
    flat = values.reshape(-1, values.shape[-1]).astype(float)
    for i, label in enumerate(fewer.monitor.number_names):
        sd = max(flat[:, i].std(), 1e-300)
        shift[label] = float((weight @ flat[:, i] - flat[:, i].mean()) / sd)
    return Sensitivity(name, float(factor), shift, 0.0 if share > 0.9 else khat)


def _evidence_ratio(result: Result, group: int, factor: float) -> np.ndarray | float:
    """The change of the log evidence of neutral equations at each draw, if a group has another noise."""
    readings = result.problem.readings
    if not readings[group].neutral:
        return 0.0
    posterior = Posterior(result.problem).by_reading
    model, data = posterior.model, posterior.data
    noise = [n if n is None or i != group else factor * n for i, n in enumerate(data["noise"])]
    one = jax.jit(lambda z, data: jax.lax.map(lambda row: model.log_evidence(row, data), z))
    flat = jnp.asarray(result.z.reshape(-1, result.z.shape[-1]))
    return np.asarray(one(flat, data | {"noise": noise}), float) - np.asarray(one(flat, data), float)
