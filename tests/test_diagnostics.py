"""The verdict: healthy runs pass, each kind of illness is named."""

import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.convergence import branches, enough, ess_of, rhat_of, shortfall
from bpinn.diagnostics import diagnose_chains
from bpinn.monitor import Monitor
from bpinn.run_output import RunOutput, SamplerStats

NAMES = ["u at x=0", "k", "f at x=0"]
SECONDARY = np.array([False, False, True])


def healthy(chains=4, draws=1000, seed=0):
    rng = np.random.default_rng(seed)
    functionals = rng.standard_normal((chains, draws, 3))
    stats = {
        "log_density": rng.standard_normal((chains, draws)),
        "acceptance": np.full((chains, draws), 0.8),
        "divergent": np.zeros((chains, draws), bool),
        "step_size": np.full((chains, draws), 0.01),
    }
    return functionals, stats


def judge(functionals, stats):
    return diagnose_chains(RunOutput(tuple(NAMES), SECONDARY, functionals, SamplerStats(stats), {}))


@pytest.mark.parametrize("seed", range(20))
def test_independent_draws_are_good(seed):
    health = judge(*healthy(seed=seed))
    assert health.verdict == "good"
    assert "4 chains agree" in str(health)


def test_where_nothing_fits_the_model_is_to_blame_and_not_the_sampler():
    functionals, stats = healthy(draws=200)
    functionals[:] = np.arange(4.0)[:, None, None] + 1e-12 * functionals  # four chains that are stuck
    stats["misfit"] = np.full((4, 200), 400.0)
    health = judge(functionals, stats)
    assert health.is_hopeless
    assert health.verdict == "bad"
    assert health.branches == ()
    assert "20 times their noise" in health.reasons[0]
    assert health.advice[0].startswith("check units")
    stats["misfit"][1, -50:] = 200.0  # one chain still approaches a fit
    assert not judge(functionals, stats).is_hopeless
    stats["misfit"][1] = 400.0
    assert judge(functionals, stats).is_hopeless
    stats["misfit"][2] = 1.0  # one chain fits
    assert not judge(functionals, stats).is_hopeless


def slow(functionals, stats):
    rng = np.random.default_rng(1)
    functionals[..., 1] = np.cumsum(rng.standard_normal(functionals.shape[:2]), axis=1)


def stuck(functionals, stats):
    functionals[2] = functionals[2, :1]


def elsewhere(functionals, stats):
    functionals[3] += 5.0


def broken(functionals, stats):
    functionals[0, 10, 0] = np.nan


def divergent(functionals, stats):
    stats["divergent"][:, :150] = True


def few_divergent(functionals, stats):
    stats["divergent"][:, :40] = True


def rejecting(functionals, stats):
    stats["acceptance"][1] = 0.02


def collapsed(functionals, stats):
    stats["step_size"][1] = 1e-7


def shifted_equation(functionals, stats):
    functionals[..., 2] += 0.35 * np.arange(4)[:, None] / 3


@pytest.mark.parametrize(
    ("fault", "verdict", "words"),
    [
        (slow, "bad", "effective draws of k"),
        (stuck, "bad", "chain 2 never moved"),
        (elsewhere, "bad", "chains disagree"),
        (broken, "bad", "NaN or infinite"),
        (divergent, "bad", "600 divergent transitions"),
        (few_divergent, "care", "160 divergent transitions"),
        (rejecting, "bad", "chain 1 accepts only 2%"),
        (collapsed, "bad", "step size of chain 1 collapsed"),
        (shifted_equation, "good", "chains agree"),
    ],
)
def test_faults_are_named(fault, verdict, words):
    functionals, stats = healthy()
    fault(functionals, stats)
    health = judge(functionals, stats)
    assert health.verdict == verdict
    assert words in str(health)
    assert bool(health.advice) == (verdict != "good")


def test_a_single_chain_is_taken_with_care():
    functionals, stats = healthy(chains=1, draws=4000)
    health = judge(functionals, stats)
    assert health.verdict == "care"
    assert "single chain" in str(health)


def test_rhat_and_ess_of_frozen_draws():
    frozen = np.zeros((2, 100, 1))
    assert rhat_of(frozen) == np.inf
    assert ess_of(frozen) == 0


def test_ess_of_an_autoregression():
    """x_t = a x_{t-1} + e has ESS n (1 - a) / (1 + a)."""
    rng, a, n = np.random.default_rng(0), 0.9, 20_000
    x = np.zeros((4, n))
    for t in range(1, n):
        x[:, t] = a * x[:, t - 1] + rng.standard_normal(4)
    assert ess_of(x[..., None])[0] == pytest.approx(4 * n * (1 - a) / (1 + a), rel=0.1)


# --- solutions that chains do not leave ---


def apart(distance=20.0, chains=(2,)):
    functionals, stats = healthy()
    functionals[list(chains), :, 0] += distance
    return functionals, stats


def test_chains_that_overlap_are_on_one_solution():
    functionals, _ = healthy()
    assert branches(functionals, SECONDARY) == ((0, 1, 2, 3),)
    functionals[3, :, 1] += 3.0  # far, but with values in common
    assert branches(functionals, SECONDARY) == ((0, 1, 2, 3),)


def test_solutions_are_told_apart_and_judged_alone():
    functionals, stats = apart()
    stats["log_density"][2] -= 50.0
    health = judge(functionals, stats)
    assert health.branches == ((0, 1, 3), (2,))
    assert health.verdict == "bad"
    assert "1 of 4 chains found another solution (chain 2): they differ most in " in str(health)
    assert "mean log density -50 against " in str(health)
    assert "disagree" not in str(health)  # those on the same solution agree


def test_an_equation_alone_does_not_make_a_solution():
    functionals, _ = healthy()
    functionals[2, :, 2] += 20.0
    assert len(branches(functionals, SECONDARY)) == 1


def test_a_chain_on_its_way_is_not_on_another_solution():
    functionals, _ = healthy()
    functionals[2, :, 0] = 30.0 - 20.0 * np.linspace(0, 1, 1000)
    assert len(branches(functionals, SECONDARY)) == 1


def test_chains_joined_by_a_third_are_on_one_solution():
    functionals, _ = healthy(draws=100)
    functionals[..., 0] = 0.1 * functionals[..., 0] + np.linspace(0, 1, 100)[None]
    functionals[1, :, 0] += 0.9
    functionals[2, :, 0] += 1.8
    assert branches(functionals, SECONDARY)[0] == (0, 1, 2, 3)


# --- when to stop, and how long trajectories should be ---


def autoregression(rho, chains=4, draws=1000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((chains, draws, 3))
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x


def test_independent_draws_are_enough_and_few_are_not():
    assert enough(healthy()[0], SECONDARY)
    assert not enough(healthy(draws=90)[0], SECONDARY)  # 360 draws in all
    assert not enough(autoregression(0.9), SECONDARY)  # worth 4000 / 19


def test_less_is_asked_of_equations():
    functionals = healthy()[0]
    functionals[..., 2] = autoregression(0.9)[..., 2]
    assert enough(functionals, SECONDARY)
    functionals[..., 1] = functionals[..., 2]
    assert not enough(functionals, SECONDARY)


def test_solutions_apart_do_not_keep_a_run_going_but_chains_that_disagree_do():
    assert enough(apart()[0], SECONDARY)
    assert not enough(apart(distance=1.0)[0], SECONDARY)
    wandering = apart()[0]
    wandering[2, :, 1] = np.cumsum(np.random.default_rng(0).standard_normal(1000))
    assert enough(wandering, SECONDARY)  # it is alone, and no draws would make the run good
    pairs = apart(chains=(2, 3))[0]
    assert enough(pairs, SECONDARY)
    pairs[3, :, 1] = wandering[2, :, 1]
    assert not enough(pairs, SECONDARY)  # it shares a solution with another


def test_broken_draws_are_never_enough():
    functionals = healthy()[0]
    functionals[1, 5, 0] = np.inf
    assert not enough(functionals, SECONDARY)


def test_the_shortfall_is_what_a_draw_lacks():
    """In the units of WORTH = 0.22: an autoregression is worth (1 - rho) / (1 + rho) of a draw."""
    unit = np.array([False, False, False])
    assert shortfall(autoregression(0.0, draws=5000), unit) == pytest.approx(0.22, rel=0.15)
    assert shortfall(autoregression(0.9, draws=20_000), unit) == pytest.approx(0.22 * 19, rel=0.15)
    assert shortfall(autoregression(0.9, draws=20_000), ~unit) == pytest.approx(0.11 * 19, rel=0.15)
    assert shortfall(autoregression(0.0, draws=40), unit) < 1.0 < 3 < shortfall(autoregression(0.98, draws=40), unit)


def test_what_never_moves_says_nothing_of_trajectories():
    functionals = autoregression(0.0, draws=200)
    functionals[..., 1] = 3.0
    assert shortfall(functionals, SECONDARY) < 1.0


def test_scales_of_fields_are_secondary_and_noise_and_unknowns_are_not():
    """Like equations; chains that mix slowly in a length alone are good, and bad if they are apart in it."""
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.GaussianProcess()},
        unknowns={"k": dist.Normal(0.0, 1.0)},
        sensors={"f": bp.Sensors(lambda u_x, k: u_x + k, {"x": [0.1, 0.9]}, 0.0, dist.HalfNormal(1.0))},
    )
    monitor = Monitor(problem)
    secondary = [name for name, is_one in zip(monitor.names, monitor.is_secondary, strict=True) if is_one]
    assert secondary == ["f at x=0.1", "f at x=0.9", "length_u", "amplitude_u"]

    def verdict(of_length, of_unknown):
        """With offsets between chains."""
        functionals = np.random.default_rng(0).standard_normal((4, 500, len(monitor.names)))
        for name, size in (("length_u", of_length), ("k", of_unknown)):
            functionals[..., monitor.names.index(name)] += size * np.arange(4)[:, None]
        stats = SamplerStats({"log_density": functionals[..., 0]})
        return diagnose_chains(RunOutput(monitor.names, monitor.is_secondary, functionals, stats, {})).verdict

    assert [verdict(0.15, 0.0), verdict(0.0, 0.15), verdict(10.0, 0.0)] == ["good", "care", "bad"]
