"""The 1D inverse problem with default settings over many data sets: coverage, sd of k, convergence, seconds.

    python benchmarks/inverse_1d.py [--seeds 10] [--noise 0.1 0.01]

The paper's posterior sd of k is 0.0563 at noise 0.1 and 0.00575 at noise 0.01; the true k is 0.7.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

import bpinn as bp
from bpinn.convergence import ess_of, rhat_of

PAPER_SD = {0.1: 0.0563, 0.01: 0.00575}


@dataclass(frozen=True)
class Row:
    seed: int
    mean: float
    sd: float
    rhat: float
    ess: float
    verdict: str
    seconds: float

    @property
    def distance(self) -> float:
        """Distance of the truth from the posterior mean, in posterior sds."""
        return abs(self.mean - 0.7) / self.sd


def run(noise: float, seed: int, method: bp.HMC | None = None) -> Row:
    """One data set; R-hat and ESS are the worst over k and u at 11 points."""
    started = time.perf_counter()
    problem = bp.paper.inverse_reaction_1d(noise=noise, seed=seed).problem
    result = bp.infer(problem, method or bp.HMC(), seed=seed, progress=False)
    k = result.draws("k")
    seconds = time.perf_counter() - started
    u = result.predict("u", {"x": np.linspace(-0.7, 0.7, 11)}).draws
    watched = np.concatenate([u, k[..., None]], axis=-1)
    return Row(
        seed, float(k.mean()), float(k.std(ddof=1)), float(rhat_of(watched).max()), float(ess_of(watched).min()),
        result.diagnose().verdict, seconds,
    )  # fmt: skip


def report(noise: float, rows: list[Row]) -> str:
    lines = [f"noise {noise}", "| seed | k | sd | from the truth | R-hat | ESS | verdict | seconds |", "|" + "---|" * 8]
    lines += [
        f"| {r.seed} | {r.mean:.4f} | {r.sd:.4f} | {r.distance:.2f} sd | {r.rhat:.4f} | {r.ess:.0f} | {r.verdict} "
        f"| {r.seconds:.1f} |"
        for r in rows
    ]
    within = sum(r.distance < 2 for r in rows)
    ratio = np.mean([r.sd for r in rows]) / PAPER_SD.get(noise, np.nan)
    lines.append(
        f"truth within 2 sd in {within} of {len(rows)}; mean sd / paper's {ratio:.2f}; "
        f"worst R-hat {max(r.rhat for r in rows):.4f}; smallest ESS {min(r.ess for r in rows):.0f}; "
        f"median seconds {np.median([r.seconds for r in rows]):.1f}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.01])
    given = parser.parse_args()
    for noise in given.noise:
        print(report(noise, [run(noise, seed) for seed in range(given.seeds)]), flush=True)
