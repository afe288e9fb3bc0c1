"""Laws that every likelihood obeys, tested from one table; then what is particular to each."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import bpinn as bp
from bpinn import likelihoods
from bpinn.likelihoods import Likelihood
from bpinn.problem_file import read_problem


@dataclass
class Case:
    """A likelihood at one prediction and scale, and the values that readings can have."""

    law: Likelihood
    prediction: float = 1.3
    scale: float | None = 0.4
    low: float = -np.inf
    high: float = np.inf
    values: np.ndarray | None = None  # those that have a probability
    finite_variance: bool = True
    file: str = ""  # how a problem file writes it
    exact: object = None  # the same law in SciPy

    def log_prob(self, value):
        value = np.asarray(value, float)
        return np.asarray(self.law.log_prob(value, np.full(value.shape, self.prediction), self.at(value)))

    def at(self, value):
        return None if self.scale is None else np.full(np.shape(value), self.scale)

    def expectation(self, function):
        """Of a function of the reading, by sums over values with a probability and quadrature elsewhere."""
        total = 0.0
        if self.values is not None:
            total += np.sum(np.exp(self.log_prob(self.values)) * function(self.values))
        if self.low < self.high:
            one = lambda v: np.exp(self.log_prob(np.array([v])))[0] * function(np.array([v]))[0]
            middle = np.clip(self.prediction, self.low, self.high)
            for a, b in ((self.low, middle), (middle, self.high)):
                total += integrate.quad(one, a, b, limit=400)[0] if a < b else 0.0
        return total


CASES = {
    "normal": Case(likelihoods.Normal(), file='"normal"', exact=stats.norm(1.3, 0.4)),
    "student_t": Case(
        likelihoods.StudentT(dof=5.0), file='{ kind = "student_t", dof = 5.0 }', exact=stats.t(5.0, 1.3, 0.4)
    ),
    "student_t without variance": Case(
        likelihoods.StudentT(dof=1.5), finite_variance=False, file='{ kind = "student_t", dof = 1.5 }',
        exact=stats.t(1.5, 1.3, 0.4),
    ),
    "lognormal": Case(
        likelihoods.LogNormal(), low=0.0, file='"lognormal"', exact=stats.lognorm(0.4, scale=1.3),
    ),
    "poisson": Case(
        likelihoods.Poisson(), 2.6, None, low=0.0, high=0.0, values=np.arange(60.0), file='"poisson"',
        exact=stats.poisson(2.6),
    ),
    "negative_binomial": Case(
        likelihoods.NegativeBinomial(), 2.6, 0.4, low=0.0, high=0.0, values=np.arange(200.0),
        file='"negative_binomial"', exact=stats.nbinom(1 / 0.16, 1 / (1 + 0.16 * 2.6)),
    ),
    "negative_binomial, nearly Poisson": Case(
        likelihoods.NegativeBinomial(), 40.0, 0.01, low=0.0, high=0.0, values=np.arange(200.0),
        file='"negative_binomial"', exact=stats.nbinom(1e4, 1 / (1 + 1e-4 * 40.0)),
    ),
    "censored": Case(
        likelihoods.Censored(below=1.1), low=1.1, values=np.array([1.1]), file='{ kind = "censored", below = 1.1 }',
    ),
    "censored twice": Case(
        likelihoods.Censored(below=1.0, above=1.9, of=likelihoods.StudentT(dof=5.0)), low=1.0, high=1.9,
        values=np.array([1.0, 1.9]),
        file='{ kind = "censored", below = 1.0, above = 1.9, of = { kind = "student_t", dof = 5.0 } }',
    ),
    "censored lognormal": Case(
        likelihoods.Censored(below=1.0, of=likelihoods.LogNormal()), low=1.0, values=np.array([1.0]),
        file='{ kind = "censored", below = 1.0, of = "lognormal" }',
    ),
    "censored above": Case(
        likelihoods.Censored(above=1.5), high=1.5, values=np.array([1.5]), file='{ kind = "censored", above = 1.5 }',
    ),
}  # fmt: skip
NAMES = list(CASES)


def readings(case, count, seed=0):
    return case.law.sample(np.random.default_rng(seed), np.full(count, case.prediction), case.at(np.zeros(count)))


def test_every_registered_likelihood_is_in_the_table():
    assert {type(case.law) for case in CASES.values()} >= {Likelihood.registry.named(n) for n in BUILT_IN}


BUILT_IN = [name for name in Likelihood.registry if Likelihood.registry.named(name).__module__.startswith("bpinn.")]


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_add_up_to_one(name):
    assert CASES[name].expectation(np.ones_like) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_law_it_says(name):
    case = CASES[name]
    if case.exact is None:
        pytest.skip("no closed form elsewhere")
    values = np.unique(readings(case, 50))
    density = case.exact.logpmf if case.values is not None else case.exact.logpdf
    np.testing.assert_allclose(case.log_prob(values), density(values), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cdf(case, values), case.exact.cdf(values), rtol=1e-9)


def cdf(case, values, below=False):
    function = case.law.cdf_below if below else case.law.cdf
    return function(values, np.full(values.shape, case.prediction), case.at(values))


@pytest.mark.parametrize("name", NAMES)
def test_the_distribution_is_that_of_the_density(name):
    case = CASES[name]
    for value in np.quantile(readings(case, 200), [0.1, 0.5, 0.9], method="nearest"):
        parts = Case(case.law, case.prediction, case.scale, case.low, min(case.high, value))
        if case.values is not None:
            parts.values = case.values[case.values <= value]
        expected = parts.expectation(np.ones_like)
        assert cdf(case, np.array([value]))[0] == pytest.approx(expected, abs=1e-6)
        mass = 0.0 if case.values is None else np.exp(case.log_prob(case.values))[case.values == value].sum()
        assert cdf(case, np.array([value]), below=True)[0] == pytest.approx(expected - mass, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_new_readings_follow_it(name):
    """Randomised normal scores of its own readings are standard normal (Kolmogorov and Smirnov)."""
    case, count = CASES[name], 20_000
    values = readings(case, count)
    mean = np.full(count, case.prediction)
    scores = case.law.normal_score(values, mean, case.at(values), np.random.default_rng(1))
    assert stats.kstest(scores, "norm").pvalue > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_mean_and_sd_are_those_of_the_density(name):
    case = CASES[name]
    prediction, scale = np.array([case.prediction]), case.at(np.zeros(1))
    if not case.finite_variance:
        assert case.law.sd(prediction, scale) == np.inf
        return
    if isinstance(case.law, likelihoods.Censored):  # those of a reading without the limits
        assert case.law.mean(prediction, scale) == case.law.of.mean(prediction, scale)
        assert case.law.sd(prediction, scale) == case.law.of.sd(prediction, scale)
        return
    mean = case.expectation(lambda v: v)
    assert case.law.mean(prediction, scale)[0] == pytest.approx(mean, rel=1e-5)
    variance = case.expectation(lambda v: (v - mean) ** 2)
    assert np.ravel(case.law.sd(prediction, scale))[0] == pytest.approx(np.sqrt(variance), rel=1e-5)


@partial(jax.jit, static_argnums=0)
def slope(law, prediction, value, scale):
    return jax.grad(lambda p: jnp.sum(law.log_prob(value, p, scale)))(prediction)


def score(case, value):
    """Derivative of the log probability by the prediction."""
    with jax.enable_x64(True):
        value = jnp.asarray(value)
        scale = None if case.scale is None else jnp.asarray(case.at(value))
        return np.asarray(slope(case.law, jnp.full(value.shape, case.prediction), value, scale))


@pytest.mark.parametrize("name", NAMES)
def test_information_is_the_variance_of_the_score(name):
    case = CASES[name]
    information = np.ravel(jax.jit(case.law.information)(np.array([case.prediction]), case.at(np.zeros(1))))[0]
    assert case.expectation(lambda v: score(case, v)) == pytest.approx(0.0, abs=1e-5)
    assert information == pytest.approx(case.expectation(lambda v: score(case, v) ** 2), rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_working_response_pulls_as_the_reading_does(name, x64):
    case = CASES[name]
    values = readings(case, 20)
    prediction, scale = jnp.full(20, case.prediction), None if case.scale is None else jnp.full(20, case.scale)
    response = jax.jit(case.law.response)(jnp.asarray(values), prediction, scale)
    pull = jax.jit(case.law.information)(prediction, scale) * (response - prediction)
    np.testing.assert_allclose(pull, score(case, values), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("unit", [1e-10, 1e10])
@pytest.mark.parametrize("law", [likelihoods.Normal(), likelihoods.StudentT(), likelihoods.LogNormal()])
def test_derivatives_of_the_working_response_do_not_depend_on_units(law, unit):
    """In single precision, the square of a noise of 1e-10 is a number but its derivative's parts were not."""

    def slopes(unit):
        def pull(log_unit, log_scale):
            prediction, scale = 1.3 * unit * jnp.exp(log_unit), 0.4 * jnp.exp(log_scale)
            scale = scale if isinstance(law, likelihoods.LogNormal) else unit * scale
            off = law.response(jnp.float32(1.9 * unit), prediction, scale) - prediction
            return jnp.sqrt(law.information(prediction, scale)) * off

        return jax.grad(pull, argnums=(0, 1))(0.0, 0.0)

    np.testing.assert_allclose(slopes(unit), slopes(1.0), rtol=1e-4)


@pytest.mark.parametrize("inferred", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_prepared_form_is_the_same_density(name, inferred, x64):
    case = CASES[name]
    values = readings(case, 20)
    scale = case.at(values)
    if inferred and scale is None:
        pytest.skip("it has no scale")
    prepared = jax.tree.map(jnp.asarray, case.law.prepare(values, None if inferred else scale))
    prediction = jnp.full(20, case.prediction)
    found = jax.jit(case.law.log_prob_of)(prepared, prediction, jnp.asarray(case.scale) if inferred else None)
    np.testing.assert_allclose(found, case.log_prob(values), rtol=1e-6, atol=1e-7)
    if not inferred:  # what annealing starts from is an upper bound
        assert np.all(prepared["constant"] >= case.log_prob(values) - 1e-6)


def problem_of(case, count=12):
    at = {"x": np.linspace(0.0, 1.0, count)}
    sensors = bp.Sensors("u", at, readings(case, count), case.scale, likelihood=case.law)
    return bp.Problem(
        domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=(4,), positive=True)}, sensors={"u": sensors}
    )


@pytest.mark.parametrize("name", NAMES)
def test_results_with_it_are_saved_loaded_and_reported(name, tmp_path, prior_result):
    case = CASES[name]
    result = prior_result(problem_of(case), draws=30)
    result.save(tmp_path / "result.npz")
    loaded = bp.load(tmp_path / "result.npz")
    assert loaded.problem.readings[0].likelihood == case.law
    z = result.z[0, 0]
    assert bp.Posterior(loaded.problem).log_density(z) == bp.Posterior(result.problem).log_density(z)
    assert np.isfinite(bp.Posterior(result.problem).log_density(z))
    page = bp.report.write(result, tmp_path / "report").read_text()
    assert case.law.describe() in page
    check = bp.predictive.check(result)
    assert np.all((check.groups[0].p >= 0) & (check.groups[0].p <= 1))
    assert result.predict("u", {"x": [0.5]}, noise=True).draws.shape == (1, 30, 1)


@pytest.mark.parametrize("name", NAMES)
def test_problem_files_have_it(name, tmp_path):
    case = CASES[name]
    values = ", ".join(repr(float(v)) for v in readings(case, 3))
    noise = "" if case.scale is None else f"noise = {case.scale}"
    (tmp_path / "problem.toml").write_text(f"""
[domain]
x = [0.0, 1.0]
[fields.u]
hidden = [4]
positive = true
[[sensors]]
quantity = "u"
at = {{ x = [0.0, 0.5, 1.0] }}
values = [{values}]
{noise}
likelihood = {case.file}
""")
    assert read_problem(tmp_path / "problem.toml").problem.readings[0].likelihood == case.law


@pytest.mark.parametrize("name", NAMES)
def test_readings_can_be_simulated_from_the_prior(name):
    case = CASES[name]
    simulated, truth = bp.calibration.simulate(problem_of(case), 3)
    assert simulated.readings[0].likelihood == case.law
    assert np.all(np.isfinite(simulated.readings[0].values))
    assert np.all(np.isfinite(truth))


# --- what is particular to each ---


def level(law, values, noise=None, prior=None, **settings):
    """The posterior of one positive number, of which readings are taken."""
    sensors = bp.Sensors(lambda m: m, {}, values, noise, likelihood=law)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=())}, sensors={"m": sensors},
        unknowns={"m": prior or dist.LogNormal(0.0, 1.0)},
    )  # fmt: skip
    return bp.infer(problem, bp.HMC(num_warmup=300, num_draws=1500, **settings), seed=0, progress=False)


def mean_and_sd_on_a_grid(log_density):
    grid = np.linspace(1e-3, 12.0, 40_001)
    weights = np.exp(log_density(grid) - log_density(grid).max())
    mean = np.sum(weights * grid) / np.sum(weights)
    return mean, np.sqrt(np.sum(weights * (grid - mean) ** 2) / np.sum(weights))


def assert_posterior(result, log_likelihood):
    """Against quadrature, within Monte-Carlo error."""
    mean, sd = mean_and_sd_on_a_grid(lambda m: stats.lognorm(1.0).logpdf(m) + log_likelihood(m))
    row = result.summary().loc["m"]
    assert abs(row["mean"] - mean) < 4 * sd / np.sqrt(row["ess"])
    assert abs(row["sd"] / sd - 1) < 4 / np.sqrt(row["ess"])


def test_the_posterior_under_multiplicative_noise():
    values = np.array([1.1, 2.3, 1.7, 1.2])
    log_likelihood = lambda m: sum(stats.lognorm(0.5, scale=m).logpdf(v) for v in values)
    assert_posterior(level(likelihoods.LogNormal(), values, 0.5), log_likelihood)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_multiplicative_noise_wants_positive_readings(value):
    with pytest.raises(bp.InputError, match=r"sensors 'u': LogNormal readings must be positive, got .*Censored"):
        bp.Problem({"x": (0, 1)}, {"u": bp.MLP()}, {"u": bp.Sensors("u", {"x": [0.1]}, [value], 0.1, "lognormal")})


def test_the_posterior_of_a_rate():
    """Conjugate: a gamma prior and counts make a gamma posterior."""
    values = np.array([3.0, 0.0, 2.0, 4.0, 1.0])
    result = level(likelihoods.Poisson(), values, prior=dist.Gamma(2.0, 1.0))
    exact = stats.gamma(2.0 + values.sum(), scale=1 / (1.0 + len(values)))
    row = result.summary().loc["m"]
    assert abs(row["mean"] - exact.mean()) < 4 * exact.std() / np.sqrt(row["ess"])
    assert abs(row["sd"] / exact.std() - 1) < 4 / np.sqrt(row["ess"])


@pytest.mark.parametrize(
    ("values", "noise", "words"),
    [
        ([1.5], None, r"sensors 'u': Poisson readings must be counts \(0, 1, 2, ...\), got 1.5"),
        ([-1.0], None, r"got -1; give raw counts"),
        ([1.0], 0.1, r"sensors 'u': noise: Poisson readings take no noise; remove noise="),
    ],
)
def test_counts_are_whole_and_have_no_noise(values, noise, words):
    with pytest.raises(bp.InputError, match=words):
        bp.Problem({"x": (0, 1)}, {"u": bp.MLP()}, {"u": bp.Sensors("u", {"x": [0.1]}, values, noise, "poisson")})


def test_a_prior_that_predicts_negative_counts_is_named():
    sensors = bp.Sensors("u", {"x": np.linspace(0, 1, 9)}, np.ones(9), likelihood="poisson")
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, {"u": sensors})
    with pytest.raises(bp.InputError, match=r"sensors 'u': the prior predicts .* Poisson .* positive=True"):
        bp.calibration.simulate(problem, 4)


@pytest.mark.parametrize("scale", [0.003, 0.1, 2.0])
def test_counts_with_little_scatter_keep_their_digits(scale):
    """In single precision; the sum of two log gammas would be off by whole units."""
    law, values = likelihoods.NegativeBinomial(), np.array([0.0, 3.0, 80.0, 400.0])
    exact = law.log_prob(values, np.full(4, 60.0), np.full(4, scale))
    inferred = law.log_prob(jnp.float32(values), jnp.full(4, 60.0, jnp.float32), jnp.full(4, scale, jnp.float32))
    np.testing.assert_allclose(inferred, exact, rtol=2e-5, atol=2e-2)
    prepared = jax.tree.map(jnp.float32, law.prepare(values, np.full(4, scale)))
    np.testing.assert_allclose(law.log_prob_of(prepared, jnp.full(4, 60.0), None), exact, rtol=1e-5, atol=1e-2)


def test_the_posterior_with_readings_below_the_limit():
    values = np.array([0.0, 1.4, -3.0, 1.9])  # two of them below
    log_likelihood = lambda m: sum(
        stats.norm(m, 0.5).logcdf(1.0) if v <= 1.0 else stats.norm(m, 0.5).logpdf(v) for v in values
    )
    assert_posterior(level(likelihoods.Censored(below=1.0), values, 0.5), log_likelihood)


def test_what_stands_in_a_censored_reading_does_not_count():
    case = CASES["censored lognormal"]
    assert case.log_prob([0.0]) == case.log_prob([-2.0]) == case.log_prob([1.0])
    assert np.isfinite(score(case, np.array([0.0, 1.0, 2.0]))).all()


def test_least_squares_leaves_predictions_beyond_the_limit_alone():
    law = likelihoods.Censored(below=1.0, above=3.0)
    value, prediction = np.array([0.0, 0.0, 2.0, 3.5, 3.5]), np.array([0.2, 1.5, 2.5, 9.0, 2.0])
    assert law.residual(value, prediction).tolist() == [0.0, 0.5, 0.5, 0.0, -1.0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no limit; give below="),
        ({"below": 2.0, "above": 1.0}, "below must be less than above, got 2 and 1"),
        ({"below": "LOD"}, "below must be a number, got 'LOD'"),
        ({"below": 1.0, "of": likelihoods.Poisson()}, r"of= must be Normal\(\)"),
        ({"below": -1.0, "of": likelihoods.LogNormal()}, "LogNormal readings must be positive, got -1"),
    ],
)
def test_limits_that_make_no_sense(settings, words):
    with pytest.raises(bp.InputError, match=words):
        likelihoods.Censored(**settings)


def test_counts_of_a_field_that_may_be_negative_are_advised(prior_result):
    """The verdict names it, and so does a run that finds nowhere to start."""
    sensors = bp.Sensors("u", {"x": np.linspace(0, 1, 9)}, np.ones(9), likelihood="poisson")
    result = prior_result(bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, {"u": sensors}), draws=40)
    assert "Poisson readings of u need positive predictions" in str(result.diagnose())
    shifted = bp.Sensors(lambda u: -5.0 - u**2, {"x": [0.5]}, [3.0], likelihood="poisson")
    stated = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, {"counts": shifted})
    with pytest.raises(bp.InputError, match=r"Poisson readings of 'counts' need positive predictions: use a field"):
        bp.infer(stated, bp.HMC(num_warmup=20, num_draws=8, num_leapfrog=2), seed=0, progress=False)


def test_a_reading_without_coordinates_is_counted(prior_result):
    wide = bp.Sensors(bp.Average("u", over={"x": ([0.0, 0.5], [0.5, 1.0])}), values=[0.1, 50.0], noise=0.1)
    result = prior_result(bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, {"wide": wide}), draws=40)
    assert "reading 2 of wide is 50" in str(bp.predictive.check(result))


# --- where a careless formula goes wrong ---


@pytest.mark.parametrize("law", [likelihoods.Poisson(), likelihoods.NegativeBinomial()])
def test_a_negative_mean_is_impossible_also_for_a_count_of_zero(law):
    scale = np.full(2, 0.3) if law.has_scale else None
    value, prediction = np.array([0.0, 2.0]), np.array([-3.0, -3.0])
    assert np.all(law.log_prob(value, prediction, scale) == -np.inf)
    prepared = jax.tree.map(jnp.asarray, law.prepare(value, scale))
    assert np.all(law.log_prob_of(prepared, jnp.asarray(prediction), None) == -np.inf)
    slope = jax.grad(lambda p: jnp.sum(law.log_prob_of(prepared, p, None)))(jnp.asarray([-3.0, 1.0]))
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("dof", [1.5, 4.0, 30.0, 100.0])
def test_the_log_tail_of_a_student_t_is_finite_and_right_everywhere(dof):
    """In single precision: near the limit, where the incomplete beta function has no slope, and far in the tail."""
    law = likelihoods.StudentT(dof=dof)
    at = np.array([-300.0, -40.0, -3.0, -3e-4, 0.0, 3e-4, 2.0, 200.0])
    found = jax.jit(law.unit_log_cdf)(jnp.float32(at))
    slope = jax.jit(jax.vmap(jax.grad(law.unit_log_cdf)))(jnp.float32(at))
    np.testing.assert_allclose(found, stats.t(dof).logcdf(at), rtol=1e-3, atol=1e-5)
    expected = np.exp(stats.t(dof).logpdf(at) - stats.t(dof).logcdf(at))
    np.testing.assert_allclose(slope, expected, rtol=1e-2, atol=1e-5)


def test_a_reading_far_below_the_limit_is_no_surprise(prior_result):
    """Whatever stands in a censored reading: that it is below the limit is all that counts."""
    law = likelihoods.Censored(below=1.0)
    value, prediction, scale = np.array([-50.0, 1.0]), np.full(2, 0.5), np.full(2, 0.4)
    np.testing.assert_array_equal(law.cdf(value, prediction, scale), np.full(2, stats.norm(0.5, 0.4).cdf(1.0)))
    np.testing.assert_array_equal(law.cdf_below(value, prediction, scale), np.zeros(2))
    above = likelihoods.Censored(above=1.0)
    assert above.cdf(np.array([9.0]), prediction[:1], scale[:1]) == 1.0
    assert above.cdf_below(np.array([9.0]), prediction[:1], scale[:1]) == pytest.approx(stats.norm(0.5, 0.4).cdf(1.0))
    sensors = {"u": bp.Sensors("u", {"x": [0.1, 0.5]}, [-50.0, -50.0], 0.4, likelihood=likelihoods.Censored(below=9.0))}
    result = prior_result(bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, sensors), draws=40)
    assert not bp.predictive.check(result).surprising


def test_numbers_of_numpy_are_stored(tmp_path, prior_result):
    law = likelihoods.StudentT(dof=np.int64(4))
    sensors = {"u": bp.Sensors("u", {"x": [0.1, 0.5]}, [0.0, 0.1], 0.4, likelihood=law)}
    result = prior_result(bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, sensors))
    assert bp.load(result.save(tmp_path / "result.npz")).problem.readings[0].likelihood == law


def test_what_cannot_be_stored_is_reported_before_the_run(tmp_path):
    class Unregistered(likelihoods.Normal):
        pass

    sensors = {"u": bp.Sensors("u", {"x": [0.1, 0.5]}, [0.0, 0.1], 0.4, likelihood=Unregistered())}
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, sensors)
    seen = []
    with pytest.raises(bp.InputError, match="Unregistered is not registered"):
        bp.infer(problem, seed=0, progress=seen.append, out=tmp_path / "result.npz")
    assert not seen
