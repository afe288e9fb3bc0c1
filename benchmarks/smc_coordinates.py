"""Measurements for docs/methods.md: SMC in plain and in whitened coordinates.

    python benchmarks/smc_coordinates.py [--particles 60]

Four populations on the 1D inverse problem at noise 0.1, and on the small network of verification/problems.py,
whose readings are all zero. Rows with equal numbers of leapfrog steps cost nearly equal numbers of gradients.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

import bpinn as bp
from bpinn.rhat_ess import rhat

sys.path.insert(0, str(Path(__file__).parent.parent / "verification"))
from problems import network

MOVED = partial(bp.SMC, waste_free=False, share=0.8, chains=4, most_chains=4)
PROBLEMS = {
    "inverse, 1D": bp.paper.inverse_reaction_1d(noise=0.1, seed=0).problem,
    "small network": network(),
}
SETTINGS = (("plain", 20, 3), ("whitened", 20, 3), ("whitened", 10, 6), ("whitened", 60, 1), ("plain", 100, 3))


def main(particles: int) -> None:
    print("| problem | coordinates | leapfrog steps | moves | k | log evidence | its sd | R-hat of k | of u | time |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, problem in PROBLEMS.items():
        for coordinates, steps, moves in SETTINGS:
            method = MOVED(coordinates=coordinates, num_leapfrog=steps, num_moves=moves, particles=particles)
            begin = time.perf_counter()
            result = bp.infer(problem, method, seed=0, progress=False)
            seconds = time.perf_counter() - begin
            k, evidence = result.draws("k"), result.stats["log_evidence"][:, 0]
            u = result.predict("u", problem.grid()).draws.reshape(*k.shape, -1)
            print(
                f"| {name} | {coordinates} | {steps} | {moves} | {k.mean():.3f} ± {k.std():.3f} "
                f"| {evidence.mean():.1f} | {evidence.std(ddof=1):.1f} | {rhat(k[..., None])[0]:.2f} "
                f"| {np.max(rhat(u)):.2f} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, default=60)
    main(parser.parse_args().particles)
