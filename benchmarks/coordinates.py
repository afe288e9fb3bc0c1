"""HMC in plain and in whitened coordinates, interleaved in one run: effective draws per gradient and per second.

    python benchmarks/coordinates.py [--problem inverse_reaction_1d] [--noises 0.1 0.01] [--sets 5]

Every run has default settings, until it is good. The first run of each kind is not timed: it compiles. A table row is
the median over data sets; "whitened / plain" are medians of the ratios on the same data set.
"""

import argparse

import numpy as np

import bpinn as bp
from bpinn.convergence import ess_of

KINDS = ("plain", "whitened")
COLUMNS = (
    "k and u, per million gradients",
    "all, per million gradients",
    "k and u, per second",
    "all, per second",
    "seconds",
)


def measured(problem: bp.Problem, coordinates: str, seed: int) -> tuple[np.ndarray, str, str]:
    """Effective draws of the worst quantity per million gradients and per second after warm-up; seconds; k; verdict."""
    result = bp.infer(problem, bp.HMC(coordinates=coordinates), seed=seed, progress=False)
    ess = ess_of(np.asarray(result.functionals, float))
    equations = bp.Posterior(problem).monitor.is_secondary
    gradients = float(np.sum(result.stats["gradients"])) / 1e6
    both = np.array([ess[~equations].min(), ess.min()])
    drawing = result.seconds["draws"]
    numbers = [*(both / gradients), *(both / drawing), result.seconds["warm-up"] + drawing]
    k = result.draws("k") if "k" in problem.unknowns else np.zeros(1)
    return np.array(numbers), f"{k.mean():.4f} ± {k.std():.4f}", result.diagnose().verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="inverse_reaction_1d")
    parser.add_argument("--noises", type=float, nargs="+", default=[0.1, 0.01])
    parser.add_argument("--sets", type=int, default=5)
    given = parser.parse_args()
    print(f"| noise | coordinates | {' | '.join(COLUMNS)} | verdicts | k of the first data set |")
    print("|---" * (len(COLUMNS) + 4) + "|")
    for noise in given.noises:
        found: dict[str, list] = {kind: [] for kind in KINDS}
        for number in range(-1, given.sets):  # the first compiles
            problem = getattr(bp.paper, given.problem)(noise=noise, seed=max(number, 0)).problem
            for kind in KINDS:
                row = measured(problem, kind, seed=0)
                if number >= 0:
                    found[kind].append(row)
        numbers = {kind: np.array([row[0] for row in rows]) for kind, rows in found.items()}
        for kind, rows in found.items():
            middle = np.median(numbers[kind], axis=0)
            verdicts = ", ".join(f"{sum(r[2] == v for r in rows)} {v}" for v in dict.fromkeys(r[2] for r in rows))
            cells = [f"{x:,.0f}" for x in middle[:4]] + [f"{middle[4]:.1f}"]
            print(f"| {noise} | {kind} | {' | '.join(cells)} | {verdicts} | {rows[0][1]} |", flush=True)
        times = np.median(numbers["whitened"] / numbers["plain"], axis=0)
        print(f"| {noise} | whitened / plain | {' | '.join(f'{x:.2g}' for x in times)} | | |", flush=True)


if __name__ == "__main__":
    main()
