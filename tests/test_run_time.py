"""How long a run will take, by what a pilot measured; nothing here depends on the time that a test takes."""

from dataclasses import replace

import pytest

import bpinn as bp
from bpinn import run_time
from bpinn.methods.collapsed import LEAST_DRAWS
from bpinn.pilot import Pilot
from bpinn.problem_file import read_problem
from bpinn.templates import write_template

# Two chains at once: 350 steps of warm-up in 2 s, then 200 draws in 1 s, of which 120 of 400 are effective.
SEEN = Pilot(
    chains=2, preparing=6.0, compiling=3.0, warming=2.0, warmed=350, is_warm=True, drawing=1.0, drawn=200, recent=0.005,
    ess=120.0,
)  # fmt: skip


def seconds(pilot, method=None, chains=4, is_kept=False):
    return run_time.seconds_of(pilot, bp.HMC() if method is None else method, chains, is_kept)[0]


def test_chains_beyond_those_that_run_at_once_wait_for_their_turn():
    drawn = 1.0 + 0.005 * (run_time.EFFECTIVE / 4 / run_time.WORTH - 200)
    assert seconds(SEEN) == pytest.approx(6.0 + 2 * (2.0 + drawn))
    assert seconds(replace(SEEN, chains=4, ess=240.0)) == pytest.approx(6.0 + 2.0 + drawn)


def test_a_run_ends_when_it_has_enough_effective_draws():
    def drawing(pilot, method=None):
        return (seconds(pilot, method) - 6.0) / 2 - 2.0

    known = run_time.KNOWN
    eighth = replace(SEEN, ess=(400 + known) / 8 - run_time.WORTH * known)  # one draw in eight
    assert drawing(eighth) == pytest.approx(1.0 + 0.005 * 1000)
    assert drawing(replace(eighth, recent=0.02)) == pytest.approx(1.0 + 0.02 * 1000)  # the later ones cost more
    assert drawing(replace(SEEN, ess=1.0)) == pytest.approx(1.0 + 0.005 * 1800)  # the most that it makes
    assert drawing(replace(SEEN, ess=1e4)) == pytest.approx(1.0)  # the least, 200
    assert drawing(replace(SEEN, ess=1e4), bp.Collapsed()) == pytest.approx(1.0 + 0.005 * (LEAST_DRAWS - 200))
    assert drawing(replace(SEEN, ess=1.0), bp.HMC(num_draws=300)) == pytest.approx(1.0 + 0.005 * 100)
    assert drawing(SEEN, bp.HMC(num_draws=100)) == pytest.approx(0.5)  # fewer than the pilot made
    assert drawing(replace(SEEN, ess=1.0, is_complete=True)) == pytest.approx(1.0)  # no hope: it ends early


def test_what_is_kept_in_the_cache_is_not_compiled_again():
    assert seconds(SEEN) - seconds(SEEN, is_kept=True) == pytest.approx(3.0)
    read = replace(SEEN, preparing=2.0, compiling=0.0)
    assert seconds(read) == pytest.approx(seconds(read, is_kept=True))
    assert seconds(replace(SEEN, compiling=9.0), is_kept=True) == pytest.approx(seconds(SEEN) - 6.0 + run_time.READ)


@pytest.mark.parametrize("method", [bp.HMC(), bp.HMC(num_warmup=1000), bp.NUTS(), bp.Collapsed(thin=3)], ids=str)
def test_a_warm_up_that_is_not_over_is_extrapolated(method):
    begun = Pilot(chains=2, preparing=1.0, compiling=0.0, warming=8.0, warmed=100, is_warm=False)
    found, spread = run_time.seconds_of(begun, method, 4, False)
    warmup = {"HMC(": run_time.WARMUP, "NUTS": run_time.WARMUP}.get(str(method)[:4], method.num_warmup)
    warmup = 1000 if method.num_warmup == 1000 else warmup
    steps = warmup + run_time.GROWN * method.thin * run_time.TYPICAL_DRAWS
    assert found == pytest.approx(1.0 + 2 * 0.08 * steps)
    assert spread == run_time.WIDE > run_time.seconds_of(SEEN, bp.HMC(), 4, False)[1]


def test_ranges_in_words():
    words = run_time.in_words
    assert words([8.2, 18.4]) == "8 to 18 s"
    assert words([1.04, 2.34]) == "1.0 to 2.3 s"
    assert words([51.0, 119.0]) == "51 to 120 s"
    assert words([100.0, 400.0]) == "1.7 to 7 min"
    assert words([4000.0, 16000.0]) == "1.1 to 4 h"


@pytest.fixture
def curve(tmp_path):
    write_template("curve", tmp_path / "curve")
    return read_problem(tmp_path / "curve")


def test_only_chains_that_are_understood_are_estimated(curve, monkeypatch):
    monkeypatch.setattr(run_time, "_gradient_microseconds", lambda _: 100.0)
    monkeypatch.setattr(run_time, "available_cores", lambda: 2)
    monkeypatch.setattr(run_time, "pilot", lambda posterior, method, seed, chains: replace(SEEN, chains=chains))
    facts = run_time.facts_of(curve)
    assert facts["between"] == [facts["seconds"] / run_time.SPREAD, facts["seconds"] * run_time.SPREAD]
    other = run_time.facts_of(replace(curve, stated=bp.VI()))
    assert other["seconds"] is other["between"] is None
