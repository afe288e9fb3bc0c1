"""Probabilities of two solutions against quadrature: are the stated standard deviations right?

    python verification/two_solutions.py [--runs 100] [--noise 0.03]

Readings of u^2 inside the domain leave the sign of u open, and a rough reading of u at the boundary prefers one: an
expansion of three terms, so that quadrature knows the evidence and the probability of each sign. The problem is
repeated with other seeds of bp.SMC; counted is how often the probability and the evidence are within two stated
standard deviations. Writes two_solutions.json.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy import optimize, stats

import bpinn as bp
from bpinn.populations import agreement
from bpinn.run_output import RunOutput

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
from results import load, save

STORED = HERE / "two_solutions.json"
INSIDE, EDGE, MIDDLE = np.linspace(0.1, 0.9, 5), 0.0, 0.5
EDGE_READING, EDGE_NOISE = 0.2, 0.6


def square(u):
    return u * u


def problem(noise: float = 0.03) -> bp.Problem:
    scatter = noise * np.random.default_rng(1).standard_normal(len(INSIDE))
    values = (0.8 + 0.3 * np.sin(3 * INSIDE)) ** 2 + scatter
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.KarhunenLoeve(bp.SquaredExponential(0.5), terms=3)},
        sensors={
            "f": bp.Sensors(square, {"x": INSIDE}, values, noise),
            "b": bp.Sensors("u", {"x": [EDGE]}, [EDGE_READING], EDGE_NOISE),
        },
    )


def quadrature(two: bp.Problem, points: int = 41, reach: float = 7.0) -> tuple[float, float]:
    """The probability of the positive solution, and the log evidence, by a grid around each solution.

    Grids are as wide as ``reach`` standard deviations of the Gaussian at the mode, along its axes. Nothing of the
    library's density is used, only the values of its terms at the places of the readings.
    """
    posterior = bp.Posterior(two)
    count = posterior.dim
    terms = posterior.evaluate(np.eye(count), "u", {"x": [*INSIDE, EDGE, MIDDLE]}).T.astype(float)
    squares, edge = two.sensors["f"], two.sensors["b"]
    read = np.asarray(squares.values, float)

    def log_density(a: np.ndarray) -> np.ndarray:
        u = a @ terms.T
        inside = stats.norm.logpdf(u[..., :-2] ** 2, read, float(squares.noise)).sum(axis=-1)
        at_edge = stats.norm.logpdf(u[..., -2], float(edge.values[0]), float(edge.noise))
        return stats.norm.logpdf(a).sum(axis=-1) + inside + at_edge

    logs = []
    for sign in (1, -1):
        start = np.linalg.lstsq(terms[:-2], sign * np.sqrt(np.abs(read)), rcond=None)[0]
        mode = optimize.minimize(lambda a: -log_density(a), start, method="BFGS").x
        near = 1e-3 * np.eye(count)
        sums, apart = (np.array([[log_density(mode + p + s * q) for q in near] for p in near]) for s in (1, -1))
        mirrored = [[log_density(mode - p - s * q) for s in (1, -1)] for p in near for q in near]
        second = (apart - sums + np.diff(mirrored, axis=1).reshape(count, count)) / 4e-6  # of minus the log density
        axes = np.linalg.inv(np.linalg.cholesky(second)).T
        line = np.linspace(-reach, reach, points)
        grid = mode + np.stack(np.meshgrid(*[line] * count, indexing="ij"), -1).reshape(-1, count) @ axes.T
        found = log_density(grid)[np.sign(grid @ terms[-1]) == sign]
        volume = np.log(line[1] - line[0]) * count + np.log(abs(np.linalg.det(axes)))
        logs.append(found.max() + np.log(np.exp(found - found.max()).sum()) + volume)
    evidence = np.logaddexp(*logs)
    return float(np.exp(logs[0] - evidence)), float(evidence)


def together(result: bp.Result):
    """What the populations of a result say together."""
    monitor = result.monitor
    output = RunOutput(monitor.names, monitor.is_secondary, result.functionals, result.stats, result.history)
    return agreement(output)


def estimate(result: bp.Result) -> dict[str, float]:
    """Probability of the positive solution and log evidence, each with its stated error."""
    positive = next(
        (mode for mode in result.modes() if mode.result.predict("u", {"x": [MIDDLE]}).mean[0] > 0), None
    )  # fmt: skip
    found = together(result)
    return {
        "probability": positive.probability if positive else 0.0,
        "sd": positive.error if positive else 0.0,
        "log_evidence": found.log_evidence, "evidence_error": found.evidence_error,
        "populations": result.z.shape[0], "verdict": result.diagnose().verdict,
    }  # fmt: skip


def repeat(noise: float, runs: int) -> dict:
    two = problem(noise)
    probability, log_evidence = quadrature(two)
    began = time.process_time()
    rows = [estimate(bp.infer(two, bp.SMC(), seed=seed, progress=False)) for seed in range(runs)]
    of = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    off = np.abs(of["probability"] - probability)
    ratio = np.exp(of["log_evidence"] - log_evidence)
    return {
        "runs": runs, "method": repr(bp.SMC()), "probability": probability, "log_evidence": log_evidence,
        "within_two_sd": int(np.sum(off <= 2 * of["sd"])), "largest_sd": float(of["sd"].max()),
        "mean_sd": float(of["sd"].mean()), "rms_error": float(np.sqrt(np.mean(off**2))),
        "mean_probability": float(of["probability"].mean()),
        "mean_probability_error": float(of["probability"].std(ddof=1) / np.sqrt(runs)),
        "evidence_ratio": float(ratio.mean()), "evidence_ratio_error": float(ratio.std(ddof=1) / np.sqrt(runs)),
        "evidence_within_two_sd": int(np.sum(np.abs(ratio - 1) <= 2 * of["evidence_error"] * ratio)),
        "populations": float(of["populations"].mean()), "good": int(np.sum(of["verdict"] == "good")),
        "processor_seconds": time.process_time() - began,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.03])
    given = parser.parse_args()
    for noise in given.noise:
        row = repeat(noise, given.runs)
        save(STORED, load(STORED) | {f"noise {noise:g}": row})
        print(f"noise {noise:g}:", *(f"{name} {value}" for name, value in row.items()), sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
