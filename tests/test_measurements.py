"""Readings that are not taken at a point: averages, integrals and differences against exact answers."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.measurements import terms_of
from bpinn.problem_file import read_problem

T = np.array([0.0, 0.4, 1.0])


def plane(**sensors):
    """u(x, t) on a rectangle."""
    return bp.Problem(
        domain={"x": (0.0, 2.0), "t": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=(6,))}, sensors=sensors or None
    )


def line(*sensors, **unknowns):
    given = {f"s{i}": s for i, s in enumerate(sensors)}
    return bp.Problem(
        domain={"x": (-1.0, 1.0)}, fields={"u": bp.MLP(hidden=(5, 5))}, sensors=given or None, unknowns=unknowns
    )


@pytest.fixture
def z(x64):
    return bp.Posterior(plane()).sample_prior(jax.random.key(0), 3)


def test_an_average_is_the_mean_of_many_points(z):
    posterior = bp.Posterior(plane())
    found = posterior.evaluate(z, bp.Average("u", over={"x": (0.5, 1.5)}, nodes=20), {"t": T})
    x = 0.5 + (np.arange(4000) + 0.5) / 4000  # midpoints
    points = posterior.evaluate(z, "u", {"x": x[:, None], "t": T[None, :]})
    np.testing.assert_allclose(found, points.mean(axis=1), rtol=1e-6)


def test_an_integral_over_two_coordinates(z):
    posterior = bp.Posterior(plane())
    found = posterior.evaluate(z, bp.Integral("u_t", over={"x": (0.0, 1.0), "t": (0.2, 0.7)}, nodes=16))
    nodes = (np.arange(400) + 0.5) / 400
    ends = {t: posterior.evaluate(z, "u", {"x": nodes, "t": t}).mean(axis=-1) for t in (0.2, 0.7)}
    np.testing.assert_allclose(found, ends[0.7] - ends[0.2], rtol=1e-5)  # the integral of a derivative


def test_every_reading_has_a_window_of_its_own(z):
    posterior = bp.Posterior(plane())
    low, high = np.array([0.0, 0.3, 1.1]), np.array([0.1, 1.3, 2.0])
    together = posterior.evaluate(z, bp.Integral("u", over={"x": (low, high)}), {"t": T})
    for i in range(3):
        alone = posterior.evaluate(z, bp.Integral("u", over={"x": (low[i], high[i])}), {"t": T[i]})
        np.testing.assert_allclose(together[:, i], alone, rtol=1e-12)
    np.testing.assert_allclose(
        posterior.evaluate(z, bp.Average("u", over={"x": (low, high)}), {"t": 0.5}),
        posterior.evaluate(z, bp.Integral("u", over={"x": (low, high)}), {"t": 0.5}) / (high - low),
        rtol=1e-12,
    )


def test_a_difference_is_that_of_two_places(z):
    posterior = bp.Posterior(plane())
    found = posterior.evaluate(z, bp.Difference("u", at={"x": [1.0, 2.0, 1.5]}, minus={"x": 0.5}), {"t": T})
    expected = posterior.evaluate(z, "u", {"x": [1.0, 2.0, 1.5], "t": T}) - posterior.evaluate(
        z, "u", {"x": 0.5, "t": T}
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_periodic_condition_is_a_difference(z):
    problem = plane()
    ring, apart = bp.Periodic("u_x", along="x"), bp.Difference("u_x", at={"x": 2.0}, minus={"x": 0.0})
    assert terms_of(ring, problem.names, "") == terms_of(apart, problem.names, "")


def test_measurements_can_be_nested(z):
    """A difference of averages, of an equation."""

    def flux(u_x, t):
        return t * u_x

    posterior = bp.Posterior(plane())
    nested = bp.Difference(bp.Average(flux, over={"t": (0.0, 1.0)}), at={"x": 2.0}, minus={"x": 0.0})
    parts = [posterior.evaluate(z, bp.Average(flux, over={"t": (0.0, 1.0)}), {"x": x}) for x in (2.0, 0.0)]
    np.testing.assert_allclose(posterior.evaluate(z, nested), parts[0] - parts[1], rtol=1e-10)


def test_the_likelihood_of_averages(x64):
    """Of a straight line u = w x + b, whose average is its value in the middle."""
    centre, values = np.array([-0.5, 0.1, 0.6]), np.array([0.2, 0.4, 0.3])

    def problem(quantity, at):
        sensors = {"u": bp.Sensors(quantity, at, values, noise=0.1)}
        return bp.Problem(domain={"x": (-1.0, 1.0)}, fields={"u": bp.MLP(hidden=())}, sensors=sensors)

    average = problem(bp.Average("u", over={"x": (centre - 0.2, centre + 0.2)}), {})
    exact, point = (bp.reference.exact(p) for p in (average, problem("u", {"x": centre})))
    np.testing.assert_allclose(exact.mean, point.mean, rtol=1e-10)
    np.testing.assert_allclose(exact.covariance, point.covariance, rtol=1e-10)
    assert exact.log_evidence == pytest.approx(point.log_evidence)


def test_an_integral_is_inferred_like_any_other_reading(tmp_path):
    """Two integrals and a slope fix a parabola up to noise; saved, loaded, reported."""
    halves = bp.Integral("u", over={"x": ([-1.0, 0.0], [0.0, 1.0])})
    field = bp.KarhunenLoeve(bp.SquaredExponential(length=1.0), terms=4)
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)}, fields={"u": field},
        sensors={
            "halves": bp.Sensors(halves, values=[0.2, 0.6], noise=0.05),
            "u": bp.Sensors("u", {"x": 0.0}, 0.4, 0.05),
        },
    )  # fmt: skip
    exact = bp.reference.exact(problem)
    result = bp.infer(problem, bp.HMC(num_draws=600, num_warmup=300), seed=0, progress=False)
    z = result.z.reshape(-1, 4)
    sd = np.sqrt(np.diag(exact.covariance))
    assert np.all(np.abs(z.mean(axis=0) - exact.mean) < 0.2 * sd)
    assert result.functional_names[-2:] == ["halves[0]", "halves[1]"]
    result.save(tmp_path / "result.npz")
    loaded = bp.load(tmp_path / "result.npz")
    assert loaded.problem.sensors["halves"].quantity == halves
    np.testing.assert_array_equal(loaded.predict(halves).mean, result.predict("halves").mean)
    assert bp.Posterior(loaded.problem).log_density(z[0]) == bp.Posterior(problem).log_density(z[0])
    assert "integral of u over x" in bp.report.write(result, tmp_path / "report").read_text()


def test_problem_files_have_them(tmp_path):
    (tmp_path / "wide.csv").write_text("from,to,t,value\n0.1,0.3,0.5,1.0\n0.2,0.6,1.0,2.0\n")
    (tmp_path / "problem.toml").write_text("""
[domain]
x = [0.0, 2.0]
t = [0.0, 1.0]
[fields.u]
hidden = [4]
[[sensors]]
quantity = "u"
data = "wide.csv"
average = { x = ["from", "to"] }
nodes = 5
noise = 0.1
[[sensors]]
quantity = "u_x"
integral = { x = [0.0, [1.0, 2.0]] }
at = { t = [0.0, 1.0] }
values = [0.1, 0.2]
noise = 0.1
[[sensors]]
quantity = "u"
difference = { at = { x = 1.0 }, minus = { x = 0.0 } }
at = { t = 0.5 }
noise = 0.1
""")
    problem = read_problem(tmp_path / "problem.toml").problem
    quantities = [sensors.quantity for sensors in problem.sensors.values()]
    assert quantities == [
        bp.Average("u", over={"x": ([0.1, 0.2], [0.3, 0.6])}, nodes=5),
        bp.Integral("u_x", over={"x": (0.0, [1.0, 2.0])}),
        bp.Difference("u", at={"x": 1.0}, minus={"x": 0.0}),
    ]
    assert list(problem.sensors) == ["u_average", "u_x_integral", "u_difference"]
    np.testing.assert_array_equal(problem.readings[0].at["t"], [0.5, 1.0])


WRONG = {
    "no window": (lambda: bp.Average("u", over={}), "over must be a dictionary of windows"),
    "one end": (lambda: bp.Average("u", over={"x": 0.5}), r"over x needs two ends \(low, high\)"),
    "upside down": (lambda: bp.Integral("u", over={"x": (1.0, 0.0)}), "low end is not below its high end"),
    "nodes": (lambda: bp.Average("u", over={"x": (0.0, 1.0)}, nodes=0), "nodes must be a whole number from 1 to 64"),
    "text": (lambda: bp.Average("u", over={"x": ("a", 1.0)}), "over x: expected numbers"),
    "places": (lambda: bp.Difference("u", at={"x": 1.0}, minus={"t": 0.0}), "have different coordinates"),
    "unknown coordinate": (
        lambda: plane(u=bp.Sensors(bp.Average("u", over={"y": (0, 1)}), {"t": T, "x": T}, 0.0, 0.1)),
        "Average uses 'y', which u does not depend on; it depends on x, t",
    ),
    "twice": (
        lambda: plane(u=bp.Sensors(bp.Average("u", over={"x": (0, 1)}), {"t": T, "x": T}, 0.0, 0.1)),
        "Average fixes x; remove it from at",
    ),
    "inside too": (
        lambda: plane(u=bp.Sensors(bp.Periodic(bp.Average("u", over={"x": (0, 1)}), "x"), {"t": T}, 0.0, 0.1)),
        "which the measurement inside it already sets",
    ),
    "counts": (
        lambda: plane(u=bp.Sensors(bp.Average("u", over={"x": ([0, 0.1], 1)}), {"t": T}, 0.0, 0.1)),
        "has positions for 2 readings, but at has 3 points",
    ),
    "ends": (
        lambda: plane(u=bp.Sensors(bp.Average("u", over={"x": ([0, 0.1], [1, 1, 1])}), {"t": 0.5}, 0.0, 0.1)),
        "over x has 2 low ends and 3 high ends; give equally many",
    ),
    "values": (
        lambda: plane(u=bp.Sensors(bp.Average("u", over={"x": ([0, 0.1], 1)}), {"t": 0.5}, [1.0, 2.0, 3.0], 0.1)),
        "2 points but 3 values",
    ),
    "no time": (
        lambda: plane(u=bp.Sensors(bp.Average("u", over={"x": (0, 1)}), values=0.0, noise=0.1)),
        "no positions for t; add them to at",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name):
    call, words = WRONG[name]
    with pytest.raises(bp.InputError, match=words):
        call()


def test_a_window_outside_of_the_domain_is_warned_of():
    with pytest.warns(bp.BpinnWarning, match="positions of x lie outside the domain"):
        line(bp.Sensors(bp.Average("u", over={"x": (0.5, 1.5)}), values=0.0, noise=0.1))


def test_an_average_with_an_unknown_in_it(x64):
    """Coefficients and derivatives inside of the equation that is averaged."""

    def reaction(u, u_xx, k):
        return u_xx + k * u

    wide = bp.Average(reaction, over={"x": ([-0.5, 0.0], [0.0, 0.5])})
    problem = line(bp.Sensors(wide, values=[0.0, 0.1], noise=0.1), k=dist.Normal(0.0, 1.0))
    posterior = bp.Posterior(problem)
    z = posterior.sample_prior(jax.random.key(1), 1)[0]
    predicted = posterior.model.predicted(z, posterior.data)[0]
    np.testing.assert_allclose(predicted, posterior.evaluate(z, wide), rtol=1e-12)
    gradient = jax.grad(posterior.log_likelihood)(z)
    assert np.all(np.isfinite(gradient))
    assert gradient[-1] != 0
