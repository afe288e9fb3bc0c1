"""What a problem of the suite is made of, and what the problems share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import bpinn as bp

Function = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Case:
    """A problem with its truth.

    ``truth_fields`` are functions of the field's own coordinates, in the order of the problem and by the same names.
    ``truth_unknowns`` are the values of the unknowns. ``in_one_variable`` marks ordinary differential equations.
    """

    name: str
    problem: bp.Problem
    truth_fields: dict[str, Function]
    truth_unknowns: dict[str, float]
    in_one_variable: bool
    about: str


def readings(of: str, truth: Function, at: Mapping[str, Any], noise: float, rng: np.random.Generator) -> bp.Sensors:
    """Readings of a field, with noise of a known standard deviation."""
    exact = np.asarray(truth(**at))
    return bp.Sensors(of, at=at, values=exact + noise * rng.standard_normal(exact.shape), noise=noise)


def exactly(equation: Function, at: Mapping[str, Any], tolerance: float, neutral: bool = False) -> bp.Sensors:
    """Exact physics: an equation that is zero at collocation points.

    ``neutral`` as `bp.Physics` has it by default for fields that are expansions.
    """
    return bp.Sensors(equation, at=at, values=0.0, noise=tolerance, neutral=neutral)


def precise(slope: Function, start: Any, end: float) -> Function:
    """The solution of ``y' = slope(t, y)`` from t = 0 by a Runge-Kutta method of order 8, to eleven digits."""
    return solve_ivp(slope, (0.0, end), start, method="DOP853", rtol=1e-11, atol=1e-12, dense_output=True).sol


def solution(slope: Function, start: list[float], end: float) -> list[Function]:
    """Each component of the same, as a function of t, of any shape."""
    found = precise(slope, start, end)

    def component(i: int) -> Function:
        return lambda t: found(np.ravel(t))[i].reshape(np.shape(t))

    return [component(i) for i in range(len(start))]


def smooth(
    domain: Mapping[str, tuple[float, float]],
    terms: int = 120,
    share: float = 0.25,
    amplitude: float = 1.0,
    **options: Any,
) -> bp.Field:
    """A smooth field of some coordinates: a Karhunen-Loève expansion whose lengths are a share of the domain.

    For hundreds of collocation points in several variables: without hidden weights chains need a twentieth of the
    gradients of a wide network. ``amplitude`` is the size of the field, as far as the readings show it.
    """
    kernels = tuple(
        bp.SquaredExponential(length=share * (high - low), amplitude=amplitude if i == 0 else 1.0)
        for i, (low, high) in enumerate(domain.values())
    )
    return bp.KarhunenLoeve(kernels, terms=terms, inputs=tuple(domain), **options)


def wide(last: int = 150, **options: Any) -> bp.MLP:
    """A network with a wide last layer, for many collocation points in several variables.

    Chains are fast where a field has about as many output weights as the equation has points: with 30 output weights
    for 200 points they are a hundred times slower. The output weights' prior keeps the spread of the field.
    """
    return bp.MLP(hidden=(30, last), weight_sd=(1.0, 1.0, round((30 / last) ** 0.5, 2)), **options)
