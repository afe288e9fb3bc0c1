"""High-order and mixed derivatives, by name.

A beam with unknown stiffness under a known load, clamped at x = 0 and free at x = 1:

    E u_xxxx = q(x),    u(0) = u_x(0) = 0,    u_xx(1) = u_xxx(1) = 0

With q = 1 the truth is u = x^2 (6 - 4 x + x^2) / (24 E), with E = 0.2.

Goursat's problem: a mixed derivative, with u given on two sides of the square [-1, 1]^2:

    u_xy = a u,    u(x, -1) = cos(x + 1),  u(-1, y) = cos(y + 1)

The truth is u = cos(x - y) with a = 1.
"""

import numpy as np
import numpyro.distributions as dist

import bpinn as bp

TRUTH = {"E": 0.2, "a": 1.0}
NOISE = 0.02


def bending(u_xxxx, E):
    return E * u_xxxx


def goursat(u, u_xy, a):
    return u_xy - a * u


def beam() -> bp.Problem:
    rng = np.random.default_rng(0)
    x = np.linspace(0.1, 1, 10)
    u = x**2 * (6 - 4 * x + x**2) / (24 * TRUTH["E"]) + NOISE * rng.standard_normal(x.size)
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(16, 16), weight_sd=(1.0, 0.35, 0.35))},
        unknowns={"E": dist.LogNormal(-1.0, 1.0)},
        sensors={
            "load": bp.Sensors(bending, at={"x": np.linspace(0, 1, 11)}, values=1.0, noise=0.1),
            "clamp": bp.Sensors("u", at={"x": [0.0]}, values=0.0, noise=0.02),
            "clamp_slope": bp.Sensors("u_x", at={"x": [0.0]}, values=0.0, noise=0.02),
            "moment": bp.Sensors("u_xx", at={"x": [1.0]}, values=0.0, noise=0.02),
            "shear": bp.Sensors("u_xxx", at={"x": [1.0]}, values=0.0, noise=0.02),
            "u": bp.Sensors("u", at={"x": x}, values=u, noise=NOISE),
        },
    )


def square() -> bp.Problem:
    rng = np.random.default_rng(0)
    side = np.linspace(-1, 1, 6)
    x, y = rng.uniform(-1, 1, size=(2, 10))
    u = np.cos(x - y) + NOISE * rng.standard_normal(x.size)
    inside = dict(zip("xy", np.meshgrid(side, side), strict=True))
    return bp.Problem(
        domain={"x": (-1.0, 1.0), "y": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(16, 16), weight_sd=(1.0, 0.35, 0.35))},
        unknowns={"a": dist.Normal(0.0, 1.0)},
        sensors={
            "goursat": bp.Sensors(goursat, at=inside, values=0.0, noise=0.05),
            "bottom": bp.Sensors("u", at={"x": side, "y": -1.0}, values=np.cos(side + 1), noise=0.02),
            "left": bp.Sensors("u", at={"x": -1.0, "y": side}, values=np.cos(side + 1), noise=0.02),
            "u": bp.Sensors("u", at={"x": x, "y": y}, values=u, noise=NOISE),
        },
    )


def main(method: bp.HMC | None = None, mixed: bool = False) -> bp.Result:
    problem, name = (square(), "a") if mixed else (beam(), "E")
    settings = bp.HMC(num_leapfrog=100, num_warmup=400, num_draws=400, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())
    draws = result.draws(name)
    print(f"{name}: {draws.mean():.3f} ± {draws.std():.3f}, truth {TRUTH[name]}")
    return result


if __name__ == "__main__":
    main()
    main(mixed=True)
