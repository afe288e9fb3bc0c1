"""Laplace, ensembles, Stein particles and ensemble Kalman: exact where theory says so, and honest elsewhere."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from test_fit_runs import small
from test_fits import compare, fit, poisson

import bpinn as bp
from bpinn.approximate import diagnose_group
from bpinn.methods.linearised import linearised, projected, solved, standardised
from bpinn.methods.start import prior_units
from bpinn.run_output import RunOutput, SamplerStats

QUICK = {
    "laplace": bp.Laplace(num_steps=20, init_steps=200, num_draws=20),
    "ensemble": bp.Ensemble(members=4, num_steps=20),
    "svgd": bp.SVGD(particles=6, num_steps=40, init_steps=100),
    "ensemble-kalman": bp.EnsembleKalman(members=20),
}


def whitened(result, exact):
    """The covariance of the draws in units of the exact one."""
    z = result.z.reshape(-1, result.z.shape[-1]).astype(float)
    root = np.linalg.cholesky(np.linalg.inv(exact.covariance))
    return root.T @ np.cov(z.T) @ root


# --- closed forms ---


@pytest.mark.parametrize("noise", [0.1, 0.01])
@pytest.mark.parametrize("coordinates", ["plain", "whitened"])
def test_laplace_is_the_exact_gaussian(noise, coordinates):
    """8,000 independent draws: four standard errors are 0.045 sd of a mean and 3.2% of an sd."""
    problem = poisson(noise)
    exact = bp.reference.exact(problem)
    result = fit(problem, bp.Laplace(coordinates=coordinates, init_steps=200, num_draws=4000))
    distance, ratios = compare(result, exact)
    assert distance < 0.06
    assert np.all(np.abs(ratios - 1) < 0.04)
    assert np.abs(whitened(result, exact) - np.eye(len(exact.mean))).max() < 0.08
    # The density of the draws is that of the posterior, and so is its constant.
    log_evidence = result.stats.log_density - result.stats.log_q
    np.testing.assert_allclose(log_evidence, exact.log_evidence, atol=0.05)
    assert result.diagnose().verdict == "good"


def test_laplace_of_full_rank_is_the_same_by_projections():
    """Random projections of more directions than readings determine leave nothing out."""
    problem = poisson(0.1)
    exact = bp.reference.exact(problem)
    result = fit(problem, bp.Laplace(coordinates="plain", rank=25, init_steps=3000, num_draws=4000))
    distance, ratios = compare(result, exact)
    assert distance < 0.07
    assert np.all(np.abs(ratios - 1) < 0.04)
    np.testing.assert_array_equal(result.stats["omitted"], 0.0)


def test_a_low_rank_that_leaves_something_out_says_so():
    result = fit(poisson(0.1), bp.Laplace(rank=3, init_steps=500, num_draws=50))
    assert np.all(result.stats["omitted"] > 1)
    assert "directions were left out in which the data have" in str(result.diagnose())
    assert "a higher rank" in result.diagnose().advice


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_an_anchored_ensemble_draws_from_the_exact_gaussian(noise):
    """2,000 independent draws: four standard errors are 0.09 sd of a mean and 6.4% of an sd."""
    problem = poisson(noise)
    exact = bp.reference.exact(problem)
    result = fit(problem, bp.Ensemble(members=1000))
    distance, ratios = compare(result, exact)
    assert distance < 0.09
    assert np.all(np.abs(ratios - 1) < 0.065)
    assert np.abs(whitened(result, exact) - np.eye(len(exact.mean))).max() < 0.15
    assert abs(result.stats["virial"].mean() - 1) < 0.05
    assert result.diagnose().verdict == "care"


def test_a_plain_ensemble_of_a_linear_problem_is_its_mode():
    problem = poisson(0.1)
    exact = bp.reference.exact(problem)
    result = fit(problem, bp.Ensemble(members=3, anchored=False))
    sd = np.sqrt(np.diag(exact.covariance))
    assert np.abs((result.z - exact.mean) / sd).max() < 0.02
    assert "an ensemble of modes" in str(result.diagnose())


def test_ensemble_kalman_approaches_the_exact_gaussian():
    """Its error falls with the number of members: here two ensembles of 5,000."""
    problem = poisson(0.1)
    exact = bp.reference.exact(problem)
    result = fit(problem, bp.EnsembleKalman(members=5000))
    distance, ratios = compare(result, exact)
    assert distance < 0.12
    assert np.all(np.abs(ratios - 1) < 0.06)
    np.testing.assert_array_equal(result.history["weight"].max(axis=1), 1.0)
    assert result.diagnose().verdict == "care"


def line(noise=0.1):
    """A straight line: two parameters, normal priors."""
    x = np.linspace(-1, 1, 8)
    values = 0.5 + 0.8 * x + 0.1 * np.random.default_rng(0).normal(size=8)
    return bp.Problem({"x": (-1.0, 1.0)}, {"u": bp.MLP(hidden=())}, {"u": bp.Sensors("u", {"x": x}, values, noise)})


@pytest.mark.parametrize("coordinates", ["plain", "whitened"])
def test_particles_of_a_straight_line_have_its_posterior(coordinates):
    """Stein's fixed points of many particles in two dimensions; they are not independent draws, but more regular."""
    problem = line()
    exact = bp.reference.exact(problem)
    method = bp.SVGD(
        particles=100, coordinates=coordinates, num_steps=800, learning_rate=0.05, init_steps=500, chains=1
    )
    distance, ratios = compare(fit(problem, method), exact)
    assert distance < 0.05
    assert np.all(np.abs(ratios - 1) < 0.12)


def test_inferred_noise_and_counts_have_their_posterior():
    """Against HMC: a noise level, whose information is measured, and Poisson counts, by scores and Fisher information."""
    x, rng = np.linspace(-1, 1, 40), np.random.default_rng(1)
    surrogate = bp.KarhunenLoeve(bp.SquaredExponential(length=0.5), terms=5, interval=(-1, 1))
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": surrogate},
        unknowns={"k": dist.LogNormal(1.0, 0.5)},
        sensors={
            "u": bp.Sensors("u", {"x": x}, np.sin(2 * x) + 0.2 * rng.normal(size=40), dist.LogNormal(-1.0, 1.0)),
            "n": bp.Sensors(
                lambda u, k: 10 * k * jnp.exp(0.3 * u), {"x": x}, rng.poisson(30 * np.exp(0.3 * np.sin(2 * x))),
                likelihood="poisson",
            ),
        },
    )  # fmt: skip
    right = fit(problem, bp.HMC(num_draws=500, num_leapfrog=8), chains=2)
    for method in (bp.Laplace(num_draws=2000), bp.Ensemble(members=200), bp.EnsembleKalman()):
        found = fit(problem, method)
        coarse = isinstance(method, bp.EnsembleKalman)  # in noise levels, as its documentation says
        for name in ("k",) if coarse else ("k", problem.readings[0].noise_name):
            exact = right.draws(name)
            assert abs(found.draws(name).mean() - exact.mean()) < 0.6 * exact.std(), (method, name)
            assert abs(found.draws(name).std() / exact.std() - 1) < 0.25, (method, name)


# --- the parts ---


def test_rows_are_derivatives_in_units_of_noise_and_prior(x64):
    """With normal noise: rows by autodiff, scores the residuals, and both make the gradient of the log likelihood."""
    problem = bp.Problem(
        small().domain, small().fields, {"s": replace(small().sensors["s"], noise=dist.LogNormal(-1.0, 0.5))},
        small().unknowns,
    )  # fmt: skip
    posterior = bp.Posterior(problem)
    model, data = posterior.model, posterior.data
    z, (_, scale) = posterior.sample_prior(jax.random.key(0), 1)[0], prior_units(model)
    found = jax.jit(lambda z: linearised(model, data, z))(z)
    level = model.parameters.split(z)[1][problem.readings[0].noise_name]
    predicted = jax.jit(lambda z: jnp.concatenate(model.predicted(z, data)))
    jacobian = jax.jit(jax.jacfwd(predicted))(z)
    np.testing.assert_allclose(found.rows[:9], jacobian * scale / level, atol=1e-10)
    residual = (data["values"][0] - predicted(z)) / level
    np.testing.assert_allclose(found.at.scores[:9], residual, atol=1e-10)
    gradient = jax.jit(jax.grad(model.log_likelihood))(z, data) * scale
    np.testing.assert_allclose(found.rows.T @ found.at.scores, gradient, atol=1e-8)
    rows, omitted = jax.jit(lambda z: projected(model, data, z, jax.random.key(1), 10))(z)
    np.testing.assert_allclose(rows.T @ rows, found.rows.T @ found.rows, atol=1e-6)
    assert omitted == 0


@pytest.mark.parametrize("shape", [(5, 12), (12, 5)])
def test_damped_steps_solve_their_equations(shape, x64):
    rng = np.random.default_rng(0)
    rows, target, pull = rng.normal(size=shape), rng.normal(size=shape[0]), rng.normal(size=shape[1])
    move = solved(jnp.asarray(rows), jnp.asarray(target), jnp.asarray(pull), jnp.asarray(1.7))
    np.testing.assert_allclose(rows.T @ (rows @ move - target) + 1.7 * move, pull, atol=1e-12)


def test_what_is_not_finite_counts_for_nothing():
    x = np.linspace(0.1, 1, 5)
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}, {"s": bp.Sensors(lambda u: jnp.sqrt(u), {"x": x}, 1.0, 0.1)}
    )
    posterior = bp.Posterior(problem)
    predicted = [jnp.array([1.0, jnp.nan, 0.5, jnp.inf, 2.0])]
    found = standardised(posterior.model, posterior.data, jnp.zeros(posterior.dim), predicted)
    np.testing.assert_array_equal(found.roots > 0, [True, False, True, False, True])
    assert np.all(np.isfinite(found.scores))


# --- verdicts ---


def group(shift=0.0, spread=1.0, outlying=0, unsettled=0.0):
    """Two groups of 40 draws of three standard normal quantities."""
    rng = np.random.default_rng(0)
    functionals = spread * rng.normal(size=(2, 40, 3))
    functionals[1] += shift
    misfit = np.ones((2, 40))
    misfit[0, :outlying] = 50.0
    stats = SamplerStats(log_density=np.zeros((2, 40)), virial=(functionals**2).mean(-1), misfit=misfit)
    return RunOutput(("a", "b", "k"), np.zeros(3, bool), functionals, stats, {"unsettled": np.full((2, 1), unsettled)})


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, "care", "it is approximate"),
        ({"shift": 10.0}, "bad", r"ensembles disagree: R-hat of \w is"),
        ({"spread": 0.3}, "bad", "draws are closer to each other than those of the posterior: virial 0.0"),
        ({"spread": 3.0}, "bad", "draws are further from each other than those of the posterior: virial"),
        ({"spread": 0.7}, "care", "draws are closer"),
        ({"outlying": 3}, "care", "3 of 80 members do not fit the readings: mean squared residual up to 50"),
        ({"outlying": 30}, "bad", "30 of 80 members do not fit"),
        ({"unsettled": 0.1}, "care", "8 of 80 fits have not converged"),
    ],
)
def test_groups_are_judged(changes, verdict, words):
    health = diagnose_group(group(**changes), "ensemble", "it is approximate")
    assert health.verdict == verdict
    assert any(re.search(words, reason) for reason in health.reasons)
    assert (len(health.reasons) > 1) == bool(changes)


# --- a nonlinear inverse problem, files, refusals ---


@pytest.mark.parametrize("name", list(QUICK))
def test_a_nonlinear_problem_is_finite_and_survives_its_file(name, tmp_path):
    result = fit(small(), QUICK[name])
    assert np.all(np.isfinite(result.functionals))
    assert np.all(result.draws("k") > 0)
    assert 0.1 < np.median(result.draws("k")) < 5
    assert result.diagnose().verdict != "good" or name == "laplace"
    result.save(tmp_path / "result.npz")
    again = bp.load(tmp_path / "result.npz")
    assert again.method == QUICK[name]
    np.testing.assert_array_equal(again.z, result.z)
    assert again.diagnose().reasons == result.diagnose().reasons
    assert type(result.method).__name__ in str(result.summary())


@pytest.mark.slow
def test_an_anchored_ensemble_of_networks_is_near_hmc():
    """HMC has k = 0.795 ± 0.0605 (docs/methods.md); 40 members have standard errors of 0.16 sd and 11% of an sd."""
    found = fit(bp.paper.inverse_reaction_1d(noise=0.1).problem, bp.Ensemble())
    draws = found.draws("k")
    assert abs(draws.mean() - 0.795) < 0.8 * 0.0605
    assert 0.6 < draws.std() / 0.0605 < 1.5
    assert found.diagnose().verdict == "care"


def test_too_large_matrices_are_refused():
    x = np.linspace(0, 1, 5000)
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(150, 150))}, sensors={"u": bp.Sensors("u", {"x": x}, x, 0.1)}
    )
    with pytest.raises(bp.InputError, match=r"Ensemble: the problem has 5,000 readings and points and 23,101 parameters, "
                       r"too many for a matrix .*; use fewer points"):  # fmt: skip
        fit(problem, QUICK["ensemble"])
    with pytest.raises(bp.InputError, match=r"Laplace: the problem has .*; give rank=200"):
        fit(problem, QUICK["laplace"])
