"""The small problems and the methods of `same_draws.py`. Together they cover everything that can be stated and set.

Samplers move in plain coordinates, as those of version 0.1 do, so that their draws can be compared with it.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bpinn as bp

X, T = np.linspace(-0.7, 0.7, 9), np.linspace(0.0, 1.0, 7)
NETWORK = bp.MLP(hidden=(6, 6))
EXPANSION = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=8, interval=(-1.0, 1.0))


def reaction(u, u_xx, k):
    return 0.01 * u_xx + k * jnp.tanh(u)


def inverse(field: Any = NETWORK) -> bp.Problem:
    sensors = {
        "f": bp.Sensors(reaction, at={"x": X}, values=np.sin(5 * X), noise=0.1),
        "u": bp.Sensors("u", at={"x": X[::2]}, values=np.sin(6 * X[::2]) ** 3, noise=0.1),
    }
    return bp.Problem({"x": (-0.7, 0.7)}, {"u": field}, sensors, {"k": dist.Normal(0.0, 1.0)})


def robust() -> bp.Problem:
    """Student-t, a noise for each reading, an inferred noise and a periodic condition."""
    heavy = {"noise": np.linspace(0.05, 0.2, 9), "likelihood": "student_t", "dof": 3.0}
    sensors = {
        "f": bp.Sensors(reaction, at={"x": X}, values=np.sin(5 * X), **heavy),
        "u": bp.Sensors("u", at={"x": X}, values=np.sin(4 * X), noise=dist.HalfNormal(0.5)),
        "ring": bp.Sensors(bp.Periodic("u_x", along="x"), values=0.0, noise=0.05),
    }
    return bp.Problem({"x": (-0.7, 0.7)}, {"u": NETWORK}, sensors, {"k": dist.LogNormal(0.0, 1.0)})


def system() -> bp.Problem:
    """Two fields, a vector of unknowns, and a noise that is an unknown."""

    def growth(a, a_t, b, rates):
        return a_t - rates[0] * a + a * b

    def loss(a, b, b_t, rates):
        return b_t + rates[1] * b - a * b

    sensors = {
        "growth": bp.Sensors(growth, at={"t": T}, values=0.0, noise=0.05),
        "loss": bp.Sensors(loss, at={"t": T}, values=0.0, noise=0.05),
        "a": bp.Sensors("a", at={"t": T}, values=1 + np.sin(T), noise="sigma"),
        "b": bp.Sensors("b", at={"t": T}, values=np.cos(T), noise="sigma"),
    }
    unknowns = {"rates": dist.LogNormal(0.0, 0.5).expand([2]).to_event(1), "sigma": dist.HalfNormal(0.3)}
    return bp.Problem({"t": (0.0, 1.0)}, {"a": bp.MLP(hidden=(5,)), "b": bp.MLP(hidden=(5,))}, sensors, unknowns)


def heat() -> bp.Problem:
    """Two dimensions, scaled inputs, another activation, and a positive field of one coordinate."""

    def flow(u_t, u_xx, k):
        return u_t - k * u_xx

    fields = {
        "u": bp.MLP(hidden=(6, 6), activation="sin", scale_inputs=True),
        "k": bp.MLP(hidden=(4,), inputs=("x",), positive=True, weight_sd=(1.0, 0.5)),
    }
    at = {"x": X + 0.8, "t": np.linspace(0.0, 1.0, 9)}
    sensors = {
        "flow": bp.Sensors(flow, at=at, values=0.0, noise=0.1),
        "u": bp.Sensors("u", at=at, values=np.sin(at["x"]) * np.exp(-at["t"]), noise=0.05),
        "ring": bp.Sensors(bp.Periodic("u", along="x"), at={"t": T}, values=0.0, noise=0.1),
    }
    return bp.Problem({"x": (0.0, 1.6), "t": (0.0, 1.0)}, fields, sensors)


def poisson(dimensions: int = 2) -> bp.Problem:
    """A linear problem with a Karhunen-Loève field."""
    names = ("x", "y")[:dimensions]
    kernel = bp.SquaredExponential(length=0.5) if dimensions == 2 else bp.Exponential(length=0.25)

    quantity = {1: lambda u_xx: u_xx, 2: lambda u_xx, u_yy: u_xx + u_yy}[dimensions]
    at = {name: X + 0.01 * i * np.arange(9) for i, name in enumerate(names)}
    sensors = {
        "f": bp.Sensors(quantity, at=at, values=np.sin(3 * X), noise=0.3),
        "u": bp.Sensors("u", at=dict.fromkeys(names, X[::4]), values=0.0, noise=0.05),
    }
    return bp.Problem(dict.fromkeys(names, (-1.0, 1.0)), {"u": bp.KarhunenLoeve(kernel, terms=10)}, sensors)


def two_solutions() -> bp.Problem:
    def square(k):
        return k**2

    sensors = {
        "square": bp.Sensors(square, values=[1.0, 1.1], noise=0.1),
        "u": bp.Sensors("u", at={"x": X}, values=X, noise=0.1),
    }
    return bp.Problem({"x": (-1.0, 1.0)}, {"u": bp.MLP(hidden=())}, sensors, {"k": dist.Normal(0.0, 1.0)})


PROBLEMS: dict[str, Callable[[], bp.Problem]] = {
    "inverse": inverse, "robust": robust, "system": system, "heat": heat, "poisson-1d": partial(poisson, 1),
    "poisson-2d": poisson, "expansion": partial(inverse, EXPANSION), "two-solutions": two_solutions,
}  # fmt: skip


def has_coordinates(method: Any) -> bool:
    """Whether a method has this setting, in the version of the sources that runs."""
    return any(field.name == "coordinates" for field in fields(method))


def plain(method: Any) -> Any:
    return replace(method, coordinates="plain") if has_coordinates(method) else method


SHORT = plain(bp.HMC(num_warmup=40, num_draws=30, num_leapfrog=6))
INFERRED: dict[str, tuple[str, bp.Method]] = {
    "hmc-adaptive": ("poisson-1d", bp.HMC()),
    "hmc-given-warm-up": ("expansion", bp.HMC(num_warmup=150, most_draws=250)),
    "hmc-fixed": ("inverse", SHORT),
    "hmc-thin-keep": ("inverse", bp.HMC(num_warmup=30, num_draws=40, num_leapfrog=5, thin=3, keep=20)),
    "hmc-diagonal": ("inverse", bp.HMC(num_warmup=80, num_draws=20, num_leapfrog=5, mass="diagonal")),
    "hmc-no-jitter": ("inverse", bp.HMC(num_warmup=30, num_draws=20, num_leapfrog=5, jitter=0.0, step_jitter=0.0)),
    "hmc-from-map": ("inverse", bp.HMC(num_warmup=30, num_draws=20, num_leapfrog=5, init="map", init_steps=200)),
    "hmc-from-prior": ("inverse", bp.HMC(num_warmup=30, num_draws=20, num_leapfrog=5, init="prior")),
    "hmc-robust": ("robust", SHORT),
    "hmc-system": ("system", SHORT),
    "hmc-heat": ("heat", SHORT),
    "hmc-poisson-2d": ("poisson-2d", SHORT),
    "nuts": ("inverse", bp.NUTS(num_warmup=30, num_draws=20, max_tree_depth=5)),
    "nuts-open-end": ("poisson-1d", bp.NUTS(num_warmup=150, most_draws=220, max_tree_depth=4, mass="diagonal")),
    "smc": ("expansion", bp.SMC(particles=20, num_moves=1, num_leapfrog=10)),
    "vi-mean-field": ("robust", bp.VI(num_steps=400, num_draws=40, init_steps=200)),
    "vi-low-rank": ("inverse", bp.VI(family="low-rank", rank=3, num_steps=300, num_draws=40, init_steps=200)),
    "vi-full-rank": ("system", bp.VI(family="full-rank", num_steps=300, num_draws=40, init_steps=200)),
    "vi-paper": ("inverse", bp.VI.paper(num_steps=300, num_draws=40, init="small", patience=100)),
    "flow-coupling": ("expansion", bp.Flow(layers=2, hidden=(8,), num_steps=60, num_draws=40, init_steps=200)),
    "flow-spline": ("poisson-1d", bp.Flow(kind="spline", layers=2, hidden=(8,), num_steps=40, num_draws=40,
                                          init="small")),
    "flow-potential": ("poisson-1d", bp.Flow.paper(steps=3, hidden=(8, 8), num_steps=40, num_draws=40)),
    "dropout": ("heat", bp.Dropout(rate=0.1, num_steps=300, num_draws=40, last=100)),
    "dropout-posterior": ("robust", bp.Dropout(num_steps=300, num_draws=40, loss="posterior")),
    "pinn": ("inverse", bp.PINN(num_steps=300, polish=20)),
    "pinn-posterior": ("system", bp.PINN(num_steps=300, loss="posterior")),
}  # fmt: skip
INFERRED = {name: (problem, plain(method)) for name, (problem, method) in INFERRED.items()}
if has_coordinates(bp.HMC()):
    INFERRED["hmc-whitened"] = ("robust", replace(SHORT, coordinates="whitened"))

PROBLEM_FILE = """
[domain]
x = [-0.7, 0.7]

[fields.u]
hidden = [5, 5]

[unknowns]
k = { prior = "normal", mean = 0.0, sd = 1.0 }

[equations]
f = "0.01*u_xx + k*tanh(u)"

[[sensors]]
quantity = "f"
at = { x = { from = -0.7, to = 0.7, count = 8 } }
values = 0.3
noise = 0.1

[[sensors]]
quantity = "u"
data = "probes.csv"

[truth]
k = 0.7

[inference]
num_warmup = 40
num_draws = 30
num_leapfrog = 6
chains = 2
seed = 1
"""
if has_coordinates(bp.HMC()):
    PROBLEM_FILE += 'coordinates = "plain"\n'
