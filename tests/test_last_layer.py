"""The last-layer method: exact where there are no hidden weights, near HMC where there are, and honest about it."""

import numpy as np
import numpyro.distributions as dist
import pytest
from test_fit_runs import small
from test_fits import compare, fit, poisson

import bpinn as bp

QUICK = bp.LastLayer(num_steps=300, num_draws=20)


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_linear_problems_without_hidden_weights_are_exact(noise):
    """8,000 independent draws: four standard errors are 0.045 sd of a mean and 3.2% of an sd."""
    problem = poisson(noise)
    exact = bp.reference.exact(problem)
    result = fit(problem, bp.LastLayer(num_steps=100, num_draws=4000))
    distance, ratios = compare(result, exact)
    assert distance < 0.06
    assert np.all(np.abs(ratios - 1) < 0.04)
    z = result.z.reshape(-1, result.z.shape[-1]).astype(float)
    root = np.linalg.cholesky(np.linalg.inv(exact.covariance))
    white = root.T @ np.cov(z.T) @ root
    assert np.abs(white - np.eye(len(white))).max() < 0.08


def with_unknown(k_prior):
    x = np.linspace(-1, 1, 12)
    noise = np.random.default_rng(0).normal(size=12)
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.KarhunenLoeve(bp.SquaredExponential(length=0.5), terms=5, interval=(-1, 1))},
        unknowns={"k": k_prior},
        sensors={
            "u": bp.Sensors("u", {"x": x}, np.sin(2 * x) + 0.1 * noise, 0.1),
            "s": bp.Sensors(lambda u_x, u, k: u_x + k * u, {"x": x}, 2 * np.cos(2 * x) + np.sin(2 * x), 0.3),
        },
    )


def test_an_unknown_and_its_coefficients_are_those_of_the_posterior():
    """Given k the problem is linear, so the marginal density of k is known on a grid; 8,000 weighted draws."""
    result = fit(with_unknown(dist.Normal(0.0, 1.0)), bp.LastLayer(num_steps=2000, num_draws=4000))
    axis = np.linspace(-1.0, 3.0, 81)
    log_p = np.array([
        bp.reference.exact(_given(value)).log_evidence + dist.Normal(0.0, 1.0).log_prob(value) for value in axis
    ])  # fmt: skip
    weights = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    mean = weights @ axis
    sd = np.sqrt(weights @ (axis - mean) ** 2)
    draws = result.draws("k").ravel()
    assert abs(draws.mean() - mean) < 0.08 * sd
    assert abs(draws.std() / sd - 1) < 0.06
    assert result.diagnose().verdict == "care"


def _given(k):
    problem = with_unknown(dist.Normal(0.0, 1.0))
    sensors = problem.sensors
    fixed = bp.Sensors(lambda u_x, u: u_x + k * u, sensors["s"].at, sensors["s"].values, sensors["s"].noise)
    return bp.Problem(dict(problem.domain), dict(problem.fields), sensors={"u": sensors["u"], "s": fixed})


def test_an_inferred_noise_has_its_posterior():
    """Its curvature is measured; HMC has the exact posterior."""
    x = np.linspace(-1, 1, 40)
    values = np.sin(2 * x) + 0.2 * np.random.default_rng(1).normal(size=40)
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.KarhunenLoeve(bp.SquaredExponential(length=0.5), terms=5, interval=(-1, 1))},
        sensors={"u": bp.Sensors("u", {"x": x}, values, dist.LogNormal(-1.0, 1.0))},
    )
    found = fit(problem, bp.LastLayer(num_steps=2000, num_draws=2000))
    exact = fit(problem, bp.HMC(num_draws=500, num_leapfrog=8), chains=2)
    name = problem.readings[0].noise_name
    draws, right = found.draws(name), exact.draws(name)
    assert abs(draws.mean() - right.mean()) < 0.2 * right.std()
    assert abs(draws.std() / right.std() - 1) < 0.15


@pytest.mark.slow
def test_a_network_with_an_unknown_is_near_hmc():
    """HMC has k = 0.795 ± 0.0605 (docs/methods.md), with chains that agree."""
    found = fit(bp.paper.inverse_reaction_1d(noise=0.1).problem, bp.LastLayer(num_steps=4000))
    draws = found.draws("k")
    assert abs(draws.mean() - 0.795) < 0.4 * 0.0605
    assert 0.7 < draws.std() / 0.0605 < 1.2
    assert found.diagnose().verdict == "care"
    assert "hidden weights" in str(found.diagnose())


@pytest.mark.slow
def test_fits_that_are_stuck_are_not_trusted():
    """One hidden layer of 20 neurons is hard for this problem: HMC does not converge, and these fits are too flat."""
    problem = bp.paper.inverse_reaction_1d(noise=0.1, surrogate=bp.MLP(hidden=(20,))).problem
    assert fit(problem, bp.LastLayer(num_steps=4000)).diagnose().verdict == "bad"


def test_fits_differ_in_their_hidden_weights_only_as_the_readings_allow():
    result = fit(small(), QUICK)
    assert result.z.shape[:2] == (2, 20)
    assert not np.allclose(result.z[0, 0], result.z[1, 0])
    assert result.history["log_marginal"].shape == (2, 3)


def test_too_many_readings_are_refused():
    x = np.linspace(0, 1, 5000)
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, sensors={"u": bp.Sensors("u", {"x": x}, x, 0.1)}
    )
    with pytest.raises(bp.InputError, match=r"LastLayer: the problem has 5000 readings, but .* limited to 4000; use"):
        fit(problem, QUICK)
