"""Advice on measurements, against closed forms of linear problems and of separated groups of draws."""

import json
from functools import cache

import jax
import matplotlib as mpl
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bpinn as bp
from bpinn.run_output import SamplerStats

mpl.use("agg")
X = np.array([0.1, 0.9])
PLACES = np.linspace(0.0, 1.0, 21)
NOISE = 0.2


def law(u, x, a, b):
    return u + a * x + b * x**2


def linear(likelihood="normal", noise=NOISE, positive=False, values=(0.5, 0.7), **fields):
    """u = w x + c is linear, and so is the law in the two unknowns."""
    sensors = {
        "u": bp.Sensors("u", {"x": X}, values, noise, likelihood),
        "law": bp.Sensors(law, {"x": [0.2, 0.6, 1.0]}, [0.3, 0.1, 0.4], 0.1),
    }
    unknowns = {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 0.5)}
    surrogate = fields or {"u": bp.MLP(hidden=(), positive=positive)}
    return bp.Problem({"x": (0.0, 1.0)}, surrogate, sensors, unknowns)


def rows_of(problem, quantity, at):
    """The matrix of a linear quantity, from unit vectors."""
    posterior = bp.Posterior(problem)
    return posterior.evaluate(np.eye(posterior.dim), quantity, at).astype(float).T


@cache
def precision(problem):
    posterior = bp.Posterior(problem)
    total = np.diag(1.0 / np.asarray(posterior.model.parameters.prior_location_scale[1], float) ** 2)
    for r in problem.readings:
        rows = rows_of(problem, problem.sensors[r.name].quantity, r.at)
        total += rows.T @ rows / r.noise[0] ** 2
    return total


def covariance(problem, more=()):
    """That of the posterior in closed form, with more rows of readings, each with its noise."""
    return np.linalg.inv(precision(problem) + sum(rows.T @ rows / noise**2 for rows, noise in more))


def result_of(problem, z, method=None):
    """A result with these draws, (chains, draws, dim)."""
    posterior = bp.Posterior(problem)
    flat = z.reshape(-1, z.shape[-1]).astype(np.float32)
    functionals = np.asarray(jax.jit(jax.vmap(lambda one: posterior.model.functionals(one, posterior.data)))(flat))
    log_density = np.asarray(jax.jit(jax.vmap(posterior.log_density))(flat)).reshape(z.shape[:2])
    shaped = functionals.reshape(*z.shape[:2], -1)
    return bp.Result(
        problem, method or bp.HMC(), 0, flat.reshape(z.shape), shaped, SamplerStats(log_density=log_density)
    )


def drawn(cov, count=1000, seed=0, mean=0.0):
    """Draws whose sample covariance is exactly this one, in two chains."""
    unit = np.random.default_rng(seed).standard_normal((count, len(cov)))
    unit -= unit.mean(axis=0)
    unit = unit @ np.linalg.inv(np.linalg.cholesky(unit.T @ unit / (count - 1))).T
    return (mean + unit @ np.linalg.cholesky(cov).T).reshape(2, count // 2, -1)


@pytest.fixture(scope="module")
def problem():
    return linear()


@pytest.fixture(scope="module")
def result(problem):
    return result_of(problem, drawn(covariance(problem)))


def of_unknown(problem, name):
    unit = np.zeros(bp.Posterior(problem).dim)
    unit[bp.Posterior(problem).model.parameters.slices[name].start] = 1.0
    return unit[None]


TARGETS = {
    "a": ("a", lambda p: of_unknown(p, "a")),
    "u at a place": (("u", {"x": 0.4}), lambda p: rows_of(p, "u", {"x": [0.4]})),
    "slope": (("u_x", {"x": 0.4}), lambda p: rows_of(p, "u_x", {"x": [0.4]})),
    "u": ("u", lambda p: rows_of(p, "u", {"x": np.linspace(0, 1, 101)})),
}


@pytest.mark.parametrize("name", TARGETS)
def test_reductions_are_those_of_the_posterior_with_the_reading(name, problem, result):
    """Every candidate of both kinds, against the posterior that has one more reading."""
    for_, rows = TARGETS[name][0], TARGETS[name][1](problem)
    advice = bp.next_sensor(result, for_, {"x": PLACES})
    before = np.trace(rows @ covariance(problem) @ rows.T)
    exact = []
    for quantity, noise in (("u", NOISE), (law, 0.1)):
        for x in PLACES:
            after = covariance(problem, [(rows_of(problem, quantity, {"x": [x]}), noise)])
            exact.append(1 - np.trace(rows @ after @ rows.T) / before)
    np.testing.assert_allclose(advice.shares, exact, atol=2e-4)
    best = int(np.argmax(exact))
    assert advice.kind == ("u", "law")[best // 21]
    assert advice.at["x"] == pytest.approx(PLACES[best % 21])
    assert advice.reduction == pytest.approx(max(exact), abs=2e-4)
    assert advice.readings[0].sd == pytest.approx(advice.sd * np.sqrt(1 - max(exact)), rel=1e-3)


def test_several_readings_account_for_each_other(problem, result):
    advice = bp.next_sensor(result, ["a", "b"], {"x": PLACES}, count=3)
    rows = np.concatenate([of_unknown(problem, n) for n in ("a", "b")])
    cov = covariance(problem)
    units = 1 / np.sqrt(np.diag(rows @ cov @ rows.T))
    noises = {"u": NOISE, "law": 0.1}
    possible = {
        (kind, x): row[None]
        for kind, quantity in (("u", "u"), ("law", law))
        for x, row in zip(PLACES, rows_of(problem, quantity, {"x": PLACES}), strict=True)
    }

    def left(readings):
        more = [(possible[reading], noises[reading[0]]) for reading in readings]
        return np.trace(rows @ covariance(problem, more) @ rows.T * np.outer(units, units)) / 2

    chosen = []
    for reading in advice.readings:
        least = min(left([*chosen, option]) for option in possible)
        assert left([*chosen, (reading.kind, reading.at["x"])]) == pytest.approx(least, abs=1e-4)
        chosen.append((reading.kind, reading.at["x"]))
        assert 1 - reading.reduction == pytest.approx(left(chosen), abs=2e-4)
        assert reading.sd == pytest.approx(np.sqrt(left(chosen)), abs=2e-4)


def test_simulated_readings_give_the_same_as_the_closed_form(problem, result):
    places = {"x": np.linspace(0, 1, 6)}
    advice = bp.next_sensor(result, "a", places, count=2, exact=True)
    plain = bp.next_sensor(result, "a", places, count=2)
    assert advice.exact
    np.testing.assert_allclose(advice.shares, plain.shares, atol=0.05)
    for one, other in zip(advice.readings, plain.readings, strict=True):
        assert one.reduction == pytest.approx(other.reduction, abs=4 * one.error + 0.03)
    assert advice.choice.effective > 100


def test_an_inferred_noise_is_averaged(problem):
    noisy = linear(noise=dist.HalfNormal(0.3))
    size = bp.Posterior(noisy).dim
    z = drawn(0.01 * np.eye(size))
    advice = bp.next_sensor(result_of(noisy, z), "a", {"x": PLACES}, of="u")
    assert advice.readings[0].noise == pytest.approx(float(np.mean(result_of(noisy, z).draws("noise_u"))))
    with pytest.raises(bp.InputError, match="'noise_u' is an inferred noise"):
        bp.next_sensor(result_of(noisy, z), "noise_u")


LAWS = {
    "student_t": ("student_t", {}),
    "log-normal": (bp.likelihoods.LogNormal(), {"positive": True}),
    "poisson": (bp.likelihoods.Poisson(), {"positive": True, "noise": None, "values": (3.0, 4.0)}),
    "negative binomial": (bp.likelihoods.NegativeBinomial(), {"positive": True, "values": (3.0, 4.0)}),
    "censored": (bp.likelihoods.Censored(below=-5.0), {}),
}


@pytest.mark.parametrize("name", LAWS)
def test_every_likelihood_by_regression_and_by_simulation(name):
    likelihood, given = LAWS[name]
    other = linear(likelihood, **given)
    size = bp.Posterior(other).dim
    found = result_of(other, drawn(0.02 * np.eye(size) + 0.01, mean=0.5))
    for_ = ("u", {"x": 0.3})
    places = {"x": np.linspace(0, 1, 5)}
    advice, simulated = (bp.next_sensor(found, for_, places, of="u", exact=exact) for exact in (False, True))
    assert advice.reduction > 0.0
    np.testing.assert_allclose(advice.shares, simulated.shares, atol=0.06)


def test_a_reading_beyond_its_limit_says_nothing(problem):
    z = drawn(0.01 * np.eye(4))
    for below, helps in ((-10.0, True), (10.0, False)):
        censored = linear(bp.likelihoods.Censored(below=below), values=(11.0, 12.0))
        advice = bp.next_sensor(result_of(censored, z), ("u", {"x": 0.3}), of="u")
        assert (advice.reduction > 0.1) == helps
        assert ("hardly any candidate helps" in str(advice)) != helps


def test_positive_predictions_are_needed_for_counts():
    counts = linear(bp.likelihoods.Poisson(), noise=None, values=(3.0, 4.0))
    with pytest.raises(bp.InputError, match="Poisson readings need positive predictions"):
        bp.next_sensor(result_of(counts, drawn(np.eye(4))), "a", of="u")
    with pytest.raises(bp.InputError, match="Poisson readings of 'u' take no noise"):
        bp.next_sensor(result_of(counts, drawn(np.eye(4))), "a", noise={"u": 0.1})


WRONG = {
    "not a result": (lambda r: bp.next_sensor("r"), "expected a result of bp.infer, got str"),
    "unknown": (lambda r: bp.next_sensor(r, "c"), "'c' is not known"),
    "one of several": (lambda r: bp.next_sensor(r, ["a", "c"]), "for_ names 'c', which is neither"),
    "entry": (lambda r: bp.next_sensor(r, "a[1]"), "for_ names 'a.1.', which is neither"),
    "number": (lambda r: bp.next_sensor(r, 3), "for_ must be an unknown"),
    "count": (lambda r: bp.next_sensor(r, "a", count=0), "count must be a whole number of at least 1, got 0"),
    "noise": (lambda r: bp.next_sensor(r, "a", noise=-1), "noise must be a positive number, got -1"),
    "noise of": (lambda r: bp.next_sensor(r, "a", noise={"v": 1.0}), "noise of 'v', which is not considered"),
    "candidates": (lambda r: bp.next_sensor(r, "a", [0.5]), "candidates must be a dictionary"),
    "coordinate": (lambda r: bp.next_sensor(r, "a", {"y": [0.5]}), "'y' is not a coordinate"),
    "of": (lambda r: bp.next_sensor(r, "a", of=["w"]), "'w' is not known"),
    "seed": (lambda r: bp.next_sensor(r, "a", seed=-1), "seed must be a whole number"),
    "one solution": (lambda r: r.tell_apart(), "the draws are on one solution"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_a_sentence(name, result):
    call, message = WRONG[name]
    with pytest.raises(bp.InputError, match=message):
        call(result)


def test_what_has_no_uncertainty_is_refused(problem):
    one = result_of(problem, np.zeros((1, 1, 4)), bp.PINN())
    with pytest.raises(bp.InputError, match="PINN gives a solution without uncertainty"):
        bp.next_sensor(one)
    with pytest.raises(bp.InputError, match="20 draws are too few"):
        bp.next_sensor(result_of(problem, np.random.default_rng(0).standard_normal((1, 20, 4))))


def test_advice_reads_well_and_can_be_drawn_and_stored(result, tmp_path):
    advice = bp.next_sensor(result, count=2)
    text = str(advice)
    assert text.startswith("Where to measure next, for a, b (sd 1 now)\n  1. ")
    assert "variance lower by" in text
    assert advice.trusted == (result.diagnose().verdict != "bad") == ('"do not trust"' not in text)
    told = json.loads(json.dumps(advice.as_dict()))
    assert [row["reading"] for row in told["next"]] == [r.kind for r in advice.readings]
    assert advice.table.loc[0, "reduction"] == pytest.approx(advice.readings[0].reduction, abs=1e-6)
    assert len(advice.plot().axes) == 2
    result.save(tmp_path / "r.npz")
    stored = bp.next_sensor(bp.load(tmp_path / "r.npz"))  # without its equations
    assert {kind.name for kind in stored.kinds} == {"u"}
    assert stored.reduction > 0
    with pytest.raises(bp.InputError, match=r"expected a result of bp.next_sensor"):
        bp.plot.next_sensor(result)


def test_a_field_without_readings_needs_a_noise():
    both = linear(u=bp.MLP(hidden=()), v=bp.MLP(hidden=()))
    found = result_of(both, drawn(np.eye(bp.Posterior(both).dim)))
    assert "not considered: v has no readings; noise={'v': ...} would consider it" in str(bp.next_sensor(found, "v"))
    advice = bp.next_sensor(found, "v", noise={"v": 0.1})
    assert advice.kind == "v"
    with pytest.raises(bp.InputError, match="'v' has no readings, so its noise is unknown"):
        bp.next_sensor(found, "v", of="v")


def test_two_and_three_coordinates_and_readings_at_fixed_places():
    wide = bp.Average("u", over={"x": ([0.0, 0.6], [0.3, 0.9])})
    for names, shape, panels in (("xy", 625, 1), ("xyz", 1000, 3)):
        domain = dict.fromkeys(names, (0.0, 1.0))
        at = dict.fromkeys(names, np.array([0.2, 0.8]))
        rest = {c: a for c, a in at.items() if c != "x"}
        sensors = {"u": bp.Sensors("u", at, [0.1, 0.2], 0.1), "wide": bp.Sensors(wide, rest, [0.1, 0.2], 0.1)}
        plane = bp.Problem(domain, {"u": bp.MLP(hidden=())}, sensors)
        found = result_of(plane, drawn(np.eye(bp.Posterior(plane).dim)))
        advice = bp.next_sensor(found, of="u")
        assert advice.kinds[0].size == shape
        assert advice.target == "u over the domain"
        assert set(advice.at) == set(names)
        assert len([ax for ax in advice.plot().axes if ax.get_xlabel()]) == panels
        assert "wide, another reading like number" in str(bp.next_sensor(found, of="wide"))


# --- several solutions ---


def clusters(problem, centres, sd=0.01, method=None):
    """Chains on several solutions, three for the first."""
    size = bp.Posterior(problem).dim
    rng = np.random.default_rng(0)
    chains = [centres[0]] * 2 + list(centres)
    return result_of(problem, np.stack([c + sd * rng.standard_normal((200, size)) for c in chains]), method)


@pytest.fixture(scope="module")
def several(problem):
    """Lines u = w x + c that are 1 apart at x = 1, and equal at x = 0: z has w, c, a, b."""
    return clusters(problem, [np.array([0.0, 0.2, 0.0, 0.0]), np.array([1.0, 0.2, -1.0, 0.0])])


def test_solutions_are_told_apart_where_they_differ_most(several):
    found = several.tell_apart(of="u")
    assert (found.kind, found.at) == ("u", {"x": 1.0})
    sd = np.hypot(NOISE, 0.01 * np.sqrt(2))
    assert found.difference == pytest.approx(1.0 / sd, rel=0.01)
    likely = lambda y, m: stats.norm.pdf(y, m, sd)
    y = np.linspace(-3, 4, 4001)
    right = np.trapezoid(likely(y, 0) ** 2 / (likely(y, 0) + likely(y, 1)), y)
    assert found.probability == pytest.approx(right, abs=0.002)
    np.testing.assert_allclose(found.means, [0.2, 1.2], atol=0.01)
    assert "2 solutions are told apart best by u at x=1 (noise 0.2)" in str(found)
    np.testing.assert_allclose(found.table.query("x == 0")["difference"], 0, atol=0.05)
    assert len(found.plot().axes) == 2
    assert json.loads(json.dumps(found.as_dict()))["difference"] == found.difference
    nearer = several.tell_apart({"x": [0.1, 0.2]}, noise=2.0, of="u")
    assert nearer.at == {"x": pytest.approx(0.2)}
    assert "no single reading decides" in str(nearer)
    for noise, is_clear in ((0.5, False), (0.25, True)):  # 2 and 4 units of noise, where 3 are needed
        found = several.tell_apart(noise=noise, of="u")
        assert found.is_clear is is_clear
        assert ("no single reading decides" in str(found)) is not is_clear


def test_of_three_solutions_the_closest_pair_counts(problem):
    """At x = 1 two of them are equal, at x = 0 another two; in between all differ."""
    centres = [np.array([w, c, 0.0, 0.0]) for w, c in ((0.0, 0.0), (3.0, 0.0), (0.0, 3.0))]
    found = clusters(problem, centres).tell_apart(of="u")
    assert found.at["x"] == pytest.approx(0.5)
    assert len(found.differences) == 3
    assert found.pair in ((1, 2), (1, 3), (2, 3))
    assert found.difference == pytest.approx(0.0 + 1.5 / np.hypot(NOISE, 0.0125), rel=0.5)


def test_next_sensor_leaves_several_solutions_to_tell_apart(several):
    with pytest.raises(bp.InputError, match=r"the draws are on 2 solutions; result.tell_apart\(\)"):
        bp.next_sensor(several, "a")
    assert bp.next_sensor(several.modes()[0].result, "a").reduction > 0


def test_the_verdict_says_what_was_found_and_what_to_do(several):
    text = str(several.diagnose())
    assert "the chains are on 2 solutions, 75% and 25% of them on each" in text
    assert "bp.infer(problem, bp.SMC(), seed=0, start=result)" in text
    assert "a reading of" in text
    assert "units of noise apart (result.tell_apart())" in text
    summary = str(several.summary())
    assert "solution 1: 75% of the draws, a = " in summary
    assert "solution 2: 25% of the draws, a = -1" in summary


def test_solutions_of_a_problem_without_unknowns_are_listed():
    of = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=())}, {"u": bp.Sensors("u", {"x": [0.5]}, [0.0], noise=NOISE)}
    )
    summary = str(clusters(of, [np.array([0.0, 5.0]), np.array([0.0, -5.0])]).summary())
    assert "solution 1: 75% of the draws" in summary
    assert "solution 2: 25% of the draws" in summary


def test_each_solution_can_be_predicted(several):
    means = [several.predict("u", {"x": [1.0]}, solution=i).mean[0] for i in (1, 2, None)]
    np.testing.assert_allclose(means, [0.2, 1.2, 0.45], atol=0.01)  # three chains and one
    with pytest.raises(bp.InputError, match="solution must be a whole number from 1 to 2, got 3"):
        several.predict("u", {"x": [1.0]}, solution=3)


def test_the_cost_of_populations_follows_from_gradients(several):
    from bpinn.design.several import STEPS, seconds_of
    from bpinn.engine import available_cores

    method = bp.SMC(particles=50, num_moves=2, num_leapfrog=10, chains=available_cores())
    assert seconds_of(method, several) is None
    timed = result_of(several.problem, several.z)
    timed.stats["gradients"] = np.full(timed.z.shape[:2], 20)
    timed.seconds["draws"] = 8.0
    one = 8.0 * min(4, available_cores()) / (20 * 800)
    assert seconds_of(method, timed) == pytest.approx(one * 25 * 2 * 10 * STEPS)  # half of them are moved


# --- the program and the report ---


def test_the_program_names_the_next_reading(result, several, tmp_path, program):
    result.save(tmp_path / "one.npz")
    told = json.loads(program("next", tmp_path / "one.npz", "--for", "a", "--count", 2, "--json").stdout)
    advice = bp.next_sensor(result, "a", count=2, of="u")  # a file does not have its equations
    assert told["for"] == "a"
    assert [row["at"] for row in told["next"]] == [pytest.approx(r.at) for r in advice.readings]
    figure = tmp_path / "next.png"
    at = program("next", tmp_path / "one.npz", "--for", "u@x=0.3", "--noise", "u=0.01", "--out", figure)
    assert "for u at x=0.3 (sd " in at.stdout
    assert "(noise 0.01)" in at.stdout
    assert figure.stat().st_size > 5000
    several.save(tmp_path / "two.npz")
    assert "2 solutions are told apart best by u at x=1" in program("next", tmp_path / "two.npz").stdout


def test_what_the_program_cannot_read_is_a_sentence(result, tmp_path, program):
    result.save(tmp_path / "one.npz")
    (tmp_path / "problem.toml").write_text("")
    for given, message in (
        (["missing"], "missing: does not exist"),
        ([tmp_path / "problem.toml"], "has no run yet; start one with `bpinn run"),
        ([tmp_path / "one.npz", "--for", "u@x"], "expected NAME=NUMBER, got 'x'"),
        ([tmp_path / "one.npz", "--for", "u@x=a"], "expected a number, got 'a'"),
        ([tmp_path / "one.npz", "--noise", "much"], "expected a number, got 'much'"),
        ([tmp_path / "one.npz", "--for", "z"], "'z' is not known"),
    ):
        done = program("next", *given)
        assert done.returncode == 2
        assert message in done.stderr


def test_the_report_says_where_to_measure_next(result, several, tmp_path):
    page = bp.report.write(result, tmp_path / "one").read_text()
    assert "<h2>Where to measure next</h2>" in page
    assert "Where to measure next, for a, b (sd 1 now)" in page
    assert (tmp_path / "one" / "figures" / "next-1.png").exists()
    page = bp.report.write(several, tmp_path / "two").read_text()
    assert "2 solutions are told apart best by" in page
    assert "<h2>2 solutions</h2>" in page


@pytest.mark.slow
def test_a_named_reading_of_a_nonlinear_problem_lowers_the_sd_as_expected():
    """Refits at the named place and at others, on data that the posterior itself expects."""

    def rate(u, u_t, k):
        return u_t + k * u

    t = np.linspace(0, 4, 25)
    field = bp.KarhunenLoeve(bp.SquaredExponential(1.2), terms=10)

    def problem(at):
        values = np.exp(-0.8 * np.array(at))  # without noise: the variance hardly depends on it
        sensors = {
            "law": bp.Sensors(rate, {"t": t}, 0.0, 0.01),
            "u": bp.Sensors("u", {"t": at}, values, 0.05),
        }
        return bp.Problem({"t": (0.0, 4.0)}, {"u": field}, sensors, {"k": dist.LogNormal(0.0, 1.0)})

    sampler = bp.HMC(num_draws=2000)
    found = bp.infer(problem([0.0, 3.5, 4.0]), sampler, seed=0, progress=False)
    advice, simulated = (bp.next_sensor(found, "k", of="u", exact=exact) for exact in (False, True))
    places = [advice.at["t"], 0.0, 2.5, 4.0]
    sds = [bp.infer(problem([0.0, 3.5, 4.0, at]), sampler, seed=1, progress=False).draws("k").std() for at in places]
    assert sds[0] < 1.05 * min(sds)
    for expected in (advice, simulated):
        guess = [expected.table.iloc[(expected.table["t"] - at).abs().argmin()]["sd"] for at in places]
        np.testing.assert_allclose(guess, sds, rtol=0.2)
