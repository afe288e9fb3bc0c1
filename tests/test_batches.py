"""Batches of readings: sums over them are unbiased, and methods that use them approach the exact posterior."""

import jax
import numpy as np
import pytest

import bpinn as bp
from bpinn.approximate import judge_stochastic
from bpinn.diagnostics import Diagnosis
from bpinn.posterior import Posterior
from bpinn.run_output import SamplerStats


def curve(count=1200, terms=8):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 1.0, count))  # sorted, so that batches of neighbours would be biased
    field = bp.KarhunenLoeve(bp.SquaredExponential(length=0.3), terms=terms)
    values = np.sin(6 * x) + 0.3 * rng.standard_normal(count)
    return bp.Problem({"x": (0.0, 1.0)}, {"u": field}, {"u": bp.Sensors("u", {"x": x}, values, 0.3)})


def test_the_mean_over_batches_is_the_sum_over_all_readings(x64):
    problem = bp.paper.inverse_reaction_1d(noise=0.1, surrogate=bp.MLP(hidden=(4,))).problem
    posterior = Posterior(problem).in_batches(9)  # 40 readings in three groups: no batch is full
    z = posterior.sample_prior(jax.random.key(0), 1)[0]
    each = jax.lax.map(lambda batch: posterior.model.batch.log_likelihood(z, batch), posterior.data["batches"])
    assert len(each) == posterior.model.batches == 5
    assert float(each.sum()) == pytest.approx(float(posterior.log_likelihood(z)), rel=1e-12)


def test_a_batch_is_a_sample_of_the_readings():
    posterior = Posterior(curve()).in_batches(100)
    places = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.data["batches"]["values"])])
    assert np.ptp(places.reshape(posterior.model.batches, -1).mean(axis=1)) < 0.5  # sorted, they differ by 1.7
    np.testing.assert_allclose(np.sort(places), np.sort(posterior.data["values"][0]))


@pytest.fixture(scope="module")
def exact():
    problem = curve()
    grid = {"x": np.linspace(0.05, 0.95, 7)}
    return problem, grid, bp.reference.exact(problem).predict("u", grid)


def test_sghmc_has_the_exact_mean_and_spread(exact):
    """To within four Monte-Carlo errors of some hundred effective draws, and a tenth for the steps' own bias."""
    problem, grid, truth = exact
    method = bp.SGHMC(batch=100, steps=30, num_warmup=60, num_draws=300, init_steps=2000, chains=2)
    result = bp.infer(problem, method, seed=1, progress=False)
    found = result.predict("u", grid)
    effective = 300
    assert np.all(np.abs(found.mean - truth.mean) < (0.1 + 4 / np.sqrt(effective)) * truth.sd)
    assert np.all(np.abs(found.sd / truth.sd - 1) < 0.1 + 4 / np.sqrt(2 * effective))
    health = result.diagnose()
    assert health.verdict == "care"
    assert any("without an acceptance step" in reason for reason in health.reasons)


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "care"), (1.2, "care"), (3.0, "bad")])
def test_the_verdict_says_how_far_the_spread_is_off(scale, verdict):
    """Draws of a normal density whose sds are ``scale`` times the posterior's: that is what their virial tells."""
    x = scale * np.random.default_rng(0).standard_normal((2, 500, 20))
    virial = np.mean(x * x, axis=2)  # the gradient of a standard normal log density at x is -x
    health = Diagnosis("good", [], [])
    judge_stochastic(health, SamplerStats({"virial": virial, "virial_known": virial, "excess": np.full((2, 500), 0.1)}))
    assert health.verdict == verdict
    told = next(reason for reason in health.reasons if "off by a factor" in reason)
    assert float(told.split("about ")[1].split()[0]) == pytest.approx(scale, rel=0.03)


def test_chains_that_ran_away_are_bad():
    health, far = Diagnosis("good", [], []), np.full((2, 500), np.inf)
    judge_stochastic(health, SamplerStats({"virial": far, "virial_known": far, "excess": far}))
    assert health.verdict == "bad"


@pytest.mark.parametrize("method", [bp.PINN, bp.VI])
def test_fits_on_batches_find_the_same_field(method, exact):
    problem, grid, truth = exact
    common = {"num_steps": 2000, "batch": 200, "learning_rate": 1e-2}
    settings = {"loss": "posterior"} if method is bp.PINN else {"num_draws": 400, "init_steps": 1000}
    result = bp.infer(problem, method(**common, **settings), seed=0, progress=False)
    found = result.predict("u", grid)
    assert np.all(np.abs(found.mean - truth.mean) < 1.0 * truth.sd)
    if method is bp.VI:  # whitened coordinates hold the correlations, so that the spread is right as well
        assert np.all(np.abs(found.sd / truth.sd - 1) < 0.25)
