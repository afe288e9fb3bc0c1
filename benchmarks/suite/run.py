"""Run the suite: seconds from `bp.infer` to the verdict, the verdict, and how close the posterior is to the truth.

    python -m benchmarks.suite.run [--only pendulum beam] [--seeds 3] [--method default] [--most-seconds 600]
        [--surrogate process] [--most-processor-seconds 200]

Every run is a process of its own, so the seconds include compilation, and a run that takes too long is ended and
reported as such; a limit of processor seconds does not depend on what else the machine does. ``--quick`` makes a few
draws only, to check that everything runs; its numbers mean nothing.

``--surrogate`` states every field by a Gaussian process that learns its scales ("process"), a Karhunen-Loève expansion
with a guessed length, a quarter of the domain ("expansion"), or a network of two layers of 30, the last of 150 with
several variables ("network"), instead of what the suite states.

Columns: processor seconds are those of all cores together, which depend little on what else the machine does; gradients
are those of the draws, without warm-up. R-hat and ESS are the worst among unknowns and fields, equations left out. The
error of a field is that of the posterior mean, relative to the truth, in the L2 norm over a grid; "expected" is the
root mean square that the posterior expects of it, which no method can beat on average with these readings and this
prior; "within" is the share of the grid where the truth is within 3 sd. An unknown is marked with * if its truth is
more than 3 sd away.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # started as a file
    sys.path.insert(0, str(ROOT))

import numpy as np

import bpinn as bp
from benchmarks.suite import SUITE, Case
from benchmarks.suite.case import smooth, wide
from bpinn.convergence import convergence

METHODS = {
    c.__name__.lower(): c
    for c in (
        bp.HMC, bp.Collapsed, bp.NUTS, bp.SMC, bp.VI, bp.Flow, bp.Dropout, bp.PINN, bp.LastLayer,
        bp.Laplace, bp.Ensemble, bp.SVGD, bp.EnsembleKalman,
    )
}  # fmt: skip
QUICK = {
    "hmc": dict(num_warmup=20, num_draws=20, num_leapfrog=5, chains=2),
    "collapsed": dict(num_warmup=100, num_draws=20, chains=2),
    "nuts": dict(num_warmup=20, num_draws=20, chains=2),
    "smc": dict(num_moves=1, num_leapfrog=5, most_steps=10, chains=8),
    "vi": dict(num_steps=50),
    "flow": dict(num_steps=50),
    "dropout": dict(num_steps=50),
    "pinn": dict(num_steps=50),
    "lastlayer": dict(num_steps=50),
    "laplace": dict(num_steps=3, init_steps=50),
    "ensemble": dict(num_steps=3, members=4),
    "svgd": dict(num_steps=20, init_steps=50, particles=8),
    "ensemblekalman": dict(members=20, most_steps=3),
}
DEFAULT = "default"  # what `bp.infer` chooses
COLUMNS = (
    "problem",
    "seed",
    "parameters",
    "seconds",
    "processor seconds",
    "gradients",
    "verdict",
    "R-hat",
    "ESS",
    "error of fields (expected)",
    "within",
    "unknowns",
)
POINTS = {1: 201, 2: 41, 4: 9}  # of the grid along each coordinate, by the number of coordinates


def process(problem: bp.Problem, field: str) -> bp.Field:
    stated = problem.fields[field]
    return bp.GaussianProcess(inputs=stated.inputs, positive=stated.positive)


def expansion(problem: bp.Problem, field: str) -> bp.Field:
    stated, inputs = problem.fields[field], problem.inputs(field)
    domain = {coordinate: problem.domain[coordinate] for coordinate in inputs}
    return smooth(domain, terms=12 if len(inputs) == 1 else 120, positive=stated.positive)


def network(problem: bp.Problem, field: str) -> bp.Field:
    stated = problem.fields[field]
    if len(problem.inputs(field)) > 1:
        return wide(inputs=stated.inputs, positive=stated.positive, scale_inputs=True)
    return bp.MLP(hidden=(30, 30), inputs=stated.inputs, positive=stated.positive, scale_inputs=True)


SURROGATES = {"process": process, "expansion": expansion, "network": network}


def stated_by(problem: bp.Problem, surrogate: str | None) -> bp.Problem:
    """The problem with other fields."""
    if surrogate is None:
        return problem
    fields = {name: SURROGATES[surrogate](problem, name) for name in problem.fields}
    can = surrogate != "network"  # networks are neutral on request only
    sensors = {name: replace(s, neutral=s.neutral and can) for name, s in problem.sensors.items()}
    return bp.Problem(problem.domain, fields, sensors, problem.unknowns)


def grid(problem: bp.Problem, field: str) -> dict[str, np.ndarray]:
    """A mesh over the coordinates that a field depends on."""
    names = problem.inputs(field)
    axes = [np.linspace(*problem.domain[c], POINTS[len(names)]) for c in names]
    return dict(zip(names, np.meshgrid(*axes, indexing="ij"), strict=True))


def judge_field(case: Case, result: bp.Result, name: str) -> dict[str, float]:
    at = grid(case.problem, name)
    truth, band = case.truth_fields[name](**at), result.predict(name, at)
    off = np.abs(band.mean - truth)
    return {
        "error": float(np.linalg.norm(off) / np.linalg.norm(truth)),
        "expected": float(np.linalg.norm(band.sd) / np.linalg.norm(truth)),
        "mean_sd": float(band.sd.mean()),
        "within": float(np.mean(off <= 3 * band.sd)),
    }


def judge_unknown(case: Case, result: bp.Result, name: str) -> dict[str, float | bool]:
    draws, truth = result.draws(name), case.truth_unknowns[name]
    mean, sd = float(draws.mean()), float(draws.std())
    return {"mean": mean, "sd": sd, "truth": float(truth), "within": bool(abs(mean - truth) <= 3 * sd)}


def worst(result: bp.Result) -> dict[str, Any]:
    """R-hat and ESS of the worst functional that is not an equation; nothing for methods without chains."""
    chains, draws = result.functionals.shape[:2]
    if not result.method.is_markov or chains < 2 or draws < 4:
        return {"rhat": None, "ess": None, "worst": None}
    found = convergence(result.functional_names, result.functionals).only(~result.monitor.is_secondary)
    name, rhat, ess = found.worst()
    return {"rhat": rhat, "ess": ess, "worst": name}


def run(name: str, seed: int, method: str, surrogate: str | None, quick: bool) -> dict[str, Any]:
    """One problem in this process."""
    case = SUITE[name](seed=seed)
    case = replace(case, problem=stated_by(case.problem, surrogate))
    chosen = "hmc" if quick and method == DEFAULT else method
    settings = None if chosen == DEFAULT else METHODS[chosen](**(QUICK[chosen] if quick else {}))
    start, spent = time.perf_counter(), time.process_time()
    result = bp.infer(case.problem, settings, seed=seed, progress=False)
    health = result.diagnose()
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    gradients = result.stats.get("gradients")
    return {
        "seconds": seconds,
        "processor_seconds": spent,
        "gradients": None if gradients is None else int(gradients.sum()),
        "verdict": health.verdict,
        "reasons": health.reasons,
        **worst(result),
        "shape": list(result.functionals.shape[:2]),
        "fields": {field: judge_field(case, result, field) for field in case.truth_fields},
        "unknowns": {unknown: judge_unknown(case, result, unknown) for unknown in case.truth_unknowns},
    }


def run_apart(
    name: str,
    seed: int,
    method: str,
    surrogate: str | None,
    quick: bool,
    most_seconds: float,
    most_processor_seconds: int | None = None,
) -> dict[str, Any]:
    """One problem in a process of its own, which is ended when it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "run.json"
        command = [sys.executable, __file__, "--only", name, "--first-seed", str(seed), "--method", method]
        command += ["--in-this-process", "--results", str(stored)] + (["--quick"] if quick else [])
        command += ["--surrogate", surrogate] if surrogate else []
        limit = most_processor_seconds
        command += ["--most-processor-seconds", str(limit)] if limit else []
        try:
            done = subprocess.run(command, timeout=most_seconds, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            return {"seconds": most_seconds, "verdict": "too slow"}
        if done.returncode == -signal.SIGXCPU:
            return {"processor_seconds": limit, "verdict": "too slow"}
        if done.returncode or not stored.exists():
            return {"verdict": "failed", "reasons": done.stderr.strip().splitlines()[-1:]}
        return json.loads(stored.read_text())[0]


def row(found: dict[str, Any]) -> list[str]:
    def number(key: str, style: str) -> str:
        return "-" if found.get(key) is None else format(found[key], style)

    fields, unknowns = found.get("fields", {}), found.get("unknowns", {})

    def spent(key: str, style: str) -> str:
        return ("> " if found["verdict"] == "too slow" and found.get(key) is not None else "") + number(key, style)

    return [
        found["problem"],
        str(found["seed"]),
        str(found["parameters"]),
        spent("seconds", ".0f" if found["verdict"] == "too slow" else ".1f"),
        spent("processor_seconds", ".1f"),
        number("gradients", ","),
        found["verdict"],
        number("rhat", ".3f"),
        number("ess", ".0f"),
        ", ".join(f"{name} {part['error']:.1%} ({part['expected']:.1%})" for name, part in fields.items()) or "-",
        ", ".join(f"{name} {part['within']:.0%}" for name, part in fields.items()) or "-",
        ", ".join(
            f"{name} {part['mean']:.3g} ± {part['sd']:.2g} ({part['truth']:.3g}){'' if part['within'] else ' *'}"
            for name, part in unknowns.items()
        )
        or "-",
    ]


def store(path: Path, found: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(part, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(SUITE), default=list(SUITE))
    parser.add_argument("--seeds", type=int, default=1, help="number of data sets, each inferred with its own seed")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--method", choices=[DEFAULT, *METHODS], default=DEFAULT)
    parser.add_argument("--surrogate", choices=list(SURROGATES), help="of all fields, instead of the stated ones")
    parser.add_argument("--most-seconds", type=float, default=600.0, help="of one run; it is ended after that")
    parser.add_argument(
        "--most-processor-seconds", type=int, help="of one run, all cores together; no limit by default"
    )
    parser.add_argument("--results", type=Path, help="store the numbers in this JSON file")
    parser.add_argument("--quick", action="store_true", help="a few draws only, to check that everything runs")
    parser.add_argument("--in-this-process", action="store_true", help="without a limit of time")
    given = parser.parse_args()
    if given.in_this_process and given.most_processor_seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (given.most_processor_seconds, resource.RLIM_INFINITY))
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    rows: list[dict[str, Any]] = []
    for name in given.only:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            problem = stated_by(SUITE[name](seed=seed).problem, given.surrogate)
            about = {
                "problem": name,
                "seed": seed,
                "method": given.method,
                "surrogate": given.surrogate or "stated",
                "parameters": bp.Posterior(problem).dim,
            }
            if given.in_this_process:
                found = run(name, seed, given.method, given.surrogate, given.quick)
            else:
                found = run_apart(
                    name, seed, given.method, given.surrogate, given.quick,
                    given.most_seconds, given.most_processor_seconds,
                )  # fmt: skip
            rows.append(about | found)
            print("| " + " | ".join(row(rows[-1])) + " |", flush=True)
            for reason in found.get("reasons", []) if found["verdict"] == "failed" else []:
                print(f"{name}: {reason}", file=sys.stderr)
            if given.results:
                store(given.results, rows)


if __name__ == "__main__":
    main()
