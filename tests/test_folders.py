"""Runs from Python in a folder: they go on where they stopped, and the draws stay on the disk."""

import errno
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from test_sampling import make_problem

import bpinn as bp
from bpinn.run_folder import files as disk
from bpinn.run_folder import manifest

OPTIMIZED = True

METHOD = bp.HMC(num_warmup=40, num_draws=30, num_leapfrog=4)


class Killed(BaseException):
    pass


def infer(problem, out=None, method=METHOD, seed=1, **options):
    return bp.infer(problem, method, seed=seed, chains=2, progress=False, out=out, **options)


def test_a_run_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"
    expected = infer(problem)
    count, write_file = 0, disk.write_file

    def write(path, content):
        nonlocal count
        count += 1
        if count > 7:
            raise Killed
        write_file(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_file", write)
        with pytest.raises(Killed):
            infer(problem, folder)
    with pytest.raises(
        bp.InputError, match=r"is unfinished and has no draws yet; call bp\.infer\(\.\.\., out=\) again"
    ):
        bp.load(folder)
    result = infer(problem, folder)
    np.testing.assert_array_equal(result.z, expected.z)
    again = infer(problem, folder)  # it has ended: nothing is drawn
    np.testing.assert_array_equal(again.z, expected.z)
    assert again.seconds == result.seconds
    assert again.problem is problem
    loaded = bp.load(folder)
    np.testing.assert_array_equal(loaded.z, expected.z)
    np.testing.assert_array_equal(loaded.functionals, expected.functionals)


def test_draws_stay_on_the_disk(tmp_path):
    result = infer(make_problem(hidden=(4,)), tmp_path / "run")
    assert isinstance(result.z, np.memmap)
    assert isinstance(bp.load(tmp_path / "run").z, np.memmap)
    whole = result.save(tmp_path / "alone.npz")
    np.testing.assert_array_equal(bp.load(whole).z, result.z)


@pytest.mark.parametrize("method", [METHOD, bp.HMC(num_warmup=40, num_draws=50, keep=20, num_leapfrog=4)])
def test_what_is_on_the_disk_is_what_is_in_memory(method, tmp_path):
    problem = make_problem(hidden=(4,))
    held, kept = infer(problem, method=method), infer(problem, tmp_path / "run", method)
    np.testing.assert_array_equal(kept.z, held.z)
    assert kept.z.dtype == held.z.dtype
    at = {"x": np.linspace(-1, 1, 5)}
    np.testing.assert_array_equal(kept.predict("u", at).mean, held.predict("u", at).mean)


def test_another_run_is_refused(tmp_path):
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"
    infer(problem, folder)
    with pytest.raises(bp.InputError, match=r"holds a different run \(its seed differs\); give another folder"):
        infer(problem, folder, seed=2)
    with pytest.raises(bp.InputError, match=r"its problem and method differ"):
        infer(make_problem(hidden=(5,)), folder, bp.HMC(num_warmup=40, num_draws=31, num_leapfrog=4))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(bp.InputError, match="is not a run folder; give a new folder"):
        infer(problem, tmp_path / "other")
    (folder / "manifest.json").write_text("{")
    with pytest.raises(bp.InputError, match="the file is damaged"):
        infer(problem, folder)
    manifest.write_manifest(folder, {})
    with pytest.raises(bp.InputError, match="is a run of the command line; continue it with `bpinn resume"):
        infer(problem, folder)


def cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def flip(path):
    """One bit, in the middle; in an archive in the middle of its largest member, not in a time stamp."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            largest = max(archive.infolist(), key=lambda member: member.compress_size)
        names = sum(int.from_bytes(content[largest.header_offset + i :][:2], "little") for i in (26, 28))
        middle = largest.header_offset + 30 + names + largest.compress_size // 2
    content[middle] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["draws.npy", "result.npz"])
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_damaged_result_is_made_again_from_its_blocks(name, damage, tmp_path, capsys):
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"
    expected = np.array(infer(problem, folder).z)
    damage(folder / name)
    if (folder / "result.npz").exists():
        with pytest.raises(bp.InputError, match=rf"{name}.* damaged.*; call bp\.infer\(\.\.\., out=\) again"):
            bp.load(folder)
    np.testing.assert_array_equal(infer(problem, folder).z, expected)
    np.testing.assert_array_equal(bp.load(folder).z, expected)
    told = "it is rebuilt from the blocks of draws" in capsys.readouterr().err
    assert told == ((damage, name) != (Path.unlink, "result.npz"))


def test_a_damaged_result_without_blocks_is_said(tmp_path):
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"
    infer(problem, folder)
    shutil.rmtree(folder / "stage-0")
    flip(folder / "draws.npy")
    with pytest.raises(bp.InputError, match="its checksum is wrong"):
        infer(problem, folder)


def rewritten(path, change):
    arrays = disk.read_arrays(path)
    change(arrays)
    np.savez(path, **arrays)


def last_block(chain):
    return max(chain.glob("[0-9]*.npz"))


NONSENSE = {
    "a part of the state is missing": lambda chain: rewritten(chain / "state.npz", lambda a: a.pop("leaf0")),
    "a part has another form": lambda chain: rewritten(
        chain / "state.npz", lambda a: a.__setitem__("leaf0", np.zeros((2, 2)))
    ),
    "a part too many": lambda chain: rewritten(chain / "state.npz", lambda a: a.__setitem__("leaf99", np.zeros(2))),
    "a block of another problem": lambda chain: rewritten(
        last_block(chain), lambda a: a.__setitem__("z", np.zeros((3, 2)))
    ),
}


@pytest.mark.parametrize("damage", NONSENSE.values(), ids=list(NONSENSE))
def test_a_chain_that_makes_no_sense_is_refused_and_stays(damage, tmp_path):
    """Files are whole, so that another version or precision may have made them: none is removed."""
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"
    expected = infer(problem, folder)
    z = np.array(expected.z)
    (folder / "result.npz").unlink()
    chain = folder / "stage-0" / "chain-1"
    damage(chain)
    before = sorted(chain.iterdir())
    with pytest.raises(bp.InputError, match=r"chain-1: its .* remove the folder to rerun the chain"):
        infer(problem, folder)
    assert sorted(chain.iterdir()) == before
    shutil.rmtree(chain)
    again = infer(problem, folder)
    np.testing.assert_array_equal(again.z, z)
    np.testing.assert_array_equal(again.functionals, expected.functionals)


def test_a_block_that_does_not_say_what_it_has_is_drawn_again(tmp_path, capsys):
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"
    expected = np.array(infer(problem, folder).z)
    (folder / "result.npz").unlink()
    chain = folder / "stage-0" / "chain-1"
    rewritten(last_block(chain), lambda a: a.pop("follows"))
    np.savez(chain / "0x.npz", z=np.zeros(3))  # which is nobody's
    np.testing.assert_array_equal(infer(problem, folder).z, expected)
    assert "chain 1 is rerun from its start, which gives the same draws" in capsys.readouterr().err


def test_what_says_nothing_of_a_file_does_not_cost_its_chain(tmp_path, monkeypatch):
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"
    expected = np.array(infer(problem, folder).z)
    (folder / "result.npz").unlink()
    before = sorted((folder / "stage-0").rglob("*"))
    for error, words in ((MemoryError(), "out of memory"), (OSError(errno.EMFILE, "Too many open files"), "Too many")):
        with monkeypatch.context() as patched:
            patched.setattr(disk.np, "load", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
            with pytest.raises(bp.InputError, match=words):
                infer(problem, folder)
    assert sorted((folder / "stage-0").rglob("*")) == before
    np.testing.assert_array_equal(infer(problem, folder).z, expected)


@pytest.mark.parametrize(
    "method", [bp.VI(init="small", num_steps=1000, num_draws=20), bp.PINN(num_steps=600, polish=10)]
)
def test_a_fit_that_was_stopped_is_finished_when_it_goes_on(method, tmp_path, one_step_blocks):
    """What was drawn of it when it was stopped is not what the run has in the end."""
    problem, folder = make_problem(hidden=(4,)), tmp_path / "run"

    def stop(progress):
        if progress.stage == "fit" and sum(chain.done for chain in progress.chains) >= 3:
            raise KeyboardInterrupt

    expected = bp.infer(problem, method, seed=1, chains=2, progress=False)
    stopped = bp.infer(problem, method, seed=1, chains=2, progress=stop, out=folder)
    assert stopped.interrupted
    assert not np.array_equal(stopped.z, expected.z)
    np.testing.assert_array_equal(infer(problem, folder, method).z, expected.z)


def test_what_a_killed_process_leaves_is_no_hindrance(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    left = folder / ".manifest.json.0123abcd.part"
    left.write_text("{")
    infer(make_problem(hidden=(4,)), folder)
    assert not left.exists()


def test_a_folder_that_cannot_be_locked_is_a_sentence(tmp_path):
    (tmp_path / "run" / "lock").mkdir(parents=True)
    with pytest.raises(bp.InputError, match="cannot be written: Is a directory"):
        infer(make_problem(hidden=(4,)), tmp_path / "run")


# --- runs that are not finished can be opened ---


@pytest.fixture
def stopped(tmp_path, blocks_of):
    """A run that was stopped among its draws."""
    blocks_of(5)

    def stop(progress):
        if min(chain.done for chain in progress.chains) >= 40 + 12:
            raise KeyboardInterrupt

    problem, method = make_problem(hidden=(4,)), bp.HMC(num_warmup=40, num_draws=60, num_leapfrog=4)
    result = bp.infer(problem, method, seed=2, chains=2, progress=stop, out=tmp_path / "run")
    assert result.interrupted
    return tmp_path / "run", problem, method, result


def test_an_unfinished_run_can_be_opened(stopped):
    folder, problem, method, result = stopped
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "draws.npy"}
    (folder / "draws.npy").unlink()
    with pytest.warns(bp.BpinnWarning, match=r"is unfinished: \d+ draws of each chain so far; call bp\.infer"):
        opened = bp.load(folder)
    np.testing.assert_array_equal(opened.z, result.z)
    np.testing.assert_array_equal(opened.functionals, result.functionals)
    np.testing.assert_array_equal(opened.stats.log_density, result.stats.log_density)
    assert opened.interrupted
    assert opened.method == method
    assert opened.seed == 2
    assert "stopped early" in str(opened.summary())
    np.testing.assert_array_equal(opened.predict("u", {"x": [0.3]}).mean, result.predict("u", {"x": [0.3]}).mean)
    # nothing in the folder has changed, and the run goes on as if it had not been opened
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    whole = bp.infer(problem, method, seed=2, chains=2, progress=False)
    np.testing.assert_array_equal(bp.infer(problem, method, seed=2, chains=2, progress=False, out=folder).z, whole.z)
    np.testing.assert_array_equal(bp.load(folder).z, whole.z)


def test_an_unfinished_run_with_a_damaged_block_is_not_opened(stopped):
    folder = stopped[0]
    cut(sorted((folder / "stage-0" / "chain-1").glob("0*.npz"))[2])
    with pytest.raises(bp.InputError, match="the file is damaged"):
        bp.load(folder)


def test_a_run_whose_second_fit_has_only_begun_has_no_draws_yet(tmp_path, one_step_blocks):
    """Some chains are in the second of two fits, others not: there is nothing to open, and that is reported."""

    def stop(progress):
        if progress.stage == "polish" and progress.chains[0].done >= 1:
            raise KeyboardInterrupt

    method = bp.PINN(num_steps=200, polish=20, chains=3)
    bp.infer(make_problem(hidden=(4,)), method, seed=0, progress=stop, out=tmp_path / "run", cores=1)
    shutil.rmtree(tmp_path / "run" / "stage-1" / "chain-2", ignore_errors=True)
    with pytest.raises(bp.InputError, match="has no draws yet"):
        bp.load(tmp_path / "run")
