"""Blocks on disk: a run that is taken up again gives the draws of one that was never stopped, bit for bit."""

import errno
import itertools
import os
import shutil

import numpy as np
import pytest
from test_sampling import make_problem, straight_line

import bpinn as bp
from bpinn import engine
from bpinn.posterior import Posterior
from bpinn.run_folder import files as disk
from bpinn.run_folder.chains import Checkpoint
from bpinn.run_folder.files import only_one, write_file

METHODS = {
    "hmc": bp.HMC(num_warmup=40, num_draws=30, num_leapfrog=4),
    "hmc-open": bp.HMC(num_warmup=150),
    "hmc-found-warm-up": bp.HMC(num_draws=30, num_leapfrog=4),
    "hmc-map": bp.HMC(num_warmup=30, num_draws=20, num_leapfrog=4, init="map", init_steps=50),
    "hmc-diagonal": bp.HMC(num_warmup=60, num_draws=20, num_leapfrog=4, mass="diagonal"),
    "hmc-kept": bp.HMC(num_warmup=30, num_draws=60, num_leapfrog=2, keep=20),
    "collapsed": bp.Collapsed(num_warmup=100, num_draws=40),
    "nuts": bp.NUTS(num_warmup=30, num_draws=20, max_tree_depth=4),
    "vi": bp.VI(num_steps=300, num_draws=30),
    "flow": bp.Flow(layers=2, init="small", num_steps=60, num_draws=30),
    "pinn": bp.PINN(num_steps=200, polish=20),
    "dropout": bp.Dropout(num_steps=200, num_draws=30),
    "last-layer": bp.LastLayer(num_steps=200, num_draws=30),
    "laplace": bp.Laplace(num_steps=5, init_steps=200, num_draws=30),
    "ensemble": bp.Ensemble(members=6, num_steps=5),
    "svgd": bp.SVGD(particles=5, num_steps=30, init_steps=100),
    "ensemble-kalman": bp.EnsembleKalman(members=20),
    "sghmc": bp.SGHMC(batch=10, steps=3, num_warmup=10, num_draws=20, init_steps=100),
}


class Killed(BaseException):
    pass


def run(problem, method, folder=None, said=None, **options):
    warn = None if said is None else said.append
    checkpoint = None if folder is None else Checkpoint(folder, warn)
    return engine.run(Posterior(problem), method, seed=3, chains=2, checkpoint=checkpoint, **options)


def same(a, b):
    np.testing.assert_array_equal(a.z, b.z)
    np.testing.assert_array_equal(a.functionals, b.functionals)
    for part in ("stats", "history"):
        assert list(getattr(a, part)) == list(getattr(b, part))
        for name, values in getattr(a, part).items():
            np.testing.assert_array_equal(values, getattr(b, part)[name])


def killed_after(monkeypatch, problem, method, folder, writes):
    """Run until so many files have been written; the last one is left half done. False if the run ends before."""
    numbers = itertools.count(1)  # counts in several threads

    def write(path, content):
        if next(numbers) > writes:
            (path.parent / f".{path.name}xyz.part").write_bytes(b"half")
            raise Killed
        write_file(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_file", write)
        try:
            run(problem, method, folder)
        except Killed:
            return True
    return False


def written_by(monkeypatch, problem, method, folder):
    """The files that a run writes, in their order.

    On one core, where the first block of one chain has one step, and not of both: no run has fewer blocks.
    """
    paths = []
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_file", lambda path, content: (paths.append(path), write_file(path, content)))
        run(problem, method, folder, cores=1)
    return paths


LINEAR = ("hmc-open", "hmc-found-warm-up", "collapsed")  # methods that are tried on a straight line
LONG = ("hmc-kept", "hmc-map", "hmc-diagonal", "hmc-open", "nuts", "vi", "flow")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in METHODS])
def test_a_run_taken_up_is_the_run_never_stopped(name, tmp_path, monkeypatch, blocks_of):
    problem = straight_line() if name in LINEAR else make_problem(hidden=(4,))
    method = METHODS[name]
    blocks_of(13)
    expected = run(problem, method)
    (tmp_path / "whole").mkdir()
    written = written_by(monkeypatch, problem, method, tmp_path / "whole")
    kills = {1, *np.random.default_rng(0).integers(2, min(40, len(written)), 2)}
    if name == "hmc-found-warm-up":  # about where warm-up ends early, and after it
        warmup = method.stages()[-1].num_warmup
        ended = next(i for i, path in enumerate(written) if path.stem.isdigit() and int(path.stem) >= warmup)
        kills |= {ended, ended + 12}
        assert max(kills) < len(written)
    for writes in sorted(kills):
        folder = tmp_path / str(writes)
        folder.mkdir()
        assert killed_after(monkeypatch, problem, method, folder, writes)
        same(run(problem, method, folder), expected)
    same(run(problem, method, folder), expected)  # what is finished is read again


def test_a_run_stopped_again_and_again(tmp_path, monkeypatch, blocks_of):
    problem, method = straight_line(), METHODS["hmc-open"]
    blocks_of(100)
    expected = run(problem, method)
    kills = 0
    while killed_after(monkeypatch, problem, method, tmp_path, 7):
        kills += 1
        assert kills < 200
    assert kills >= 3  # at least 350 steps in blocks of 100, of two chains, with two files each
    same(run(problem, method, tmp_path), expected)


def test_a_damaged_block_is_said_and_made_again(tmp_path):
    problem, method = make_problem(hidden=(4,)), METHODS["hmc"]
    expected = run(problem, method, tmp_path)
    block = sorted((tmp_path / "stage-0" / "chain-1").glob("0*.npz"))[0]
    block.write_bytes(block.read_bytes()[:-200])
    said = []
    same(run(problem, method, tmp_path, said), expected)
    assert len(said) == 1
    assert "damaged" in said[0]
    assert "chain 1 is rerun" in said[0]
    block.unlink()
    same(run(problem, method, tmp_path, said), expected)
    assert "missing" in said[1]


def test_a_full_disk_is_said_and_what_was_written_stays(tmp_path, monkeypatch):
    problem, method = make_problem(hidden=(4,)), METHODS["hmc"]
    expected = run(problem, method)
    real, count = os.fsync, 0

    def full(handle):
        nonlocal count
        count += 1
        if count > 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(bp.InputError, match="the disk is full; earlier files are intact"):
            run(problem, method, tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    same(run(problem, method, tmp_path), expected)


def test_a_second_process_is_refused(tmp_path):
    with only_one(tmp_path), pytest.raises(bp.InputError, match="another process"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass


def test_ctrl_c_and_on(tmp_path, blocks_of):
    blocks_of(13)
    problem, method = make_problem(hidden=(4,)), bp.HMC(num_warmup=40, num_draws=200, num_leapfrog=4)
    expected = run(problem, method)

    def interrupt(progress):
        if min(chain.done for chain in progress.chains) > 80:
            raise KeyboardInterrupt

    stopped = run(problem, method, tmp_path, report=interrupt)
    assert stopped.interrupted
    assert 4 <= stopped.z.shape[1] < 200
    np.testing.assert_array_equal(stopped.z, expected.z[:, : stopped.z.shape[1]])
    same(run(problem, method, tmp_path), expected)


def test_a_copied_folder_goes_on_too(tmp_path, monkeypatch):
    problem, method = make_problem(hidden=(4,)), METHODS["hmc"]
    (tmp_path / "a").mkdir()
    assert killed_after(monkeypatch, problem, method, tmp_path / "a", 6)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    same(run(problem, method, tmp_path / "b"), run(problem, method))
