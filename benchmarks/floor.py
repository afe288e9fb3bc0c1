"""How far is one leapfrog step from the machine's limit? Ours against hand-written C (floor.c), on one core.

    python benchmarks/floor.py [--repeats 15] [--results FILE]

Both evaluate the same posterior: log density and gradient must agree to a relative 1e-4. Both, and the matrix products
and tanh alone, are timed in turn in a process with one core; the table has medians.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":  # before JAX starts
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

import jax
import numpy as np
import results
from gradient import leapfrog

import bpinn as bp

FLAGS = ["-O3", "-march=native", "-ffast-math", "-fPIC", "-c"]  # in linking, they would affect the whole process
STEP = 1e-4
PROBLEMS = {"inverse_reaction_1d": (0, 1000), "allen_cahn_2d": (1, 100)}  # the equation's number in floor.c, steps


def compile_c(folder: str) -> ctypes.CDLL:
    library, compiled = (Path(folder) / f"floor.{kind}" for kind in ("so", "o"))
    source = Path(__file__).with_name("floor.c")
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, *FLAGS, "-o", compiled, source], check=True)
    subprocess.run([compiler, "-shared", "-o", library, compiled, "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.problem_new.restype = ctypes.c_void_p
    loaded.log_density.restype = loaded.leapfrog.restype = ctypes.c_float
    return loaded


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


class Native:
    """The posterior of a problem in C."""

    def __init__(self, library: ctypes.CDLL, problem: bp.Problem, equation: int):
        self.library = library
        readings = sorted(problem.readings, key=lambda r: r.name != "f")  # the equation's first
        points, values, noise = (
            np.ascontiguousarray(np.concatenate(rows), np.float32)
            for rows in zip(
                *(
                    (
                        np.stack([r.at[c] for c in problem.domain], axis=1),
                        r.values,
                        np.broadcast_to(r.noise, r.values.shape),
                    )
                    for r in readings
                ),
                strict=True,
            )
        )
        hidden = np.array(problem.fields["u"].hidden, np.int32)
        count = len(readings[0].values)
        self.handle = ctypes.c_void_p(
            library.problem_new(
                len(problem.domain), len(hidden), pointer(hidden), equation, count, len(values) - count,
                pointer(points), pointer(values), pointer(noise),
            )
        )  # fmt: skip

    def log_density(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        slope = np.empty_like(z)
        return self.library.log_density(self.handle, pointer(z), pointer(slope)), slope

    def leapfrog(self, z: np.ndarray, steps: int) -> np.ndarray:
        """The position after ``steps`` steps from ``z`` with a momentum of ones."""
        slope, z, p = self.log_density(z)[1], z.copy(), np.ones_like(z)
        self.library.leapfrog(self.handle, pointer(z), pointer(p), pointer(slope), ctypes.c_float(STEP), steps)
        return z

    def products(self, z: np.ndarray, steps: int) -> None:
        self.library.products(self.handle, pointer(z), pointer(np.zeros_like(z)), steps)


def compare(name: str, library: ctypes.CDLL, repeats: int) -> dict:
    """Microseconds per step, and the difference of the two gradients."""
    equation, steps = PROBLEMS[name]
    problem = getattr(bp.paper, name)().problem
    posterior, native = bp.Posterior(problem, native=True), Native(library, problem, equation)
    z = 0.3 * posterior.sample_prior(jax.random.key(0), 1)[0]
    flat = np.asarray(z, np.float32)
    value, slope = jax.value_and_grad(posterior.log_density)(z)
    found, found_slope = native.log_density(flat)
    apart = {
        "log_density": abs(found - float(value)) / abs(float(value)),
        "gradient": float(np.max(np.abs(found_slope - slope)) / np.max(np.abs(slope))),
    }
    if max(apart.values()) > 1e-4:
        raise SystemExit(f"floor: {name}: C and bpinn disagree: {apart}")
    ours = leapfrog(posterior.log_density, steps)
    runs = {
        "c": lambda: native.leapfrog(flat, steps),
        "products": lambda: native.products(flat, steps),
        "ours": lambda: jax.block_until_ready(ours(z)),
    }
    times: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(repeats + 1):
        for key, run in runs.items():
            started = time.perf_counter()
            run()
            times[key].append(1e6 * (time.perf_counter() - started) / steps)
    medians = {key: float(np.median(t[1:])) for key, t in times.items()}  # the first compiles
    return {"problem": name, "microseconds": medians, "relative_difference": apart}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--results", type=Path, help="add the numbers to this file")
    given = parser.parse_args()
    columns = ["problem", "C, µs", "products and tanh in C, µs", "ours, µs", "ours / C", "ours / products"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = compile_c(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"floor: cannot compile floor.c ({error}); install gcc, or set CC")
        for name in PROBLEMS:
            rows.append(compare(name, library, given.repeats))
            c, products, ours = (rows[-1]["microseconds"][key] for key in ("c", "products", "ours"))
            print(f"| {name} | {c:.1f} | {products:.1f} | {ours:.1f} | {ours / c:.2f} | {ours / products:.2f} |")
    if given.results:
        results.merge(given.results, floor=rows)
