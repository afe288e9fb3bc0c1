"""Groups of draws: found where there is nothing in between, and not made up where there is."""

import numpy as np
import pytest

from bpinn.modes import groups_of


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["normal", "uniform", "student", "skew", "ring"])
def test_one_cloud_is_one_group(kind, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 1500))
    cloud = {
        "normal": lambda: rng.standard_normal((n, 6)) @ rng.standard_normal((6, 6)),
        "uniform": lambda: rng.uniform(size=(n, 3)),
        "student": lambda: rng.standard_t(3, (n, 4)),
        "skew": lambda: np.exp(rng.standard_normal((n, 3))),
        "ring": lambda: np.stack([f(2 * np.pi * rng.uniform(size=n)) for f in (np.cos, np.sin)], axis=1),
    }[kind]()
    assert groups_of(cloud).max() == 0


def test_clouds_apart_are_told_apart_the_largest_first():
    rng = np.random.default_rng(0)
    sizes, centres = (200, 500, 100), ((0, 0), (4, 0), (4, 9))
    draws = np.concatenate([c + 0.5 * rng.standard_normal((n, 2)) for n, c in zip(sizes, centres, strict=True)])
    labels = groups_of(draws)
    np.testing.assert_array_equal(labels, np.repeat([1, 0, 2], sizes))


def test_a_gap_between_all_quantities_together_is_found():
    """Each coordinate alone is bridged; the sum of them is not."""
    rng = np.random.default_rng(1)
    along = rng.uniform(-3, 3, (400, 1))
    side = np.repeat([[-1.0], [1.0]], 200, axis=0) + 0.1 * rng.standard_normal((400, 1))
    labels = groups_of(np.concatenate([along + side, side - along], axis=1))
    assert labels.max() == 1
    assert np.all(labels[:200] == labels[0])
    assert np.all(labels[200:] == 1 - labels[0])


@pytest.mark.parametrize("seed", range(10))
def test_many_quantities_of_few_draws_are_one_group(seed):
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((5, 60))
    assert groups_of(rng.standard_normal((int(rng.integers(20, 120)), 5)) @ factors).max() == 0


def test_a_few_far_off_are_no_group():
    draws = np.random.default_rng(2).standard_normal((500, 2))
    draws[:15] += 100
    assert groups_of(draws).max() == 0


def test_repeats_of_a_few_draws_are_no_solutions():
    """What collapsed weights leave; repeats within solutions that have many draws do not matter."""
    rng = np.random.default_rng(3)
    few = rng.standard_normal((15, 4))[rng.integers(0, 15, 1000)]
    assert groups_of(few).max() == 0
    many = np.concatenate([rng.standard_normal((300, 2)), 9 + rng.standard_normal((100, 2))])
    repeated = np.repeat(np.arange(400), np.where(np.arange(400) < 300, 1, 5))
    np.testing.assert_array_equal(groups_of(many[repeated]), (repeated < 300).astype(int))


@pytest.mark.parametrize("draws", [np.zeros((50, 3)), np.full((50, 1), np.nan), np.zeros((0, 2)), np.zeros((3, 0))])
def test_nothing_to_group_is_one_group(draws):
    assert np.all(groups_of(draws) == 0)
