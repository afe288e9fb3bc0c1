"""Problems in one variable: a pendulum, a neuron, an epidemic, chaos, an enzyme and a beam."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bpinn as bp
from benchmarks.suite.case import Case, exactly, readings, solution

# --- pendulum ---


def swing(u, u_t, u_tt, damping, stiffness):
    return u_tt + damping * u_t + stiffness * jnp.sin(u)


def pendulum(seed: int = 0, tolerance: float = 0.02) -> Case:
    """A damped pendulum, released at 1.5 rad: 20 readings of its angle."""
    unknowns, end, noise = {"damping": 0.3, "stiffness": 4.0}, 4.0, 0.05
    c, k = unknowns.values()
    u, _ = solution(lambda t, y: [y[1], -c * y[1] - k * np.sin(y[0])], [1.5, 0.0], end)
    rng = np.random.default_rng(seed)
    problem = bp.Problem(
        domain={"t": (0.0, end)},
        fields={"u": bp.MLP(hidden=(30, 30), scale_inputs=True)},
        unknowns={"damping": dist.LogNormal(-0.5, 0.8), "stiffness": dist.LogNormal(1.0, 0.5)},
        sensors={
            "swing": exactly(swing, {"t": np.linspace(0, end, 60)}, tolerance),
            "u": readings("u", u, {"t": np.linspace(0, end, 20)}, noise, rng),
        },
    )
    about = "damped pendulum; damping and stiffness from its angle"
    return Case("pendulum", problem, {"u": u}, unknowns, True, about)


# --- FitzHugh-Nagumo ---


def voltage(v, v_t, w, c):
    return v_t - c * (v - v**3 / 3 + w)


def recovery(v, w, w_t, a, b, c):
    return c * w_t + v - a + b * w


def fitzhugh_nagumo(seed: int = 0) -> Case:
    """A neuron that fires: 40 readings each of its voltage v and its recovery w."""
    unknowns, end, noise = {"a": 0.2, "b": 0.3, "c": 1.5}, 8.0, (0.08, 0.04)
    a, b, c = unknowns.values()
    v, w = solution(lambda t, y: [c * (y[0] - y[0] ** 3 / 3 + y[1]), (a - y[0] - b * y[1]) / c], [-1.0, 1.0], end)
    rng = np.random.default_rng(seed)
    inside, read = {"t": np.linspace(0, end, 100)}, {"t": np.linspace(0, end, 40)}
    network = bp.MLP(hidden=(30, 30), weight_sd=(2.0, 1.0, 1.0), scale_inputs=True)
    problem = bp.Problem(
        domain={"t": (0.0, end)},
        fields={"v": network, "w": network},
        unknowns={"a": dist.Normal(0.0, 0.5), "b": dist.Normal(0.0, 0.5), "c": dist.LogNormal(0.7, 0.5)},
        sensors={
            "voltage": exactly(voltage, inside, 0.02),
            "recovery": exactly(recovery, inside, 0.01),
            "v": readings("v", v, read, noise[0], rng),
            "w": readings("w", w, read, noise[1], rng),
        },
    )
    about = "FitzHugh-Nagumo neuron; three coefficients from voltage and recovery"
    return Case("fitzhugh_nagumo", problem, {"v": v, "w": w}, unknowns, True, about)


# --- SEIR ---

PEOPLE = 4.0  # in thousands


def infection(S, S_t, I, beta):  # noqa: E741
    return S_t + beta * S * I / PEOPLE


def incubation(S, E, E_t, I, beta, sigma):  # noqa: E741
    return E_t - beta * S * I / PEOPLE + sigma * E


def illness(E, I, I_t, sigma, gamma):  # noqa: E741
    return I_t - sigma * E + gamma * I


def seir(seed: int = 0) -> Case:
    """An epidemic among 4,000 people over eight weeks.

    20 counts each, in thousands, of the susceptible S, the exposed E and the infectious I.
    """
    unknowns, end = {"beta": 4.0, "sigma": 2.0, "gamma": 1.3}, 8.0
    beta, sigma, gamma = unknowns.values()

    def slope(t, y):
        new = beta * y[0] * y[2] / PEOPLE
        return [-new, new - sigma * y[1], sigma * y[1] - gamma * y[2]]

    truth = dict(zip("SEI", solution(slope, [3.9, 0.05, 0.05], end), strict=True))
    noise = {"S": 0.05, "E": 0.02, "I": 0.02}
    rng = np.random.default_rng(seed)
    inside, read = {"t": np.linspace(0, end, 60)}, {"t": np.linspace(0, end, 20)}
    problem = bp.Problem(
        domain={"t": (0.0, end)},
        fields={name: bp.MLP(hidden=(20, 20), scale_inputs=True) for name in truth},
        unknowns={
            "beta": dist.LogNormal(1.0, 0.7),
            "sigma": dist.LogNormal(0.0, 0.7),
            "gamma": dist.LogNormal(0.0, 0.7),
        },
        sensors={
            "infection": exactly(infection, inside, 0.01),
            "incubation": exactly(incubation, inside, 0.01),
            "illness": exactly(illness, inside, 0.01),
            **{name: readings(name, truth[name], read, noise[name], rng) for name in truth},
        },
    )
    about = "SEIR epidemic; rates of infection, incubation and recovery from counts"
    return Case("seir", problem, truth, unknowns, True, about)


# --- Lorenz 63, all fields in units of 10 ---


def first(x, x_t, y, sigma):
    return x_t - sigma * (y - x)


def second(x, y, y_t, z, rho):
    return y_t - x * (rho - 10 * z) + y


def third(x, y, z, z_t, beta):
    return z_t - 10 * x * y + beta * z


def lorenz(seed: int = 0) -> Case:
    """Lorenz's system of 1963 over a short window, in units of 10: 40 readings of each field."""
    unknowns, end, noise = {"sigma": 10.0, "rho": 28.0, "beta": 8 / 3}, 1.2, 0.05
    sigma, rho, beta = unknowns.values()

    def slope(t, q):
        x, y, z = q
        return [sigma * (y - x), x * (rho - 10 * z) - y, 10 * x * y - beta * z]

    truth = dict(zip("xyz", solution(slope, [1.0, 1.0, 1.5], end), strict=True))
    rng = np.random.default_rng(seed)
    inside, read = {"t": np.linspace(0, end, 100)}, {"t": np.linspace(0, end, 40)}
    problem = bp.Problem(
        domain={"t": (0.0, end)},
        fields={name: bp.MLP(hidden=(30, 30), weight_sd=(2.0, 1.0, 1.0), scale_inputs=True) for name in truth},
        unknowns={
            "sigma": dist.LogNormal(2.0, 0.5),
            "rho": dist.LogNormal(3.0, 0.5),
            "beta": dist.LogNormal(0.5, 0.7),
        },
        sensors={
            "first": exactly(first, inside, 0.1),
            "second": exactly(second, inside, 0.1),
            "third": exactly(third, inside, 0.1),
            **{name: readings(name, truth[name], read, noise, rng) for name in truth},
        },
    )
    about = "Lorenz 63 over a short window; its three coefficients"
    return Case("lorenz", problem, truth, unknowns, True, about)


# --- Michaelis-Menten ---


def kinetics(s, s_t, Vmax, Km):
    return (Km + s) * s_t + Vmax * s  # without a quotient, which would be singular at s = -Km


def michaelis_menten(seed: int = 0) -> Case:
    """An enzyme consumes its substrate s: 20 readings of it."""
    unknowns, end, noise = {"Vmax": 1.0, "Km": 0.5}, 4.0, 0.03
    Vmax, Km = unknowns.values()
    (s,) = solution(lambda t, y: -Vmax * y / (Km + y), [2.0], end)
    rng = np.random.default_rng(seed)
    problem = bp.Problem(
        domain={"t": (0.0, end)},
        fields={"s": bp.GaussianProcess()},
        unknowns={"Vmax": dist.LogNormal(0.5, 0.7), "Km": dist.LogNormal(0.0, 0.7)},
        sensors={
            "kinetics": exactly(kinetics, {"t": np.linspace(0, end, 40)}, 0.01, neutral=True),
            "s": readings("s", s, {"t": np.linspace(0, end, 20)}, noise, rng),
        },
    )
    about = "Michaelis-Menten kinetics; Vmax and Km from the substrate"
    return Case("michaelis_menten", problem, {"s": s}, unknowns, True, about)


# --- beam ---


def bending(u_xxxx, E):
    return E * u_xxxx - 1.0


def beam(seed: int = 0) -> Case:
    """A beam under a load of one, clamped at x = -1 and free at x = 1: 16 readings of its deflection u."""
    unknowns, noise = {"E": 1.5}, 0.02

    def u(x):
        s = x + 1
        return s**2 * (24 - 8 * s + s**2) / (24 * unknowns["E"])

    rng = np.random.default_rng(seed)
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(20, 20), weight_sd=(1.0, 0.5, 0.5))},
        unknowns={"E": dist.LogNormal(0.0, 1.0)},
        sensors={
            "bending": exactly(bending, {"x": np.linspace(-1, 1, 30)}, 0.01),
            "clamp": bp.Sensors("u", at={"x": [-1.0]}, values=0.0, noise=0.01),
            "clamp_slope": bp.Sensors("u_x", at={"x": [-1.0]}, values=0.0, noise=0.01),
            "moment": bp.Sensors("u_xx", at={"x": [1.0]}, values=0.0, noise=0.01),
            "shear": bp.Sensors("u_xxx", at={"x": [1.0]}, values=0.0, noise=0.01),
            "u": readings("u", u, {"x": np.linspace(-0.9, 1, 16)}, noise, rng),
        },
    )
    about = "cantilever beam, of fourth order; its stiffness from the deflection"
    return Case("beam", problem, {"u": u}, unknowns, True, about)
