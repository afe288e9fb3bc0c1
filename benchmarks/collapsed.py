"""Collapsed chains against HMC on problems whose scales, and mostly noise, are inferred: the same posterior, sooner?

    python benchmarks/collapsed.py [--only masses plate] [--repeats 1] [--page docs/methods.md]

Each problem is stated as a user would, with `GaussianProcess()` fields and `Physics`, and runs by both methods in turn,
from `infer` to the verdict, compilation included. Columns: seconds and processor seconds of each, medians of the
repeats; the smallest effective sample size of an unknown, noise level or scale; the largest difference of their means
in standard deviations, and the largest ratio of these.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.integrate import solve_ivp

import bpinn as bp
from bpinn.convergence import ess_of

GP = bp.GaussianProcess
BEGIN, END = "<!-- collapsed: begin -->", "<!-- collapsed: end -->"


def masses(rng: np.random.Generator) -> bp.Problem:
    """Two masses on springs; two fields of one coordinate."""
    t = np.linspace(0.0, 12.0, 40)

    def slope(_: float, y: np.ndarray) -> list[float]:
        return [y[2], y[3], -2.0 * y[0] - (y[0] - y[1]) - 0.1 * y[2], y[0] - y[1] - 0.1 * y[3]]

    a, b = solve_ivp(slope, (0.0, 12.0), [1.0, 0.0, 0.0, 0.0], rtol=1e-9, t_eval=t).y[:2] + 0.03 * rng.normal(
        size=(2, 40)
    )
    return bp.Problem(
        {"t": (0.0, 12.0)},
        {"a": GP(), "b": GP()},
        {
            "one": bp.Physics(lambda a, b, a_t, a_tt, k1, k2, c: a_tt + k1 * a + k2 * (a - b) + c * a_t),
            "two": bp.Physics(lambda a, b, b_t, b_tt, k2, c: b_tt + k2 * (b - a) + c * b_t),
            "a": bp.Sensors("a", {"t": t}, a, noise=dist.HalfNormal(0.2)),
            "b": bp.Sensors("b", {"t": t}, b, noise=dist.HalfNormal(0.2)),
        },
        {"k1": dist.LogNormal(0.0, 1.0), "k2": dist.LogNormal(0.0, 1.0), "c": dist.HalfNormal(1.0)},
    )


def rod(rng: np.random.Generator) -> bp.Problem:
    """Heat in a rod, in metres, seconds and kelvins."""
    x, t = (part.ravel() for part in np.meshgrid(np.linspace(0.02, 0.28, 5), np.linspace(0.0, 60.0, 8)))
    exact = 290.0 + 40.0 * np.sin(np.pi * x / 0.3) * np.exp(-1e-4 * (np.pi / 0.3) ** 2 * t)
    readings = bp.Sensors("T", {"x": x, "t": t}, exact + 0.5 * rng.normal(size=x.size), noise=dist.HalfNormal(2.0))
    law = bp.Physics(lambda T_t, T_xx, D: T_t - D * T_xx)
    domain = {"x": (0.0, 0.3), "t": (0.0, 60.0)}
    return bp.Problem(domain, {"T": GP()}, {"law": law, "T": readings}, {"D": dist.LogNormal(np.log(1e-4), 1.0)})


def plume(rng: np.random.Generator) -> bp.Problem:
    """A plume that drifts and spreads past five sensors."""
    x, t = (part.ravel() for part in np.meshgrid([2.0, 4.0, 6.0, 8.0, 10.0], np.linspace(0.0, 8.0, 12)))
    wide = 4.0 + 2.0 * t
    exact = 40.0 * np.sqrt(4.0 / wide) * np.exp(-((x - 3.0 - 0.8 * t) ** 2) / wide)
    readings = bp.Sensors("c", {"x": x, "t": t}, exact + 0.5 * rng.normal(size=x.size), noise=dist.HalfNormal(2.0))
    law = bp.Physics(lambda c_t, c_x, c_xx, D, w: c_t + w * c_x - D * c_xx)
    unknowns = {"D": dist.LogNormal(-1.0, 1.0), "w": dist.Normal(0.0, 1.0)}
    return bp.Problem({"x": (0.0, 12.0), "t": (0.0, 8.0)}, {"c": GP()}, {"law": law, "c": readings}, unknowns)


def plate(rng: np.random.Generator) -> bp.Problem:
    """Steady heat in a plate of 20 cm by 10 cm with a known source and an unknown conductivity."""
    wide, high = 0.2, 0.1
    x, y = rng.uniform(0.0, wide, 30), rng.uniform(0.0, high, 30)
    exact = 300.0 + 50.0 * np.sin(np.pi * x / wide) * np.sin(np.pi * y / high)
    size = 15.0 * 50.0 * np.pi**2 * (wide**-2 + high**-2)

    def conduction(T_xx: Any, T_yy: Any, x: Any, y: Any, k: Any) -> Any:
        return k * (T_xx + T_yy) + size * jnp.sin(jnp.pi * x / wide) * jnp.sin(jnp.pi * y / high)

    readings = bp.Sensors("T", {"x": x, "y": y}, exact + 0.5 * rng.normal(size=30), noise=dist.HalfNormal(2.0))
    domain = {"x": (0.0, wide), "y": (0.0, high)}
    sensors = {"law": bp.Physics(conduction), "T": readings}
    return bp.Problem(domain, {"T": GP()}, sensors, {"k": dist.LogNormal(2.5, 1.0)})


def solved(slope: Any, start: list[float], times: np.ndarray) -> np.ndarray:
    found: np.ndarray = solve_ivp(slope, (0.0, times[-1]), start, rtol=1e-9, t_eval=times).y
    return found


def pendulum(rng: np.random.Generator, tolerance: float | None = None) -> bp.Problem:
    """A pendulum with unknown damping and stiffness, from 14 readings of its angle."""
    t = np.linspace(0.0, 5.0, 14)
    angle = solved(lambda _, y: [y[1], -0.3 * y[1] - 4.0 * np.sin(y[0])], [1.5, 0.0], t)[0]
    law = bp.Physics(
        lambda u, u_t, u_tt, damping, stiffness: u_tt + damping * u_t + stiffness * jnp.sin(u), tolerance=tolerance
    )
    readings = bp.Sensors("u", {"t": t}, angle + 0.08 * rng.normal(size=14), noise=dist.LogNormal(np.log(0.08), 0.5))
    unknowns = {"damping": dist.LogNormal(-0.5, 0.8), "stiffness": dist.LogNormal(1.0, 0.5)}
    return bp.Problem({"t": (0.0, 5.0)}, {"u": GP()}, {"law": law, "u": readings}, unknowns)


def tight_pendulum(rng: np.random.Generator) -> bp.Problem:
    """The same with a tenth of the default tolerance."""
    state = rng.bit_generator.state
    default = pendulum(rng).sensors["law"].noise
    rng.bit_generator.state = state
    return pendulum(rng, float(np.ravel(default)[0]) / 10)


def relaxation(rng: np.random.Generator) -> bp.Problem:
    """Van der Pol's oscillator, from 14 readings with stated noise."""
    t = np.linspace(0.0, 8.0, 14)
    values = solved(lambda _, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], [1.0, 0.0], t)[0] + 0.1 * rng.normal(size=14)
    law = bp.Physics(lambda u, u_t, u_tt, mu: u_tt - mu * (1 - u**2) * u_t + u)
    sensors = {"law": law, "u": bp.Sensors("u", {"t": t}, values, noise=0.1)}
    return bp.Problem({"t": (0.0, 8.0)}, {"u": GP()}, sensors, {"mu": dist.LogNormal(0.0, 0.7)})


def predators(rng: np.random.Generator) -> bp.Problem:
    """Predators and prey, two fields and four unknowns, from 12 readings of each."""
    t = np.linspace(0.0, 8.0, 12)
    exact = solved(lambda _, y: [y[0] - 0.8 * y[0] * y[1], -y[1] + 0.6 * y[0] * y[1]], [2.0, 1.0], t)
    x, y = exact + 0.1 * rng.normal(size=(2, 12))
    return bp.Problem(
        {"t": (0.0, 8.0)},
        {"x": GP(), "y": GP()},
        {
            "prey": bp.Physics(lambda x, x_t, y, a, b: x_t - a * x + b * x * y),
            "hunters": bp.Physics(lambda x, y, y_t, c, d: y_t + c * y - d * x * y),
            "x": bp.Sensors("x", {"t": t}, x, noise=0.1),
            "y": bp.Sensors("y", {"t": t}, y, noise=0.1),
        },
        dict.fromkeys("abcd", dist.LogNormal(0.0, 0.7)),
    )


CASES = {case.__name__: case for case in (masses, rod, plume, plate, pendulum, tight_pendulum, relaxation, predators)}


def measured(problem: bp.Problem, method: bp.Method, seed: int) -> dict[str, Any]:
    begun, busy = time.perf_counter(), time.process_time()
    result = bp.infer(problem, method, seed=seed, progress=False)
    verdict = result.diagnose().verdict
    seconds, processor = time.perf_counter() - begun, time.process_time() - busy
    numbers = np.asarray(result.monitor.numbers_of(result.functionals), float)
    return {
        "verdict": verdict, "seconds": seconds, "processor": processor, "ess": float(ess_of(numbers).min()),
        "mean": numbers.mean((0, 1)), "sd": numbers.std((0, 1)),
    }  # fmt: skip


def table(only: list[str], repeats: int) -> str:
    lines = [
        "| problem | HMC, s | Collapsed, s | HMC, processor s | Collapsed, processor s | ESS, HMC | ESS, Collapsed "
        "| means differ by | sds differ by | verdicts |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in only:
        problem = CASES[name](np.random.default_rng(3))
        runs = [[measured(problem, m, seed) for m in (bp.HMC(), bp.Collapsed())] for seed in range(repeats)]
        hmc, own = ({key: np.median([pair[i][key] for pair in runs]) for key in ("seconds", "processor", "ess")}
                    for i in (0, 1))  # fmt: skip
        one, other = runs[0]
        means = np.max(np.abs(one["mean"] - other["mean"]) / one["sd"])
        sds = np.max(np.abs(np.log(one["sd"] / other["sd"])))
        lines.append(
            f"| {name} | {hmc['seconds']:.0f} | {own['seconds']:.0f} | {hmc['processor']:.0f} | {own['processor']:.0f} "
            f"| {hmc['ess']:.0f} | {own['ess']:.0f} | {means:.2f} sd | {np.expm1(sds):.0%} "
            f"| {one['verdict']}, {other['verdict']} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    given = parser.parse_args()
    found = table(given.only, given.repeats)
    if given.page:
        before, rest = given.page.read_text(encoding="utf-8").split(BEGIN)
        text = f"{before}{BEGIN}\n\n{found}\n\n{END}{rest.split(END)[1]}"
        given.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
