"""The problems of the B-PINNs paper (Yang, Meng, Karniadakis 2020), each with its truth.

Noise and sensors follow the paper; the docstrings state our choices where the paper gives none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bpinn.errors import InputError
from bpinn.fields import MLP, Field
from bpinn.problem import Problem, Sensors

Function = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Truth:
    """The truth behind the data: functions of the coordinates by name, and the values of the unknowns."""

    functions: dict[str, Function]
    unknowns: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Function | float:
        return self.functions[name] if name in self.functions else self.unknowns[name]


@dataclass(frozen=True)
class PaperProblem:
    """A problem of the paper with simulated readings, and the truth behind them.

    Example:
        >>> import bpinn as bp
        >>> bp.paper.inverse_reaction_1d(noise=0.1, seed=0).truth["k"]
        0.7
    """

    problem: Problem
    truth: Truth


# --- one dimension: u = sin^3(6 x) ---


def _u_1d(x: np.ndarray) -> np.ndarray:
    return np.sin(6 * x) ** 3


def _u_xx_1d(x: np.ndarray) -> np.ndarray:
    s, c = np.sin(6 * x), np.cos(6 * x)
    return 108 * (2 * s * c**2 - s**3)


def diffusion(u_xx):
    return 0.01 * u_xx


def nonlinear(u, u_xx):
    return 0.01 * u_xx + 0.7 * jnp.tanh(u)


def reaction(u, u_xx, k):
    return 0.01 * u_xx + k * jnp.tanh(u)


def _f_linear(x: np.ndarray) -> np.ndarray:
    return 0.01 * _u_xx_1d(x)


def _f_nonlinear(x: np.ndarray) -> np.ndarray:
    return 0.01 * _u_xx_1d(x) + 0.7 * np.tanh(_u_1d(x))


def regression(noise: float = 0.1, seed: int = 0, surrogate: Field | None = None) -> PaperProblem:
    """Function regression (Sec. 3.1): 16 equidistant readings in each of [-0.8, -0.2] and [0.2, 0.8]."""
    rng = _generator(noise, seed)
    x = np.concatenate([np.linspace(-0.8, -0.2, 16), np.linspace(0.2, 0.8, 16)])
    problem = Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": surrogate or MLP()},
        sensors={"u": Sensors("u", {"x": x}, _noisy(_u_1d(x), noise, rng), noise)},
    )
    return PaperProblem(problem, Truth({"u": _u_1d}))


def poisson_1d(noise: float = 0.1, seed: int = 0, surrogate: Field | None = None) -> PaperProblem:
    """Linear Poisson equation (Sec. 3.2.1): 16 sensors for f, u at both ends."""
    return _forward_1d(diffusion, _f_linear, 16, noise, seed, surrogate)


def nonlinear_1d(noise: float = 0.1, seed: int = 0, surrogate: Field | None = None) -> PaperProblem:
    """Nonlinear Poisson equation (Sec. 3.2.2): 32 sensors for f, u at both ends."""
    return _forward_1d(nonlinear, _f_nonlinear, 32, noise, seed, surrogate)


def _forward_1d(
    equation: Callable, f: Function, count: int, noise: float, seed: int, surrogate: Field | None
) -> PaperProblem:
    rng = _generator(noise, seed)
    x, ends = np.linspace(-0.7, 0.7, count), np.array([-0.7, 0.7])
    problem = Problem(
        domain={"x": (-0.7, 0.7)},
        fields={"u": surrogate or MLP()},
        sensors={
            "f": Sensors(equation, {"x": x}, _noisy(f(x), noise, rng), noise),
            "b": Sensors("u", {"x": ends}, _noisy(_u_1d(ends), noise, rng), noise),
        },
    )
    return PaperProblem(problem, Truth({"u": _u_1d, "f": f}))


def inverse_reaction_1d(noise: float = 0.1, seed: int = 0, surrogate: Field | None = None) -> PaperProblem:
    """Diffusion-reaction with unknown k (Sec. 3.3.1): 32 sensors for f, 6 for u inside, 2 at the ends.

    The ends have noise 0.01 at both noise levels, as in the paper. The prior k ~ N(0, 1) is our choice.
    """
    rng = _generator(noise, seed)
    x_f, x_u = np.linspace(-0.7, 0.7, 32), np.linspace(-0.7, 0.7, 8)
    inside, ends = x_u[1:-1], x_u[[0, -1]]
    problem = Problem(
        domain={"x": (-0.7, 0.7)},
        fields={"u": surrogate or MLP()},
        unknowns={"k": dist.Normal(0.0, 1.0)},
        sensors={
            "f": Sensors(reaction, {"x": x_f}, _noisy(_f_nonlinear(x_f), noise, rng), noise),
            "u": Sensors("u", {"x": inside}, _noisy(_u_1d(inside), noise, rng), noise),
            "b": Sensors("u", {"x": ends}, _noisy(_u_1d(ends), 0.01, rng), 0.01),
        },
    )
    return PaperProblem(problem, Truth({"u": _u_1d, "f": _f_nonlinear}, {"k": 0.7}))


# --- two dimensions: u = sin(pi x) sin(pi y) ---


def _u_2d(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sin(np.pi * x) * np.sin(np.pi * y)


def phase(u, u_xx, u_yy):
    return 0.01 * (u_xx + u_yy) + u * (u**2 - 1.0)


def reaction_2d(u, u_xx, u_yy, k):
    return 0.01 * (u_xx + u_yy) + k * u**2


def _f_phase(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    u = _u_2d(x, y)
    return -0.02 * np.pi**2 * u + u * (u**2 - 1.0)


def _f_reaction_2d(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    u = _u_2d(x, y)
    return -0.02 * np.pi**2 * u + u**2


def _square_boundary(count: int) -> dict[str, np.ndarray]:
    """``count`` equidistant points on each side of [-1, 1]^2."""
    side, one = np.linspace(-1.0, 1.0, count), np.ones(count)
    return {
        "x": np.concatenate([side, side, -one, one]),
        "y": np.concatenate([-one, one, side, side]),
    }


def allen_cahn_2d(noise: float = 0.1, seed: int = 0, surrogate: Field | None = None) -> PaperProblem:
    """Allen-Cahn equation (Sec. 3.2.3): 500 random sensors for f, 25 for u on each side."""
    rng = _generator(noise, seed)
    inside = {"x": rng.uniform(-1, 1, 500), "y": rng.uniform(-1, 1, 500)}
    rim = _square_boundary(25)
    problem = Problem(
        domain={"x": (-1.0, 1.0), "y": (-1.0, 1.0)},
        fields={"u": surrogate or MLP()},
        sensors={
            "f": Sensors(phase, inside, _noisy(_f_phase(**inside), noise, rng), noise),
            "b": Sensors("u", rim, _noisy(_u_2d(**rim), noise, rng), noise),
        },
    )
    return PaperProblem(problem, Truth({"u": _u_2d, "f": _f_phase}))


def inverse_reaction_2d(noise: float = 0.1, seed: int = 0, surrogate: Field | None = None) -> PaperProblem:
    """Diffusion-reaction with unknown k (Sec. 3.3.2): 100 random sensors for u and f, 25 on each side.

    The paper does not state its solution; ours is sin(pi x) sin(pi y) with k = 1. The sides have noise 0.01.
    """
    rng = _generator(noise, seed)
    inside = {"x": rng.uniform(-1, 1, 100), "y": rng.uniform(-1, 1, 100)}
    rim = _square_boundary(25)
    problem = Problem(
        domain={"x": (-1.0, 1.0), "y": (-1.0, 1.0)},
        fields={"u": surrogate or MLP()},
        unknowns={"k": dist.Normal(0.0, 1.0)},
        sensors={
            "f": Sensors(reaction_2d, inside, _noisy(_f_reaction_2d(**inside), noise, rng), noise),
            "u": Sensors("u", inside, _noisy(_u_2d(**inside), noise, rng), noise),
            "b": Sensors("u", rim, _noisy(_u_2d(**rim), 0.01, rng), 0.01),
        },
    )
    return PaperProblem(problem, Truth({"u": _u_2d, "f": _f_reaction_2d}, {"k": 1.0}))


def _generator(noise: float, seed: int) -> np.random.Generator:
    if not isinstance(noise, int | float) or not 0 < noise < np.inf:
        raise InputError(f"bp.paper: noise must be a positive number, got {noise!r}")
    return np.random.default_rng(seed)


def _noisy(values: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    return values + noise * rng.standard_normal(values.shape)
