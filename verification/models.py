"""Right and wrong models of the same data: does the verdict tell them apart?

    python verification/models.py [--sets 5] [--only decay] [--follow] [--out FILE] [--page docs/wrong_models.md]

Each model is a problem with readings made from another, true one by an independent solver. A wrong model is caught if
its verdict is not "good". Models marked as hidden cannot be told from their readings, whatever the method: a sensor
that is late by a constant in an autonomous equation, say, or an equation whose best fit differs from the truth by so
little that a likelihood-ratio test against the truth has a power below 0.99 (noncentrality below 18.4: the linearised
pendulum has 2.9, quadratic friction 9.7, the harvest 14.8, the offset of growth 9.3). They are counted apart. With
``--follow`` the first advice of a verdict that is not good is followed mechanically, and the outcome judged again.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.integrate import solve_ivp
from scipy.special import ndtr

import bpinn as bp

sys.path.insert(0, str(Path(__file__).parent))
from advice import followed

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


# --- runs ---


def tails(result: bp.Result, truth: dict[str, float]) -> dict[str, float]:
    """How far truths are from their posteriors, as tail probabilities."""
    found = {}
    for name, true in truth.items():
        draws = result.draws(name)
        found[name] = float(2 * ndtr(-abs(draws.mean() - true) / draws.std()))
    return found


def judged(which: Model, number: int, follow: bool = False) -> dict[str, Any]:
    """The verdict on one data set, and what it is after its first advice was followed."""
    problem = which.make(np.random.default_rng([number, *which.name.encode()]))
    started = time.perf_counter()
    result = bp.infer(problem, seed=number, progress=False)
    health = result.diagnose()
    row = {
        "model": which.name, "set": number, "verdict": health.verdict, "reasons": health.reasons,
        "advice": health.advice, "tails": tails(result, which.truth),
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip
    if follow and health.verdict != "good" and health.advice:
        changed, method = followed(problem, result, health.advice[0])
        if changed is not problem or method is not None:
            result = bp.infer(changed, method, seed=number, progress=False)
            row["then"] = {"verdict": result.diagnose().verdict, "tails": tails(result, which.truth)}
    return row


def told(rows: list[dict[str, Any]]) -> str:
    by_name = {which.name: which for which in MODELS}
    kinds: dict[str, list] = {"right": [], "wrong": [], "hidden": []}
    for row in rows:
        which = by_name[row["model"]]
        kinds["right" if which.is_right else "hidden" if which.is_hidden else "wrong"].append(row)
    lines = []
    for kind, of_kind in kinds.items():
        good = [row for row in of_kind if row["verdict"] == "good"]
        off = [row for row in good if any(p < 1e-3 for p in row["tails"].values())]
        lines.append(
            f"{kind}: {len({r['model'] for r in of_kind})} models, {len(of_kind)} runs, {len(good)} called good, "
            f"{len(off)} of them with a truth outside of its 99.9% interval"
        )
        then = [row["then"] for row in of_kind if "then" in row]
        good = [row for row in then if row["verdict"] == "good"]
        off = [row for row in good if any(p < 1e-3 for p in row["tails"].values())]
        if then:
            lines.append(
                f"{kind}, first advice followed in {len(then)} runs that were not good: {len(good)} are then called "
                f"good, {len(off)} of them with a truth outside"
            )
    return "\n".join(lines)


PAGE = """# Wrong models

Chains of a wrong model agree as well as those of a right one, so the verdict also criticises the model
([health.md](health.md)). This page, written by `python verification/models.py`, counts how often it tells wrong models
from right ones. Readings are made from a true problem by an independent solver, and the posterior of each model is
judged with default settings. "Outside" are truths outside of their 99.9% interval. Following the first advice
mechanically (`verification/advice.py`) means, for "check units and boundary data, then the equations, then the field's
prior", a more flexible field, since a machine does not know better.

Models marked *hidden* cannot be told from their readings, whatever the method: the best fit of the wrong equation
differs from the truth by so little that a likelihood-ratio test against the truth has a power below 0.99 (noncentrality
below 18.4; the linearised pendulum has 2.9, quadratic friction 9.7, the harvest 14.8, the offset of growth 9.3), or
nothing in the problem says what is wrong, as for a sensor that is late in an autonomous equation. Gompertz growth
stated as logistic has 20, close to what the likelihood-ratio test itself can tell.
"""


def page(rows: list[dict[str, Any]]) -> str:
    """The table of all models, with the first reason of those that are not good."""
    kinds = {m.name: "right" if m.is_right else "hidden" if m.is_hidden else "wrong" for m in MODELS}
    sets = 1 + max(row["set"] for row in rows)
    missing = [m.name for m in MODELS if m.name not in {row["model"] for row in rows}]
    lines = [
        PAGE,
        f"{sets} data set{'s' if sets > 1 else ''} each." + (f" Not run: {'; '.join(missing)}." if missing else ""),
    ]
    lines += ["", *(f"- {line}" for line in told(rows).splitlines()), ""]
    lines += ["| model | is | verdicts | outside | first reason |", "| --- | --- | --- | --- | --- |"]
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        verdicts = [f"{sum(r['verdict'] == v for r in own)} {v}" for v in ("good", "care", "bad")]
        outside = sum(any(p < 1e-3 for p in row["tails"].values()) for row in own)
        reasons = [reason for row in own if row["verdict"] != "good" for reason in row["reasons"]]
        reasons = [r for r in reasons if "chains agree" not in r and "restarted" not in r]
        verdict = ", ".join(v for v in verdicts if v[0] != "0")
        lines.append(f"| {name} | {kinds[name]} | {verdict} | {outside or ''} | {reasons[0] if reasons else ''} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--page", type=Path, default=None)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(given.out.read_text()) if given.out and given.out.is_file() else []
    done = {(row["model"], row["set"]) for row in rows}
    for which in MODELS:
        if not any(which.name.startswith(part) for part in given.only):
            continue
        for number in range(given.sets):
            if (which.name, number) in done:
                continue
            row = judged(which, number, given.follow)
            rows.append(row)
            right = "right" if which.is_right else "hidden" if which.is_hidden else "wrong"
            wrong = (row["verdict"] == "good") != which.is_right and not which.is_hidden
            far = {name: f"{p:.1g}" for name, p in row["tails"].items() if p < 1e-2}
            why = [] if which.is_right == (row["verdict"] == "good") else row["reasons"][1:3]
            print(
                f"{'!' if wrong else ' '} {right:6s} {which.name}, {number}: {row['verdict']}, {row['seconds']} s",
                far,
                why,
                row.get("then", ""),
            )
            sys.stdout.flush()
            if given.out is not None:
                given.out.write_text(json.dumps(rows, indent=1))
    print(told(rows))
    if given.page is not None:
        given.page.write_text(page(rows))


if __name__ == "__main__":
    main()
