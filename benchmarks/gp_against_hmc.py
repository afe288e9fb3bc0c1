"""A network's posterior by HMC against the Gaussian process of the same prior, on the paper's regression problem.

    python benchmarks/gp_against_hmc.py --widths 25 50 100 --draws 800 --out folder

The paper calls the second BNN-GPR. The two agree only in the limit of wide layers. Weights of other widths are scaled
so that all have the same limit as the paper's width of 50 with unit variances.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import bpinn as bp
from bpinn.convergence import ess_of
from bpinn.plot.drawing import ORANGE

X = np.linspace(-1.0, 1.0, 201)
READ, GAP = (np.abs(X) >= 0.2) & (np.abs(X) <= 0.8), np.abs(X) < 0.2


@dataclass(frozen=True)
class Row:
    """Distances of means in units of HMC's sd (root mean square), and ratios of sds (GP to HMC), by region."""

    width: int
    read: float
    gap: float
    sd_read: np.ndarray
    sd_gap: np.ndarray
    error: float  # Monte-Carlo error of HMC's means in units of its sd
    verdict: str

    def __str__(self) -> str:
        ratios = " | ".join(f"{r.mean():.3f} ({r.min():.2f} to {r.max():.2f})" for r in (self.sd_read, self.sd_gap))
        return f"| {self.width} | {self.read:.3f} | {self.gap:.3f} | {ratios} | {self.error:.3f} | {self.verdict} |"


HEADER = """| width | means, readings | means, gap | sds, readings | sds, gap | error of HMC's means | verdict |
|---|---|---|---|---|---|---|"""


def run(width: int = 50, draws: int = 800, seed: int = 0) -> tuple[Row, bp.Result, bp.Prediction]:
    sd = np.sqrt(50 / width)
    paper = bp.paper.regression(surrogate=bp.MLP(hidden=(width, width), weight_sd=(1.0, sd, sd)))
    gp = bp.reference.gp(paper.problem, at={"x": X})
    result = bp.infer(paper.problem, bp.HMC(num_draws=draws), seed=seed, progress=False)
    hmc = result.predict("u", {"x": X})
    squares, ratio = ((gp.mean - hmc.mean) / hmc.sd) ** 2, gp.sd / hmc.sd
    read, gap = (float(np.sqrt(squares[region].mean())) for region in (READ, GAP))
    error = 1 / np.sqrt(np.median(ess_of(hmc.draws[..., ::10])))
    return Row(width, read, gap, ratio[READ], ratio[GAP], error, result.diagnose().verdict), result, gp


def figure(result: bp.Result, gp: bp.Prediction) -> Figure:
    """Both posteriors side by side."""
    truth, (readings,) = bp.paper.regression().truth, result.problem.readings
    both = Figure(figsize=(9.5, 3.4), layout="constrained")
    left, right = both.subplots(1, 2, sharey=True)
    bp.plot.band(result, "u", {"x": X}, truth=truth, ax=left)
    bp.plot.band(gp, truth=truth, ax=right)
    right.plot(readings.at["x"], readings.values, "o", ms=3.5, mew=0, color=ORANGE, zorder=3)
    right.get_legend().remove()
    left.set_title("HMC")
    right.set(title="Gaussian process of the same prior", ylabel="")
    return both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[25, 50, 100])
    parser.add_argument("--draws", type=int, default=800, help="draws of HMC per chain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="folder for the figure at width 50")
    options = parser.parse_args()
    print(HEADER)
    for width in options.widths:
        row, result, gp = run(width, options.draws, options.seed)
        print(row, flush=True)
        if options.out is not None and width == 50:
            figure(result, gp).savefig(options.out / "gp_against_hmc.png", dpi=150)


if __name__ == "__main__":
    main()
