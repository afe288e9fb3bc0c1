"""Whatever is handed in from Python: no exception but ours, no NaN without a word, no hang."""

import contextlib
import warnings
from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import bpinn as bp


def reaction(u, u_xx, k):
    return 0.1 * u_xx + k * jnp.tanh(u)


def unheard(u, v_x):
    return u + v_x


MESSY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=False),
    st.complex_numbers(max_magnitude=10, allow_subnormal=False),
    st.text(max_size=5),
    st.sampled_from(["u", "u_x", "u_xx", "k", "x", "v", "u_y", "normal", "student_t", "noise"]),
    st.binary(max_size=3),
    st.lists(st.one_of(st.floats(-2, 2, allow_subnormal=False), st.text(max_size=2), st.none()), max_size=4),
    st.lists(st.lists(st.floats(-2, 2, allow_subnormal=False), max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["x", "y", "u", ""]), st.one_of(st.floats(-2, 2, allow_subnormal=False), st.lists(st.floats(-2, 2, allow_subnormal=False))), max_size=2),
    st.builds(np.zeros, st.sampled_from([(), (0,), (3,), (3, 1), (2, 2, 2)])),
    st.just(np.array(["a", None], object)),
    st.just(np.datetime64("2020-01-01")),
    st.sampled_from([reaction, unheard, np.sin, len, object(), int, bp.MLP, bp.MLP(hidden=(3,)), bp.HMC()]),
    st.sampled_from([dist.Normal(0.0, 1.0), dist.HalfNormal(0.1), dist.Bernoulli(0.5), dist.Normal, dist.Normal(np.zeros(2), 1.0)]),
)  # fmt: skip


def parts():
    """A problem that is right."""
    x = np.linspace(0.0, 1.0, 3)
    return {
        "domain": {"x": (0.0, 1.0)},
        "fields": {"u": bp.MLP(hidden=(3,))},
        "unknowns": {"k": dist.Normal(0.0, 1.0)},
        "f": {"quantity": reaction, "at": {"x": x}, "values": np.zeros(3), "noise": 0.1},
        "u": {
            "quantity": "u",
            "at": {"x": x[:2]},
            "values": [0.0, 1.0],
            "noise": 0.1,
            "likelihood": "normal",
            "dof": 4.0,
        },
    }


PLACES = [
    (group, key)
    for group, content in parts().items()
    for key in [None, *content]
]  # fmt: skip


@st.composite
def broken(draw):
    """The problem with up to three things in it replaced by something else."""
    made = parts()
    for _ in range(draw(st.integers(1, 3))):
        group, key = draw(st.sampled_from(PLACES))
        if key is None or not isinstance(made[group], dict):
            made[group] = draw(MESSY)
        else:
            made[group][key] = draw(MESSY)
    return made


def build(made):
    sensors = {n: bp.Sensors(**made[n]) if isinstance(made[n], dict) else made[n] for n in ("f", "u")}
    return bp.Problem(made["domain"], made["fields"], sensors, made["unknowns"])


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(broken())
def test_a_problem_is_right_or_a_sentence(made):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bp.BpinnWarning)
            problem = build(made)
    except bp.InputError as error:
        assert 10 < len(str(error)) < 2000
        return
    except TypeError as error:
        assume("Sensors" not in str(error))  # names of arguments that Sensors does not have
        raise
    repr(problem)
    assert bp.Posterior(problem).dim > 0


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(broken())
def test_what_is_accepted_can_be_inferred(made):
    """And has no NaN in it, unless the verdict says so."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = build(made)
    except (bp.InputError, TypeError):  # the second of names of arguments that Sensors does not have
        return
    method = bp.HMC(num_warmup=20, num_draws=8, num_leapfrog=2, chains=2)
    try:
        result = bp.infer(problem, method, seed=0, progress=False)
    except bp.InputError:
        return
    band = result.predict("u", problem.grid() if len(problem.domain) < 3 else None)
    if not (np.all(np.isfinite(result.functionals)) and np.all(np.isfinite(band.mean))):
        assert result.diagnose().verdict == "bad"


METHODS = [bp.HMC, bp.NUTS, bp.SMC, bp.VI, bp.Flow, bp.Dropout, bp.PINN, bp.LastLayer]
METHODS += [bp.Laplace, bp.Ensemble, bp.SVGD, bp.EnsembleKalman, bp.SGHMC, bp.Collapsed]
SETTINGS = [(kind, f.name) for kind in METHODS for f in fields(kind)]


@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SETTINGS), MESSY)
def test_settings_are_right_or_a_sentence(place, value):
    kind, name = place
    try:
        kind(**{name: value})
    except bp.InputError as error:
        assert name in str(error)


SURROGATES = [(bp.MLP, f.name) for f in fields(bp.MLP)] + [
    (bp.KarhunenLoeve, f.name) for f in fields(bp.KarhunenLoeve) if f.name != "kernel"
]


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SURROGATES), MESSY)
def test_surrogates_are_right_or_a_sentence(place, value):
    kind, name = place
    given_before = {} if kind is bp.MLP else {"kernel": bp.Exponential(0.3)}
    with contextlib.suppress(bp.InputError):
        bp.Problem({"x": (0.0, 1.0)}, {"u": kind(**given_before, **{name: value})})


@pytest.fixture(scope="module")
def result():
    problem = build(parts())
    posterior = bp.Posterior(problem)
    z = np.asarray(posterior.sample_prior(jax.random.key(0), 6)).reshape(2, 3, -1)
    functionals = np.stack([[posterior.model.functionals(row, posterior.data) for row in chain] for chain in z])
    return bp.Result(problem, bp.HMC(), 0, z, functionals, {"log_density": np.zeros((2, 3))})


QUESTIONS = {
    "draws": lambda r, v: r.draws(v),
    "summary": lambda r, v: r.summary(v),
    "only": lambda r, v: r.only(v),
    "thinned": lambda r, v: r.thinned(v),
    "predict quantity": lambda r, v: r.predict(v, {"x": [0.5]}).mean,
    "predict at": lambda r, v: r.predict("u", v).mean,
    "predict place": lambda r, v: r.predict("u", {"x": v}).mean,
    "predict noise": lambda r, v: r.predict("u", {"x": [0.5]}, noise=v).mean,
    "infer seed": lambda r, v: bp.infer(r.problem, bp.PINN(num_steps=1), seed=v, progress=False),
}


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(QUESTIONS)), MESSY)
def test_questions_have_an_answer_or_a_sentence(result, name, value):
    assume(not (name == "infer seed" and type(value) is int and 0 <= value < 2**32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            QUESTIONS[name](result, value)
        except bp.InputError as error:
            assert len(str(error)) > 10
