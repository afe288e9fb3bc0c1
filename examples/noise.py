"""Three kinds of noise: known for each reading, unknown, and with outliers.

    y_i = u(x_i) + e_i,    u(x) = cos(3 x),    x in [-1, 1]

A good instrument states the standard deviation of each reading. A cheap one does not (its noise gets a prior and is
inferred), and fails now and then. With a normal likelihood the failures inflate the noise and distort the curve; a
Student-t likelihood is robust to them.
"""

import numpy as np
import numpyro.distributions as dist

import bpinn as bp

NOISE = 0.05  # of the cheap instrument


def truth(x):
    return np.cos(3 * x)


def problem_with(likelihood: str) -> bp.Problem:
    rng = np.random.default_rng(0)
    x_good, x = np.linspace(-1, 1, 6), np.linspace(-0.95, 0.95, 30)
    stated = np.array([0.05, 0.1, 0.2, 0.2, 0.1, 0.05])
    good = truth(x_good) + stated * rng.standard_normal(x_good.size)
    cheap = truth(x) + NOISE * rng.standard_normal(x.size)
    cheap[[4, 15, 25]] += [1.5, -1.0, 2.0]  # the failures
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(20, 20), weight_sd=(2.0, 0.5, 0.5))},
        sensors={
            "good": bp.Sensors("u", at={"x": x_good}, values=good, noise=stated),
            "u": bp.Sensors("u", at={"x": x}, values=cheap, noise=dist.HalfNormal(0.5), likelihood=likelihood, dof=2.0),
        },
    )


def main(method: bp.HMC | None = None) -> bp.Result:
    """Run both likelihoods and return the result with the Student-t."""
    settings = method or bp.HMC(num_leapfrog=100, num_warmup=300, num_draws=700, target_accept=0.8)
    for likelihood in ("normal", "student_t"):
        problem = problem_with(likelihood)
        result = bp.infer(problem, settings, seed=0, progress=method is None)
        print(result.summary())
        band, sigma = result.predict("u", problem.grid()), result.draws("noise_u")
        error = np.sqrt(np.mean((band.mean - truth(problem.grid()["x"])) ** 2))
        print(
            f"{likelihood}: noise {sigma.mean():.3f} ± {sigma.std():.3f} (truth {NOISE}), rms error of u {error:.3f}\n"
        )
    return result


if __name__ == "__main__":
    main()
