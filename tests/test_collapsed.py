"""Draws with the coefficients integrated out: against closed forms and quadrature, and where it is chosen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import convergence
from bpinn.methods.base import Pause
from bpinn.methods.collapsed import LOST_BY, CollapsedPolicy, _drawn, _mode
from bpinn.methods.proposals import Views
from bpinn.run_output import SamplerStats

T = np.linspace(0.0, 3.0, 9)
EXPANSION = bp.KarhunenLoeve(bp.SquaredExponential(length=1.0, sd=1.5), terms=8)


def decay(u, u_t, k):
    return u_t + k * u


def decaying(field=EXPANSION, noise=None, neutral=False, law=decay, **unknowns):
    rng = np.random.default_rng(5)
    values = np.exp(-0.6 * T) + 0.05 * rng.standard_normal(len(T))
    return bp.Problem(
        {"t": (0.0, 3.0)},
        {"u": field},
        {
            "law": bp.Physics(law, points=15, tolerance=0.02, neutral=neutral),
            "u": bp.Sensors("u", {"t": T}, values, noise=noise or dist.LogNormal(-3.0, 0.7)),
        },
        unknowns or {"k": dist.LogNormal(-0.5, 0.8)},
    )


def rows_and_targets(problem, k):
    """The linear system of a problem, one pair for each sensors, by evaluating the posterior's predictions."""
    posterior = bp.Posterior(problem)
    count = posterior.model.parameters.num_weights
    z = np.zeros((count + 1, posterior.dim))
    z[1:, :count] = np.eye(count)
    z[:, posterior.model.parameters.slices["k"]] = np.log(k)
    found = {}
    for readings in problem.readings:
        sensors = problem.sensors[readings.name]
        predicted = np.asarray(posterior.evaluate(jnp.asarray(z), sensors.quantity, sensors.at), float)
        found[readings.name] = (predicted[1:] - predicted[0]).T, readings.values - predicted[0]
    return found


def by_quadrature(problem, at):
    """Means and sds of k, the noise and u at a point, from the evidence on a grid."""
    logs_k, logs_noise = np.linspace(-1.6, 0.4, 50), np.linspace(-4.2, -1.8, 40)
    basis = bp.Posterior(problem)
    count = basis.model.parameters.num_weights
    unit = np.zeros((count + 1, basis.dim))
    unit[1:, :count] = np.eye(count)
    there = np.asarray(basis.evaluate(jnp.asarray(unit), "u", {"t": [at]}))[:, 0]
    offset, columns = there[0], there[1:] - there[0]
    prior_k, prior_noise = problem.unknowns["k"], problem.noise_priors["noise_u"]
    prior_sd = np.asarray(problem.fields["u"].prior_sd(((0.0, 3.0),)))
    tolerance = problem.sensors["law"].noise
    read = rows_and_targets(problem, 1.0)["u"]
    at_one, at_two = (rows_and_targets(problem, k)["law"] for k in (1.0, 2.0))  # the law is linear in k
    log_weights, moments = [], []
    for log_k in logs_k:
        for log_noise in logs_noise:
            k, noise = np.exp(log_k), np.exp(log_noise)
            law = [(one + (k - 1) * (two - one)) / tolerance for one, two in zip(at_one, at_two, strict=True)]
            rows, targets = (np.concatenate([u / noise, f]) for u, f in zip(read, law, strict=True))
            precision = rows.T @ rows + np.diag(prior_sd**-2.0)
            factor = np.linalg.cholesky(precision)
            half = np.linalg.solve(factor, rows.T @ targets)
            evidence = 0.5 * half @ half - 0.5 * targets @ targets - np.sum(np.log(np.diag(factor)))
            evidence -= len(T) * log_noise
            evidence += float(prior_k.log_prob(k)) + log_k + float(prior_noise.log_prob(noise)) + log_noise
            mean = offset + columns @ np.linalg.solve(factor.T, half)
            sd = np.linalg.norm(np.linalg.solve(factor, columns))
            log_weights.append(evidence)
            moments.append((k, noise, mean, k**2, noise**2, mean**2 + sd**2))
    weights = np.exp(np.array(log_weights) - np.max(log_weights))
    first = weights @ np.array(moments) / weights.sum()
    return first[:3], np.sqrt(first[3:] - first[:3] ** 2)


def test_the_posterior_is_that_of_quadrature(x64):
    problem = decaying()
    result = bp.infer(problem, bp.Collapsed(num_draws=1500), seed=0, progress=False)
    assert result.diagnose().verdict == "good"
    mean, sd = by_quadrature(problem, 1.3)
    draws = np.stack(
        [result.draws("k"), result.draws("noise_u"), result.predict("u", {"t": [1.3]}).draws[..., 0]], axis=-1
    )
    scaled = (draws - mean) / sd
    ess = convergence.ess_of(scaled)
    assert np.all(np.abs(scaled.mean((0, 1))) < 4 / np.sqrt(ess))
    squares = scaled**2
    error = np.sqrt(convergence.ess_of(squares)) / squares.std((0, 1))
    assert np.all(np.abs(squares.mean((0, 1)) - 1) * error < 4)


def test_coefficients_of_which_only_the_sum_is_known_mix_well(x64):
    """The ridge a + b = 0.6 is curved in their logarithms; where it ends is checked, too, against a grid."""

    def law(u, u_t, a, b):
        return u_t + (a + b) * u

    problem = decaying(noise=0.01, law=law, a=dist.LogNormal(-1.5, 1.0), b=dist.Uniform(0.0, 1.0))
    result = bp.infer(problem, bp.Collapsed(num_draws=1500), seed=0, progress=False)
    posterior = bp.Posterior(problem)
    model, first = posterior.model.compiled(native=False), posterior.model.parameters.num_weights
    reference = _mode(model, posterior.data, jax.random.key(0)).reference
    marginal = jax.jit(jax.vmap(lambda s: _drawn(model, posterior.data, reference, s, jnp.ones(()), None)[2]))
    logs, b = np.linspace(-7.0, 0.5, 300), np.linspace(0.002, 0.998, 250)
    at = np.stack(np.meshgrid(logs, np.log(b / (1 - b)), indexing="ij"), -1).reshape(-1, 2)
    log_weights = np.asarray(marginal(jnp.asarray(at))) - np.tile(np.log(b * (1 - b)), len(logs))  # b is spaced evenly
    weights = np.exp(log_weights - log_weights.max())
    grid = np.stack([np.exp(at[:, 0]), at[:, 0], np.tile(b, len(logs))], -1)
    mean = weights @ grid / weights.sum()
    sd = np.sqrt(weights @ (grid - mean) ** 2 / weights.sum())
    assert model.dim == first + 2
    draws = np.stack([result.draws("a"), np.log(result.draws("a")), result.draws("b")], axis=-1)
    ess = convergence.ess_of(draws)
    assert np.all(ess > 400)
    scaled = (draws - mean) / sd
    assert np.all(np.abs(scaled.mean((0, 1))) < 4 / np.sqrt(ess))
    error = np.sqrt(convergence.ess_of(scaled**2)) / (scaled**2).std((0, 1))
    assert np.all(np.abs((scaled**2).mean((0, 1)) - 1) * error < 4)


def test_unknowns_and_the_real_line_are_views_of_each_other(x64):
    """The derivatives of the views are those of automatic differentiation, also for vectors and bounds."""

    def law(u, u_t, k, m, s, c):
        return u_t + (jnp.sum(k) + m + s) * u + jnp.sum(c)

    vector, simplex = dist.LogNormal(-3.0, 1.0).expand([2]).to_event(1), dist.Dirichlet(jnp.ones(3))
    stated = decaying(law=law, k=vector, m=dist.Uniform(-2.0, 5.0), s=dist.Normal(0.0, 1.0), c=simplex)
    model = bp.Posterior(stated).model
    views = Views(model)
    at = jnp.asarray(np.random.default_rng(0).normal(size=7))  # the simplex has two, and the noise is on the real line
    assert views.of(at).shape == (2, 7)
    for number in (0, 1):
        np.testing.assert_allclose(views.real(jnp.asarray(number), views.of(at)[number]), at, atol=1e-12)
        slopes = jax.jacobian(lambda s, number=number: views.of(s)[number])(at)
        np.testing.assert_allclose(slopes, np.diag(views.slopes(at)[number]), rtol=1e-12)
        np.testing.assert_allclose(np.linalg.slogdet(slopes)[1], views.log_slopes(at)[number], atol=1e-12)
    assert (np.asarray(views.of(at)[1]) != np.asarray(at)).tolist() == [True, True, True, False, False, False, False]
    assert not np.all(np.isfinite(views.real(jnp.asarray(1), views.of(at)[1].at[2].set(-1e3))))  # beyond a bound


@pytest.mark.parametrize("neutral", [False, True])
def test_the_density_of_scalars_does_not_depend_on_the_coefficients(neutral, x64):
    """What is integrated out leaves no trace, with neutral equations and inferred scales too."""
    posterior = bp.Posterior(decaying(bp.GaussianProcess(terms=12), neutral=neutral))
    model, data = posterior.model.compiled(native=False), posterior.data
    mode = jax.jit(partial(_mode, model))(data, jax.random.key(0))
    drawn = jax.jit(lambda s, key: _drawn(model, data, mode.reference, s, jnp.ones(()), key))
    scalars = mode.scalars + 0.3
    found = [drawn(scalars, jax.random.key(i)) for i in range(4)]
    marginal = np.array([float(m) for _, _, m in found])
    np.testing.assert_allclose(marginal, marginal[0], atol=1e-7)
    assert np.std([float(density) for _, density, _ in found]) > 0.5
    np.testing.assert_allclose([posterior.log_density(z) for z, *_ in found], [d for _, d, _ in found], rtol=1e-9)


def test_the_mode_is_where_the_density_is_flat(x64):
    posterior = bp.Posterior(decaying())
    model, data = posterior.model.compiled(native=False), posterior.data
    mode = jax.jit(partial(_mode, model))(data, jax.random.key(1))
    marginal = jax.jit(lambda s: _drawn(model, data, mode.reference, s, jnp.ones(()), None)[2])
    assert np.max(np.abs(mode.root.T @ jax.grad(marginal)(mode.scalars))) < 1e-3
    curvature = -jax.hessian(marginal)(mode.scalars)
    np.testing.assert_allclose(mode.root.T @ curvature @ mode.root, np.eye(2), atol=0.1)
    np.testing.assert_allclose(mode.root @ mode.inverse, np.eye(2), atol=1e-8)


def test_without_scalars_draws_are_independent_and_exact():
    problem = decaying(noise=0.05, law=lambda u, u_t: u_t + 0.6 * u, unused=dist.Normal(0, 1))
    problem = bp.Problem(problem.domain, problem.fields, problem.sensors)
    result = bp.infer(problem, bp.Collapsed(num_draws=500, num_warmup=100), seed=1, progress=False)
    exact = bp.reference.exact(problem).predict("u", {"t": T})
    draws = result.predict("u", {"t": T}).draws
    count = draws.shape[0] * draws.shape[1]
    scaled = (draws - exact.mean) / exact.sd
    assert np.all(result.stats["accepted"] == 1.0)
    assert np.all(np.abs(scaled.mean((0, 1))) < 4 / np.sqrt(count))
    assert np.all(np.abs(scaled.var((0, 1)) - 1) < 4 * np.sqrt(2 / count))
    assert np.abs(np.corrcoef(draws[0, 1:, 3], draws[0, :-1, 3])[0, 1]) < 4 / np.sqrt(500)


@pytest.mark.parametrize(
    ("problem", "obstacle"),
    [
        (lambda: decaying(bp.MLP(hidden=(5,))), r"field 'u' \(MLP\) is not linear in its parameters"),
        (lambda: decaying(bp.GaussianProcess(positive=True)), "field 'u' is positive"),
        (lambda: decaying(law=lambda u, u_t, k: u_t + k * u**2), "the equation of sensors 'law' is not linear"),
        (lambda: robust(), "the noise of sensors 'u' is not normal"),
        (lambda: decaying(bp.KarhunenLoeve(bp.Exponential(length=0.3), terms=501), noise=0.1), "501 coefficients"),
    ],
)
def test_where_it_cannot_be_used_it_says_why_and_hmc_is_the_default(problem, obstacle):
    from bpinn.methods.collapsed import default_method

    stated = problem()
    with pytest.raises(bp.InputError, match=rf"Collapsed: .*{obstacle}.*; use bp\.HMC\(\)"):
        bp.infer(stated, bp.Collapsed(), seed=0)
    assert isinstance(default_method(stated), bp.HMC)


def test_many_unknowns_are_left_to_hmc():
    from bpinn.methods.collapsed import default_method

    amplitudes = dist.LogNormal(0.0, 1.0).expand([7]).to_event(1)
    stated = decaying(EXPANSION, law=lambda u_t, k, t: u_t - k @ jnp.stack([t**i for i in range(7)]), k=amplitudes)
    assert isinstance(default_method(stated), bp.HMC)
    bp.Collapsed().check(stated)  # but it can be asked for


def robust():
    stated = decaying()
    sensors = stated.sensors | {"u": bp.Sensors("u", {"t": T}, np.ones(9), noise=0.1, likelihood="student_t")}
    return bp.Problem(stated.domain, stated.fields, sensors, stated.unknowns)


def test_it_is_the_default_of_linear_problems():
    stated = decaying()
    stated = bp.Problem(
        stated.domain, {"u": bp.GaussianProcess()}, stated.sensors | {"law": bp.Physics(decay)}, stated.unknowns
    )
    result = bp.infer(stated, seed=0, progress=False)
    assert isinstance(result.method, bp.Collapsed)
    assert result.diagnose().verdict == "good"
    assert abs(result.draws("k").mean() - 0.6) < 3 * result.draws("k").std()


@pytest.mark.parametrize(
    ("inference", "method"),
    [
        ("", "Collapsed"),
        ("seed = 3", "Collapsed"),
        ("num_draws = 100", "Collapsed"),
        ("num_leapfrog = 8", "HMC"),
        ('method = "hmc"', "HMC"),
    ],
)
def test_problem_files_without_a_method_take_it(tmp_path, inference, method):
    from bpinn.problem_file import read_problem

    (tmp_path / "u.csv").write_text("t,value\n0,1\n1,0.5\n2,0.3\n")
    (tmp_path / "problem.toml").write_text(
        '[domain]\nt = [0, 2]\n[fields.u]\nsurrogate = "gp"\n[unknowns.k]\nprior = "lognormal"\n'
        'log_mean = 0\nlog_sd = 1\n[[sensors]]\nname = "u"\nquantity = "u"\ndata = "u.csv"\nnoise = 0.1\n'
        f'[[physics]]\nequation = "u_t + k * u"\n[inference]\n{inference}\n'
    )
    assert type(read_problem(tmp_path / "problem.toml").method).__name__ == method


def test_lost_chains_restart_and_runs_end_when_draws_suffice():
    policy = CollapsedPolicy(num_warmup=400, num_steps=4400, until_good=True)
    assert [policy.next_pause(done) for done in (0, 40, 400, 700, 4350)] == [40, 400, 700, 800, 4400]
    marginal = np.array([0.0, -LOST_BY + 1, -LOST_BY - 1, np.nan])[:, None]

    def decided(done, functionals):
        stats = SamplerStats(log_density=marginal, sampler_log_density=marginal)
        return policy.review(Pause(done, functionals, stats, np.zeros(3, bool), 10))

    draws = np.random.default_rng(0).standard_normal((4, 400, 3))
    assert decided(40, draws).lost == (2, 3)
    assert decided(800, draws).enough
    apart = draws + np.arange(4)[:, None, None]
    assert not decided(800, apart).enough
    hopeless = SamplerStats(log_density=marginal, misfit=np.full((4, 400), 100.0))
    assert policy.review(Pause(800, apart, hopeless, np.zeros(3, bool), 10)).enough
