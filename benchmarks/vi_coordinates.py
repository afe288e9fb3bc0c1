"""Measurements for docs/methods.md: mean-field VI in plain and in whitened coordinates, against HMC.

    python benchmarks/vi_coordinates.py [--sets 10] [--steps 20000]

The 1D inverse problem at noise 0.1 with a network of two hidden layers of 50 neurons, on several data sets.
"""

import argparse
import time

import numpy as np

import bpinn as bp


def one(seed: int, steps: int) -> dict[str, np.ndarray]:
    """For each method the mean and sd of k, the distance of u from HMC's in its sds, the ratio of sds, and seconds."""
    problem = bp.paper.inverse_reaction_1d(noise=0.1, seed=seed).problem
    vi = {f"VI, {c}": bp.VI(coordinates=c, num_steps=steps) for c in ("plain", "whitened")}
    found, fields = {}, {}
    for name, method in {"HMC": bp.HMC(), **vi}.items():
        begin = time.perf_counter()
        result = bp.infer(problem, method, seed=seed, progress=False)
        seconds = time.perf_counter() - begin
        k = result.draws("k")
        fields[name] = u = result.predict("u", problem.grid())
        off = np.sqrt(np.mean(((u.mean - fields["HMC"].mean) / fields["HMC"].sd) ** 2))
        ratio = np.exp(np.mean(np.log(u.sd / fields["HMC"].sd)))
        bound = np.mean(result.history["elbo"][0, -20:]) if result.history else np.nan
        found[name] = np.array([k.mean(), k.std(), off, ratio, bound, seconds])
    return found


def main(sets: int, steps: int) -> None:
    print("| data set | method | k | off by, in HMC's sd | u: off by, RMS | u: sd / HMC's | evidence bound | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for seed in range(sets):
        rows.append(one(seed, steps))
        for name, (mean, sd, off, ratio, bound, seconds) in rows[-1].items():
            centre, unit = rows[-1]["HMC"][:2]
            print(
                f"| {seed} | {name} | {mean:.3f} ± {sd:.3f} | {(mean - centre) / unit:+.2f} | {off:.2f} | {ratio:.2f} "
                f"| {bound:.1f} | {seconds:.0f} |",
                flush=True,
            )
    print("\n| method | k off by, in HMC's sd, RMS | sd of k / HMC's | u off by, RMS | u: sd / HMC's |")
    print("|---|---|---|---|---|")
    for name in list(rows[0])[1:]:
        hmc, own = (np.array([row[which] for row in rows]) for which in ("HMC", name))
        off = np.sqrt(np.mean(((own[:, 0] - hmc[:, 0]) / hmc[:, 1]) ** 2))
        ratio = np.mean(own[:, 1] / hmc[:, 1])
        field = np.sqrt(np.mean(own[:, 2] ** 2))
        print(f"| {name} | {off:.2f} | {ratio:.2f} | {field:.2f} | {np.mean(own[:, 3]):.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20_000, help="training steps of variational inference")
    given = parser.parse_args()
    main(given.sets, given.steps)
