"""Networks whose weights have an inferred standard deviation: the prior's law, and the posterior against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import bpinn as bp

PLANE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
RAYLEIGH = dist.Weibull(np.sqrt(2.0) * 0.7, 2.0)  # a normal variable with this standard deviation is Laplace(0.7)


def line(field, noise=0.1, count=12):
    x = np.linspace(-1.0, 1.0, count)
    y = 0.8 - 1.5 * x + 0.1 * np.random.default_rng(3).normal(size=count)
    sensors = {"u": bp.Sensors("u", {"x": x}, y, noise=noise)}
    return bp.Problem(domain={"x": (-1.0, 1.0)}, fields={"u": field}, sensors=sensors)


def test_weights_of_the_prior_have_the_marginal_law(x64):
    """A field without hidden layers has its bias and its weights as values: two weights that share one scale."""
    problem = bp.Problem(PLANE, {"u": bp.MLP(hidden=(), weight_sd=RAYLEIGH, bias_sd=2.0)})
    corners = {"x": np.array([0.0, 1.0, 0.0]), "y": np.array([0.0, 0.0, 1.0])}
    bias, right, up = np.asarray(bp.prior.predict(problem, "u", corners, draws=20_000, seed=1).draws)[0].T
    first, second = right - bias, up - bias
    for sample, law in (
        (first, stats.laplace(scale=0.7)),
        (second, stats.laplace(scale=0.7)),
        (bias, stats.norm(0, 2)),
    ):
        assert stats.kstest(sample, law.cdf).pvalue > 1e-3
    # Independent given their scale s: the mean of (first second)^2 is that of s^4, twice the square of that of s^2.
    product = (first * second) ** 2
    assert abs(product.mean() - 8 * 0.7**4) < 4 * product.std() / np.sqrt(len(product))
    assert abs(np.corrcoef(bias**2, first**2)[0, 1]) < 4 / np.sqrt(len(bias))


VARIANTS = {
    "shared": ({"weight_sd": dist.HalfNormal(2.0)}, {"weight_sd": 1.7}, [1.7, 1.7, 1.7], [1.0, 1.0, 1.0]),
    "one for each layer": (
        {"weight_sd": dist.HalfNormal(jnp.ones(3)), "bias_sd": 0.5},
        {"weight_sd": np.array([0.3, 0.6, 1.2])},
        [0.3, 0.6, 1.2],
        [1.0, 1.0, 1.0],
    ),
    "some layers": (
        {"weight_sd": (2.0, dist.HalfNormal(), 0.5), "bias_sd": (dist.HalfNormal(), 1.0, dist.HalfNormal())},
        {"weight_sd_layer2": 0.4, "bias_sd_layer1": 3.0, "bias_sd_layer3": 0.2},
        [1.0, 0.4, 1.0],
        [3.0, 1.0, 0.2],
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_layer_has_its_scale(name, x64):
    """The network is the one with weights and biases multiplied by their scales, whose prior has fixed numbers."""
    given, scales, of_weights, of_biases = VARIANTS[name]
    bounds, requests = ((-1.0, 1.0),), [((0,), (1,), (2,))]
    field, plain = bp.MLP(hidden=(4, 3), **given), bp.MLP(hidden=(4, 3))
    assert {n: np.shape(s) for n, s in scales.items()} == {n: p.shape() for n, p in field.scale_priors(bounds).items()}
    theta = field.sample_prior(jax.random.key(0), bounds)
    scaled = [
        part
        for (w, b), of_w, of_b in zip(field.unflatten(theta, bounds), of_weights, of_biases, strict=True)
        for part in (of_w * w.ravel(), of_b * b)
    ]
    at = [np.linspace(-1, 1, 5)[:, None]]
    prepared = field.prepare(at, requests, bounds)
    found = field.evaluate(theta, prepared, requests, (5,), bounds, scales=jax.tree.map(jnp.asarray, scales))
    expected = plain.evaluate(jnp.concatenate(scaled), prepared, requests, (5,), bounds)
    for index, values in expected[0].items():
        np.testing.assert_allclose(found[0][index], values, rtol=1e-10, atol=1e-12)


WEIGHT, BIAS = dist.LogNormal(0.0, 0.8), dist.HalfNormal(1.5)


@pytest.mark.parametrize("coordinates", ["whitened", "plain"])
def test_the_posterior_of_the_sds_is_that_of_quadrature(coordinates):
    """A line: given both standard deviations the readings are normal in closed form, so two integrals are left."""
    problem = line(bp.MLP(hidden=(), weight_sd=WEIGHT, bias_sd=BIAS), noise=0.4)
    result = bp.infer(problem, bp.HMC(coordinates=coordinates, num_draws=2500), seed=0, progress=False)
    assert result.diagnose().verdict == "good"
    x, y = problem.readings[0].at["x"], problem.readings[0].values
    sds = np.linspace(0.02, 14.0, 400), np.linspace(0.01, 6.5, 300)
    log = np.array([[marginal(x, y, w, b, 0.4) for b in sds[1]] for w in sds[0]])
    log += np.asarray(WEIGHT.log_prob(sds[0]))[:, None] + np.asarray(BIAS.log_prob(sds[1]))
    weight = np.exp(log - logsumexp(log))
    for name, axis in (("weight_sd_u", 0), ("bias_sd_u", 1)):
        density, grid = weight.sum(axis=1 - axis), sds[axis]
        exact = density @ np.log(grid)
        sd = np.sqrt(density @ np.log(grid) ** 2 - exact**2)
        ess = float(result.summary().table.loc[name, "ess"])
        assert abs(np.log(result.draws(name)).mean() - exact) < 4 * sd / np.sqrt(ess)
        for p in (0.1, 0.5, 0.9):  # shares of draws below quantiles of the exact posterior
            below = float(np.mean(result.draws(name) < np.interp(p, np.cumsum(density), grid)))
            assert abs(below - p) < 4 * np.sqrt(p * (1 - p) / ess) + 0.01


def marginal(x, y, weight_sd, bias_sd, noise):
    """The log density of the readings of a line, by the determinant lemma for its two parameters."""
    features = np.stack([weight_sd * x, np.full_like(x, bias_sd)], axis=1) / noise
    precision = np.eye(2) + features.T @ features
    pulled = features.T @ (y / noise)
    return -0.5 * (y @ y / noise**2 - pulled @ np.linalg.solve(precision, pulled) + np.log(np.linalg.det(precision)))


def test_linear_readings_leave_standard_normal_residuals_whatever_the_scales(x64):
    """In whitened coordinates: output weights in units of an inferred scale, given the scale and hidden weights."""
    posterior = bp.Posterior(line(bp.MLP(hidden=(5,), weight_sd=dist.HalfNormal(2.0), bias_sd=BIAS)))
    coordinates = posterior.coordinates()
    density = jax.jit(coordinates.log_density)
    for w in posterior.sample_prior(jax.random.key(1), 3):
        other = w.at[coordinates.where].set(jnp.arange(6.0) / 3)
        v, v_other = w[coordinates.where], other[coordinates.where]
        assert density(other) - density(w) == pytest.approx(-0.5 * float(v_other @ v_other - v @ v), rel=1e-7)


def test_it_is_saved_loaded_and_reported(tmp_path):
    field = bp.MLP(hidden=(4, 3), weight_sd=dist.HalfNormal(2.0), bias_sd=(1.0, dist.LogNormal(0.0, 0.5), 0.5))
    method = bp.HMC(num_warmup=60, num_draws=30)
    result = bp.infer(line(field), method, seed=0, chains=2, progress=False, out=tmp_path / "run")
    again = bp.infer(line(field), method, seed=0, chains=2, progress=False, out=tmp_path / "run")
    np.testing.assert_array_equal(result.z, again.z)
    assert result.names == ["weight_sd_u", "bias_sd_layer2_u"]
    assert "weight_sd_u" in str(result.summary())
    result.save(tmp_path / "result.npz")
    loaded = bp.load(tmp_path / "result.npz")
    assert loaded.problem.fields["u"] == field
    np.testing.assert_array_equal(loaded.draws("bias_sd_layer2_u"), result.draws("bias_sd_layer2_u"))
    found, expected = (r.predict("u", {"x": [0.5]}).draws for r in (loaded, result))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    bp.report.write(result, tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "inferred weight_sd, inferred bias_sd_layer2" in page


def test_a_scale_that_leaves_its_prior_is_said():
    field = bp.MLP(hidden=(3,), weight_sd=dist.HalfNormal(0.1), bias_sd=dist.LogNormal(jnp.zeros(2), 1.0))
    usual = {"weight_sd": np.full((2, 50), 0.1), "bias_sd": np.ones((2, 50, 2))}
    assert field.criticism(usual, ((0.0, 1.0),)) == []
    (reason, _), = field.criticism(usual | {"weight_sd": np.full((2, 50), 0.5)}, ((0.0, 1.0),))  # fmt: skip
    assert reason.startswith("its weight_sd is 0.5, far above what its prior expects (0.06")
    usual["bias_sd"][..., 1] = 40.0
    (reason, _), = field.criticism(usual, ((0.0, 1.0),))  # fmt: skip
    assert reason.startswith("its bias_sd is 40")


FILE = """
[domain]
x = [0.0, 1.0]
[fields.u]
hidden = [4]
{sds}
[[sensors]]
quantity = "u"
data = "u.csv"
noise = 0.1
"""
IN_FILES = {
    'weight_sd = { prior = "half_normal", sd = 2.0 }': bp.MLP(hidden=(4,), weight_sd=dist.HalfNormal(2.0)),
    'weight_sd = [1.5, { prior = "lognormal", log_mean = 0.0, log_sd = 1.0 }]\nbias_sd = { prior = "half_normal", sd = 1.0 }': bp.MLP(
        hidden=(4,), weight_sd=(1.5, dist.LogNormal(0.0, 1.0)), bias_sd=dist.HalfNormal(1.0)
    ),
}


def read(sds, tmp_path):
    from bpinn.problem_file import read_problem

    (tmp_path / "u.csv").write_text("x,value\n0,0\n1,1\n")
    (tmp_path / "problem.toml").write_text(FILE.format(sds=sds))
    return read_problem(tmp_path / "problem.toml").problem.fields["u"]


@pytest.mark.parametrize("sds", IN_FILES)
def test_it_stands_in_a_problem_file(sds, tmp_path):
    assert read(sds, tmp_path) == IN_FILES[sds]


@pytest.mark.parametrize(
    ("sds", "words"),
    [
        ("weight_sd = { prior = 'half_normal', sdd = 1 }", r"fields\.u\.weight_sd\.sd: is missing"),
        ("weight_sd = [1.0, { prior = 'half' }]", r"fields\.u\.weight_sd\.1\.prior: 'half' is not known"),
        ("weight_sd = { prior = 'normal', mean = 0, sd = 1 }", r"fields\.u: MLP: weight_sd: Normal allows negative values"),
        ("weight_sd = 'learn'", r"fields\.u\.weight_sd: expected a number, one per layer, or a prior, got 'learn'"),
    ],
)  # fmt: skip
def test_a_wrong_prior_in_a_file_is_located(sds, words, tmp_path):
    with pytest.raises(bp.InputError, match=words):
        read(sds, tmp_path)


@pytest.mark.parametrize(
    "method",
    [
        bp.LastLayer(num_steps=50, num_draws=8),
        bp.VI(init_steps=20, num_steps=20, num_draws=8),
        bp.PINN(num_steps=20),
        bp.Laplace(num_steps=3, init_steps=20, num_draws=8),
        bp.Ensemble(members=3, num_steps=3),
        bp.EnsembleKalman(members=12, most_steps=5),
        bp.Dropout(rate=0.1, num_steps=20, num_draws=8, last=8),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_method_takes_it(method):
    result = bp.infer(line(bp.MLP(hidden=(4,), weight_sd=dist.HalfNormal(2.0))), method, seed=0, progress=False)
    assert np.all(np.isfinite(result.predict("u", {"x": [0.5]}).draws))
    assert np.all(result.draws("weight_sd_u") > 0)
