"""Files that version 0.1 wrote can be read, and its runs go on (see fixtures/0.1/make_fixtures.py)."""

import importlib.util
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bpinn as bp
from bpinn.cli import main

FOLDER = Path(__file__).parent / "fixtures" / "0.1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
ENDED = [name for name, facts in EXPECTED.items() if "z" in facts]


@pytest.fixture(scope="module")
def old():
    """The script that made the files, which has the problem and the equation."""
    spec = importlib.util.spec_from_file_location("make_fixtures", FOLDER / "make_fixtures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    """A copy of an unfinished run, and the blocks that are in it."""

    def make(name):
        folder = Path(shutil.copytree(FOLDER / name, tmp_path / name))
        return folder, blocks(folder)

    return make


def blocks(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.glob("stage-*/chain-*/0*.npz")}


@pytest.mark.parametrize("name", ENDED)
def test_results_are_read(name):
    result, expected = bp.load(FOLDER / name), EXPECTED[name]
    assert list(result.z.shape) == expected["z"]
    assert {history: list(values.shape) for history, values in result.history.items()} == expected["history"]
    assert set(expected["stats"]) <= set(result.stats)
    assert result.diagnose().verdict == expected["verdict"]
    if "log_evidence" in result.stats:  # that version gave all populations the same weight
        assert result.mixture is not result
        result = replace(result, stats=result.stats.select(lambda values: values[:, :1] * 0.0 + values[:1, :1]))
    for unknown in ("k", "noise_u"):
        assert result.draws(unknown).astype(float).mean() == pytest.approx(expected[unknown], rel=1e-12)
        assert result.summary().loc[unknown, "mean"] == pytest.approx(expected[unknown], rel=1e-12)
    assert result.predict("u", {"x": [-0.5, 0.0, 0.5]}).mean == pytest.approx(expected["u"], abs=1e-4)
    assert result.versions["bpinn"] == "0.1.0"


def test_the_problem_of_a_result_is_whole(old):
    loaded, stated = bp.load(FOLDER / "result.npz", {"reaction": old.reaction}), old.problem()
    assert repr(loaded.problem) == repr(stated)
    assert loaded.method == replace(old.METHOD, coordinates="plain")
    z = loaded.z[0, -1]
    assert float(bp.Posterior(loaded.problem).log_density(z)) == float(bp.Posterior(stated).log_density(z))
    assert loaded.predict("f", {"x": [0.1]}).draws.shape == (*loaded.z.shape[:2], 1)
    assert bp.load(FOLDER / "result.npz").problem.sensors["f"].quantity.__name__ == "reaction"


def test_the_program_knows_the_equations_of_its_runs():
    result = bp.load(FOLDER / "program-finished")
    assert result.predict("f", {"x": [0.1]}).draws.shape == (*result.z.shape[:2], 1)


@pytest.mark.parametrize("kind", ["python", "program"])
def test_an_unfinished_run_goes_on(kind, old, copy, monkeypatch):
    folder, before = copy(f"{kind}-killed")
    if kind == "python":  # whose problem version 0.1 did not store
        with pytest.raises(bp.InputError, match=r"unfinished and was started by version 0\.1; call bp\.infer"):
            bp.load(folder)
    else:
        with pytest.warns(bp.BpinnWarning, match="is unfinished: 10 draws of each chain so far; call `bpinn resume"):
            assert bp.load(folder).z.shape[1] == 10
    if kind == "python":
        old.infer(out=folder)
    else:
        monkeypatch.setattr(sys, "argv", ["bpinn", "resume", str(folder), "--no-report", "--quiet"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) in (0, 3)  # 3 is a verdict, not a failure
    resumed, finished = bp.load(folder), bp.load(FOLDER / f"{kind}-finished")
    assert resumed.z.shape == finished.z.shape
    assert np.all(np.isfinite(resumed.z))
    after = blocks(folder)
    assert len(after) > len(before)
    assert all(after[path] == content for path, content in before.items())
    # Draws after these depend on the processor's rounding, so they are not compared.
    for chain, done in enumerate(EXPECTED[f"{kind}-killed"]["done"]):
        stored = done - old.METHOD.num_warmup
        np.testing.assert_array_equal(resumed.z[chain, :stored], finished.z[chain, :stored])


def test_a_finished_run_is_not_run_again(old, tmp_path):
    folder = shutil.copytree(FOLDER / "python-finished", tmp_path / "run")
    before = blocks(folder)
    again = old.infer(out=folder)
    np.testing.assert_array_equal(again.z, bp.load(FOLDER / "python-finished").z)
    assert blocks(folder) == before
