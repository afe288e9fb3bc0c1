"""Every derivative of a field against nested jax.jvp in double precision."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bpinn as bp
from bpinn.fields.activations import SOFTPLUS, activation_of, closure

pytestmark = pytest.mark.usefixtures("x64")

ACTIVATIONS = ["tanh", "sin", "swish", "gelu", lambda h: jnp.exp(-h * h)]
IDS = ["tanh", "sin", "swish", "gelu", "user"]
FORWARD = {"tanh": jnp.tanh, "sin": jnp.sin, "swish": jax.nn.silu, "gelu": lambda h: jax.nn.gelu(h, approximate=False)}


def network(field, theta, bounds):
    """The field written plainly, one point at a time."""
    phi = FORWARD.get(field.activation, field.activation)
    low, high = np.array(bounds).T

    def u(x):
        h = 2 * (x - low) / (high - low) - 1 if field.scale_inputs else x
        *inner, (w, b) = field.unflatten(theta, bounds)
        for weights, biases in inner:
            h = phi(h @ weights + biases)
        out = (h @ w + b)[0]
        return jax.nn.softplus(out) if field.positive else out

    return u


def along(u, direction):
    return lambda x: jax.jvp(u, (x,), (direction,))[1]


def nested(u, index):
    """A mixed derivative by nested forward differentiation."""
    for i, order in enumerate(index):
        for _ in range(order):
            u = along(u, jnp.eye(len(index))[i])
    return jax.vmap(u)


def check(field, bounds, requests, rng):
    theta = 0.5 * jnp.asarray(rng.standard_normal(field.size(bounds)))
    low, high = np.array(bounds).T
    points = [rng.uniform(low, high, (3 + i, len(bounds))) for i in range(len(requests))]
    prepared = field.prepare(points, requests, bounds)
    sizes = [len(p) for p in points]
    results = jax.jit(lambda t, p: field.evaluate(t, p, requests, sizes, bounds))(theta, prepared)

    @jax.jit
    def plainly(theta, points):
        u = network(field, theta, bounds)
        return [{i: nested(u, i)(x) for i in wanted} for x, wanted in zip(points, requests, strict=True)]

    expected = plainly(theta, points)
    for exacts, wanted, streams in zip(expected, requests, results, strict=True):
        assert set(streams) == set(wanted)
        for index in wanted:
            exact = exacts[index]
            scale = float(jnp.max(jnp.abs(exact))) + 1e-300
            np.testing.assert_allclose(streams[index], exact, rtol=1e-9, atol=1e-9 * scale, err_msg=str(index))


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=IDS)
def test_one_input_to_fourth_order(activation):
    field = bp.MLP(hidden=(7, 5), activation=activation)
    check(
        field, ((-1.0, 2.0),), [tuple((k,) for k in range(5)), ((0,),), ((2,),), ((1,), (3,))], np.random.default_rng(0)
    )


@pytest.mark.parametrize(
    "activation",
    [
        pytest.param(a, marks=pytest.mark.slow if a in ("sin", "swish", "gelu") else (), id=i)
        for a, i in zip(ACTIVATIONS, IDS, strict=True)
    ],
)
def test_every_mixed_derivative_of_two_inputs_to_fourth_order(activation):
    field = bp.MLP(hidden=(6, 6), activation=activation)
    indices = [i for i in itertools.product(range(5), repeat=2) if sum(i) <= 4]
    check(
        field,
        ((0.0, 1.0), (-1.0, 1.0)),
        [(i,) for i in indices if sum(i) > 2] + [tuple(indices)],
        np.random.default_rng(1),
    )


@pytest.mark.parametrize("hidden", [(), (4,), (3, 4, 5)])
def test_depths_and_three_inputs(hidden):
    requests = [((0, 0, 0), (1, 1, 1)), ((2, 0, 1),), ((0, 0, 2), (2, 0, 0), (0, 2, 0))]
    check(bp.MLP(hidden=hidden), ((0.0, 1.0),) * 3, requests, np.random.default_rng(2))


@pytest.mark.parametrize(
    "settings", [{"positive": True}, {"scale_inputs": True}, {"positive": True, "scale_inputs": True}]
)
def test_links_and_scaled_inputs(settings):
    field = bp.MLP(hidden=(5,), **settings)
    requests = [((4, 0), (0, 0)), ((2, 1),), ((1, 1), (0, 3)), ((0, 0),)]
    check(field, ((-3.0, 5.0), (0.0, 0.1)), requests, np.random.default_rng(3))


@pytest.mark.parametrize("activation", [*ACTIVATIONS, "softplus"], ids=[*IDS, "softplus"])
def test_activation_derivatives_to_sixth_order(activation):
    h = jnp.linspace(-3, 3, 41)
    phi = SOFTPLUS if activation == "softplus" else activation_of(activation)
    exact = jax.nn.softplus if activation == "softplus" else FORWARD.get(activation, activation)
    y = phi.base(h)
    for values in [phi.value(y), *phi.slopes(y, 6)]:
        np.testing.assert_allclose(values, jax.jit(exact)(h), rtol=1e-9, atol=1e-9)
        exact = along(exact, jnp.ones_like(h))
    assert phi.slopes(y, 0) == []


def test_only_needed_streams_are_carried():
    assert closure([(2,)]) == ((0,), (1,), (2,))
    assert closure([(0, 0)]) == ((0, 0),)
    assert set(closure([(1, 1)])) == {(0, 0), (1, 0), (0, 1), (1, 1)}
    assert len(closure([(2, 0), (0, 2)])) == 5
