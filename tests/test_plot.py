"""Figures show the numbers that the result gives, and refuse what they cannot show."""

import jax
import matplotlib
import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

import bpinn as bp
from bpinn import plot
from bpinn.convergence import rhat_of
from bpinn.plot import drawing, views

METHOD = bp.HMC(num_warmup=30, num_draws=40, num_leapfrog=5, init="prior")
SMALL = bp.MLP(hidden=(6,))
X = np.linspace(0.0, 1.0, 5)


def source(u_x, k):
    return k * u_x


def drift(u, u_t, c):
    return u_t + c[0] * u + c[1]


def sine(x):
    return np.sin(x)


def wave(x, t):
    return np.sin(x) * np.exp(-t)


@pytest.fixture(scope="module")
def line():
    """One coordinate, an unknown, and u read by two kinds of sensors, the second with unknown noise."""
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": SMALL},
        unknowns={"k": dist.LogNormal(0.0, 1.0)},
        sensors={
            "f": bp.Sensors(source, {"x": X}, np.cos(X), 0.2),
            "u": bp.Sensors("u", {"x": X[1:4]}, np.sin(X[1:4]), [0.1, 0.2, 0.3]),
            "b": bp.Sensors("u", {"x": X[[0, 4]]}, np.sin(X[[0, 4]]), dist.HalfNormal(0.5)),
        },
    )
    return bp.infer(problem, METHOD, seed=0, chains=2, cores=1, progress=False)


@pytest.fixture(scope="module")
def plane():
    """Two coordinates, a vector of unknowns, a field of one coordinate, and a periodic condition."""
    x, t = np.tile(X, 2), np.repeat([0.5, 1.5], 5)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0), "t": (0.0, 3.0)},
        fields={"u": SMALL, "a": bp.MLP(hidden=(6,), inputs=("x",))},
        unknowns={"c": dist.Normal(0.0, 1.0).expand([2]).to_event(1)},
        sensors={
            "law": bp.Sensors(drift, {"x": x, "t": t}, 0.0, 0.1),
            "u": bp.Sensors("u", {"x": x, "t": t}, wave(x, t), 0.1),
            "a": bp.Sensors("a", {"x": X}, X, 0.1),
            "ring": bp.Sensors(bp.Periodic("u", "x"), {"t": X}, 0.0, 0.1),
        },
    )
    return made_up_result(problem, 2)


def made_up_result(problem, scalar_count):
    """A result with draws out of the air: figures must show them, and they cost nothing."""
    posterior = bp.Posterior(problem)
    z = np.random.default_rng(0).standard_normal((80, posterior.dim), np.float32)
    scalars = z[:, len(z[0]) - scalar_count :]  # the last of z, and normal, so the same in their own space
    density = jax.jit(jax.vmap(posterior.log_density))(z)
    z, scalars, density = (np.asarray(a).reshape(2, 40, *a.shape[1:]) for a in (z, scalars, density))
    return bp.Result(problem, METHOD, 0, z, scalars, {"log_density": density})


def labelled(ax):
    return {text: handle for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}


def shade(ax, text="95% interval"):
    """x, and both ends of the shaded band."""
    vertices = labelled(ax)[text].get_paths()[0].vertices
    n = (len(vertices) - 3) // 2  # the outline goes out along one end and back along the other
    return vertices[1 : n + 1, 0], vertices[1 : n + 1, 1], vertices[n + 2 : 2 * n + 2, 1][::-1]


def readings(ax):
    """Positions, values and error bars of the readings shown."""
    points, _, (bars,) = labelled(ax)["readings"]
    ends = np.array([[end[1] for end in segment] for segment in bars.get_segments()])
    return points.get_xdata(), points.get_ydata(), (ends[:, 1] - ends[:, 0]) / 2


def mesh(ax):
    (found,) = (c for c in ax.collections if isinstance(c, QuadMesh))
    return found


def titles(figure):
    return [ax.get_title() for ax in figure.axes]


# --- band ---


def test_band_shows_mean_interval_and_truth(line):
    figure = plot.band(line, "u", truth=sine)
    (ax,) = figure.axes
    grid = line.problem.grid()
    expected = line.predict("u", grid)
    np.testing.assert_array_equal(labelled(ax)["posterior mean"].get_xdata(), grid["x"])
    np.testing.assert_allclose(labelled(ax)["posterior mean"].get_ydata(), expected.mean)
    np.testing.assert_allclose(labelled(ax)["truth"].get_ydata(), np.sin(grid["x"]))
    low, high = expected.interval(0.95)
    shown = shade(ax)
    np.testing.assert_allclose(shown[0], grid["x"])
    np.testing.assert_allclose(np.sort(shown[1:], axis=0), [low, high])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x$", "$u$")
    assert {t.get_text() for t in figure.legends[0].get_texts()} == set(labelled(ax))


def test_band_shows_readings_of_all_sensors_of_the_quantity_with_their_noise(line):
    (ax,) = plot.band(line, "u").axes
    x, values, noise = readings(ax)
    np.testing.assert_allclose(x, X[[1, 2, 3, 0, 4]])
    np.testing.assert_allclose(values, np.sin(X[[1, 2, 3, 0, 4]]))
    inferred = line.draws("noise_b").mean()
    np.testing.assert_allclose(noise, [0.1, 0.2, 0.3, inferred, inferred], rtol=1e-6)


@pytest.mark.parametrize("quantity", ["f", source])
def test_an_equation_and_the_name_of_its_sensors_are_the_same(line, quantity):
    (ax,) = plot.band(line, quantity).axes
    expected = line.predict(source, line.problem.grid())
    np.testing.assert_allclose(labelled(ax)["posterior mean"].get_ydata(), expected.mean)
    np.testing.assert_allclose(readings(ax)[1], np.cos(X))


def test_band_sorts_points_and_leaves_out_readings_beyond_them(line):
    (ax,) = plot.band(line, "u", {"x": [0.6, 0.2, 0.4]}, truth=[6.0, 2.0, 4.0]).axes
    np.testing.assert_array_equal(labelled(ax)["posterior mean"].get_xdata(), [0.2, 0.4, 0.6])
    np.testing.assert_array_equal(labelled(ax)["truth"].get_ydata(), [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(np.sort(readings(ax)[0]), [0.25, 0.5])


def test_band_without_sensors_of_the_quantity_has_no_readings(line):
    (ax,) = plot.band(line, "u_x", p=0.5).axes
    assert set(labelled(ax)) == {"posterior mean", "50% interval"}
    assert ax.get_ylabel() == "$u_{x}$"


def test_band_of_new_readings_says_so_and_is_the_predicted_one(line):
    (ax,) = plot.band(line, "f", noise=True).axes
    assert set(labelled(ax)) == {"posterior mean", "95% predictive interval", "readings"}
    low, high = line.predict("f", line.problem.grid(), noise=True).interval(0.95)
    np.testing.assert_allclose(np.sort(shade(ax, "95% predictive interval")[1:], axis=0), [low, high])


def test_band_on_a_slice_shows_the_readings_there(plane):
    (ax,) = plot.band(plane, "u", {"x": X, "t": 0.5}, truth=wave).axes
    expected = plane.predict("u", {"x": X, "t": 0.5})
    np.testing.assert_allclose(labelled(ax)["posterior mean"].get_ydata(), expected.mean)
    np.testing.assert_allclose(labelled(ax)["truth"].get_ydata(), wave(X, 0.5))
    np.testing.assert_allclose(readings(ax)[1], wave(X, 0.5))
    assert ax.get_xlabel() == "$x$ ($t$ = 0.5)"
    (other,) = plot.band(plane, "u", {"x": 0.5, "t": [0.1, 0.2]}).axes
    assert "readings" not in labelled(other)
    assert other.get_xlabel() == "$t$ ($x$ = 0.5)"


def test_band_draws_into_given_axes(line):
    figure = Figure()
    ax = figure.add_subplot()
    assert plot.band(line, "u", ax=ax) is figure
    assert len(figure.axes) == 1
    assert ax.get_legend() is not None


def test_the_truth_is_called_by_the_names_of_its_arguments(plane):
    (ax,) = plot.band(plane, "u", {"x": X, "t": 0.5}, truth=lambda t, x: x + 10 * t).axes
    np.testing.assert_allclose(labelled(ax)["truth"].get_ydata(), X + 5)
    (ax,) = plot.band(plane, "a", truth=np.cos).axes
    np.testing.assert_allclose(labelled(ax)["truth"].get_ydata(), np.cos(np.linspace(0, 1, 101)))


# --- maps and field ---


def test_maps_show_mean_sd_truth_and_error(plane):
    figure = plot.maps(plane, "u", truth=wave)
    assert titles(figure) == ["$u$: mean", "$u$: sd", "$u$: truth", "$u$: |mean − truth|"]
    grid = plane.problem.grid()
    expected, truth = plane.predict("u", grid), wave(**grid)
    arrays = [expected.mean, expected.sd, truth, np.abs(expected.mean - truth)]
    for ax, array in zip(figure.axes, arrays, strict=True):
        np.testing.assert_allclose(np.ravel(mesh(ax).get_array()), array.ravel())
        assert ax.get_aspect() == "auto"  # 1 wide, 3 tall
    limits = [mesh(ax).get_clim() for ax in figure.axes]
    assert limits[0] == limits[2]
    assert limits[1] == limits[3]
    dots = labelled(figure.axes[0])["readings"]
    assert len(dots.get_xdata()) == 10
    assert "readings" not in labelled(figure.axes[2])


def test_maps_mesh_the_axes_they_are_given(plane):
    t = np.linspace(0.2, 1.0, 4)
    figure = plot.maps(plane, "u", {"x": X, "t": t})
    assert titles(figure) == ["$u$: mean", "$u$: sd"]
    expected = plane.predict("u", {"x": X[:, None], "t": t})
    np.testing.assert_allclose(np.ravel(mesh(figure.axes[0]).get_array()), expected.mean.ravel())
    assert len(labelled(figure.axes[0])["readings"].get_xdata()) == 5  # those at t = 1.5 are beyond
    assert figure.axes[0].get_aspect() == "auto"  # a length and a time have no common scale


@pytest.mark.parametrize(
    ("quantity", "at", "panels", "xlabel"),
    [
        ("u", None, 2, "$x$"),
        ("a", None, 1, "$x$"),
        ("law", None, 2, "$x$"),
        ("ring", None, 1, "$t$"),
        ("u", {"x": 0.5, "t": X}, 1, "$t$ ($x$ = 0.5)"),
    ],
)
def test_field_chooses_by_the_number_of_coordinates(plane, quantity, at, panels, xlabel):
    figure = plot.field(plane, quantity, at)
    assert len(figure.axes) == panels
    assert figure.axes[0].get_xlabel() == xlabel


# --- unknowns, traces ---


def test_unknowns_show_posterior_prior_and_truth(line):
    figure = plot.unknowns(line, truth={"k": 2.0})
    assert len(figure.axes) == 2
    ax = figure.axes[0]
    draws = line.draws("k").ravel().astype(float)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert ax.get_title() == f"$k$ = {draws.mean():.3g} [{low:.3g}, {high:.3g}]"
    np.testing.assert_allclose(labelled(ax)["posterior mean"].get_xdata(), draws.mean())
    np.testing.assert_array_equal(labelled(ax)["truth"].get_xdata(), 2.0)
    interval, outline = (patch.get_data() for patch in ax.patches if isinstance(patch, StepPatch))
    assert np.sum(outline.values * np.diff(outline.edges)) == pytest.approx(1.0)
    np.testing.assert_allclose(interval.edges[[0, -1]], [low, high])
    x, density = labelled(ax)["prior"].get_data()
    inside = x > 0
    exact = np.exp(-0.5 * np.log(x[inside]) ** 2) / (x[inside] * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(density[inside], exact, rtol=1e-4)
    assert np.all(density[~inside] == 0)
    assert "truth" not in labelled(figure.axes[1])
    assert figure.axes[1].get_xlabel() == "noise_b"


def test_a_vector_has_a_panel_for_each_component(plane):
    figure = plot.unknowns(plane, truth={"c": [0.3, -0.4]})
    assert [ax.get_xlabel() for ax in figure.axes] == ["$c_{0}$", "$c_{1}$"]
    for i, (ax, truth) in enumerate(zip(figure.axes, [0.3, -0.4], strict=True)):
        mean = plane.draws("c")[..., i].astype(float).mean()
        np.testing.assert_allclose(labelled(ax)["posterior mean"].get_xdata(), mean)
        np.testing.assert_allclose(labelled(ax)["truth"].get_xdata(), truth)
        x, density = labelled(ax)["prior"].get_data()
        np.testing.assert_allclose(density, np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi), rtol=1e-4)


def test_traces_show_every_chain_and_rhat(line):
    figure = plot.traces(line)
    assert [ax.get_ylabel() for ax in figure.axes] == ["$k$", "noise_b", "log density"]
    shown = [line.draws("k"), line.draws("noise_b"), line.stats["log_density"]]
    for ax, draws in zip(figure.axes, shown, strict=True):
        np.testing.assert_array_equal([trace.get_ydata() for trace in ax.lines], draws)
        assert ax.get_title() == rf"$\hat{{R}}$ = {rhat_of(draws):.3f}"
        assert len({trace.get_color() for trace in ax.lines}) == 2
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["chain 0", "chain 1"]


# --- overview ---


def test_overview_has_fields_equations_and_unknowns_once_each(line):
    figure = plot.overview(line, truth={"u": sine, "f": np.cos, "k": 1.0})
    assert [ax.get_ylabel() for ax in figure.axes] == ["$u$", "$f$", "", ""]
    assert [ax.get_xlabel() for ax in figure.axes] == ["$x$", "$x$", "$k$", "noise_b"]
    assert ["truth" in labelled(ax) for ax in figure.axes] == [True, True, True, False]
    np.testing.assert_allclose(labelled(figure.axes[1])["truth"].get_ydata(), np.cos(line.problem.grid()["x"]))
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert sorted(texts) == ["95% interval", "posterior mean", "prior", "readings", "truth"]


def test_overview_of_two_coordinates(plane):
    figure = plot.overview(plane, truth={"u": wave})
    expected = ["$u$: mean", "$u$: sd", "$u$: |mean − truth|", "law: mean", "law: sd", "", ""]
    assert titles(figure)[:7] == expected
    assert [ax.get_ylabel() for ax in figure.axes[5:7]] == ["$a$", "ring"]
    assert [ax.get_xlabel() for ax in figure.axes[7:]] == ["$c_{0}$", "$c_{1}$"]


def test_overview_takes_a_truth_of_the_paper(line):
    truth = bp.paper.Truth({"u": sine, "elsewhere": sine}, {"k": 0.7})
    first, _, third, _ = plot.overview(line, truth=truth).axes
    np.testing.assert_allclose(labelled(first)["truth"].get_ydata(), np.sin(line.problem.grid()["x"]))
    np.testing.assert_allclose(labelled(third)["truth"].get_xdata(), 0.7)


def test_labels_of_ticks_are_text_and_their_power_of_ten_is_a_formula():
    def panel(ax):
        mesh = ax.pcolormesh([0, 1], [-3e-6, 3e-6], np.array([[-3e6, 0], [0, 3e6]]), shading="gouraud")
        drawing.colour_bar(ax, mesh)

    figure = drawing.figure([panel], 1, (4, 3))
    figure.draw_without_rendering()
    (ax,) = figure.axes
    for axes, power in ((ax, "−6"), (ax.child_axes[0], "6")):
        texts = [label.get_text() for label in axes.yaxis.get_ticklabels()]
        assert {"−2", "0", "2"} <= set(texts)
        assert f"10^{{{power}}}" in axes.yaxis.get_offset_text().get_text()


def test_figures_leave_the_global_style_and_pyplot_alone(line, tmp_path):
    before = dict(matplotlib.rcParams)
    figure = plot.overview(line)
    figure.savefig(tmp_path / "overview.png")
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "overview.png").stat().st_size > 10_000
    label = figure.axes[0].get_xticklabels()[0]
    assert label.get_fontsize() == 9  # made after our style has gone
    assert isinstance(figure, Figure)


def test_a_single_draw_has_no_interval(line):
    single = bp.Result(
        line.problem,
        line.method,
        0,
        line.z[:1, :1],
        line.functionals[:1, :1],
        {"log_density": line.stats["log_density"][:1, :1]},
    )
    figure = plot.overview(single)
    assert all("95% interval" not in labelled(ax) for ax in figure.axes)
    mean = labelled(figure.axes[2])["posterior mean"].get_xdata()
    np.testing.assert_allclose(mean, line.draws("k")[0, 0])


# --- what cannot be shown ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: plot.band(r, "w"), "'w' is not known"),
        (lambda r: plot.band(r, "u"), "x, t vary; fix all but one, such as 't': 1.5, in at, or use plot.maps"),
        (lambda r: plot.band(r, "u", {"x": 0.5, "t": 0.5}), "no coordinate varies"),
        (lambda r: plot.band(r, "u", {"x": X}), "no positions for t"),
        (lambda r: plot.band(r, "u", {"z": X}), "'z' is not a coordinate"),
        (lambda r: plot.maps(r, "a"), "only x varies; use plot.band"),
        (lambda r: plot.maps(r, "u", {"x": X, "t": 0.5}), "only x varies; use plot.band"),
        (lambda r: plot.maps(r, "u", {"x": [X, X], "t": [X[1], X[0]], "z": 0}), "'z' is not a coordinate"),
        (lambda r: plot.band(r, "a", truth=np.zeros(7)), r"truth has shape \(7,\), the points have \(101,\)"),
        (lambda r: plot.maps(r, "u", truth=np.zeros(41)), r"truth has shape \(41,\), the points have \(41, 41\)"),
        (lambda r: plot.band(r, "a", truth=lambda x, y: x), "truth failed as a function of x"),
        (lambda r: plot.band(r, "a", truth="sin"), "must be a function or numbers, got str"),
        (lambda r: plot.band(r, "a", truth={"v": 1.0}), "truth: 'v' is not known"),
        (lambda r: plot.band(r, "a", p=95), "between 0 and 1"),
        (lambda r: plot.unknowns(r, truth={"c": 1.0}), r"truth of 'c': got shape \(\), expected \(2,\)"),
        (lambda r: plot.unknowns(r, truth=1.0), "must be a dictionary by name, got float"),
        (lambda r: plot.overview(r, truth={"d": 1.0}), "truth: 'd' is not known"),
    ],
)
def test_errors_say_what_is_wrong(plane, call, message):
    with pytest.raises(bp.InputError, match=message):
        call(plane)


def test_more_than_two_coordinates_must_be_fixed():
    problem = bp.Problem(
        domain={"x": (0.0, 1.0), "y": (0.0, 1.0), "t": (0.0, 1.0)},
        fields={"u": SMALL},
        sensors={"u": bp.Sensors("u", {"x": X, "y": X, "t": [0.5, 0.5, 0.5, 0.5, 1.0]}, X, 0.1)},
    )
    result = made_up_result(problem, 0)
    with pytest.raises(bp.InputError, match=r"x, y, t vary; fix all but two, such as 't': 0\.5, in at"):
        plot.field(result, "u")
    with pytest.raises(bp.InputError, match="the points form no mesh; give 1-D arrays of x and y"):
        plot.maps(result, "u", {"x": [X], "y": [X], "t": 0.5})
    figure = plot.overview(result)
    assert titles(figure) == ["$u$: mean ($t$ = 0.5)", "$u$: sd ($t$ = 0.5)"]
    assert len(labelled(figure.axes[0])["readings"].get_xdata()) == 4
    with pytest.raises(bp.InputError, match="no unknowns and no inferred noise"):
        plot.unknowns(result)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("u", "$u$"),
        ("u_xx", "$u_{xx}$"),
        ("nu", r"$\nu$"),
        ("c[1]", "$c_{1}$"),
        ("rate", "rate"),
        ("noise_u", "noise_u"),
    ],
)
def test_names_are_set_as_mathematics(name, shown):
    assert views.math(name) == shown


def test_posterior_and_truth_differ_in_more_than_colour(line):
    ax = plot.band(line, "u", truth=sine).axes[0]
    mean, truth = labelled(ax)["posterior mean"], labelled(ax)["truth"]
    assert (mean.get_linestyle(), truth.get_linestyle()) == ("-", "--")
    assert to_rgba(mean.get_color()) != to_rgba(truth.get_color())


def test_prior_densities_have_the_area_and_spread_of_the_draws(line):
    figure = plot.prior_density(line.problem, draws=4000)
    assert [ax.get_xlabel() for ax in figure.axes] == ["$u$", "$u_{x}$", "$u_{xx}$"]
    draws = bp.prior.predict(line.problem, "u_x", {"x": [0.0, 0.5, 1.0]}, draws=4000).draws[0]
    ax = figure.axes[1]
    outlines = [patch for patch in ax.patches if isinstance(patch, StepPatch)]
    black = [curve for curve in ax.lines if curve.get_color() == drawing.BLACK]
    assert len(outlines) == len(black) == 3
    for i, (outline, dashes) in enumerate(zip(outlines, black, strict=True)):
        heights, edges, _ = outline.get_data()
        shown = np.mean((draws[:, i] >= edges[0]) & (draws[:, i] <= edges[-1]))
        assert np.sum(heights * np.diff(edges)) == pytest.approx(shown)
        assert dashes.get_ydata().max() == pytest.approx(1 / (draws[:, i].std() * np.sqrt(2 * np.pi)), rel=0.01)
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["$x$ = 0", "$x$ = 0.5", "$x$ = 1", "normal with the same sd"]


def test_prior_covariance_is_shown_as_it_is(plane):
    at = {"x": X[::-1], "t": 0.5}
    figure = plot.covariance(plane.problem, "u_x", at, draws=500)
    ax = figure.axes[0]
    (mesh,) = [c for c in ax.collections if isinstance(c, QuadMesh)]
    expected = bp.prior.covariance(plane.problem, "u_x", {"x": X, "t": 0.5}, draws=500)
    np.testing.assert_allclose(np.asarray(mesh.get_array()).reshape(5, 5), expected, rtol=1e-4)
    assert ax.get_title() == "prior covariance of $u_{x}$ ($t$ = 0.5)"
    middle = plot.covariance(plane.problem, draws=100).axes[0]
    assert middle.get_title() == "prior covariance of $u$ ($t$ = 1.5)"


def test_a_band_of_a_prediction(line):
    band = bp.prior.predict(line.problem, "u", {"x": X}, draws=200)
    figure = plot.band(band, truth={"u": sine})
    ax = figure.axes[0]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), band.mean)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.sin(X))
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["95% interval", "mean", "truth"]


def line_to(top):
    return lambda ax: (ax.plot([0.0, top], [0.0, 2 * top]), ax.set(xlabel="x", ylabel="y"))


@pytest.mark.parametrize(("one_y", "tops"), [("", [2, 4, 6]), ("row", [4, 4, 6]), ("all", [6, 6, 6])])
def test_panels_with_common_axes_name_them_once(one_y, tops):
    """Panels of tops 1, 2 and 3 in two columns: the second column has nothing below its first panel."""
    figure = drawing.figure([line_to(1), line_to(2), line_to(3), None], 2, drawing.BESIDE, one_x=True, one_y=one_y)
    for ax, top in zip(figure.axes, tops, strict=True):
        assert ax.get_xlim() == figure.axes[2].get_xlim()
        assert ax.get_ylim() == pytest.approx((-0.05 * top, 1.05 * top))
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "x", "x"]
    assert [ax.get_ylabel() for ax in figure.axes] == ["y", "" if one_y else "y", "y"]
    figure.draw_without_rendering()
    numbered = [[t.label1.get_visible() for t in ax.xaxis.get_major_ticks()] for ax in figure.axes]
    assert [all(shown) for shown in numbered] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("k", "$k$"), ("log likelihood", "log likelihood"), ("u_x at x=-0.5, t=1", "$u_{x}$ at $x$ = −0.5, $t$ = 1")],
)
def test_names_with_places(name, shown):
    assert views.math_at(name) == shown


PRIOR_WRONG = {
    "a result": (lambda r: plot.prior_density(r), r"prior_density: expected a bp.Problem as first argument, got Result; use result.problem"),
    "covariance of a result": (lambda r: plot.covariance(r), r"covariance: expected a bp.Problem as first argument, got Result; use"),
    "one name": (lambda r: plot.prior_density(r.problem, "u"), r"quantities must be a list such as \('u', 'u_x'\), got 'u'"),
    "nothing": (lambda r: plot.prior_density(r.problem, ()), r"quantities must be a list"),
    "many points": (lambda r: plot.prior_density(r.problem, ("u",), {"x": np.linspace(0, 1, 8)}), r"8 points; give at most 7"),
    "unknown quantity": (lambda r: plot.prior_density(r.problem, ("w",)), r"'w' is not known"),
    "one point": (lambda r: plot.covariance(r.problem, "u", {"x": 0.5}), r"covariance 'u': no coordinate varies; give points along one"),
    "a number": (lambda r: plot.covariance(r.problem, lambda k: k), r"no coordinate varies"),
    "no quantity": (lambda r: plot.band(r), r"band: no quantity given; name one, such as band"),
    "a quantity of a prediction": (lambda r: plot.band(r.predict("u", {"x": X}), "u"), r"a Prediction has its own quantity, points and noise"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "words"), PRIOR_WRONG.values(), ids=PRIOR_WRONG.keys())
def test_figures_of_the_prior_refuse_what_they_cannot_show(line, call, words):
    with pytest.raises(bp.InputError, match=words):
        call(line)


def test_history_shows_each_fit_and_refuses_chains(line):
    problem = line.problem
    elbo = bp.infer(problem, bp.VI(num_steps=2000, num_draws=10, init="small"), seed=0, chains=2, progress=False)
    (ax,) = plot.history(elbo).axes
    assert len(ax.lines) == 2
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), elbo.history["elbo"][1, 2:])
    assert ax.get_yscale() == "linear"
    with pytest.raises(bp.InputError, match=r"history: HMC records no training history; use plot.traces"):
        plot.history(line)


def test_a_plain_network_is_drawn_without_a_band(line):
    x = np.linspace(0, 1, 5)
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": SMALL}, sensors={"u": bp.Sensors("u", {"x": x}, np.sin(x), noise=0.1)}
    )
    result = bp.infer(problem, bp.PINN(num_steps=200), seed=0, progress=False)
    (ax,) = plot.band(result, "u").axes
    assert ax.get_legend_handles_labels()[1] == ["solution", "readings"]
    (ax,) = plot.history(result).axes
    assert ax.get_yscale() == "log"
    with pytest.raises(bp.InputError, match="traces: a single solution has no draws to trace"):
        plot.traces(result)


def test_several_solutions_are_drawn_without_an_interval():
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": SMALL}, sensors={"f": bp.Sensors(source, {"x": X}, np.cos(X), 0.2)},
        unknowns={"k": dist.Normal()},
    )  # fmt: skip
    result = bp.infer(problem, bp.PINN(num_steps=200), seed=0, chains=3, progress=False)
    (ax,) = plot.unknowns(result).axes
    assert "95% interval" not in ax.get_legend_handles_labels()[1]
    assert "[" not in ax.get_title()
    assert np.all(np.isnan(result.predict("u", {"x": X}).quantile(0.1)))
