"""Equations that are neutral about their unknowns: against closed forms, and against the prior."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bpinn as bp
from bpinn.neutral import is_linear
from bpinn.problem_file import read_problem

RATE = dist.LogNormal(0.0, 1.0)
POINTS = np.linspace(0.0, 4.0, 20)
TIMES, VALUES = np.array([0.0, 1.0, 3.0]), np.array([1.0, 0.45, 0.3])


def decay(u, u_t, rate):
    return u_t + rate * u


def relax(u, u_t, rate, t):
    return u_t + rate * (u - 0.5 * t)


def logistic(u, u_t, rate):
    return u_t - rate * u * (1 - u)


def process(length=1.0, terms=16):
    return bp.GaussianProcess(bp.SquaredExponential(length=length, sd=1.0), terms=terms, factor=2.0, mean=0.2)


def problem(law, field=None, noise=0.1, **unknowns):
    return bp.Problem(
        domain={"t": (0.0, 4.0)},
        fields={"u": process() if field is None else field},
        unknowns=unknowns or {"rate": RATE},
        sensors={"law": law, "u": bp.Sensors("u", {"t": TIMES}, VALUES, noise=noise)},
    )


def as_sensors(equation, neutral=True):
    return bp.Sensors(equation, {"t": POINTS}, 0.0, noise=0.05, neutral=neutral)


def rows_of(of, z):
    """The affine map from coefficients to the readings of each group, in double precision, at the scalars in ``z``."""
    posterior = bp.Posterior(of)
    size = posterior.model.parameters.num_weights

    def predicted(a):
        return posterior.model.predicted(jnp.concatenate([a, z[size:]]), posterior.data)

    zero = jnp.zeros(size, z.dtype)
    return [(np.asarray(j), np.asarray(c)) for j, c in zip(jax.jacobian(predicted)(zero), predicted(zero), strict=True)]


def log_evidence(matrix, constant, tolerance=0.05):
    """Of an equation with these rows, without the misfit of the most probable coefficients."""
    whole = log_normal_density(
        np.zeros(len(constant)), constant, matrix @ matrix.T + tolerance**2 * np.eye(len(constant))
    )
    best = -np.linalg.solve(
        np.eye(matrix.shape[1]) + matrix.T @ matrix / tolerance**2, matrix.T @ constant / tolerance**2
    )
    return whole + 0.5 * np.sum(((matrix @ best + constant) / tolerance) ** 2)


def log_normal_density(values, mean, covariance):
    return stats.multivariate_normal(mean, covariance).logpdf(values)


@pytest.mark.parametrize("equation", [decay, relax])
def test_the_evidence_of_an_equation_has_a_closed_form(equation, x64):
    of = problem(as_sensors(equation))
    posterior = bp.Posterior(of)
    for z in posterior.sample_prior(jax.random.key(0), 3):
        matrix, constant = rows_of(of, z)[0]
        expected = log_evidence(matrix, constant)
        assert float(posterior.model.log_evidence(z, posterior.data)) == pytest.approx(expected, rel=1e-7)
        whole = log_normal_density(np.zeros(20), constant, matrix @ matrix.T + 0.05**2 * np.eye(20))
        misfit = float(posterior.model.log_misfit(z, posterior.data))
        assert expected + misfit == pytest.approx(whole, rel=1e-7)
        plain = bp.Posterior(problem(as_sensors(equation, neutral=False)))
        assert float(posterior.log_likelihood(z)) == pytest.approx(float(plain.log_likelihood(z)) - expected, rel=1e-7)


@pytest.mark.parametrize(
    ("equation", "field"),
    [
        (logistic, process()),
        (decay, replace(process(), positive=True)),
        (logistic, bp.MLP(hidden=(6,))),
    ],
    ids=["nonlinear", "positive", "network"],
)
def test_what_is_not_linear_is_linearised_around_the_field(equation, field, x64):
    """In the linear parameters; the hidden weights of a network are given."""
    of = problem(bp.Physics(equation, points=20, tolerance=0.05, neutral=True), field)
    assert of.sensors["law"].neutral
    posterior = bp.Posterior(of)
    z = posterior.sample_prior(jax.random.key(2), 1)[0]
    at = posterior.model.linear

    def law(a):
        return posterior.model.predicted(z.at[at].set(a), posterior.data)[0]

    matrix = np.asarray(jax.jacobian(law)(z[at]))
    constant = np.asarray(law(z[at])) - matrix @ np.asarray(z[at])
    expected = log_evidence(matrix, constant)
    assert float(posterior.model.log_evidence(z, posterior.data)) == pytest.approx(expected, rel=1e-7)
    coordinates = posterior.coordinates()
    w = coordinates.to_white(z)
    plain = float(posterior.log_density(z)) + float(coordinates.to_plain(w)[1])
    assert float(coordinates.log_density(w)) == pytest.approx(plain, rel=1e-9)
    given = posterior.model.given_neutral(z, posterior.data)
    assert set(np.flatnonzero(np.asarray(given != z))) <= set(at)
    simulated, _ = bp.calibration.simulate(of, seed=0)
    assert not simulated.sensors["law"].neutral  # for want of a draw of the prior given the equation
    assert np.std(simulated.sensors["law"].values) > 0.01


@pytest.mark.slow
def test_logistic_growth_is_that_of_the_solved_equation():
    """With 12 readings; as readings of zero, the points make the rate two standard deviations too small."""
    rng = np.random.default_rng(0)
    t, noise = np.linspace(0.0, 10.0, 12), 0.35

    def solved(r, k, start):
        return k / (1 + (k / start - 1) * np.exp(-r * t))

    def law(u, u_t, r, K):
        return u_t - r * u * (1 - u / K)

    values = solved(0.9, 10.0, 0.5) + noise * rng.standard_normal(12)
    unknowns = {"r": dist.LogNormal(-0.5, 0.7), "K": dist.LogNormal(2.3, 0.5)}
    sensors = {"law": bp.Physics(law), "u": bp.Sensors("u", {"t": t}, values, noise=noise)}
    of = bp.Problem({"t": (0.0, 10.0)}, {"u": bp.GaussianProcess()}, sensors, unknowns)
    draws = {name: prior.sample(jax.random.key(i), (400_000,)) for i, (name, prior) in enumerate(unknowns.items())}
    r, k, start = (
        np.asarray(a, float)[:, None] for a in (draws["r"], draws["K"], np.abs(3 * rng.standard_normal(400_000)))
    )
    logs = -0.5 * np.sum(((solved(r, k, start) - values) / noise) ** 2, axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    result = bp.infer(of, bp.HMC(), seed=0, progress=False)
    for name, exact in (("r", r[:, 0]), ("K", k[:, 0])):
        mean = weights @ exact
        sd = np.sqrt(weights @ (exact - mean) ** 2)
        assert abs(result.draws(name).mean() - mean) < 0.5 * sd
        assert 0.75 < result.draws(name).std() / sd < 1.33


def test_two_fields_share_one_evidence(x64):
    """Equations of a system are taken together: their evidence is not the product of that of each."""

    def first(u, u_t, v, rate):
        return u_t + rate * u - v

    def second(u, v, v_t, back):
        return v_t - back * u + v

    laws = {"first": as_sensors(first), "second": as_sensors(second)}
    of = bp.Problem(
        domain={"t": (0.0, 4.0)},
        fields={"u": process(), "v": process(length=0.7, terms=12)},
        unknowns={"rate": RATE, "back": RATE},
        sensors=laws | {"u": bp.Sensors("u", {"t": TIMES}, VALUES, noise=0.1)},
    )
    posterior = bp.Posterior(of)
    z = posterior.sample_prior(jax.random.key(1), 1)[0]
    found = rows_of(of, z)
    matrix = np.concatenate([found[0][0], found[1][0]])
    constant = np.concatenate([found[0][1], found[1][1]])
    expected = log_evidence(matrix, constant)
    assert float(posterior.model.log_evidence(z, posterior.data)) == pytest.approx(expected, rel=1e-7)


def test_the_kernel_agrees_in_single_precision():
    of = problem(as_sensors(relax), bp.GaussianProcess(bp.Matern52(length=RATE, amplitude=RATE), mean=0.2))
    native, plain = bp.Posterior(of, native=True), bp.Posterior(of)
    with jax.enable_x64(True):
        double = bp.Posterior(of)
        zs = np.asarray(double.sample_prior(jax.random.key(0), 3))
        expected = [float(double.model.log_evidence(jnp.asarray(z), double.data)) for z in zs]
    for posterior in (native, plain):
        found = [float(posterior.model.log_evidence(jnp.asarray(z, jnp.float32), posterior.data)) for z in zs]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=0.05)


def quadrature(of, neutral):
    """Mean and sd of the log rate, with the field integrated in closed form."""
    logs = np.linspace(-5.0, 4.0, 400)
    noise = np.r_[np.full(20, 0.05), np.full(3, 0.1)]
    densities = []
    with jax.enable_x64(True):
        size = bp.Posterior(of).model.parameters.num_weights
        rows = jax.vmap(lambda log: jnp.concatenate([jnp.zeros(size), log[None]]))(jnp.asarray(logs))
        for log, z in zip(logs, rows, strict=True):
            (law, constant), (u, own) = rows_of_fast(of, z)
            matrix, mean = np.concatenate([law, u]), np.concatenate([constant, own])
            whole = log_normal_density(np.r_[np.zeros(20), VALUES], mean, matrix @ matrix.T + np.diag(noise**2))
            part = log_evidence(law, constant)
            densities.append(stats.norm.logpdf(log) + whole - (part if neutral else 0.0))
    weights = np.exp(densities - np.max(densities))
    weights /= weights.sum()
    mean = weights @ logs
    return mean, np.sqrt(weights @ (logs - mean) ** 2)


def rows_of_fast(of, z):
    """`rows_of` for the decay: affine in the rate, so two evaluations are enough for all rates."""
    rate = float(np.exp(z[-1]))
    if not hasattr(of, "parts"):
        low, high = (rows_of(of, z.at[-1].set(value)) for value in (0.0, np.log(2.0)))
        of.parts = low, high
    low, high = of.parts
    mixed = [
        tuple(a + (rate - 1.0) * (b - a) for a, b in zip(*pair, strict=True)) for pair in zip(low, high, strict=True)
    ]
    return mixed


@pytest.mark.parametrize("neutral", [True, False])
def test_the_posterior_agrees_with_quadrature(neutral):
    of = problem(as_sensors(decay, neutral))
    result = bp.infer(of, bp.HMC(num_warmup=300, num_draws=1000), seed=0, progress=False)
    logs = np.log(result.draws("rate"))
    mean, sd = quadrature(of, neutral)
    ess = float(result.summary().loc["rate", "ess"])
    assert abs(logs.mean() - mean) < 4 * sd / np.sqrt(ess)
    assert abs(logs.std() / sd - 1) < 4 / np.sqrt(ess)


def test_a_neutral_equation_leaves_the_priors_of_its_unknowns():
    """One reading with a noise of a hundred says nothing about the rate; points that count as readings of zero do."""
    found = {}
    for neutral in (True, False):
        of = problem(as_sensors(decay, neutral), noise=100.0)
        result = bp.infer(of, bp.HMC(num_warmup=300, num_draws=1000), seed=1, progress=False)
        logs = np.log(result.draws("rate"))
        found[neutral] = logs.mean(), logs.std()
    assert abs(found[True][0]) < 0.2
    assert abs(found[True][1] - 1) < 0.15
    assert found[False][0] < -0.5


def test_draws_of_the_prior_given_the_equations_have_its_moments(x64):
    """A draw of the prior becomes one of the Gaussian given the equations, at the same unknowns."""
    of = problem(as_sensors(relax))
    posterior = bp.Posterior(of)
    model, size = posterior.model, posterior.model.parameters.num_weights
    z = posterior.sample_prior(jax.random.key(0), 4000).at[:, size:].set(0.3)
    draws = np.asarray(jax.vmap(lambda row: model.given_neutral(row, posterior.data))(z))
    matrix, constant = rows_of(of, z[0])[0]
    covariance = np.linalg.inv(np.eye(size) + matrix.T @ matrix / 0.05**2)
    mean = -covariance @ matrix.T @ constant / 0.05**2
    np.testing.assert_array_equal(draws[:, size:], z[:, size:])
    spread = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws[:, :size].mean(0) - mean) < 5 * spread / np.sqrt(4000))
    np.testing.assert_allclose(draws[:, :size].std(0), spread, rtol=0.06)


def test_simulated_readings_come_from_fields_that_meet_the_equation():
    of = problem(as_sensors(decay))
    simulated, z = bp.calibration.simulate(of, seed=5)
    np.testing.assert_array_equal(simulated.sensors["law"].values, np.zeros(20))
    residual = bp.Posterior(of).evaluate(z, decay, {"t": POINTS})
    assert np.sqrt(np.mean(residual**2)) < 3 * 0.05
    assert simulated.sensors["law"].neutral


def test_equations_are_neutral_where_fields_are_linear():
    def coupled(u, v_t, rate):
        return v_t - rate * u

    def squared(u, v, v_t, rate):
        return v_t - rate * u * v

    def is_neutral(fields, unknowns=None, **laws):
        unknowns = {"rate": RATE} if unknowns is None else unknowns
        readings = {name: bp.Sensors(name, {"t": TIMES}, VALUES, noise=0.1) for name in fields}
        found = bp.Problem({"t": (0.0, 4.0)}, fields, laws | readings, unknowns).sensors
        return [found[name].neutral for name in laws]

    gp, network = bp.GaussianProcess(), bp.MLP(hidden=(4,))
    assert is_neutral({"u": gp}, law=bp.Physics(decay)) == [True]
    assert is_neutral({"u": bp.KarhunenLoeve(bp.Exponential(length=1.0), terms=8)}, law=bp.Physics(decay)) == [True]
    assert is_neutral({"u": gp}, law=bp.Physics(decay, neutral=False)) == [False]
    assert is_neutral({"u": gp}, law=bp.Physics(logistic)) == [True]
    assert is_neutral({"u": network}, law=bp.Physics(decay)) == [False]
    assert is_neutral({"u": replace(gp, positive=True)}, law=bp.Physics(decay)) == [True]
    two = {"u": gp, "v": gp}
    assert is_neutral(two, law=bp.Physics(decay), other=bp.Physics(coupled)) == [True, True]
    assert is_neutral(two, law=bp.Physics(decay), other=bp.Physics(squared)) == [True, True]
    mixed = {"u": gp, "v": network}
    assert is_neutral(mixed, law=bp.Physics(decay), other=bp.Physics(squared)) == [False, False]  # they share u
    fixed = process()
    assert is_neutral({"u": fixed}, {}, law=bp.Physics(lambda u, u_t: u_t + u)) == [False]  # there is nothing to infer


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (bp.Physics(decay, neutral="yes"), "neutral must be True or False, got 'yes'"),
        (bp.Sensors(decay, {"t": POINTS}, 0.0, noise=dist.HalfNormal(1.0), neutral=True), "a tolerance that is stated"),
        (bp.Sensors(decay, {"t": POINTS}, 0.0, noise=0.1, likelihood="student_t", neutral=True), "a normal likelihood"),
    ],
)
def test_what_cannot_be_neutral_is_refused(law, words):
    with pytest.raises(bp.InputError, match=words):
        problem(law)


def test_a_field_without_linear_parameters_cannot_be_neutral():
    class Power(bp.MLP):
        def linear(self, bounds):
            return slice(0, 0)

    with pytest.raises(bp.InputError, match=r"the output layer of bp.MLP\(\), but 'u' is Power; remove neutral=True"):
        problem(bp.Physics(decay, neutral=True), Power(hidden=(4,)))


def test_it_is_saved_and_loaded_and_stands_in_files(prior_result, tmp_path):
    result = prior_result(problem(as_sensors(decay)))
    result.save(tmp_path / "result.npz")
    loaded = bp.load(tmp_path / "result.npz", functions={"decay": decay})
    assert loaded.problem.sensors["law"].neutral
    assert bp.Posterior(loaded.problem).model == bp.Posterior(result.problem).model
    assert bp.load(tmp_path / "result.npz").problem.sensors["law"].neutral  # without its equations
    text = """
[domain]
t = [0, 4]
[fields.u]
surrogate = "gp"
[unknowns]
rate = { prior = "lognormal", log_mean = 0.0, log_sd = 1.0 }
[equations]
law = "u_t + rate*u"
[[physics]]
equation = "law"
NEUTRAL
[[sensors]]
quantity = "u"
at = { t = [0.0, 1.0, 3.0] }
values = [1.0, 0.45, 0.3]
noise = 0.1
"""
    for line, expected in (("", True), ("neutral = false", False)):
        file = tmp_path / "problem.toml"
        file.write_text(text.replace("NEUTRAL", line))
        assert read_problem(file).problem.sensors["law"].neutral is expected


def test_sensitivity_takes_the_evidence_into_account(prior_result):
    """Halving the tolerance changes likelihood and evidence; weights are their difference."""
    from bpinn.reweighting import _evidence_ratio

    of = problem(as_sensors(decay))
    half = problem(replace(as_sensors(decay), noise=0.025))
    result = prior_result(of, draws=5)
    expected = []
    for z in result.z[0]:
        both = [bp.Posterior(p).model.log_evidence(jnp.asarray(z), bp.Posterior(p).data) for p in (half, of)]
        expected.append(float(both[0] - both[1]))
    np.testing.assert_allclose(_evidence_ratio(result, 0, 0.5), expected, rtol=1e-3, atol=1e-3)
    assert _evidence_ratio(result, 1, 0.5) == 0.0


def cooling(T, T_t, k):
    return T_t + k * (T - 290.0)


def radiating(T, T_t, k):
    return T_t + 5.67e-8 * k * (T**4 - 290.0**4)


def fed(T, T_t, k):
    return T_t + k * jnp.where(T > 20.0, T - 20.0, 0.0)


def repeated(T, T_t, k):
    return T_t - k * jax.lax.fori_loop(0, 3, lambda i, c: c * T, jnp.ones_like(T))


def stepped(T, T_t, k):
    return T_t - k * (10 * T).astype(int) / 10


def driven(T, T_t, k, w, t):
    return T_t + jnp.exp(k) * jnp.where(t > 0.5, 2.0 * T, T) / (1 + t) - w @ jnp.stack([t, t**2])


LINEARITY = [(cooling, True), (radiating, False), (fed, False), (repeated, False), (stepped, False), (driven, True)]


@pytest.mark.parametrize(("law", "linear"), LINEARITY, ids=[law.__name__ for law, _ in LINEARITY])
def test_an_equation_is_linear_by_its_operations_and_not_by_numbers(law, linear):
    """Small numbers hide that it is not: 5.67e-8 T**4 of a field of order one."""
    problem = bp.Problem(
        {"t": (0.0, 1.0)},
        {"T": bp.GaussianProcess(terms=10)},
        {"law": bp.Physics(law), "T": bp.Sensors("T", {"t": [0.0, 1.0]}, [310.0, 300.0], noise=0.1)},
        {"k": dist.LogNormal(0.0, 1.0), "w": dist.Normal(0.0, 1.0).expand([2]).to_event(1)},
    )
    readings = next(r for r in problem.readings if r.name == "law")
    assert is_linear(readings, problem.fields, problem.names, problem.unknowns) == linear
    assert bp.Posterior(problem).model.neutral_linear == linear
