"""How long should a trajectory be? ESS for the same number of gradients, on the 1D inverse problem.

    python benchmarks/trajectories.py [--gradients 100000]

For each length, with and without jitter: the smallest ESS over k and u at 11 points, that of k alone, and that of the
equation at its sensors. There are four chains with this number of gradients each, after a warm-up of half as many.
"""

import argparse

import numpy as np

import bpinn as bp
from bpinn.convergence import ess_of, rhat_of


def run(noise: float, num_leapfrog: int, jitter: float, gradients: int) -> str:
    problem = bp.paper.inverse_reaction_1d(noise=noise, seed=0).problem
    draws = gradients // num_leapfrog
    method = bp.HMC(
        num_leapfrog=num_leapfrog, jitter=jitter, num_warmup=max(draws // 2, 100), num_draws=draws, coordinates="plain"
    )
    result = bp.infer(problem, method, seed=0, progress=False)
    ess = ess_of(result.functionals)
    names = result.functional_names
    u, f, k = (np.array([n.startswith(start) for n in names]) for start in ("u at", "f at", "k"))
    row = [noise, num_leapfrog, jitter, 4 * draws, *(f"{ess[mask].min():.0f}" for mask in (u | k, k, f))]
    row.append(f"{rhat_of(result.functionals)[u | k].max():.4f}")
    return "| " + " | ".join(map(str, row)) + " |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradients", type=int, default=100_000)
    gradients = parser.parse_args().gradients
    columns = [
        "noise",
        "leapfrog steps",
        "jitter",
        "draws",
        "ESS of k and u",
        "ESS of k",
        "ESS of f",
        "R-hat of k and u",
    ]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for noise in (0.1, 0.01):
        for num_leapfrog, jitter in ((50, 0.0), (50, 0.5), (100, 0.5), (200, 0.0), (200, 0.5), (400, 0.5)):
            print(run(noise, num_leapfrog, jitter, gradients), flush=True)
