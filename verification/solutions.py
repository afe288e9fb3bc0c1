"""Probabilities of the solutions where an equation has several: the paper's nonlinear problems, by bp.SMC.

    python verification/solutions.py [--only nonlinear-1d-0.1 ...]

Writes solutions.json: the probability of each solution with its error over independent populations, its distance from
the truth, and whether bands of two standard deviations contain the truth. A stopped run resumes with the same command.
"""

import argparse
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bpinn as bp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
from results import load, save

STORED = HERE / "solutions.json"
MOVED = partial(bp.SMC, waste_free=False, chains=4, most_chains=4)
FEW = MOVED(particles=100, num_moves=3, share=0.8)
CASES = {
    "nonlinear-1d-0.01": (bp.paper.nonlinear_1d, 0.01, FEW),
    "nonlinear-1d-0.1": (bp.paper.nonlinear_1d, 0.1, FEW),
    "allen-cahn-2d-0.1": (bp.paper.allen_cahn_2d, 0.1, MOVED(particles=120, num_moves=2, num_leapfrog=80, share=0.6)),
}


def solve(name: str, folder: Path) -> dict[str, Any]:
    make, noise, method = CASES[name]
    paper = make(noise=noise, seed=0)
    at, began = paper.problem.grid(), time.perf_counter()
    result = bp.infer(paper.problem, method, seed=0, progress=False, out=folder / name)
    truth = np.asarray(paper.truth.functions["u"](**at))
    modes = []
    for mode in result.modes():
        band = mode.result.predict("u", at)
        error = np.linalg.norm(band.mean - truth) / np.linalg.norm(truth)
        within = np.mean(np.abs(band.mean - truth) <= 2 * band.sd)
        modes.append({
            "told": str(mode), "probability": mode.probability, "error": mode.error, "share": mode.share,
            "error_of_u": float(error), "within_two_sd": float(within),
        })  # fmt: skip
    health = result.diagnose()
    evidence = result.stats["log_evidence"][:, 0]
    row = {
        "method": repr(method), "modes": modes, "verdict": health.verdict, "told": str(health),
        "log_evidence": evidence.tolist(), "strengthenings": int(np.nanmax(result.history["step"])),
        "seconds": time.perf_counter() - began,
    }  # fmt: skip
    shutil.rmtree(folder / name)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--work", type=Path, default=HERE / "work" / "solutions")
    given = parser.parse_args()
    for name in given.only:
        row = solve(name, given.work)
        save(STORED, load(STORED) | {name: row})
        print(
            f"{name}, {row['seconds']:.0f} s: {row['told']}", *(m["told"] for m in row["modes"]), sep="\n  ", flush=True
        )


if __name__ == "__main__":
    main()
