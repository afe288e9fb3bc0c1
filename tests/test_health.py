"""Faults put into real runs, each of which the verdict must name; and healthy runs, which it must leave alone."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import bpinn as bp

SOURCE = Path(__file__).parent.parent / "verification" / "faults.py"
spec = importlib.util.spec_from_file_location("faults", SOURCE)
faults = sys.modules["faults"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faults)


def health(made, method=None, seed=0):
    return bp.infer(made, method or bp.HMC(), seed=seed, progress=False).diagnose()


@pytest.mark.usefixtures("optimized")
def test_healthy_runs_are_good():
    """False alarms are to be below two in a hundred: among eight, two have a probability of one in a hundred."""
    found = [faults.HEALTHY.health(seed) for seed in range(8)]
    assert sum(h.verdict != "good" for h in found) <= 1, [str(h) for h in found if h.verdict != "good"]


QUICKLY = ("stuck", "collapsed", "solutions", "NaN", "without effect", "too small")  # all of them by make verify


@pytest.mark.usefixtures("optimized")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, marks=() if any(word in fault.name for word in QUICKLY) else pytest.mark.slow, id=fault.name
        )
        for fault in faults.FAULTS
    ],
)
def test_each_fault_is_named_with_what_to_do(fault):
    found = fault.health(0)
    assert fault.is_named(found), found


def test_outliers_under_the_likelihood_for_them_are_no_fault():
    def change(u, f):
        return u + np.where(np.arange(len(u)) == 4, 8 * faults.NOISE, 0.0), f

    assert health(faults.problem(change=change)).verdict != "good"
    robust = faults.problem(change=change, likelihood="student_t", dof=4.0)
    for seed in range(3):
        found = health(robust, seed=seed)
        assert found.verdict == "good", found
        assert not any("restarted" in reason for reason in found.reasons), found


def test_exact_conditions_with_a_tolerance_are_no_fault():
    """Values that are all the same are a condition rather than readings: they may scatter as little as they like."""
    made = faults.problem()
    sensors = {**made.sensors, "g": bp.Sensors(lambda u_xx, u: 36 * u + u_xx, {"x": faults.X_F}, 0.0, 20.0)}
    made = bp.Problem(made.domain, made.fields, sensors, made.unknowns)
    assert health(made).verdict == "good"


def test_the_check_of_readings_is_kept_with_the_verdict():
    method = bp.VI(family="full-rank", num_steps=2000, init_steps=2000)
    result = bp.infer(faults.problem(), method, seed=0, progress=False)
    assert [group.name for group in result.diagnose().check.groups] == ["u", "f"]
    assert result.diagnose().check.fits


def test_what_was_found_of_readings_goes_with_a_file(tmp_path):
    """Without the equations it cannot be found again."""
    result = bp.infer(faults.problem(change=faults.outlier), bp.HMC(), seed=0, progress=False)
    again = bp.load(result.save(tmp_path / "r.npz"))
    assert again.diagnose().reasons == result.diagnose().reasons
    assert again.diagnose().verdict == result.diagnose().verdict != "good"


@pytest.mark.parametrize(("method", "draws"), [(bp.HMC(), 200), (bp.Collapsed(), 300)])
def test_a_run_in_which_nothing_fits_ends_early(method, draws):
    """The law is constant, the readings rise by a hundred times their noise."""
    t = np.linspace(0, 1, 15)
    problem = bp.Problem(
        {"t": (0.0, 1.0)},
        {"u": bp.KarhunenLoeve(bp.SquaredExponential(length=0.5), terms=8)},
        {"law": bp.Physics(lambda u_t: u_t, points=20, tolerance=0.01), "u": bp.Sensors("u", {"t": t}, t, noise=0.01)},
    )
    result = bp.infer(problem, method, seed=0, progress=False)
    assert result.z.shape[1] == draws
    health = result.diagnose()
    assert health.verdict == "bad"
    assert health.is_hopeless
    assert health.advice[0].startswith("check units")
    assert len(result.modes()) == 1
    assert "solution 1" not in str(result.summary())
