"""A system of ordinary differential equations: predator and prey with unknown rates.

    u_t = u (a - b v),    v_t = v (c u - d),    0 <= t <= 5

Both are read at a few times with noise. The physics is exact, so it is observed as zero at
collocation points with a small tolerance. The truth is a = 1.2, b = 1, c = 0.8, d = 1, u(0) = 1, v(0) = 0.6.
"""

import numpy as np
import numpyro.distributions as dist
from scipy.integrate import solve_ivp

import bpinn as bp

TRUTH = {"a": 1.2, "b": 1.0, "c": 0.8, "d": 1.0}
NOISE, TOLERANCE = 0.05, 0.05


def prey(u, u_t, v, a, b):
    return u_t - u * (a - b * v)


def predator(v, v_t, u, c, d):
    return v_t - v * (c * u - d)


def solve(t):
    a, b, c, d = TRUTH.values()
    return solve_ivp(
        lambda _, y: [y[0] * (a - b * y[1]), y[1] * (c * y[0] - d)], (0, t[-1]), [1.0, 0.6], t_eval=t, rtol=1e-8
    ).y


def main(method: bp.HMC | None = None) -> bp.Result:
    rng = np.random.default_rng(0)
    t, physics = np.linspace(0, 5, 16), np.linspace(0, 5, 31)
    u, v = solve(t) + NOISE * rng.standard_normal((2, t.size))
    problem = bp.Problem(
        domain={"t": (0.0, 5.0)},
        fields={name: bp.MLP(hidden=(16, 16), weight_sd=(1.5, 0.4, 0.4), scale_inputs=True) for name in ("u", "v")},
        unknowns={name: dist.LogNormal(0.0, 0.5) for name in TRUTH},
        sensors={
            "prey": bp.Sensors(prey, at={"t": physics}, values=0.0, noise=TOLERANCE),
            "predator": bp.Sensors(predator, at={"t": physics}, values=0.0, noise=TOLERANCE),
            "u": bp.Sensors("u", at={"t": t}, values=u, noise=NOISE),
            "v": bp.Sensors("v", at={"t": t}, values=v, noise=NOISE),
        },
    )
    settings = bp.HMC(num_leapfrog=100, num_warmup=400, num_draws=400, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    off = {n: (result.draws(n).mean() - value) / result.draws(n).std() for n, value in TRUTH.items()}
    print("distance from the truth:", ", ".join(f"{n}: {z:+.1f} sd" for n, z in off.items()))
    return result


if __name__ == "__main__":
    main()
