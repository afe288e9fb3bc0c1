"""A system of partial differential equations in (x, t), with a source that depends on x only.

A tracer in a river, u(x, t), is transported downstream, exchanged with still water, v(x, t), and fed by a source s(x):

    u_t + u_x = -a (u - v) + s(x),    v_t = a (u - v),    0 <= x <= 1,  0 <= t <= 1

We infer the exchange rate a and the source from readings of u and v. The truth is a = 1,
s = 1 + cos(pi x), u = x + sin(pi x) / pi + w, v = x + sin(pi x) / pi + 2 w, with w = exp((3 x - t) / 2) / 5.
"""

import numpy as np
import numpyro.distributions as dist

import bpinn as bp

A, NOISE, TOLERANCE = 1.0, 0.03, 0.1


def river(u, u_t, u_x, v, s, a):
    return u_t + u_x + a * (u - v) - s


def still_water(u, v, v_t, a):
    return v_t - a * (u - v)


def s_true(x):
    return 1 + np.cos(np.pi * x)


def truth(x, t):
    steady, w = x + np.sin(np.pi * x) / np.pi, 0.2 * np.exp((3 * x - t) / 2)
    return np.stack([steady + w, steady + 2 * w])


def main(method: bp.HMC | None = None) -> bp.Result:
    rng = np.random.default_rng(0)
    x, t = rng.uniform(size=(2, 30))
    u, v = truth(x, t) + NOISE * rng.standard_normal((2, x.size))
    grid = np.linspace(0, 1, 6)
    everywhere = dict(zip("xt", np.meshgrid(grid, grid), strict=True))  # collocation points
    network = bp.MLP(hidden=(16, 16), weight_sd=(1.0, 0.4, 0.4), scale_inputs=True)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0), "t": (0.0, 1.0)},
        fields={
            "u": network,
            "v": network,
            "s": bp.MLP(hidden=(16,), weight_sd=(1.0, 0.5), inputs=("x",), scale_inputs=True),
        },
        unknowns={"a": dist.LogNormal(0.0, 1.0)},
        sensors={
            "river": bp.Sensors(river, at=everywhere, values=0.0, noise=TOLERANCE),
            "still_water": bp.Sensors(still_water, at=everywhere, values=0.0, noise=TOLERANCE),
            "u": bp.Sensors("u", at={"x": x, "t": t}, values=u, noise=NOISE),
            "v": bp.Sensors("v", at={"x": x, "t": t}, values=v, noise=NOISE),
        },
    )
    settings = bp.HMC(num_leapfrog=100, num_warmup=400, num_draws=500, target_accept=0.8)
    result = bp.infer(problem, method or settings, seed=0, progress=method is None)
    print(result.summary())

    a, band = result.draws("a"), result.predict("s", {"x": grid})  # s needs no t
    off = np.abs(band.mean - s_true(grid)) / band.sd
    print(f"a: {a.mean():.2f} ± {a.std():.2f}, truth {A}; s: sd {band.sd.mean():.3f}, at most {off.max():.1f} sd off")
    return result


if __name__ == "__main__":
    main()
