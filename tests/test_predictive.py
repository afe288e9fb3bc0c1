"""Readings against what the posterior expects of them, where the answer is known in closed form."""

import numpy as np
import pytest
from scipy import stats

import bpinn as bp
from bpinn import diagnostics, predictive

X = np.linspace(0.0, 1.0, 9)
NOISE = 0.4
FIELD = bp.KarhunenLoeve(bp.Exponential(0.5), terms=8)


def make_problem(values, noise=NOISE, keep=slice(None), **options):
    at = {"x": X[keep]}
    return bp.Problem({"x": (0.0, 1.0)}, {"u": FIELD}, {"u": bp.Sensors("u", at, values[keep], noise, **options)})


def exact_result(problem, posterior=None, draws=8000):
    """A result with draws of the exact Gaussian posterior."""
    z = np.asarray((posterior or bp.reference.exact(problem)).sample(0, draws))
    z = z.reshape(4, -1, z.shape[-1])
    zeros = np.zeros(z.shape[:2])
    return bp.Result(problem, bp.HMC(), 0, z, np.zeros((*zeros.shape, 0)), {"log_density": zeros})


@pytest.fixture(scope="module")
def values():
    return np.sin(3 * X) + NOISE * np.random.default_rng(1).standard_normal(len(X))


def test_each_reading_is_judged_by_all_others(values, monkeypatch):
    monkeypatch.setattr(predictive, "MOST_DRAWS", 8000)
    (group,) = bp.predictive.check(exact_result(make_problem(values))).groups
    for i in range(len(X)):
        without = bp.reference.exact(make_problem(values, keep=np.arange(len(X)) != i))
        expected = without.predict("u", {"x": X[i : i + 1]})
        mean, sd = expected.mean[0], np.hypot(expected.sd[0], NOISE)
        assert abs(group.mean[i] - mean) < 0.1 * sd
        assert abs(group.sd[i] - sd) < 0.1 * sd
        assert abs(group.score[i] - (values[i] - mean) / sd) < 0.15
    assert np.all(group.khat < 1.0)


def test_scatter_is_that_of_the_whole_group(values, monkeypatch):
    monkeypatch.setattr(predictive, "MOST_DRAWS", 8000)
    result = exact_result(make_problem(values))
    (group,) = bp.predictive.check(result).groups
    u = result.predict("u", {"x": X}).draws.reshape(-1, len(X))
    expected = stats.chi2.sf(np.sum(((values - u) / NOISE) ** 2, axis=1), len(X)).mean()
    assert group.scatter == pytest.approx(expected, abs=1e-3)
    assert group.verdict == "fit"


@pytest.mark.parametrize(("noise", "verdict"), [(0.04, "more than"), (4.0, "less than")])
def test_a_noise_stated_ten_times_wrong_shows(values, noise, verdict):
    many = np.linspace(0, 1, 60)
    readings = np.sin(3 * many) + NOISE * np.random.default_rng(2).standard_normal(60)
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": FIELD}, {"u": bp.Sensors("u", {"x": many}, readings, noise)})
    found = bp.predictive.check(exact_result(problem))
    assert verdict in found.groups[0].verdict
    assert found.fits == (noise > NOISE)
    assert verdict in str(found)


def test_an_outlier_is_named(values):
    values = values.copy()
    values[4] += 4.0
    found = bp.predictive.check(exact_result(make_problem(values)))
    assert found.surprising[0] == ("u", 4)
    assert "surprising: u at x=0.5 is" in str(found)
    assert np.argmax(np.abs(found.groups[0].score)) == 4


def test_where_all_is_well_few_readings_surprise():
    """Truths drawn from the prior: readings are surprising in one data set of twenty, at most."""
    rng, alarms, low, rounds = np.random.default_rng(0), 0, 0, 60
    base = make_problem(np.zeros(len(X)))
    truths = bp.prior.predict(base, "u", {"x": X}, draws=rounds, seed=1).draws.reshape(rounds, -1)
    for truth in truths:
        found = bp.predictive.check(exact_result(make_problem(truth + NOISE * rng.standard_normal(len(X)))))
        alarms += bool(found.surprising)
        low += found.groups[0].scatter < 0.25
    assert alarms <= 8  # with probability 0.99 of 60 at one in twenty
    assert low <= 25  # at most half of them, for a mean of probabilities that are uniform


def test_heavy_tails_expect_outliers(values):
    values = values.copy()
    values[4] += 4.0
    normal = exact_result(make_problem(values))
    heavy = make_problem(values, likelihood="student_t", dof=3.0)
    result = exact_result(heavy, bp.reference.exact(normal.problem))  # not its posterior, but the same draws
    (a,), (b,) = bp.predictive.check(normal).groups, bp.predictive.check(result).groups
    assert b.p[4] > 10 * a.p[4]
    assert np.all(b.sd > a.sd)


def test_scores_under_heavy_tails_are_normal(values):
    """A reading at a quantile of Student's t has the normal score of that quantile."""
    dof, quantile = 3.0, 0.9
    value = np.array([0.2 * stats.t.ppf(quantile, dof)])
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": FIELD}, {"u": bp.Sensors("u", {"x": [0.5]}, value, 0.2, "student_t", dof)}
    )
    z = np.zeros((1, 30, FIELD.terms))  # the field is zero
    result = bp.Result(problem, bp.HMC(), 0, z, np.zeros((1, 30, 0)), {"log_density": np.zeros((1, 30))})
    (group,) = bp.predictive.check(result).groups
    assert group.p[0] == pytest.approx(2 * (1 - quantile), rel=1e-5)
    assert group.scatter == pytest.approx(stats.chi2.sf(stats.norm.ppf(quantile) ** 2, 1), rel=1e-5)
    assert group.score[0] == pytest.approx(stats.norm.ppf(quantile), rel=1e-5)


def test_wrong_input():
    with pytest.raises(bp.InputError, match=r"predictive\.check: expected a result of bp\.infer"):
        bp.predictive.check("result")


def test_points_of_an_exact_condition_are_not_called_readings(prior_result):
    sensors = {
        "u": bp.Sensors("u", {"x": X}, np.sin(3 * X), NOISE),
        "law": bp.Sensors(lambda u_x: u_x, {"x": X}, 0.0, 1e-3),  # which draws of the prior do not meet
        "same": bp.Sensors("u", {"x": X}, 0.0, 10.0),
        "ring": bp.Sensors(bp.Difference("u", at={"x": 0.0}, minus={"x": [0.5, 1.0]}), values=0.0, noise=1e-3),
    }
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": FIELD}, sensors)
    check = bp.predictive.check(prior_result(problem, 40))
    said = dict(line.split(": ", 1) for line in str(check).splitlines() if not line.startswith(" "))
    assert said["u"].startswith("9 readings, ")
    assert said["law"].startswith("9 points, off by more than the tolerance allows")
    assert said["same"].startswith("9 points, within the tolerance")
    by_name = {group.name: group for group in check.groups}
    assert by_name["ring"].named(1) == "point 2 of ring"
    health = diagnostics.Diagnosis("good", [], [])
    predictive._judge_readings(health, check)
    assert "the residuals of law at its points are larger than its tolerance allows" in str(health)
    assert "readings of law" not in str(health)


@pytest.mark.parametrize("is_normal", [True, False])
def test_robust_noise_is_advised_only_where_it_is_not_used(is_normal):
    none, one = np.zeros(3), np.ones(3)
    fit = predictive.SensorFit("u", {"x": one}, none, one, one, np.array([0.5, 1e-12, 0.5]), none, scatter=0.5)
    health = diagnostics.Diagnosis("good", [], [])
    predictive._judge_readings(health, predictive.Check((fit,)), {"u"} if is_normal else set())
    assert len(health.reasons) == len(health.advice) == 1
    assert health.advice[0].startswith("check these readings")
    assert ("student_t" in health.advice[0]) is is_normal
