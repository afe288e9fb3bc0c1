"""Measurements for docs/methods.md: `bp.LastLayer` against HMC, and its seconds against a PINN's.

    python benchmarks/last_layer.py [--only pendulum beam]

All three methods have their default settings, and seconds include compilation. The mean of an unknown is compared with
HMC's in units of HMC's sd, and its sd with HMC's; the last column is the same for the sds of the fields (the median and
the range from 5% to 95%).
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:  # started as a file
    sys.path.insert(0, str(ROOT))

import bpinn as bp
from benchmarks.suite import SUITE

PROBLEMS = {
    "inverse-1d, noise 0.1": lambda: bp.paper.inverse_reaction_1d(noise=0.1).problem,
    "inverse-1d, noise 0.01": lambda: bp.paper.inverse_reaction_1d(noise=0.01).problem,
    **{
        name: lambda name=name: SUITE[name](seed=0).problem for name in ("pendulum", "michaelis_menten", "beam", "seir")
    },
}
COLUMNS = (
    "problem | PINN, s | LastLayer, s | HMC, s | verdict | unknowns: error of the mean, in sds | sd / HMC's | fields"
)


def timed(problem: bp.Problem, method: bp.Method) -> tuple[bp.Result, float]:
    start = time.perf_counter()
    result = bp.infer(problem, method, seed=0, progress=False)
    result.diagnose()
    return result, time.perf_counter() - start


def compare(name: str) -> str:
    problem = PROBLEMS[name]()
    (_, pinn), (found, own), (exact, hmc) = (timed(problem, m) for m in (bp.PINN(), bp.LastLayer(), bp.HMC()))
    means, ratios = [], []
    for unknown in problem.unknowns:
        draws, right = found.draws(unknown), exact.draws(unknown)
        means.append(f"{unknown} {(draws.mean() - right.mean()) / right.std():+.2f}")
        ratios.append(f"{draws.std() / right.std():.2f}")
    count = len(exact.monitor.is_secondary) - sum(np.size(exact.draws(u)[0, 0]) for u in problem.unknowns)
    fields = np.flatnonzero(~exact.monitor.is_secondary[:count])
    sds = [r.functionals[..., fields].std(axis=(0, 1)) for r in (found, exact)]
    low, middle, high = np.percentile(sds[0] / sds[1], [5, 50, 95])
    verdicts = f"{found.diagnose().verdict} (HMC {exact.diagnose().verdict})"
    numbers = [f"{pinn:.1f}", f"{own:.1f}", f"{hmc:.1f}", verdicts, ", ".join(means), ", ".join(ratios)]
    return f"| {name} | {' | '.join(numbers)} | {middle:.2f} ({low:.2f} to {high:.2f}) |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    print(f"| {COLUMNS} |\n|{'---|' * (COLUMNS.count('|') + 1)}", flush=True)
    for name in parser.parse_args().only:
        print(compare(name), flush=True)
