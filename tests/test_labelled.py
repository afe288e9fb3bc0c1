"""Predictions as tables and labelled arrays, and results as ArviZ's DataTree."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.labelled import axes_of
from bpinn.prediction import GaussianPrediction, Prediction


def prediction(at, chains=2, draws=5):
    """One whose draws are known: (chain + 10 draw) times the sum of the coordinates."""
    shape = np.broadcast_shapes(*(np.shape(a) for a in at.values()))
    at = {c: np.broadcast_to(a, shape) for c, a in at.items()}
    size = np.arange(chains)[:, None] + 10 * np.arange(draws)
    values = (size[..., None] * np.ravel(sum(at.values()))).astype(float)
    return Prediction(lambda part: values[..., part], 3, shape, chains, draws, 8, at, "u")


X, T = np.linspace(0.0, 1.0, 4), np.array([0.0, 0.5, 2.0])
GRID = dict(zip("xt", np.meshgrid(X, T, indexing="ij"), strict=True))


@pytest.mark.parametrize(
    ("at", "dimensions", "along"),
    [
        ({"x": X}, ("x",), {"x": ("x",)}),
        (GRID, ("x", "t"), {"x": ("x",), "t": ("t",)}),
        ({"x": GRID["x"].T, "t": GRID["t"].T}, ("t", "x"), {"x": ("x",), "t": ("t",)}),
        ({"x": X[:, None], "t": T}, ("x", "t"), {"x": ("x",), "t": ("t",)}),
        ({"x": X, "t": 0.5}, ("x",), {"x": ("x",), "t": ()}),
        ({"x": X, "t": X**2}, ("point",), {"x": ("point",), "t": ("point",)}),
        ({"x": X[:, None] + T, "t": T}, ("point", "t"), {"x": ("point", "t"), "t": ("t",)}),
        ({"x": X[:, None], "t": np.array([[0.5]])}, ("x", "t"), {"x": ("x",), "t": ("t",)}),
        ({"x": np.zeros(3)}, ("point",), {"x": ()}),
        ({"x": np.array(0.5)}, (), {"x": ()}),
        ({"point": X, "t": X**2}, ("point_",), {"point": ("point_",), "t": ("point_",)}),
    ],
)
def test_grids_become_dimensions_and_scattered_points_one(at, dimensions, along):
    shape = np.broadcast_shapes(*(np.shape(a) for a in at.values()))
    found, coordinates = axes_of({c: np.broadcast_to(a, shape) for c, a in at.items()}, shape)
    assert found == dimensions
    assert {c: where for c, (where, _) in coordinates.items()} == along
    data = prediction(at).to_xarray(draws=True)
    assert data["mean"].dims == dimensions
    assert data["draws"].dims == ("chain", "draw", *dimensions)
    np.testing.assert_allclose(data["draws"].mean(("chain", "draw")), data["mean"])


def test_values_are_found_by_their_coordinates():
    data = prediction(GRID).to_xarray(draws=True)
    one = data["draws"].sel(x=X[2], t=T[1])[1]
    np.testing.assert_allclose(one, (1 + 10 * np.arange(5)) * (X[2] + T[1]))
    assert data.attrs["quantity"] == "u"


def test_the_table_is_the_labelled_array():
    """One row per point, in the order of the points."""
    band = prediction(GRID)
    table, data = band.to_pandas(0.8), band.to_xarray(0.8)
    assert list(table) == ["x", "t", "mean", "sd", "10%", "90%"]
    np.testing.assert_array_equal(table["t"], GRID["t"].ravel())
    np.testing.assert_array_equal(table["90%"], band.interval(0.8)[1].ravel())
    again = data.to_dataframe().reset_index()
    assert table.equals(again[list(table)])


def test_coordinates_do_not_clash_with_statistics():
    band = prediction({"mean": X[:, None], "chain": T})
    assert list(band.to_pandas())[:3] == ["mean_coordinate", "chain_coordinate", "mean"]
    data = band.to_xarray(draws=True)
    assert data["draws"].dims == ("chain", "draw", "mean_coordinate", "chain_coordinate")
    assert data["mean"].shape == (4, 3)


def test_single_solutions_have_no_error_bars():
    at = {"x": X}
    band = Prediction(lambda part: np.ones((1, 1, 4))[..., part], 4, (4,), 1, 1, 8, at, "u", spread=False)
    assert list(band.to_pandas()) == ["x", "mean"]
    assert set(band.to_xarray()) == {"mean"}


def test_closed_forms_have_tables_too():
    band = GaussianPrediction(np.arange(4.0), np.eye(4), {"x": X}, "u")
    np.testing.assert_allclose(band.to_pandas()["97.5%"], np.arange(4) + 1.959964, rtol=1e-6)


def test_points_without_coordinates():
    band = Prediction(lambda part: np.ones((2, 3, 1))[..., part], 1, (), 2, 3, 8, {}, "k")
    assert band.to_pandas().shape == (1, 4)
    assert band.to_xarray(draws=True)["draws"].dims == ("chain", "draw")


# --- ArviZ ---


def law(u, u_x, u_t, s, chain):
    return u_t + chain[0] * u_x - s


@pytest.fixture(scope="module")
def result():
    """Draws of a problem whose names are as unlucky as may be."""
    rng = np.random.default_rng(0)
    x, t = rng.uniform(0, 1, (2, 6))
    problem = bp.Problem(
        domain={"x": (0.0, 1.0), "t": (0.0, 2.0)},
        fields={
            "u": bp.MLP(hidden=(3,)),
            "s": bp.MLP(hidden=(3,), inputs=("x",)),
            "lp": bp.MLP(hidden=(3,)),
        },
        unknowns={"chain": dist.Normal(0.0, 1.0).expand([2]).to_event(1), "draw": dist.HalfNormal(1.0)},
        sensors={
            "u": bp.Sensors("u", {"x": x, "t": t}, np.sin(x), noise="draw"),
            "draw": bp.Sensors("u", {"x": x, "t": t}, np.sin(x), noise=dist.HalfNormal(1.0)),
            "a/b": bp.Sensors(law, {"x": x, "t": t}, 0.0, noise=0.1),
            "counts": bp.Sensors(lambda u: jnp.exp(u), {"x": x, "t": t}, [0, 1, 2, 0, 1, 1], likelihood="poisson"),
            "mean": bp.Sensors(bp.Average("u", {"x": (0.0, 1.0)}), {"t": [0.5, 1.0]}, [0.0, 0.1], noise=0.3),
            "v": bp.Sensors("lp", {"x": [0.5], "t": [0.5]}, [0.0], noise=0.1),
        },
    )
    method = bp.HMC(num_warmup=30, num_draws=600, num_leapfrog=3)
    return bp.infer(problem, method, seed=0, chains=2, progress=False)


def test_the_tree_has_all_groups_and_no_name_twice(result):
    tree = result.to_arviz()
    groups = ["posterior", "posterior_predictive", "log_likelihood", "sample_stats", "observed_data", "constant_data"]
    assert list(tree.children) == groups
    posterior = tree["posterior"]
    assert set(posterior.data_vars) == {
        "chain_unknown", "draw_unknown", "noise_draw", "u", "s", "lp",
    }  # fmt: skip
    np.testing.assert_array_equal(posterior["chain_unknown"], result.draws("chain"))
    np.testing.assert_array_equal(posterior["noise_draw"], result.draws("noise_draw"))
    assert posterior["u"].dims == ("chain", "draw", "x", "t")
    assert posterior["s"].dims == ("chain", "draw", "x")
    for name in ("posterior_predictive", "log_likelihood", "observed_data"):
        assert list(tree[name].data_vars) == ["u", "draw_sensors", "a_b", "counts", "mean", "v"]
    assert tree["posterior_predictive"]["u"].dims == ("chain", "draw", "u_reading")
    assert tree["observed_data"]["u"].dims == ("u_reading",)
    assert tree["constant_data"]["a_b_t"].dims == ("a_b_reading",)
    assert tree["sample_stats"]["diverging"].dtype == bool


def test_fields_are_those_of_the_draws(result):
    tree = result.to_arviz()
    chosen = tree["posterior"]["u"].isel(x=3, t=7)
    there = result.predict("u", {c: float(chosen[c]) for c in "xt"})
    np.testing.assert_allclose(chosen, there.draws, rtol=1e-5, atol=1e-6)
    scattered = result.to_arviz({"x": X, "t": X}, quantities=["u_x", "s", law])["posterior"]
    assert [scattered[name].dims[2:] for name in ("u_x", "s", "law")] == [("point",)] * 3
    np.testing.assert_array_equal(scattered["t"], X)
    np.testing.assert_allclose(scattered["s"][..., 2], result.predict("s", {"x": X}).draws[..., 2], rtol=1e-5)
    assert list(result.to_arviz(quantities=[])["posterior"].data_vars) == [
        "chain_unknown",
        "draw_unknown",
        "noise_draw",
    ]
    by_reading = result.to_arviz({"t": [0.5, 1.0]}, quantities=["mean"])["posterior"]
    assert by_reading["mean"].dims == ("chain", "draw", "t")


def test_new_readings_scatter_as_the_likelihood_says(result):
    tree = result.to_arviz(seed=3)
    readings = {r.name: r for r in result.problem.readings}
    drawn, noise = tree["posterior_predictive"]["u"].values, result.draws("draw")[..., None]
    mean = result.predict("u", readings["u"].at).draws
    score = (drawn - mean) / noise
    assert abs(score.mean()) < 4 / np.sqrt(score.size)
    assert abs(score.std() - 1) < 4 / np.sqrt(2 * score.size)
    counts = tree["posterior_predictive"]["counts"].values
    assert np.all(counts == np.round(counts))
    assert np.all(counts >= 0)
    again, other = result.to_arviz(seed=3), result.to_arviz(seed=4)
    np.testing.assert_array_equal(drawn, again["posterior_predictive"]["u"])
    assert not np.array_equal(drawn, other["posterior_predictive"]["u"])


def test_statistics_of_arviz_work_on_it(result):
    pytest.importorskip("xarray_einstats")  # without which arviz_stats has no functions of trees
    import arviz_stats as stats

    tree = result.to_arviz()
    table = stats.summary(tree, var_names=["draw_unknown", "chain_unknown"], round_to="none")
    assert float(table.loc["draw_unknown", "mean"]) == pytest.approx(result.draws("draw").mean(), rel=1e-3)
    assert stats.loo(tree, var_name="u").n_data_points == 6
    assert set(stats.rhat(tree)["posterior"].data_vars if "posterior" in stats.rhat(tree) else stats.rhat(tree)) >= {
        "u"
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"quantities": "u"}, "quantities must be a list"),
        ({"quantities": ["w"]}, "to_arviz 'w'"),
        ({"at": {"y": [0.0]}}, "to_arviz: 'y' is not a coordinate"),
        ({"at": {"x": [0.0]}}, "no positions for t"),
        ({"at": 3}, "at must be a dictionary"),
    ],
)
def test_wrong_requests(result, arguments, words):
    with pytest.raises(bp.InputError, match=words):
        result.to_arviz(**arguments)
