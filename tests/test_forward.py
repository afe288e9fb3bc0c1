"""Forward check: the equations, solved with the draws' unknowns, agree with right models and disagree with wrong ones.

Draws are made by hand: each field follows a given function to many digits, and unknowns have given values. A right draw
is a solution of its equation with its unknowns. A wrong one follows readings of another law, as a field with a loose
tolerance does.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.polynomial import Chebyshev
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import bpinn as bp
from bpinn.forward.comparison import ForwardCheck, ReadingsCompared
from bpinn.forward.lines import barycentric, chebyshev
from bpinn.forward.system import System, interpolated
from bpinn.parameters import Parameters
from bpinn.plot.drawing import SOLUTIONS

NOISE = 0.02


@dataclass(frozen=True, kw_only=True)
class Polynomial(bp.Field):
    """A field that follows any smooth function: coefficients of Chebyshev polynomials up to a degree in each input."""

    degree: int = 30

    def size(self, bounds):
        return (self.degree + 1) ** len(bounds)

    def prior_sd(self, bounds):
        return np.ones(self.size(bounds))

    def unflatten(self, theta, bounds):
        return theta

    def matrix(self, points, index, bounds):
        """(points, coefficients) of one derivative."""
        found = np.ones((len(points), 1))
        for x, order, (low, high) in zip(points.T, index, bounds, strict=True):
            basis = [Chebyshev.basis(k, (low, high)).deriv(order)(x) for k in range(self.degree + 1)]
            found = (found[:, :, None] * np.stack(basis, axis=1)[:, None, :]).reshape(len(points), -1)
        return found

    def prepare(self, points, requests, bounds):
        return [
            [jnp.asarray(self.matrix(x, index, bounds)) for index in self.needed([request])[0]]
            for x, request in zip(points, requests, strict=True)
        ]

    def raw(self, theta, prepared, wanted):
        return [
            {index: matrix @ theta for index, matrix in zip(request, matrices, strict=True)}
            for request, matrices in zip(wanted.requests, prepared, strict=True)
        ]

    def following(self, function, bounds):
        """The coefficients of a function."""
        nodes = [low + (high - low) * 0.5 * (1 - np.cos(np.pi * np.arange(2 * self.degree) / (2 * self.degree - 1)))
                 for low, high in bounds]  # fmt: skip
        points = np.stack([a.ravel() for a in np.meshgrid(*nodes, indexing="ij")], axis=1)
        return np.linalg.lstsq(self.matrix(points, (0,) * len(bounds), bounds), function(*points.T), rcond=None)[0]


def made(problem, draws):
    """A result with given draws: of each field a function of its coordinates, of each unknown a value."""
    with jax.enable_x64(True):
        posterior, parameters = bp.Posterior(problem), Parameters(problem)
        z = np.zeros((len(draws), parameters.dim))
        for name, field in problem.fields.items():
            for row, draw in zip(z, draws, strict=True):
                row[parameters.slices[name]] = field.following(draw[name], problem.bounds(name))
        for scalar in parameters.scalars:
            for row, draw in zip(z, draws, strict=True):
                row[parameters.slices[scalar.name]] = np.ravel(scalar.transform.inv(jnp.asarray(draw[scalar.name])))
        functionals = np.stack([posterior.model.functionals(row, posterior.data) for row in z])[None]
    stats = {"log_density": np.zeros((1, len(draws)))}
    return bp.Result(problem, bp.HMC(), 0, z[None], functionals, stats)


def alternating(values, noise=NOISE):
    """Readings that are one standard deviation of the noise off, up and down."""
    return values + noise * (-1.0) ** np.arange(len(values))


def problem_of(laws, fields, domain, unknowns, read, points=30):
    """Equations that hold up to a loose tolerance, and readings of fields: their positions and true values."""
    sensors = {law.__name__: bp.Physics(law, points, tolerance=0.1) for law in laws}
    for name, (at, values) in read.items():
        sensors[name] = bp.Sensors(name, at, alternating(values), noise=NOISE)
    return bp.Problem(domain, fields, sensors, {name: dist.LogNormal(0.0, 1.0) for name in unknowns})


def one(law, truth, names, domain=(0.0, 5.0), coordinate="t"):
    """A problem of one field u of one coordinate."""
    at = np.linspace(*domain, 21)
    return problem_of([law], {"u": Polynomial()}, {coordinate: domain}, names, {"u": ({coordinate: at}, truth(at))})


# --- five kinds of equations: what is right, what is not, and the solutions in closed form ---


def decay(u, u_t, k):
    return u_t + k * u


def oscillation(u, u_t, u_tt, c, s):
    return u_tt + c * u_t + s * u


def undamped(u, u_tt, s):
    return u_tt + s * u


def decayed(k):
    return lambda t: 2 * np.exp(-k * t)


def swinging(c, s):
    w = np.sqrt(s - c**2 / 4)
    return lambda t: np.exp(-c * t / 2) * (np.cos(w * t) + c / (2 * w) * np.sin(w * t))


def prey(v, v_t, w, a):
    return v_t - a * v + v * w


def predators(v, w, w_t, b):
    return w_t + b * w - v * w


def hunted(a, b, shelter=0.0):
    found = solve_ivp(
        lambda t, y: [a * y[0] - y[0] * y[1] - shelter * y[0] ** 2, -b * y[1] + y[0] * y[1]],
        (0, 5), [1.5, 0.6], method="DOP853", rtol=1e-10, atol=1e-12, dense_output=True,
    ).sol  # fmt: skip
    return {"v": lambda t: found(t)[0], "w": lambda t: found(t)[1]}


def diffusion(u, u_xx, k):
    return 0.01 * u_xx - k * u + 1.0


def diffused(k, source=0.0):
    """With source times sin(pi x / 2) beside the constant one; cosh(x / length) grows to 22026."""
    return lambda x: (
        (1 - np.cosh(x * np.sqrt(k / 0.01)) / np.cosh(np.sqrt(k / 0.01))) / k
        + source * np.sin(np.pi * x / 2) / (0.01 * np.pi**2 / 4 + k)
    )


def bending(u_xxxx, E):
    return E * u_xxxx - 1.0


def bent(E, load=0.0):
    """Clamped at -1, free at 1; and another load, that of x**2."""
    return lambda x: (x + 1) ** 2 * (24 - 8 * (x + 1) + (x + 1) ** 2) / (24 * E) + load * x**6 / 360


RATES = np.linspace(0.99, 1.01, 5)
CASES = {
    "decay": lambda: (
        one(decay, decayed(0.8), "k"),
        [{"u": decayed(0.8 * f), "k": 0.8 * f} for f in RATES],
        one(decay, lambda t: 0.6 + 1.4 * np.exp(-1.2 * t), "k"),
        [{"u": lambda t: 0.6 + 1.4 * np.exp(-1.2 * t), "k": 0.4 * f} for f in RATES],
    ),
    "oscillator": lambda: (
        one(oscillation, swinging(0.3, 4.0), "cs"),
        [{"u": swinging(0.3 * f, 4 / f**0.3), "c": 0.3 * f, "s": 4.0 / f**0.3} for f in RATES],
        one(undamped, swinging(0.3, 4.0), "s"),
        [{"u": swinging(0.3, 4.0), "s": 4.0 * f} for f in RATES],
    ),
    "system": lambda: (
        hunting(hunted(1.0, 1.2)),
        [hunted(f, 1.2) | {"a": f, "b": 1.2} for f in RATES],
        hunting(hunted(1.0, 1.2, 0.2)),
        [hunted(1.0, 1.2, 0.2) | {"a": 0.9 * f, "b": 1.2} for f in RATES],
    ),
    "boundary": lambda: (
        one(diffusion, diffused(1.0), "k", (-1.0, 1.0), "x"),
        [{"u": diffused(f), "k": f} for f in RATES],
        one(diffusion, diffused(1.0, 0.5), "k", (-1.0, 1.0), "x"),
        [{"u": diffused(1.0, 0.5), "k": f} for f in RATES],
    ),
    "beam": lambda: (
        one(bending, bent(1.5), "E", (-1.0, 1.0), "x"),
        [{"u": bent(1.5 * f), "E": 1.5 * f} for f in RATES],
        one(bending, bent(1.5, 50.0), "E", (-1.0, 1.0), "x"),
        [{"u": bent(1.5, 50.0), "E": 1.5 * f} for f in RATES],
    ),
    "transport": lambda: (
        transported(carried(0.5, 0.06)),
        [{"u": carried(0.5, 0.06 * f), "d": 0.06 * f} for f in RATES],
        transported(carried(-0.3, 0.06)),
        [{"u": carried(-0.3, 0.06), "d": 0.06 * f} for f in RATES],
    ),
}  # fmt: skip


def hunting(truth):
    at = np.linspace(0, 5, 21)
    read = {name: ({"t": at}, truth[name](at)) for name in "vw"}
    return problem_of([prey, predators], {"v": Polynomial(), "w": Polynomial()}, {"t": (0.0, 5.0)}, "ab", read)


def transport(u_t, u_x, u_xx, d):
    return u_t + 0.5 * u_x - d * u_xx


def carried(speed, d):
    def u(x, t):
        width = 0.1 + 2 * d * t
        return np.sqrt(0.1 / width) * np.exp(-((x + 0.2 - speed * t) ** 2) / (2 * width))

    return u


def transported(truth):
    x, t = (a.ravel() for a in np.meshgrid(np.linspace(-0.9, 0.9, 7), np.linspace(0, 1, 5)))
    read = {"u": ({"x": x, "t": t}, truth(x, t))}
    fields = {"u": Polynomial(degree=13)}
    return problem_of([transport], fields, {"x": (-1.0, 1.0), "t": (0.0, 1.0)}, "d", read)


@pytest.mark.parametrize("name", CASES)
def test_right_models_agree_and_wrong_ones_do_not(name):
    right, draws, wrong, others = CASES[name]()
    check = bp.forward_check(made(right, draws))
    assert check.verdict == "agrees", str(check)
    for field in check.fields:
        truth = np.stack([draw[field.name](*field.at.values()) for draw in draws])
        assert np.max(np.abs(field.solved - truth)) < 2e-3 * np.max(np.abs(truth))
        assert field.relative < 1e-3
    for group in check.readings:  # the middle draw is the truth, and the readings are one sd off
        assert abs(np.sqrt(np.mean(group.solved[2] ** 2)) - 1) < 0.05
    result = made(wrong, others)
    check = bp.forward_check(result)
    assert check.verdict == "disagrees", str(check)
    assert result.forward_noted == check.reasons
    assert any("do not reproduce the readings" in reason for reason in check.reasons)
    assert "missing term" in str(check)
    for group in check.readings:  # the field follows them
        assert abs(group.drawn_misfit - 1) < 0.05


def test_a_summary_says_that_a_check_disagreed():
    """Below the verdict, which stays; in text and in notebooks; until a later check agrees."""
    right, draws, wrong, others = CASES["decay"]()
    for problem, values, disagrees in ((right, draws, False), (wrong, others, True)):
        result = made(problem, values)
        before, verdict = str(result.summary()), result.diagnose().verdict
        assert "Forward check" not in before
        check = bp.forward_check(result)
        after = result.summary()
        assert result.diagnose().verdict == verdict
        assert ("the equations, solved with these unknowns, disagree:" in str(after)) == disagrees
        assert all(f"  - {reason}" in str(after) for reason in check.reasons)
        for shown in (after, result):
            assert ("forward check: disagrees" in shown._repr_html_()) == disagrees
        result.forward_noted.append("old")
        bp.forward_check(result)
        assert "old" not in str(result.summary())


# --- the solvers, by closed forms ---


def solved(problem, draws, **options):
    check = bp.forward_check(made(problem, draws), **options)
    assert not check.unsolved, str(check)
    return check


def farthest(check, truth):
    """The largest difference from a true solution of the first draw."""
    (field,) = check.fields
    return np.max(np.abs(field.solved[0] - truth(*field.at.values())))


def test_an_equation_is_solved_for_its_highest_derivative():
    """A slope that is given only implicitly: s + s**3 = -u, whose solution takes the time int (1 + 3 s**2) / s ds."""

    def implicit(u, u_t):
        return u_t + u_t**3 + u

    def u(t):
        def slope(t):  # log(s) + 3/2 s**2 falls by t, from s = -1 at u = 2
            f = lambda s: np.log(s) + 1.5 * s**2 - 1.5 + t
            return -brentq(f, 1e-9, 1.0)

        s = np.vectorize(slope)(t)
        return -s - s**3

    problem = one(implicit, u, "", (0.0, 2.0))
    assert farthest(solved(problem, [{"u": u}]), u) < 1e-4


def test_coefficients_that_vary_come_from_the_draws():
    """(k u')' = -1 with k = 1 + x: the field of the highest derivative is solved for, k and k_x are taken as they are."""

    def flow(k, k_x, u_x, u_xx):
        return k * u_xx + k_x * u_x + 1.0

    def u(x):
        return -x + 2 * np.log(1 + x)

    at = np.linspace(0, 1, 9)
    fields = {"u": Polynomial(), "k": Polynomial()}
    problem = problem_of([flow], fields, {"x": (0.0, 1.0)}, "", {"u": ({"x": at}, u(at))})
    draws = [{"u": u, "k": lambda x: 1 + x}]
    check = solved(problem, draws)
    assert check.kind == "boundary"
    assert [field.name for field in check.fields] == ["u"]
    assert farthest(check, u) < 1e-4
    assert farthest(solved(problem, draws, kind="initial"), u) < 1e-4
    with pytest.raises(bp.InputError, match="fields must name 1 of u, k"):
        bp.forward_check(made(problem, draws), fields=("u", "k"))


def test_fields_without_a_derivative_follow_from_their_equation():
    """u' = -v with v = u**2; the sum of u and w is conserved, which follows from their slopes."""

    def slope(u_t, v):
        return u_t + v

    def square(u, v):
        return v - u**2

    def gain(v, w_t):
        return w_t - v

    def total(u, w):
        return u + w - 1.0

    truth = {"u": lambda t: 1 / (1 + t), "v": lambda t: 1 / (1 + t) ** 2, "w": lambda t: t / (1 + t)}
    at = np.linspace(0, 2, 6)
    read = {"v": ({"t": at}, truth["v"](at))}
    for laws, names in (((slope, square), "uv"), ((slope, square, gain, total), "uvw")):
        problem = problem_of(laws, {name: Polynomial() for name in names}, {"t": (0.0, 2.0)}, "", read)
        check = solved(problem, [truth])
        assert [field.name for field in check.fields] == list(names)
        for field in check.fields:
            assert np.max(np.abs(field.solved[0] - truth[field.name](field.at["t"]))) < 1e-4


def test_waves_and_transport_without_diffusion():
    domain = {"x": (-1.0, 1.0), "t": (0.0, 1.0)}

    def wave(u_tt, u_xx, speed):
        return u_tt - speed**2 * u_xx

    def advection(u_t, u_x, speed):
        return u_t - speed * u_x

    def standing(x, t):
        return np.sin(2 * (x + 1)) * np.cos(2.4 * t)

    def moving(x, t):
        return np.exp(-2 * (x + 1.2 * t) ** 2)

    for law, u in ((wave, standing), (advection, moving)):
        at = {"x": np.linspace(-0.5, 0.5, 5), "t": np.full(5, 0.5)}
        problem = problem_of([law], {"u": Polynomial(degree=14)}, domain, ["speed"], {"u": (at, u(**at))})
        check = solved(problem, [{"u": u, "speed": 1.2}, {"u": u, "speed": 1.21}])
        assert check.kind == "lines"
        assert farthest(check, u) < 1e-3
        assert check.verdict == "agrees"


def test_a_right_hand_side_is_a_number_or_a_given_function():
    """u'' = 2 is stated by the readings themselves; u'' = 6 x by a function."""

    def curvature(u_xx):
        return u_xx + 0.0

    x = np.linspace(0, 1, 12)
    for values, u, sources in ((2.0, lambda x: x**2, None), (6 * x, lambda x: x**3, {"f": lambda x: 6 * x})):
        sensors = {
            "f": bp.Sensors(curvature, {"x": x}, values, noise=0.1),
            "u": bp.Sensors("u", {"x": x}, u(x), noise=0.1),
        }
        result = made(bp.Problem({"x": (0.0, 1.0)}, {"u": Polynomial()}, sensors), [{"u": u}])
        assert farthest(bp.forward_check(result, sources=sources), u) < 1e-5
    with pytest.raises(bp.InputError, match="known only by its readings; give it as a function"):
        bp.forward_check(result)
    with pytest.raises(bp.InputError, match="failed as a function of x"):
        bp.forward_check(result, sources={"f": lambda y: y})


def test_readings_of_anything_are_compared():
    """Averages, derivatives and functions of the solved field, inferred noise, and counts; conditions are not."""

    def growth(u, u_t):
        return u_t - 0.5 * u

    def u(t):
        return np.exp(0.5 * t)

    def double(u, gain):
        return gain * u

    t = np.linspace(0.2, 3.8, 10)
    average = (u(t + 0.2) - u(t - 0.2)) / (0.4 * 0.5)
    off = 0.02 * (-1.0) ** np.arange(10)
    sensors = {
        "law": bp.Physics(growth, tolerance=0.1),
        "average": bp.Sensors(bp.Average("u", {"t": (t - 0.2, t + 0.2)}), {}, average + off, noise=0.02),
        "slope": bp.Sensors("u_t", {"t": t}, 0.5 * u(t) + off, noise=0.01),
        "double": bp.Sensors(double, {"t": t}, 2 * u(t) + off, noise=dist.LogNormal(0.0, 1.0)),
        "count": bp.Sensors("u", {"t": t}, np.round(u(t)), likelihood="poisson"),
        "curvature": bp.Sensors("u_tt", {"t": t}, 0.25 * u(t), noise=0.1),
        "start": bp.Sensors("u", {"t": [0.0, 0.0]}, 1.0, noise=0.1),
    }
    problem = bp.Problem({"t": (0.0, 4.0)}, {"u": Polynomial()}, sensors, {"gain": dist.LogNormal(0.0, 1.0)})
    check = solved(problem, [{"u": u, "gain": 2.0, "noise_double": 0.04}])
    found = {group.name: group for group in check.readings}
    assert set(found) == {"average", "slope", "double", "count"}
    for name, misfit in {"average": 1.0, "slope": 2.0, "double": 0.5}.items():
        assert abs(found[name].solved_misfit - misfit) < 0.01
        assert abs(found[name].drawn_misfit - misfit) < 0.02
    assert found["count"].solved_misfit < 1.5


# --- what cannot be solved ---


def test_a_singular_equation_is_said_to_be_so_with_its_place():
    def singular(u, u_t, t):
        return (t - 1.0) * u_t - u + 1.0

    problem = one(singular, lambda t: t, "", (0.0, 2.0))
    check = bp.forward_check(made(problem, [{"u": lambda t: t}] * 3))
    assert check.verdict == "unsolved"
    assert len(check.unsolved) == 3
    assert "the equations are singular: they do not determine u_t, at t=1" in str(check)
    with pytest.raises(bp.InputError, match="could not be solved for any draw"):
        bp.plot.forward(check)
    undefined = one(lambda u, u_t: u_t + jnp.log(u - 5.0), lambda t: t, "", (0.0, 2.0))
    assert "the equations are not finite, at t=0" in str(bp.forward_check(made(undefined, [{"u": lambda t: t}])))


def test_a_solution_that_blows_up_is_counted():
    def explosion(u, u_t, k):
        return u_t - k * u**2

    problem = one(explosion, lambda t: 1 / (2 - t), "k", (0.0, 1.0))
    draws = [{"u": lambda t: 1 / (2 - t), "k": k} for k in (1.0, 1.0, 1.0, 5.0)]
    check = bp.forward_check(made(problem, draws))
    assert check.verdict == "agrees"
    assert check.tried == 4
    (reason,) = check.unsolved
    assert "grows without bound" in reason
    assert "near t=0.4" in reason  # where 1 / (2 - 5 t) is infinite
    assert "1 of 4 draws could not be solved for" in str(check)


def undrawn(problem):
    """A result whose draws are all zero: what is refused is refused before they are looked at."""
    z = np.zeros((1, 2, Parameters(problem).dim))
    return bp.Result(problem, bp.HMC(), 0, z, np.zeros((1, 2, 0)), {"log_density": np.zeros((1, 2))})


def in_plane(law, coordinates, **fields):
    domain = dict.fromkeys(coordinates, (0.0, 1.0))
    return bp.Problem(domain, fields or {"u": bp.MLP(hidden=(4,))}, {"law": bp.Physics(law, 20, tolerance=0.1)})


def test_what_is_not_solved_is_refused():
    small = bp.MLP(hidden=(4,))

    def two(u, u_x, w_x):
        return u_x + w_x

    def mixed(u_t, u_xxt, u_xx):
        return u_t - u_xxt - u_xx

    def elliptic(u_t, w, w_xx):
        return u_t + w_xx + w

    def odd(u_t, u_xxx):
        return u_t + u_xxx

    refused = {
        "3 coordinates": in_plane(lambda u_xx, u_yy, u_t: u_t - u_xx - u_yy, "xyt"),
        "none of them is called t": in_plane(lambda u_xx, u_yy: u_xx + u_yy, "xy"),
        "say which ones are solved for": in_plane(two, "x", u=small, w=small),
        "u_xxt is the highest derivative": in_plane(mixed, "xt"),
        "even orders": in_plane(odd, "xt"),
        "they must be equally many": bp.Problem(
            {"t": (0.0, 1.0)}, {"u": small},
            {n: bp.Physics(f, 9, tolerance=0.1) for n, f in {"a": lambda u_t: u_t, "b": lambda u, u_t: u_t + u}.items()},
        ),
        "no equation is stated": bp.Problem(
            {"t": (0.0, 1.0)}, {"u": small}, {"u": bp.Sensors("u", {"t": [0.0, 0.5]}, [0.0, 1.0], noise=0.1)}
        ),
    }  # fmt: skip
    for words, problem in refused.items():
        with pytest.raises(bp.InputError, match=words):
            bp.forward_check(undrawn(problem))
    result = undrawn(in_plane(lambda u, u_t: u_t + u, "t"))
    for options, words in {
        "expected a result": ("result", {}), "whole number": (result, {"draws": 0}),
        "kind must be": (result, {"kind": "both"}), "need values at one end": (result, {"kind": "boundary"}),
        "dictionary of functions": (result, {"sources": 3}), "known sensors: law": (result, {"sources": {"f": abs}}),
        "must be a function": (result, {"sources": {"law": 3.0}}),
    }.items():  # fmt: skip
        with pytest.raises(bp.InputError, match=options):
            bp.forward_check(words[0], **words[1])


def test_what_has_no_time_derivative_is_refused():
    def carried(u_t, u_x, w):
        return u_t + w * u_x

    def instant(u, w_xx):
        return w_xx - u

    laws = {f.__name__: bp.Physics(f, 20, tolerance=0.1) for f in (carried, instant)}
    small = bp.MLP(hidden=(4,))
    problem = bp.Problem({"x": (0.0, 1.0), "t": (0.0, 1.0)}, {"u": small, "w": small}, laws)
    with pytest.raises(bp.InputError, match="no equation has a derivative of 'w' in t"):
        bp.forward_check(undrawn(problem))


# --- numerics ---


def test_points_and_matrices():
    x, matrix = chebyshev(-1.0, 3.0, 20)
    assert (x[0], x[-1]) == (-1.0, 3.0)
    assert np.allclose(matrix @ np.exp(x), np.exp(x), atol=1e-8)
    at = np.array([-1.0, 0.123, x[7], 2.9])
    assert np.allclose(barycentric(x, at) @ np.exp(x), np.exp(at), atol=1e-12)
    table = np.stack([np.arange(10.0) ** 3, np.arange(10.0)])
    assert np.allclose(interpolated(table, np.array([0.0, 0.5, 4.2, 9.0])), [[0, 0.125, 4.2**3, 729], [0, 0.5, 4.2, 9]])


def test_an_equation_is_solved_where_it_is_stated():
    """Not in the half of the domain that it says nothing about."""
    t = np.linspace(0, 2, 20)
    sensors = {
        "law": bp.Sensors(lambda u, u_t: u_t + u, {"t": t}, 0.0, noise=0.1),
        "u": bp.Sensors("u", {"t": [1.0, 3.0]}, [0.4, 0.0], noise=0.1),
    }
    system = System.of(bp.Problem({"t": (0.0, 4.0)}, {"u": Polynomial()}, sensors))
    assert system.region == {"t": (0.0, 2.0)}
    check = bp.forward_check(made(system.problem, [{"u": lambda t: np.exp(-t)}]))
    (group,) = check.readings
    assert group.values.tolist() == [0.4]


# --- what is shown ---


def scattered(common, scatter, noise=1.0, count=40, draws=20):
    """Readings whose solutions are off by a common error and by scatter, in units of the noise; the field fits."""
    rng = np.random.default_rng(0)
    drawn = np.tile(rng.standard_normal(count), (draws, 1)) * noise
    solved = drawn + common * np.sin(np.arange(count)) + scatter * rng.standard_normal((draws, 1))
    zero = np.zeros(count)
    group = ReadingsCompared("u", "u", {"t": zero}, zero, np.zeros((draws, count)), solved, drawn)
    return ForwardCheck("initial", (), (group,), draws, (), freedom=3)


@pytest.mark.parametrize(
    ("options", "verdict", "words"),
    [
        ({"common": 0.3, "scatter": 0.3}, "agrees", None),
        ({"common": 2.0, "scatter": 0.3}, "disagrees", "do not reproduce the readings"),
        ({"common": 0.0, "scatter": 1.6}, "agrees", "scatter around the readings"),
        ({"common": 0.0, "scatter": 5.0}, "disagrees", "do not reproduce the readings"),
        ({"common": 0.0, "scatter": 0.1, "noise": 3.0}, "disagrees", "neither the solutions nor the field"),
    ],
)
def test_the_verdict_tells_a_common_error_from_scatter(options, verdict, words):
    check = scattered(**options)
    assert check.verdict == verdict, str(check)
    found = check.reasons + check.notes
    assert (words is None) == (not found)
    assert all(words in reason for reason in found)
    assert bool(check.advice) == bool(found)


def test_solutions_are_drawn_and_reported(tmp_path):
    problem, draws, _, _ = CASES["decay"]()
    result = made(problem, draws)
    page = bp.report.write(result, tmp_path).read_text()
    assert "Forward check: do the inferred unknowns" in page
    assert "<strong>agrees</strong>" in page
    assert (tmp_path / "figures" / "forward-u-1.png").is_file()
    (axes,) = bp.plot.forward(bp.forward_check(result)).axes
    solutions = [line for line in axes.lines if line.get_color() == SOLUTIONS]
    assert len(solutions) == len(draws)
    assert np.allclose(solutions[0].get_ydata(), decayed(0.8 * RATES[0])(solutions[0].get_xdata()), atol=1e-3)
    with pytest.raises(bp.InputError, match="expected a result of"):
        bp.plot.forward(result)


def test_a_report_says_why_there_is_no_solution(tmp_path, prior_result):
    page = bp.report.write(prior_result(bp.paper.inverse_reaction_1d(noise=0.1).problem, 10), tmp_path).read_text()
    assert "The equations were not solved" in page
    assert "known only by its readings" in page
