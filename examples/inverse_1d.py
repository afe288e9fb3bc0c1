"""The paper's one-dimensional inverse problem: a reaction rate from 40 noisy readings.

    0.01 u_xx + k tanh(u) = f   on [-0.7, 0.7]

32 sensors read f and 8 read u. We infer u = sin^3(6 x) and k = 0.7, with error bars.
`make demo` runs this and saves the figure and the result.
"""

import argparse
from pathlib import Path

import bpinn as bp


def main(method: bp.HMC | None = None, noise: float = 0.1, seed: int = 0, out: Path | None = None) -> bp.Result:
    paper = bp.paper.inverse_reaction_1d(noise=noise, seed=seed)
    result = bp.infer(paper.problem, method or bp.HMC(), seed=seed, progress=method is None)
    print(result.summary())
    k, truth = result.draws("k"), paper.truth.unknowns["k"]
    print(f"true k {truth}; inferred {k.mean():.3f} ± {k.std():.3f}, {abs(k.mean() - truth) / k.std():.1f} sd away")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        bp.plot.overview(result, truth=paper.truth).savefig(out / "inverse_1d.png", dpi=150)
        result.save(out / "inverse_1d.npz")
        print(f"Saved {out / 'inverse_1d.png'} (the figure) and {out / 'inverse_1d.npz'} (bp.load reads it)")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.1, help="standard deviation of the readings (0.1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and the chains (0)")
    parser.add_argument("--out", type=Path, default=None, help="folder for the figure and the result")
    given = parser.parse_args()
    main(noise=given.noise, seed=given.seed, out=given.out)
