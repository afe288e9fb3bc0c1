"""Function regression: a Bayesian neural network and noisy readings, no equation at all.

    y_i = u(x_i) + noise,    u(x) = sin(3 x) + x / 2,    x in [-1, 1]

The readings leave a gap in the middle, where the band must widen.
"""

import numpy as np

import bpinn as bp

NOISE = 0.05


def truth(x):
    return np.sin(3 * x) + 0.5 * x


def main(method: bp.HMC | None = None) -> bp.Result:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(-0.9, -0.3, 10), np.linspace(0.4, 0.9, 10)])
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(20, 20), weight_sd=(2.0, 0.5, 0.5))},
        sensors={"u": bp.Sensors("u", at={"x": x}, values=truth(x) + NOISE * rng.standard_normal(x.size), noise=NOISE)},
    )
    settings = bp.HMC(num_leapfrog=100, num_warmup=300, num_draws=500, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    grid = problem.grid()
    band = result.predict("u", grid)
    low, high = band.interval(0.95)
    held = np.mean((low <= truth(grid["x"])) & (truth(grid["x"]) <= high))
    gap, read = (band.sd[np.abs(grid["x"] - centre) < 0.05].mean() for centre in (0.0, 0.6))
    print(f"the 95% band contains the truth at {held:.0%} of points; sd {gap:.3f} in the gap, {read:.3f} at readings")

    # a Gaussian process with the same prior covariance: no sampling, and exact in the limit of wide layers
    gp = bp.reference.gp(problem, at=grid, draws=10_000)
    apart = np.sqrt(np.mean(((gp.mean - band.mean) / band.sd) ** 2))
    larger = np.mean(gp.sd / band.sd)
    print(f"a Gaussian process with the prior's covariance: means {apart:.2f} sd away, sds {larger:.2f} times as large")
    return result


if __name__ == "__main__":
    main()
