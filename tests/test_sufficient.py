"""Sufficient statistics: a few rows with the likelihood of many readings, wherever these are linear."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import sufficient
from bpinn.coordinates import Coordinates, reference_at
from bpinn.engine.advance import suited
from bpinn.sufficient import LEAST, Statistics, summarised

COUNT = 1500
RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 1.0, COUNT)
Y = np.sin(6 * X) + 0.1 * RNG.standard_normal(COUNT)


def gap(u_x, v, x):
    return 2.0 * u_x - jnp.where(x > 0.5, 1.0 + x, 2.0) * v + jnp.exp(x) - 3.0


def decay(u, u_x, rate):
    return u_x + rate * u


def problem(sensors, unknowns=None, **fields):
    known = {"u": bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=6), **fields}
    return bp.Problem({"x": (0.0, 1.0)}, known, sensors, unknowns)


def many(quantity="u", noise=0.1, **settings):
    return bp.Sensors(quantity, {"x": X}, Y, noise, **settings)


V = {"v": bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=5, mean=lambda x: 1.0 + x**2)}
STATED = {
    "a field": lambda: problem({"u": many()}),
    "a noise for each reading": lambda: problem({"u": many(noise=0.1 + 0.2 * X)}),
    "a noise to be inferred": lambda: problem({"u": many(noise=dist.HalfNormal(1.0))}),
    "an equation of two fields": lambda: problem({"g": many(gap)}, **V),
    "averages": lambda: problem(
        {"u": bp.Sensors(bp.Average("u", over={"x": (0.8 * X, 0.8 * X + 0.1)}, nodes=3), values=Y, noise=0.1)}
    ),
    "differences": lambda: problem(
        {"u": bp.Sensors(bp.Difference("u_x", {"x": 0.0}, {"x": tuple(X)}), values=Y, noise=0.1)}
    ),
    "a Gaussian process with inferred scales": lambda: problem({"u": many()}, u=bp.GaussianProcess(terms=8)),
    "an equation with an unknown beside it": lambda: problem(
        {"u": many(), "law": bp.Sensors(decay, {"x": X[:30]}, 0.0, 0.1)}, {"rate": dist.Normal(0.0, 1.0)}
    ),
}


def figures(posterior, z, w):
    model, data = posterior.model, posterior.data
    coordinates = Coordinates(model, data, reference_at(model, data, 0.5 * z))
    return (
        jax.value_and_grad(posterior.log_density)(z),
        jax.value_and_grad(coordinates.log_density)(w, 0.7),
        coordinates.to_white(z),
        model.misfit(z, data),
        model.saturated_log_likelihood(data),
    )


@pytest.mark.parametrize("name", STATED)
def test_density_gradient_and_coordinates_are_those_of_the_readings(name, x64):
    posterior = bp.Posterior(STATED[name]())
    each = posterior.by_reading
    rows = [len(own) for own in posterior.data["values"]]
    assert rows[0] <= 12 < COUNT == len(each.data["values"][0])
    z, w = 0.5 * posterior.sample_prior(jax.random.key(1), 2)
    expected, found = figures(each, z, w), figures(posterior, z, w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), expected, found)


def test_statistics_are_accurate_in_single_precision():
    """Differences of the log density near the solution, of values up to a million, against double precision."""
    count = 200_000
    x = np.random.default_rng(1).uniform(0.0, 1.0, count)
    values = 5.0 + np.sin(6 * x) + 0.1 * np.random.default_rng(2).standard_normal(count)
    field = bp.KarhunenLoeve(bp.SquaredExponential(length=0.3), terms=8, mean=5.0)
    stated = bp.Problem({"x": (0.0, 1.0)}, {"u": field}, {"u": bp.Sensors("u", {"x": x}, values, 0.1)})
    basis = field.fixed_basis(x[:, None], (0,), ((0.0, 1.0),))[0]
    precision = np.eye(8) + basis.T @ basis / 0.1**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ basis.T @ (values - 5.0) / 0.1**2
    noise = np.random.default_rng(3).multivariate_normal(np.zeros(8), covariance, 6)
    at = (mean + noise).astype(np.float32)
    off = np.float64(at) - mean
    expected = -0.5 * np.einsum("ni,ij,nj->n", off, precision, off)
    posterior = bp.Posterior(stated)
    found = np.array([posterior.log_density(jnp.asarray(z)) for z in at], float)
    rounding = 2 * np.spacing(np.float32(abs(found[0])))
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=2 * rounding + 0.02)
    slopes = np.array([jax.grad(posterior.log_density)(jnp.asarray(z)) for z in at], float)
    sizes = np.sqrt(np.diag(precision))
    np.testing.assert_allclose(slopes / sizes, -off @ precision / sizes, atol=0.02)


def coupled(u):
    return u - jnp.mean(u)


def clipped(u):
    return jnp.where(u > 100.0, 0.0, u)


def product(u, v):
    return u * v


def repeated(u):
    return jax.lax.fori_loop(0, 3, lambda i, c: c * u, jnp.ones_like(u))


def stepped(u):
    return (10 * u).astype(int) / 10


def scaled(u, rate):
    return rate * u


@pytest.mark.parametrize(
    "stated",
    [
        lambda: problem({"u": bp.Sensors("u", {"x": X[: LEAST - 1]}, Y[: LEAST - 1], 0.1)}),
        lambda: problem({"u": many()}, u=bp.MLP(hidden=(4,))),
        lambda: problem({"u": many()}, u=bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=6, positive=True)),
        lambda: problem({"u": many(likelihood="student_t")}),
        lambda: problem({"u": many(coupled)}),
        lambda: problem({"u": many(clipped)}),
        lambda: problem({"u": many(repeated)}),
        lambda: problem({"u": many(stepped)}),
        lambda: problem({"u": many(product)}, **V),
        lambda: problem({"u": many(scaled)}, {"rate": dist.Normal(0.0, 1.0)}),
        lambda: problem({"u": many()}, u=bp.KarhunenLoeve(bp.Exponential(length=0.01), terms=600)),
    ],
)
def test_other_readings_are_left_as_they_are(stated):
    stated = stated()
    assert summarised(stated) is stated
    assert bp.Posterior(stated).by_reading is not None


def test_a_million_readings_have_the_rows_of_a_thousand():
    shapes = set()
    for count in (2000, 100_000):
        x = np.linspace(0.0, 1.0, count)
        stated = problem({"u": bp.Sensors("u", {"x": x}, np.sin(6 * x), 0.1)})
        shapes.add(str(jax.tree.map(jnp.shape, bp.Posterior(stated).data["sensors"])))
    assert len(shapes) == 1


def test_methods_that_look_at_readings_get_each_of_them():
    posterior = bp.Posterior(problem({"u": many()}))
    taken = {
        type(method).__name__: len(suited(posterior, method).data["values"][0])
        for method in (
            bp.HMC(),
            bp.Collapsed(),
            bp.SMC(),
            bp.VI(),
            bp.LastLayer(),
            bp.PINN(),
            bp.VI(batch=100),
            bp.EnsembleKalman(),
        )
    }
    assert taken == {
        "HMC": 7,
        "Collapsed": 7,
        "SMC": 7,
        "VI": COUNT,
        "LastLayer": 7,
        "PINN": COUNT,
        "EnsembleKalman": COUNT,
    }
    assert len(suited(posterior, bp.VI()).data["values"][0]) == 7


def test_draws_are_those_of_the_exact_posterior_and_the_verdict_sees_all_readings():
    stated = problem({"u": many()}, u=bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=12))
    assert isinstance(summarised(stated).readings[0], Statistics)
    result = bp.infer(stated, bp.HMC(num_warmup=200, num_draws=1500, chains=2), seed=0, progress=False)
    grid = {"x": np.linspace(0.05, 0.95, 7)}
    found, truth = result.predict("u", grid), bp.reference.exact(stated).predict("u", grid)
    draws = 400  # at least as many effective ones
    assert np.all(np.abs(found.mean - truth.mean) < 4 * truth.sd / np.sqrt(draws))
    assert np.all(np.abs(found.sd / truth.sd - 1) < 4 / np.sqrt(2 * draws))
    health = result.diagnose()
    assert health.verdict == "good", health.reasons
    assert f"{COUNT}" in str(bp.predictive.check(result))


def test_noise_and_unknowns_are_those_of_a_run_with_each_reading(monkeypatch):
    def figures():
        law = bp.Sensors(decay, {"x": np.linspace(0.0, 1.0, 30)}, 0.0, 0.3)
        stated = problem({"u": many(noise=dist.HalfNormal(1.0)), "law": law}, {"rate": dist.Normal(0.0, 1.0)})
        result = bp.infer(stated, bp.Collapsed(num_draws=1000, chains=2), seed=0, progress=False)
        return isinstance(summarised(stated).readings[0], Statistics), result

    short, one = figures()
    monkeypatch.setattr(sufficient, "LEAST", 10**9)
    whole, other = figures()
    assert short
    assert not whole
    draws = 300  # effective ones, at least
    for name in ("noise_u", "rate"):
        a, b = one.draws(name).ravel(), other.draws(name).ravel()
        assert abs(a.mean() - b.mean()) < 4 * b.std() * np.sqrt(2 / draws)
        assert abs(a.std() / b.std() - 1) < 4 / np.sqrt(draws)


def test_readings_on_disk_are_not_read_whole_into_memory(tmp_path):
    """Problem, statistics and posterior of two columns on disk take less memory than one of them."""
    count = 4_000_000
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (count,))
    u = np.lib.format.open_memmap(tmp_path / "u.npy", "w+", np.float64, (count,))
    x[:] = np.linspace(0.0, 1.0, count)
    u[:] = np.sin(6 * x)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xu"}
    field = bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=4)

    def stated(x, u):
        return bp.Problem({"x": (0.0, 1.0)}, {"u": field}, {"u": bp.Sensors("u", {"x": x}, u, 0.1)})

    in_memory = bp.Posterior(stated(np.array(x), np.array(u)))
    tracemalloc.start()
    posterior = bp.Posterior(stated(mapped["x"], mapped["u"]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * count
    z = jnp.ones(4)
    assert float(posterior.log_density(z)) == float(in_memory.log_density(z))


def test_bad_readings_on_disk_are_found(tmp_path):
    values = np.zeros(100_000)
    values[70_000] = np.nan
    np.save(tmp_path / "u.npy", values)
    mapped = np.load(tmp_path / "u.npy", mmap_mode="r")
    field = bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=4)
    with pytest.raises(bp.InputError, match="values from index 65536 on: 1 of 34464 are NaN"):
        bp.Problem(
            {"x": (0.0, 1.0)}, {"u": field}, {"u": bp.Sensors("u", {"x": np.full(len(values), 0.5)}, mapped, 0.1)}
        )
