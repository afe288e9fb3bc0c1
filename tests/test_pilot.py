"""The first seconds of a run as a measurement; nothing here depends on the time that a test takes."""

import numpy as np
import pytest

import bpinn as bp
from bpinn import pilot as pilots
from bpinn.pilot import effective, pilot, spent
from bpinn.problem_file import read_problem
from bpinn.templates import write_template


def test_the_phases_of_a_pilot():
    still = spent([(0.1, 1), (4.0, 120)], 350)
    assert still == {"warming": 4.0, "warmed": 120, "is_warm": False}
    seen = [(0.1, 1), (3.0, 350), (4.0, 400), (5.0, 450), (8.0, 500), (11.0, 550)]
    assert spent(seen, 350) == pytest.approx(
        {"warming": 3.0, "warmed": 350, "is_warm": True, "drawing": 8.0, "drawn": 200, "recent": 0.06}
    )
    assert spent([(3.0, 350), (4.0, 400)], 350)["recent"] == pytest.approx(0.02)
    assert "recent" not in spent([(3.0, 350)], 350)


def test_the_worst_quantity_counts_and_equations_need_less():
    rng = np.random.default_rng(0)
    slow = np.repeat(rng.standard_normal((2, 50, 1)), 8, axis=1)  # 400 draws, about one in eight effective
    draws = np.concatenate([rng.standard_normal((2, 400, 1)), slow], axis=2)
    plain, of_equation = (effective(draws, np.array([False, equation])) for equation in (False, True))
    assert 30 < plain < 300
    assert of_equation == pytest.approx(4 * plain)


@pytest.fixture
def curve(tmp_path):
    write_template("curve", tmp_path / "curve")
    return read_problem(tmp_path / "curve")


def test_a_pilot_makes_the_draws_of_the_run_until_its_time_is_over(curve, monkeypatch):
    posterior, method = bp.Posterior(curve.problem), bp.HMC(num_warmup=40, num_draws=30, num_leapfrog=3)
    monkeypatch.setattr(pilots, "MOST", 1e9)
    monkeypatch.setattr(pilots, "ENOUGH", 1e9)
    whole = pilot(posterior, method, 0, 2)
    assert (whole.warmed, whole.drawn, whole.is_complete, whole.chains) == (40, 30, True, 2)
    same = bp.infer(curve.problem, method, seed=0, chains=2, progress=False)
    assert whole.ess == effective(same.functionals, same.monitor.is_secondary)
    monkeypatch.setattr(pilots, "MOST", 0.0)
    begun = pilot(posterior, method, 0, 2)
    assert begun.warmed < 40
    assert not begun.is_warm
    assert not begun.is_complete


def test_ctrl_c_stops_a_pilot(curve, monkeypatch):
    def stopped(*_, **__):
        raise pilots.interrupts.Stopped

    monkeypatch.setattr(pilots.engine, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        pilot(bp.Posterior(curve.problem), curve.method, 0, 2)
