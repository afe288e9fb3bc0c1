"""Is the advice of bp.next_sensor good? The sd of an unknown after the named reading, and after others.

    python verification/next_sensor.py [--only decay ...] [--repeats 20] [--write]

For each problem and data set: a run, then a run with one more reading, at the place that bp.next_sensor names, at a
random place, and at each of a few places that are spaced uniformly, of which the best counts. The truth gives the
reading. Then, on the paper's nonlinear problem, whose chains are on several solutions: does the reading that
result.tell_apart() names, repeatedly, leave one of them?

Writes next_sensor.json after each data set; the same command resumes. --write prints the table of docs/next_sensor.md.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist

import bpinn as bp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
from results import load, save

STORED = HERE / "next_sensor.json"
METHOD = bp.HMC()
CHAINS_OF_SEVERAL, MOST_READINGS = 8, 3
STARTS = {"several": "anneal", "several-from-prior": "prior"}  # from prior draws, chains find more solutions


@dataclass(frozen=True)
class Case:
    """A problem with one unknown: its truth, the field's prior, the equations, and where it is read."""

    unknown: str
    truth: Callable[..., np.ndarray]
    domain: dict[str, tuple[float, float]]
    field: bp.Field
    prior: Any
    exact: dict[str, Any]
    at: dict[str, np.ndarray]
    noise: float
    uniform: dict[str, np.ndarray]

    def problem(self, seed: int, more: dict[str, float] | None = None) -> bp.Problem:
        """The data set of a seed, with one more reading, which is the same wherever it is taken."""
        rng = np.random.default_rng(seed)
        at = {c: np.array(a, float) for c, a in self.at.items()}
        noises = self.noise * rng.standard_normal(len(next(iter(at.values()))) + 1)
        if more is not None:
            at = {c: np.append(a, more[c]) for c, a in at.items()}
        values = self.truth(**at)
        sensors = self.exact | {"u": bp.Sensors("u", at, values + noises[: len(values)], self.noise)}
        return bp.Problem(self.domain, {"u": self.field}, sensors, {self.unknown: self.prior})


def decay(u, u_t, k):
    return u_t + k * u


def reaction(u, u_xx, k):
    return 0.1 * u_xx - k * u + 1.0


def heat(u_t, u_xx, D):
    return u_t - D * u_xx


def u_reaction(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    root = np.sqrt(k / 0.1)
    return (1 - np.cosh(root * (x - 0.5)) / np.cosh(root / 2)) / k


def _exact(quantity: Any, at: dict[str, Any], value: Any, noise: float) -> bp.Sensors:
    return bp.Sensors(quantity, at, value, noise)


MESH = dict(zip("xt", (a.ravel() for a in np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9))), strict=True))
LINE = np.linspace(0, 1, 9)
CASES = {
    "decay": Case(
        "k", lambda t: np.exp(-0.8 * t), {"t": (0.0, 5.0)}, bp.KarhunenLoeve(bp.SquaredExponential(1.2), terms=12),
        dist.LogNormal(0.0, 1.0),
        {"law": _exact(decay, {"t": np.linspace(0, 5, 30)}, 0.0, 0.01)},
        {"t": np.array([0.0, 4.0, 4.5, 5.0])}, 0.05, {"t": np.linspace(0, 5, 7)[1:-1]},
    ),
    "reaction": Case(
        "k", u_reaction, {"x": (0.0, 1.0)}, bp.KarhunenLoeve(bp.SquaredExponential(0.3), terms=12),
        dist.LogNormal(0.5, 1.0),
        {
            "law": _exact(reaction, {"x": np.linspace(0, 1, 30)}, 0.0, 0.01),
            "ends": _exact("u", {"x": [0.0, 1.0]}, 0.0, 1e-3),
        },
        {"x": np.array([0.05, 0.1])}, 0.02, {"x": np.linspace(0, 1, 7)[1:-1]},
    ),
    "heat": Case(
        "D", lambda x, t: np.exp(-0.1 * np.pi**2 * t) * np.sin(np.pi * x), {"x": (0.0, 1.0), "t": (0.0, 1.0)},
        bp.KarhunenLoeve(bp.SquaredExponential(0.6), terms=40), dist.LogNormal(-2.0, 1.0),
        {
            "law": _exact(heat, MESH, 0.0, 0.02),
            "first": bp.Sensors("u", {"x": LINE, "t": 0 * LINE}, np.sin(np.pi * LINE), 0.01),
            "left": _exact("u", {"x": 0 * LINE, "t": LINE}, 0.0, 0.01),
            "right": _exact("u", {"x": 0 * LINE + 1, "t": LINE}, 0.0, 0.01),
        },
        {"x": np.linspace(0.05, 0.3, 12), "t": np.linspace(0.1, 0.3, 12)}, 0.05,
        {"x": np.array([0.25, 0.75, 0.5, 0.25, 0.75]), "t": np.array([0.25, 0.25, 0.5, 0.75, 0.75])},
    ),
}  # fmt: skip


def sd_of(case: Case, problem: bp.Problem, seed: int) -> tuple[bp.Result, float]:
    result = bp.infer(problem, METHOD, seed=seed, progress=False)
    return result, float(result.draws(case.unknown).std())


def repeat(case: Case, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    result, before = sd_of(case, case.problem(seed), seed)
    advice = bp.next_sensor(result, case.unknown, of="u", noise=case.noise)
    rng = np.random.default_rng([seed, 1])
    anywhere = {c: float(rng.uniform(*bounds)) for c, bounds in case.domain.items()}
    count = len(next(iter(case.uniform.values())))
    places = [{c: float(a[i]) for c, a in case.uniform.items()} for i in range(count)]
    after = [sd_of(case, case.problem(seed, at), seed) for at in (advice.at, anywhere, *places)]
    return {
        "at": advice.at, "random_at": anywhere, "before": before, "expected": advice.readings[0].sd,
        "named": after[0][1], "random": after[1][1], "uniform": [sd for _, sd in after[2:]],
        "verdicts": [result.diagnose().verdict, *(r.diagnose().verdict for r, _ in after)],
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def several(seed: int, start: str) -> dict[str, Any]:
    """The paper's nonlinear problem: solutions before and after each reading that tells them apart.

    A reading excludes the solutions that it contradicts. Chains may then find others, which pass through it, so that
    more than one reading may be needed.
    """
    began = time.perf_counter()
    paper = bp.paper.nonlinear_1d(noise=0.01, seed=seed)
    problem, rng, grid = paper.problem, np.random.default_rng([seed, 1]), paper.problem.grid()
    truth, rounds = paper.truth["u"](grid["x"]), []
    for number in range(MOST_READINGS + 1):
        result = bp.infer(problem, bp.HMC(init=start), seed=seed, chains=CHAINS_OF_SEVERAL, progress=False)
        modes = result.modes()
        errors = [np.linalg.norm(m.result.predict("u", grid).mean - truth) / np.linalg.norm(truth) for m in modes]
        row = {"shares": [m.share for m in modes], "errors_of_u": [float(e) for e in errors]}
        rounds.append(row | {"verdict": result.diagnose().verdict})
        if len(modes) == 1 or number == MOST_READINGS:
            break
        found = result.tell_apart(of="u")
        rounds[-1]["advice"] = found.as_dict()
        value = paper.truth["u"](np.array([found.at["x"]])) + 0.01 * rng.standard_normal(1)
        more = problem.sensors | {f"next_{number}": bp.Sensors("u", {"x": [found.at["x"]]}, value, 0.01)}
        problem = bp.Problem(problem.domain, problem.fields, more, problem.unknowns)
    return {"rounds": rounds, "seconds": time.perf_counter() - began}


def table(stored: dict[str, Any]) -> str:
    lines = [
        "| problem | data sets | sd now | expected | named reading | random | best of 5 uniform |",
        "|---" * 7 + "|",
    ]
    for name in CASES:
        rows = [row for key, row in stored.items() if key.startswith(f"{name} ")]
        if not rows:
            continue
        before = np.array([row["before"] for row in rows])
        shown = [
            np.median(np.array([np.min(row[part]) for row in rows]) / before)
            for part in ("expected", "named", "random", "uniform")
        ]
        ratios = " | ".join(f"{value:.2f}" for value in shown)
        lines.append(f"| {name} | {len(rows)} | {np.median(before):.3g} | {ratios} |")
    lines += [
        "",
        "| nonlinear-1d | data set | solutions before and after each reading | error of u at the end |",
        "|---|---|---|---|",
    ]
    for key, row in stored.items():
        if "rounds" in row:
            name, seed = key.split()
            counts = ", ".join(str(len(one["shares"])) for one in row["rounds"])
            errors = ", ".join(f"{e:.0%}" for e in row["rounds"][-1]["errors_of_u"])
            lines.append(f"| {name} | {seed} | {counts} | {errors} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*CASES, *STARTS], default=[*CASES, *STARTS])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="only print the table of what is stored")
    parser.add_argument("--stored", type=Path, default=STORED)
    given = parser.parse_args()
    for seed in range(0 if given.write else given.repeats):
        for name in given.only:
            if f"{name} {seed}" not in load(given.stored):
                row = several(seed, STARTS[name]) if name in STARTS else repeat(CASES[name], seed)
                save(given.stored, load(given.stored) | {f"{name} {seed}": row})
                print(f"{name} {seed}: {row}", flush=True)
    print(table(load(given.stored)))


if __name__ == "__main__":
    main()
