"""The closed-form posterior, and HMC against it on the paper's linear problem with a Karhunen-Loève field."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bpinn as bp
from bpinn.convergence import ess_of
from bpinn.prediction import GaussianPrediction

OPTIMIZED = True

KL = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))


def test_conjugate_normal_by_hand():
    """A constant field with one reading: the textbook formulas, evidence included."""
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(), bias_sd=2.0)},
        unknowns={"c": dist.Normal(1.0, 3.0)},
        sensors={"s": bp.Sensors(lambda c: c, {"x": [0.0, 0.0]}, [2.0, 2.5], noise=[0.5, 1.0])},
    )
    posterior = bp.reference.exact(problem)
    precision = 1 / 9 + 4 + 1
    assert posterior.mean[2] == pytest.approx((1 / 9 + 8 + 2.5) / precision)
    assert posterior.covariance[2, 2] == pytest.approx(1 / precision)
    assert posterior.covariance[1, 1] == pytest.approx(4.0)  # nothing is learnt of the bias
    evidence = stats.multivariate_normal([1.0, 1.0], 9.0 * np.ones((2, 2)) + np.diag([0.25, 1.0]))
    assert posterior.log_evidence == pytest.approx(evidence.logpdf([2.0, 2.5]))


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_predictions_equal_gaussian_process_conditioning(noise):
    """The same posterior from the covariances of u and f alone (function space instead of weight space)."""
    paper = bp.paper.poisson_1d(noise=noise, surrogate=KL)
    band = bp.reference.exact(paper.problem).predict("u", {"x": np.linspace(-0.7, 0.7, 9)})
    f, b = paper.problem.readings
    basis = lambda x, order: np.asarray(_basis(x, order))
    rows = np.concatenate([0.01 * basis(f.at["x"], 2), basis(b.at["x"], 0)])
    grid = basis(np.linspace(-0.7, 0.7, 9), 0)
    gain = grid @ rows.T @ np.linalg.inv(rows @ rows.T + noise**2 * np.eye(18))
    np.testing.assert_allclose(band.mean, gain @ np.concatenate([f.values, b.values]), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(band.covariance, grid @ grid.T - gain @ rows @ grid.T, rtol=1e-5, atol=1e-10)
    low, high = band.interval(0.95)
    np.testing.assert_allclose(high - low, 2 * 1.959964 * band.sd, rtol=1e-6)


def _basis(x, order):
    from bpinn.fields.kernels import exponential_eigenpairs

    pairs = exponential_eigenpairs(KL.kernel, (-1.0, 1.0), 20)
    return np.sqrt(pairs.values) * pairs.functions(np.asarray(x), order)


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_hmc_agrees_with_the_exact_posterior(noise):
    """Means and variances of all 20 coefficients, and of u and f, within four Monte-Carlo standard errors."""
    problem = bp.paper.poisson_1d(noise=noise, surrogate=KL).problem
    exact = bp.reference.exact(problem)
    result = bp.infer(problem, bp.HMC(num_leapfrog=100, num_warmup=500, num_draws=2000), seed=1, progress=False)
    at = {"x": np.linspace(-0.7, 0.7, 7)}
    draws = np.concatenate([result.z, result.predict("u", at).draws, result.predict("f", at).draws], axis=-1)
    bands = exact.predict("u", at), exact.predict(problem.sensors["f"].quantity, at)
    mean = np.concatenate([exact.mean, *(band.mean for band in bands)])
    sd = np.concatenate([np.sqrt(np.diag(exact.covariance)), *(band.sd for band in bands)])
    scaled = (draws.astype(float) - mean) / sd
    assert np.max(np.abs(scaled.mean((0, 1))) * np.sqrt(ess_of(scaled))) < 4
    squares = scaled**2
    error = (squares.mean((0, 1)) - 1) / squares.std((0, 1)) * np.sqrt(ess_of(squares))
    assert np.max(np.abs(error)) < 4
    assert result.diagnose().verdict == "good"


def test_draws_have_the_stated_moments():
    posterior = bp.reference.exact(bp.paper.poisson_1d(surrogate=KL).problem)
    draws = posterior.sample(seed=0, n=50_000)
    sd = np.sqrt(np.diag(posterior.covariance))
    assert np.max(np.abs(draws.mean(0) - posterior.mean) / sd) < 5 / np.sqrt(50_000)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(sd, sd), posterior.covariance / np.outer(sd, sd), atol=0.03)


WRONG = {
    "nonlinear": (lambda: bp.paper.nonlinear_1d(surrogate=KL), r"exact: not linear in the parameters"),
    "network": (lambda: bp.paper.poisson_1d(), r"not linear in the parameters"),
    "unknown": (lambda: bp.paper.inverse_reaction_1d(surrogate=KL), r"not linear"),
}


@pytest.mark.parametrize(("make", "words"), WRONG.values(), ids=WRONG.keys())
def test_problems_without_a_closed_form(make, words):
    with pytest.raises(bp.InputError, match=words):
        bp.reference.exact(make().problem)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": dist.HalfNormal(1.0)}, "noise of sensors 'u' is not normal with a known"),
        ({"noise": 0.1, "likelihood": "student_t"}, "noise of sensors 'u' is not normal"),
    ],
)
def test_noise_without_a_closed_form(changes, words):
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)}, fields={"u": KL}, sensors={"u": bp.Sensors("u", {"x": [0.0]}, [0.0], **changes)}
    )
    with pytest.raises(bp.InputError, match=words):
        bp.reference.exact(problem)


def test_a_nonlinear_quantity_has_no_exact_prediction():
    posterior = bp.reference.exact(bp.paper.poisson_1d(surrogate=KL).problem)
    with pytest.raises(bp.InputError, match="not linear"):
        posterior.predict(lambda u: jnp.sin(u), {"x": [0.0]})


def check_gp_against_exact(problem, quantity, at, draws=100_000):
    """Within 4.5 standard errors of the estimated covariance.

    With prior covariance C, readings y, K = C + noise^2 and E the relative error of the estimate (entries of variance
    at most 2 / draws for normal draws), a mean moves by a' E b with |a| <= sd and |b|^2 <= y' K^-1 y, and a variance
    by a' E a. So its error does not depend on how singular C is. y' K^-1 y is the misfit at the posterior mean.
    """
    posterior = bp.reference.exact(problem)
    exact, found = posterior.predict(quantity, at), bp.reference.gp(problem, quantity, at, draws=draws)
    centre, sd = bp.reference._prior(bp.Posterior(problem).model.parameters)
    misfit = np.sum(((posterior.mean - centre) / sd) ** 2)
    for r in problem.readings:
        fit = posterior.predict(problem.sensors[r.name].quantity, r.at).mean
        misfit += np.sum(((r.values - fit) / r.noise) ** 2)
    assert np.max(np.abs(found.mean - exact.mean) / exact.sd) < 4.5 * np.sqrt((2 * misfit + 1) / draws)
    assert np.max(np.abs(found.sd / exact.sd - 1)) < 4.5 / np.sqrt(2 * draws)
    scale = np.outer(exact.sd, exact.sd)
    np.testing.assert_allclose(found.covariance / scale, exact.covariance / scale, atol=4.5 * np.sqrt(2 / draws))


@pytest.mark.parametrize("quantity", ["u", "u_x", "f"])
@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_gp_agrees_with_the_exact_posterior(noise, quantity):
    problem = bp.paper.poisson_1d(noise=noise, surrogate=KL).problem
    check_gp_against_exact(problem, quantity, {"x": np.linspace(-0.7, 0.7, 9)})


def line(**changes):
    """A network without hidden layers, an equation with an unknown and a coordinate, and a mean that is not zero."""
    options = {
        "domain": {"x": (0.0, 1.0)},
        "fields": {"u": bp.MLP(hidden=())},
        "unknowns": {"c": dist.Normal(2.0, 0.5)},
        "sensors": {
            "u": bp.Sensors("u", {"x": [0.1, 0.9]}, [0.3, 0.8], noise=[0.1, 0.3]),
            "f": bp.Sensors(lambda u, u_x, x, c: u_x - x * u + 3 * c + 1, {"x": [0.2, 0.7]}, [7.0, 6.5], noise=0.2),
            "ring": bp.Sensors(bp.Periodic("u", along="x"), values=0.4, noise=0.5),
        },
    }
    return bp.Problem(**(options | changes))


@pytest.mark.parametrize("quantity", ["u", lambda u, c: u + c, "ring"], ids=["u", "with an unknown", "ring"])
def test_gp_of_a_linear_network(quantity):
    at = {} if quantity == "ring" else {"x": np.array([[0.0, 0.5], [0.8, 1.0]])}
    check_gp_against_exact(line(), quantity, at)


def test_gp_is_reproducible_by_seed():
    one, same, other = (bp.reference.gp(line(), at={"x": [0.5]}, draws=2000, seed=s) for s in (0, 0, 1))
    assert one.mean == same.mean
    assert one.sd == same.sd
    assert one.mean != other.mean


def test_gp_of_one_of_several_fields():
    """Fields that share no readings stay independent, up to the error of the estimate."""
    pair = {"u": bp.MLP(hidden=()), "v": bp.MLP(hidden=())}
    sensors = {"u": bp.Sensors("u", {"x": [0.0, 1.0]}, [1.0, 2.0], 0.1)}
    problem = bp.Problem({"x": (0.0, 1.0)}, pair, sensors)
    band = bp.reference.gp(problem, "v", {"x": [0.0]}, draws=20_000)
    assert abs(band.mean[0]) < 4.5 * np.sqrt((1 + 2 + 1) / 20_000)
    assert band.sd[0] == pytest.approx(1.0, abs=4.5 / np.sqrt(2 * 20_000) + 2 / 20_000)


def test_a_gaussian_prediction_is_a_prediction():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 6))
    mean, covariance = rng.standard_normal((2, 3)), root @ root.T
    band = GaussianPrediction(mean, covariance, {"x": np.zeros((2, 3))}, "u")
    assert isinstance(band, bp.Prediction)
    np.testing.assert_array_equal(band.mean, mean)
    np.testing.assert_allclose(band.sd.ravel() ** 2, np.diag(covariance))
    normal = stats.norm(band.mean, band.sd)
    np.testing.assert_allclose(band.quantile(0.3), normal.ppf(0.3))
    np.testing.assert_allclose(band.interval(0.9), normal.interval(0.9))
    draws = band.draws
    assert draws.shape == (1, 1000, 2, 3)
    np.testing.assert_array_equal(draws, GaussianPrediction(mean, covariance, band.at, "u").draws)
    scaled = (draws[0] - mean).reshape(1000, 6) / band.sd.ravel()
    assert np.max(np.abs(scaled.mean(axis=0))) < 4 / np.sqrt(1000)
    correlation = covariance / np.outer(band.sd, band.sd)
    np.testing.assert_allclose(scaled.T @ scaled / 1000, correlation, atol=4 * np.sqrt(2 / 1000))
    with pytest.raises(bp.InputError, match="p must lie between 0 and 1"):
        band.interval(95)


def equation(function, **unknowns):
    sensors = {"f": bp.Sensors(function, {"x": [0.2, 0.7]}, 0.0, noise=0.2)}
    return line(sensors=sensors, unknowns=unknowns)


def measured(**options):
    return line(sensors={"u": bp.Sensors("u", {"x": [0.2, 0.7]}, 0.0, **options)})


NO_GP = {
    "nonlinear": (lambda: equation(lambda u: jnp.sin(u)), {}, r"gp: sensors 'f': <lambda> is not linear in fields and derivatives; use bp.infer"),
    "quadratic": (lambda: equation(lambda u, u_x: u * u_x), {}, r"not linear in fields"),
    "a kink": (lambda: equation(lambda u: jnp.abs(u)), {}, r"not linear in fields"),
    "slightly nonlinear": (lambda: equation(lambda u, u_xx: u_xx + 1e-6 * u**3), {}, r"not linear in fields"),
    "unknown times field": (
        lambda: equation(lambda u, k: k * u, k=dist.Normal()), {},
        r"gp: sensors 'f': <lambda> is not jointly linear in the fields and the unknown k; use bp.infer, or a number instead of k",
    ),
    "nonlinear unknown": (lambda: equation(lambda u, k: u + k**2, k=dist.Normal()), {}, r"is not jointly linear in the fields and the unknown k"),
    "nonlinear quantity": (line, {"quantity": lambda u: u**2}, r"gp '<lambda>': <lambda> is not linear"),
    "inferred noise": (lambda: measured(noise=dist.HalfNormal(1.0)), {}, r"gp: the noise of sensors 'u' is not normal with a known"),
    "student": (lambda: measured(noise=0.1, likelihood="student_t"), {}, r"gp: the noise of sensors 'u' is not normal"),
    "positive": (lambda: line(fields={"u": bp.MLP(hidden=(), positive=True)}), {}, r"gp: field 'u' is positive"),
    "no sensors": (lambda: line(sensors=None), {}, r"gp: the problem has no sensors; give sensors= to bp.Problem"),
    "no problem": (lambda: "problem", {}, r"gp: expected a bp.Problem first, got str"),
    "few draws": (line, {"draws": 999}, r"gp: draws must be a whole number of at least 1000, got 999"),
    "float draws": (line, {"draws": 1e5}, r"gp: draws must be a whole number of at least 1000, got 100000.0"),
    "draws are True": (line, {"draws": True}, r"gp: draws must be a whole number"),
    "seed": (line, {"seed": -1}, r"gp 'u': seed must be a whole number from 0 to 2\*\*32 - 1, got -1"),
    "no quantity": (lambda: line(fields={"u": bp.MLP(), "v": bp.MLP()}), {"quantity": None}, r"gp: the problem has several fields, u, v; give quantity="),
    "no points": (line, {"at": None}, r"gp 'u': no positions for x; add them to at"),
    "wide unknown": (lambda: equation(lambda u, k: u + k, k=dist.Cauchy()), {}, r"gp: the prior of 'k' has no finite variance"),
    "more readings than draws": (
        lambda: line(sensors={"u": bp.Sensors("u", {"x": np.linspace(0, 1, 1000)}, 0.0, 0.1)}), {"draws": 1000},
        r"gp: the covariance of 1000 points is singular if estimated from 1000 draws; use more",
    ),
    "hardly any noise": (
        lambda: line(sensors={"u": bp.Sensors("u", {"x": np.linspace(0, 1, 5)}, 0.0, 1e-9)}), {},
        r"gp: the covariance of 5 points, estimated from 1000 draws, is singular; use more draws or a larger noise",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "options", "words"), NO_GP.values(), ids=NO_GP.keys())
def test_what_gp_cannot_do(make, options, words):
    with pytest.raises(bp.InputError, match=words) as caught:
        bp.reference.gp(make(), **({"quantity": "u", "at": {"x": [0.5]}, "draws": 1000} | options))
    assert "\n" not in str(caught.value)
