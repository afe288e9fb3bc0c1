"""Calibration: uniform where the posterior is exact, off where it is wrong by a known amount."""

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bpinn as bp
from bpinn.calibration import Calibration, crps, interval_score, sbc, simulate, simulations

OPTIMIZED = True

X = np.linspace(0.0, 1.0, 6)
FIELD = bp.KarhunenLoeve(bp.SquaredExponential(0.4), terms=4)
SIGMA = 0.3


def law(u, u_x, s):
    return u_x + u + s


PROBLEM = bp.Problem(
    {"x": (0.0, 1.0)},
    {"u": FIELD},
    {"u": bp.Sensors("u", {"x": X}, 0.0, SIGMA), "f": bp.Sensors(law, {"x": X[::2]}, 0.0, 2 * SIGMA)},
    {"s": dist.Normal(0.0, 1.0)},
)


def matrices():
    """The readings are linear in z: the design, in units of their noise."""
    posterior = bp.Posterior(PROBLEM)

    def readings(z):
        return np.concatenate(posterior.model.predicted(np.asarray(z, np.float32), posterior.data))

    design = np.stack([readings(row) for row in np.eye(posterior.dim)], axis=1)
    noise = np.concatenate([r.noise for r in PROBLEM.readings])
    return design / noise[:, None], noise


DESIGN, NOISE = matrices()
COUNT = len(bp.Posterior(PROBLEM).model.functionals(np.zeros(DESIGN.shape[1]), bp.Posterior(PROBLEM).data))


def exact(scale=1.0, shift=0.0, draws=200):
    """A sampler of the exact posterior, or of one with noise ``scale`` times as large, or shifted by so many sds."""

    def infer(problem, seed):
        values = np.concatenate([r.values for r in problem.readings]) / NOISE
        covariance = np.linalg.inv(DESIGN.T @ DESIGN / scale**2 + np.eye(DESIGN.shape[1]))
        mean = covariance @ DESIGN.T @ values / scale**2
        rng = np.random.default_rng([seed, 7])
        z = rng.multivariate_normal(mean + shift * np.sqrt(np.diag(covariance)), covariance, draws)[None]
        zeros = np.zeros((1, draws))
        stats = {"log_density": zeros}
        return bp.Result(problem, bp.HMC(), seed, z.astype(np.float32), np.zeros((1, draws, COUNT)), stats)

    return infer


@pytest.fixture(scope="module")
def right():
    return sbc(PROBLEM, exact(), simulations=120, progress=False)


def test_ranks_are_uniform_where_the_posterior_is_exact(right):
    assert right.names[-2:] == ("s", "log likelihood")
    assert all(right.is_uniform(name, 0.001) for name in right.names)
    assert np.mean([right.is_uniform(name) for name in right.names]) > 0.8
    for p in (0.5, 0.8, 0.95):
        assert abs(right.coverage(p, ["s"]).share - p) < 4 * np.sqrt(p * (1 - p) / 120)
    assert np.all(np.abs(right.bias) < 4 / np.sqrt(120))
    assert 0 < right.contraction[right.column("s")] < 1
    assert "120 simulations" in str(right)


@pytest.mark.parametrize(("scale", "direction"), [(0.6, "narrow"), pytest.param(1.8, "wide", marks=pytest.mark.slow)])
def test_a_wrong_likelihood_shows(scale, direction):
    found = sbc(PROBLEM, exact(scale), simulations=120, progress=False)
    assert not found.is_uniform("log likelihood", 0.001)
    fields = [name for name in found.names if name.startswith("u at")]
    share = found.coverage(0.8, fields).share
    assert share < 0.75 if direction == "narrow" else share > 0.85
    assert "off" in str(found)


@pytest.mark.slow
def test_a_bias_shows():
    found = sbc(PROBLEM, exact(shift=0.5), simulations=120, progress=False)
    assert not found.is_uniform("s")
    assert abs(found.bias[found.column("s")]) > 0.3


def test_readings_are_simulated_from_the_prior():
    """Over many data sets readings have the prior's variance and that of their noise."""
    values = np.array([np.concatenate([r.values for r in simulate(PROBLEM, s)[0].readings]) for s in range(200)])
    expected = np.diag(DESIGN @ DESIGN.T) * NOISE**2 + NOISE**2
    ratio = values.var(axis=0) / expected
    assert np.all(np.abs(ratio - 1) < 5 * np.sqrt(2 / 200))


def test_inferred_noise_and_heavy_tails_are_simulated_too():
    problem = bp.Problem(
        {"x": (0.0, 1.0)},
        {"u": bp.KarhunenLoeve(bp.SquaredExponential(0.4), terms=2)},
        {"u": bp.Sensors("u", {"x": np.zeros(2000)}, 0.0, dist.HalfNormal(1.0), "student_t", 5.0)},
    )
    simulated, z = simulate(problem, 3)
    posterior = bp.Posterior(problem)
    sigma = float(np.asarray(posterior.model.functionals(z, posterior.data))[-1])
    residual = simulated.readings[0].values - float(np.asarray(posterior.model.predicted(z, posterior.data)[0])[0])
    assert stats.kstest(residual / sigma, stats.t(5.0).cdf).pvalue > 0.001


def test_bands_hold_all_ranks_as_often_as_they_say():
    rng = np.random.default_rng(5)
    names = tuple(f"q{i}" for i in range(200))
    truths, draws = rng.standard_normal((100, 200)), rng.standard_normal((100, 49, 200))
    found = Calibration(names, truths, draws, ("good",) * 100)
    outside = np.mean([not found.is_uniform(name) for name in names])
    assert 0.01 < outside < 0.1  # 5%
    points, low, high = found.band()
    ecdf = np.mean(found.pit[:, None, :] <= points[:, None], axis=0)
    beyond = np.any((ecdf < low[:, None]) | (ecdf > high[:, None]), axis=0)
    assert abs(np.mean(beyond) - outside) < 0.03


def test_scores_against_closed_forms():
    rng = np.random.default_rng(0)
    draws, truth = rng.standard_normal((3, 20000)), np.array([0.0, 1.0, -2.0])
    expected = truth * (2 * stats.norm.cdf(truth) - 1) + 2 * stats.norm.pdf(truth) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(crps(draws, truth), expected, atol=0.02)
    score = interval_score(np.array([-1.0]), np.array([1.0]), np.array([1.5]), 0.9)
    np.testing.assert_allclose(score, 2 + 20 * 0.5)


def test_scores_of_a_calibration_are_means_over_simulations():
    """Of standard normal posteriors, of which the second is 100 sds off."""
    grid = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    draws = np.broadcast_to(grid[None, :, None], (2, 20_000, 1))
    found = Calibration(("k",), np.array([[0.0], [100.0]]), draws, ("good", "bad"))
    for p in (0.5, 0.8, 0.95):
        half = stats.norm.ppf(0.5 + p / 2)
        np.testing.assert_allclose(found.sharpness(p), 2 * half, rtol=1e-3)
        np.testing.assert_allclose(found.interval_score(p), 2 * half + (100 - half) / (1 - p), rtol=1e-3)
    for asked in (found.sharpness, found.interval_score, found.coverage):
        with pytest.raises(bp.InputError, match="p must lie between 0 and 1"):
            asked(95)


def test_shares_are_shown_with_what_chance_makes_of_them():
    truths, draws = np.linspace(-2, 2, 120)[:, None], np.tile(np.linspace(-2, 2, 99), (120, 1))[..., None]
    found = Calibration(("k",), truths, draws, ("good",) * 120)
    share = found.coverage(0.5)
    ends = stats.binomtest(round(120 * share.share), 120).proportion_ci(method="exact")
    np.testing.assert_allclose([share.low, share.high], ends)
    assert f"{share.share:.0%} ({100 * ends.low:.0f}–{100 * ends.high:.0f})" in str(found)
    assert share.is_right


@pytest.mark.parametrize("cores", [2, 8])  # one at a time, and four at once
def test_simulations_go_on_where_they_were_stopped(cores, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bpinn.engine.scheduler.os.sched_getaffinity", lambda _: {2, 3})
    method = bp.HMC(num_warmup=30, num_draws=40, num_leapfrog=4, chains=2)
    arguments = {"simulations": 12, "draws": 19, "progress": False}
    expected = sbc(PROBLEM, method, **arguments)
    monkeypatch.setattr("bpinn.engine.scheduler.os.sched_getaffinity", lambda _: set(range(cores)))
    with monkeypatch.context() as patched:
        real, count = simulations.infer, iter(range(5))

        def infer(*a, **k):
            if next(count, None) is None:
                raise KeyboardInterrupt
            return real(*a, **k)

        patched.setattr(simulations, "infer", infer)
        with pytest.raises(KeyboardInterrupt):
            sbc(PROBLEM, method, out=tmp_path / "sbc", **arguments)
    done = len(list((tmp_path / "sbc").glob("simulation-*.npz")))
    assert done == 5 if cores == 2 else 1 <= done <= 5
    found = sbc(PROBLEM, method, out=tmp_path / "sbc", **arguments)
    np.testing.assert_array_equal(found.draws, expected.draws)
    np.testing.assert_array_equal(found.truths, expected.truths)
    np.testing.assert_array_equal(found.verdicts, expected.verdicts)
    (tmp_path / "sbc" / "simulation-3.npz").write_bytes(b"PK")
    np.savez(tmp_path / "sbc" / "simulation-4.npz", truth=np.zeros(2))
    np.testing.assert_array_equal(sbc(PROBLEM, method, out=tmp_path / "sbc", **arguments).draws, expected.draws)
    assert capsys.readouterr().err.count("the simulation is repeated") == 2
    with pytest.raises(bp.InputError, match="holds a different run"):
        sbc(PROBLEM, bp.HMC(num_warmup=30, num_draws=41, num_leapfrog=4), out=tmp_path / "sbc", **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"problem": "p"}, "expected a bp.Problem with sensors"),
        ({"method": bp.PINN()}, "a single solution has no error bars"),
        ({"method": "hmc"}, "expected a method such as bp.HMC"),
        ({"simulations": 3}, "simulations must be a whole number of at least 10"),
        ({"method": exact(draws=20), "draws": 50}, "the method gives 20 draws"),
    ],
)
def test_wrong_input(arguments, words):
    with pytest.raises(bp.InputError, match=words):
        sbc(**{"problem": PROBLEM, "progress": False, **arguments})


def test_the_figure_has_a_panel_for_each(right):
    figure = bp.plot.calibration(right)
    titles = [ax.get_title() for ax in figure.axes]
    assert "log likelihood" in titles
    with pytest.raises(bp.InputError, match="'v' is not among"):
        bp.plot.calibration(right, ["v"])


@pytest.mark.parametrize(("width", "first"), [(0.5, 1), (2.0, -1)])
def test_the_line_of_error_bars_too_narrow_rises_first_and_of_too_wide_falls(width, first):
    """As the figure's help says that it is to be read."""
    rng = np.random.default_rng(0)
    draws = width * rng.standard_normal((400, 99, 1))
    (ax,) = bp.plot.calibration(Calibration(("k",), rng.standard_normal((400, 1)), draws, ("good",) * 400)).axes[:1]
    rank, above = ax.lines[0].get_data()
    early, late = (np.mean(above[(rank > low) & (rank < low + 0.4)]) for low in (0.05, 0.55))
    assert np.sign(early) == first
    assert np.sign(late) == -first
