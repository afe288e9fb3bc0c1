"""How much the start of a chain matters: prior draws, the mode, or annealing, on every problem of the paper.

    python benchmarks/starts.py [--problems allen_cahn_2d ...] [--inits anneal map prior]

For each start: the relative L2 error of u in each chain, the share of the domain within two posterior sd
of the truth, the log likelihood of each chain's last draw, the mean log density, and the worst R-hat of u. A lost
chain has a log likelihood far below the others'; one at the mode has a log density far above the bulk's.
"""

import argparse
import time

import jax
import numpy as np

import bpinn as bp
from bpinn.convergence import rhat_of

PROBLEMS = ("regression", "poisson_1d", "nonlinear_1d", "inverse_reaction_1d", "inverse_reaction_2d", "allen_cahn_2d")


def run(name: str, noise: float, init: str, draws: int) -> str:
    paper = getattr(bp.paper, name)(noise=noise, seed=0)
    started = time.perf_counter()
    method = bp.HMC(init=init, num_leapfrog=100, num_warmup=300, num_draws=draws, coordinates="plain")
    result = bp.infer(paper.problem, method, seed=0, progress=False)
    seconds = time.perf_counter() - started
    grid = paper.problem.grid()
    band, truth = result.predict("u", grid), paper.truth.functions["u"](**grid)
    axes = tuple(range(1, truth.ndim + 1))
    by_chain = band.draws.mean(axis=1)
    errors = np.sqrt(np.sum((by_chain - truth) ** 2, axis=axes) / np.sum(truth**2))
    covered = np.mean(np.abs(band.mean - truth) < 2 * band.sd)
    posterior = result.posterior
    likelihood = jax.jit(jax.vmap(posterior.log_likelihood))(result.z[:, -1])
    u = result.functionals[..., : len(result.functional_names)]
    fields = [i for i, n in enumerate(result.functional_names) if n.startswith("u at")]
    return (
        f"| {name} | {noise} | {init} | {' '.join(f'{e:.3f}' for e in errors)} | {covered:.0%} "
        f"| {' '.join(f'{v:.0f}' for v in likelihood)} | {result.stats['log_density'].mean():.0f} "
        f"| {rhat_of(u[..., fields]).max():.2f} | {seconds:.0f} |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS)
    parser.add_argument("--inits", nargs="+", default=["anneal", "map", "prior"])
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    columns = ["problem", "noise", "start", "error of u by chain", "within 2 sd", "log likelihood by chain"]
    columns += ["log density", "R-hat of u", "s"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * 9)
    for name in given.problems:
        for noise in (0.1, 0.01):
            for init in given.inits:
                print(run(name, noise, init, given.draws), flush=True)
