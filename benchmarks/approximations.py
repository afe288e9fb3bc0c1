"""Measurements for docs/methods.md: variational inference, and the density of the potential flow.

    python benchmarks/approximations.py [--steps 30000]

All in plain coordinates, as in the paper. First, mean-field VI on the 1D inverse problem from two starts (the true k
is 0.7; the paper has 0.775 ± 0.0358 and 0.708 ± 0.00401 at noise 0.1 and 0.01). Then a straight line with two
coefficients, whose posterior is known, with potential flows that use the exact density and the paper's.
"""

import argparse

import numpy as np

import bpinn as bp


def starts(steps: int) -> None:
    print("| noise | start | k | error of u | evidence lower bound |\n|---|---|---|---|---|")
    for noise in (0.1, 0.01):
        paper = bp.paper.inverse_reaction_1d(noise=noise, seed=0)
        at = paper.problem.grid()
        for init in ("small", "fit"):
            method = bp.VI(init=init, num_steps=steps, coordinates="plain")
            result = bp.infer(paper.problem, method, seed=0, progress=False)
            k, truth = result.summary().table.loc["k"], paper.truth["u"](at["x"])
            error = np.linalg.norm(result.predict("u", at).mean - truth) / np.linalg.norm(truth)
            bound = np.mean(result.history["elbo"][0, -20:])
            print(f"| {noise} | {init} | {k['mean']:.4f} ± {k['sd']:.4f} | {error:.1%} | {bound:.0f} |", flush=True)


def densities() -> None:
    x = np.linspace(-1, 1, 8)
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={"u": bp.Sensors("u", {"x": x}, np.linspace(0, 1, 8), noise=0.6)},
    )
    exact = bp.reference.exact(problem)
    sd = np.sqrt(np.diag(exact.covariance))
    print("\n| Euler steps | density | sds / exact | bound - log evidence | draws that fold |\n|---|---|---|---|---|")
    for steps in (2, 10, 50):
        for density in ("exact", "laplacian"):
            flow = bp.Flow(
                kind="potential",
                density=density,
                steps=steps,
                hidden=(16, 16),
                affine=False,
                num_steps=4000,
                coordinates="plain",
            )
            result = bp.infer(problem, flow, seed=0, progress=False)
            ratios = ", ".join(f"{r:.2f}" for r in result.z[0].std(axis=0) / sd)
            gap = np.mean(result.history["elbo"][0, -20:]) - exact.log_evidence
            print(f"| {steps} | {density} | {ratios} | {gap:+.2f} | {result.stats['folded'].mean():.0%} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30_000, help="steps of variational inference")
    starts(parser.parse_args().steps)
    densities()
