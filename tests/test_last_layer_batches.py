"""LastLayer on batches: the output layer has the exact Gaussian of all readings, evaluated in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import chunks

COUNT = 600
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 2.0, COUNT))
Y = np.exp(-X) + 0.1 * RNG.standard_normal(COUNT)


def decay(u, u_x, rate):
    return u_x + rate * u


def problem(field, rate=False):
    sensors = {"u": bp.Sensors("u", {"x": X}, Y, 0.1)}
    unknowns = {"rate": dist.Normal(0.0, 2.0)} if rate else None
    if rate:
        sensors["law"] = bp.Sensors(decay, {"x": np.linspace(0.0, 2.0, 60)}, 0.0, 0.05)
    return bp.Problem({"x": (0.0, 2.0)}, {"u": field}, sensors, unknowns)


def fitted(stated, **settings):
    return bp.infer(stated, bp.LastLayer(num_steps=1500, **settings), seed=0, progress=False)


def test_the_output_layer_is_drawn_from_its_gaussian_given_all_readings(monkeypatch):
    monkeypatch.setattr(chunks, "MOST_AT_ONCE", 200)
    monkeypatch.setattr(chunks, "POINTS", 200)
    stated = problem(bp.MLP(hidden=(4,)))
    result = fitted(stated, batch=50, num_draws=2000, chains=1)
    posterior = bp.Posterior(stated)
    assert posterior.model.chunks == 3
    at, z = posterior.model.linear, result.z[0].astype(float)
    hidden = np.delete(z, at, axis=1)
    assert np.ptp(hidden, axis=0).max() == 0.0
    with jax.enable_x64(True):
        exact = bp.Posterior(stated)
        start = jnp.asarray(z[0]).at[at].set(0.0)

        def predicted(a):
            return jnp.concatenate(exact.model.predicted(start.at[at].set(a), exact.data))

        design = np.asarray(jax.jacfwd(predicted)(jnp.zeros(len(at)))) / 0.1
        target = (Y - np.asarray(predicted(jnp.zeros(len(at))))) / 0.1
    _, field, bounds = exact.model.parameters.fields[0]
    prior = field.prior_sd(bounds)[field.linear(bounds)]
    precision = design.T @ design + np.diag(prior**-2.0)
    mean = np.linalg.solve(precision, design.T @ target)
    # Standardised draws are standard normal, along the directions that readings determine well and badly.
    scores = (z[:, at] - mean) @ np.linalg.cholesky(precision)
    count = len(scores)
    assert np.all(np.abs(scores.mean(axis=0)) < 4 / np.sqrt(count) + 0.05)  # rounding of the directions
    assert np.all(np.abs(scores.std(axis=0) - 1) < 4 / np.sqrt(2 * count) + 0.05)


@pytest.mark.parametrize("batch", [60, 300])
def test_expansions_with_an_unknown_have_the_posterior_of_all_readings(batch):
    stated = problem(bp.KarhunenLoeve(bp.Matern52(length=1.0), terms=6), rate=True)
    whole, found = fitted(stated, num_draws=2000, chains=1), fitted(stated, batch=batch, num_draws=2000, chains=1)
    one, other = whole.draws("rate").ravel(), found.draws("rate").ravel()
    assert abs(one.mean() - other.mean()) < 4 * one.std() * np.sqrt(2 / 1000)
    assert abs(other.std() / one.std() - 1) < 4 / np.sqrt(1000)
    grid = {"x": np.linspace(0.1, 1.9, 5)}
    whole, found = whole.predict("u", grid), found.predict("u", grid)
    assert np.all(np.abs(whole.mean - found.mean) < 4 * whole.sd * np.sqrt(2 / 1000))
    assert np.all(np.abs(found.sd / whole.sd - 1) < 4 / np.sqrt(1000))


def test_neutral_equations_and_large_batches_are_refused():
    stated = problem(bp.MLP(hidden=(4,)))
    with pytest.raises(bp.InputError, match="batch must be at most 4000, got 5000"):
        fitted(stated, batch=5000)
    field = bp.KarhunenLoeve(bp.Matern52(length=1.0), terms=6)
    neutral = bp.Problem(
        {"x": (0.0, 2.0)},
        {"u": field},
        {"law": bp.Physics(decay), "u": bp.Sensors("u", {"x": X}, Y, 0.1)},
        {"rate": dist.Normal(0.0, 2.0)},
    )
    with pytest.raises(bp.InputError, match="neutral equations need all their points in every step"):
        fitted(neutral, batch=50)
