"""Draws with the coefficients integrated out: against closed forms and quadrature, and where it is chosen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.integrate

import bpinn as bp
from bpinn import convergence
from bpinn.choosing import default_method
from bpinn.methods.base import Pause
from bpinn.methods.collapsed import LOST_BY, CollapsedPolicy
from bpinn.methods.marginal import drawn, found_mode
from bpinn.methods.pins import WITHIN, curvature, num_pins
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
    around = found_mode(model, posterior.data, jax.random.key(0)).around
    nothing = jnp.zeros(first)
    marginal = jax.jit(jax.vmap(lambda s: drawn(model, posterior.data, around, s, nothing).marginal))
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
    mode = jax.jit(partial(found_mode, model))(data, jax.random.key(0))
    given = jax.jit(lambda s, v: drawn(model, data, mode.around, s, v))
    residuals = jax.random.normal(jax.random.key(1), (4, model.parameters.num_weights))
    found = [given(mode.point + 0.3, v) for v in residuals]
    marginal = np.array([float(f.marginal) for f in found])
    np.testing.assert_allclose(marginal, marginal[0], atol=1e-7)
    assert np.std([float(f.log_density) for f in found]) > 0.5
    np.testing.assert_allclose([posterior.log_density(f.z) for f in found], [f.log_density for f in found], rtol=1e-9)


def test_the_mode_is_where_the_density_is_flat(x64):
    posterior = bp.Posterior(decaying())
    model, data = posterior.model.compiled(native=False), posterior.data
    mode = jax.jit(partial(found_mode, model))(data, jax.random.key(1))
    nothing = jnp.zeros(model.parameters.num_weights)
    marginal = jax.jit(lambda s: drawn(model, data, mode.around, s, nothing).marginal)
    assert np.max(np.abs(mode.root.T @ jax.grad(marginal)(mode.point))) < 1e-3
    curvature = -jax.hessian(marginal)(mode.point)
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
        (lambda: decaying(bp.KarhunenLoeve(bp.Exponential(length=0.3), terms=501), noise=0.1), "501 coefficients"),
    ],
)
def test_where_it_cannot_be_used_it_says_why_and_hmc_is_the_default(problem, obstacle):

    stated = problem()
    with pytest.raises(bp.InputError, match=rf"Collapsed: .*{obstacle}.*; use bp\.HMC\(\)"):
        bp.infer(stated, bp.Collapsed(), seed=0)
    assert isinstance(default_method(stated), bp.HMC)


def test_many_unknowns_are_left_to_hmc():

    amplitudes = dist.LogNormal(0.0, 1.0).expand([9]).to_event(1)
    stated = decaying(EXPANSION, law=lambda u_t, k, t: u_t - k @ jnp.stack([t**i for i in range(9)]), k=amplitudes)
    assert isinstance(default_method(stated), bp.HMC)
    bp.Collapsed().check(stated)  # but it can be asked for


def on_a_grid(problem, widths, quantity):
    """Means and sds of a quantity by quadrature over all parameters, around the mean of a run; and that run's draws."""
    result = bp.infer(problem, bp.Collapsed(num_draws=1500), seed=0, progress=False)
    posterior, z = bp.Posterior(problem), result.z.reshape(-1, result.z.shape[-1])
    centre, spread = z.mean(0), z.std(0)
    axes = [c + s * np.linspace(-w, w, 61) for c, s, w in zip(centre, spread, widths, strict=True)]
    at = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    logs = np.concatenate([jax.vmap(posterior.log_density)(part) for part in np.array_split(jnp.asarray(at), 20)])
    weights = np.exp(logs - logs.max())
    for i, axis in enumerate(axes):  # nothing is beyond the grid
        ends = (at[:, i] == axis[0]) | (at[:, i] == axis[-1])
        assert weights[ends].sum() < 1e-4 * weights.sum()
    exact = quantity(at)
    mean = weights @ exact / weights.sum()
    sd = np.sqrt(weights @ (exact - mean) ** 2 / weights.sum())
    return mean, sd, quantity(z).reshape(*result.z.shape[:2], -1), result


def agree(mean, sd, draws):
    scaled = (draws - mean) / sd
    ess = convergence.ess_of(scaled)
    assert np.all(ess > 300)
    assert np.all(np.abs(scaled.mean((0, 1))) < 4 / np.sqrt(ess))
    error = np.sqrt(convergence.ess_of(scaled**2)) / (scaled**2).std((0, 1))
    assert np.all(np.abs((scaled**2).mean((0, 1)) - 1) * error < 4)


@pytest.mark.parametrize("neutral", [False, True])
def test_with_a_curved_equation_the_posterior_is_that_of_quadrature(neutral, x64):
    """Few readings and a small tolerance, so that solutions are curved by many tolerances within the posterior."""
    field = bp.KarhunenLoeve(bp.SquaredExponential(length=2.0, sd=1.5), terms=2)
    stated = decaying(field)
    problem = bp.Problem(
        stated.domain,
        {"u": field},
        {
            "law": bp.Physics(lambda u, u_t, k: u_t + k * u**2, points=6, tolerance=0.1, neutral=neutral),
            "u": bp.Sensors("u", {"t": T[::4]}, 1 / (1 + T[::4]), noise=0.3),
        },
        stated.unknowns,
    )
    assert num_pins(bp.Posterior(problem).model) == 1
    mean, sd, draws, result = on_a_grid(problem, (5.5, 5.5, 6.5), lambda z: np.stack([z[:, 0], z[:, 1], z[:, 2]], -1))
    agree(mean, sd, draws)
    assert result.diagnose().verdict != "bad"


def test_with_counts_of_a_positive_field_the_posterior_is_that_of_quadrature(x64):
    """Neither the field nor its likelihood is linear or normal, and nothing but its coefficients is inferred."""
    field = bp.KarhunenLoeve(bp.SquaredExponential(length=1.5, sd=2.0), terms=3, positive=True)
    counts = bp.Sensors("u", {"t": [0.2, 1.5, 2.8]}, [1.0, 4.0, 0.0], likelihood="poisson")
    problem = bp.Problem({"t": (0.0, 3.0)}, {"u": field}, {"u": counts})
    mean, sd, draws, result = on_a_grid(problem, (5.5, 5.5, 5.5), lambda z: z)
    agree(mean, sd, draws)
    assert np.mean(result.stats["accepted"]) < 1.0


def oscillation(u, u_t, u_tt, mu):
    return u_tt - mu * (1 - u**2) * u_t + u


def oscillating(tolerance=0.05, field=None):
    times = np.linspace(0.0, 8.0, 14)
    exact = scipy.integrate.solve_ivp(
        lambda t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], (0, 8), [1.0, 0.0], t_eval=times, rtol=1e-8
    )
    values = exact.y[0] + 0.1 * np.random.default_rng(1).standard_normal(14)
    return bp.Problem(
        {"t": (0.0, 8.0)},
        {"u": field or bp.GaussianProcess()},
        {
            "law": bp.Physics(oscillation, points=60, tolerance=tolerance),
            "u": bp.Sensors("u", {"t": times}, values, noise=0.1),
        },
        {"mu": dist.LogNormal(0.0, 0.7)},
    )


def test_pins_leave_little_curvature():
    """An equation of second order has two initial values; along them its solutions are curved by many tolerances."""
    posterior = bp.Posterior(oscillating(tolerance=0.01), native=True)
    model, data = posterior.model, posterior.data
    mode = jax.jit(partial(found_mode, model))(data, jax.random.key(0))
    assert num_pins(model) == 2
    assert len(mode.point) == model.dim - model.parameters.num_weights + 2
    scalars = mode.point[:-2]
    free = jax.jit(partial(curvature, model))(data, mode.around.reference, scalars, jax.random.key(1))
    assert float(jnp.trace(free.energy)) > 10.0
    assert float(mode.bent) < 0.01 * float(jnp.trace(free.energy))
    np.testing.assert_allclose(mode.root @ mode.inverse, np.eye(len(mode.point)), atol=1e-3)


def test_where_no_values_of_a_field_are_used_pins_hold_its_derivatives():
    """Only the velocity u_t is read and in the law: drag, with the closed form v / (1 + c v t)."""
    values = 5.0 / (1.0 + 0.4 * 5.0 * T) + 0.05 * np.random.default_rng(2).standard_normal(len(T))
    problem = bp.Problem(
        {"t": (0.0, 3.0)},
        {"u": bp.GaussianProcess()},
        {
            "law": bp.Physics(lambda u_t, u_tt, c: u_tt + c * u_t**2),
            "speed": bp.Sensors("u_t", {"t": T}, values, noise=0.05),
        },
        {"c": dist.LogNormal(-1.0, 0.7)},
    )
    assert num_pins(bp.Posterior(problem).model) == 2
    result = bp.infer(problem, bp.Collapsed(num_draws=200), seed=0, progress=False)
    assert np.all(np.isfinite(result.stats["log_density"]))
    assert abs(result.draws("c").mean() - 0.4) < 4 * result.draws("c").std()


def test_the_field_meets_its_pins(x64):
    """A field given pins two sds off its centre is there, to within a small share of its sd."""
    posterior = bp.Posterior(oscillating(field=bp.GaussianProcess(terms=40)))
    model, data = posterior.model.compiled(native=False), posterior.data
    mode = jax.jit(partial(found_mode, model))(data, jax.random.key(0))
    given = jax.jit(lambda held, v: drawn(model, data, mode.around, mode.point.at[-2:].set(held), v, rounds=6))

    def at_pins(held):
        found = given(jnp.asarray(held), jax.random.normal(jax.random.key(1), (model.parameters.num_weights,)))
        streams = model.streams(found.z, data)["u"]
        flat = jnp.concatenate([jnp.ravel(own[i]) for own in streams for i in sorted(own)])
        return flat[mode.around.places.columns] / mode.around.places.sd

    off = at_pins([2.0, -1.0]) - at_pins([0.0, 0.0])
    assert np.max(np.abs(off - np.array([2.0, -1.0]))) < 5 * WITHIN


def test_chains_find_both_solutions_of_an_equation_that_has_two():
    """Bratu's problem with boundary values only: at the middle its solutions are 0.329 and 2.78."""
    field = bp.KarhunenLoeve(bp.SquaredExponential(length=0.35, sd=2.0), terms=12)
    problem = bp.Problem(
        {"x": (0.0, 1.0)},
        {"u": field},
        {
            "law": bp.Physics(lambda u, u_xx: u_xx + 2.0 * jnp.exp(u), points=40, tolerance=0.1),
            "u": bp.Sensors("u", {"x": [0.0, 1.0]}, [0.0, 0.0], noise=0.05),
        },
    )
    exact = []
    for guess in (0.3, 3.0):
        mesh = np.linspace(0.0, 1.0, 101)
        start = np.stack([guess * np.sin(np.pi * mesh), guess * np.pi * np.cos(np.pi * mesh)])
        found = scipy.integrate.solve_bvp(
            lambda x, y: np.stack([y[1], -2.0 * np.exp(y[0])]), lambda a, b: np.array([a[0], b[0]]), mesh, start
        )
        exact.append(found.sol(0.5)[0])
    result = bp.infer(problem, bp.Collapsed(num_draws=200, chains=12), seed=0, progress=False)
    middle = result.predict("u", {"x": [0.5]}).draws[..., 0].mean(1)
    off = np.abs(middle[:, None] - np.array(exact))
    assert np.all(off.min(1) < 0.15)
    assert set(off.argmin(1)) == {0, 1}
    assert result.diagnose().verdict == "bad"


def test_it_is_the_default_of_ordinary_equations_but_not_of_products_of_fields():
    """Products of two unknown fields are curved in many directions, so that their coefficients are not nearly normal."""

    def product(u, u_t, k):
        return u_t + k * u

    times = np.linspace(0.0, 3.0, 30)
    fields = {"u": bp.GaussianProcess(terms=30), "k": bp.GaussianProcess(terms=30)}
    sensors = {
        "law": bp.Physics(product, points=40, tolerance=0.01),
        "u": bp.Sensors("u", {"t": times}, np.exp(-times), noise=0.2),
        "k": bp.Sensors("k", {"t": [0.0]}, [1.0], noise=1.0),
    }
    assert isinstance(default_method(bp.Problem({"t": (0.0, 3.0)}, fields, sensors)), bp.HMC)
    assert isinstance(default_method(oscillating()), bp.Collapsed)


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
