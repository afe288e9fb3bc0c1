"""Small problems for calibration: fields, equations and unknowns that are drawn from the prior many times."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bpinn as bp

INSIDE, FEW = np.linspace(-0.9, 0.9, 16), np.linspace(-1.0, 1.0, 6)


def reaction(u, u_xx, k):
    return 0.01 * u_xx + k * jnp.tanh(u)


def diffusion(u_x, u_xx, a, a_x):
    return a * u_xx + a_x * u_x


def kl_field() -> bp.Problem:
    """(a) A Karhunen-Loève field, a nonlinear equation, an unknown rate."""
    field = bp.KarhunenLoeve(bp.Exponential(0.5), terms=10)
    sensors = {
        "u": bp.Sensors("u", {"x": FEW}, 0.0, 0.1),
        "f": bp.Sensors(reaction, {"x": INSIDE}, 0.0, 0.1),
    }
    return bp.Problem({"x": (-1.0, 1.0)}, {"u": field}, sensors, {"k": dist.Normal(0.7, 0.5)})


def network() -> bp.Problem:
    """(b) A small Bayesian neural network, a nonlinear equation, an unknown rate."""
    sensors = {
        "u": bp.Sensors("u", {"x": FEW}, 0.0, 0.2),
        "f": bp.Sensors(reaction, {"x": INSIDE}, 0.0, 0.2),
    }
    return bp.Problem({"x": (-1.0, 1.0)}, {"u": bp.MLP(hidden=(8,))}, sensors, {"k": dist.Normal(0.7, 0.5)})


def inferred_noise() -> bp.Problem:
    """(c) Readings whose noise is inferred, and a rate that must be positive."""
    field = bp.KarhunenLoeve(bp.SquaredExponential(0.6), terms=4)
    sensors = {
        "u": bp.Sensors("u", {"x": np.linspace(-1, 1, 8)}, 0.0, dist.HalfNormal(0.4)),
        "f": bp.Sensors(reaction, {"x": FEW}, 0.0, 0.1),
    }
    return bp.Problem({"x": (-1.0, 1.0)}, {"u": field}, sensors, {"k": dist.LogNormal(-0.5, 0.7)})


def unknown_field() -> bp.Problem:
    """(d) An unknown that is a field of its own, a conductivity."""
    fields = {
        "u": bp.KarhunenLoeve(bp.SquaredExponential(0.6), terms=5),
        "a": bp.KarhunenLoeve(bp.SquaredExponential(1.0, sd=0.5), terms=3, mean=1.0),
    }
    sensors = {
        "u": bp.Sensors("u", {"x": np.linspace(-1, 1, 10)}, 0.0, 0.05),
        "f": bp.Sensors(diffusion, {"x": INSIDE}, 0.0, 0.3),
    }
    return bp.Problem({"x": (-1.0, 1.0)}, fields, sensors)


def inferred_scales() -> bp.Problem:
    """(e) A Gaussian process with an inferred length, amplitude and noise, a nonlinear equation, an unknown rate."""
    # With stated priors: the default ones follow the readings, so no truth could be drawn from them.
    kernel = bp.SquaredExponential(length=dist.LogNormal(-0.7, 0.4), amplitude=dist.LogNormal(0.0, 0.5))
    sensors = {
        "u": bp.Sensors("u", {"x": np.linspace(-1, 1, 12)}, 0.0, dist.HalfNormal(0.4)),
        "f": bp.Sensors(reaction, {"x": FEW}, 0.0, 0.2),
    }
    field = bp.GaussianProcess(kernel, mean=0.0)
    return bp.Problem({"x": (-1.0, 1.0)}, {"u": field}, sensors, {"k": dist.Normal(0.7, 0.5)})


def inferred_weights() -> bp.Problem:
    """(f) A small network whose weights have an inferred standard deviation, a nonlinear equation, an unknown rate."""
    sensors = {
        "u": bp.Sensors("u", {"x": np.linspace(-1, 1, 12)}, 0.0, 0.2),
        "f": bp.Sensors(reaction, {"x": FEW}, 0.0, 0.2),
    }
    field = bp.MLP(hidden=(6,), weight_sd=dist.HalfNormal(1.5))
    return bp.Problem({"x": (-1.0, 1.0)}, {"u": field}, sensors, {"k": dist.Normal(0.7, 0.5)})


PROBLEMS = {
    "a": kl_field,
    "b": network,
    "c": inferred_noise,
    "d": unknown_field,
    "e": inferred_scales,
    "f": inferred_weights,
}
