"""The cases of `same_draws.py`: small runs of everything that returns numbers, through public names only.

    python benchmarks/same_cases.py FOLDER [NAME ...]

writes the arrays of each case to FOLDER/NAME.npz, or the traceback of a case that fails to FOLDER/NAME.txt. Both
versions of the sources run this file, so it can use only names that both have.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from same_draws import NAMES, Arrays, differences, read
from same_problems import (
    INFERRED,
    PROBLEM_FILE,
    PROBLEMS,
    SHORT,
    X,
    heat,
    inverse,
    plain,
    poisson,
    reaction,
    robust,
    system,
)

import bpinn as bp

SCRIPT = Path(__file__).resolve()


def everything(result: bp.Result) -> Arrays:
    """All numbers of a result."""
    arrays = {"z": np.asarray(result.z), "functionals": result.functionals}
    arrays |= {f"stats/{name}": values for name, values in result.stats.items()}
    arrays |= {f"history/{name}": values for name, values in result.history.items()}
    table = result.summary().table
    arrays |= {f"summary/{column}": table[column].to_numpy() for column in table}
    return arrays | {"verdict": np.array(result.diagnose().verdict)}


def infer(problem: bp.Problem, method: bp.Method = SHORT, **options: Any) -> bp.Result:
    return bp.infer(problem, method, **{"seed": 3, "chains": 2, "progress": False, **options})


def inferred(name: str) -> Arrays:
    problem, method = INFERRED[name]
    return everything(infer(PROBLEMS[problem](), method))


def density(name: str) -> Arrays:
    """Log densities and gradients at draws of the prior, in both precisions, and those draws."""
    arrays = {}
    for double in (False, True):
        with jax.enable_x64(double):
            posterior = bp.Posterior(PROBLEMS[name]())
            z = posterior.sample_prior(jax.random.key(0), 3)
            parts = {part: getattr(posterior, part) for part in ("log_prior", "log_likelihood", "log_density")}
            parts["gradient"] = jax.grad(posterior.log_density)
            arrays |= {f"{part}/{z.dtype}": np.stack([f(row) for row in z]) for part, f in parts.items()}
            arrays[f"z/{z.dtype}"] = np.asarray(z)
    return arrays


def double() -> Arrays:
    with jax.enable_x64(True):
        return everything(infer(inverse())) | {"vi/z": infer(robust(), INFERRED["vi-mean-field"][1]).z}


def without_native() -> Arrays:
    """In a separate process, because each process decides once whether to use the native kernel."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(SCRIPT), folder, "hmc-fixed"]
        subprocess.run(command, env=os.environ | {"BPINN_NATIVE": "0"}, check=True)
        return read(Path(folder) / "hmc-fixed.npz")


@cache
def sampled() -> bp.Result:
    return infer(robust())


def predictions() -> Arrays:
    result, at = sampled(), {"x": np.linspace(-0.7, 0.7, 11)}
    asked = {"u": ("u", {}), "u_x": ("u_x", {}), "sensors": ("f", {}), "equation": (lambda u, k: k * u**2, {}),
             "noisy": ("u", {"noise": True, "seed": 5}), "noisy-0.1": ("u_x", {"noise": 0.1})}  # fmt: skip
    arrays: Arrays = {}
    for name, (quantity, options) in asked.items():
        band = result.predict(quantity, at, **options)
        arrays |= {f"{name}/draws": band.draws, f"{name}/mean": band.mean, f"{name}/sd": band.sd}
        arrays[f"{name}/interval"] = np.stack(band.interval(0.9))
    mesh = infer(heat()).predict("flow", heat().grid(x=5, t=4))
    return arrays | {"mesh": mesh.draws, "k": result.draws("k"), "noise_u": result.draws("noise_u")}


def check() -> Arrays:
    parts = ("mean", "sd", "p", "khat", "scatter", "score")
    groups = bp.predictive.check(sampled()).groups
    return {f"{group.name}/{part}": np.asarray(getattr(group, part)) for group in groups for part in parts}


def saved() -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        path = sampled().save(Path(folder) / "result.npz")
        loaded = bp.load(path, {"reaction": reaction})
    must_be_same(everything(sampled()), everything(loaded))
    return everything(loaded) | {"predicted": loaded.predict("f", {"x": X}).draws}


def report() -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        bp.report.write(sampled(), folder)
        return tables(Path(folder))


def tables(folder: Path) -> Arrays:
    """The numbers of a report's tables; NaN for words."""

    def number(cell: str) -> float:
        try:
            return float(cell)
        except ValueError:
            return np.nan

    found = {}
    for path in sorted(folder.glob("tables/*.csv")):
        rows = list(csv.reader(path.read_text().splitlines()))[1:]
        found[f"tables/{path.stem}"] = np.array([[number(cell) for cell in row] for row in rows])
    return found


def modes(method: bp.Method, **options: Any) -> Arrays:
    result = infer(PROBLEMS["two-solutions"](), method, **options)
    arrays = everything(result)
    for i, mode in enumerate(result.modes()):
        chance = [mode.share, mode.probability or np.nan, mode.error or np.nan]
        arrays |= {f"mode-{i}/z": mode.result.z, f"mode-{i}/probability": np.array(chance)}
    return arrays


def references() -> Arrays:
    problem, at = poisson(1), {"x": X}
    exact, process = bp.reference.exact(problem), bp.reference.gp(problem, "u", at, draws=2000)
    arrays = {"exact/mean": exact.mean, "exact/covariance": exact.covariance, "exact/u": exact.predict("u", at).sd}
    arrays |= {"exact/log_evidence": np.array(exact.log_evidence), "exact/sample": exact.sample(0, 5)}
    arrays |= {"gp/mean": process.mean, "gp/sd": process.sd}
    arrays["prior/u_xx"] = bp.prior.predict(heat(), "u_xx", heat().grid(x=4, t=3), draws=20).draws
    return arrays | {"prior/covariance": bp.prior.covariance(inverse(), "u", at, draws=300)}


def calibration() -> Arrays:
    arrays: Arrays = {}
    for make in (robust, system):
        simulated, truth = bp.calibration.simulate(make(), 4)
        arrays[f"{make.__name__}/truth"] = truth
        arrays |= {f"{make.__name__}/{name}": np.asarray(s.values) for name, s in simulated.sensors.items()}
    method = plain(bp.HMC(num_warmup=20, num_draws=20, num_leapfrog=3, chains=2))
    found = bp.calibration.sbc(poisson(1), method, simulations=10, draws=9, progress=False)
    arrays |= {"truths": found.truths, "draws": found.draws, "ranks": found.ranks}
    return arrays | {"verdicts": np.array(found.verdicts)}


# --- run folders ---

LONG = plain(bp.HMC(num_warmup=40, num_draws=300, num_leapfrog=6))


def stopped() -> Arrays:
    """A run stopped during warm-up and resumed, and one stopped during its draws and resumed."""
    uninterrupted, arrays = everything(infer(inverse(), LONG)), {}
    for where, steps in (("warm-up", 10), ("draws", 250)):

        def stop(progress: Any, steps: int = steps) -> None:
            if sum(getattr(chain, "done", 0) for chain in getattr(progress, "chains", ())) > steps:
                raise KeyboardInterrupt

        with tempfile.TemporaryDirectory() as folder:
            try:
                was_stopped = infer(inverse(), LONG, out=Path(folder) / "run", progress=stop).interrupted
            except KeyboardInterrupt:  # there are no draws yet
                was_stopped = True
            must_be(was_stopped, f"the run was not stopped in {where}")
            resumed = everything(infer(inverse(), LONG, out=Path(folder) / "run"))
        must_be_same(uninterrupted, resumed)
        arrays |= {f"{where}/{name}": values for name, values in resumed.items()}
    return arrays


def draw_slowly(folder: str) -> None:
    """A run to be killed, with a pause after each block to leave time for that."""
    infer(inverse(), LONG, out=folder, progress=lambda _: time.sleep(0.1))


def killed() -> Arrays:
    """A run that is killed when each chain has some blocks, and resumed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        command = [sys.executable, "-c", f"import same_cases; same_cases.draw_slowly({str(folder)!r})"]
        process = subprocess.Popen(command, cwd=SCRIPT.parent)
        while process.poll() is None and len([*folder.glob("stage-*/chain-1/0*.npz")]) < 4:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        must_be(not (folder / "result.npz").exists(), "the run ended before it was killed")
        resumed = everything(infer(inverse(), LONG, out=folder))
        must_be_same(resumed, everything(bp.load(folder)))
    must_be_same(everything(infer(inverse(), LONG)), resumed)
    return resumed


def program() -> Arrays:
    """A problem file through the program, with its report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "problem.toml").write_text(PROBLEM_FILE)
        rows = [f"{x},{np.sin(6 * x) ** 3},{0.1 + x**2}" for x in X]
        (folder / "probes.csv").write_text("\n".join(["x,value,noise", *rows]))
        command = [sys.executable, "-m", "bpinn", "run", "problem.toml", "--out", "run", "--quiet"]
        code = subprocess.run(command, cwd=folder).returncode
        return everything(bp.load(folder / "run")) | tables(folder / "run") | {"exit code": np.array(code)}


# --- running ---


def must_be(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)


def must_be_same(one: Arrays, other: Arrays) -> None:
    found = differences(one, other)
    must_be(not found, "; ".join(found))


CASES: dict[str, Callable[[], Arrays]] = {
    **{f"density-{name}": partial(density, name) for name in PROBLEMS},
    **{name: partial(inferred, name) for name in INFERRED},
    "double-precision": double,
    "without-native-kernel": without_native,
    "predictions": predictions,
    "check-of-readings": check,
    "save-and-load": saved,
    "report-tables": report,
    "modes-smc": partial(modes, plain(bp.SMC(particles=40, num_moves=1, num_leapfrog=10))),
    "modes-hmc": partial(modes, SHORT, chains=4),
    "references-and-prior": references,
    "calibration": calibration,
    "stopped-and-resumed": stopped,
    "killed-and-resumed": killed,
    "program": program,
}


def write(folder: Path, name: str) -> None:
    """Run a case; its file appears only when it is complete."""
    unfinished = folder / f"{name}.part"
    try:
        arrays, ending = CASES[name](), "npz"
        with unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except (Exception, KeyboardInterrupt):
        unfinished.write_text(traceback.format_exc())
        ending = "txt"
    unfinished.rename(folder / f"{name}.{ending}")


def main(folder: str, *only: str) -> None:
    unknown = [name for name in only if name not in CASES]
    if unknown:
        sys.exit(f"there is no case {unknown[0]}; the cases are {', '.join(CASES)}")
    expected = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
    must_be(Path(bp.__file__).is_relative_to(Path(expected).resolve()), f"bpinn came from {bp.__file__}")
    names = list(only or CASES)
    (Path(folder) / f"{NAMES}.part").write_text(json.dumps(names))
    (Path(folder) / f"{NAMES}.part").rename(Path(folder) / NAMES)
    for name in names:
        write(Path(folder), name)


if __name__ == "__main__":
    main(*sys.argv[1:])
