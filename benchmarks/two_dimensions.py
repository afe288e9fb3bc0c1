"""The paper's two problems in two dimensions, with default settings and four chains from independent starts.

    python benchmarks/two_dimensions.py [--problems inverse_reaction_2d allen_cahn_2d]

The target is R-hat < 1.01 and ESS > 400 for u at 25 points and k, among the chains on the true solution. The runs are
those of `bpinn reproduce inverse-2d allen-cahn-2d --preset paper`, read from its result.json. The last column is the
estimated time with nested jax.grad: the seconds of sampling times the ratio of the costs of the two gradients, with one
chain per core.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import results
from gradient import microseconds, nested_log_density, phase, reaction_2d

import bpinn as bp
from bpinn.paper.reproduction import RESULT

EXPERIMENTS = {"inverse_reaction_2d": "inverse-2d", "allen_cahn_2d": "allen-cahn-2d"}
EQUATIONS = {"inverse_reaction_2d": reaction_2d, "allen_cahn_2d": phase}
COLUMNS = (
    "problem", "noise", "chains", "leapfrog steps", "draws", "R-hat", "ESS", "R-hat of f", "error of u", "k",
    "verdict", "seconds", "with nested jax.grad",
)  # fmt: skip


def nested_ratio(name: str) -> float:
    """Cost of one gradient with nested jax.grad, relative to ours."""
    problem = getattr(bp.paper, name)(noise=0.1, seed=0).problem
    costs = microseconds(problem, nested_log_density(problem, EQUATIONS[name]), 100, 9)
    ours, theirs = costs[max(costs)]
    return theirs / ours


def cases(name: str, folder: Path) -> list[dict[str, Any]]:
    """Numbers of HMC at each noise, from result.json; empty if there is no such run."""
    path = folder / EXPERIMENTS[name] / RESULT
    found = json.loads(path.read_text()) if path.exists() else {"preset": "", "cases": []}
    if found["preset"] != "paper":
        print(f"{name}: first run `bpinn reproduce {EXPERIMENTS[name]} --preset paper --out {folder}`")
        return []
    return [case for case in found["cases"] if case["label"] == "HMC" and case["seed"] == 0]


def row(name: str, case: dict[str, Any], ratio: float) -> list[str]:
    sampling = case["sampling_seconds"]
    nested = case["seconds"] + (ratio - 1) * (sampling["warm-up"] + sampling["draws"])
    k = case["unknowns"].get("k")
    cells = [
        name, case["noise"], ", ".join(map(str, case["chains_on_truth"])), f"{case['leapfrog']:.0f}", case["draws"],
        f"{case['rhat']:.4f}", f"{case['ess']:.0f}", f"{case['rhat_equations']:.3f}",
        f"{case['quantities']['u']['error']:.1%}", f"{k['mean']:.4f} ± {k['sd']:.4f}" if k else "-", case["verdict"],
        f"{case['seconds']:.0f}", f"{nested:.0f}",
    ]  # fmt: skip
    return [str(cell) for cell in cells]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=list(EQUATIONS), default=list(EQUATIONS))
    parser.add_argument("--reproduction", type=Path, default=results.HERE.parent / "docs" / "reproduction")
    parser.add_argument("--results", type=Path, help="add the numbers to this file")
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    rows = []
    for problem in given.problems:
        found = cases(problem, given.reproduction)
        ratio = nested_ratio(problem) if found else 1.0
        for case in found:
            rows.append(row(problem, case, ratio))
            print("| " + " | ".join(rows[-1]) + " |", flush=True)
    if given.results:
        results.merge(given.results, two_dimensions={"columns": COLUMNS, "rows": rows})
