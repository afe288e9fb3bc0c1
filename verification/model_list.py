"""Right and wrong models of the same data, for `models.py`: readings are made from a true problem by a solver."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.integrate import solve_ivp

import bpinn as bp

Make = Callable[[np.random.Generator], bp.Problem]
INFERRED = dist.HalfNormal(0.2)


@dataclass(frozen=True)
class Model:
    """A way to state a problem, and the true values of the unknowns that it has."""

    name: str
    make: Make
    is_right: bool
    truth: dict[str, float] = field(default_factory=dict)
    is_hidden: bool = False


MODELS: list[Model] = []


def model(name: str, is_right: bool, truth: dict[str, float] | None = None, is_hidden: bool = False) -> Any:
    def add(make: Make) -> Make:
        MODELS.append(Model(name, make, is_right, truth or {}, is_hidden))
        return make

    return add


def solved(slope: Any, start: list[float], end: float) -> Any:
    found = solve_ivp(slope, (0.0, end), start, rtol=1e-9, atol=1e-10, dense_output=True).sol
    return lambda t: found(np.asarray(t))[0]


SURROGATES = {
    "process": lambda: bp.GaussianProcess(),
    "network": lambda: bp.MLP(hidden=(30, 30), scale_inputs=True),
}

# --- decay: u' = -k u from u(0) = 2, k = 0.8 ---

RATE = {"k": 0.8}


def decay(u, u_t, k):
    return u_t + k * u


def decayed(
    rng, truth=None, shift=None, noise=0.03, stated=None, law=decay, points=40, tolerance=0.02, field=None, start=None,
    times=None, scatter=None, unknowns=None, likelihood="normal",
):  # fmt: skip
    t = np.sort(rng.uniform(0, 5, 25)) if times is None else times
    u = (truth or (lambda t: 2 * np.exp(-0.8 * t)))(t)
    size = noise if scatter is None else scatter(t, u)
    drawn = 1.0 if likelihood == "student_t" else rng.standard_normal(len(t))
    values = u + size * drawn + (0 if shift is None else shift(t, u))
    sensors = {
        "law": bp.Physics(law, points, tolerance),
        "u": bp.Sensors("u", {"t": t}, values, noise=noise if stated is None else stated, likelihood=likelihood),
    }
    if start is not None:
        sensors["start"] = bp.Sensors("u", {"t": [0.0]}, [start], noise=0.005)
    return bp.Problem(
        domain={"t": (0.0, 5.0)}, fields={"u": field or bp.GaussianProcess()}, sensors=sensors,
        unknowns={"k": dist.LogNormal(-0.5, 0.7)} if unknowns is None else unknowns,
    )  # fmt: skip


def cooling(u, u_t, k, level):
    return u_t + k * (u - level)


WITH_SOURCE = solved(lambda t, y: [-0.8 * y[0] + 0.4], [2.0], 5.0)
for called, surrogate in SURROGATES.items():
    model(f"decay, {called}", True, RATE)(lambda rng, s=surrogate: decayed(rng, field=s()))
    model(f"decay, {called}, noise inferred", True, RATE)(
        lambda rng, s=surrogate: decayed(rng, field=s(), stated=INFERRED)
    )
    model(f"decay, {called}, a source is missing", False, RATE)(
        lambda rng, s=surrogate: decayed(rng, WITH_SOURCE, field=s())
    )
    model(f"decay, {called}, a source is missing, noise inferred", False, RATE)(
        lambda rng, s=surrogate: decayed(rng, WITH_SOURCE, field=s(), stated=INFERRED)
    )
model("decay, outliers, student-t", True, RATE)(
    lambda rng: decayed(rng, scatter=lambda t, u: 0.03 * rng.standard_t(4, len(t)), likelihood="student_t")
)
model("decay with its level", True, {"k": 0.8, "level": 0.5})(
    lambda rng: decayed(
        rng, WITH_SOURCE, law=cooling, unknowns={"k": dist.LogNormal(-0.5, 0.7), "level": dist.Normal(0, 1)}
    )
)
model("decay, start stated", True, RATE)(lambda rng: decayed(rng, start=2.0))
model("decay, 80 readings", True, RATE)(lambda rng: decayed(rng, times=np.sort(rng.uniform(0, 5, 80))))
model("decay, tolerance 0.005", True, RATE)(lambda rng: decayed(rng, tolerance=0.005))
model("decay, quadratic law in truth", False, RATE)(
    lambda rng: decayed(rng, solved(lambda t, y: [-0.8 * y[0] ** 2], [2.0], 5.0))
)
model("decay, wrong start", False, RATE)(lambda rng: decayed(rng, start=1.7))
model("decay, sensor with an offset", False, RATE)(lambda rng: decayed(rng, shift=lambda t, u: 0.15))
model("decay, sensor that drifts", False, RATE)(lambda rng: decayed(rng, shift=lambda t, u: 0.06 * t))
model("decay, sensor that is late", False, RATE, is_hidden=True)(
    lambda rng: decayed(rng, shift=lambda t, u: u * (np.exp(0.8 * 0.3) - 1))
)
model("decay, noise grows with the value", False, RATE)(
    lambda rng: decayed(rng, scatter=lambda t, u: 0.002 + 0.05 * u, times=np.linspace(0, 5, 60))
)
model("decay, noise grows with time", False, RATE)(
    lambda rng: decayed(rng, scatter=lambda t, u: 0.002 + 0.015 * t, times=np.linspace(0, 5, 60))
)
model("decay, a cluster of outliers", False, RATE)(
    lambda rng: decayed(rng, times=np.linspace(0, 5, 25), shift=lambda t, u: np.where((t > 2) & (t < 3), 0.25, 0.0))
)
model("decay, columns swapped", False, RATE)(
    lambda rng: decayed(rng, shift=lambda t, u: -u + t / 2.5, times=np.linspace(0.1, 5, 25))
)
model("decay, values in other units", False, RATE, is_hidden=True)(lambda rng: decayed(rng, shift=lambda t, u: 1.8 * u))
model("decay, values in other units, start stated", False, RATE)(
    lambda rng: decayed(rng, shift=lambda t, u: 1.8 * u, start=2.0)
)
model("decay, noise stated a quarter", False, RATE)(lambda rng: decayed(rng, stated=0.0075))
model("decay, noise stated four times", False, RATE)(lambda rng: decayed(rng, stated=0.12))
model("decay, too few terms", False, RATE)(
    lambda rng: decayed(rng, field=bp.KarhunenLoeve(bp.SquaredExponential(length=3.0), terms=3))
)
model("decay, coefficient fixed wrongly", False)(
    lambda rng: decayed(rng, law=lambda u, u_t: u_t + 0.6 * u, unknowns={})
)
model("decay, coefficient fixed rightly", True)(lambda rng: decayed(rng, law=lambda u, u_t: u_t + 0.8 * u, unknowns={}))
model("decay, prior of k too narrow", False, RATE)(lambda rng: decayed(rng, unknowns={"k": dist.Uniform(0.1, 0.6)}))

# --- an oscillation: u'' + c u' + w^2 sin(u) = 0 from 1.2, c = 0.2, w^2 = 4 ---

SWING = {"c": 0.2, "s": 4.0}


def swing(u, u_t, u_tt, c, s):
    return u_tt + c * u_t + s * jnp.sin(u)


def linear(u, u_t, u_tt, c, s):
    return u_tt + c * u_t + s * u


def undamped(u, u_tt, s):
    return u_tt + s * jnp.sin(u)


ANGLE = solved(lambda t, y: [y[1], -0.2 * y[1] - 4 * np.sin(y[0])], [1.2, 0.0], 6.0)
RUBBED = solved(lambda t, y: [y[1], -0.2 * y[1] * abs(y[1]) * 2 - 4 * np.sin(y[0])], [1.2, 0.0], 6.0)


def swung(rng, law=swing, field=None, stated=None, truth=ANGLE, points=60, tolerance=0.05, shift=None, noise=0.05):
    t = np.sort(rng.uniform(0, 6, 30))
    values = truth(t) + noise * rng.standard_normal(30) + (0 if shift is None else shift(t))
    unknowns = {"c": dist.LogNormal(-1.5, 0.7), "s": dist.LogNormal(1.2, 0.5)}
    if law is undamped:
        unknowns.pop("c")
    return bp.Problem(
        domain={"t": (0.0, 6.0)}, fields={"u": field or bp.GaussianProcess()}, unknowns=unknowns,
        sensors={
            "law": bp.Physics(law, points, tolerance),
            "u": bp.Sensors("u", {"t": t}, values, noise=noise if stated is None else stated),
        },
    )  # fmt: skip


for called, surrogate in SURROGATES.items():
    model(f"pendulum, {called}", True, SWING)(lambda rng, s=surrogate: swung(rng, field=s()))
    model(f"pendulum, {called}, linearised", False, SWING, is_hidden=True)(
        lambda rng, s=surrogate: swung(rng, linear, s())
    )
    model(f"pendulum, {called}, damping is missing", False, {"s": 4.0})(
        lambda rng, s=surrogate: swung(rng, undamped, s())
    )
    model(f"pendulum, {called}, damping is missing, noise inferred", False, {"s": 4.0})(
        lambda rng, s=surrogate: swung(rng, undamped, s(), stated=INFERRED)
    )
model("pendulum, process, noise inferred", True, SWING)(lambda rng: swung(rng, stated=INFERRED))
model("pendulum, tolerance 0.01", True, SWING)(lambda rng: swung(rng, tolerance=0.01))
model("pendulum, 120 points", True, SWING)(lambda rng: swung(rng, points=120))
model("pendulum, quadratic friction in truth", False, {"s": 4.0}, is_hidden=True)(lambda rng: swung(rng, truth=RUBBED))
for terms, kernel in ((10, bp.SquaredExponential(length=2.5)), (8, bp.SquaredExponential(length=0.8))):
    for stated in (None, INFERRED):
        how = ", noise inferred" if stated is not None else ""
        about = f"pendulum, expansion of {terms} terms, length {kernel.length:g}{how}"
        model(about, False, SWING)(
            lambda rng, t=terms, k=kernel, s=stated: swung(rng, field=bp.KarhunenLoeve(k, terms=t), stated=s)
        )
for stated in (None, INFERRED):
    how = ", noise inferred" if stated is not None else ""
    model(f"pendulum, expansion, Matern 5/2{how}", False, SWING)(
        lambda rng, s=stated: swung(rng, field=bp.KarhunenLoeve(bp.Matern52(length=0.8), terms=40), stated=s)
    )
model("pendulum, 8 points", False, SWING)(lambda rng: swung(rng, points=8, tolerance=0.01))
model("pendulum, a network of 3", False, SWING)(lambda rng: swung(rng, field=bp.MLP(hidden=(3,), scale_inputs=True)))
model("pendulum, sensor with an offset", False, SWING)(lambda rng: swung(rng, shift=lambda t: 0.25))
model("pendulum, sensor that drifts", False, SWING)(lambda rng: swung(rng, shift=lambda t: 0.08 * t))
model("pendulum, sensor that is late", False, SWING, is_hidden=True)(
    lambda rng: swung(rng, truth=lambda t: ANGLE(np.maximum(t - 0.2, 0)))
)

# --- growth: u' = r u (1 - u / K) from 0.1, r = 1.2, K = 2 ---

GROWTH = {"r": 1.2, "K": 2.0}


def logistic(u, u_t, r, K):
    return u_t - r * u * (1 - u / K)


LOGISTIC = solved(lambda t, y: [1.2 * y[0] * (1 - y[0] / 2)], [0.1], 6.0)
GOMPERTZ = solved(lambda t, y: [0.8 * y[0] * np.log(2 / y[0])], [0.1], 6.0)
HARVEST = solved(lambda t, y: [1.2 * y[0] * (1 - y[0] / 2) - 0.25 * (t > 4)], [0.1], 6.0)


def grown(rng, truth=LOGISTIC, field=None, stated=None, noise=0.04, shift=None, likelihood="normal", exact=False):
    t = np.linspace(0.1, 6, 30)
    values = truth(t) + (0 if shift is None else shift(t))
    values = values * np.exp(0.05 * rng.standard_normal(30)) if exact else values + noise * rng.standard_normal(30)
    return bp.Problem(
        domain={"t": (0.0, 6.0)}, fields={"u": field or bp.GaussianProcess()},
        unknowns={"r": dist.LogNormal(0, 0.7), "K": dist.LogNormal(0.5, 0.7)},
        sensors={
            "law": bp.Physics(logistic, points=50, tolerance=0.01),
            "u": bp.Sensors("u", {"t": t}, values, noise=noise if stated is None else stated, likelihood=likelihood),
        },
    )  # fmt: skip


for called, surrogate in SURROGATES.items():
    model(f"growth, {called}", True, GROWTH)(lambda rng, s=surrogate: grown(rng, field=s()))
    model(f"growth, {called}, Gompertz in truth", False)(lambda rng, s=surrogate: grown(rng, GOMPERTZ, s()))
    model(f"growth, {called}, Gompertz in truth, noise inferred", False)(
        lambda rng, s=surrogate: grown(rng, GOMPERTZ, s(), stated=INFERRED)
    )
model("growth, noise inferred", True, GROWTH)(lambda rng: grown(rng, stated=INFERRED))
model("growth, relative noise", True, GROWTH)(
    lambda rng: grown(
        rng, field=bp.GaussianProcess(positive=True), stated=0.05, likelihood=bp.likelihoods.LogNormal(), exact=True
    )
)
model("growth, relative noise stated as absolute", False, GROWTH)(lambda rng: grown(rng, exact=True, stated=0.05))
model("growth, harvested from t = 4", False, GROWTH, is_hidden=True)(lambda rng: grown(rng, HARVEST))
model("growth, sensor with an offset", False, GROWTH, is_hidden=True)(lambda rng: grown(rng, shift=lambda t: 0.15))

# --- heat in a rod: u_t = D u_xx, u = sin(pi x) exp(-D pi^2 t), D = 0.1 ---

HEAT = {"D": 0.1}


def heat(u_t, u_xx, D):
    return u_t - D * u_xx


def heated(rng, truth=None, field=None, stated=None, tolerance=0.03, points=120, ends=0.0, noise=0.03, shift=None):
    x, t = rng.uniform(0, 1, 60), rng.uniform(0, 1, 60)
    u = (truth or (lambda x, t: np.sin(np.pi * x) * np.exp(-0.1 * np.pi**2 * t)))(x, t)
    values = u + noise * rng.standard_normal(60) + (0 if shift is None else shift(x, t))
    side = np.linspace(0, 1, 12)
    return bp.Problem(
        domain={"x": (0.0, 1.0), "t": (0.0, 1.0)}, unknowns={"D": dist.LogNormal(-2.0, 0.7)},
        fields={"u": field or bp.GaussianProcess(bp.SquaredExponential(length=dist.LogNormal(-1.0, 0.3)))},
        sensors={
            "law": bp.Physics(heat, points, tolerance),
            "left": bp.Sensors("u", {"x": np.zeros(12), "t": side}, ends, noise=0.01),
            "right": bp.Sensors("u", {"x": np.ones(12), "t": side}, ends, noise=0.01),
            "u": bp.Sensors("u", {"x": x, "t": t}, values, noise=noise if stated is None else stated),
        },
    )  # fmt: skip


def blown(x, t):
    """u_t = D u_xx - 2 u_x by method of lines."""
    return _lines(lambda u, dx: 0.1 * _second(u, dx) - 2.0 * np.gradient(u, dx))(x, t)


def fed(x, t):
    """u_t = D u_xx + 0.8 x."""
    grid = np.linspace(0, 1, 201)
    return _lines(lambda u, dx: 0.1 * _second(u, dx) + 0.8 * grid)(x, t)


def _second(u, dx):
    return np.concatenate([[0.0], (u[2:] - 2 * u[1:-1] + u[:-2]) / dx**2, [0.0]])


def _lines(right):
    grid = np.linspace(0, 1, 201)
    ends = np.where((grid == 0) | (grid == 1), 0.0, 1.0)
    from scipy.interpolate import RegularGridInterpolator

    times = np.linspace(0, 1, 101)
    found = solve_ivp(lambda t, u: ends * right(u, grid[1]), (0, 1), np.sin(np.pi * grid), method="LSODA", t_eval=times)
    table = RegularGridInterpolator((grid, times), found.y)
    return lambda x, t: table(np.stack([x, t], axis=-1))


model("heat", True, HEAT)(lambda rng: heated(rng))
model("heat, noise inferred", True, HEAT)(lambda rng: heated(rng, stated=INFERRED))
model("heat, it is blown", False)(lambda rng: heated(rng, blown))
model("heat, it is fed", False)(lambda rng: heated(rng, fed))
model("heat, it is fed, noise inferred", False)(lambda rng: heated(rng, fed, stated=INFERRED))
model("heat, wrong ends", False, HEAT)(lambda rng: heated(rng, ends=0.3))
model("heat, sensor that drifts", False, HEAT)(lambda rng: heated(rng, shift=lambda x, t: 0.2 * t))
model("heat, noise grows along x", False, HEAT)(
    lambda rng: heated(rng, shift=lambda x, t: 0.12 * x**2 * rng.standard_normal(len(x)))
)

# --- curves without an equation ---


def curve(rng, truth, field, noise=0.1, stated=None, n=40):
    x = np.sort(rng.uniform(-1, 1, n))
    return bp.Problem(
        domain={"x": (-1.0, 1.0)}, fields={"u": field},
        sensors={"u": bp.Sensors("u", {"x": x}, truth(x) + noise * rng.standard_normal(n), noise=stated or noise)},
    )  # fmt: skip


def wave(x):
    return np.sin(8 * x)


for called, surrogate in SURROGATES.items():
    model(f"curve, {called}", True)(lambda rng, s=surrogate: curve(rng, wave, s()))
    model(f"curve, {called}, noise inferred", True)(lambda rng, s=surrogate: curve(rng, wave, s(), stated=INFERRED))
model("curve, length too long", False)(
    lambda rng: curve(rng, wave, bp.KarhunenLoeve(bp.SquaredExponential(length=1.5), terms=6))
)
model("curve, length too long, noise inferred", False)(
    lambda rng: curve(
        rng, wave, bp.KarhunenLoeve(bp.SquaredExponential(length=1.5), terms=6), stated=dist.HalfNormal(0.5)
    )
)
model("curve, a straight line", False)(lambda rng: curve(rng, wave, bp.MLP(hidden=())))
model("curve, a straight line, noise inferred", False)(
    lambda rng: curve(rng, wave, bp.MLP(hidden=()), stated=dist.HalfNormal(0.5))
)

# --- other right models: other kinds of readings, orders, systems and dimensions ---


@model("decay, counts", True, RATE)
def counted(rng):
    t = np.linspace(0.1, 5, 30)
    values = rng.poisson(200 * np.exp(-0.8 * t))
    return bp.Problem(
        domain={"t": (0.0, 5.0)},
        fields={"u": bp.GaussianProcess(positive=True)},
        unknowns={"k": dist.LogNormal(-0.5, 0.7)},
        sensors={
            "law": bp.Physics(decay),
            "u": bp.Sensors("u", {"t": t}, values, likelihood=bp.likelihoods.Poisson()),
        },
    )


@model("decay, readings below a detection limit", True, RATE)
def censored(rng):
    t = np.sort(rng.uniform(0, 5, 30))
    values = np.maximum(2 * np.exp(-0.8 * t) + 0.03 * rng.standard_normal(30), 0.1)
    return bp.Problem(
        domain={"t": (0.0, 5.0)},
        fields={"u": bp.GaussianProcess()},
        unknowns={"k": dist.LogNormal(-0.5, 0.7)},
        sensors={
            "law": bp.Physics(decay, 40, 0.02),
            "u": bp.Sensors("u", {"t": t}, values, noise=0.03, likelihood=bp.likelihoods.Censored(below=0.1)),
        },
    )


@model("decay, in milliseconds and microvolts", True, {"k": 0.8e-3})
def small(rng):
    t = np.sort(rng.uniform(0, 5000, 25))
    values = 1e-6 * (2 * np.exp(-0.8e-3 * t) + 0.03 * rng.standard_normal(25))
    return bp.Problem(
        domain={"t": (0.0, 5000.0)},
        fields={"u": bp.GaussianProcess()},
        unknowns={"k": dist.LogNormal(np.log(1e-3), 1.0)},
        sensors={"law": bp.Physics(decay), "u": bp.Sensors("u", {"t": t}, values, noise=0.03e-6)},
    )


@model("decay, readings of the slope too", True, RATE)
def sloped(rng):
    t = np.sort(rng.uniform(0, 5, 20))
    u = 2 * np.exp(-0.8 * t)
    return bp.Problem(
        domain={"t": (0.0, 5.0)},
        fields={"u": SURROGATES["network"]()},
        unknowns={"k": dist.LogNormal(-0.5, 0.7)},
        sensors={
            "law": bp.Physics(decay),
            "u": bp.Sensors("u", {"t": t}, u + 0.05 * rng.standard_normal(20), noise=0.05),
            "rate": bp.Sensors("u_t", {"t": t}, -0.8 * u + 0.1 * rng.standard_normal(20), noise=INFERRED),
        },
    )


@model("decay, averages over windows", True, RATE)
def averaged(rng):
    start = np.linspace(0, 4.4, 23)
    end = start + 0.6
    u = 2 * (np.exp(-0.8 * start) - np.exp(-0.8 * end)) / (0.8 * (end - start))
    windows = bp.Average("u", over={"t": (start, end)})
    return bp.Problem(
        domain={"t": (0.0, 5.0)},
        fields={"u": bp.GaussianProcess()},
        unknowns={"k": dist.LogNormal(-0.5, 0.7)},
        sensors={
            "law": bp.Physics(decay),
            "u": bp.Sensors(windows, values=u + 0.02 * rng.standard_normal(23), noise=0.02),
        },
    )


model("pendulum, network, noise inferred", True, SWING)(
    lambda rng: swung(rng, field=SURROGATES["network"](), stated=INFERRED)
)
model("pendulum, expansion of 20 terms, length 0.8", True, SWING)(
    lambda rng: swung(rng, field=bp.KarhunenLoeve(bp.SquaredExponential(length=0.8), terms=20))
)
model("growth, network, noise inferred", True, GROWTH)(
    lambda rng: grown(rng, field=SURROGATES["network"](), stated=INFERRED)
)


@model("third order", True, {"a": 0.6, "b": 2.0})
def third(rng):
    """A damped oscillation: the third derivative, a times the second, b times the first and u are zero in all."""
    truth = solved(lambda t, y: [y[1], y[2], -0.6 * y[2] - 2.0 * y[1] - y[0]], [1.0, 0.0, 0.0], 8.0)
    t = np.sort(rng.uniform(0, 8, 40))
    return bp.Problem(
        domain={"t": (0.0, 8.0)},
        fields={"u": bp.GaussianProcess()},
        unknowns={"a": dist.LogNormal(-0.5, 0.7), "b": dist.LogNormal(0.5, 0.7)},
        sensors={
            "law": bp.Physics(lambda u, u_t, u_tt, u_ttt, a, b: u_ttt + a * u_tt + b * u_t + u),
            "u": bp.Sensors("u", {"t": t}, truth(t) + 0.02 * rng.standard_normal(40), noise=INFERRED),
        },
    )


@model("beam on springs", True, {"s": 60.0})
def beam(rng):
    """u_xxxx + s u = 100 on [0, 1], u = u_xx = 0 at both ends."""
    x = np.sort(rng.uniform(0, 1, 25))
    odd = np.arange(1, 40, 2)[:, None] * np.pi
    u = np.sum(4 * 100 / (odd * (odd**4 + 60.0)) * np.sin(odd * x), axis=0)
    ends = {"x": np.array([0.0, 1.0])}
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.GaussianProcess()},
        unknowns={"s": dist.LogNormal(np.log(40.0), 0.8)},
        sensors={
            "law": bp.Physics(lambda u, u_xxxx, s: u_xxxx + s * u - 100.0),
            "ends": bp.Sensors("u", ends, 0.0, noise=1e-3),
            "hinges": bp.Sensors("u_xx", ends, 0.0, noise=0.05),
            "u": bp.Sensors("u", {"x": x}, u + 0.02 * rng.standard_normal(25), noise=0.02),
        },
    )


HUNT = {"a": 1.0, "b": 0.5, "c": 0.75, "d": 0.25}


def hunted(rng, noise):
    """Predator and prey."""
    right = lambda t, y: [y[0] * (1.0 - 0.5 * y[1]), y[1] * (-0.75 + 0.25 * y[0])]  # noqa: E731
    truth = solve_ivp(right, (0, 10), [4.0, 1.5], rtol=1e-9, atol=1e-10, dense_output=True).sol
    t = np.linspace(0, 10, 30)
    values = truth(t) + 0.15 * rng.standard_normal((2, 30))
    return bp.Problem(
        domain={"t": (0.0, 10.0)},
        fields={"u": bp.GaussianProcess(), "v": bp.GaussianProcess()},
        unknowns={name: dist.LogNormal(np.log(0.6), 0.7) for name in HUNT},
        sensors={
            "prey": bp.Physics(lambda u, v, u_t, a, b: u_t - u * (a - b * v)),
            "predators": bp.Physics(lambda u, v, v_t, c, d: v_t - v * (d * u - c)),
            "u": bp.Sensors("u", {"t": t}, values[0], noise=noise),
            "v": bp.Sensors("v", {"t": t}, values[1], noise=noise),
        },
    )


model("predator and prey", True, HUNT)(lambda rng: hunted(rng, 0.15))
model("predator and prey, noise inferred", True, HUNT)(lambda rng: hunted(rng, dist.HalfNormal(0.5)))


def cubed(x):
    """u = sin(6 x)^3 and 0.01 u_xx + 0.7 tanh(u), the paper's inverse problem."""
    s, c = np.sin(6 * x), np.cos(6 * x)
    return s**3, 0.36 * (6 * s * c**2 - 3 * s**3) + 0.7 * np.tanh(s**3)


@model("reaction, its source is read", True, {"k": 0.7})
def reaction(rng):
    x, at = np.linspace(-0.7, 0.7, 32), np.linspace(-0.7, 0.7, 8)
    source, u = cubed(x)[1] + 0.05 * rng.standard_normal(32), cubed(at)[0] + 0.05 * rng.standard_normal(8)
    return bp.Problem(
        domain={"x": (-0.7, 0.7)},
        fields={"u": bp.MLP()},
        unknowns={"k": dist.LogNormal(0.0, 0.7)},
        sensors={
            "f": bp.Sensors(lambda u, u_xx, k: 0.01 * u_xx + k * jnp.tanh(u), {"x": x}, source, noise=0.05),
            "u": bp.Sensors("u", {"x": at}, u, noise=0.05),
        },
    )


@model("Poisson's equation in two dimensions", True, {"q": 3.0})
def poisson(rng):
    """u_xx + u_yy + q sin(pi x) sin(pi y) = 0 with u = 0 at the boundary."""
    x, y = rng.uniform(0, 1, (2, 40))
    u = 3.0 / (2 * np.pi**2) * np.sin(np.pi * x) * np.sin(np.pi * y)
    along, across = np.tile(np.linspace(0, 1, 10), 2), np.repeat([0.0, 1.0], 10)
    edge = {"x": np.concatenate([across, along]), "y": np.concatenate([along, across])}
    law = lambda u_xx, u_yy, x, y, q: u_xx + u_yy + q * jnp.sin(np.pi * x) * jnp.sin(np.pi * y)  # noqa: E731
    return bp.Problem(
        domain={"x": (0.0, 1.0), "y": (0.0, 1.0)},
        fields={"u": bp.GaussianProcess(bp.SquaredExponential(length=dist.LogNormal(-1.0, 0.3)))},
        unknowns={"q": dist.LogNormal(0.5, 0.7)},
        sensors={
            "law": bp.Physics(law, 100),
            "edge": bp.Sensors("u", edge, 0.0, noise=1e-3),
            "u": bp.Sensors("u", {"x": x, "y": y}, u + 0.005 * rng.standard_normal(40), noise=INFERRED),
        },
    )


model("heat, an expansion", True, HEAT)(
    lambda rng: heated(rng, field=bp.KarhunenLoeve(bp.SquaredExponential(length=0.4), terms=60))
)
