"""What goes wrong around a run: memory, the clock, Ctrl-C in every phase. A sentence, and nothing complete is lost."""

import contextlib
import datetime
import signal
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.errors import JaxRuntimeError

import bpinn as bp
from bpinn import engine, inference
from bpinn.engine.stage_run import StageRun
from bpinn.run_folder import manifest

X = np.linspace(0.0, 1.0, 5)
PROBLEM = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}, {"u": bp.Sensors("u", {"x": X}, X, 0.1)})
METHOD = bp.HMC(num_warmup=60, num_draws=200, num_leapfrog=3, chains=2)


def infer(**options):
    return bp.infer(PROBLEM, METHOD, seed=0, progress=False, preview=False, **options)


@pytest.fixture(scope="module")
def whole():
    return infer()


def failing_after(blocks, error):
    """Before a block: the error, after so many blocks without it."""

    def hook(number, first):
        if number > blocks:
            raise error

    return hook


@pytest.mark.parametrize("error", [MemoryError(), JaxRuntimeError("RESOURCE_EXHAUSTED: allocating 9 bytes")])
def test_out_of_memory_is_said_and_what_is_done_is_kept(error, whole, tmp_path, blocks_of, before_each_block):
    blocks_of(20)
    with (
        before_each_block(failing_after(9, error)),
        pytest.raises(bp.InputError, match=r"out of memory; .*finished blocks are stored"),
    ):
        infer(out=tmp_path / "run", cores=1)
    assert list((tmp_path / "run").rglob("0*.npz"))
    np.testing.assert_array_equal(infer(out=tmp_path / "run").z, whole.z)


def test_other_errors_of_the_machine_are_not_taken_for_it(before_each_block):
    error = JaxRuntimeError("INTERNAL: something else")
    with before_each_block(failing_after(1, error)), pytest.raises(JaxRuntimeError, match="something else"):
        infer()


def test_the_clock_may_go_backwards(whole, tmp_path, monkeypatch):
    """Only logs and manifests say what time it is."""

    class Past(datetime.datetime):
        year_now = 2030

        @classmethod
        def now(cls, tz=None):
            cls.year_now -= 1
            return cls(cls.year_now, 1, 1)

    monkeypatch.setattr(manifest.datetime, "datetime", Past)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    np.testing.assert_array_equal(infer(out=tmp_path / "run").z, whole.z)
    np.testing.assert_array_equal(infer(out=tmp_path / "run").z, whole.z)


@pytest.mark.parametrize("blocks", [0, 1, 2, 4, 7, 11])
def test_ctrl_c_in_every_phase_and_on(blocks, whole, tmp_path, blocks_of, before_each_block):
    """While compiling, in warm-up, among the draws: going on gives the draws of a run that never stopped."""
    blocks_of(30)

    def interrupt(number, first):
        if number == blocks + 1:
            signal.raise_signal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else (
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            )

    with before_each_block(interrupt):
        try:
            stopped = infer(out=tmp_path / "run", cores=1)
        except KeyboardInterrupt:
            stopped = None
    assert (stopped is None) == (blocks < 5) or blocks == 7  # each chain's warm-up has 2 or 3 blocks
    if stopped is not None:
        done = stopped.z.shape[1]
        assert stopped.interrupted
        assert 0 < done < 200
        np.testing.assert_array_equal(stopped.z, whole.z[:, :done])
    np.testing.assert_array_equal(infer(out=tmp_path / "run").z, whole.z)


def interrupted_in(patch, owner, name):
    """Ctrl-C whenever a method is called, before it does what it does."""
    right = getattr(owner, name)

    def wrong(self):
        signal.raise_signal(signal.SIGINT)
        return right(self)

    patch.setattr(owner, name, wrong)


@pytest.mark.parametrize("in_folder", [False, True])
def test_ctrl_c_after_the_last_draw_loses_none(in_folder, whole, tmp_path, monkeypatch):
    out = tmp_path / "run" if in_folder else None
    with monkeypatch.context() as patch:
        interrupted_in(patch, StageRun, "gather")
        stopped = infer(out=out)
    assert stopped.interrupted
    np.testing.assert_array_equal(stopped.z, whole.z)
    np.testing.assert_array_equal(infer(out=out).z, whole.z)


@pytest.mark.parametrize("out", ["result.npz", "run"])
def test_ctrl_c_while_a_run_is_saved_waits_for_it(out, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted_in(patch, bp.Result, "diagnose")
        with pytest.raises(KeyboardInterrupt, match="the run was already finished; it is saved in"):
            infer(out=tmp_path / out)
    np.testing.assert_array_equal(bp.load(tmp_path / out).z, whole.z)


def test_a_second_ctrl_c_is_not_held(monkeypatch):
    def gather(self):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StageRun, "gather", gather)
    with pytest.raises(KeyboardInterrupt):
        infer()


def test_ctrl_c_while_the_result_is_saved(whole, tmp_path, monkeypatch):
    """The file is there whole or not at all; the draws are on the disk already."""
    with monkeypatch.context() as patch:
        patch.setattr("bpinn.run_folder.files.os.fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            whole.save(tmp_path / "result.npz")
    assert not list(tmp_path.iterdir())
    whole.save(tmp_path / "result.npz")
    np.testing.assert_array_equal(bp.load(tmp_path / "result.npz").z, whole.z)


class Unheard:
    """Ctrl-C where Python forgets it: in a callback, as JAX's of the garbage collector is one."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


class Swallowed:
    """The same where it cannot be told."""

    def __init__(self):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


FORGOTTEN = pytest.mark.parametrize("forget", [Unheard, Swallowed])


@FORGOTTEN
def test_ctrl_c_that_python_forgets_is_heard_after_the_block(forget, one_step_blocks):
    seen, after = [], []

    def report(progress):
        if seen and seen[-1] >= 100:
            after.append(progress)
            return
        seen.append(min(chain.done for chain in progress.chains))
        if seen[-1] >= 100:
            forget()

    stopped = bp.infer(PROBLEM, METHOD, seed=0, progress=report, cores=1)
    assert stopped.interrupted
    assert seen[-1] == 100
    assert len(after) < 4  # the blocks that were under way, and no more
    assert stopped.z.shape[1] in (40, 41)
    assert bp.infer(PROBLEM, METHOD, seed=0, progress=False).z.shape[1] == 200  # nothing of it is left


@FORGOTTEN
@pytest.mark.parametrize(("owner", "name"), [(StageRun, "compile"), (inference, "memory_of")])
def test_ctrl_c_that_python_forgets_before_the_first_step(owner, name, forget, monkeypatch):
    right = getattr(owner, name)

    def forgetful(*args):
        forget()
        return right(*args)

    monkeypatch.setattr(owner, name, forgetful)
    with pytest.raises(KeyboardInterrupt, match="stopped before the first step; nothing to keep"):
        infer()


@FORGOTTEN
def test_a_fit_that_python_forgets_to_stop_is_drawn_from(forget, one_step_blocks):
    seen = []

    def report(progress):
        seen.append(progress.stage)
        if len(seen) == 3:
            assert progress.stage == "fit"
            forget()

    stopped = bp.infer(PROBLEM, bp.VI(init="small", num_steps=100_000, num_draws=20), seed=0, progress=report)
    assert stopped.interrupted
    assert stopped.z.shape[1] == 20


def test_whoever_hears_ctrl_c_otherwise_hears_it_again_after_a_run():
    before = signal.getsignal(signal.SIGINT)
    infer()
    assert signal.getsignal(signal.SIGINT) is before


def test_compiled_programs_are_dropped_before_memory_mappings_run_out(monkeypatch, whole):
    """A process that infers many different problems would reach the limit, where XLA crashes; draws are the same."""
    cleared = []
    clear = jax.clear_caches
    monkeypatch.setattr(jax, "clear_caches", lambda: (cleared.append(True), clear()))
    infer()
    assert not cleared
    monkeypatch.setattr(engine, "MOST_MAPPINGS", 10)
    again = infer()
    assert cleared or not Path("/proc/self/maps").exists()
    np.testing.assert_array_equal(again.z, whole.z)
