"""The smooth misfit of residuals: uniform under a right model, and small under a wrong one."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from bpinn import misfit

X = np.sort(np.random.default_rng(0).uniform(0, 1, 50))
BASIS = np.stack([np.cos(k * np.pi * X) / (1 + k) for k in range(6)], axis=1)
# Orthogonal, and so weak that the fit follows each direction by 0.4 of its variance, which is not left out.
HALF = np.linalg.qr(BASIS)[0] * 0.2 * np.sqrt(0.4 / 0.6)
NOISE = 0.2


def scores(values, rng, basis=BASIS, draws=800):
    """Standardised residuals of draws from the exact posterior of a linear model with standard normal coefficients."""
    precision = np.eye(6) + basis.T @ basis / NOISE**2
    mean = np.linalg.solve(precision, basis.T @ values / NOISE**2)
    coefficients = mean + np.linalg.solve(np.linalg.cholesky(precision).T, rng.standard_normal((6, draws))).T
    return (values - coefficients @ basis.T) / NOISE


def simulated(rng, missing=0.0, basis=BASIS):
    return basis @ rng.standard_normal(6) + missing * np.sin(20 * X) + NOISE * rng.standard_normal(50)


@pytest.mark.parametrize("basis", [BASIS, HALF], ids=["followed", "half followed"])
def test_it_is_uniform_if_the_model_is_right(basis):
    rng = np.random.default_rng(1)
    found = np.array(
        [misfit.smooth_misfit(scores(simulated(rng, basis=basis), rng, basis), X[:, None]) for _ in range(400)]
    )
    for level in (0.01, 0.1, 0.5):
        assert abs(np.sum(found < level) - 400 * level) < 3.5 * np.sqrt(400 * level * (1 - level)), level


def test_what_the_fit_follows_is_missing_from_the_residuals():
    """Without the posterior covariance of the predictions it would not be uniform: the same test must fail."""
    rng = np.random.default_rng(1)
    found = [misfit.smooth_misfit(scores(simulated(rng), rng).mean(axis=0)[None].repeat(2, 0), X[:, None])
             for _ in range(400)]  # fmt: skip
    assert kstest(found, "uniform").pvalue < 1e-6


def test_a_missing_term_is_found():
    rng = np.random.default_rng(2)
    found = [misfit.smooth_misfit(scores(simulated(rng, 0.25), rng), X[:, None]) for _ in range(40)]
    assert np.mean(np.array(found) < 0.003) > 0.9


def test_more_readings_than_sites():
    """In two dimensions, uniform as well for residuals that nothing was fitted to."""
    rng = np.random.default_rng(3)
    at = rng.uniform(0, [1.0, 1e6], (300, 2))
    found = [misfit.smooth_misfit(np.repeat(rng.standard_normal((1, 300)), 2, 0), at) for _ in range(300)]
    assert kstest(found, "uniform").pvalue > 0.01


def test_some_of_very_many_readings_are_enough(monkeypatch):
    monkeypatch.setattr(misfit, "MOST_READINGS", 200)
    rng = np.random.default_rng(6)
    at = rng.uniform(0, 1, (1000, 1))
    wrong = rng.standard_normal(1000) + np.sin(12 * at[:, 0])
    assert misfit.smooth_misfit(np.repeat(wrong[None], 2, 0), at) < 1e-3
    found = [misfit.smooth_misfit(np.repeat(rng.standard_normal((1, 1000)), 2, 0), at) for _ in range(200)]
    assert kstest(found, "uniform").pvalue > 0.01


def test_readings_at_one_place():
    rng = np.random.default_rng(4)
    found = [misfit.smooth_misfit(np.repeat(rng.standard_normal((1, 9)), 2, 0), np.zeros((9, 1))) for _ in range(300)]
    assert kstest(found, "uniform").pvalue > 0.01


@pytest.mark.parametrize("weights", [(1.0,) * 5, (1.0, 0.5, 0.2, 0.1), (3.0, 0.01, 0.01)])
def test_the_tail_of_a_sum_of_chi_squares(weights):
    """Against simulation, within its Monte Carlo error and a tenth."""
    rng = np.random.default_rng(5)
    total = (rng.standard_normal((400_000, len(weights))) ** 2) @ np.array(weights)
    for level in (0.1, 0.01, 0.003):
        value = np.quantile(total, 1 - level)
        assert abs(misfit.tail(value, np.array(weights)) / level - 1) < 0.1 + 3 / np.sqrt(400_000 * level)
    assert misfit.tail(7.0, np.ones(3)) == pytest.approx(chi2.sf(7.0, 3))
