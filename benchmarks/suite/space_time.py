"""Problems in x and t: a pulse carried by a stream, a string, a spreading population, and heat with an unknown source.

The truths are closed forms, but for one spectral solution. The readings are taken at the start (t = 0), at the two ends
of x, and inside.
"""

from functools import cache

import numpy as np
import numpyro.distributions as dist

import bpinn as bp
from benchmarks.suite.case import Case, Function, exactly, precise, readings, smooth
from bpinn.physics import filled

Domain = dict[str, tuple[float, float]]


def read(u: Function, domain: Domain, noise: float, seed: int) -> dict[str, bp.Sensors]:
    """60 readings of u: 20 at the start, 8 at each end of x, and 24 inside."""
    rng = np.random.default_rng(seed)
    (low, high), (start, end) = domain["x"], domain["t"]
    times = np.linspace(start, end, 8)
    x, t = np.repeat([low, high], times.size), np.tile(times, 2)
    return {
        "start": readings("u", u, {"x": np.linspace(low, high, 20), "t": np.full(20, start)}, noise, rng),
        "ends": readings("u", u, {"x": x, "t": t}, noise, rng),
        "u": readings("u", u, filled(domain, 24), noise, rng),
    }


# --- advection and diffusion ---


def transport(u_t, u_x, u_xx, speed, diffusivity):
    return u_t + speed * u_x - diffusivity * u_xx


def advection_diffusion(seed: int = 0) -> Case:
    """A Gaussian pulse of a tracer, which moves downstream and spreads."""
    unknowns, domain = {"speed": 0.6, "diffusivity": 0.05}, {"x": (-1.0, 1.0), "t": (0.0, 1.0)}
    speed, diffusivity = unknowns.values()
    width, centre = 0.08, -0.3  # the variance and the place of the pulse at the start

    def u(x, t):
        variance = width + 2 * diffusivity * t
        return np.sqrt(width / variance) * np.exp(-((x - centre - speed * t) ** 2) / (2 * variance))

    problem = bp.Problem(
        domain=domain,
        fields={"u": smooth(domain)},
        unknowns={"speed": dist.Normal(0.0, 1.0), "diffusivity": dist.LogNormal(-2.0, 1.0)},
        sensors={"transport": exactly(transport, filled(domain, 200), 0.01, neutral=True)}
        | read(u, domain, 0.02, seed),
    )
    about = "advection and diffusion of a pulse; speed and diffusivity"
    return Case("advection_diffusion", problem, {"u": u}, unknowns, False, about)


# --- waves ---


def vibration(u_tt, u_xx, speed):
    return u_tt - speed**2 * u_xx


def wave(seed: int = 0) -> Case:
    """A string that is fixed at both ends and released at rest: its first two modes."""
    unknowns, domain = {"speed": 1.2}, {"x": (-1.0, 1.0), "t": (0.0, 1.5)}

    def u(x, t):
        modes = [(1.0, np.pi / 2), (0.3, np.pi)]
        return sum(a * np.sin(k * (x + 1)) * np.cos(unknowns["speed"] * k * t) for a, k in modes)

    rest = {"x": np.linspace(-1, 1, 12), "t": np.zeros(12)}
    problem = bp.Problem(
        domain=domain,
        fields={"u": smooth(domain)},
        unknowns={"speed": dist.LogNormal(0.6, 0.5)},
        sensors={
            "vibration": exactly(vibration, filled(domain, 200), 0.05, neutral=True),
            "rest": bp.Sensors("u_t", at=rest, values=0.0, noise=0.05),
            **read(u, domain, 0.04, seed),
        },
    )
    about = "wave equation; its speed"
    return Case("wave", problem, {"u": u}, unknowns, False, about)


# --- Fisher-KPP ---


def growth(u, u_t, u_xx, D, r):
    return u_t - D * u_xx - r * u * (1 - u)


@cache
def population(D: float, r: float, modes: int = 40) -> Function:
    """u for 0 <= t <= 1 between closed ends at x = -1 and 1: a cosine series in x, Runge-Kutta in t."""
    nodes = 2 * (np.arange(modes) + 0.5) / modes - 1
    wave_numbers = np.pi * np.arange(modes) / 2
    basis = np.cos(wave_numbers * (nodes[:, None] + 1))
    inverse = np.linalg.inv(basis)

    def slope(t, y):
        u = basis @ y
        return inverse @ (r * u * (1 - u)) - D * wave_numbers**2 * y

    start = inverse @ (0.8 * np.exp(3 * np.cos(np.pi * (nodes + 1) / 2) - 3))
    found = precise(slope, start, 1.0)

    def u(x, t):
        x, t = np.broadcast_arrays(x, t)
        times, number = np.unique(t.ravel(), return_inverse=True)
        series = np.cos(wave_numbers[:, None] * (x.ravel() + 1))
        return np.sum(found(times)[:, number] * series, axis=0).reshape(x.shape)

    return u


def fisher_kpp(seed: int = 0) -> Case:
    """A population that starts at the left end, spreads, and grows towards saturation."""
    unknowns, domain = {"D": 0.1, "r": 2.0}, {"x": (-1.0, 1.0), "t": (0.0, 1.0)}
    u = population(**unknowns)
    problem = bp.Problem(
        domain=domain,
        fields={"u": smooth(domain)},
        unknowns={"D": dist.LogNormal(-1.5, 1.0), "r": dist.LogNormal(0.0, 0.7)},
        sensors={"growth": exactly(growth, filled(domain, 200), 0.004, neutral=True)} | read(u, domain, 0.02, seed),
    )
    about = "Fisher-KPP; diffusivity and growth rate of a spreading population"
    return Case("fisher_kpp", problem, {"u": u}, unknowns, False, about)


# --- heat with an unknown source ---

CONDUCTIVITY = 0.2


def conduction(u_t, u_xx, s):
    return u_t - CONDUCTIVITY * u_xx - s


def heat_source(seed: int = 0, tolerance: float = 0.01) -> Case:
    """A rod between cold ends, heated by a steady source s(x), which is not read: it is to be found from u(x, t)."""
    domain = {"x": (-1.0, 1.0), "t": (0.0, 1.0)}
    modes = {1: 1.5, 2: 1.0, 3: -0.5}  # amplitudes of the source
    start = {1: 1.0, 2: -0.5}  # and of u at t = 0

    def mode(n, x):
        return np.sin(n * np.pi * (x + 1) / 2)

    def s(x):
        return sum(a * mode(n, x) for n, a in modes.items())

    def u(x, t):
        total = np.zeros(np.broadcast_shapes(np.shape(x), np.shape(t)))
        for n, a in modes.items():
            rate = CONDUCTIVITY * (n * np.pi / 2) ** 2
            fading = np.exp(-rate * t)
            total = total + mode(n, x) * (a / rate * (1 - fading) + start.get(n, 0.0) * fading)
        return total

    problem = bp.Problem(
        domain=domain,
        fields={
            "u": smooth(domain),
            "s": smooth({"x": domain["x"]}, terms=12),
        },
        sensors={"conduction": exactly(conduction, filled(domain, 200), tolerance, neutral=True)}
        | read(u, domain, 0.03, seed),
    )
    about = "heat equation with an unknown source field s(x)"
    return Case("heat_source", problem, {"u": u, "s": s}, {}, False, about)
