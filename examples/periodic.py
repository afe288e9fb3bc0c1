"""A periodic boundary: a wave that leaves on the right enters on the left.

    u_t + c u_x = 0,    u(-1, t) = u(1, t),  u_x(-1, t) = u_x(1, t),    -1 <= x <= 1,  0 <= t <= 1

The speed c is unknown. u is read with noise at scattered points.
The truth is u = sin(pi (x - c t)) with c = 0.7.
"""

import numpy as np
import numpyro.distributions as dist

import bpinn as bp

C = 0.7
NOISE, TOLERANCE = 0.05, 0.1


def advection(u_t, u_x, c):
    return u_t + c * u_x


def truth(x, t):
    return np.sin(np.pi * (x - C * t))


def main(method: bp.HMC | None = None) -> bp.Result:
    rng = np.random.default_rng(0)
    x, t = rng.uniform(-1, 1, 40), rng.uniform(0, 1, 40)
    u = truth(x, t) + NOISE * rng.standard_normal(x.size)
    inside = dict(zip("xt", np.meshgrid(np.linspace(-1, 1, 9), np.linspace(0, 1, 6)), strict=True))
    around = {"t": np.linspace(0, 1, 8)}
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0), "t": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(20, 20), weight_sd=(2.0, 0.3, 0.3))},
        unknowns={"c": dist.Normal(0.0, 1.0)},
        sensors={
            "advection": bp.Sensors(advection, at=inside, values=0.0, noise=TOLERANCE),
            "ring": bp.Sensors(bp.Periodic("u", along="x"), at=around, values=0.0, noise=0.03),
            "ring_slope": bp.Sensors(bp.Periodic("u_x", along="x"), at=around, values=0.0, noise=0.05),
            "u": bp.Sensors("u", at={"x": x, "t": t}, values=u, noise=NOISE),
        },
    )
    settings = bp.HMC(num_leapfrog=100, num_warmup=400, num_draws=400, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    c, seam = result.draws("c"), result.predict(bp.Periodic("u", along="x"), around)
    print(f"c: {c.mean():.3f} ± {c.std():.3f}, truth {C}; u(1, t) - u(-1, t) is at most {np.abs(seam.mean).max():.3f}")
    return result


if __name__ == "__main__":
    main()
