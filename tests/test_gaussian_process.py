"""Gaussian processes with inferred scales: the approximation against dense regression, and what it refuses."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import gamma, kv

import bpinn as bp

KERNELS = {
    "squared_exponential": bp.SquaredExponential,
    "rational_quadratic": bp.RationalQuadratic,
    "matern52": bp.Matern52,
    "matern32": bp.Matern32,
}


def dense(kind, x, y, lengths, sd):
    """The kernel between points, (n, inputs) and (m, inputs), from its textbook formula."""
    r = np.sqrt(np.sum(((x[:, None] - y[None]) / lengths) ** 2, axis=-1))
    if kind == "squared_exponential":
        return sd**2 * np.exp(-0.5 * r**2)
    if kind == "rational_quadratic":
        order = 0.5 * (x.shape[1] + 1)
        return sd**2 * (1 + r**2 / (2 * order)) ** -order
    nu = {"matern52": 2.5, "matern32": 1.5, "exponential": 0.5}[kind]
    s = np.sqrt(2 * nu) * np.maximum(r, 1e-12)
    return sd**2 * 2 ** (1 - nu) / gamma(nu) * s**nu * kv(nu, s)


def regression(kind, lengths, sd, x, y, noise, at):
    """Mean and sd of dense Gaussian process regression."""
    gain = np.linalg.solve(dense(kind, x, x, lengths, sd) + noise**2 * np.eye(len(x)), dense(kind, x, at, lengths, sd))
    return gain.T @ y, np.sqrt(sd**2 - np.sum(gain * dense(kind, x, at, lengths, sd), axis=0))


def linear_posterior(field, bounds, x, y, noise, at, scales):
    """Mean and sd of the field at points, exactly, from its features."""
    zero = (0,) * len(bounds)
    rows = []
    for points in (x, at):
        prepared = field.prepare([points], [(zero,)], bounds)
        wanted = bp.fields.base.Wanted(((zero,),), (len(points),), bounds, False, scales)
        rows.append(np.asarray(field.features(jnp.zeros(field.size(bounds)), prepared, wanted).columns[0][zero], float))
    features, wanted = rows
    covariance = np.linalg.inv(features.T @ features / noise**2 + np.eye(features.shape[1]))
    mean = wanted @ covariance @ features.T @ y / noise**2
    return mean, np.sqrt(np.sum((wanted @ covariance) * wanted, axis=1))


@pytest.mark.parametrize("quantile", [0.03, 0.5, 0.97])
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("kind", KERNELS)
def test_it_is_dense_regression_for_the_scales_it_claims(kind, inputs, quantile, x64):
    rng = np.random.default_rng(0)
    spread = 0.5 if inputs == 1 else 0.2
    prior = dist.LogNormal(np.log(0.6), spread)
    bounds = ((-1.0, 2.0), (0.0, 3.0))[:inputs]
    low, high = np.array(bounds).T
    terms = None if kind == "squared_exponential" and inputs == 1 else 400 if inputs == 2 else 300
    field = bp.GaussianProcess(KERNELS[kind](length=prior, amplitude=1.0), mean=0.0, terms=terms)
    field = field.completed(np.zeros(0), bounds)
    length = float(prior.icdf(quantile))
    shortest, longest = field.resolved(bounds)
    claimed = bool(np.all(length >= shortest * (1 - 1e-9)) and np.all(length <= longest * (1 + 1e-9)))
    if kind == "squared_exponential" and inputs == 1:  # others need more terms than are chosen
        assert claimed
    x = low + (high - low) * rng.random((12 if inputs == 1 else 40, inputs))
    y = np.sin(3 * x.sum(axis=1)) + 0.1 * rng.normal(size=len(x))
    at = low + (high - low) * rng.random((60, inputs))
    scales = {"length": jnp.full(inputs, length) if inputs > 1 else jnp.asarray(length)}
    mean, sd = linear_posterior(field, bounds, x, y, 0.1, at, scales)
    right_mean, right_sd = regression(kind, np.full(inputs, length), 1.0, x, y, 0.1, at)
    if claimed:
        assert np.max(np.abs(mean - right_mean) / right_sd) < 0.02
        assert np.max(np.abs(sd / right_sd - 1)) < 0.02


@pytest.mark.parametrize("kind", [*KERNELS, "exponential"])
def test_spectra_are_those_of_the_kernels(kind):
    """The inverse Fourier transform, by quadrature, is the kernel."""
    kernel = (KERNELS | {"exponential": bp.Exponential})[kind]()
    w = np.linspace(0, 4000, 4_000_001)
    density = np.exp(np.asarray(kernel.log_spectrum(jnp.asarray(w[:, None]), jnp.array([0.7])), float))
    for r in (0.0, 0.3, 1.1):
        value = np.trapezoid(density * np.cos(w * r), w) / np.pi
        assert abs(value - dense(kind, np.array([[0.0]]), np.array([[r]]), 0.7, 1.0)[0, 0]) < 5e-4


@pytest.mark.parametrize("index", [(1, 0), (0, 2), (1, 1), (2, 2)])
def test_derivatives_are_those_of_the_field(index, x64):
    bounds = ((-1.0, 2.0), (0.0, 3.0))
    field = bp.GaussianProcess(
        bp.SquaredExponential(length=0.8, amplitude=1.3), inputs=("x", "t"), periodic="t", terms=60
    )
    theta = jax.random.normal(jax.random.key(0), (60,))
    point = np.array([[0.3, 1.1]])

    def value(x, t, index=(0, 0)):
        grid_points = np.array([[x, t]])
        prepared = field.prepare([grid_points], [(index,)], bounds)
        wanted = bp.fields.base.Wanted(((index,),), (1,), bounds, False, {})
        return float(field.raw(theta, prepared, wanted)[0][index][0])

    step = 1e-2
    stencil = {0: ([0.0], [1.0]), 1: ([-1, 1], [-0.5, 0.5]), 2: ([-1, 0, 1], [1.0, -2.0, 1.0])}
    total = 0.0
    for dx, wx in zip(*stencil[index[0]], strict=True):
        for dt, wt in zip(*stencil[index[1]], strict=True):
            total += wx * wt * value(point[0, 0] + dx * step, point[0, 1] + dt * step)
    right = total / step ** sum(index)
    assert abs(value(*point[0], index) - right) < 2e-3 * max(abs(right), 1.0)


def test_a_periodic_field_is_periodic():
    bounds = ((0.0, 2.0),)
    field = bp.GaussianProcess(bp.Matern52(length=0.4, amplitude=1.0), inputs="x", periodic="x").completed(
        np.zeros(0), bounds
    )
    basis = field.prepare([np.array([[0.0], [2.0], [0.7]])], [((0,), (1,))], bounds)["basis"]
    np.testing.assert_allclose(basis[0], basis[1], atol=1e-5)
    np.testing.assert_allclose(basis[3], basis[4], atol=1e-3)
    wanted = bp.fields.base.Wanted((((0,),),), (3,), bounds, False, {})
    only = field.prepare([np.array([[0.0], [2.0], [0.7]])], [((0,),)], bounds)
    rows = np.asarray(field.features(jnp.zeros(field.size(bounds)), only, wanted).columns[0][(0,)], float)
    around = sum(
        dense("matern52", np.array([[0.0]]), np.array([[0.7 + 2.0 * n]]), 0.4, 1.0)[0, 0] for n in range(-9, 10)
    )
    assert abs(rows[0] @ rows[2] - around) < 0.01


def line(field, values=None, noise=0.1, **more):
    x = np.linspace(0, 1, 15)
    values = np.sin(5 * x) if values is None else values
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": field},
        sensors={"u": bp.Sensors("u", {"x": x}, values, noise=noise)},
        **more,
    )


def test_what_is_not_given_is_chosen_and_written_into_the_problem():
    problem = line(bp.GaussianProcess(), values=300 + 5 * np.sin(np.linspace(0, 6, 15)))
    field = problem.fields["u"]
    assert set(problem.scale_priors) == {"length_u", "amplitude_u"}
    assert 295 < field.mean < 305
    assert 1 < float(problem.scale_priors["amplitude_u"].icdf(0.5)) < 10
    assert float(problem.scale_priors["length_u"].icdf(0.5)) == pytest.approx(0.2)
    assert 10 < field.terms < 150
    assert field.completed(np.ones(3), ((0.0, 1.0),)) == field


@pytest.mark.parametrize("offset", [0.0, 101_325.4, -2.5e-7])
def test_the_chosen_mean_is_that_of_the_readings_in_units_of_their_spread(offset):
    """Rounded to three digits of itself, a pressure of 101,325.4 would be off by hundreds of spreads."""
    for spread in (1e-9, 0.3, 40.0):
        values = offset + spread * np.sin(np.linspace(0, 6, 15))
        assert abs(line(bp.GaussianProcess(), values, noise=1.0).fields["u"].mean - values.mean()) < 0.02 * spread


def test_readings_that_do_not_differ_give_the_amplitude_their_own_size():
    for values, size in ((3e6, 3e6), (-0.02, 0.02), (0.0, 1.0)):
        problem = line(bp.GaussianProcess(), values, noise=1e4)
        assert problem.fields["u"].mean == values
        assert float(problem.scale_priors["amplitude_u"].icdf(0.5)) == pytest.approx(size, rel=1e-5)


def test_scales_that_leave_their_prior_and_domains_with_too_few_terms_are_said():
    bounds = ((0.0, 100.0),)
    prior = dist.LogNormal(0.0, 1.0)
    field = bp.GaussianProcess(bp.SquaredExponential(length=dist.LogNormal(3.0, 0.5), amplitude=prior))
    field = field.completed(np.zeros(0), bounds)
    shortest, longest = field.resolved(bounds)
    inside, usual = np.full((2, 50), np.sqrt(shortest[0] * longest[0])), np.full((2, 50), 1.0)
    assert field.criticism({"length": inside, "amplitude": usual}, bounds) == []
    assert field.criticism({"length": inside, "amplitude": 1e-3 * usual}, bounds) == []
    (reason, _), = field.criticism({"length": inside, "amplitude": 40.0 * usual}, bounds)  # fmt: skip
    assert reason.startswith("its amplitude is 40, far above what its prior expects (")
    for length, words in ((shortest[0] / 2, "with more terms"), (shortest[0] / 40, "a smaller domain")):
        (_, advice), = field.criticism({"length": np.full((2, 50), length), "amplitude": usual}, bounds)  # fmt: skip
        assert words in advice


def test_the_posterior_of_the_scales_is_that_of_quadrature():
    """Length and amplitude on a grid, with the marginal likelihood of the same basis."""
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 15)
    y = np.sin(5 * x) + 0.1 * rng.normal(size=15)
    lengths, amplitudes = dist.LogNormal(np.log(0.3), 0.3), dist.LogNormal(0.0, 0.5)
    field = bp.GaussianProcess(bp.SquaredExponential(length=lengths, amplitude=amplitudes), mean=0.0)
    result = bp.infer(line(field, y), bp.HMC(num_draws=1500), seed=0, progress=False)
    assert result.diagnose().verdict == "good"
    grid_l, grid_a = np.linspace(0.08, 1.2, 120), np.linspace(0.15, 6.0, 140)
    log = np.zeros((120, 140))
    for i, length in enumerate(grid_l):
        k = dense("squared_exponential", x[:, None], x[:, None], length, 1.0)
        values, vectors = np.linalg.eigh(k)
        turned = (vectors.T @ y) ** 2
        for j, a in enumerate(grid_a):
            total = a**2 * np.maximum(values, 0) + 0.01
            log[i, j] = -0.5 * np.sum(turned / total + np.log(total))
    log += np.asarray(lengths.log_prob(grid_l))[:, None] + np.asarray(amplitudes.log_prob(grid_a))
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    for name, axis, grid in (("length_u", 1, grid_l), ("amplitude_u", 0, grid_a)):
        marginal = weight.sum(axis=axis)
        mean = marginal @ grid
        sd = np.sqrt(marginal @ grid**2 - mean**2)
        draws = result.draws(name)
        ess = float(result.summary().table.loc[name, "ess"])
        assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(ess) + 0.02 * sd
        assert abs(draws.std() / sd - 1) < 0.1


def test_a_length_that_is_not_resolved_is_said():
    """A wave that is shorter than a handful of terms can follow, and a long length on an interval that is too narrow."""
    x = np.linspace(0, 1, 15)
    wide, long = dist.LogNormal(0.0, 2.0), dist.LogNormal(0.7, 0.1)
    for field, values, more in (
        (bp.GaussianProcess(bp.SquaredExponential(length=wide), terms=6, factor=1.2), np.sin(9 * x), "more terms"),
        (bp.GaussianProcess(bp.SquaredExponential(length=long), terms=20, factor=1.2), 2 * x, "a larger factor"),
    ):
        found = bp.infer(line(field, values), seed=0, progress=False).diagnose()
        assert found.verdict != "good"
        assert "field u: a length is" in str(found)
        assert more in str(found)


@pytest.mark.parametrize("amplitude", [None, 3.0])
def test_an_expansion_is_advised_for_a_smooth_field_of_several_inputs(amplitude):
    bounds = ((0.0, 1.0), (0.0, 10.0))
    field = bp.GaussianProcess(bp.RationalQuadratic(amplitude=amplitude)).completed(np.array([-1.0, 1.0]), bounds)
    draws = {"length": np.broadcast_to([0.6, 2.0], (2, 50, 2))}
    if amplitude is None:
        draws["amplitude"] = np.full((2, 50), 3.0)
    ((reason, advice),) = field.criticism(draws, bounds)
    assert "a length is 0.6" in reason
    kernels = "bp.SquaredExponential(length=0.42, amplitude=3), bp.SquaredExponential(length=1.4)"
    assert f"bp.KarhunenLoeve(({kernels}), terms=120)" in advice
    bp.fields.KarhunenLoeve((bp.SquaredExponential(length=0.42, amplitude=3), bp.SquaredExponential(length=1.4)), 120)


def test_it_is_saved_loaded_and_resumed(tmp_path):
    method = bp.HMC(num_warmup=60, num_draws=30)
    result = bp.infer(
        line(bp.GaussianProcess(bp.Matern52())), method, seed=0, chains=2, progress=False, out=tmp_path / "run"
    )
    again = bp.infer(
        line(bp.GaussianProcess(bp.Matern52())), method, seed=0, chains=2, progress=False, out=tmp_path / "run"
    )
    np.testing.assert_array_equal(result.z, again.z)
    loaded = bp.load(tmp_path / "run")
    assert loaded.problem.fields["u"] == result.problem.fields["u"]
    np.testing.assert_allclose(
        loaded.predict("u", {"x": [0.5]}).mean, result.predict("u", {"x": [0.5]}).mean, rtol=1e-5
    )


def jerk(u_xxx):
    return u_xxx


WRONG = {
    "rough": (lambda: bp.GaussianProcess(bp.Exponential(length=1.0)), "too rough for this"),
    "kernel": (lambda: bp.GaussianProcess(0.3), "kernel must be an object such as"),
    "length": (lambda: bp.GaussianProcess(bp.Matern52(length=-1)), "length must be a positive number or a positive prior"),
    "prior": (lambda: bp.GaussianProcess(bp.Matern52(length=dist.Normal(0, 1))), "positive"),
    "unit": (lambda: bp.GaussianProcess(positive=True, unit=-1.0), r"unit must be a positive number, got -1.0"),
    "unit of any field": (lambda: bp.GaussianProcess(unit=1.0), "unit is of a field with positive=True"),
    "amplitudes": (lambda: bp.Matern52(amplitude=dist.HalfNormal(np.ones(2))), r"the prior of amplitude must be a scalar, got \(2,\)"),
    "both": (lambda: bp.Matern52(length=1.0, sd=1.0, amplitude=1.0), "sd and amplitude are the same"),
    "terms": (lambda: bp.GaussianProcess(terms=401), "terms must be a whole number from 1 to 400"),
    "factor": (lambda: bp.GaussianProcess(factor=0.5), "factor must be a number of at least 1"),
    "periodic": (lambda: bp.GaussianProcess(periodic="x"), "periodic needs inputs"),
    "input": (lambda: bp.GaussianProcess(inputs="t", periodic="x"), "'x', which is not one of its inputs"),
    "lengths": (lambda: line(bp.GaussianProcess(bp.Matern52(length=(1.0, 2.0)))), "lengths of shape"),
    "mean": (lambda: bp.GaussianProcess(mean="zero"), "mean must be a number or a function"),
    "expansion": (lambda: bp.KarhunenLoeve(bp.Matern52(), terms=5), "a number is needed for the length here"),
    "inputs": (
        lambda: bp.Problem(domain=dict.fromkeys("abcd", (0.0, 1.0)), fields={"u": bp.GaussianProcess()}),
        "4 inputs, at most 3",
    ),
    "derivative": (
        lambda: bp.Problem(
            domain={"x": (0.0, 1.0)},
            fields={"u": bp.GaussianProcess(bp.Matern52())},
            sensors={"j": bp.Sensors(jerk, {"x": [0.5]}, [0.0], noise=0.1)},
        ),
        "field 'u': a Gaussian process with the kernel Matern52 has no derivative of order 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(make, words):
    with pytest.raises(bp.InputError, match=words):
        make()


FILE = """
[domain]
x = [0.0, 1.0]
[fields.u]
surrogate = "gp"
{kernel}
[[sensors]]
quantity = "u"
data = "u.csv"
noise = 0.1
[inference]
num_warmup = 60
num_draws = 20
"""


@pytest.mark.parametrize(
    "kernel",
    [
        "",
        'kernel = "matern52"',
        'kernel = { kind = "matern32", length = 0.3, amplitude = { prior = "half_normal", sd = 2.0 } }\nterms = 30',
        'kernel = { kind = "squared_exponential", length = { prior = "lognormal", log_mean = -1, log_sd = 0.3 } }\nmean = "x"',
    ],
)
def test_it_stands_in_a_problem_file(kernel, tmp_path):
    from bpinn.problem_file import read_problem

    (tmp_path / "u.csv").write_text("x,value\n" + "\n".join(f"{x},{x * x}" for x in np.linspace(0, 1, 9)) + "\n")
    (tmp_path / "problem.toml").write_text(FILE.format(kernel=kernel))
    found = read_problem(tmp_path / "problem.toml")
    assert isinstance(found.problem.fields["u"], bp.GaussianProcess)
    assert "amplitude_u" in found.problem.scalars


def test_a_wrong_kernel_in_a_file_is_located(tmp_path):
    from bpinn.problem_file import read_problem

    (tmp_path / "u.csv").write_text("x,value\n0,0\n1,1\n")
    (tmp_path / "problem.toml").write_text(FILE.format(kernel='kernel = { kind = "matern52", lenght = 0.3 }'))
    with pytest.raises(bp.InputError, match=r"fields\.u\.kernel.*lenght"):
        read_problem(tmp_path / "problem.toml")


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e6])
def test_priors_of_positive_fields_follow_the_units_of_their_readings(unit):
    """A draw of the prior is as large as the readings, whatever they are measured in."""
    t = np.linspace(0.0, 5.0, 15)
    readings = bp.Sensors("q", {"t": t}, unit * np.exp(-0.4 * t), noise=0.02 * unit)
    problem = bp.Problem({"t": (0.0, 5.0)}, {"q": bp.GaussianProcess(positive=True)}, {"q": readings})
    posterior = bp.Posterior(problem)
    draws = posterior.evaluate(posterior.sample_prior(jax.random.key(0), 400), "q", {"t": [2.5]})
    assert 0.1 * unit < np.median(draws) < unit


def test_a_positive_field_is_the_same_in_any_units(x64):
    """The same draws of the prior, up to the rounding of what is chosen from the readings."""
    t = np.linspace(0.0, 5.0, 15)
    curves = []
    for unit in (1e-6, 1.0, 3e6):
        readings = bp.Sensors("q", {"t": t}, unit * np.exp(-0.4 * t), noise=0.02 * unit)
        problem = bp.Problem({"t": (0.0, 5.0)}, {"q": bp.GaussianProcess(positive=True)}, {"q": readings})
        posterior = bp.Posterior(problem)
        curves.append(posterior.evaluate(posterior.sample_prior(jax.random.key(0), 20), "q", {"t": t}) / unit)
    np.testing.assert_allclose(curves[0], curves[1], rtol=0.01, atol=5e-3)
    np.testing.assert_allclose(curves[2], curves[1], rtol=0.01, atol=5e-3)


def test_the_link_of_a_positive_field_bends_at_its_unit(x64):
    """Values and derivatives are those of ``unit * softplus(process / unit)``."""
    t, unit = np.linspace(0.1, 0.9, 4), 0.02
    field = bp.GaussianProcess(bp.SquaredExponential(length=0.4, amplitude=0.05), mean=0.01, terms=8, factor=1.5)
    linked = replace(field, positive=True, unit=unit)
    posteriors = [bp.Posterior(bp.Problem({"t": (0.0, 1.0)}, {"q": f})) for f in (field, linked)]
    z = posteriors[0].sample_prior(jax.random.key(1), 1)

    def streams(posterior):
        return [posterior.evaluate(z, name, {"t": t})[0] for name in ("q", "q_t", "q_tt", "q_ttt")]

    taylor = lambda v, h: v[0] + v[1] * h + v[2] * h**2 / 2 + v[3] * h**3 / 6
    for raw, found in zip(np.transpose(streams(posteriors[0])), np.transpose(streams(posteriors[1])), strict=True):
        value = lambda h, raw=raw: unit * jax.nn.softplus(taylor(raw, h) / unit)
        for order in range(4):
            np.testing.assert_allclose(found[order], value(0.0), rtol=1e-9)
            value = jax.grad(value)
