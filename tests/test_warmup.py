"""The policy of HMC and NUTS, fed with numbers: when chains pause, and what is decided."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import bpinn as bp
from bpinn.methods import hamiltonian, warmup
from bpinn.methods.base import Pause
from bpinn.methods.warmup import Adjustment, HamiltonianPolicy, WarmupSettings
from bpinn.run_output import SamplerStats

NONE = np.zeros(3, bool)


def policy_of(num_warmup=None, num_draws=None, most_draws=2000, finds_length=True, anneals=True, settings=None):
    s = settings or warmup.SETTINGS["whitened"]
    steps = s.most_warmup if num_warmup is None else num_warmup
    most = most_draws if num_draws is None else num_draws
    return HamiltonianPolicy(
        s, steps, steps + most, anneals=anneals, finds_length=finds_length, adapts_warmup=num_warmup is None,
        adapts_draws=num_draws is None,
    )  # fmt: skip


def pauses(policy):
    found, done = [], 0
    while done < policy.num_steps and len(found) < 100:
        done = policy.next_pause(done)
        found.append(done)
    return found


def test_methods_state_their_policy():
    assert bp.HMC().stages()[-1].policy() == policy_of()
    given = bp.HMC(num_warmup=100, num_draws=10, num_leapfrog=5, init="prior").stages()[-1].policy()
    assert given == policy_of(100, 10, finds_length=False, anneals=False)
    assert not bp.NUTS().stages()[-1].policy().finds_length


def test_pauses_follow_from_the_settings():
    s = WarmupSettings()
    policy = policy_of()
    assert policy.tuning == s.least_warmup
    assert policy.last_annealed == int(s.annealed_share * s.least_warmup)
    found = pauses(policy)
    assert found[: s.pilots + 1] == [
        policy.first_look,
        *(s.least_warmup - i * policy.pilot for i in range(s.pilots - 1, -1, -1)),
    ]
    rounds = [p for p in found if s.least_warmup < p <= s.most_warmup]
    assert rounds == [*range(s.least_warmup + s.warmup_round, s.most_warmup + 1, s.warmup_round)]
    assert found[s.pilots + 1 + len(rounds)] == s.most_warmup + s.least_draws
    assert pauses(policy_of(100, 10, finds_length=False, anneals=False)) == [110]
    assert pauses(policy_of(100, 10, finds_length=False)) == [61, 110]  # the likelihood has its full weight at 60
    assert pauses(policy_of(20, 10)) == [13, 30]  # too short for pilots


def reviewed(step_sizes, done, **settings):
    """What a review of warm-up decides, of four chains that mix well."""
    functionals = np.random.default_rng(0).standard_normal((4, 50, 3))
    return policy_of(**settings).review(Pause(done, functionals, SamplerStats(step_size=step_sizes), NONE, 10))


def test_warm_up_goes_on_while_steps_shrink():
    level = np.full((4, 50), 1e-3)
    shrinking = level * np.exp(-np.linspace(0, 0.3, 50))
    assert reviewed(level, 350).warm
    assert not reviewed(shrinking, 350).warm
    alone = level.copy()
    alone[2] *= np.exp(-np.linspace(0, 0.6, 50))
    assert not reviewed(alone, 350).warm
    assert reviewed(shrinking, 600).warm  # it does not go on for ever
    assert not reviewed(level, 300).warm  # the length has just been set
    assert reviewed(1.5 * shrinking[:, ::-1], 350).warm  # steps that grow are no reason to wait


def test_no_chain_steps_farther_than_others():
    steps = np.array([1e-3, 2e-3, 4e-3, 8e-3])[:, None] * np.ones((4, 50))
    review = reviewed(steps, 350)
    assert review.adjustment.largest_step == pytest.approx((1 * 2 * 4 * 8) ** 0.25 * 1e-3)
    fixed = reviewed(steps, 350, num_warmup=350)
    assert fixed.adjustment.largest_step is None  # who sets the length of warm-up gets what was found by each chain


@pytest.mark.parametrize(("limit", "expected"), [(0.02, 0.02), (0.5, 0.1), (None, 0.1)])
def test_chains_take_what_a_review_says(limit, expected):
    """Longer trajectories; and steps no longer than the limit, where their own are not shorter anyway."""
    stage = bp.HMC().stages()[-1]
    own = stage._adapters()[0][0](0.1)._replace(log_step_size_avg=jnp.log(0.1))
    state = hamiltonian._State(None, own, None, None, None, jnp.int32(200))
    applied = stage.apply(state, Adjustment(1.5, limit))
    shorter = stage.apply(state, Adjustment(1.0, None, 0.5)).step_size.log_step_size_avg
    assert float(jnp.exp(shorter)) == pytest.approx(0.05, rel=1e-5)
    assert int(applied.length) == 300
    assert float(jnp.exp(applied.step_size.log_step_size_avg)) == pytest.approx(expected, rel=1e-5)


# --- what is mended after warm-up ---


def slowly(rho, chains=4, draws=200):
    """Draws of three functionals whose next one is so much like the last."""
    rng = np.random.default_rng(3)
    found = np.zeros((chains, draws, 3))
    found[:, 0] = rng.standard_normal((chains, 3))
    for i in range(1, draws):
        found[:, i] = rho * found[:, i - 1] + np.sqrt(1 - rho**2) * rng.standard_normal((chains, 3))
    return found


def looked_at(functionals, *, divergent=0.0, cost=100.0, **settings):
    shape = functionals.shape[:2]
    stats = {
        "gradients": np.full(shape, cost),
        "divergent": np.random.default_rng(0).uniform(size=shape) < divergent,
        "step_size": np.full(shape, 0.1),
    }
    return judged(policy_of(**settings), functionals, stats)


def judged(policy, functionals, stats):
    done = policy.num_warmup + functionals.shape[1]
    return policy.review(Pause(done, functionals, SamplerStats(stats), NONE, 10))


def test_trajectories_that_are_still_too_short_are_lengthened():
    assert looked_at(slowly(0.0)).enough
    slow = looked_at(slowly(0.97))
    assert not slow.enough
    assert 1.5 < slow.adjustment.length_factor <= 4
    assert slow.adjustment.largest_step is None
    assert slow.adjustment.step_factor == 1.0
    assert looked_at(slowly(0.6)).adjustment is None  # more draws will do
    assert looked_at(slowly(0.97, draws=250)).adjustment is None  # not at every review
    assert looked_at(slowly(0.97), finds_length=False).adjustment is None  # a length that was given stays
    assert not looked_at(slowly(0.97), finds_length=False).enough


def test_steps_that_are_too_long_for_some_places_are_shortened():
    review = looked_at(slowly(0.6), divergent=0.05)
    assert review.adjustment.step_factor == 0.75
    assert review.adjustment.length_factor == pytest.approx(1 / 0.75)  # as far as before
    assert looked_at(slowly(0.6, chains=1), divergent=0.005).adjustment is None  # one may happen


def test_mending_makes_no_run_longer():
    functionals = slowly(0.97, draws=600)
    stats = {"gradients": np.full((4, 600), 1000.0)}
    policy = policy_of(most_draws=1000)
    stats |= {"divergent": np.zeros((4, 600)), "step_size": np.full((4, 600), 0.1)}
    assert not judged(policy, functionals, stats).enough
    stats["gradients"][:, 200:] = 1700.0
    adjustment = judged(policy, functionals, stats).adjustment
    assert adjustment.length_factor == pytest.approx(
        120_000 / (50 * 1700)
    )  # what is left of a million is for the next 50
    stats["gradients"][:, 200:] = 3000.0
    assert judged(policy, functionals, stats).enough
    stats["gradients"] /= 10  # draws that cost little may go on: as many gradients as 300 a draw
    assert not judged(policy, functionals, stats).enough


def test_no_time_is_spent_where_nothing_fits():
    """Neither in warm-up nor on draws, unless the readings fit in one of the chains, or their noise is inferred."""
    shrinking = np.full((4, 50), 1e-3) * np.exp(-np.linspace(0, 0.3, 50))

    def decided(misfit, done):
        stats = SamplerStats(step_size=shrinking, misfit=np.asarray(misfit)[:, None] * np.ones((4, 50)))
        return policy_of().review(Pause(done, slowly(0.97, draws=50), stats, NONE, 10))

    far, one_fits, fits = [80.0, 40.0, 300.0, np.inf], [80.0, 1.1, 300.0, 40.0], [1.0, 1.1, 0.9, 1.0]
    assert decided(far, 350).warm
    assert decided(far, 300).adjustment.length_factor == 1.0
    for misfit in (one_fits, fits):
        assert not decided(misfit, 350).warm
        assert decided(misfit, 300).adjustment.length_factor > 1.5
    stats = {
        "gradients": np.full((4, 200), 100.0),
        "divergent": np.zeros((4, 200)),
        "step_size": np.full((4, 200), 0.1),
    }
    for misfit, enough in ((far, True), (one_fits, False)):
        stats["misfit"] = np.asarray(misfit)[:, None] * np.ones((4, 200))
        assert judged(policy_of(), slowly(0.97), stats).enough == enough


# --- chains that lose their way in warm-up ---


@pytest.mark.parametrize(
    ("log_densities", "dim", "lost"),
    [
        ([-3700, -3650, -16000, -3720], 2700, (2,)),
        ([-3700, -3650, -9000, -3720], 2700, ()),  # less than two a parameter below
        ([-30, -131, -129], 20, (1,)),
        ([-30, np.nan, -np.inf], 20, (1, 2)),
        ([np.nan, np.nan], 20, ()),  # there is nowhere better known
        ([-1e6], 20, ()),
    ],
)
def test_lost_chains_are_hopelessly_improbable(log_densities, dim, lost):
    policy = policy_of()
    stats = SamplerStats(log_density=np.array(log_densities, float)[:, None])
    pause = Pause(policy.first_look, np.zeros((len(log_densities), 1, 3)), stats, NONE, dim)
    assert policy.review(pause).lost == lost


def test_chains_are_compared_in_the_coordinates_that_they_move_in():
    """With other lengths, coefficients that fit as well have another plain density, by hundreds."""
    policy = policy_of()
    stats = SamplerStats(
        log_density=np.array([[254.0], [-600.0], [80.0]]), sampler_log_density=np.array([[-410.0], [-402.0], [-700.0]])
    )
    pause = Pause(policy.first_look, np.zeros((3, 1, 3)), stats, NONE, 20)
    assert policy.review(pause).lost == (2,)


def test_settings_change_what_is_decided():
    """No constant is hidden: a policy with other settings decides otherwise."""
    shrinking = np.full((4, 50), 1e-3) * np.exp(-np.linspace(0, 0.3, 50))
    assert not reviewed(shrinking, 350).warm
    assert reviewed(shrinking, 350, settings=replace(WarmupSettings(), shrinking=1.0, shrinking_any=1.0)).warm
    assert WarmupSettings() == warmup.SETTINGS["plain"]
    assert WarmupSettings() != warmup.SETTINGS["whitened"]
