"""A coefficient that is itself a function: conductivity k(x) > 0 from readings of u and of the source.

    -(k u_x)_x = f(x)   on [-1, 1],    that is    -(k_x u_x + k u_xx) = f

k has its own network with a softplus link (positive=True). The source determines k u_x up to a constant, which follows
from the point where u_x = 0. A few direct readings of k (with_k=True) narrow its band further.
The truth is u(x) = cos(3 x / 2), k(x) = 1 + sin(2 x) / 2.
"""

import numpy as np

import bpinn as bp

NOISE = 0.05


def conduction(k, k_x, u_x, u_xx):
    return -(k_x * u_x + k * u_xx)


def k_true(x):
    return 1 + 0.5 * np.sin(2 * x)


def main(method: bp.HMC | None = None, with_k: bool = False) -> bp.Result:
    rng = np.random.default_rng(0)

    def noisy(values):
        return values + NOISE * rng.standard_normal(values.shape)

    x, x_k = np.linspace(-1, 1, 20), np.array([-0.5, 0.0, 0.5])
    u, u_x, u_xx = np.cos(1.5 * x), -1.5 * np.sin(1.5 * x), -2.25 * np.cos(1.5 * x)
    f = conduction(k_true(x), np.cos(2 * x), u_x, u_xx)
    sensors = {
        "f": bp.Sensors(conduction, at={"x": x}, values=noisy(f), noise=NOISE),
        "u": bp.Sensors("u", at={"x": x}, values=noisy(u), noise=NOISE),
    }
    if with_k:
        sensors["k"] = bp.Sensors("k", at={"x": x_k}, values=noisy(k_true(x_k)), noise=NOISE)
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={
            "u": bp.MLP(hidden=(16, 16), weight_sd=(2.0, 0.35, 0.35)),
            "k": bp.MLP(hidden=(16,), weight_sd=(1.0, 0.3), positive=True),
        },
        sensors=sensors,
    )
    settings = bp.HMC(num_leapfrog=150, num_warmup=300, num_draws=500, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    band = result.predict("k", problem.grid())
    error = np.abs(band.mean - k_true(problem.grid()["x"]))
    print(
        f"k: mean error {error.mean():.3f}, mean sd {band.sd.mean():.3f}, at most {(error / band.sd).max():.1f} sd off"
    )
    return result


if __name__ == "__main__":
    main()
    main(with_k=True)
