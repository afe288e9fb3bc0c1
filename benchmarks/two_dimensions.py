"""The paper's two problems in two dimensions, with default settings and four chains from independent starts.

    python benchmarks/two_dimensions.py [--noise 0.1 0.01] [--problems inverse_reaction_2d allen_cahn_2d] [--seed 0]

Wanted are R-hat < 1.01 and ESS > 400 for u at 25 points and k, among the chains that are on the same solution. The last
column is what the run would take with nested jax.grad: the seconds of sampling times the ratio of the two gradients'
costs, a chain on every core, measured after it.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import results
from gradient import microseconds, nested_log_density, phase, reaction_2d

import bpinn as bp
from bpinn.diagnostics import branches, ess_of, rhat_of
from bpinn.posterior import equations_among

EQUATIONS = {"inverse_reaction_2d": reaction_2d, "allen_cahn_2d": phase}
COLUMNS = (
    "problem", "noise", "chains", "leapfrog steps", "draws", "R-hat", "ESS", "R-hat of f", "error of u", "k",
    "verdict", "seconds", "with nested jax.grad",
)  # fmt: skip


def run(name: str, noise: float, seed: int) -> list[list[str]]:
    """A row for each solution that chains are on."""
    paper = getattr(bp.paper, name)(noise=noise, seed=0)
    started = time.perf_counter()
    result = bp.infer(paper.problem, seed=seed)
    seconds = time.perf_counter() - started
    costs = microseconds(paper.problem, nested_log_density(paper.problem, EQUATIONS[name]), 100, 9)
    ours, theirs = costs[max(costs)]
    nested = seconds + (theirs / ours - 1) * (result.seconds["warm-up"] + result.seconds["draws"])
    equations = equations_among(paper.problem)
    at = paper.problem.grid()
    truth = paper.truth["u"](*at.values())
    rows = []
    for group in branches(result.functionals, equations):
        part = result.only(*group)
        watched, f = part.functionals[..., ~equations], part.functionals[..., equations]
        error = np.linalg.norm(part.predict("u", at).mean - truth) / np.linalg.norm(truth)
        k = "-"
        if "k" in part.names:
            k = f"{part.draws('k').mean():.4f} ± {part.draws('k').std():.4f}"
        rows.append([
            name, noise, ", ".join(map(str, group)), f"{np.median(part.stats['gradients']):.0f}", part.z.shape[1],
            f"{rhat_of(watched).max():.4f}", f"{ess_of(watched).min():.0f}", f"{rhat_of(f).max():.3f}", f"{error:.1%}",
            k, part.diagnose().verdict, f"{seconds:.0f}", f"{nested:.0f}",
        ])  # fmt: skip
    return [[str(cell) for cell in row] for row in rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=list(EQUATIONS), default=list(EQUATIONS))
    parser.add_argument("--noise", nargs="+", type=float, default=[0.1, 0.01])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="add the numbers to this file")
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for problem in given.problems:
        for noise in given.noise:
            rows = run(problem, noise, given.seed)
            for row in rows:
                print("| " + " | ".join(row) + " |", flush=True)
            if given.results:
                before = results.load(given.results).get("two_dimensions", {}).get("rows", [])
                rows = [row for row in before if row[:2] != [problem, str(noise)]] + rows
                results.merge(given.results, two_dimensions={"columns": COLUMNS, "rows": rows})
