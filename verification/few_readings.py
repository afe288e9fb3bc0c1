"""Few readings and an exact equation that is not linear: unknowns by a field, against those of the solved equation.

    python verification/few_readings.py [--only logistic swing] [--sets 5] [--ways neutral points network]

For each problem and data set: how far the mean of each unknown is from that of the posterior with the equation solved
by Runge and Kutta (`gallery/classical.py`), in units of the latter's sd, and the ratio of sds. Ways of stating the
field: "neutral", a Gaussian process with the default of `bp.Physics`; "points", the same with points that count like
readings of zero; "positive", the first with fields that are positive; "network", a network of two layers of 30, and
"neutral network", the same with neutral equations. Finished runs are kept in verification/work.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
from gallery import classical

import bpinn as bp

WORK = Path(__file__).parent / "work" / "few_readings.json"
STEPS = 8  # of Runge and Kutta between readings
SHIFT = 5.0  # of initial values that may be negative: the walkers of the classical posterior are positive


@dataclass(frozen=True)
class Case:
    """A system of ordinary equations ``y' = slope(t, y, **unknowns)`` with readings of some of its components.

    Arguments:
        laws: the equations as a user states them.
        fields: names of the fields, the components of ``y`` of the same number; further components are derivatives.
        read: fields that are read, with the noise of each.
        start: initial values, and the standard deviation of their prior in the classical posterior.
    """

    laws: Mapping[str, Callable[..., Any]]
    slope: Callable[..., Any]
    fields: tuple[str, ...]
    truth: Mapping[str, float]
    priors: Mapping[str, dist.Distribution]
    start: tuple[float, ...]
    wide: float
    end: float
    count: int
    read: Mapping[str, float]
    inferred: bool = False

    @property
    def times(self) -> np.ndarray:
        return np.linspace(0.0, self.end, self.count)

    def solved(self, unknowns: Mapping[str, Any], start: Any) -> dict[str, np.ndarray]:
        """What the sensors would read without noise, (walkers, readings)."""
        found = classical.runge_kutta(
            lambda t, y: np.stack(self.slope(t, y, **unknowns)), np.asarray(start, float), self.times, STEPS
        )
        return {name: found[:, self.fields.index(name)].T for name in self.read}

    def problem(self, seed: int, way: str = "neutral", **stated: Any) -> bp.Problem:
        """The problem of a data set, with further arguments of `bp.Physics` for all laws."""
        rng = np.random.default_rng(seed)
        exact = self.solved(self.truth, self.start)
        sensors: dict[str, Any] = {
            name: bp.Physics(law, neutral=way not in ("points", "network"), **stated) for name, law in self.laws.items()
        }
        for name, noise in self.read.items():
            values = exact[name] + noise * rng.standard_normal(self.count)
            sd = dist.LogNormal(np.log(noise), 0.5) if self.inferred else noise
            sensors[name] = bp.Sensors(name, {"t": self.times}, values, noise=sd)
        network = bp.MLP(hidden=(30, 30), scale_inputs=True)
        field = network if "network" in way else bp.GaussianProcess(positive=way == "positive")
        fields = dict.fromkeys(self.fields, field)
        return bp.Problem({"t": (0.0, self.end)}, fields, sensors, dict(self.priors))

    def classical(self, problem: bp.Problem) -> dict[str, np.ndarray]:
        starts = {
            f"start{i}": dist.TruncatedNormal(SHIFT + value, self.wide, low=0.0) for i, value in enumerate(self.start)
        }

        def solve(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            start = np.stack([values[name] - SHIFT for name in starts])
            return self.solved({name: values[name] for name in self.truth}, start)

        return classical.posterior(problem, solve, starts)


def cases() -> dict[str, Case]:
    wide = dist.LogNormal(0.0, 0.7)

    def decay(u, u_t, k):
        return u_t + k * u

    def logistic(u, u_t, r, K):
        return u_t - r * u * (1 - u / K)

    def gompertz(u, u_t, r, K):
        return u_t - r * u * jnp.log(K / jnp.maximum(u, 1e-3))

    def uptake(s, s_t, V, K):
        return s_t + V * s / (K + s)

    def drag(v, v_t, g, c):
        return v_t - g + c * v * jnp.abs(v)

    def swing(u, u_t, u_tt, damping, stiffness):
        return u_tt + damping * u_t + stiffness * jnp.sin(u)

    def spring(u, u_t, u_tt, k, hard):
        return u_tt + 0.1 * u_t + k * u + hard * u**3

    def relaxation(u, u_t, u_tt, mu):
        return u_tt - mu * (1 - u**2) * u_t + u

    def prey(x, x_t, y, a, b):
        return x_t - a * x + b * x * y

    def predators(x, y, y_t, c, d):
        return y_t + c * y - d * x * y

    def infection(S, S_t, I, beta):  # noqa: E741
        return S_t + beta * S * I

    def illness(S, I, I_t, beta, gamma):  # noqa: E741
        return I_t - beta * S * I + gamma * I

    one = {"r": wide, "K": dist.LogNormal(2.3, 0.5)}
    found = {
        "decay": Case({"law": decay}, lambda t, y, k: [-k * y[0]], ("u",), {"k": 0.8}, {"k": dist.LogNormal(-0.5, 0.7)},
            (2.0,), 2.0, 5.0, 6, {"u": 0.15}),
        "long decay": Case({"law": decay}, lambda t, y, k: [-k * y[0]], ("u",), {"k": 0.8},
            {"k": dist.LogNormal(-0.5, 0.7)}, (2.0,), 2.0, 5.0, 40, {"u": 0.4}),
        "logistic": Case({"law": logistic}, lambda t, y, r, K: [r * y[0] * (1 - y[0] / K)], ("u",),
            {"r": 0.9, "K": 10.0}, one, (0.5,), 3.0, 10.0, 12, {"u": 0.35}),
        "gompertz": Case({"law": gompertz}, lambda t, y, r, K: [r * y[0] * np.log(K / np.maximum(y[0], 1e-3))], ("u",),
            {"r": 0.5, "K": 10.0}, one, (0.5,), 3.0, 10.0, 12, {"u": 0.35}),
        "uptake": Case({"law": uptake}, lambda t, y, V, K: [-V * y[0] / (K + y[0])], ("s",),
            {"V": 1.0, "K": 0.5}, {"V": wide, "K": wide}, (2.0,), 2.0, 4.0, 12, {"s": 0.05}),
        "drag": Case({"law": drag}, lambda t, y, g, c: [g - c * y[0] * np.abs(y[0])], ("v",),
            {"g": 9.8, "c": 0.4}, {"g": dist.LogNormal(2.3, 0.5), "c": dist.LogNormal(-1.0, 0.7)}, (0.0,), 2.0, 1.5, 10,
            {"v": 0.15}),
        "swing": Case({"law": swing},
            lambda t, y, damping, stiffness: [y[1], -damping * y[1] - stiffness * np.sin(y[0])], ("u",),
            {"damping": 0.3, "stiffness": 4.0},
            {"damping": dist.LogNormal(-0.5, 0.8), "stiffness": dist.LogNormal(1.0, 0.5)}, (1.5, 0.0), 2.0,
            5.0, 14, {"u": 0.08}),
        "spring": Case({"law": spring}, lambda t, y, k, hard: [y[1], -0.1 * y[1] - k * y[0] - hard * y[0] ** 3],
            ("u",), {"k": 1.0, "hard": 2.0}, {"k": wide, "hard": wide}, (1.2, 0.0), 2.0, 6.0, 16, {"u": 0.08}),
        "relaxation": Case({"law": relaxation}, lambda t, y, mu: [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]],
            ("u",), {"mu": 1.0}, {"mu": wide}, (1.0, 0.0), 2.0, 8.0, 14, {"u": 0.1}),
        "prey": Case({"prey": prey, "predators": predators},
            lambda t, y, a, b, c, d: [a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]], ("x", "y"),
            {"a": 1.0, "b": 0.8, "c": 1.0, "d": 0.6}, dict.fromkeys("abcd", wide), (2.0, 1.0), 1.5, 8.0, 12,
            {"x": 0.1, "y": 0.1}),
        "epidemic": Case({"infection": infection, "illness": illness},
            lambda t, y, beta, gamma: [-beta * y[0] * y[1], beta * y[0] * y[1] - gamma * y[1]], ("S", "I"),
            {"beta": 1.8, "gamma": 0.5}, {"beta": wide, "gamma": wide}, (0.98, 0.02), 0.1, 13.0, 14,
            {"S": 0.03, "I": 0.02}),
    }  # fmt: skip
    found["noisy logistic"] = Case(**{**vars(found["logistic"]), "inferred": True})
    found["noisy swing"] = Case(**{**vars(found["swing"]), "inferred": True})
    return found


def measured(case: Case, seed: int, way: str) -> dict[str, Any]:
    problem = case.problem(seed, way)
    exact = case.classical(problem)
    begun, busy = time.perf_counter(), time.process_time()
    result = bp.infer(problem, seed=seed, progress=False)
    seconds = {"seconds": time.perf_counter() - begun, "processor": time.process_time() - busy}
    health = result.diagnose()
    rows = {}
    for name in (*case.truth, *problem.noise_priors):
        own, other = result.draws(name).ravel(), exact[name]
        rows[name] = {
            "mean": float(own.mean()), "sd": float(own.std()),
            "exact_mean": float(other.mean()), "exact_sd": float(other.std()),
        }  # fmt: skip
    return {
        "verdict": health.verdict, "reasons": list(health.reasons), "rows": rows, **seconds,
        "method": type(result.method).__name__, "draws": int(np.prod(result.z.shape[:2])),
    }  # fmt: skip


def line(name: str, way: str, found: Mapping[str, Any]) -> str:
    off = []
    for unknown, row in found["rows"].items():
        bias = (row["mean"] - row["exact_mean"]) / row["exact_sd"]
        off.append(f"{unknown} {bias:+.2f} ({row['sd'] / row['exact_sd']:.2f})")
    start = f"{name:22} {way:8} {found['method']:9} {found['verdict']:5} {found['processor']:5.0f} s  "
    return start + ", ".join(off)


def table(kept: Mapping[str, Any], ways: list[str]) -> str:
    """The unknowns of each problem, averaged over data sets: differences in exact sds, and ratios of sds."""
    lines = ["| problem, readings | " + " | ".join(ways) + " |", "|---|" + "---|" * len(ways)]
    for name, case in cases().items():
        cells = []
        for way in ways:
            found = [v["rows"] for key, v in kept.items() if key.startswith(f"{name}/") and key.endswith(f"/{way}")]
            parts = []
            for unknown in found[0] if found else ():
                rows = [row[unknown] for row in found]
                off = np.mean([(row["mean"] - row["exact_mean"]) / row["exact_sd"] for row in rows])
                ratio = np.mean([row["sd"] / row["exact_sd"] for row in rows])
                parts.append(f"{unknown} {off:+.2f} ({ratio:.2f})")
            cells.append(", ".join(parts) or "not run")
        lines.append(f"| {name}, {case.count * len(case.read)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(cases()))
    parser.add_argument("--sets", type=int, default=1)
    parser.add_argument("--ways", nargs="*", default=["neutral", "points", "network"])
    parser.add_argument("--results", type=Path, default=WORK)
    arguments = parser.parse_args()
    kept = json.loads(arguments.results.read_text()) if arguments.results.is_file() else {}
    for name in arguments.only:
        for seed in range(arguments.sets):
            for way in arguments.ways:
                key = f"{name}/{seed}/{way}"
                if key not in kept:
                    kept[key] = measured(cases()[name], seed, way)
                    arguments.results.parent.mkdir(parents=True, exist_ok=True)
                    arguments.results.write_text(json.dumps(kept, indent=1))
                print(line(f"{name} {seed}", way, kept[key]), flush=True)
    print(table(kept, arguments.ways))


if __name__ == "__main__":
    main()
