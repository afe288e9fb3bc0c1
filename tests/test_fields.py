"""What every field promises: its linear parameters and their features, and scales that are inferred."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.fields.base import Wanted

PLANE, LINE = ((0.0, 1.0), (-1.0, 2.0)), ((-1.0, 1.0),)
POSITIVE = dist.LogNormal(0.0, 1.0)
FIELDS = {
    "network": (bp.MLP(hidden=(5, 4)), PLANE),
    "one layer": (bp.MLP(hidden=(6,), activation="sin", weight_sd=(1.0, 0.3)), LINE),
    "scaled inputs": (bp.MLP(hidden=(4, 4, 3), activation="swish", scale_inputs=True), PLANE),
    "own activation": (bp.MLP(hidden=(4,), activation=lambda a: a**3), PLANE),
    "no hidden layer": (bp.MLP(hidden=()), PLANE),
    "positive": (bp.MLP(hidden=(4,), positive=True), LINE),
    "inferred sds": (bp.MLP(hidden=(4, 3), weight_sd=dist.HalfNormal(1.0), scale_inputs=True), PLANE),
    "inferred sds of some layers": (bp.MLP(hidden=(4,), weight_sd=(2.0, POSITIVE), bias_sd=(POSITIVE, 0.5)), LINE),
    "expansion": (bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=5, mean=lambda x: x**2), LINE),
    "expansion in two dimensions": (bp.KarhunenLoeve(bp.SquaredExponential(length=0.7), terms=6, mean=0.5), PLANE),
}


def requests_for(bounds):
    """Two groups of points: values alone, and values with derivatives up to the third."""
    if len(bounds) == 1:
        return [((0,),), ((0,), (1,), (2,), (3,))]
    return [((0, 0),), ((0, 0), (1, 0), (0, 2), (2, 1))]


def prepared_for(field, bounds, scales=None):
    points = [np.random.default_rng(i).uniform(*np.array(bounds).T, (n, len(bounds))) for i, n in enumerate((3, 4))]
    requests = [r[:3] if isinstance(field, bp.KarhunenLoeve) else r for r in requests_for(bounds)]
    prepared = field.prepare(points, requests, bounds)
    own = {name: prior.sample(jax.random.key(2)) for name, prior in field.scale_priors(bounds).items()}
    return prepared, Wanted(field.needed(requests), (3, 4), bounds, False, scales or own)


def evaluated(field, bounds, theta, scales=None):
    prepared, wanted = prepared_for(field, bounds, scales)
    both = jax.jit(lambda theta: (field.raw(theta, prepared, wanted), field.features(theta, prepared, wanted)))
    return both(theta)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_linear_in_what_it_says(name, x64):
    field, bounds = FIELDS[name]
    theta = field.sample_prior(jax.random.key(1), bounds)
    part = field.linear(bounds)
    raw, features = evaluated(field, bounds, theta)
    for direct, columns, offset in zip(raw, *features, strict=True):
        assert set(direct) <= set(columns)
        for index, values in direct.items():
            np.testing.assert_allclose(columns[index] @ theta[part] + offset[index], values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", FIELDS)
def test_features_do_not_depend_on_the_linear_parameters(name, x64):
    """What a sampler that solves for them relies on."""
    field, bounds = FIELDS[name]
    theta = field.sample_prior(jax.random.key(1), bounds)
    part = field.linear(bounds)
    other = theta.at[part].set(jnp.arange(part.stop - part.start, dtype=float))
    for one, two in zip(jax.tree.leaves(evaluated(field, bounds, theta)[1]),
                        jax.tree.leaves(evaluated(field, bounds, other)[1]), strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("kind", [None, bp.Field], ids=["own", "default"])
def test_stacked_features_are_the_features_in_the_order_of_the_layout(name, kind, x64):
    """Also with the methods of the base class, which a field that defines only ``features`` inherits."""
    field, bounds = FIELDS[name]
    theta = field.sample_prior(jax.random.key(1), bounds)
    prepared, wanted = prepared_for(field, bounds)
    features = field.features(theta, prepared, wanted)
    if kind is None:
        layout, stacked = field.layout(wanted), field.stacked(theta, prepared, wanted)
    else:
        own = type("Outside", (type(field),), {"layout": kind.layout, "stacked": kind.stacked})
        outside = object.__new__(own)
        outside.__dict__.update(field.__dict__)
        layout, stacked = outside.layout(wanted), outside.stacked(theta, prepared, wanted)
    assert sorted(layout) == sorted((i, index) for i, request in enumerate(wanted.requests) for index in request)
    rows = np.concatenate([features.columns[i][index] for i, index in layout])
    np.testing.assert_allclose(stacked, rows.T, rtol=1e-12, atol=1e-14)


MODULES = [value for name in bp.__all__ if inspect.ismodule(value := getattr(bp, name))]


@pytest.mark.parametrize("module", [bp, *MODULES], ids=lambda module: module.__name__)
def test_only_public_names_are_shown(module):
    shown = [name for name in dir(module) if not name.startswith("__")]
    assert shown == sorted(name for name in module.__all__ if not name.startswith("__"))
    assert all(hasattr(module, name) for name in shown)
    documented = [value for name in shown if not inspect.ismodule(value := getattr(module, name))]
    assert all(value.__doc__ for value in documented)
    assert bp.__version__
