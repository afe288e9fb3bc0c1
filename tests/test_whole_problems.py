"""Problems of every shape, made at random: each can be inferred, asked and kept, or is refused in a sentence."""

import signal
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import bpinn as bp

COORDINATES, FIELDS, UNKNOWNS = ("x", "y", "t"), ("u", "v", "w"), ("k", "c")
PRIORS = [
    dist.Normal(0.0, 1.0), dist.Normal(100.0, 1e-3), dist.LogNormal(0.0, 2.0), dist.HalfNormal(0.1),
    dist.HalfCauchy(1.0), dist.Uniform(-2.0, 5.0), dist.Beta(0.5, 0.5), dist.Gamma(2.0, 3.0),
    dist.Exponential(10.0), dist.StudentT(3.0), dist.TruncatedNormal(0.0, 1.0, low=0.5),
    dist.Normal(np.zeros(3), 1.0), dist.Dirichlet(np.ones(3)),
    dist.MultivariateNormal(np.zeros(2), np.eye(2)), dist.InverseGamma(3.0, 1.0), dist.Laplace(0.0, 1.0),
]  # fmt: skip
POSITIVE = [dist.HalfNormal(0.1), dist.LogNormal(-2.0, 1.0), dist.InverseGamma(3.0, 1.0), dist.Exponential(5.0)]
KERNELS = [bp.Exponential, bp.Matern32, bp.Matern52, bp.SquaredExponential]
METHODS = [
    bp.HMC(most_draws=200, chains=2),
    bp.HMC(num_warmup=20, num_draws=8, num_leapfrog=2, chains=2),
    bp.HMC(num_warmup=40, num_draws=8, num_leapfrog=2, chains=1, init="prior", mass="diagonal", thin=2),
    bp.HMC(num_warmup=20, num_draws=8, num_leapfrog=2, chains=1, init="map", init_steps=20),
    bp.NUTS(num_warmup=20, num_draws=8, max_tree_depth=2, chains=1),
    bp.SMC(particles=20, num_moves=1, num_leapfrog=2, most_steps=5, chains=1),
    bp.VI(num_steps=20, init_steps=20, num_draws=8, chains=1),
    bp.Flow(num_steps=5, init_steps=20, num_draws=8, chains=1),
    bp.PINN(num_steps=20, chains=1),
    bp.Dropout(num_steps=40, num_draws=8, last=8, chains=1),
    bp.LastLayer(num_steps=20, num_draws=8, chains=1),
    bp.Laplace(num_steps=3, init_steps=20, num_draws=8, chains=1),
    bp.Ensemble(members=3, num_steps=3, chains=1),
    bp.SVGD(particles=4, num_steps=5, init_steps=20, chains=1),
    bp.EnsembleKalman(members=12, most_steps=5, chains=1),
    bp.SGHMC(batch=5, steps=2, num_warmup=3, num_draws=8, init_steps=20, chains=1),
]
# What equations are made of, from a value and another: smooth, steep, and not defined everywhere.
FORMULAS = [
    "{a} + {b}", "{a} * {b}", "jnp.tanh({a}) - 0.1 * {b}", "jnp.exp({a}) + {b}", "{a} / (1.0 + {b}**2)", "{a}**3 - {b}",
    "jnp.sqrt({a}) + {b}", "jnp.log({a}) * {b}", "{a} / {b}", "jnp.where({a} > 0, {b}, 0.0)", "7.0 + 0.0 * {a}",
]  # fmt: skip


@dataclass
class Whole:
    """A problem in its parts, and how it is to be inferred."""

    domain: dict[str, tuple[float, float]]
    fields: dict[str, Any]
    unknowns: dict[str, Any]
    sensors: dict[str, Any]
    method: Any

    def problem(self) -> bp.Problem:
        return bp.Problem(self.domain, self.fields, self.sensors, self.unknowns)


@st.composite
def surrogates(draw, domain):
    inputs = draw(st.lists(st.sampled_from(list(domain)), min_size=1, max_size=len(domain), unique=True))
    common = {"inputs": tuple(inputs), "positive": draw(st.booleans())}
    if draw(st.booleans()):
        hidden = draw(st.sampled_from([(), (1,), (3,), (4, 4), (3, 2, 3)]))
        activation = draw(st.sampled_from(["tanh", "sin", "swish", "gelu", jnp.arctan]))
        sds = draw(st.sampled_from([0.1, 1.0, 5.0]))
        return bp.MLP(hidden, activation, sds, 1.0, draw(st.booleans()), **common)
    low, high = domain[inputs[0]]
    kernel = draw(st.sampled_from(KERNELS))((high - low) * draw(st.sampled_from([0.1, 0.5, 3.0])))
    return bp.KarhunenLoeve(kernel, terms=draw(st.integers(1, 6)), mean=draw(st.sampled_from([0.0, -3.0])), **common)


@st.composite
def quantities(draw, fields, domain, unknowns):
    """A field, a derivative, or an equation of two names."""

    def term():
        name = draw(st.sampled_from(list(fields)))
        if draw(st.booleans()):
            return name
        return f"{name}_{''.join(draw(st.lists(st.sampled_from(fields[name].inputs), min_size=1, max_size=3)))}"

    if draw(st.booleans()):
        return term()
    scalars = [name for name, prior in unknowns.items() if prior.shape() == ()]
    vectors = [name for name, prior in unknowns.items() if prior.shape() != ()]
    names = [term(), draw(st.sampled_from([*scalars, *vectors, *domain, *fields, term()]))]
    a, b = (f"{name}[0]" if name in vectors else name for name in names)
    formula = draw(st.sampled_from(FORMULAS)).format(a=a, b=b)
    space: dict[str, Any] = {"jnp": jnp}
    exec(f"def equation({', '.join(dict.fromkeys(names))}): return {formula}", space)
    return space["equation"]


@st.composite
def wholes(draw):
    names = draw(st.lists(st.sampled_from(COORDINATES), min_size=1, max_size=3, unique=True))
    lows = [draw(st.sampled_from([0.0, -1.0, 1e3, -1e-3])) for _ in names]
    domain = {c: (low, low + draw(st.sampled_from([1.0, 1e-2, 50.0]))) for c, low in zip(names, lows, strict=True)}
    fields = {name: draw(surrogates(domain)) for name in FIELDS[: draw(st.integers(1, 3))]}
    unknowns = {name: draw(st.sampled_from(PRIORS)) for name in UNKNOWNS[: draw(st.integers(0, 2))]}
    sensors = {}
    for i in range(draw(st.integers(1, 3))):
        points = draw(st.integers(1, 4))
        share = np.asarray(draw(st.lists(st.floats(0, 1, width=16), min_size=points, max_size=points)))
        at = {c: low + share * (high - low) for c, (low, high) in domain.items()}
        values = draw(st.sampled_from([0.0, 1.0, -1e4, 1e-6])) * np.ones(points)
        noise = draw(st.one_of(st.sampled_from([0.1, 1e-6, 1e4]), st.sampled_from(POSITIVE), st.just([0.1] * points)))
        likelihood = draw(st.sampled_from(["normal", "student_t"]))
        quantity = draw(quantities(fields, domain, unknowns))
        sensors[f"s{i}"] = bp.Sensors(quantity, at, values, noise, likelihood)
    return Whole(domain, fields, unknowns, sensors, draw(st.sampled_from(METHODS)))


@contextmanager
def within(seconds):
    """No problem may hang."""

    def give_up(*_):
        raise TimeoutError(f"it takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(whole, folder):
    """All that a user would do with it; a number that is not finite is never without a word."""
    try:
        problem = whole.problem()
        result = bp.infer(problem, whole.method, seed=0, progress=False)
    except bp.InputError:  # such as more terms than a smooth kernel has, or a log density that is nowhere finite
        return
    posterior = bp.Posterior(problem)
    z = posterior.sample_prior(jax.random.key(1), 1)[0]
    parts = posterior.log_prior(z) + posterior.log_likelihood(z)
    np.testing.assert_allclose(posterior.log_density(z), parts, rtol=1e-5)
    assert np.all(np.isfinite(z))
    health = result.diagnose()
    assert health.verdict == "good" or health.advice
    str(result.summary())
    for name, readings in zip(problem.sensors, problem.readings, strict=True):
        at = {c: values[:2] for c, values in readings.at.items()}
        band = result.predict(name, at)
        assert band.draws.shape[:2] == result.z.shape[:2]
        if not np.all(np.isfinite(band.mean)):
            assert health.verdict != "good", "not finite, and nothing said"
    for name in whole.unknowns:
        assert np.all(np.isfinite(result.draws(name))) or health.verdict == "bad"
    path = folder / "result.npz"
    result.save(path)
    np.testing.assert_array_equal(bp.load(path).z, result.z)


def checked(examples):
    # Not made smaller where it fails: each attempt compiles, and hundreds of them are too much for a process.
    phases = (Phase.generate,)

    @settings(max_examples=examples, phases=phases, deadline=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(whole=wholes())
    def run(folder, whole):
        with within(600), warnings.catch_warnings():
            warnings.simplefilter("ignore", bp.BpinnWarning)
            check(whole, folder)

    return run


def test_problems_of_any_shape(tmp_path):
    checked(3)(tmp_path)


@pytest.mark.slow
def test_many_problems_of_any_shape(tmp_path):
    checked(40)(tmp_path)
