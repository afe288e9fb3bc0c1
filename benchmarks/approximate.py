"""Measurements for docs/methods.md: every approximate method against HMC, on small problems of the suite.

    python benchmarks/approximate.py [--only pendulum beam] [--methods ensemble laplace] [--quick]
        [--write docs/methods.md]

All methods have their default settings, and seconds include compilation. Every run is a process of its own; finished
runs are stored in ``--results``, and the same command continues (``--again`` repeats them). ``--quick`` makes a few
steps only, to check that everything runs; its numbers mean nothing. ``--write`` puts the tables between the markers of
the page.

The mean of an unknown is compared with HMC's in units of HMC's sd, and its sd with HMC's; for fields it is the same at
the monitored points (root mean square of the differences, and median of the ratios). Seconds are ratios to HMC's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:  # started as a file
    sys.path.insert(0, str(ROOT))

import bpinn as bp
from benchmarks.results import load, merge
from benchmarks.suite import SUITE

PROBLEMS: dict[str, Callable[[], bp.Problem]] = {
    "inverse-1d": lambda: bp.paper.inverse_reaction_1d(noise=0.1).problem,
    **{
        name: lambda name=name: SUITE[name](seed=0).problem
        for name in ("pendulum", "michaelis_menten", "beam", "seir", "fitzhugh_nagumo")
    },
}
METHODS: dict[str, tuple[bp.Method, dict[str, Any]]] = {  # with settings of quick runs
    "hmc": (bp.HMC(), dict(num_warmup=20, num_draws=20, num_leapfrog=5, chains=2)),
    "vi": (bp.VI(), dict(num_steps=50, init_steps=50, num_draws=50)),
    "last-layer": (bp.LastLayer(), dict(num_steps=50, num_draws=50)),
    "laplace": (bp.Laplace(), dict(num_steps=3, init_steps=50, num_draws=50)),
    "laplace, plain": (bp.Laplace(coordinates="plain"), dict(num_steps=3, init_steps=50, num_draws=50)),
    "ensemble": (bp.Ensemble(), dict(num_steps=3, members=4)),
    "ensemble, not anchored": (bp.Ensemble(anchored=False), dict(num_steps=3, members=4)),
    "svgd": (bp.SVGD(), dict(num_steps=20, init_steps=50, particles=4)),
    "ensemble-kalman": (bp.EnsembleKalman(), dict(members=20, most_steps=3)),
    "flow": (bp.Flow(), dict(num_steps=20, init_steps=50, num_draws=50)),
}
SLOW = ("flow",)  # only on request: on networks it takes many times as long as HMC
BEGIN, END = "<!-- approximate.py: begin -->", "<!-- approximate.py: end -->"
USES = {
    "vi": "`VI()`: a second opinion; slower than HMC here",
    "last-layer": "`LastLayer()`: a preview; good means and sds of unknowns, sds of fields are too small in places",
    "laplace": "`Laplace()`: few coefficients and unknowns; on networks only for means and sds of unknowns",
    "laplace, plain": '`Laplace(coordinates="plain")`: comparison with the textbook method; of no use for networks',
    "ensemble": "`Ensemble()`: a check of HMC, if tens of draws are enough and all members fit",
    "ensemble, not anchored": "`Ensemble(anchored=False)`: shows if fits end in different solutions; no error bars",
    "svgd": "`SVGD()`: comparison with other work; its spread is too small",
    "ensemble-kalman": "`EnsembleKalman()`: models with few parameters and no gradients; it fails on networks",
    "flow": "`Flow()`: up to a few hundred parameters",
}


def run(problem: str, name: str, quick: bool) -> dict[str, Any]:
    """One run in this process: means and sds of unknowns and fields, seconds and verdict."""
    from dataclasses import replace

    stated, (method, few) = PROBLEMS[problem](), METHODS[name]
    start = time.perf_counter()
    result = bp.infer(stated, replace(method, **few) if quick else method, seed=0, progress=False)
    health = result.diagnose()
    seconds = time.perf_counter() - start
    monitor = result.monitor
    scalars = {unknown: result.draws(unknown) for unknown in stated.unknowns}
    count = len(monitor.is_secondary) - sum(np.size(draws[0, 0]) for draws in scalars.values())
    fields = result.functionals[..., np.flatnonzero(~monitor.is_secondary[:count])].astype(float)
    return {
        "seconds": seconds,
        "verdict": health.verdict,
        "reasons": health.reasons,
        "unknowns": {unknown: [float(draws.mean()), float(draws.std())] for unknown, draws in scalars.items()},
        "fields": [fields.mean(axis=(0, 1)).tolist(), fields.std(axis=(0, 1)).tolist()],
    }


def run_apart(problem: str, name: str, quick: bool, most_seconds: float) -> dict[str, Any]:
    """The same in a process of its own, which is ended when it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "run.json"
        command = [sys.executable, __file__, "--only", problem, "--methods", name, "--in-this-process", str(stored)]
        try:
            done = subprocess.run(
                command + (["--quick"] if quick else []),
                timeout=most_seconds, capture_output=True, text=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"verdict": f"not done after {most_seconds:.0f} s"}
        if done.returncode or not stored.exists():
            return {"verdict": "failed", "reasons": done.stderr.strip().splitlines()[-1:]}
        return json.loads(stored.read_text())


def compared(found: dict[str, Any], exact: dict[str, Any]) -> dict[str, Any]:
    """The differences of a run from HMC's."""
    off = [(found["unknowns"][u][0] - mean) / sd for u, (mean, sd) in exact["unknowns"].items()]
    ratios = [found["unknowns"][u][1] / sd for u, (_, sd) in exact["unknowns"].items()]
    means, sds = (np.array(part) for part in found["fields"])
    right, spread = (np.array(part) for part in exact["fields"])
    return {
        "off": off,
        "ratios": ratios,
        "fields_off": float(np.sqrt(np.mean(((means - right) / spread) ** 2))),
        "fields_ratio": float(np.median(sds / spread)),
        "seconds": found["seconds"] / exact["seconds"],
    }


def detail(results: dict[str, Any]) -> list[str]:
    """A row for each run."""
    lines = [
        "| problem | method | means of unknowns off by, in HMC's sds | their sds / HMC's | fields off by "
        "| their sds / HMC's | seconds / HMC's | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for problem in PROBLEMS:
        exact = results.get(f"{problem}/hmc", {})
        if "unknowns" not in exact:
            continue
        for name in METHODS:
            found = results.get(f"{problem}/{name}")
            if found is None or name == "hmc":
                continue
            if "unknowns" not in found:
                lines.append(f"| {problem} | {name} | - | - | - | - | - | {found['verdict']} |")
                continue
            c = compared(found, exact)
            off, ratios = (
                ", ".join(format(x, style) for x in c[key]) for key, style in (("off", "+.2f"), ("ratios", ".2f"))
            )
            lines.append(
                f"| {problem} | {name} | {off} | {ratios} | {c['fields_off']:.2f} | {c['fields_ratio']:.2f} "
                f"| {c['seconds']:.2g} | {found['verdict']} |"
            )
    return lines


def summary(results: dict[str, Any]) -> list[str]:
    """A row for each method, over all problems: median and worst."""
    lines = [
        "| method, and when to use it | problems | unknowns off by, median (most) | their sds / HMC's "
        "| fields off by, median (most) | their sds / HMC's | seconds / HMC's | verdicts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in METHODS:
        runs = [(results.get(f"{p}/{name}", {}), results.get(f"{p}/hmc", {})) for p in PROBLEMS]
        runs = [(found, exact) for found, exact in runs if "unknowns" in found and "unknowns" in exact]
        if name == "hmc" or not runs:
            continue
        all_of = [compared(found, exact) for found, exact in runs]
        off = np.abs(np.concatenate([c["off"] for c in all_of]))
        ratios = np.concatenate([c["ratios"] for c in all_of])
        fields, spread = ([c[key] for c in all_of] for key in ("fields_off", "fields_ratio"))
        seconds = [c["seconds"] for c in all_of]
        verdicts = [found["verdict"] for found, _ in runs]
        counted = ", ".join(f"{verdicts.count(v)} {v}" for v in ("good", "care", "bad") if v in verdicts)
        lines.append(
            f"| {USES[name]} | {len(runs)} | {np.median(off):.2f} ({off.max():.2f}) "
            f"| {ratios.min():.2f} to {ratios.max():.2f} | {np.median(fields):.2f} ({max(fields):.2f}) "
            f"| {min(spread):.2f} to {max(spread):.2f} "
            f"| {min(seconds):.2g} to {max(seconds):.2g} | {counted} |"
        )
    return lines


def write(page: Path, results: dict[str, Any]) -> None:
    """Replace what is between the markers of the page."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    tables = "\n".join([BEGIN, *summary(results), "", "Every run:", "", *detail(results), END])
    page.write_text(before + tables + after)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=[m for m in METHODS if m not in SLOW])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true", help="repeat finished runs")
    parser.add_argument("--most-seconds", type=float, default=900.0)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "work" / "approximate.json")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--in-this-process", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_this_process:
        found = run(given.only[0], given.methods[0], given.quick)
        given.in_this_process.write_text(json.dumps(found))
        sys.exit()
    for problem in given.only:
        for name in dict.fromkeys(["hmc", *given.methods]):
            key = f"{problem}/{name}"
            if given.again or "unknowns" not in load(given.results).get(key, {}):
                merge(given.results, **{key: run_apart(problem, name, given.quick, given.most_seconds)})
                print(key, {k: v for k, v in load(given.results)[key].items() if k != "fields"}, flush=True)
    print("\n".join([*summary(load(given.results)), "", *detail(load(given.results))]))
    if given.write:
        write(given.write, load(given.results))
