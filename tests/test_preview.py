"""Previews: an approximate answer while chains are in warm-up, and in the place of draws that there are not yet."""

import io
import json
import re
import signal

import numpy as np
import numpyro.distributions as dist
import pytest
from typer.testing import CliRunner

import bpinn as bp
from bpinn import preview
from bpinn.cli import app
from bpinn.progress import Display

METHOD = bp.HMC(num_warmup=60, num_draws=40, num_leapfrog=6)


def line(noise=0.1):
    x = np.linspace(0, 1, 12)
    off = noise * np.random.default_rng(0).standard_normal(12)
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(4,))},
        unknowns={"k": dist.Normal(0.0, 1.0)},
        sensors={
            "u": bp.Sensors("u", {"x": x}, 2 * x - 1 + off, noise=noise),
            "slope": bp.Sensors(slope, {"x": x[::3]}, np.zeros(4), noise=0.1),
        },
    )


def slope(u_x, k):
    return u_x - k


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(preview, "STEPS", 400)


def infer(**given):
    return bp.infer(line(), METHOD, **{"seed": 0, "chains": 2, "progress": False} | given)


def ctrl_c(progress):
    raise KeyboardInterrupt


@pytest.fixture
def time_is_over(monkeypatch, before_each_block):
    """A function: a context in which the clock, which stands still, passes 100 s before a block from ``step`` on."""
    now = [0.0]
    monkeypatch.setattr(preview, "clock", lambda: now[0])

    def after(step):
        now[0] = 0.0

        def hook(number, first):
            if first >= step:
                now[0] = 101.0

        return before_each_block(hook)

    return after


def test_ctrl_c_in_warm_up_returns_a_preview(one_step_blocks, capsys):
    result = infer(progress=ctrl_c)
    assert isinstance(result.method, bp.LastLayer)
    assert result.interrupted
    assert "stopped in warm-up; a preview is returned" in capsys.readouterr().err
    health = result.diagnose()
    assert health.verdict != "good"
    assert "a preview: HMC was stopped" in str(health)
    assert abs(result.draws("k").mean() - 2.0) < 5 * result.draws("k").std()


def test_a_second_ctrl_c_stops_without_a_preview(one_step_blocks, monkeypatch):
    monkeypatch.setattr(preview, "STEPS", 10_000_000)

    def start(self, before=preview.Preview.start):
        before(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(preview.Preview, "start", start)
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        infer(progress=ctrl_c)


def test_without_a_preview_ctrl_c_is_raised(one_step_blocks):
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        infer(progress=ctrl_c, preview=False)


def test_a_fit_beside_the_chains_does_not_change_their_draws(one_step_blocks, monkeypatch):
    alone = infer()
    monkeypatch.setattr(preview, "AFTER_SECONDS", 0.0)
    stream = io.StringIO()
    beside = bp.infer(line(), METHOD, seed=0, chains=2, progress=Display(stream))
    np.testing.assert_array_equal(alone.z, beside.z)


def test_the_display_shows_the_preview_in_warm_up(one_step_blocks, monkeypatch):
    """The first chain's second block waits for the fit."""
    monkeypatch.setattr(preview, "AFTER_SECONDS", 0.0)
    watched = preview.Preview.start

    def start(self):
        watched(self)
        self.thread.join(600)

    monkeypatch.setattr(preview.Preview, "start", start)
    stream = io.StringIO()
    stream.isatty = lambda: True
    bp.infer(line(), METHOD, seed=0, chains=2, progress=Display(stream))
    shown = [text for text in stream.getvalue().split("\x1b[J") if "warm-up" in text]
    assert re.search(r"preview:  k [-\d.]+ ± [\d.]+", shown[-1])
    assert "preview:" not in stream.getvalue().split("\x1b[J")[-1]


def test_out_of_time_in_warm_up_gives_the_preview(blocks_of, time_is_over, capsys):
    blocks_of(5)
    with time_is_over(20):
        result = infer(within=100)
    assert isinstance(result.method, bp.LastLayer)
    assert "out of time in warm-up" in capsys.readouterr().err


def test_out_of_time_while_it_compiles_gives_the_preview(time_is_over):
    with time_is_over(0):
        result = infer(within=100)
    assert isinstance(result.method, bp.LastLayer)


def test_out_of_time_with_draws_gives_the_better_of_both(blocks_of, time_is_over, monkeypatch):
    """A few draws cannot be judged, and the fit is better than them; draws that are good enough are kept."""
    monkeypatch.setattr(preview, "STEPS", 4000)
    blocks_of(5)
    with time_is_over(65):
        assert isinstance(infer(within=100).method, bp.LastLayer)
    long = bp.HMC(num_warmup=300, num_draws=5000, num_leapfrog=12)
    blocks_of(100)
    with time_is_over(1500):
        result = bp.infer(line(), long, seed=0, chains=4, progress=False, within=100)
    assert isinstance(result.method, bp.HMC)
    assert result.interrupted
    assert 100 < result.z.shape[1] < 5000  # chains differ in how far they are


def test_time_that_is_not_over_changes_nothing(time_is_over):
    alone = infer()
    with time_is_over(10_000):
        timed = infer(within=100)
    np.testing.assert_array_equal(alone.z, timed.z)
    assert not timed.interrupted


def test_a_run_out_of_time_can_be_resumed(blocks_of, time_is_over, tmp_path):
    blocks_of(5)
    with time_is_over(20):
        infer(within=100, out=tmp_path / "run")
    np.testing.assert_array_equal(infer(out=tmp_path / "run").z, infer().z)


def test_a_fit_that_is_out_of_time_is_drawn_from(blocks_of, time_is_over):
    blocks_of(1)
    with time_is_over(3):
        result = bp.infer(line(), bp.VI(init="small", num_steps=1000, num_draws=30), seed=0, progress=False, within=100)
    assert isinstance(result.method, bp.VI)
    assert result.interrupted
    assert result.z.shape[1] == 30


def test_time_that_allows_nothing_is_said(time_is_over):
    with time_is_over(0), pytest.raises(bp.InputError, match=r"no draws yet after 100 s; give a larger within="):
        bp.infer(line(), bp.PINN(num_steps=1000), seed=0, progress=False, within=100)


def test_a_preview_is_saved_and_loaded_as_one(one_step_blocks, tmp_path):
    infer(progress=ctrl_c, out=tmp_path / "result.npz")
    loaded = bp.load(tmp_path / "result.npz")
    assert loaded.method.instead_of == "HMC"
    assert "a preview" in str(loaded.diagnose())


@pytest.mark.parametrize("within", [0, -1, np.nan, np.inf, "60", True])
def test_a_wrong_time_is_refused(within):
    with pytest.raises(bp.InputError, match=r"infer: within must be a positive number of seconds, got"):
        infer(within=within)


@pytest.fixture
def problem_file(tmp_path):
    CliRunner().invoke(app, ["new", str(tmp_path / "line"), "--template", "curve"])
    return tmp_path / "line" / "problem.toml"


def test_the_program_stops_in_time_and_resumes(problem_file, time_is_over, blocks_of):
    blocks_of(5)
    given = ["run", str(problem_file), "--json", "--within", "100", "--no-report"]
    given += ["--set", "inference.num_warmup=60", "--set", "inference.num_draws=40"]
    with time_is_over(20):
        ended = CliRunner().invoke(app, given)
    assert ended.exit_code in (0, 3), ended.output
    told = json.loads(ended.stdout)
    assert told["preview"]
    assert told["interrupted"]
    assert re.search("stopped after 100 s; .* is kept; resume with: bpinn resume", ended.stderr)
    resumed = CliRunner().invoke(app, ["resume", str(problem_file.parent / "run"), "--json", "--no-report"])
    told = json.loads(resumed.stdout)
    assert not told["preview"]
    assert not told["interrupted"]


def test_the_program_refuses_a_wrong_time(problem_file):
    ended = CliRunner().invoke(app, ["run", str(problem_file), "--within", "0"])
    assert "--within must be a positive number of seconds" in str(ended.exception)
    assert not (problem_file.parent / "run").exists()
