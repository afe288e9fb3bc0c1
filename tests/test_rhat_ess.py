"""R-hat and effective draws of many quantities at once are those that ArviZ finds for each."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bpinn import convergence, rhat_ess


def process(rho, shape, seed=0):
    """Draws whose next one is so much like the last, of some quantities with ties, jumps, drifts and heavy tails."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(shape)
    draws = np.zeros(shape)
    draws[:, 0] = noise[:, 0]
    for i in range(1, shape[1]):
        draws[:, i] = rho * draws[:, i - 1] + np.sqrt(1 - rho**2) * noise[:, i]
    draws[..., 1] = np.round(draws[..., 1], 1)
    draws[..., 2] += np.arange(shape[0])[:, None]
    draws[..., 3] = np.exp(3 * draws[..., 3])
    draws[..., 4] += np.linspace(0, 3, shape[1])
    return draws


@pytest.mark.parametrize("chains", [1, 2, 4])
@pytest.mark.parametrize("count", [4, 5, 6, 7, 9, 12, 50, 201, 400])
@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.6, 0.98])
def test_of_arviz(chains, count, rho):
    draws = process(rho, (chains, count, 6))
    axes = {"chain_axis": 0, "draw_axis": 1}
    bulk = array_stats.ess(draws, **axes, method="bulk")
    tail = array_stats.ess(draws, **axes, method="tail", prob=(0.05, 0.95))
    np.testing.assert_allclose(rhat_ess.bulk_ess(draws), bulk, rtol=1e-9)
    np.testing.assert_allclose(rhat_ess.tail_ess(draws), tail, rtol=1e-9)
    if chains > 1:
        np.testing.assert_allclose(rhat_ess.rhat(draws), array_stats.rhat(draws, **axes), rtol=1e-9)


def test_of_arviz_where_there_are_two_values():
    draws = np.tile(np.random.default_rng(0).permuted(np.tile([0.0, 1.0], (2, 50)), axis=1)[..., None], (1, 1, 2))
    with np.errstate(invalid="ignore"):
        expected = array_stats.rhat(draws, chain_axis=0, draw_axis=1)
    assert np.all(np.isfinite(expected))
    np.testing.assert_allclose(rhat_ess.rhat(draws), expected, rtol=1e-9)


def test_a_few_quantities_at_a_time(monkeypatch):
    draws = process(0.5, (4, 60, 9))
    draws[0, 0, 3] = np.inf
    whole = convergence.ess_of(draws)
    monkeypatch.setattr(convergence, "LARGE", 500)
    np.testing.assert_allclose(convergence.ess_of(draws), whole, rtol=1e-12)


def test_quantities_that_say_nothing():
    draws = process(0.5, (4, 100, 8))
    draws[..., 5] = 3.0  # never moves
    draws[..., 6] = np.arange(4)[:, None]  # frozen where it began
    draws[2, 50, 7] = np.nan
    rhat, ess = convergence.rhat_of(draws), convergence.ess_of(draws)
    assert np.all(rhat[5:] > 1e6)
    assert np.all(ess[5:] == 0)
    assert np.all(np.isfinite(rhat[:5]))
    assert np.all(ess[:5] > 0)
    np.testing.assert_array_equal(convergence.rhat_of(draws[..., 0]), rhat[0])  # a single quantity
    np.testing.assert_array_equal(convergence.ess_of(draws.reshape(4, 100, 2, 4)), ess.reshape(2, 4))
    assert convergence.shortfall(draws[..., [5, 7]], np.array([False, True])) == 0.0  # nothing that moves


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_draws_too_few_to_say_anything(chains, count):
    draws = process(0.5, (chains, count, 6))
    assert np.all(np.isinf(convergence.rhat_of(draws)))
    assert np.all(convergence.ess_of(draws) == 0)
