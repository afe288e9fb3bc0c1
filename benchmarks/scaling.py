"""How the cost grows: one gradient against the size of the problem; sampling against chains, cores and draws.

    python benchmarks/scaling.py [--quick] [--results FILE]

A gradient is timed in the compiled leapfrog loop of benchmarks/gradient.py, in a process with one core. Each study
varies one parameter and keeps the others at: width 50, two hidden layers, 128 sensors, one coordinate, order two.
Sampling is timed in separate processes, whose peak memory is read at their end. Slopes are of log cost against log
size, over the larger half of the sizes: 1 is proportional, 2 is quadratic.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if "--cores" in sys.argv:  # before JAX starts
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[sys.argv.index("--cores") + 1])])

import jax
import numpy as np
import results
from gradient import leapfrog

import bpinn as bp

STUDIES = {
    "width": (8, 16, 32, 64, 128, 256, 512),
    "depth": (1, 2, 4, 8, 16),
    "sensors": (16, 64, 256, 1024, 4096),
    "dimension": (1, 2, 3, 4, 6),
    "order": (1, 2, 3, 4, 6),
}
QUICK = {"width": (8, 64), "depth": (1, 4), "sensors": (16, 256), "dimension": (1, 3), "order": (1, 3)}
COORDINATES = "xyzpqr"


def problem_of(width=50, depth=2, sensors=128, dimension=1, order=2) -> bp.Problem:
    """A field whose pure derivatives of one order along every coordinate sum to zero at random points."""
    names = COORDINATES[:dimension]
    rng = np.random.default_rng(0)
    at = {c: rng.uniform(-1, 1, sensors) for c in names}
    wanted = ", ".join(f"u_{c * order}" for c in names)
    # An equation states what it needs by its argument names; for any dimension and order it must be built as text.
    equation = eval(f"lambda u, {wanted}: u + 0.01 * ({wanted.replace(', ', ' + ')})")
    return bp.Problem(
        domain=dict.fromkeys(names, (-1.0, 1.0)),
        fields={"u": bp.MLP(hidden=(width,) * depth)},
        sensors={"f": bp.Sensors(equation, at=at, values=np.zeros(sensors), noise=0.1)},
    )


def microseconds(problem: bp.Problem, repeats: int) -> float:
    """Microseconds per leapfrog step; the loop length is chosen so that it takes a twentieth of a second."""
    posterior = bp.Posterior(problem, native=True)
    z = 0.3 * posterior.sample_prior(jax.random.key(0), 1)[0]

    def timed(run, steps: int) -> float:
        started = time.perf_counter()
        jax.block_until_ready(run(z))
        return (time.perf_counter() - started) / steps

    probe = leapfrog(posterior.log_density, 4)
    timed(probe, 4)
    steps = int(np.clip(0.05 / timed(probe, 4), 4, 2000))
    run = leapfrog(posterior.log_density, steps)
    timed(run, steps)
    return 1e6 * float(np.median([timed(run, steps) for _ in range(repeats)]))


def slope(sizes, costs) -> float:
    half = len(sizes) // 2 if len(sizes) > 2 else 0
    return float(np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)[0])


def study_gradients(quick: bool) -> dict:
    found = {}
    for name, sizes in (QUICK if quick else STUDIES).items():
        costs = []
        for size in sizes:
            costs.append(microseconds(problem_of(**{name: size}), 3 if quick else 9))
            print(f"one gradient, {name} {size}: {costs[-1]:.1f} µs", file=sys.stderr, flush=True)
        found[name] = {"sizes": list(sizes), "microseconds": costs, "slope": slope(sizes, costs)}
    return found


def sample(chains: int, cores: int, draws: int, keep: int | None, num_leapfrog: int, disk: bool = False) -> dict:
    """One run in this process: seconds of its draws and peak memory; with ``disk`` the draws go to a folder."""
    method = bp.HMC(
        num_leapfrog=num_leapfrog, num_warmup=20, num_draws=draws, keep=keep, chains=chains, jitter=0,
        coordinates="plain",
    )  # fmt: skip
    problem = bp.paper.inverse_reaction_1d().problem
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run" if disk else None
        result = bp.infer(problem, method, seed=0, cores=cores, progress=False, out=out)
    gradients = chains * draws * num_leapfrog
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": result.seconds["draws"], "gradients": gradients, "peak_mib": peak}


def study_sampling(quick: bool) -> list[dict]:
    """Each row in a separate process."""
    cores = len(os.sched_getaffinity(0))
    draws, many = (50, (100, 400)) if quick else (400, (1000, 4000, 16000))
    settings = [dict(chains=c, cores=cores, draws=draws, keep=None, num_leapfrog=50) for c in (1, 2, 4, 8)]
    settings += [dict(chains=4, cores=c, draws=draws, keep=None, num_leapfrog=50) for c in range(1, cores + 1)]
    for n in many:
        plain = dict(chains=2, cores=cores, draws=n, keep=None, num_leapfrog=2)
        settings += [plain, plain | dict(keep=100), plain | dict(disk=True)]
    rows = []
    for setting in settings:
        command = [sys.executable, __file__, "--sample", json.dumps(setting)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(setting | json.loads(done.stdout))
        print(f"sampling {setting}: {rows[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    return rows


def kept(row: dict) -> str:
    return "all, on disk" if row.get("disk") else str(row["keep"] or "all")


def show(found: dict) -> None:
    for name, part in found["gradients"].items():
        print(f"\n| {name} | " + " | ".join(map(str, part["sizes"])) + " | slope |")
        print("|---" * (len(part["sizes"]) + 2) + "|")
        print("| µs | " + " | ".join(f"{v:.1f}" for v in part["microseconds"]) + f" | {part['slope']:.2f} |")
    print("\n| chains | cores | draws | keep | seconds | gradients per second | peak MiB |\n|" + "---|" * 7)
    for r in found["sampling"]:
        row = [r["chains"], r["cores"], r["draws"], kept(r), f"{r['seconds']:.1f}"]
        row += [f"{r['gradients'] / r['seconds']:,.0f}", f"{r['peak_mib']:.0f}"]
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test with few sizes")
    parser.add_argument("--results", type=Path, help="add the numbers to this file")
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--gradients", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sample:
        print(json.dumps(sample(**given.sample)))
    elif given.gradients:
        print(json.dumps(study_gradients(given.quick)))
    else:
        command = [sys.executable, __file__, "--cores", "1", "--gradients", *(["--quick"] if given.quick else [])]
        gradients = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        found = {"gradients": gradients, "sampling": study_sampling(given.quick)}
        show(found)
        if given.results:
            results.merge(given.results, scaling=found)
