"""A network with no hidden layer and linear equations has a Gaussian posterior in closed form.

u(x, y) = a x + b y + c with normal priors, an additive unknown s in the equation, and readings of u
and of the equation: everything is linear in (a, b, c, s), so mean and covariance are exact.
"""

import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.convergence import ess_of

OPTIMIZED = True

WEIGHT_SD, BIAS_SD, S_SD = 1.5, 0.8, 2.0
PRIOR_SD = np.array([WEIGHT_SD, WEIGHT_SD, BIAS_SD, S_SD])
NOISE_U, NOISE_F = 0.3, 0.5


def equation(u, u_x, u_y, s, x):
    return 2.0 * u_x - u_y + 0.5 * u + s + 0.1 * x


def rows_u(x, y):
    return np.stack([x, y, np.ones_like(x), np.zeros_like(x)], axis=1)


def rows_f(x, y):
    one = np.ones_like(x)
    return np.stack([2.0 * one + 0.5 * x, -one + 0.5 * y, 0.5 * one, one], axis=1)


def exact(data, prior_scale=1.0, noise_scale=1.0):
    """Posterior mean and covariance by the normal equations."""
    x_u, y_u, u, x_f, y_f, f = data
    design = np.concatenate([rows_u(x_u, y_u) / NOISE_U, rows_f(x_f, y_f) / NOISE_F]) / noise_scale
    target = np.concatenate([u / NOISE_U, (f - 0.1 * x_f) / NOISE_F]) / noise_scale
    covariance = np.linalg.inv(design.T @ design + np.diag((prior_scale * PRIOR_SD) ** -2.0))
    return covariance @ design.T @ target, covariance


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    x_u, y_u = rng.uniform(-1, 1, (2, 1))  # fewer readings than coefficients, so that the prior matters too
    x_f, y_f = rng.uniform(-1, 1, (2, 1))
    return x_u, y_u, rng.standard_normal(1), x_f, y_f, rng.standard_normal(1)


METHODS = ["hmc", "nuts", "collapsed"]
VARIANTS = ["hmc-found-length", "hmc-diagonal", "hmc-from-map"]


@pytest.fixture(scope="module", params=[*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS)])
def result(request, data):
    x_u, y_u, u, x_f, y_f, f = data
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0), "y": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(), weight_sd=WEIGHT_SD, bias_sd=BIAS_SD)},
        unknowns={"s": dist.Normal(0.0, S_SD)},
        sensors={
            "u": bp.Sensors("u", {"x": x_u, "y": y_u}, u, NOISE_U),
            "f": bp.Sensors(equation, {"x": x_f, "y": y_f}, f, NOISE_F),
        },
    )
    method = {
        "hmc": bp.HMC(num_leapfrog=12, num_warmup=500, num_draws=8000),
        "hmc-found-length": bp.HMC(num_warmup=500, num_draws=8000),
        "hmc-diagonal": bp.HMC(num_leapfrog=12, num_warmup=500, num_draws=8000, mass="diagonal", init="prior"),
        "hmc-from-map": bp.HMC(num_leapfrog=12, num_warmup=500, num_draws=8000, init="map", init_steps=200),
        "nuts": bp.NUTS(num_warmup=500, num_draws=8000),
        "collapsed": bp.Collapsed(num_draws=8000),
    }[request.param]
    return bp.infer(problem, method, seed=5, progress=False)


def functionals(result):
    """(draws, matrix): functionals whose exact moments are matrix @ mean and matrix @ covariance @ matrix.T."""
    at = {"x": np.array([-0.9, 0.2, 0.8]), "y": np.array([0.5, -0.3, 0.9])}
    u, f = rows_u(**at), rows_f(**at)
    slope = np.zeros((1, 4))
    slope[0, 0] = 1.0
    draws = np.concatenate(
        [
            result.z,  # the coefficients themselves
            result.predict("u", at).draws,
            result.predict("u_x", {"x": 0.0, "y": 0.0}).draws[..., None],
            result.predict(equation, at).draws - 0.1 * at["x"],
        ],
        axis=-1,
    )
    return draws.astype(float), np.concatenate([np.eye(4), u, slope, f])


def z_scores(result, mean, covariance):
    """How many Monte-Carlo standard errors the draws' means and sds are off."""
    draws, matrix = functionals(result)
    exact_mean = matrix @ mean
    exact_sd = np.sqrt(np.einsum("ij,jk,ik->i", matrix, covariance, matrix))
    flat = draws.reshape(-1, draws.shape[-1])
    scaled = (draws - exact_mean) / exact_sd
    mean_error = (flat.mean(0) - exact_mean) / exact_sd * np.sqrt(ess_of(scaled))
    # sd from the second moment: its Monte-Carlo error from the ESS of the squares
    squares = scaled**2
    square_error = (squares.mean((0, 1)) - 1.0) / squares.std((0, 1)) * np.sqrt(ess_of(squares))
    return mean_error, square_error


def test_means_and_sds_are_exact(result, data):
    mean_error, sd_error = z_scores(result, *exact(data))
    assert np.max(np.abs(mean_error)) < 4
    assert np.max(np.abs(sd_error)) < 4


@pytest.mark.parametrize(
    "wrong", [{"prior_scale": 1.05}, {"prior_scale": 0.95}, {"noise_scale": 1.05}, {"noise_scale": 0.95}]
)
def test_scales_wrong_by_five_percent_would_be_seen(result, data, wrong):
    mean_error, sd_error = z_scores(result, *exact(data, **wrong))
    assert max(np.max(np.abs(mean_error)), np.max(np.abs(sd_error))) > 4


def test_the_run_is_healthy(result):
    assert result.diagnose().verdict == "good"
    assert result.stats.get("divergent", np.zeros(1)).sum() == 0
