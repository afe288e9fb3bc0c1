"""The linear parameters' Gaussian: by its definition, by finite differences, and the same from the C code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from bpinn import native
from bpinn.conditional import Layout, conditional, gaussian, residual

available = pytest.mark.skipif(native.library() is None, reason="no C compiler for the native kernel")

LAYOUTS = {
    "one parameter": Layout((1,), (((1, 0, 1),),), 1),
    "one field": Layout((5,), (((7, 0, 1),),), 7),
    "fewer readings than parameters": Layout((12,), (((3, 0, 1), (4, 2, 1)),), 6),
    "fields of different sizes": Layout(
        (5, 9, 3), (((6, 0, 1), (4, 6, 1)), ((4, 6, 1), (11, 10, 1)), ((21, 0, 1),)), 21
    ),
    "means": Layout((6,), (((12, 0, 3), (5, 4, 1), (10, 4, 2)),), 9),
    "different ranges": Layout((4, 7), (((8, 11, 1), (8, 11, 1), (6, 0, 2)), ((30, 3, 5), (9, 9, 1))), 19),
    "a field without readings": Layout((4, 3), ((), ((10, 0, 1),)), 10),
    "a network": Layout((51,), (((20, 0, 1), (20, 20, 1), (20, 20, 1), (44, 0, 11)),), 40),
    "networks": Layout((51, 33), (((70, 0, 1), (70, 0, 1)), ((70, 0, 1), (13, 70, 1))), 83),
}


def problem(layout, scale=1.0, seed=0):
    """Features, slopes, targets, residuals and precisions; readings are about ``scale`` times the prior's."""
    rng = np.random.default_rng(seed)
    features = [rng.normal(size=shape) for shape in zip(layout.sizes, layout.columns, strict=True)]
    size, columns = sum(layout.sizes), sum(layout.columns)
    slopes = scale * rng.normal(size=columns)
    targets = scale * rng.normal(size=layout.rows)
    single = [np.float32(x) for x in (slopes, targets, rng.normal(size=size), rng.uniform(0.5, 2.0, size=size))]
    return [np.float32(x) for x in features], *single


def double(arrays):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), arrays)


def by_definition(layout, features, slopes, targets, v, precision):
    size = sum(layout.sizes)
    rows, at, parameter = np.zeros((size, layout.rows)), 0, 0
    for of_field, blocks, count in zip(features, layout.blocks, layout.sizes, strict=True):
        column = 0
        for n, first, width in blocks:
            for i in range(n):
                own = np.asarray(of_field[:, column], float)
                rows[parameter : parameter + count, first + i // width] += float(slopes[at]) * own
                at, column = at + 1, column + 1
        parameter += count
    factor = np.linalg.cholesky(np.diag(np.asarray(precision, float)) + rows @ rows.T)
    y = np.linalg.solve(factor, rows @ targets)
    a = np.linalg.solve(factor.T, y + v)
    parts = np.split(a, np.cumsum(layout.sizes)[:-1])
    streams = np.concatenate([part @ of_field for part, of_field in zip(parts, features, strict=True)])
    return a, streams, -np.sum(np.log(np.diag(factor)))


def assert_near(found, expected, tolerance):
    """Relative to the largest entry."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    largest = np.max(np.abs(expected), initial=0.0)
    assert np.max(np.abs(found - expected), initial=0.0) <= tolerance * largest


def compiled(layout, *arrays, native=False):
    """`conditional` compiled as one: its single operations take longer to compile, one by one."""
    return jax.jit(lambda *arrays: conditional(layout, *arrays, native=native))(*arrays)


def adjoints(layout, arrays, dtype, native):
    """The outputs, and their adjoints for fixed random ones of the outputs."""
    arrays = jax.tree.map(lambda x: jnp.asarray(x, dtype), arrays)
    rng = np.random.default_rng(1)
    sizes = (sum(layout.sizes), sum(layout.columns), ())
    of_outputs = tuple(jnp.asarray(rng.normal(size=size), dtype) for size in sizes)

    @jax.jit
    def both(*arrays):
        outputs, back = jax.vjp(jax.jit(lambda *x: conditional(layout, *x, native=native)), *arrays)
        return outputs, back(of_outputs)

    return both(*arrays)


each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@each_layout
def test_it_is_the_definition(layout):
    with jax.enable_x64(True):
        arrays = problem(layout)
        for found, expected in zip(compiled(layout, *double(arrays)), by_definition(layout, *arrays), strict=True):
            assert_near(found, expected, 1e-10)


@pytest.mark.parametrize(
    ("name", "order"), [("fewer readings than parameters", 2), ("fields of different sizes", 1), ("means", 1)]
)
def test_derivatives_are_those_of_finite_differences(name, order):
    layout = LAYOUTS[name]
    with jax.enable_x64(True):
        arrays = double(problem(layout))
        of_one = jax.jit(lambda *x: conditional(layout, *x))
        check_grads(of_one, arrays, order=order, modes=["rev"], rtol=1e-4, atol=1e-4)


@available
@each_layout
def test_native_is_as_jax(layout):
    arrays = problem(layout)
    outputs, back = adjoints(layout, arrays, jnp.float32, native=True)
    with jax.enable_x64(True):
        exact, exact_back = adjoints(layout, arrays, jnp.float64, native=False)
    for found, expected in zip(outputs, exact, strict=True):
        assert_near(found, expected, 1e-5)
    for found, expected in zip(jax.tree.leaves(back[:4]), jax.tree.leaves(exact_back[:4]), strict=True):
        assert_near(found, expected, 1e-4)
    assert not np.any(back[4])  # by the precisions


@available
@pytest.mark.parametrize(("scale", "tolerance"), [(1e4, 1e-5), (1e5, 1e-3)])
@pytest.mark.parametrize("name", ["a network", "networks"])
def test_native_is_accurate_with_small_noise(name, scale, tolerance):
    """The precision is up to scale^2 p: with fewer readings than parameters its double precision is off by 1e-4."""
    layout = LAYOUTS[name]
    arrays = problem(layout, scale)
    found = compiled(layout, *jax.tree.map(jnp.asarray, arrays), native=True)
    with jax.enable_x64(True):
        expected = compiled(layout, *double(arrays))
    for x, exact in zip(found, expected, strict=True):
        assert_near(x, exact, tolerance)


@each_layout
@pytest.mark.parametrize("native", [False, pytest.param(True, marks=available)])
def test_residual_is_the_inverse(layout, native):
    features, slopes, targets, v, precision = jax.tree.map(jnp.asarray, problem(layout))

    @jax.jit
    def there_and_back(v):
        a, _, _ = conditional(layout, features, slopes, targets, v, precision, native)
        return residual(layout, features, slopes, targets, a, precision, native)

    assert_near(there_and_back(v), v, 1e-4)


@each_layout
@pytest.mark.parametrize("native", [False, pytest.param(True, marks=available)])
def test_as_matrices_it_is_the_same_map(layout, native):
    """With the mean of each of three rows of targets."""
    features, slopes, targets, v, precision = jax.tree.map(jnp.asarray, problem(layout))
    rows = jnp.stack([targets, 2.0 * targets + 1.0, jnp.zeros_like(targets)])
    found = jax.jit(lambda rows: gaussian(layout, features, slopes, rows, precision, native))(rows)
    for row, mean in zip(rows, found.means, strict=True):
        expected = conditional(layout, features, slopes, row, v, precision)[0]
        scale = 1.0 + jnp.max(jnp.abs(expected))
        np.testing.assert_allclose((mean + found.root @ v) / scale, expected / scale, atol=1e-4)
    np.testing.assert_allclose(found.root @ found.inverse, np.eye(len(v)), atol=2e-4)


@available
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", ["features", "slopes", "precision"])
def test_without_a_factor_everything_is_nan(place, bad):
    layout = LAYOUTS["networks"]
    features, slopes, targets, v, precision = jax.tree.map(jnp.asarray, problem(layout))
    if place == "features":
        features[1] = features[1].at[3, 7].set(bad)
    elif place == "slopes":
        slopes = slopes.at[-1].set(bad)
    else:
        precision = precision.at[20].set(bad)
    outputs, back = adjoints(layout, (features, slopes, targets, v, precision), jnp.float32, native=True)
    assert all(np.all(np.isnan(x)) for x in jax.tree.leaves((outputs, back[:4])))
    a = jnp.ones_like(v)
    assert np.all(np.isnan(residual(layout, features, slopes, targets, a, precision, native=True)))


@available
def test_a_matrix_that_is_not_positive_definite_gives_nan():
    layout = LAYOUTS["one field"]
    features, slopes, targets, v, precision = jax.tree.map(jnp.asarray, problem(layout))
    outputs = conditional(layout, features, slopes, targets, v, precision.at[2].set(-1e6), native=True)
    assert all(np.all(np.isnan(x)) for x in outputs)


@available
def test_a_target_that_is_nan_leaves_the_factor():
    layout = LAYOUTS["networks"]
    features, slopes, targets, v, precision = jax.tree.map(jnp.asarray, problem(layout))
    a, streams, log_determinant = conditional(
        layout, features, slopes, targets.at[0].set(jnp.nan), v, precision, native=True
    )
    assert np.all(np.isnan(a))
    assert np.all(np.isnan(streams))
    assert np.isfinite(log_determinant)


@available
def test_the_same_bits_every_time():
    layout = LAYOUTS["networks"]
    arrays = problem(layout)
    first, second = (jax.tree.leaves(adjoints(layout, arrays, jnp.float32, native=True)) for _ in range(2))
    assert all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


@available
def test_under_vmap_and_jit():
    layout = LAYOUTS["means"]
    features, slopes, targets, v, precision = jax.tree.map(jnp.asarray, problem(layout))

    def value(v):
        a, streams, log_determinant = conditional(layout, features, slopes, targets, v, precision, native=True)
        return jnp.sum(a**2) + jnp.sum(streams) + log_determinant

    several = jnp.stack([v, 2.0 * v, -v])
    together = jax.jit(jax.vmap(jax.grad(value)))(several)
    assert_near(together, jnp.stack([jax.grad(value)(one) for one in several]), 1e-6)
