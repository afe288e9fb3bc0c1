"""Problems in space: an unknown permeability, waves in a plane, a flow, and four dimensions."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.polynomial import chebyshev

import bpinn as bp
from benchmarks.suite.case import Case, Function, exactly, readings, smooth
from bpinn.physics import filled

SQUARE = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}


def rim(count: int) -> dict[str, np.ndarray]:
    """Points on the sides of the square, ``count`` on each."""
    along, one = np.linspace(-1, 1, count, endpoint=False), np.ones(count)
    return {"x": np.concatenate([along, one, -along, -one]), "y": np.concatenate([-one, along, one, -along])}


# --- Darcy flow ---


def source(x, y):
    return 5 * jnp.cos(jnp.pi * x / 2) * jnp.cos(jnp.pi * y / 2)


def darcy(k, k_x, k_y, u_x, u_y, u_xx, u_yy, x, y):
    return k * (u_xx + u_yy) + k_x * u_x + k_y * u_y + source(x, y)


def permeability(x, y):
    return np.exp(0.5 * np.sin(1.5 * x + 0.5) - 0.4 * np.cos(2 * y + x))


@cache
def pressure(degree: int = 24) -> Function:
    """The pressure u for this permeability and source, zero on the sides: Chebyshev collocation."""
    nodes = np.cos(np.pi * np.arange(degree + 1) / degree)
    basis = chebyshev.chebvander(nodes, degree)
    slopes = np.stack([chebyshev.chebval(nodes, chebyshev.chebder(c)) for c in np.eye(degree + 1)], axis=1)
    d = np.linalg.solve(basis.T, slopes.T).T  # from values at the nodes to derivatives there
    d_x, d_y = np.kron(d, np.eye(degree + 1)), np.kron(np.eye(degree + 1), d)
    x, y = (c.ravel() for c in np.meshgrid(nodes, nodes, indexing="ij"))
    k = permeability(x, y)[:, None]
    f = 5 * np.cos(np.pi * x / 2) * np.cos(np.pi * y / 2)
    inside = np.flatnonzero((np.abs(x) < 1) & (np.abs(y) < 1))
    operator = (d_x @ (k * d_x) + d_y @ (k * d_y))[np.ix_(inside, inside)]
    values = np.zeros(x.size)
    values[inside] = np.linalg.solve(operator, -f[inside])
    inverse = np.linalg.inv(basis)
    coefficients = inverse @ values.reshape(degree + 1, degree + 1) @ inverse.T
    return lambda x, y: chebyshev.chebval2d(x, y, coefficients)


def darcy_flow(seed: int = 0) -> Case:
    """Pressure u of ground water in a square, fed by a known source, with an unknown permeability k(x, y) > 0.

    60 readings of the pressure, of which 20 on the sides, and 12 of the permeability.
    """
    u = pressure()
    rng = np.random.default_rng(seed)
    problem = bp.Problem(
        domain=SQUARE,
        fields={"u": smooth(SQUARE), "k": smooth(SQUARE, terms=60, positive=True)},
        sensors={
            "darcy": exactly(darcy, filled(SQUARE, 200), 0.02, neutral=True),
            "sides": readings("u", u, rim(5), 0.02, rng),
            "u": readings("u", u, filled(SQUARE, 40), 0.02, rng),
            "k": readings("k", permeability, filled(SQUARE, 12, skip=41), 0.05, rng),
        },
    )
    about = "Darcy flow with an unknown permeability field k(x, y) > 0"
    return Case("darcy_flow", problem, {"u": u, "k": permeability}, {}, False, about)


# --- Helmholtz ---


def standing(u, u_xx, u_yy, k):
    return u_xx + u_yy + k**2 * u


def helmholtz(seed: int = 0) -> Case:
    """Two plane waves of one unknown wave number that cross: 60 readings, of which 32 on the sides."""
    unknowns = {"k": 3.0}

    def u(x, y):
        k, (one, other) = unknowns["k"], (0.3, 1.9)  # the directions in radians
        return np.cos(k * (x * np.cos(one) + y * np.sin(one))) + 0.5 * np.sin(
            k * (x * np.cos(other) + y * np.sin(other))
        )

    rng = np.random.default_rng(seed)
    problem = bp.Problem(
        domain=SQUARE,
        fields={"u": smooth(SQUARE)},
        unknowns={"k": dist.LogNormal(0.7, 0.5)},
        sensors={
            "standing": exactly(standing, filled(SQUARE, 200), 0.05, neutral=True),
            "sides": readings("u", u, rim(8), 0.05, rng),
            "u": readings("u", u, filled(SQUARE, 28), 0.05, rng),
        },
    )
    about = "Helmholtz equation; its wave number"
    return Case("helmholtz", problem, {"u": u}, unknowns, False, about)


# --- Kovasznay flow ---


def along_x(u, u_x, u_y, u_xx, u_yy, v, p_x, viscosity):
    return u * u_x + v * u_y + p_x - viscosity * (u_xx + u_yy)


def along_y(u, v, v_x, v_y, v_xx, v_yy, p_y, viscosity):
    return u * v_x + v * v_y + p_y - viscosity * (v_xx + v_yy)


def continuity(u_x, v_y):
    return u_x + v_y


def kovasznay(seed: int = 0) -> Case:
    """Kovasznay's flow behind a grid of period 2: steady Navier-Stokes equations for u, v and p.

    40 readings of each velocity and 10 of the pressure.
    """
    unknowns = {"viscosity": 0.1}
    half = 1 / (2 * unknowns["viscosity"])
    rate = half - np.sqrt(half**2 + np.pi**2)

    def u(x, y):
        return 1 - np.exp(rate * x) * np.cos(np.pi * y)

    def v(x, y):
        return rate / np.pi * np.exp(rate * x) * np.sin(np.pi * y)

    def p(x, y):
        return -np.exp(2 * rate * x) / 2 + 0 * y

    rng = np.random.default_rng(seed)
    inside, probes = filled(SQUARE, 150), filled(SQUARE, 40)
    problem = bp.Problem(
        domain=SQUARE,
        fields={name: smooth(SQUARE, amplitude=size) for name, size in {"u": 2.0, "v": 0.5, "p": 1.0}.items()},
        unknowns={"viscosity": dist.LogNormal(-1.5, 1.0)},
        sensors={
            "along_x": exactly(along_x, inside, 0.04, neutral=True),
            "along_y": exactly(along_y, inside, 0.008, neutral=True),
            "continuity": exactly(continuity, inside, 0.02, neutral=True),
            "u": readings("u", u, probes, 0.08, rng),
            "v": readings("v", v, probes, 0.02, rng),
            "p": readings("p", p, filled(SQUARE, 10, skip=41), 0.05, rng),
        },
    )
    about = "Kovasznay flow, three fields; its viscosity"
    return Case("kovasznay", problem, {"u": u, "v": v, "p": p}, unknowns, False, about)


# --- Poisson in four dimensions ---


def poisson(u_xx, u_yy, u_zz, u_ww, x, y, z, w, diffusivity):
    return diffusivity * (u_xx + u_yy + u_zz + u_ww) + 2 * jnp.sin(x + y) * jnp.cos(z - w)


def poisson_4d(seed: int = 0) -> Case:
    """Poisson's equation in a cube of four dimensions: 40 readings on its faces and 20 inside."""
    unknowns, domain = {"diffusivity": 0.5}, dict.fromkeys("xyzw", (-1.0, 1.0))

    def u(x, y, z, w):
        return np.sin(x + y) * np.cos(z - w) + z * w / 2

    faces = filled(domain, 40, skip=21)
    for i, points in enumerate(faces.values()):
        points[i::8], points[i + 4 :: 8] = -1.0, 1.0
    rng = np.random.default_rng(seed)
    problem = bp.Problem(
        domain=domain,
        fields={"u": smooth(domain, terms=400, share=0.75)},
        unknowns={"diffusivity": dist.LogNormal(0.0, 1.0)},
        sensors={
            "poisson": exactly(poisson, filled(domain, 300), 0.01, neutral=True),
            "faces": readings("u", u, faces, 0.04, rng),
            "u": readings("u", u, filled(domain, 20), 0.04, rng),
        },
    )
    about = "Poisson's equation in four dimensions; the diffusivity"
    return Case("poisson_4d", problem, {"u": u}, unknowns, False, about)
