"""Measurements for docs/methods.md: SMC whose particles are only moved, and without waste.

    python benchmarks/smc_moves.py [--populations 64] [--nonlinear]

On the problem with two solutions of verification/two_solutions.py, whose probabilities quadrature knows, and with
``--nonlinear`` on the paper's nonlinear problem at noise 0.01. The last two columns compare settings at equal cost: how
many gradients make the sd of the probability 0.03, and that of the log evidence 0.1, if many populations share them.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import bpinn as bp
from bpinn.populations import log_mean, mean_and_error, weights_of

sys.path.insert(0, str(Path(__file__).parent.parent / "verification"))
from two_solutions import MIDDLE, problem, quadrature

SETTINGS = (
    {"waste_free": False, "particles": 200, "num_moves": 3, "share": 0.8},
    {"waste_free": False, "particles": 200, "num_moves": 3, "share": 0.5},
    {"particles": 600, "num_moves": 3, "share": 0.8},
    {"particles": 600, "num_moves": 3, "share": 0.5},
    {"particles": 600, "num_moves": 6, "share": 0.8},
    {"particles": 600, "num_moves": 6, "share": 0.5},
    {"particles": 600, "num_moves": 12, "share": 0.5},
)
APART = -0.42, -1.0  # where solutions of the nonlinear problem differ, and what separates the first from the others


def row(two: bp.Problem, populations: int, at: float, level: float, settings: dict) -> str:
    method, began = bp.SMC(chains=populations, most_chains=1, **settings), time.process_time()
    result = bp.infer(two, method, seed=0, progress=False)
    seconds = time.process_time() - began
    logs = result.stats["log_evidence"][:, 0].astype(float)
    above = [np.mean(result.only(i).predict("u", {"x": [at]}).draws > level) for i in range(populations)]
    share, error = mean_and_error(np.array(above), weights_of(logs))
    gradients = np.nanmax(result.history["gradients"], axis=1).mean()
    relative = np.exp(logs - log_mean(logs)).std(ddof=1)
    one = error * np.sqrt(populations)
    return (
        f"| {'' if method.waste_free else 'moved only, '}{method.particles}, {method.num_moves}, {method.share:g} "
        f"| {len(result.history['step'])} | {share:.3f} ± {error:.3f} | {log_mean(logs):.2f} ± "
        f"{relative / np.sqrt(populations):.2f} | {gradients / 1e3:.0f} | {gradients * (one / 0.03) ** 2 / 1e6:.2f} "
        f"| {gradients * (relative / 0.1) ** 2 / 1e6:.2f} | {seconds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--populations", type=int, default=64)
    parser.add_argument("--nonlinear", action="store_true")
    given = parser.parse_args()
    problems = {f"two solutions, noise {noise}": (problem(noise), MIDDLE, 0.0) for noise in (0.1, 0.03)}
    if given.nonlinear:
        problems = {"nonlinear-1d, noise 0.01": (bp.paper.nonlinear_1d(noise=0.01, seed=0).problem, *APART)}
    for name, (two, at, level) in problems.items():
        exact = "" if given.nonlinear else "; exact {:.3f} and {:.2f}".format(*quadrature(two))
        print(f"\n{name}{exact}\n")
        print(
            "| particles, moves, share | steps | probability | log evidence | thousand gradients of a population ",
            end="",
        )
        print("| million for 0.03 | million for 0.1 | processor seconds |\n|---|---|---|---|---|---|---|---|")
        for settings in SETTINGS:
            print(row(two, given.populations, at, level, settings), flush=True)


if __name__ == "__main__":
    main()
