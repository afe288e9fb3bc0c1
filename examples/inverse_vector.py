"""Inverse problem: scalar and vector coefficients, each with a prior on its own support.

    -D u_xx + V u_x = f(x) + r_1 + r_2 x   on [-1, 1],    f and u read at sensors with noise

    D ~ LogNormal (positive),  V ~ Uniform(0, 1),  r ~ Normal (a vector of two),
    and the noise of the readings of u, sigma ~ HalfNormal.

The truth is u(x) = sin(3 x) + x^2 / 2, D = 0.2, V = 0.5, r = (0.5, -0.3), sigma = 0.03.
"""

import numpy as np
import numpyro.distributions as dist

import bpinn as bp

TRUTH = {"D": 0.2, "V": 0.5, "r": np.array([0.5, -0.3]), "sigma": 0.03}
NOISE_F = 0.05


def transport(x, u_x, u_xx, D, V, r):
    return -D * u_xx + V * u_x - r[0] - r[1] * x


def main(method: bp.HMC | None = None) -> bp.Result:
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 24)
    u, u_x, u_xx = np.sin(3 * x) + x**2 / 2, 3 * np.cos(3 * x) + x, 1 - 9 * np.sin(3 * x)
    f = transport(x, u_x, u_xx, TRUTH["D"], TRUTH["V"], TRUTH["r"])
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(20, 20), weight_sd=(2.0, 0.3, 0.3))},
        unknowns={
            "D": dist.LogNormal(-2.0, 1.0),
            "V": dist.Uniform(0.0, 1.0),
            "r": dist.Normal(0.0, 1.0).expand([2]).to_event(1),
            "sigma": dist.HalfNormal(0.1),
        },
        sensors={
            "f": bp.Sensors(transport, at={"x": x}, values=f + NOISE_F * rng.standard_normal(x.size), noise=NOISE_F),
            "u": bp.Sensors("u", at={"x": x}, values=u + TRUTH["sigma"] * rng.standard_normal(x.size), noise="sigma"),
        },
    )
    settings = bp.HMC(num_leapfrog=100, num_warmup=500, num_draws=500, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    truth = np.hstack(list(TRUTH.values()))  # in the order of the table's rows: D, V, r[0], r[1], sigma
    table = result.summary().table
    print("distance from the truth:", ", ".join(f"{z:+.1f}" for z in (table["mean"] - truth) / table["sd"]), "sd")
    return result


if __name__ == "__main__":
    main()
