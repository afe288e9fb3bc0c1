"""Exact physics without arrays of zeros: points and tolerances that are chosen, and written into the problem."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.problem_file import read_problem
from bpinn.readings import extent


def decay(u, u_t, rate):
    return u_t + rate * u


def heat(u_t, u_xx, rate):
    return u_t - rate * u_xx


def bend(u_xxxx, rate):
    return u_xxxx - rate


def problem(physics, domain=None, size=1.0, **more):
    domain = {"t": (0.0, 2.0)} if domain is None else domain
    at = {c: np.linspace(*bounds, 9) for c, bounds in domain.items()}
    return bp.Problem(
        domain=domain,
        fields={"u": bp.MLP(hidden=(4,))},
        unknowns={"rate": dist.LogNormal(0.0, 0.5)},
        sensors={"law": physics, "u": bp.Sensors("u", at, size * np.cos(np.linspace(0, 3, 9)), noise=0.1)},
        **more,
    )


def test_points_fill_the_domain_and_the_problem_has_them():
    law = problem(bp.Physics(decay)).sensors["law"]
    assert isinstance(law, bp.Sensors)
    np.testing.assert_allclose(law.at["t"], np.linspace(0, 2, 60))
    assert law.values == 0.0
    plane = problem(bp.Physics(heat, points=150), {"x": (0.0, 3.0), "t": (1.0, 2.0)}).sensors["law"]
    x, t = plane.at["x"], plane.at["t"]
    assert len(x) == 150
    for values, (low, high) in ((x, (0, 3)), (t, (1, 2))):  # every tenth of either side has its share
        counts = np.histogram(values, bins=10, range=(low, high))[0]
        assert counts.min() >= 12
        assert counts.max() <= 18


def test_the_tolerance_follows_units():
    """In other units of u, or of t, it changes as the equation does."""
    first = problem(bp.Physics(decay)).sensors["law"].noise
    assert problem(bp.Physics(decay), size=1000.0).sensors["law"].noise == pytest.approx(1000 * first, rel=0.02)
    slow = {"t": (0.0, 2000.0)}

    def slower(u, u_t, rate):
        return u_t + rate / 1000 * u

    assert problem(bp.Physics(slower), slow).sensors["law"].noise == pytest.approx(first / 1000, rel=0.05)
    assert 0.001 < first < 0.1


def test_the_tolerance_does_not_depend_on_an_offset():
    """Cooling towards a room, in degrees above the room and in kelvins."""
    t = np.linspace(0.0, 10.0, 20)

    def tolerance(room):
        def cooling(u, u_t, rate):
            return u_t + rate * (u - room)

        return (
            bp.Problem(
                domain={"t": (0.0, 10.0)},
                fields={"u": bp.MLP(hidden=(4,))},
                unknowns={"rate": dist.LogNormal(-1.0, 0.5)},
                sensors={
                    "law": bp.Physics(cooling),
                    "u": bp.Sensors("u", {"t": t}, room + 6 * np.exp(-0.3 * t), noise=0.2),
                },
            )
            .sensors["law"]
            .noise
        )

    assert tolerance(285.0) == pytest.approx(tolerance(0.0), rel=0.02)


def test_the_tolerance_does_not_depend_on_the_order_of_arguments():
    def turned(rate, u_t, u):
        return u_t + rate * u

    assert problem(bp.Physics(turned)).sensors["law"].noise == problem(bp.Physics(decay)).sensors["law"].noise


def test_it_is_the_same_as_sensors_that_say_so():
    chosen = problem(bp.Physics(decay))
    law = chosen.sensors["law"]
    stated = problem(bp.Sensors(decay, {"t": np.linspace(0, 2, 60)}, 0.0, noise=law.noise))
    assert bp.Posterior(chosen).model == bp.Posterior(stated).model
    method = bp.HMC(num_warmup=40, num_draws=10)
    draws = [bp.infer(p, method, seed=0, chains=1, progress=False).z for p in (chosen, stated)]
    np.testing.assert_array_equal(*draws)


def test_half_of_the_points_go_where_asked():
    law = problem(bp.Physics(decay, points=80, focus={"t": (0.0, 0.2)})).sensors["law"]
    assert len(law.at["t"]) == 80
    assert np.sum(law.at["t"] <= 0.2) >= 40


def test_it_is_saved_and_loaded(prior_result, tmp_path):
    prior_result(problem(bp.Physics(decay, tolerance=0.01))).save(tmp_path / "r.npz")
    loaded = bp.load(tmp_path / "r.npz").problem
    assert len(loaded.readings[0].values) == 60
    assert np.all(loaded.readings[0].noise == 0.01)


def nothing(rate):
    return rate


def always_nan(u):
    return u * jnp.nan


def broken(u, u_t):
    return u_t @ u_t.missing


WRONG = {
    "broken": (bp.Physics(broken), "broken"),
    "points": (bp.Physics(decay, points=1), "points must be a whole number from 2"),
    "tolerance": (bp.Physics(decay, tolerance=0.0), "tolerance must be a positive number"),
    "string": (bp.Physics("u"), "Physics needs an equation"),
    "nowhere": (bp.Physics(nothing), "depends on no coordinate"),
    "focus": (bp.Physics(decay, focus={"x": (0, 1)}), "focus names 'x'"),
    "outside": (bp.Physics(decay, focus={"t": (1, 3)}), "inside the domain"),
    "nan": (bp.Physics(always_nan), "give tolerance="),
}


@pytest.mark.parametrize(("physics", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(physics, words):
    with pytest.raises(bp.InputError, match=f"sensors 'law'.*{words}"):
        problem(physics)


def test_an_unknown_that_no_equation_uses_is_an_error():
    with pytest.raises(bp.InputError, match="unknowns: 'rate' is in no equation"):
        bp.infer(problem(bp.Physics(lambda u, u_t: u_t + u)), seed=0)


FILE = """
[domain]
t = [0.0, 2.0]
[fields.u]
hidden = [5]
[unknowns]
rate = {{ prior = "lognormal", log_mean = 0.0, log_sd = 0.5 }}
[equations]
decay = "u_t + rate*u"
[[sensors]]
quantity = "u"
at = {{ t = [0.0, 1.0, 2.0] }}
values = [1.0, 0.4, 0.1]
noise = 0.05
[[physics]]
{physics}
"""


def read(tmp_path, physics):
    (tmp_path / "problem.toml").write_text(FILE.format(physics=physics))
    return read_problem(tmp_path / "problem.toml").problem


def test_it_stands_in_a_problem_file(tmp_path):
    named = read(tmp_path, 'equation = "decay"')
    assert list(named.sensors) == ["u", "decay"]
    assert len(named.readings[1].values) == 60
    stated = read(
        tmp_path, 'equation = "u_t + rate*u"\nname = "law"\npoints = 30\ntolerance = 0.02\nfocus = { t = [0, 1] }'
    )
    assert len(stated.readings[1].values) == 30
    assert np.all(stated.readings[1].noise == 0.02)
    assert stated.sensors["law"].quantity.__name__ == "law"  # as it is called in figures and reports
    clash = read(tmp_path, 'equation = "u_t + 2*rate*u"\nname = "decay"')
    assert clash.sensors["decay"].quantity.__name__ == "physics_0"  # another equation is called decay


@pytest.mark.parametrize(
    ("physics", "words"),
    [
        ('equation = "decay"\npoint = 3', "point"),
        ('equation = "dekay"', "dekay"),
        ('equation = "decay"\nname = "u"', "already taken"),
        ('equation = "decay"\ntolerance = -1', "tolerance"),
    ],
)
def test_mistakes_in_a_file_are_located(tmp_path, physics, words):
    with pytest.raises(bp.InputError, match=words):
        read(tmp_path, physics)


def test_a_fourth_derivative_has_its_size():
    law = problem(bp.Physics(bend), {"x": (0.0, 2.0)}).sensors["law"]
    assert 0.3 < law.noise < 3.0  # 1% of (2 pi / 2)^4


# --- points of exact conditions are not readings ---


def sensors(values, noise=0.1, **more):
    count = np.size(values) if np.size(values) > 1 else 5
    stated = bp.Sensors("u", {"t": np.linspace(0.0, 2.0, count)}, values, noise=noise, **more)
    return stated, bp.Problem({"t": (0.0, 2.0)}, {"u": bp.MLP(hidden=(4,))}, {"u": stated}).readings[0]


@pytest.mark.parametrize(
    ("stated", "exact"),
    [
        (sensors(0.0), True),
        (sensors([1.0, 1.0, 1.0], [0.1, 0.2, 0.1]), True),
        (sensors(0.0, likelihood="student_t"), True),
        (sensors([1.0, 1.0, 1.1]), False),
        (sensors(0.0, dist.HalfNormal(1.0)), False),  # an inferred noise is no tolerance
        (sensors(2.0, None, likelihood=bp.likelihoods.Poisson()), False),
    ],
)
def test_equal_values_with_a_stated_tolerance_are_an_exact_condition(stated, exact):
    given, readings = stated
    assert readings.is_exact == exact
    words = f"{len(readings.values)} {'points' if exact else 'readings'}"
    assert readings.size == words
    assert words in repr(given)


def test_one_value_is_a_reading():
    stated = bp.Sensors("u", {"t": 0.0}, 1.0, noise=0.1)
    readings = bp.Problem({"t": (0.0, 2.0)}, {"u": bp.MLP(hidden=(4,))}, {"u": stated}).readings[0]
    assert not readings.is_exact
    assert readings.size == "1 reading"


def test_a_law_has_points():
    made = problem(bp.Physics(decay))
    assert [readings.size for readings in made.readings] == ["60 points", "9 readings"]
    assert extent(made.readings) == "9 readings and 60 points"
    assert "60 points" in repr(made.sensors["law"])
