"""Whitened coordinates are an exact change of variables, on every kind of problem that can be stated."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.coordinates import Coordinates, reference_at

sys.path.insert(0, str(Path(__file__).parent / "outside_package"))
from bpinn_outside import Cosine

X = np.linspace(0.0, 1.0, 7)


def problem(fields, unknowns=None, domain=None, **sensors):
    return bp.Problem(domain=domain or {"x": (0.0, 1.0)}, fields=fields, unknowns=unknowns, sensors=sensors)


def reaction(u, u_xx, k):
    return 0.1 * u_xx + k * jnp.tanh(u)


def coupled(u_x, v, c):
    return u_x - c[0] * v**2 - c[1]


def flow(u, u_t, u_xx):
    return u_t + u * u_xx


def PROBLEMS():
    network, small = bp.MLP(hidden=(4, 3)), bp.MLP(hidden=(3,))
    expansion = bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=4, mean=0.3)
    prior = {"k": dist.Normal(0.0, 1.0)}
    return {
        "inverse": problem(
            {"u": network}, prior, f=bp.Sensors(reaction, {"x": X}, 0.1, 0.1), u=bp.Sensors("u", {"x": X}, X, 0.2)
        ),
        "two fields": problem(
            {"u": network, "v": small},
            {"c": dist.Normal(jnp.zeros(2), 1.0).to_event(1)},
            f=bp.Sensors(coupled, {"x": X}, 0.0, 0.05),
            u=bp.Sensors("u", {"x": X}, X, 0.1),
        ),
        "inferred noise": problem(
            {"u": network},
            prior,
            f=bp.Sensors(reaction, {"x": X}, 0.1, dist.HalfNormal(0.3)),
            u=bp.Sensors("u", {"x": X}, X, 0.1),
        ),
        "student t": problem({"u": network}, u=bp.Sensors("u", {"x": X}, X, 0.1, "student_t", 3.0)),
        "positive, counts": problem(
            {"u": bp.MLP(hidden=(4,), positive=True)}, u=bp.Sensors("u", {"x": X}, np.arange(7.0), likelihood="poisson")
        ),
        "multiplicative": problem(
            {"u": bp.MLP(hidden=(4,), positive=True)},
            u=bp.Sensors("u", {"x": X}, X + 0.5, dist.HalfNormal(0.3), "lognormal"),
        ),
        "averages and a ring": problem(
            {"u": network},
            wide=bp.Sensors(bp.Average("u", over={"x": (0.8 * X, 0.8 * X + 0.1)}), values=X, noise=0.1),
            ring=bp.Sensors(bp.Periodic("u", along="x"), values=0.0, noise=0.1),
        ),
        "expansion": problem({"u": expansion}, prior, f=bp.Sensors(reaction, {"x": X}, 0.1, 0.1)),
        "field without hidden layers": problem({"u": bp.MLP(hidden=())}, u=bp.Sensors("u", {"x": X}, X, 0.1)),
        "two dimensions": problem(
            {"u": network},
            domain={"x": (0.0, 1.0), "t": (0.0, 1.0)},
            f=bp.Sensors(flow, {"x": X, "t": X[::-1]}, 0.0, 0.1),
        ),
        "fourth order": problem({"u": network}, f=bp.Sensors("u_xxxx", {"x": X}, 1.0, 0.5)),
        "a scale from outside": problem({"u": Cosine(terms=3)}, u=bp.Sensors("u", {"x": X}, X, 0.1)),
        "inferred sds of weights": problem(
            {"u": bp.MLP(hidden=(4, 3), weight_sd=dist.HalfNormal(1.0), bias_sd=dist.LogNormal(jnp.zeros(3), 0.5))},
            prior,
            f=bp.Sensors(reaction, {"x": X}, 0.1, 0.1),
            u=bp.Sensors("u", {"x": X}, X, dist.HalfNormal(0.3)),
        ),
        "field of some coordinates": problem(
            {"u": network, "v": bp.MLP(hidden=(3,), inputs=("x",))},
            domain={"x": (0.0, 1.0), "t": (0.0, 1.0)},
            f=bp.Sensors(lambda u, v: u * v, {"x": X, "t": X}, 0.1, 0.1),
        ),
    }


QUICK = (
    "two fields",
    "inferred noise",
    "positive, counts",
    "averages and a ring",
    "expansion",
    "inferred sds of weights",
)
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROBLEMS()]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_exact_change_of_variables(name, x64):
    """There and back; the determinant is that of the derivative, at two weights of the likelihood; the density is the
    plain one plus the determinant, whatever the reference."""
    posterior = bp.Posterior(PROBLEMS()[name])
    draws = posterior.sample_prior(jax.random.key(3), 4)
    for reference, weight in ((None, 1.0), (draws[3], 1e-3)):
        coordinates = posterior.coordinates(reference)

        @jax.jit
        def everything(z, coordinates=coordinates, weight=weight):
            w = 0.7 * z
            back = coordinates.to_plain(coordinates.to_white(z, weight), weight)[0]
            plain, log_determinant = coordinates.to_plain(w, weight)
            jacobian = jax.jit(jax.jacfwd(lambda w: coordinates.to_plain(w, weight)[0]))(w)
            density, gradient = jax.value_and_grad(coordinates.log_density)(w, weight)
            expected = posterior.log_prior(plain) + weight * posterior.log_likelihood(plain) + log_determinant
            return back, log_determinant, jnp.linalg.slogdet(jacobian), density, expected, gradient

        for z in draws[:2]:
            back, log_determinant, (sign, exact), density, expected, gradient = everything(z)
            np.testing.assert_allclose(back, z, rtol=1e-6, atol=1e-7)
            assert sign == 1
            assert float(log_determinant) == pytest.approx(float(exact), rel=1e-8, abs=1e-8)
            assert float(density) == pytest.approx(float(expected), rel=1e-9)
            assert np.all(np.isfinite(gradient))


def test_linear_readings_leave_standard_normal_residuals(x64):
    """Networks with linear readings: given the hidden weights, v is standard normal, exactly."""
    posterior = bp.Posterior(
        problem(
            {"u": bp.MLP(hidden=(5, 4))}, u=bp.Sensors("u", {"x": X}, X, 0.01), s=bp.Sensors("u_xx", {"x": X}, 1.0, 0.1)
        )
    )
    coordinates = posterior.coordinates()
    w = posterior.sample_prior(jax.random.key(1), 1)[0]
    other = w.at[coordinates.where].set(jnp.arange(len(coordinates.where), dtype=float))
    v, v_other = w[coordinates.where], other[coordinates.where]
    expected = -0.5 * (v_other @ v_other - v @ v)
    density = jax.jit(coordinates.log_density)
    assert density(other) - density(w) == pytest.approx(float(expected), rel=1e-7)


def test_a_linear_problem_is_whitened_altogether(x64):
    """An expansion with linear readings: plain draws of standard normal residuals are exact draws of the posterior."""
    field = bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=5)
    stated = problem(
        {"u": field}, f=bp.Sensors(lambda u, u_xx: u_xx + u, {"x": X}, 1.0, 0.3), u=bp.Sensors("u", {"x": X}, X, 0.1)
    )
    posterior, exact = bp.Posterior(stated), bp.reference.exact(stated)
    coordinates = posterior.coordinates()
    v = jax.random.normal(jax.random.key(0), (20_000, 5))
    z = np.asarray(jax.jit(jax.vmap(lambda w: coordinates.to_plain(w)[0]))(v))
    error = np.sqrt(np.diag(exact.covariance) / len(z))
    assert np.all(np.abs(z.mean(axis=0) - exact.mean) < 4.5 * error)
    np.testing.assert_allclose(np.cov(z.T), exact.covariance, atol=0.05 * np.diag(exact.covariance).max())
    assert jax.jit(coordinates.log_density)(jnp.zeros(5)) == pytest.approx(
        exact.log_evidence - 2.5 * np.log(2 * np.pi), rel=1e-8
    )


def test_a_frozen_map_is_exact_and_its_centre_follows_the_scalars(x64):
    """There and back, its determinant; where the mean is linear in an unknown, residuals do not depend on it."""
    field = bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=5)
    stated = problem(
        {"u": field},
        {"c": dist.Normal(0.0, 1.0), "k": dist.LogNormal(0.0, 0.5)},
        f=bp.Sensors(lambda u_xx, c, k: u_xx - c - 0.3 * jnp.log(k), {"x": X}, 0.0, 0.01),
        u=bp.Sensors("u", {"x": X}, X, 0.1),
    )
    posterior = bp.Posterior(stated)
    plain, z = posterior.coordinates(), posterior.sample_prior(jax.random.key(1), 1)[0]
    frozen = Coordinates(posterior.model, posterior.data, plain.reference._replace(frozen=plain.frozen(z)))
    w = z + 1.0
    there, log_determinant = frozen.to_plain(w)
    np.testing.assert_allclose(frozen.to_white(there), w, rtol=1e-8)
    sign, exact = jnp.linalg.slogdet(jax.jacfwd(lambda w: frozen.to_plain(w)[0])(w))
    assert sign == 1
    assert float(log_determinant) == pytest.approx(float(exact), rel=1e-9)
    expected = posterior.log_density(there) + log_determinant
    assert float(frozen.log_density(w)) == pytest.approx(float(expected), rel=1e-9)
    for scalars in ([0.3, -0.2], [-2.0, 1.5]):  # the equation is linear in log k, which is what z holds
        moved = w.at[5:].set(jnp.array(scalars))
        np.testing.assert_allclose(jax.grad(frozen.log_density)(moved)[:5], -moved[:5], rtol=1e-5, atol=1e-6)


def test_rows_that_are_not_finite_at_the_reference_have_no_weight(x64):
    def root(u):
        return jnp.sqrt(u)

    posterior = bp.Posterior(
        problem(
            {"u": bp.MLP(hidden=(4,))}, f=bp.Sensors(root, {"x": X}, 1.0, 0.1), u=bp.Sensors("u", {"x": X}, 1.0, 0.1)
        )
    )
    zero = jnp.zeros(posterior.dim).at[-1].set(-1.0)  # u = -1 everywhere
    coordinates = posterior.coordinates(zero)
    w = posterior.sample_prior(jax.random.key(1), 1)[0]
    z, log_determinant = jax.jit(coordinates.to_plain)(w)
    assert np.all(np.isfinite(z))
    assert np.isfinite(log_determinant)


def test_in_single_precision():
    posterior = bp.Posterior(PROBLEMS()["inverse"])
    coordinates = posterior.coordinates()
    z = posterior.sample_prior(jax.random.key(3), 1)[0]
    back = jax.jit(lambda z: coordinates.to_plain(coordinates.to_white(z))[0])(z)
    np.testing.assert_allclose(back, z, rtol=1e-2, atol=2e-3)


def test_the_curvature_falls(x64):
    """What it is for: the largest curvature at a solution, which limits the step of a sampler."""
    stated = bp.paper.inverse_reaction_1d(noise=0.01, surrogate=bp.MLP(hidden=(10, 10))).problem
    posterior = bp.Posterior(stated)
    coordinates = posterior.coordinates()
    w = posterior.sample_prior(jax.random.key(2), 1)[0].at[coordinates.where].set(0.0)
    z, _ = jax.jit(coordinates.to_plain)(w)
    curvature = lambda f, at: float(jnp.linalg.eigvalsh(-jax.jit(jax.hessian(f))(at)).max())
    assert curvature(coordinates.log_density, w) < 0.05 * curvature(posterior.log_density, z)


def test_a_reference_where_counts_are_impossible_leaves_gradients_finite(x64):
    """Readings that need a positive prediction, with an unknown in them, and a reference that predicts negative ones."""
    counts = bp.Sensors(lambda u, k: k * u, {"x": X}, np.arange(7.0), likelihood="poisson")
    posterior = bp.Posterior(problem({"u": bp.MLP(hidden=(4,))}, {"k": dist.LogNormal(0.0, 1.0)}, f=counts))
    bias = posterior.dim - 2  # the last parameter of the field
    negative = jnp.zeros(posterior.dim).at[bias].set(-1.0)
    coordinates = posterior.coordinates(negative)
    w = jax.jit(coordinates.to_white)(jnp.zeros(posterior.dim).at[bias].set(3.0))
    density, gradient = jax.jit(jax.value_and_grad(coordinates.log_density))(w)
    assert np.isfinite(density)
    assert np.all(np.isfinite(gradient))


def stiff_spring(**more):
    """A spring that hardens: 12 readings, and points of an equation that is not linear."""

    def spring(u, u_tt, k, hard):
        return u_tt + k * u + hard * u**3

    t = np.linspace(0.0, 4.0, 12)
    return bp.Problem(
        domain={"t": (0.0, 4.0)},
        fields={"u": bp.GaussianProcess(bp.RationalQuadratic(length=0.8, amplitude=1.0), terms=20)},
        unknowns={"k": dist.LogNormal(0.0, 0.7), "hard": dist.LogNormal(0.0, 0.7)},
        sensors={
            "law": bp.Physics(spring, points=15, tolerance=0.02, **more),
            "u": bp.Sensors("u", {"t": t}, np.cos(1.6 * t), noise=0.05),
        },
    )


@pytest.mark.parametrize("neutral", [True, False])
def test_readings_may_lead_equations_while_the_likelihood_is_annealed(neutral, x64):
    posterior = bp.Posterior(stiff_spring(neutral=neutral))
    model, data = posterior.model, posterior.data
    z, other = posterior.sample_prior(jax.random.key(0), 2)
    reference = reference_at(model, data, other)
    coordinates = Coordinates(model, data, reference, lead=0.25)
    w, weight = coordinates.to_white(z, 0.01), 0.01
    found, log_determinant = coordinates.to_plain(w, weight)
    np.testing.assert_allclose(found, z, rtol=1e-8, atol=1e-8)
    jacobian = jax.jacobian(lambda w: coordinates.to_plain(w, weight)[0])(w)
    assert float(log_determinant) == pytest.approx(float(jnp.linalg.slogdet(jacobian)[1]), rel=1e-9)
    law, u = (float(jnp.sum(part)) for part in model.pointwise_log_likelihood(z, data))
    expected = float(model.log_prior(z)) + 0.01 * (law - float(model.log_evidence(z, data))) + 0.01**0.25 * u
    density = float(coordinates.log_density(w, weight) - log_determinant)
    assert density == pytest.approx(expected, rel=1e-9)
    w = coordinates.to_white(z)
    assert float(coordinates.log_density(w)) == pytest.approx(
        float(Coordinates(model, data, reference).log_density(w)), rel=1e-12
    )
