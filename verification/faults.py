"""Faults that a verdict must name, injected into real runs: for tests, and counted over data sets for docs/trust.md."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bpinn as bp

FIELD = bp.KarhunenLoeve(bp.SquaredExponential(0.3), terms=8)
X_U, X_F = np.linspace(0, 1, 10), np.linspace(0, 1, 24)
NOISE = 0.05


def reaction(u, u_xx, k):
    return 0.02 * u_xx + k * jnp.tanh(u)


def truth(x):
    return np.sin(6 * x)


def forcing(x):
    return -0.02 * 36 * truth(x) + 0.7 * np.tanh(truth(x))


def problem(seed=0, *, stated=NOISE, change=None, equation=reaction, unknowns=None, **options) -> bp.Problem:
    """Noisy readings of a known truth; the stated noise can differ, and ``change`` modifies the readings."""
    rng = np.random.default_rng(seed)
    u = truth(X_U) + NOISE * rng.standard_normal(len(X_U))
    f = forcing(X_F) + NOISE * rng.standard_normal(len(X_F))
    if change is not None:
        u, f = change(u, f)
    sensors = {
        "u": bp.Sensors("u", {"x": X_U}, u, stated, **options),
        "f": bp.Sensors(equation, {"x": X_F}, f, stated, **options),
    }
    return bp.Problem({"x": (0.0, 1.0)}, {"u": FIELD}, sensors, unknowns or {"k": dist.Normal(0.0, 1.0)})


def two_solutions(seed=0) -> bp.Problem:
    """A problem that measures only the square of k."""
    value = 1.0 + 0.1 * np.random.default_rng(seed).standard_normal()
    sensors = {
        "s": bp.Sensors(square, {"x": [0.5]}, [value], 0.1),
        "u": bp.Sensors("u", {"x": [0.0]}, [0.3], 0.1),
    }
    return bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=())}, sensors, {"k": dist.Normal(0.0, 1.0)})


def square(u, k):
    return k * k + 0.0 * u


def idle(u, u_xx, k):
    return 0.02 * u_xx + 0.7 * jnp.tanh(u) + 0.0 * k


def twins(u, u_xx, a, b):
    return 0.02 * u_xx + (a + b) * jnp.tanh(u)


def rooted(u, u_xx, k):
    return 0.02 * u_xx + jnp.sqrt(k) * jnp.tanh(u)


def outlier(u, f):
    return u + np.where(np.arange(len(u)) == 4, 20 * NOISE, 0.0), f


def other_equation(u, f):
    return u, f + 1.5 * np.cos(9 * X_F)


def stuck(result: bp.Result) -> bp.Result:
    functionals = result.functionals.copy()
    functionals[2] = functionals[2, :1]
    return replace(result, functionals=functionals)


def collapsed(result: bp.Result) -> bp.Result:
    steps = result.stats["step_size"].copy()
    steps[1] *= 1e-4
    return replace(result, stats=result.stats | {"step_size": steps})


@dataclass(frozen=True)
class Fault:
    """What is wrong, and the reason and advice that the verdict must give."""

    name: str
    reason: str
    advice: str
    changes: dict[str, Any] = field(default_factory=dict)
    method: bp.Method | None = None
    make: Callable[..., bp.Problem] = problem
    tamper: Callable[[bp.Result], bp.Result] | None = None

    def health(self, seed: int) -> Any:
        result = bp.infer(self.make(seed, **self.changes), self.method, seed=seed, progress=False)
        return (self.tamper(result) if self.tamper else result).diagnose()

    def is_named(self, health: Any) -> bool:
        told = self.reason in " ".join(health.reasons) and self.advice in " ".join(health.advice)
        return health.verdict != "good" and told


HASTY = bp.HMC(num_warmup=20, num_draws=60, init="prior", num_leapfrog=4, coordinates="plain")
HEALTHY = Fault("nothing", "", "")
FAULTS = [
    Fault("a chain that is stuck", "never moved", "a longer warm-up", tamper=stuck),
    Fault("a step size that collapsed", "step size of chain 1 collapsed", "a longer warm-up", method=bp.HMC(),
          tamper=collapsed),
    Fault("warm-up too short", "chains disagree", "a longer warm-up", method=HASTY),
    Fault("chains on different solutions", "found another solution", "bp.SMC()", make=two_solutions,
          method=bp.HMC(num_warmup=200, num_draws=300, chains=8)),
    Fault("a likelihood with NaN regions", "undefined (NaN) at", "such as LogNormal", {"equation": rooted}),
    Fault("an unknown without effect", "hardly inform k", "a narrower prior", {"equation": idle}),
    Fault("two unknowns that act as one", "hardly distinguish a and b", "a narrower prior",
          {"equation": twins, "unknowns": {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)}}),
    Fault("an equation that the data contradict", "do not fit", "then the equations", {"change": other_equation}),
    Fault("an outlier under normal noise", "its prediction by all other readings", "student_t", {"change": outlier}),
    Fault("noise stated ten times too small", "do not fit", "units and boundary data", {"stated": NOISE / 10}),
    Fault("noise stated ten times too large", "scatter less than their", "a smaller noise", {"stated": NOISE * 10}),
]  # fmt: skip
