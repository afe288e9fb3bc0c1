"""Sequential Monte Carlo against exact answers: evidence in closed form, two solutions by quadrature."""

import re
import shutil

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import bpinn as bp

KL = bp.KarhunenLoeve(bp.SquaredExponential(0.4), terms=5)
X = np.linspace(0.0, 1.0, 7)
READINGS = np.sin(3 * X) + 0.2 * np.random.default_rng(0).standard_normal(7)


COORDINATES = ["whitened", "plain"]


def infer_line(noise, coordinates, **settings):
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": KL}, {"u": bp.Sensors("u", {"x": X}, READINGS, noise)})
    return bp.infer(
        problem,
        bp.SMC(particles=1500, coordinates=coordinates, chains=4, most_chains=1, **settings),
        seed=0,
        progress=False,
    )


@pytest.fixture(scope="module", params=COORDINATES)
def linear(request):
    return infer_line(0.2, request.param)


def test_evidence_and_posterior_are_those_in_closed_form(linear):
    exact = bp.reference.exact(linear.problem)
    evidence = linear.stats["log_evidence"][:, 0]
    error = evidence.std(ddof=1) / np.sqrt(len(evidence))
    assert error < 0.15
    assert abs(evidence.mean() - exact.log_evidence) < 4 * error + 0.03
    means = linear.z.mean(axis=1)  # of each population, which are independent
    z_scores = (means.mean(axis=0) - exact.mean) / (means.std(axis=0, ddof=1) / np.sqrt(len(means)))
    assert np.max(np.abs(z_scores)) < stats.t.ppf(1 - 0.0005 / 5, df=len(means) - 1)
    sd = linear.z.reshape(-1, 5).std(axis=0)
    np.testing.assert_allclose(sd, np.sqrt(np.diag(exact.covariance)), rtol=0.1)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_evidence_with_more_and_less_noise(noise, coordinates):
    """At 0.2 weights that are squared by mistake give nearly the same; here they are off by 3 and by 8."""
    result = infer_line(noise, coordinates)
    evidence = result.stats["log_evidence"][:, 0]
    error = evidence.std(ddof=1) / np.sqrt(len(evidence))
    assert error < 0.15
    assert abs(evidence.mean() - bp.reference.exact(result.problem).log_evidence) < 4 * error + 0.03


def test_evidence_of_particles_that_are_only_moved():
    """Without the states on the way, as before."""
    result = infer_line(0.2, "whitened", waste_free=False, num_moves=3)
    evidence = result.stats["log_evidence"][:, 0]
    error = evidence.std(ddof=1) / np.sqrt(len(evidence))
    assert abs(evidence.mean() - bp.reference.exact(result.problem).log_evidence) < 4 * error + 0.03
    assert len(np.unique(result.z[0], axis=0)) > 1000


def test_populations_that_agree_are_good(linear):
    health = linear.diagnose()
    assert health.verdict == "good", health
    assert "4 populations agree; log evidence" in str(health)
    assert linear.extent == "4 populations of 1500 draws"
    assert np.nanmax(linear.history["weight"]) == 1.0
    (mode,) = linear.modes()
    assert str(mode) == "probability 100%"


def test_a_fit_cannot_say_that_there_is_no_other_solution(linear):
    result = bp.infer(linear.problem, bp.PINN(num_steps=50), seed=0, progress=False)
    (mode,) = result.modes()
    assert mode.probability is None
    assert str(mode) == "100% of the draws, which says nothing about its probability"


def square(u, k):
    return k * k + 0.0 * u


def two_solutions(prior):
    sensors = {"s": bp.Sensors(square, {"x": [0.5]}, [1.0], 0.1), "u": bp.Sensors("u", {"x": [0.0]}, [0.3], 0.1)}
    return bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=())}, sensors, {"k": prior})


TWO = two_solutions(dist.Normal(0.5, 1.0))


def probability():
    density = lambda k: stats.norm.pdf(k, 0.5, 1.0) * stats.norm.pdf(k * k, 1.0, 0.1)
    halves = [integrate.quad(density, *ends)[0] for ends in ((-3, 0), (0, 3))]
    return halves[1] / sum(halves)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_two_solutions_have_the_probabilities_that_quadrature_knows(coordinates):
    result = bp.infer(TWO, bp.SMC(coordinates=coordinates), seed=1, progress=False)
    first, second = result.modes()
    assert first.probability + second.probability == pytest.approx(1.0)
    assert first.error < 0.04
    assert abs(first.probability - probability()) < 4 * first.error + 0.01
    assert first.result.draws("k").min() > 0 > second.result.draws("k").max()
    assert first.result.draws("k").mean() == pytest.approx(1.0, abs=0.03)
    assert "differs most in k (-0.9" in str(second)


def test_chains_on_two_solutions_say_so_and_leave_the_weighing_to_others(tmp_path):
    problem = two_solutions(dist.Normal())  # of equal weight: twelve chains are on one by a chance of 1 in 2048
    result = bp.infer(problem, bp.HMC(num_warmup=200, num_draws=300), seed=0, chains=12, progress=False)
    health = result.diagnose()
    assert health.verdict == "bad"
    assert "of 12 chains found another solution" in str(health)
    assert "they differ most in k" in str(health)
    assert "bp.SMC(), which estimates their probabilities" in str(health)
    modes = result.modes()
    assert len(modes) == 2
    assert all(mode.probability is None for mode in modes)
    assert sum(mode.result.z.shape[0] for mode in modes) == 12
    assert "which says nothing about its probability" in str(modes[1])
    page = bp.report.write(result, tmp_path).read_text()
    assert "<h2>2 solutions</h2>" in page
    assert "solution 2, u: posterior mean" in page
    titles = [axes.get_title() for axes in bp.plot.modes(result, "u").axes]
    assert [title.split(":")[0] for title in titles] == ["solution 1", "solution 2", "mixture"]


def test_a_likelihood_that_is_not_reached_is_no_posterior():
    result = bp.infer(TWO, bp.SMC(particles=50, most_steps=2), seed=0, progress=False)
    assert result.diagnose().verdict == "bad"
    assert "the posterior was not reached: tempering ended at likelihood weight" in str(result.diagnose())


def test_undefined_equations_leave_particles_out():
    def root(u, k):
        return k**0.5 + 0.0 * u

    sensors = {"s": bp.Sensors(root, {"x": [0.5]}, [1.0], 0.1)}
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=())}, sensors, {"k": dist.Normal(0.0, 1.0)})
    result = bp.infer(problem, bp.SMC(particles=300), seed=0, progress=False)
    assert result.draws("k").min() > 0
    assert re.search(r"undefined \(NaN\) at [45]\d%", str(result.diagnose()))


def test_populations_do_not_depend_on_cores(tmp_path):
    method = bp.SMC(particles=20, num_moves=1, chains=2, most_chains=4)
    one = bp.infer(TWO, method, seed=3, cores=1, progress=False)
    two = bp.infer(TWO, method, seed=3, cores=2, progress=False, out=tmp_path / "run")
    np.testing.assert_array_equal(one.z, two.z)
    again = bp.load(tmp_path / "run")
    np.testing.assert_array_equal(one.z, again.z)
    assert [str(m) for m in again.modes()] == [str(m) for m in one.modes()]


def test_populations_are_added_until_they_agree(tmp_path):
    """The first ones are the same, a stopped run adds the same ones again, and there are no more than allowed."""
    few = bp.infer(TWO, bp.SMC(particles=300, most_chains=4), seed=5, progress=False)
    assert few.z.shape[0] == 8
    method = bp.SMC(particles=300)
    result = bp.infer(TWO, method, seed=5, progress=False)
    assert result.z.shape[0] in (16, 32)
    np.testing.assert_array_equal(result.z[:8], few.z)
    assert f"{len(result.z)} populations agree" in str(result.diagnose())
    first = result.modes()[0]
    assert first.error <= 0.03
    assert abs(first.probability - probability()) < 3 * first.error
    stored = bp.infer(TWO, method, seed=5, progress=False, out=tmp_path / "run")
    np.testing.assert_array_equal(stored.z, result.z)
    np.testing.assert_array_equal(bp.load(tmp_path / "run").z, result.z)
    resumed = tmp_path / "resumed"
    shutil.copytree(tmp_path / "run", resumed)
    for path in [resumed / "result.npz", *resumed.glob("stage-*/chain-[59]")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    np.testing.assert_array_equal(bp.infer(TWO, method, seed=5, progress=False, out=resumed).z, result.z)


def test_a_run_that_is_stopped_while_populations_are_added_has_those_before():
    calls = []

    def stop(progress):
        calls.append(len(progress.chains))
        if calls[-1] > 8:
            raise KeyboardInterrupt

    result = bp.infer(TWO, bp.SMC(particles=100), seed=5, progress=stop)
    assert max(calls) == 16
    assert result.interrupted
    assert result.z.shape[:2] == (8, 100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"particles": 5},
        {"num_moves": 0},
        {"share": 1.5},
        {"target_accept": 0},
        {"coordinates": "white"},
        {"waste_free": 1},
        {"most_chains": 0},
    ],
)
def test_settings_out_of_range_are_named(wrong):
    with pytest.raises(bp.InputError, match=f"SMC: {next(iter(wrong))} must be"):
        bp.SMC(**wrong)


def test_start_is_looked_for_and_changes_no_draw(tmp_path):
    """Twelve chains on two solutions; probabilities do not depend on how many are on each."""
    chains = bp.infer(TWO, bp.HMC(num_warmup=100, num_draws=60), seed=0, chains=12, progress=False)
    assert len(chains.modes()) == 2
    method = bp.SMC(particles=100, num_moves=1, chains=2, most_chains=2)
    alone = bp.infer(TWO, method, seed=1, progress=False)
    seeded = bp.infer(TWO, method, seed=1, progress=False, start=chains, out=tmp_path / "run")
    np.testing.assert_array_equal(alone.z, seeded.z)
    assert "all 2 solutions of start have particles" in str(seeded.diagnose())
    assert "all 2 solutions of start have particles" in str(bp.load(tmp_path / "run").diagnose())
    first = seeded.modes()[0].result
    one_sided = bp.design.several.compared(first, chains)
    assert one_sided[0][0] == "care"
    assert "has no particle: its probability is below about" in one_sided[0][1]
    with pytest.raises(bp.InputError, match=r"start= is for bp.SMC\(\)"):
        bp.infer(TWO, bp.HMC(), seed=0, start=chains)
    with pytest.raises(bp.InputError, match=r"start must be a result of bp.infer, got int"):
        bp.infer(TWO, bp.SMC(), seed=0, start=3)
    with pytest.raises(bp.InputError, match="start is a result of another problem"):
        bp.infer(two_solutions(dist.Normal()), bp.SMC(), seed=0, start=alone_problem())


def alone_problem():
    sensors = {"u": bp.Sensors("u", {"x": [0.0]}, [0.3], 0.1)}
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=())}, sensors)
    return bp.infer(problem, bp.PINN(num_steps=5), seed=0, progress=False)
