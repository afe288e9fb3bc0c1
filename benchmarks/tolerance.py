"""Tolerance and points of exact equations: what they do to unknowns, and what they cost.

    python benchmarks/tolerance.py [--only swing heat] [--sets 2] [--results FILE]

Each problem is inferred with multiples of the default tolerance of `bp.Physics`, and with multiples of its default
number of points. Differences are those of the posterior mean of an unknown from that of the equation solved by Runge
and Kutta (`verification/few_readings.py`), in units of the latter's sd, with the ratio of sds in brackets; for the heat
equation, a partial one, from the run with the smallest tolerance. The table has the mean of differences and ratios over
data sets, processor seconds (all cores), and the verdicts. Finished runs are kept in verification/work.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:  # started as a file
    sys.path.insert(0, str(ROOT))

import bpinn as bp
from verification.few_readings import Case, cases

WORK = ROOT / "verification" / "work" / "tolerance.json"
TOLERANCES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
POINTS = (0.25, 0.5, 2.0, 4.0)
HEAT = "heat"
DIFFUSIVITY = 0.3


def heat(u_xx, u_t, D):
    return u_t - D * u_xx


def rod(seed: int, **stated: Any) -> bp.Problem:
    """Heat in a rod whose start is not known: 60 readings of two decaying modes, and ends held at zero."""
    rng = np.random.default_rng(seed)
    x, t = rng.uniform(0.0, 1.0, 60), rng.uniform(0.0, 0.5, 60)
    u = sum(a * np.sin(n * np.pi * x) * np.exp(-DIFFUSIVITY * (n * np.pi) ** 2 * t) for n, a in ((1, 1.0), (2, 0.5)))
    times = np.linspace(0.0, 0.5, 11)
    ends = {"x": np.repeat([0.0, 1.0], len(times)), "t": np.tile(times, 2)}
    sensors = {
        "law": bp.Physics(heat, **stated),
        "ends": bp.Sensors("u", ends, 0.0, noise=0.005),
        "u": bp.Sensors("u", {"x": x, "t": t}, u + 0.03 * rng.standard_normal(60), noise=0.03),
    }
    unknowns = {"D": dist.LogNormal(-1.0, 1.0)}
    return bp.Problem({"x": (0.0, 1.0), "t": (0.0, 0.5)}, {"u": bp.GaussianProcess()}, sensors, unknowns)


PROBLEMS = ("swing", "logistic", "drag", "epidemic", HEAT)


def maker(name: str) -> Callable[..., bp.Problem]:
    return rod if name == HEAT else cases()[name].problem


def stated(make: Callable[..., bp.Problem], seed: int, tolerance: float, points: float) -> bp.Problem:
    """The problem with multiples of the default tolerance and number of points of all its equations."""
    problem = make(seed)
    changed = {
        name: bp.Physics(s.quantity, points=round(points * len(s.at["t"])), tolerance=tolerance * float(s.noise))
        if callable(s.quantity)
        else s
        for name, s in problem.sensors.items()
    }
    return bp.Problem(problem.domain, problem.fields, changed, problem.unknowns)


def measured(name: str, seed: int, tolerance: float, points: float) -> dict[str, Any]:
    problem = stated(maker(name), seed, tolerance, points)
    busy = time.process_time()
    result = bp.infer(problem, seed=seed, progress=False)
    health = result.diagnose()
    spent = time.process_time() - busy
    found = {
        unknown: (float(result.draws(unknown).mean()), float(result.draws(unknown).std())) for unknown in result.names
    }
    return {"verdict": health.verdict, "reasons": list(health.reasons), "processor": spent, "found": found}


def solved(case: Case, seed: int) -> dict[str, tuple[float, float]]:
    """Means and sds of unknowns with the equation solved."""
    exact = case.classical(case.problem(seed))
    return {name: (float(draws.mean()), float(draws.std())) for name, draws in exact.items() if name in case.truth}


def table(kept: Mapping[str, Any], names: list[str], sets: int) -> str:
    lines = ["| problem | tolerance | points | difference from the solved equation | processor seconds | verdicts |"]
    lines.append("|---|---|---|---|---|---|")
    for name in names:
        for tolerance, points in SETTINGS:
            runs = [kept.get(key(name, seed, tolerance, points)) for seed in range(sets)]
            if any(run is None for run in runs):
                continue
            cells = []
            for unknown in runs[0]["found"]:
                pairs = [reference(kept, name, seed).get(unknown) for seed in range(sets)]
                if any(pair is None for pair in pairs):
                    continue
                off = np.mean([(r["found"][unknown][0] - p[0]) / p[1] for r, p in zip(runs, pairs, strict=True)])
                ratio = np.mean([r["found"][unknown][1] / p[1] for r, p in zip(runs, pairs, strict=True)])
                cells.append(f"{unknown} {off:+.2f} ({ratio:.2f})")
            seconds = np.mean([run["processor"] for run in runs])
            verdicts = ", ".join(run["verdict"] for run in runs)
            lines.append(f"| {name} | {tolerance:g} | {points:g} | {', '.join(cells)} | {seconds:.0f} | {verdicts} |")
    return "\n".join(lines)


SETTINGS = [(tolerance, 1.0) for tolerance in TOLERANCES] + [(1.0, points) for points in POINTS]


def key(name: str, seed: int, tolerance: float, points: float) -> str:
    return f"{name}/{seed}/{tolerance:g}/{points:g}"


def reference(kept: Mapping[str, Any], name: str, seed: int) -> dict[str, Any]:
    if name == HEAT:
        return kept.get(key(name, seed, min(TOLERANCES), 1.0), {}).get("found", {})
    return kept.get(f"{name}/{seed}/solved", {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--sets", type=int, default=2)
    parser.add_argument("--results", type=Path, default=WORK)
    given = parser.parse_args()
    kept = json.loads(given.results.read_text()) if given.results.is_file() else {}
    given.results.parent.mkdir(parents=True, exist_ok=True)

    def keep(name: str, make: Callable[[], Any]) -> None:
        if name not in kept:
            kept[name] = make()
            given.results.write_text(json.dumps(kept, indent=1))
            print(name, kept[name].get("verdict", ""), f"{kept[name].get('processor', 0):.0f} s", flush=True)

    for name in given.only:
        for seed in range(given.sets):
            if name != HEAT:
                keep(f"{name}/{seed}/solved", lambda name=name, seed=seed: solved(cases()[name], seed))
            for tolerance, points in SETTINGS:
                keep(
                    key(name, seed, tolerance, points),
                    lambda given=(name, seed, tolerance, points): measured(*given),
                )
    print(table(kept, given.only, given.sets))


if __name__ == "__main__":
    main()
