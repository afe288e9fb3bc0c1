"""Jitter of the step size on the 1D inverse problem: effective sample size for the same number of gradients.

    python benchmarks/steps.py [--noise 0.1 0.01] [--jitter 0 0.2 0.4] [--seeds 5]

Each seed is a different data set. The table has the smallest ESS of k and u at 11 points per 100,000 gradients after
warm-up, the same for f, and the mean acceptance, with 600 draws of four chains and otherwise default settings.
"""

import argparse

import numpy as np

import bpinn as bp
from bpinn.convergence import ess_of
from bpinn.monitor import Monitor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", nargs="+", type=float, default=[0.1, 0.01])
    parser.add_argument("--jitter", nargs="+", type=float, default=[0.0, 0.2, 0.4])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print("| noise | step jitter | ESS of k and u, by data set | median | least | ESS of f, median | accepted |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for noise in given.noise:
        for jitter in given.jitter:
            rows = []
            for seed in range(given.seeds):
                problem = bp.paper.inverse_reaction_1d(noise=noise, seed=seed).problem
                equations = Monitor(problem).is_secondary
                result = bp.infer(
                    problem, bp.HMC(step_jitter=jitter, num_draws=600, coordinates="plain"), seed=seed, progress=False
                )
                ess = 1e5 * ess_of(result.functionals) / result.stats["gradients"].sum()
                rows.append((ess[~equations].min(), ess[equations].min(), result.stats["acceptance"].mean()))
            read, f, accepted = np.array(rows).T
            print(
                f"| {noise} | {jitter} | {' '.join(f'{e:.0f}' for e in read)} | {np.median(read):.0f} "
                f"| {read.min():.0f} | {np.median(f):.0f} | {accepted.mean():.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
