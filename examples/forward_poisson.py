"""Forward problem: Poisson's equation with a known coefficient and a source known only at sensors.

    -0.2 u_xx = f(x)   on [-1, 1],    u(-1), u(1) given,    f read at 12 sensors with noise

The truth is u(x) = sin(2 x) + x^2 / 2. We infer u, its slope, and the source between the sensors.
"""

import numpy as np

import bpinn as bp

NOISE_F, NOISE_U = 0.05, 0.01


def poisson(u_xx):
    return -0.2 * u_xx


def truth(x):
    return {
        "u": np.sin(2 * x) + 0.5 * x**2,
        "u_x": 2 * np.cos(2 * x) + x,
        "f": 0.8 * np.sin(2 * x) - 0.2,
    }


def main(method: bp.HMC | None = None) -> bp.Result:
    rng = np.random.default_rng(0)
    x, ends = np.linspace(-1, 1, 12), np.array([-1.0, 1.0])
    f = truth(x)["f"] + NOISE_F * rng.standard_normal(x.size)
    u = truth(ends)["u"] + NOISE_U * rng.standard_normal(2)
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(20, 20), weight_sd=(2.0, 0.3, 0.3))},
        sensors={
            "f": bp.Sensors(poisson, at={"x": x}, values=f, noise=NOISE_F),
            "ends": bp.Sensors("u", at={"x": ends}, values=u, noise=NOISE_U),
        },
    )
    settings = bp.HMC(num_leapfrog=100, num_warmup=300, num_draws=500, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    grid = problem.grid()
    for name, quantity in (("u", "u"), ("u_x", "u_x"), ("f", poisson)):
        band = result.predict(quantity, grid)
        error = np.abs(band.mean - truth(grid["x"])[name])
        print(f"{name}: largest error {error.max():.3f}, at most {(error / band.sd).max():.1f} sd")
    return result


if __name__ == "__main__":
    main()
