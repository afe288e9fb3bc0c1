"""The 1D inverse problem with a Karhunen-Loève field and the paper's settings: 17,000 transitions of 50 leapfrog steps.

    python benchmarks/kl.py [--repeats 3]

The paper's authors needed about 4 minutes, and report k = 0.706 ± 0.00563 and 0.694 ± 0.0582 at noise 0.01 and 0.1;
the true k is 0.7. For comparison: the same posterior by our default HMC, by full-rank VI and by a coupling flow.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import results

import bpinn as bp

SURROGATE = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
METHODS = {
    "HMC.paper()": bp.HMC.paper(),
    "HMC()": bp.HMC(),
    "VI(family='full-rank')": bp.VI(family="full-rank"),
    "Flow()": bp.Flow(),
}


COLUMNS = ["noise", "method", "k", "R-hat", "ESS", "verdict", "seconds, compiling included", "compiled"]


def _shown(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, help="add the numbers to this file")
    given = parser.parse_args()
    rows = []
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for noise in (0.01, 0.1):
        problem = bp.paper.inverse_reaction_1d(noise=noise, seed=0, surrogate=SURROGATE).problem
        for name, method in METHODS.items():
            seconds = []
            for _ in range(given.repeats):
                started = time.perf_counter()
                result = bp.infer(problem, method, seed=0, progress=False)
                seconds.append(time.perf_counter() - started)
            row = result.summary().table.loc["k"]
            rhat, ess = row.get("rhat", np.nan), row.get("ess", np.nan)
            rows.append([
                str(noise), name, f"{row['mean']:.4f} ± {row['sd']:.4f}", _shown(rhat, ".4f"), _shown(ess, ".0f"),
                result.diagnose().verdict, f"{seconds[0]:.1f}", f"{min(seconds[1:], default=seconds[0]):.1f}",
            ])  # fmt: skip
            print("| " + " | ".join(rows[-1]) + " |", flush=True)
    if given.results:
        results.merge(given.results, kl={"columns": COLUMNS, "rows": rows})


if __name__ == "__main__":
    main()
