"""Readings in chunks: the same density, gradient and coordinates as all at once, in memory that does not grow."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import chunks, native
from bpinn.coordinates import Coordinates, reference_at

X = np.linspace(0.0, 1.0, 11)


def reaction(u, u_xx, k):
    return 0.1 * u_xx + k * jnp.tanh(u)


def problem(name):
    network, k = {"u": bp.MLP(hidden=(4, 3))}, {"k": dist.Normal(0.0, 1.0)}
    physics = bp.Sensors(reaction, {"x": X}, 0.1, 0.1)
    noisy = bp.Sensors("u", {"x": X[:7]}, X[:7], dist.HalfNormal(0.3), "student_t")
    wide = bp.Sensors(bp.Average("u", over={"x": (0.8 * X, 0.8 * X + 0.1)}, nodes=2), values=X, noise=0.1)
    ring = bp.Sensors(bp.Periodic("u", along="x"), values=0.0, noise=0.1)
    expansion = {"u": bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=4)}
    fields, unknowns, sensors = {
        "equation, inferred noise": (network, k, {"f": physics, "u": noisy}),
        "averages, one reading": (network, None, {"wide": wide, "ring": ring}),
        "expansion": (expansion, k, {"f": physics}),
    }[name]
    return bp.Problem({"x": (0.0, 1.0)}, fields, sensors, unknowns)


def whole_and_cut(stated, monkeypatch, points=6, **settings):
    whole = bp.Posterior(stated, **settings)
    monkeypatch.setattr(chunks, "MOST_AT_ONCE", points)
    monkeypatch.setattr(chunks, "POINTS", points)
    cut = bp.Posterior(stated, **settings)
    assert whole.model.chunks == 1
    assert cut.model.chunks > 1
    return whole, cut


def figures(posterior, z, w, weight=0.7):
    """Log likelihood, predictions, whitened vector, density in whitened coordinates, and gradients."""
    coordinates = Coordinates(posterior.model, posterior.data, reference_at(posterior.model, posterior.data, 0.5 * z))

    @jax.jit
    def found(z, w):
        frozen = coordinates.frozen(z, weight)
        return (
            jax.value_and_grad(posterior.model.log_likelihood)(z, posterior.data),
            posterior.model.predicted(z, posterior.data),
            coordinates.to_white(z, weight),
            jax.value_and_grad(coordinates.log_density)(w, weight),
            (frozen.centre(z[posterior.model.parameters.num_weights :]), frozen.root, frozen.inverse),
        )

    return jax.tree.map(np.asarray, found(z, w))


@pytest.mark.parametrize(
    "name",
    ["equation, inferred noise", "expansion", pytest.param("averages, one reading", marks=pytest.mark.slow)],
)
def test_density_gradient_and_coordinates_are_those_of_all_readings_at_once(name, x64, monkeypatch):
    whole, cut = whole_and_cut(problem(name), monkeypatch)
    z, w = whole.sample_prior(jax.random.key(1), 2)
    expected, found = figures(whole, z, w), figures(cut, z, w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), expected, found)


@pytest.mark.skipif(native.library() is None, reason="no C compiler for the native kernel")
def test_the_native_kernel_gives_the_same_in_chunks(monkeypatch):
    """Two groups and two fields, so that sums have padding of every kind."""

    def both(u, v_x):
        return u + v_x**2

    x = np.linspace(0.0, 1.0, 50)
    fields = {"u": bp.MLP(hidden=(6, 5)), "v": bp.MLP(hidden=(2,))}
    sensors = {"f": bp.Sensors(both, {"x": x}, x, 0.1), "u": bp.Sensors("u", {"x": x[:23]}, x[:23] ** 2, 0.1)}
    whole, cut = whole_and_cut(bp.Problem({"x": (0.0, 1.0)}, fields, sensors), monkeypatch, 20, native=True)
    z, w = 0.5 * whole.sample_prior(jax.random.key(1), 2)
    expected, found = figures(whole, z, w), figures(cut, z, w)
    scale = jax.tree.map(lambda a: 1e-3 * np.abs(a).max() + 1e-4, expected)
    jax.tree.map(lambda a, b, s: np.testing.assert_allclose(a, b, rtol=0, atol=s), expected, found, scale)


def test_second_derivatives_without_the_kernel(x64, monkeypatch):
    whole, cut = whole_and_cut(problem("equation, inferred noise"), monkeypatch)
    z = whole.sample_prior(jax.random.key(2), 1)[0]
    push = jnp.ones_like(z)
    along = [jax.jvp(jax.grad(lambda z, p=p: p.log_likelihood(z)), (z,), (push,))[1] for p in (whole, cut)]
    np.testing.assert_allclose(*along, rtol=1e-8)


def test_the_sum_over_a_million_readings_keeps_its_digits():
    """In single precision, against a sum in double precision: to rounding of the sum itself."""
    parts = np.random.default_rng(0).normal(-1.4, 1.0, (1000, 1000)).astype(np.float32)
    found = chunks.total(lambda z, chunk: jnp.sum(chunk), jnp.zeros(1), jnp.asarray(parts), once=False)
    exact = parts.astype(float).sum()
    assert abs(float(found) - exact) < 4 * np.spacing(np.float32(-exact))


def test_an_impossible_reading_is_impossible_in_chunks():
    values = jnp.array([1.0, -jnp.inf, 2.0])
    assert float(chunks.total(lambda z, chunk: chunk, jnp.zeros(1), values, once=False)) == -np.inf


def test_an_equation_with_an_array_of_its_own_is_not_cut(monkeypatch):
    monkeypatch.setattr(chunks, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(chunks, "POINTS", 4)
    sensors = {"f": bp.Sensors(lambda u: u - jnp.asarray(X), {"x": X}, 0.0, 0.1)}
    posterior = bp.Posterior(bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}, sensors))
    assert posterior.model.chunks == 1
    assert np.isfinite(posterior.log_likelihood(jnp.zeros(posterior.dim)))


def test_memory_of_a_gradient_does_not_grow(monkeypatch):
    """XLA's plan for temporary memory, besides arguments: the same for twice and eight times as many readings."""

    def temporary(count):
        x = np.linspace(0.0, 1.0, count)
        sensors = {"f": bp.Sensors(reaction, {"x": x}, 0.1, 0.1)}
        stated = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(8, 8))}, sensors, {"k": dist.Normal(0.0, 1.0)})
        posterior = bp.Posterior(stated)
        gradient = jax.jit(jax.grad(posterior.model.log_likelihood))
        compiled = gradient.lower(jnp.zeros(posterior.dim), posterior.data).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    monkeypatch.setattr(chunks, "MOST_AT_ONCE", 100)
    monkeypatch.setattr(chunks, "POINTS", 100)
    assert temporary(1600) < 1.2 * temporary(200)


def test_a_sample_of_the_readings_keeps_places_values_and_noise_together():
    x = np.linspace(0.0, 1.0, 50)
    sensors = {"u": bp.Sensors("u", {"x": x}, 2 * x, noise=0.1 + x), "one": bp.Sensors("u", {"x": [0.5]}, [1.0], 0.1)}
    stated = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}, sensors)
    some, one = stated.sampled(8).readings
    np.testing.assert_array_equal(some.values, 2 * some.at["x"])
    np.testing.assert_allclose(some.noise, 0.1 + some.at["x"])
    assert some.size == "8 of 50 readings"
    assert len(set(some.values)) == 8
    assert one is stated.readings[1]
    assert len(stated.readings[0].values) == 50
    assert stated.sampled(50) is stated
