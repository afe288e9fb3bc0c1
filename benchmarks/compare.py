"""bpinn and other libraries on one posterior: the paper's 1D inverse problem at noise 0.1.

    python benchmarks/compare.py [--repeats 5] [--quick] [--resume] [--only bpinn tfp_xla ...]

Each peer is one script in `benchmarks/peers`, run in its own environment, which is created first. The setups are:

- one: one process with one chain and the whole machine, as a user would start it;
- all: one process per core, each pinned to its core, with the draws combined;
- trust: from a cold start at draws from the prior until R-hat < 1.01 and ESS > 400 for k and u at 11 points, with four
  chains; peers try 500 + 1000 transitions, then twice as many, and so on.

In the first two, peers start at draws from the posterior (from a bpinn run), so that we compare how fast they sample it
and not how long they are lost: from the prior, some chains never find it.

Runs are interleaved: every repeat goes through all of them. Results are written after each run, so --resume continues
an interrupted comparison. R-hat, ESS and the check of the log density are computed here.
"""

import argparse
import ast
import datetime
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import results
from results import HERE

import bpinn as bp
from bpinn.convergence import ess_of, rhat_of

ENVS, WORK = HERE / ".envs", HERE / "work"
MOST_DOUBLINGS = 5
REPEATS_OF_ONE = 2
WANTED_RHAT, WANTED_ESS = 1.01, 400
# Do not reuse compiled programs of earlier runs (jNO stores them), so that every start is a cold one.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "JAX_ENABLE_COMPILATION_CACHE": "false"}


@dataclass(frozen=True)
class Peer:
    """How to run a script: ``warmup`` and ``draws`` transitions per chain (0: its own), fewer for a smoke test."""

    name: str
    label: str
    env: str
    script: str
    variant: str = ""
    warmup: int = 1000
    draws: int = 2000
    quick: tuple[int, int] = (50, 100)
    setups: tuple[str, ...] = ("one", "all")

    def sizes(self, quick: bool) -> tuple[int, int]:
        return self.quick if quick else (self.warmup, self.draws)


PEERS = [
    Peer("bpinn", "bpinn, default", "bpinn", "bpinn_hmc.py", "default", 0, 0, setups=("one", "trust")),
    Peer("bpinn_hmc50", "bpinn, 50 steps", "bpinn", "bpinn_hmc.py", "hmc50"),
    Peer("tfp_xla", "TFP HMC, XLA", "tfp", "tfp_hmc.py", "xla", setups=("one", "all", "trust")),
    Peer("tfp_graph", "TFP HMC, graph", "tfp", "tfp_hmc.py", "graph", quick=(5, 10)),
    Peer("numpyro_hmc", "NumPyro HMC", "numpyro", "numpyro_mcmc.py", "hmc", setups=("one", "all", "trust")),
    Peer("numpyro_nuts", "NumPyro NUTS", "numpyro", "numpyro_mcmc.py", "nuts", 250, 250, (10, 10)),
    Peer("blackjax_hmc", "BlackJAX HMC", "blackjax", "blackjax_hmc.py", setups=("one", "all", "trust")),
    Peer("jno", "jNO HMC", "jno", "jno_hmc.py"),
    Peer("torch_hmc", "PyTorch HMC", "torch", "torch_hmc.py", "", 20, 300, (5, 10)),
    Peer("deepxde_pinn", "DeepXDE PINN", "deepxde", "deepxde_pinn.py", "", 0, 20000, (0, 500), ("one",)),
]
NAMES = [peer.name for peer in PEERS]


# --- environments and data ---


def make_environment(name: str) -> dict[str, Any]:
    """Create a virtual environment with a peer's requirements; return its versions, or the error."""
    python = interpreter(name)
    if name != "bpinn":
        wanted = HERE / "peers" / f"{name}.txt"
        stamp, mark = ENVS / name / ".ready", hashlib.sha256(wanted.read_bytes()).hexdigest()
        if not (stamp.exists() and stamp.read_text() == mark):
            print(f"== Creating the environment of {name} (a few minutes the first time)", flush=True)
            steps = [
                [sys.executable, "-m", "venv", ENVS / name],
                [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted],
            ]
            for step in steps:
                done = subprocess.run(step, capture_output=True, text=True)
                if done.returncode:
                    last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
                    print(f"   could not be created: {last}", flush=True)
                    return {"error": f"could not be installed: {last[:200]}"}
            stamp.write_text(mark)
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    versions = {p["name"].lower(): p["version"] for p in json.loads(listed.stdout)}
    keep = ("bpinn", "jax", "jaxlib", "numpy", "blackjax", "numpyro", "tensorflow", "tensorflow-probability", "torch")
    keep += ("deepxde", "jax-numerical-operators", "optax", "flax")
    return {"versions": {p: versions[p] for p in keep if p in versions}}


def interpreter(env: str) -> str:
    return sys.executable if env == "bpinn" else str(ENVS / env / "bin" / "python")


def write_data(path: Path) -> np.ndarray:
    """Write the readings in float32 and three flat vectors at which to compare log densities; return ours there."""
    problem = bp.paper.inverse_reaction_1d(noise=0.1, seed=0).problem
    groups = {r.name: r for r in problem.readings}
    f, inside, ends = groups["f"], groups["u"], groups["b"]
    posterior = bp.Posterior(problem)
    reference = bp.infer(problem, seed=99, progress=False)
    z = np.asarray(0.3 * posterior.sample_prior(jax.random.key(1), 3))
    arrays = {
        "x_f": f.at["x"],
        "f": f.values,
        "noise_f": np.broadcast_to(f.noise, f.values.shape),
        "x_u": np.concatenate([inside.at["x"], ends.at["x"]]),
        "u": np.concatenate([inside.values, ends.values]),
        "noise_u": np.concatenate([np.broadcast_to(g.noise, g.values.shape) for g in (inside, ends)]),
        "x_test": np.linspace(-0.7, 0.7, 11),
        "z": z,
        "starts": reference.z[:, [-1, -60, -120]].reshape(-1, posterior.dim),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{name: np.asarray(a, np.float32) for name, a in arrays.items()})
    return np.array([float(posterior.log_density(row)) for row in z])


def lines_of(script: Path) -> int:
    """Lines of user code, without blank lines, comments, docstrings and lines of the report."""
    text = script.read_text()
    documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
    docstrings = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, documented) and ast.get_docstring(node)
        for number in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and "report" not in line.lower() and i not in docstrings
        for i, line in enumerate(text.splitlines(), 1)
    )


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
    }


# --- one run ---


class Failed(Exception):
    pass


def launch(peer: Peer, processes: Sequence[dict[str, Any]], timeout: float) -> tuple[list[dict], float, np.ndarray]:
    """Run processes in parallel; return what they print, the seconds measured here, and the draws of all of them."""
    started = time.perf_counter()
    running, whole = [], os.sched_getaffinity(0)
    folder = WORK / "draws"
    folder.mkdir(parents=True, exist_ok=True)
    for number, settings in enumerate(processes):
        out, log = folder / f"{peer.name}-{number}.npz", folder / f"{peer.name}-{number}.log"
        out.unlink(missing_ok=True)
        core = settings.pop("core", None)
        options = {"data": WORK / "data.npz", "out": out, **settings}
        if peer.variant:
            options["variant"] = peer.variant
        command = [interpreter(peer.env), str(HERE / "peers" / peer.script)]
        command += [str(part) for name, value in options.items() for part in (f"--{name}", value)]
        if core is not None:  # a child inherits its parent's cores
            os.sched_setaffinity(0, {core})
        with log.open("w") as file:
            child = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                cwd=folder,
                env=os.environ | QUIET,
            )
        os.sched_setaffinity(0, whole)
        running.append((child, out, log))
    try:
        said = [child.communicate(timeout=timeout)[0] for child, *_ in running]
    except BaseException as error:
        for child, *_ in running:
            child.kill()
            child.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"took longer than {timeout:.0f} s") from None
        raise
    seconds = time.perf_counter() - started
    lines, draws = [], []
    for text, (child, out, log) in zip(said, running, strict=True):
        found = [line for line in text.splitlines() if line.startswith('{"seconds"')]
        if child.returncode or not found:
            last = (log.read_text().strip().splitlines() or ["no message"])[-1]
            raise Failed(f"failed ({child.returncode}): {last[:200]}")
        lines.append(json.loads(found[-1]))
        if out.exists():
            with np.load(out) as file:
                draws.append(file["watched"])
    shortest = min((len(d[0]) for d in draws), default=0)
    return lines, seconds, np.concatenate([d[:, :shortest] for d in draws]) if draws else np.zeros((0, 0, 12))


def row_of(lines: list[dict], outside: float, draws: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
    """The figures of one run."""
    phases = {name: max(line["phases"][name] for line in lines) for name in lines[0]["phases"]}
    gradients = {name: sum(line["gradients"].get(name, 0.0) for line in lines) for name in ("warmup", "sampling")}
    seconds = max(line["seconds"] for line in lines)
    row: dict[str, Any] = {
        "seconds": seconds,
        "seconds_outside": outside,
        "phases": phases,
        "gradients": gradients,
        "microseconds_a_gradient": 1e6 * phases["sampling"] / gradients["sampling"],
        "peak_mib": sum(line["peak_mib"] for line in lines),
        "processes": len(lines),
        "log_density_difference": None,
        "k_mean": float(np.mean([line["k_mean"] for line in lines])),
        "k_sd": None,
    }
    if lines[0]["log_density"]:
        apart = np.array([line["log_density"] for line in lines]) - ours
        row["log_density_difference"] = float(np.max(np.abs(apart / ours)))
    if draws.size:
        ess, rhat = float(ess_of(draws).min()), float(rhat_of(draws).max())
        row |= {
            "chains": len(draws),
            "draws": draws.shape[1],
            "ess": ess,
            "rhat": rhat if np.isfinite(rhat) else None,
            "ess_a_second": ess / seconds,
            "ess_a_second_after_warmup": ess / phases["sampling"],
            "k_mean": float(draws[..., 0].mean()),
            "k_sd": float(draws[..., 0].std()),
            "trustworthy": bool(rhat < WANTED_RHAT and ess > WANTED_ESS),
        }
    return row


@dataclass
class Bench:
    quick: bool
    timeout: float
    ours: np.ndarray

    def run(self, peer: Peer, setup: str, repeat: int, known: Sequence[dict]) -> dict[str, Any]:
        if setup == "trust" and peer.name != "bpinn":
            return self.trust(peer, repeat, known)
        warmup, draws = peer.sizes(self.quick)
        cores = sorted(os.sched_getaffinity(0)) if setup == "all" else [None]
        processes = [
            {"seed": 10 * repeat + i, "warmup": warmup, "draws": draws, "start": "posterior"}
            | ({} if core is None else {"core": core})
            for i, core in enumerate(cores)
        ]
        return row_of(*launch(peer, processes, self.timeout), self.ours)

    def trust(self, peer: Peer, repeat: int, known: Sequence[dict]) -> dict[str, Any]:
        """Double the transitions until four chains agree; only the last run counts."""
        cores = sorted(os.sched_getaffinity(0))[:4]
        share = [4 // len(cores) + (i < 4 % len(cores)) for i in range(len(cores))]
        base = peer.quick if self.quick else (500, 1000)
        met = [row["doublings"] for row in known if row.get("trustworthy")]
        first, tried = max(min(met, default=0) - 1, 0), 0.0
        for doublings in range(first, 1 if self.quick else MOST_DOUBLINGS + 1):
            warmup, draws = (size * 2**doublings for size in base)
            processes = [
                {"seed": 10 * repeat + i, "warmup": warmup, "draws": draws, "chains": chains, "core": core}
                for i, (core, chains) in enumerate(zip(cores, share, strict=True))
            ]
            row = row_of(*launch(peer, processes, self.timeout), self.ours)
            tried += row["seconds"]
            row |= {"doublings": doublings, "warmup": warmup, "seconds_of_all_tries": tried}
            if row["trustworthy"]:
                break
        return row


def tasks_of(names: Sequence[str], repeats: int) -> list[tuple[str, Peer, str, int]]:
    """Every repeat of every setup; peers in setup "one" run less often, because no ratio depends on them."""
    return [
        (f"{setup}/{peer.name}/{repeat}", peer, setup, repeat)
        for repeat in range(repeats)
        for setup in ("one", "all", "trust")
        for peer in PEERS
        if peer.name in names and setup in peer.setups
        if setup != "one" or peer.env == "bpinn" or repeat < REPEATS_OF_ONE
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=None, help="5 by default, 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="a smoke test: few transitions, numbers mean nothing")
    parser.add_argument("--resume", action="store_true", help="keep existing results and run the rest")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--setups", nargs="+", choices=("one", "all", "trust"), default=("one", "all", "trust"))
    parser.add_argument("--timeout", type=float, default=3600.0, help="time limit of one run, in seconds")
    parser.add_argument("--results", type=Path, default=None, help="results.json, or work/quick.json with --quick")
    given = parser.parse_args()
    path = given.results or (WORK / "quick.json" if given.quick else results.DEFAULT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    found = results.load(path) if given.resume else {}
    found.setdefault("date", datetime.date.today().isoformat())
    found.setdefault("machine", machine())
    found |= {"quick": given.quick}
    found.setdefault("environments", {})
    found.setdefault("runs", {})
    bench = Bench(given.quick, given.timeout, write_data(WORK / "data.npz"))
    chosen = [peer for peer in PEERS if peer.name in given.only]
    for env in dict.fromkeys(peer.env for peer in chosen):
        found["environments"][env] = make_environment(env)
    found["peers"] = {
        peer.name: {
            "label": peer.label,
            "environment": peer.env,
            "lines": lines_of(HERE / "peers" / peer.script),
            "sizes": peer.sizes(given.quick),
        }
        for peer in PEERS
    }
    results.save(path, found)
    runs = found["runs"]
    tasks = [
        task for task in tasks_of(given.only, given.repeats or (1 if given.quick else 5)) if task[2] in given.setups
    ]
    tasks = [task for task in tasks if "error" not in found["environments"][task[1].env]]
    todo = [task for task in tasks if "error" in runs.get(task[0], {"error": ""})]
    print(
        f"== {len(todo)} runs to do, {len(tasks) - len(todo)} already done; results in {os.path.relpath(path)}",
        flush=True,
    )
    began = time.perf_counter()
    for number, (key, peer, setup, repeat) in enumerate(todo, 1):
        known = [row for name, row in runs.items() if name.startswith(f"{setup}/{peer.name}/")]
        try:
            runs[key] = bench.run(peer, setup, repeat, known)
            said = f"{runs[key]['seconds']:.1f} s, {runs[key]['microseconds_a_gradient']:.0f} µs per gradient"
            if "ess" in runs[key]:
                said += f", ESS {runs[key]['ess']:.0f}, R-hat {runs[key]['rhat'] or np.inf:.3f}"
        except Failed as error:
            runs[key] = {"error": str(error)}
            said = str(error)
        except KeyboardInterrupt:
            print("\nstopped; finished runs are kept, continue with --resume", flush=True)
            sys.exit(130)
        results.save(path, found)
        left = (time.perf_counter() - began) / number * (len(todo) - number)
        print(f"[{number}/{len(todo)}] {key}: {said}; about {left / 60:.0f} min left", flush=True)


if __name__ == "__main__":
    main()
