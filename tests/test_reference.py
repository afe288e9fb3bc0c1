"""The closed-form posterior, and HMC against it on the paper's linear problem with a Karhunen-Loève field."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bpinn as bp
from bpinn.diagnostics import ess_of

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
    "nonlinear": (lambda: bp.paper.nonlinear_1d(surrogate=KL), r"exact: it is not linear in the parameters"),
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
