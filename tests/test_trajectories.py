"""Trajectories of collapsed chains leave a density as it is, whatever their steps and their scale."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bpinn.methods.trajectories import trajectory


class Known(NamedTuple):
    marginal: jax.Array
    point: jax.Array


def density(point):
    """Two independent numbers, a logistic and a normal one."""
    value = -point[0] - 2.0 * jnp.log1p(jnp.exp(-point[0])) - 0.5 * point[1] ** 2
    return value, Known(value, point)


@pytest.mark.parametrize("step", [0.3, 0.9])
def test_exact_draws_remain_exact(step):
    count = 40_000
    keys = jax.random.split(jax.random.key(0), 3)
    start = jnp.stack([jax.random.logistic(keys[0], (count,)), jax.random.normal(keys[1], (count,))], axis=1)
    root = jnp.array([[2.5, 0.3], [0.0, 1.2]])

    def one(point, key):
        ends = trajectory(density, root, point, jnp.log(step), key)
        return ends, jnp.where(ends.accepted, ends.point, point)

    ends, moved = jax.vmap(one)(start, jax.random.split(keys[2], count))
    assert 0.2 < np.mean(ends.accepted) < 0.99
    np.testing.assert_allclose(np.mean(ends.accepted), np.mean(ends.probability), atol=4 * 0.5 / np.sqrt(count))
    np.testing.assert_array_equal(ends.first.point, start)  # what is known at both ends belongs to them
    np.testing.assert_array_equal(ends.last.point, ends.point)
    assert np.mean((moved - start) ** 2) > 0.3
    for power, exact in ((1, [0.0, 0.0]), (2, [np.pi**2 / 3, 1.0])):
        values = np.asarray(moved, float) ** power
        assert np.all(np.abs(values.mean(0) - exact) < 4 * values.std(0) / np.sqrt(count))
    logs = np.asarray(jax.vmap(density)(moved)[0], float)
    expected = -2.0 - 0.5  # the mean log density of a logistic number, and of a normal one
    assert abs(logs.mean() - expected) < 4 * logs.std() / np.sqrt(count)
