"""The native kernel gives what JAX gives, on every shape it takes, and is done without where it cannot be had."""

import ctypes
import shutil
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import native
from bpinn.fields.base import Wanted

available = pytest.mark.skipif(native.library() is None, reason="no C compiler for the native kernel")


def one_dimension(hidden, points=(5, 17, 40), **options):
    rng = np.random.default_rng(0)
    quantities = ["u", "u_x", lambda u, u_xx, k: k * u_xx + u**2]
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=hidden, **options)},
        unknowns={"k": dist.Normal()},
        sensors={
            f"s{i}": bp.Sensors(q, {"x": rng.uniform(-1, 1, n)}, rng.normal(size=n), 0.3)
            for i, (q, n) in enumerate(zip(quantities, points, strict=True))
        },
    )


def three_dimensions(hidden=(9, 7)):
    """Mixed second derivatives, several fields, one of some coordinates only, one positive."""
    rng = np.random.default_rng(1)

    def at(n):
        return {c: rng.uniform(0, 0.5, n) for c in "xyt"}

    return bp.Problem(
        domain={"x": (0.0, 1.0), "y": (0.0, 2.0), "t": (0.0, 0.5)},
        fields={
            "u": bp.MLP(hidden=hidden),
            "v": bp.MLP(hidden=(6,), inputs=("x", "t"), positive=True),
            "w": bp.MLP(hidden=(5, 5), scale_inputs=True),
        },
        sensors={
            "mixed": bp.Sensors(lambda u_xy, u_tt, v_xt: u_xy + u_tt * v_xt, at(33), np.zeros(33), 0.5),
            "heat": bp.Sensors(lambda u_t, u_xx, u_yy, w: u_t - u_xx - u_yy + w, at(21), np.zeros(21), 0.5),
            "v": bp.Sensors("v", {c: a for c, a in at(7).items() if c != "y"}, np.ones(7), 0.5),
            "slope": bp.Sensors("w_y", at(3), np.zeros(3), 0.5),
        },
    )


def high_order(activation, hidden=(20, 12)):
    """Third and fourth derivatives, mixed and in one input, and a positive field."""
    rng = np.random.default_rng(2)

    def at(n):
        return {c: rng.uniform(0, 1, n) for c in "xy"}

    return bp.Problem(
        domain={"x": (0.0, 1.0), "y": (0.0, 1.0)},
        fields={
            "u": bp.MLP(hidden=hidden, activation=activation),
            "v": bp.MLP(hidden=(6,), inputs=("x",), positive=True, activation=activation),
        },
        sensors={
            "plate": bp.Sensors(lambda u_xxxx, u_xxyy, u_yyyy: u_xxxx + 2 * u_xxyy + u_yyyy, at(41), np.zeros(41), 9.0),
            "wave": bp.Sensors(lambda u, u_x, u_xxy, v_xx: u_xxy + u * u_x + v_xx, at(21), np.zeros(21), 2.0),
            "u": bp.Sensors("u", at(7), np.zeros(7), 0.5),
        },
    )


PROBLEMS = {
    "one layer": lambda: one_dimension((7,)),
    "two layers": lambda: one_dimension((50, 50)),
    "odd widths": lambda: one_dimension((3, 17, 5)),
    "four layers": lambda: one_dimension((20, 20, 20, 20)),
    "a single neuron": lambda: one_dimension((1, 1)),
    "single points": lambda: one_dimension((8, 8), points=(1, 1, 1)),
    "many points": lambda: one_dimension((12, 12), points=(300, 1, 700)),
    "inferred sds": lambda: one_dimension(
        (12, 9), weight_sd=dist.HalfNormal(1.0), bias_sd=(1.0, dist.HalfNormal(), 1.0)
    ),
    "three dimensions": three_dimensions,
    "fourth order": lambda: high_order("tanh"),
    "sin": lambda: high_order("sin"),
    "swish": lambda: high_order("swish"),
    "gelu": lambda: high_order("gelu"),
    "allen-cahn": lambda: bp.paper.allen_cahn_2d(noise=0.1).problem,
}


@available
@pytest.mark.parametrize("name", PROBLEMS)
def test_log_density_and_gradient_are_those_of_jax(name):
    """Both in single precision against double: the kernel may be as far off as JAX is, within a factor."""
    problem = PROBLEMS[name]()
    with jax.enable_x64(True):
        exact = bp.Posterior(problem)
        z = 0.5 * np.asarray(exact.sample_prior(jax.random.key(0), 3))
        both = jax.jit(jax.value_and_grad(lambda z: exact.model.log_likelihood(z, exact.data)))
        wanted = [both(jnp.asarray(row)) for row in z]
    posterior = bp.Posterior(problem)
    kernel = posterior.model.compiled()
    fast = jax.jit(jax.value_and_grad(lambda z: kernel.log_likelihood(z, posterior.data)))
    for row, (value, gradient) in zip(z.astype(np.float32), wanted, strict=True):
        found = fast(jnp.asarray(row))
        assert found[0] == pytest.approx(float(value), rel=2e-5, abs=1e-4)
        np.testing.assert_allclose(found[1], gradient, atol=2e-5 * np.abs(gradient).max())


ONE, TWO, THREE = ((-1.0, 1.0),), ((0.0, 1.0), (-1.0, 2.0)), ((0.0, 1.0), (0.0, 2.0), (0.0, 0.5))

# field, bounds, requests, numbers of points
FEATURES = {
    "one layer": (bp.MLP(hidden=(7,)), ONE, [[(0,)], [(1,)], [(0,), (2,)]], (5, 17, 40)),
    "two layers": (bp.MLP(hidden=(50, 50)), ONE, [[(0,), (2,)], [(0,)]], (32, 8)),
    "odd widths": (bp.MLP(hidden=(3, 17, 5)), ONE, [[(2,)], [(0,)], [(2,)], [(1,)]], (5, 17, 40, 16)),
    "a single neuron": (bp.MLP(hidden=(1, 1)), ONE, [[(0,)], [(1,), (2,)]], (5, 19)),
    "single points": (bp.MLP(hidden=(8, 8)), ONE, [[(0,)], [(1,)], [(2,)]], (1, 1, 1)),
    "many points": (bp.MLP(hidden=(12, 12)), ONE, [[(0,)], [(1,)], [(2,)]], (300, 1, 700)),
    "Laplacian": (bp.MLP(hidden=(9, 7)), TWO, [[(0, 0), (0, 2), (2, 0)], [(0, 0)], [(0, 2), (2, 0)]], (33, 20, 90)),
    "mixed": (bp.MLP(hidden=(9, 7)), THREE, [[(1, 1, 0), (0, 0, 2)], [(0, 0, 0), (0, 0, 1)]], (33, 7)),
    "scaled": (bp.MLP(hidden=(9, 7), scale_inputs=True), TWO, [[(0, 0), (1, 0), (0, 2)], [(0, 0)]], (33, 7)),
    "third order": (bp.MLP(hidden=(9, 7)), ONE, [[(0,), (3,)], [(1,)], [(3,), (2,)]], (40, 5, 17)),
    "fourth order": (bp.MLP(hidden=(50, 50)), ONE, [[(0,), (4,)], [(0,)], [(0,), (2,)]], (33, 8, 90)),
    "mixed third order": (bp.MLP(hidden=(6, 5)), TWO, [[(1, 2), (2, 0)], [(0, 3), (1, 1), (0, 0)]], (33, 17)),
    "biharmonic": (bp.MLP(hidden=(8, 8, 8)), TWO, [[(4, 0), (2, 2), (0, 4)], [(0, 0), (0, 1)]], (37, 7)),
    "mixed fourth order": (bp.MLP(hidden=(4,)), THREE, [[(1, 1, 2), (0, 1, 0)], [(3, 0, 1)], [(0, 0, 0)]], (5, 1, 3)),
    "many of fourth order": (bp.MLP(hidden=(7, 5)), TWO, [[(0, 0), (2, 2)], [(3, 1)]], (300, 200)),
    "fourth order, scaled": (bp.MLP(hidden=(5, 5), scale_inputs=True), TWO, [[(0, 0), (1, 3), (4, 0)]], (21,)),
    **{
        f"{activation}, {what}": (bp.MLP(hidden=hidden, activation=activation), bounds, requests, sizes)
        for activation in ("sin", "swish", "gelu")
        for what, hidden, bounds, requests, sizes in (
            ("values", (6, 6), ONE, [[(0,)]], (40,)),
            ("one layer", (7,), ONE, [[(0,), (1,)], [(2,)]], (17, 1)),
            ("second order", (50, 50), ONE, [[(0,), (2,)], [(0,)]], (32, 8)),
            ("fourth order", (9, 7, 5), ONE, [[(0,), (3,)], [(0,)], [(4,)]], (19, 90, 65)),
            ("mixed", (9, 8), TWO, [[(0, 0), (1, 1)], [(2, 1), (0, 4)]], (100, 33)),
        )
    },
    "no hidden layer": (bp.MLP(hidden=()), TWO, [[(0, 0), (1, 0), (0, 2)], [(0, 0)]], (3, 7)),
}


def features_of(field, bounds, requests, sizes, native):
    """The stacked features, and their cotangents in theta, of inputs that are the same in either precision."""
    rng = np.random.default_rng(0)
    low, high = np.array(bounds).T
    points = [rng.uniform(low, high, (n, len(bounds))).astype(np.float32).astype(float) for n in sizes]
    theta = rng.normal(0, 0.7, field.size(bounds)).astype(np.float32)
    requests = tuple(tuple(request) for request in requests)
    wanted = Wanted(field.needed(requests), tuple(sizes), bounds, native, {})
    prepared = field.prepare(points, requests, bounds)

    def stacked(theta):
        if native:
            return field.stacked(theta, prepared, wanted)
        columns = field.features(theta, prepared, wanted).columns
        return jnp.concatenate([columns[i][index] for i, index in field.layout(wanted)]).T

    theta = jnp.asarray(theta, dtype=float)
    rows, pullback = jax.vjp(jax.jit(stacked), theta)  # compiled as one: hundreds of single operations take longer
    cotangent = rng.normal(size=rows.shape).astype(np.float32)
    cuts = np.cumsum([sizes[i] for i, _ in field.layout(wanted)])[:-1]
    blocks = np.split(np.asarray(rows), cuts, axis=1)
    # Each block on its own: a derivative of high order is large, and would hide an error in the others.
    pulled = []
    for block in np.split(np.arange(rows.shape[1]), cuts):
        only = np.zeros_like(cotangent)
        only[:, block] = cotangent[:, block]
        pulled.append(np.asarray(pullback(jnp.asarray(only, rows.dtype))[0]))
    return blocks, pulled


@cache
def exact_features(name):
    """In double precision, without the kernel."""
    with jax.enable_x64(True):
        return features_of(*FEATURES[name], native=False)


@available
@pytest.mark.parametrize("name", FEATURES)
def test_features_and_their_cotangents_are_those_of_jax(name):
    exact, pulled = exact_features(name)
    blocks, found = features_of(*FEATURES[name], native=True)
    for a, b in zip((*blocks, *found), (*exact, *pulled), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * max(np.abs(b).max(), 1e-30))


# The order does not depend on the activation: one case of another than tanh is enough.
OTHERS = [name for name, (field, *_) in FEATURES.items() if field.activation != "tanh" and name != "gelu, mixed"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in OTHERS else name for name in FEATURES]
)
def test_features_without_the_kernel_are_stacked_in_the_same_order(name, monkeypatch):
    exact, pulled = exact_features(name)
    monkeypatch.setattr(native, "library", lambda: None)
    with jax.enable_x64(True):
        blocks, found = features_of(*FEATURES[name], native=True)
    for a, b in zip((*blocks, *found), (*exact, *pulled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * max(np.abs(b).max(), 1e-30))


@available
def test_the_output_layer_has_no_part_in_features():
    field, bounds, requests, sizes = FEATURES["two layers"]
    wanted = Wanted(tuple(map(tuple, requests)), sizes, bounds, True, {})
    prepared = field.prepare([np.linspace(-1, 1, n)[:, None] for n in sizes], requests, bounds)
    theta = jax.random.normal(jax.random.key(0), (field.size(bounds),))
    output = field.linear(bounds)
    stacked = jax.jit(lambda theta: field.stacked(theta, prepared, wanted))
    assert "bpinn_features_forward" in stacked.lower(theta).as_text()
    np.testing.assert_array_equal(stacked(theta), stacked(theta.at[output].set(jnp.nan)))
    gradient = jax.grad(lambda theta: jnp.sum(stacked(theta) ** 2))(theta)
    assert np.all(gradient[output] == 0)
    assert np.all(gradient[: output.start] != 0)


@available
def test_the_kernel_is_what_runs():
    posterior = bp.Posterior(one_dimension((8, 8)))
    z = posterior.sample_prior(jax.random.key(0), 1)[0]
    for model, there in ((posterior.model, False), (posterior.model.compiled(), True)):
        text = jax.jit(lambda z, model=model: model.log_likelihood(z, posterior.data)).lower(z).as_text()
        assert ("bpinn_streams_forward" in text) == there


@available
def test_batches_are_those_of_single_calls():
    posterior = bp.Posterior(one_dimension((8, 8)))
    kernel = posterior.model.compiled()
    gradient = jax.grad(lambda z: kernel.log_density(z, posterior.data))
    z = posterior.sample_prior(jax.random.key(0), 4)
    each = np.stack([jax.jit(gradient)(row) for row in z])
    np.testing.assert_allclose(jax.jit(jax.vmap(gradient))(z), each, rtol=1e-5, atol=1e-4)


@available
@pytest.mark.parametrize("activation", native.ACTIVATIONS)
def test_nan_and_infinity_are_not_hidden(activation):
    posterior = bp.Posterior(one_dimension((8, 8), activation=activation))
    kernel = posterior.model.compiled()
    z = posterior.sample_prior(jax.random.key(0), 1)[0]
    for at in (0, 20, 60):
        assert not np.isfinite(jax.jit(kernel.log_likelihood)(z.at[at].set(jnp.nan), posterior.data))
    far = jax.jit(kernel.log_likelihood)(1e4 * z, posterior.data)
    assert np.isfinite(far) if activation == "tanh" else not np.isnan(far)  # only tanh has bounded derivatives


@available
@pytest.mark.parametrize("activation", native.ACTIVATIONS)
def test_activations_are_accurate_far_from_zero(activation):
    """One neuron with weight 1 has the activation and its derivatives as its features."""
    field, at = bp.MLP(hidden=(1,), activation=activation), np.linspace(-40, 40, 4001).astype(np.float32)
    bounds, requests = ((-40.0, 40.0),), (tuple((n,) for n in range(5)),)
    theta = np.array([1.0, 0.0, 0.0, 0.0])

    def features(native):
        prepared = field.prepare([at[:, None]], requests, bounds)
        return field.stacked(
            jnp.asarray(theta, dtype=float), prepared, Wanted(requests, (len(at),), bounds, native, {})
        )

    with jax.enable_x64(True):
        exact = np.asarray(features(False))[0].reshape(5, -1)
    found = np.asarray(features(True))[0].reshape(5, -1)
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=5e-6)


@available
def test_what_the_kernel_does_not_take_runs_in_jax():
    x = np.linspace(0, 1, 5)
    for field, quantity in ((bp.MLP(hidden=(5,), activation=jnp.tanh), "u"), (bp.MLP(hidden=(5,)), "u_xxxxx")):
        problem = bp.Problem({"x": (0.0, 1.0)}, {"u": field}, sensors={"s": bp.Sensors(quantity, {"x": x}, x, 0.1)})
        posterior = bp.Posterior(problem)
        z = posterior.sample_prior(jax.random.key(0), 1)[0]
        kernel = posterior.model.compiled()
        text = jax.jit(lambda z, kernel=kernel, data=posterior.data: kernel.log_likelihood(z, data)).lower(z).as_text()
        assert "bpinn_streams_forward" not in text


@pytest.mark.parametrize("without", [{"BPINN_NATIVE": "0"}, {"PATH": ""}])
def test_it_is_done_without_where_it_is_not_wanted_or_cannot_be_compiled(without, tmp_path, monkeypatch):
    for name, value in ({"XDG_CACHE_HOME": str(tmp_path)} | without).items():
        monkeypatch.setenv(name, value)
    assert native.library.__wrapped__() is None
    assert not list(tmp_path.iterdir())


@available
def test_a_cache_folder_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    """Compiled without optimisation, which takes a tenth of the time."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(native.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(native, "FLAGS", tuple(flag for flag in native.FLAGS if flag != "-O3"))
    path = native._compiled(shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"))
    assert path.is_relative_to(tmp_path)
    loaded = ctypes.CDLL(str(path))
    assert all(hasattr(loaded, name) for name in native.TARGETS)


@pytest.mark.slow
@available
def test_hmc_with_and_without_the_kernel_has_one_posterior(monkeypatch):
    """The same chains to rounding at first, and the same posterior in the end: means within 4 standard errors."""
    problem = one_dimension((6,), points=(4, 4, 8))
    method = bp.HMC(num_leapfrog=40, num_warmup=300, num_draws=500)
    with_kernel = bp.infer(problem, method, seed=0, progress=False)
    monkeypatch.setattr(native, "library", lambda: None)
    jax.clear_caches()
    without = bp.infer(problem, method, seed=1, progress=False)
    a, b = (r.summary().table.loc["k"] for r in (with_kernel, without))
    error = np.hypot(a["sd"] / np.sqrt(a["ess"]), b["sd"] / np.sqrt(b["ess"]))
    assert abs(a["mean"] - b["mean"]) < 4 * error
    jax.clear_caches()


@available
def test_numbers_near_zero_stay_what_they_are(tmp_path):
    """A library linked with fast mathematics makes the thread that loads it take them for zero. This one loads a copy:
    code that runs when a library is loaded runs once a file."""
    ctypes.CDLL(shutil.copy(native.library()._name, tmp_path / "copy.so"))
    assert np.float64(5e-324) * np.float64(1.0) > 0
