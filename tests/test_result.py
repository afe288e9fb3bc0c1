"""What one asks of a result."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import prediction, quantity_at


def law(u, u_xx, k):
    return 0.1 * u_xx + k * u


def outside(u, x, k):
    return k * u + x


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 9)
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(6, 5), activation="sin")},
        unknowns={"k": dist.LogNormal(0.0, 1.0), "c": dist.Normal(0.0, 1.0).expand([2]).to_event(1)},
        sensors={
            "f": bp.Sensors(law, {"x": x}, np.sin(x), noise=0.1),
            "u": bp.Sensors("u", {"x": x}, np.cos(x) + 0.1 * rng.standard_normal(9), noise=dist.HalfNormal(1.0)),
            "c": bp.Sensors(lambda c: c[0] - c[1], {"x": [0.0]}, [1.0], noise=0.5),
            "t": bp.Sensors("u", {"x": [0.0]}, [1.0], noise=0.2, likelihood="student_t", dof=5.0),
            "w": bp.Sensors("u_x", {"x": [0.0, 0.1]}, [0.0, 0.1], noise=[0.2, 0.3]),
        },
    )
    method = bp.HMC(num_warmup=200, num_draws=75, num_leapfrog=15)
    return bp.infer(problem, method, seed=3, chains=2, progress=False)


def network(result, z, x):
    theta = bp.Posterior(result.problem).unflatten(z)["u"]
    h = x[:, None]
    for w, b in theta[:-1]:
        h = jnp.sin(h @ w + b)
    w, b = theta[-1]
    return (h @ w + b)[:, 0]


def test_predictions_are_those_of_each_draw(result):
    x = np.linspace(-1, 1, 7)
    draws = result.predict("u", {"x": x}).draws
    assert draws.shape == (2, 75, 7)
    for chain, step in [(0, 0), (1, 74), (1, 33)]:
        expected = network(result, jnp.asarray(result.z[chain, step]), jnp.asarray(x, jnp.float32))
        np.testing.assert_allclose(draws[chain, step], expected, rtol=2e-4, atol=2e-5)


def test_functions_of_names_sensors_and_derivatives(result):
    x = np.array([-0.5, 0.0, 0.25])
    u, k = result.predict("u", {"x": x}).draws, result.draws("k")[..., None]
    np.testing.assert_allclose(result.predict(outside, {"x": x}).draws, k * u + x, rtol=1e-4, atol=1e-5)
    by_name, by_function = result.predict("f", {"x": x}), result.predict(law, {"x": x})
    np.testing.assert_array_equal(by_name.draws, by_function.draws)
    h = 1e-2
    left, right = (result.predict("u", {"x": x + s}).draws for s in (-h, h))
    np.testing.assert_allclose(result.predict("u_x", {"x": x}).draws, (right - left) / (2 * h), rtol=0.02, atol=0.02)


def test_moments_and_intervals_are_those_of_the_draws(result):
    band = result.predict("u", {"x": np.linspace(-1, 1, 5)})
    flat = band.draws.reshape(-1, 5)
    np.testing.assert_allclose(band.mean, flat.mean(0), rtol=1e-5)
    np.testing.assert_allclose(band.sd, flat.std(0, ddof=1), rtol=1e-4)
    low, high = band.interval(0.8)
    np.testing.assert_allclose([low, high], np.quantile(flat, [0.1, 0.9], axis=0), rtol=1e-5)
    np.testing.assert_allclose(band.quantile(0.5), np.median(flat, axis=0), rtol=1e-5)


def test_meshes_keep_their_shape_and_scalars_repeat():
    problem = bp.Problem(
        domain={"x": (0.0, 1.0), "t": (0.0, 2.0)},
        fields={"u": bp.MLP(hidden=(3,)), "q": bp.MLP(hidden=(3,), inputs=("x",))},
        sensors={"u": bp.Sensors("u", {"x": 0.5, "t": [0.0, 1.0]}, [0.0, 1.0], noise=0.1)},
    )
    result = bp.infer(problem, bp.HMC(num_warmup=30, num_draws=10, num_leapfrog=3), seed=0, chains=2, progress=False)
    mesh = problem.grid(x=4, t=3)
    band = result.predict("u", mesh)
    assert band.mean.shape == band.sd.shape == (4, 3)
    assert band.draws.shape == (2, 10, 4, 3)
    np.testing.assert_array_equal(
        result.predict("u", {"x": mesh["x"].ravel(), "t": mesh["t"].ravel()}).mean, band.mean.ravel()
    )
    column = result.predict("u", {"x": np.linspace(0, 1, 4)[:, None], "t": np.linspace(0, 2, 3)[None]})
    np.testing.assert_array_equal(column.mean, band.mean)
    assert result.predict("u", {"x": 0.5, "t": 0.0}).mean.shape == ()
    assert result.predict("q", {"x": [0.1, 0.2]}).mean.shape == (2,)


def test_chunks_change_nothing(result, monkeypatch):
    x = np.linspace(-1, 1, 101)
    whole = result.predict("u", {"x": x})
    expected = whole.mean, whole.sd, whole.interval(0.9), whole.draws
    monkeypatch.setattr(quantity_at, "CHUNK_BYTES", 16 * 1024 * 4)
    monkeypatch.setattr(prediction, "KEEP_BYTES", 0)  # nothing is held
    parts = result.predict("u", {"x": x})
    np.testing.assert_allclose(parts.mean, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parts.sd, expected[1], rtol=1e-4)
    np.testing.assert_allclose(parts.interval(0.9), expected[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(parts.draws, expected[3], rtol=1e-4, atol=1e-5)
    assert len(parts._slices()) > 3


def test_new_readings_have_the_noise_of_their_sensors(result):
    x = np.zeros(400)
    plain, noisy = result.predict("f", {"x": x}), result.predict("f", {"x": x}, noise=True)
    spread = (noisy.draws - plain.draws).ravel()
    assert abs(spread.std() - 0.1) < 4 * 0.1 / np.sqrt(2 * spread.size)
    inferred = (result.predict("u", {"x": x}, noise="u").draws - result.predict("u", {"x": x}).draws).std(-1)
    np.testing.assert_allclose(inferred, result.draws("noise_u"), rtol=5 / np.sqrt(2 * 400))
    heavy = (result.predict("u", {"x": x}, noise="t").draws - result.predict("u", {"x": x}).draws).ravel()
    assert abs(np.quantile(np.abs(heavy), 0.5) / 0.2 - 0.7267) < 0.02  # the quartile of a t with 5 degrees
    stated = (result.predict("u", {"x": x}, noise=0.5).draws - result.predict("u", {"x": x}).draws).ravel()
    assert abs(stated.std() - 0.5) < 4 * 0.5 / np.sqrt(2 * stated.size)
    again = result.predict("f", {"x": x}, noise=True)
    np.testing.assert_array_equal(noisy.draws, again.draws)
    assert not np.array_equal(noisy.draws, result.predict("f", {"x": x}, noise=True, seed=1).draws)


def test_draws_are_in_their_own_space(result):
    where = result.posterior.model.parameters.slices["k"].start
    np.testing.assert_allclose(result.draws("k"), np.exp(result.z[..., where]), rtol=1e-5)
    assert result.draws("c").shape == (2, 75, 2)
    assert np.all(result.draws("noise_u") > 0)


def test_summary_prints_what_is_wanted(result):
    summary = result.summary()
    text = str(summary)
    for words in ("mean", "sd", "2.5%", "97.5%", "R-hat", "ESS", "k ", "c[0]", "c[1]", "noise_u", "Health:"):
        assert words in text
    assert summary.loc["k", "mean"] == pytest.approx(result.draws("k").mean(), rel=1e-5)
    assert summary["sd"]["noise_u"] == pytest.approx(result.draws("noise_u").std(ddof=1), rel=1e-4)
    assert list(summary.table.index) == ["k", "c[0]", "c[1]", "noise_u"]
    assert "10%" in str(result.summary(0.8))


def test_estimates_that_are_not_to_be_trusted_are_printed_as_such(prior_result):
    """One chain of a few draws is too little."""
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}, unknowns={"k": dist.Normal(0.0, 1.0)})
    summary = prior_result(problem, 20).summary()
    assert "Health: do not trust" in str(summary)
    assert str(summary).startswith("Not to be trusted, for the reasons below:\n")
    summary.warning = ""  # as of a run that can be
    assert str(summary).lstrip().startswith("mean")


def test_monitored_names(result):
    names = result.functional_names
    assert len(names) == result.functionals.shape[-1]
    assert names[0] == "u at x=-1"
    assert names[-1] == "noise_u"
    assert "f at x=-1" in names
    assert not any(name.startswith("t at") for name in names)  # it measures u, which is watched already


def test_a_file_holds_everything(result, tmp_path):
    path = result.save(tmp_path / "run.npz")
    loaded = bp.load(path)
    np.testing.assert_array_equal(loaded.z, result.z)
    np.testing.assert_array_equal(loaded.draws("k"), result.draws("k"))
    assert loaded.method == result.method
    assert loaded.seed == result.seed
    assert loaded.versions["jax"] == jax.__version__
    assert str(loaded.summary()) == str(result.summary())
    x = {"x": np.linspace(-1, 1, 5)}
    np.testing.assert_array_equal(loaded.predict("u_x", x).mean, result.predict("u_x", x).mean)
    np.testing.assert_array_equal(loaded.predict(law, x).mean, result.predict(law, x).mean)
    np.testing.assert_array_equal(loaded.problem.readings[1].values, result.problem.readings[1].values)
    again = bp.load(loaded.save(tmp_path / "again.npz"))
    np.testing.assert_array_equal(again.z, result.z)


def test_a_file_explains_itself_without_bpinn(result, tmp_path):
    path = result.save(tmp_path / "run.npz")
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        assert file["sensors/f/values"].shape == (9,)
    law_text = about["problem"]["sensors"]["f"]["quantity"]
    assert law_text["arguments"] == ["u", "u_xx", "k"]
    assert "0.1 * u_xx + k * u" in law_text["source"]
    assert about["problem"]["unknowns"]["k"] == {"type": "LogNormal", "parameters": {"loc": 0.0, "scale": 1.0}}
    assert about["method"]["num_leapfrog"] == 15
    assert about["seed"] == 3


def test_equations_are_handed_in_where_they_are_needed(result, tmp_path):
    path = result.save(tmp_path / "run.npz")
    with pytest.raises(bp.InputError, match=r"law\(u, u_xx, k\) was stored as text; pass the function: bp.load"):
        bp.load(path).predict("f", {"x": [0.0]})
    functions = {"law": law, "<lambda>": lambda c: c[0] - c[1]}
    loaded = bp.load(path, functions=functions)
    z = jnp.asarray(result.z[0, 0])
    assert loaded.posterior.log_density(z) == pytest.approx(float(result.stats["log_density"][0, 0]), rel=1e-4)


@pytest.mark.parametrize(
    "prior",
    [dist.Uniform(-1.0, 2.0), dist.Gamma(2.0, 3.0), dist.TruncatedNormal(0.0, 1.0, low=0.5), dist.Beta(2.0, 3.0),
     dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), dist.Normal(0.0, 1.0).expand([3])],
    ids=lambda p: type(p).__name__,
)  # fmt: skip
def test_priors_survive_a_file(prior, tmp_path, prior_result):
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        unknowns={"k": prior},
        sensors={"u": bp.Sensors("u", {"x": [0.0]}, [0.0], noise=1.0)},
    )
    loaded = bp.load(prior_result(problem).save(tmp_path / "r.npz"))
    value = prior.sample(jax.random.key(1))
    np.testing.assert_allclose(loaded.problem.unknowns["k"].log_prob(value), prior.log_prob(value), rtol=1e-6)


def test_damaged_and_foreign_files(result, tmp_path):
    path = result.save(tmp_path / "run.npz")
    data = path.read_bytes()
    (tmp_path / "short.npz").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    for name, words in [
        ("short", "damaged"),
        ("text", "damaged"),
        ("other", "lacks about"),
        ("none", "no file"),
    ]:
        with pytest.raises(bp.InputError, match=words):
            bp.load(tmp_path / f"{name}.npz")
    assert not list(tmp_path.glob("*.part"))


def test_infer_saves_where_told(tmp_path):
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={"u": bp.Sensors("u", {"x": [0.0]}, [0.0], noise=1.0)},
    )
    method = bp.HMC(num_warmup=20, num_draws=4, num_leapfrog=2)
    result = bp.infer(problem, method, seed=0, chains=1, progress=False, out=tmp_path / "r.npz")
    np.testing.assert_array_equal(bp.load(tmp_path / "r.npz").z, result.z)


def test_arviz_gets_all_groups(result):
    tree = result.to_arviz()
    groups = {"posterior", "posterior_predictive", "sample_stats", "log_likelihood", "observed_data", "constant_data"}
    assert set(tree.children) == groups
    np.testing.assert_array_equal(tree["posterior"]["k"].values, result.draws("k"))
    total = sum(tree["log_likelihood"][name].values.sum(-1) for name in result.problem.sensors)
    z = jnp.asarray(result.z[1, 5])
    assert total[1, 5] == pytest.approx(float(bp.Posterior(result.problem).log_likelihood(z)), rel=1e-4)
    assert tree["sample_stats"]["diverging"].dtype == bool
