"""The verdict: healthy runs pass, each kind of illness is named."""

import numpy as np
import pytest

from bpinn.diagnostics import diagnose, ess_of, rhat_of

NAMES = ["u at x=0", "k", "f at x=0"]
EQUATIONS = np.array([False, False, True])


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
    return diagnose(NAMES, functionals, stats, EQUATIONS)


@pytest.mark.parametrize("seed", range(20))
def test_independent_draws_are_good(seed):
    health = judge(*healthy(seed=seed))
    assert health.verdict == "good"
    assert "4 chains agree" in str(health)


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
    stats["divergent"][:, :50] = True


def few_divergent(functionals, stats):
    stats["divergent"][:, :8] = True


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
        (divergent, "bad", "200 divergent transitions"),
        (few_divergent, "care", "32 divergent transitions"),
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
