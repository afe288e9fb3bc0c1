"""Dirichlet, Neumann and Robin conditions: heat in a rod that loses heat at its tip.

    u_t = 0.25 u_xx                       0 <= x <= 1,  0 <= t <= 1
    u(0, t) = 0                           Dirichlet: the base is kept cold
    u_x(0, t) = flux read with noise      Neumann: a heat-flux gauge at the base
    u_x(1, t) + h u(1, t) = 0             Robin: the tip cools with an unknown coefficient h

Boundary conditions are sensors like any other; h is a coefficient of one of them. The truth is
u = exp(-t) sin(2 x), so h = -2 / tan(2) = 0.915.
"""

import numpy as np
import numpyro.distributions as dist

import bpinn as bp

H = -2 / np.tan(2)
NOISE, TOLERANCE = 0.02, 0.03


def heat(u_t, u_xx):
    return u_t - 0.25 * u_xx


def cooling(u, u_x, h):
    return u_x + h * u


def truth(x, t):
    return np.exp(-t) * np.sin(2 * x)


def main(method: bp.HMC | None = None) -> bp.Result:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 8)
    inside = dict(zip("xt", np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 6)), strict=True))
    x_u, t_u = rng.uniform(size=(2, 30))
    u = truth(x_u, t_u) + NOISE * rng.standard_normal(30)
    flux = 2 * np.exp(-t) + NOISE * rng.standard_normal(t.size)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0), "t": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(16, 16), weight_sd=(1.5, 0.4, 0.4), scale_inputs=True)},
        unknowns={"h": dist.LogNormal(0.0, 1.0)},
        sensors={
            "heat": bp.Sensors(heat, at=inside, values=np.zeros((6, 6)), noise=TOLERANCE),
            "base": bp.Sensors("u", at={"x": 0.0, "t": t}, values=0.0, noise=TOLERANCE),
            "gauge": bp.Sensors("u_x", at={"x": 0.0, "t": t}, values=flux, noise=NOISE),
            "tip": bp.Sensors(cooling, at={"x": 1.0, "t": t}, values=0.0, noise=TOLERANCE),
            "u": bp.Sensors("u", at={"x": x_u, "t": t_u}, values=u, noise=NOISE),
        },
    )
    settings = bp.HMC(num_leapfrog=100, num_warmup=400, num_draws=400, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    h = result.draws("h")
    print(f"h: {h.mean():.3f} ± {h.std():.3f}, truth {H:.3f}")
    return result


if __name__ == "__main__":
    main()
