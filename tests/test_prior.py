"""Draws and covariances of the prior against known ones, within their Monte-Carlo errors."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import prior, quantity_at
from bpinn.fields.kernels import exponential_eigenpairs
from bpinn.plot import views

LINE = bp.Problem(  # u = w x + b
    domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=())}, unknowns={"k": dist.Normal(1000.0, 0.1)}
)
DEEP = bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=(8, 8))})
X = np.linspace(0.0, 1.0, 5)
DRAWS = 40_000


def deviations(found, exact, draws):
    """In standard errors of a covariance that is estimated from normal draws."""
    variance = np.diag(exact)
    return np.abs(found - exact) / np.sqrt((np.outer(variance, variance) + exact**2) / draws)


@pytest.mark.parametrize(
    ("quantity", "exact"),
    [("u", 1 + np.outer(X, X)), ("u_x", np.ones((5, 5))), (lambda u, u_x, x: u - x * u_x, np.ones((5, 5)))],
    ids=["u", "u_x", "equation"],
)
def test_covariance_of_a_linear_network(quantity, exact):
    found = prior.covariance(LINE, quantity, {"x": X}, draws=DRAWS)
    assert found.dtype == float
    np.testing.assert_array_equal(found, found.T)
    assert np.max(deviations(found, exact, DRAWS)) < 4


@pytest.mark.parametrize("order", [0, 1, 2])
def test_covariance_of_a_karhunen_loeve_field_is_its_truncated_sum(order):
    kernel = bp.Exponential(length=0.3)
    field = bp.KarhunenLoeve(kernel, terms=6, mean=3.0)
    problem = bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": field})
    pairs = exponential_eigenpairs(kernel, (0.0, 1.0), 6)
    basis = np.sqrt(pairs.values) * np.asarray(pairs.functions(X, order))
    found = prior.covariance(problem, ("u", "u_x", "u_xx")[order], {"x": X}, draws=DRAWS)
    assert np.max(deviations(found, basis @ basis.T, DRAWS)) < 4


def test_a_small_spread_around_a_large_mean_is_not_lost():
    """Single-precision sums of squares near 1e6 would leave nothing of a variance of 0.01."""
    found = prior.covariance(LINE, lambda k: k, {}, draws=DRAWS)
    assert found.shape == (1, 1)
    assert abs(found[0, 0] / 0.01 - 1) < 4 * np.sqrt(2 / DRAWS)


def test_an_unknown_times_a_derivative():
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=())}, unknowns={"k": dist.Normal(0.0, 1.0)})
    band = prior.predict(problem, lambda u_x, k: k * u_x, {"x": [0.5]}, draws=DRAWS)
    assert abs(band.mean[0]) < 4 / np.sqrt(DRAWS)
    assert abs(band.sd[0] ** 2 - 1) < 4 * np.sqrt(8 / DRAWS)  # the fourth moment of a product of normals is 9


def test_periodic_quantities_and_the_names_of_sensors():
    ring = bp.Sensors(bp.Periodic("u", along="x"), values=0.0, noise=dist.HalfNormal(1.0))
    problem = bp.Problem({"x": (0.0, 2.0)}, {"u": bp.MLP(hidden=())}, sensors={"ring": ring})
    band = prior.predict(problem, "ring", draws=DRAWS)  # u(2) - u(0) = 2 w
    assert band.mean.shape == ()
    assert abs(band.sd / 2 - 1) < 4 / np.sqrt(2 * DRAWS)


def test_draws_are_those_of_the_posterior_class():
    posterior = bp.Posterior(DEEP)
    z = posterior.sample_prior(jax.random.key(7), 300)
    band = prior.predict(DEEP, "u_x", {"x": X}, draws=300, seed=7)
    assert band.draws.shape == (1, 300, 5)
    np.testing.assert_allclose(band.draws[0], posterior.evaluate(z, "u_x", {"x": X}), rtol=1e-4, atol=1e-4)
    covariance = prior.covariance(DEEP, "u_x", {"x": X}, draws=300, seed=7)
    np.testing.assert_allclose(covariance, np.cov(band.draws[0].T.astype(float)), rtol=1e-4)


def test_seeds():
    one, same, other = (prior.predict(DEEP, "u", {"x": X}, draws=50, seed=s).draws for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.any(one == other)
    one, same, other = (prior.covariance(DEEP, "u", {"x": X}, draws=50, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.any(one == other)


def test_batches_change_nothing(monkeypatch):
    at = {"x": np.linspace(0, 1, 40)}
    draws, covariance = (
        prior.predict(DEEP, "u_x", at, draws=75).draws,
        prior.covariance(DEEP, "u_x", at, draws=75),
    )
    monkeypatch.setattr(prior, "BATCH", 16)
    monkeypatch.setattr(prior, "BLOCK_BYTES", 3000)
    monkeypatch.setattr(quantity_at, "CHUNK_BYTES", 32 * 7 * quantity_at.bytes_of_a_point(DEEP))
    parts = prior.predict(DEEP, "u_x", at, draws=75)
    assert len(parts._slices()) > 3
    np.testing.assert_allclose(parts.draws, draws, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(prior.covariance(DEEP, "u_x", at, draws=75), covariance, rtol=1e-4)


@pytest.mark.slow
def test_width_makes_a_network_normal_but_not_its_derivatives():
    """The paper's prior: the kurtosis of u is near a normal's 3, that of u_x and u_xx is above."""
    problem = bp.Problem(domain={"x": (-1.0, 1.0)}, fields={"u": bp.MLP(hidden=(50, 50))})
    kurtosis = []
    for quantity in ("u", "u_x", "u_xx"):
        draws = prior.predict(problem, quantity, {"x": [0.5]}, draws=20_000).draws.ravel().astype(float)
        kurtosis.append(np.mean((draws / draws.std()) ** 4))
    assert abs(kurtosis[0] - 3) < 0.2
    assert kurtosis[1] > 3.5
    assert kurtosis[2] > kurtosis[1]


# --- could the prior have produced the readings? ---


def readings_of(values, noise=0.1, **more):
    x = np.linspace(0, 1, 20)
    sensors = {
        "u": bp.Sensors("u", {"x": x}, values, noise=noise, **more),
        "start": bp.Sensors("u", {"x": [0.0, 0.1]}, 0.0, noise=0.1),
    }
    return bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=())}, sensors=sensors)  # u = w x + b


def test_readings_from_the_prior_are_possible():
    found = bp.prior.check(readings_of(1.2 * np.linspace(0, 1, 20)))
    assert [group.name for group in found.groups] == ["u"]  # a condition is left out
    assert found.is_possible
    assert "so it could have produced them" in str(found)


@pytest.mark.parametrize(("size", "how"), [(300.0, "much more"), (1e-4, "much less")])
def test_readings_in_other_units_are_not(size, how):
    found = bp.prior.check(readings_of(size * np.linspace(0, 1, 20)))
    assert not found.is_possible
    assert how in str(found)


def test_the_spread_that_is_expected_is_exact():
    """With the slope w, noise s and n readings at x, the variance of readings is w^2 var(x) + s^2 (n - 1) / n on average."""
    found = bp.prior.check(readings_of(np.linspace(0, 1, 20), noise=1e-3), draws=20_000).groups[0]
    widths = np.std(np.linspace(0, 1, 20)) * np.array([0.03134, 2.2414])  # quantiles of |w|
    assert found.low == pytest.approx(widths[0], rel=0.15)
    assert found.high == pytest.approx(widths[1], rel=0.05)


def test_an_inferred_noise_is_drawn_too():
    wide = bp.prior.check(readings_of(np.linspace(0, 1, 20), noise=dist.HalfNormal(50.0))).groups[0]
    assert wide.high > 50


def test_the_program_says_it(tmp_path):
    from typer.testing import CliRunner

    from bpinn.cli import app

    CliRunner().invoke(app, ["new", str(tmp_path / "demo")])
    told = CliRunner().invoke(app, ["prior", str(tmp_path / "demo" / "problem.toml")])
    assert told.exit_code == 0
    assert "could have produced them" in told.output


def test_the_check_needs_a_problem():
    with pytest.raises(bp.InputError, match=r"prior\.check: expected a bp\.Problem"):
        bp.prior.check("problem.toml")


# --- the figure ---


def drawn(ax):
    return {text: handle for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}


def test_readings_are_drawn_over_the_prior():
    """u = w x + b: the prior's 95% band is 1.96 sqrt(1 + x^2), up to the error of quantiles of 300 draws."""
    problem = readings_of(1.2 * np.linspace(0, 1, 20))
    (ax,) = bp.prior.check(problem).plot().axes
    shown = drawn(ax)
    points, _, (bars,) = shown["readings"]
    np.testing.assert_allclose(points.get_ydata(), 1.2 * np.linspace(0, 1, 20))
    np.testing.assert_allclose([np.ptp(segment[:, 1]) for segment in bars.get_segments()], 0.2)
    outline = shown["95% of the prior"].get_paths()[0].vertices
    for x in (0.0, 0.5, 1.0):
        there = outline[np.isclose(outline[:, 0], x), 1]
        for end in (there.min(), there.max()):
            assert abs(end) == pytest.approx(1.96 * np.sqrt(1 + x**2), rel=4 * 1.4 / np.sqrt(300))
    curves = [line for line in ax.lines if line.get_color() == shown["prior draws"].get_color()]
    expected = bp.prior.predict(problem, "u", {"x": np.linspace(0, 1, 101)}, draws=300)
    np.testing.assert_allclose([curve.get_ydata() for curve in curves], expected.draws[0, : len(curves)])
    assert len(curves) == 12


def plane(**more):
    rng = np.random.default_rng(0)
    at = {"x": rng.random(15), "y": rng.random(15)}
    sensors = {
        "u": bp.Sensors("u", at, 1.2 * at["x"], noise=0.1),
        "edge": bp.Sensors("u", {"x": at["x"], "y": 0.5}, at["x"], noise=dist.HalfNormal(1.0)),
        "mean": bp.Sensors(bp.Average("u", over={"x": ([0.0, 0.5], [0.5, 1.0])}), {"y": 0.0}, [1.0, 2.0], noise=0.1),
        "law": bp.Sensors("u_x", at, 0.0, noise=0.1),
        **more,
    }
    return bp.Problem({"x": (0.0, 1.0), "y": (0.0, 1.0)}, {"u": bp.MLP(hidden=())}, sensors)


def test_readings_in_a_plane_are_drawn_one_by_one():
    """In the order of their values; readings along one line are drawn along it; exact conditions are left out."""
    figure = bp.plot.prior_check(plane())
    assert [ax.get_title().split(":")[0] for ax in figure.axes] == ["u", "edge", "mean"]
    scattered, along, averages = figure.axes
    points = drawn(scattered)["readings"][0]
    assert np.all(np.diff(points.get_ydata()) >= 0)
    assert len(points.get_ydata()) == len(drawn(scattered)["95% of the prior"].get_segments()) == 15
    assert "prior draws" not in drawn(scattered)
    assert along.get_xlabel() == "$x$ ($y$ = 0.5)"
    assert "prior draws" in drawn(along)
    assert len(drawn(averages)["readings"][0].get_ydata()) == 2


def test_the_range_of_a_reading_is_exact():
    """u = v x + w y + b and noise s: a reading has the variance 1 + x^2 + y^2 + s^2."""
    problem = plane(u=bp.Sensors("u", {"x": [0.0, 1.0], "y": [0.0, 1.0]}, [0.0, 1.0], noise=2.0))
    found = bp.prior.check(problem)
    view = next(view for view in views.prior_views(found) if view.expected.name == "u")
    assert view.draws.shape == (1000, 2)
    np.testing.assert_allclose(view.draws.var(axis=0), [5.0, 5.0 + 2.0], rtol=4 * np.sqrt(2 / 1000))


def test_the_program_draws_it(tmp_path):
    from typer.testing import CliRunner

    from bpinn.cli import app

    run = CliRunner().invoke
    run(app, ["new", str(tmp_path / "demo"), "--template", "curve"])
    file, out = str(tmp_path / "demo" / "problem.toml"), tmp_path / "prior.png"
    told = run(app, ["prior", file, "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert out.read_bytes().startswith(b"\x89PNG")
    wrong = run(app, ["prior", file, "--out", str(tmp_path / "prior.docx")])
    assert "expected the name of a figure, such as prior.png" in str(wrong.exception)


def test_the_figure_needs_noisy_readings():
    with pytest.raises(bp.InputError, match="prior_check: the problem has no noisy readings"):
        bp.plot.prior_check(LINE)
    with pytest.raises(bp.InputError, match=r"prior_check: expected a bp\.Problem"):
        bp.plot.prior_check("problem.toml")
