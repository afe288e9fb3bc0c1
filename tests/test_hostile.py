"""Files that mean harm: nothing in them is run, and each ends in one sentence."""

import contextlib
import io
import json
import pickle
import shutil
import zipfile

import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.data_files import read_table
from bpinn.run_folder.files import read_arrays
from bpinn.run_folder.runs import open_run, start

SENSORS = {"u": bp.Sensors("u", {"x": [0.0, 1.0]}, [0.0, 1.0], noise=0.1)}
PROBLEM = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}, SENSORS, {"k": dist.Normal(0.0, 1.0)})


class Trap:
    """What would show that something was run."""

    sprung = False

    def __reduce__(self):
        return (setattr, (Trap, "sprung", True))


@pytest.fixture
def saved(tmp_path, prior_result):
    return prior_result(PROBLEM).save(tmp_path / "result.npz")


def changed(path, change):
    """The file with its description changed."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(str(arrays["about"]))
    change(about, arrays)
    arrays["about"] = np.array(json.dumps(about))
    np.savez(path, **arrays)
    return path


def put(*keys, value):
    def change(about, arrays):
        for key in keys[:-1]:
            about = about[key]
        about[keys[-1]] = value

    return change


def drop(*keys):
    def change(about, arrays):
        for key in keys[:-1]:
            about = about[key]
        del about[keys[-1]]

    return change


def set_array(name, value):
    return lambda about, arrays: arrays.__setitem__(name, value)


CHANGES = [
    put("method", "type", value="os"),
    put("method", "type", value="base"),
    put("method", "type", value="Method"),
    put("method", "type", value=["HMC"]),
    put("method", "chains", value="many"),
    put("method", "unheard_of", value=1),
    put("problem", "fields", "u", "type", value="getattr"),
    put("problem", "fields", "u", "hidden", value=[10**9]),
    put("problem", "fields", "u", "hidden", value="wide"),
    put("problem", "unknowns", "k", "type", value="__loader__"),
    put("problem", "unknowns", "k", "type", value="Unheard"),
    put("problem", "unknowns", "k", "parameters", value={"scale": -1}),
    put("problem", "domain", value=[]),
    put("problem", "domain", "x", value=[1, "a"]),
    put("problem", "sensors", "u", "at", value=["y"]),
    put("problem", "sensors", "u", "quantity", value={"function": "system", "arguments": ["u; rm"], "source": ""}),
    put("problem", value=None),
    put("format", value=99),
    put("seed", value={}),
    drop("problem", "sensors"),
    drop("method"),
    set_array("z", np.zeros((1, 4, 2), np.float32)),
    set_array("z", np.array("text")),
    set_array("functionals", np.zeros((1, 3, 1))),
    set_array("sensors/u/values", np.array([0.0, np.nan])),
    set_array("sensors/u/noise", np.array([-1.0, 0.0])),
]
# What would be seen only when something is asked of it.
LATER = [
    put("seconds", value="long"),
    put("seconds", value={"draws": "long"}),
    put("versions", value=3),
    put("versions", value={"jax": 3}),
    put("interrupted", value="no"),
    put("readings", value=[1]),
    put("readings", value=[["awful", "a reason", None]]),
    put("readings", value=[["bad", 5, None]]),
    lambda about, arrays: arrays.pop("stats/log_density"),
    set_array("stats/log_density", np.array([["low"] * 4])),
    set_array("stats/log_density", np.zeros((1, 3))),
    set_array("stats/acceptance", np.ones((1, 3))),
    set_array("history/elbo", np.zeros(4)),
    set_array("functionals", np.array([[["low"] * 12] * 4])),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_result_that_was_tampered_with_is_a_sentence(number, saved):
    path = changed(saved, CHANGES[number])
    with contextlib.suppress(bp.InputError):
        assert bp.load(path).summary().table.shape[0] == 1  # it is a result, if not the one that was saved


@pytest.mark.parametrize("number", range(len(LATER)))
def test_a_result_that_cannot_be_judged_is_not_loaded(number, saved):
    assert bp.load(saved).z.shape == (1, 4, 11)
    with pytest.raises(bp.InputError, match="damaged"):
        bp.load(changed(saved, LATER[number]))


def test_arrays_that_are_pickles_are_not_read(tmp_path, saved):
    np.savez(tmp_path / "pickled.npz", about=np.array([Trap()], object), functionals=np.zeros(1), z=np.zeros(1))
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Trap()))
    for name in ("pickled", "raw"):
        with pytest.raises(bp.InputError, match="damaged"):
            bp.load(tmp_path / f"{name}.npz")
        with pytest.raises(bp.InputError):
            read_table(tmp_path / f"{name}.npz")
    assert not Trap.sprung


def bomb(path, size):
    """An archive of few bytes that unpacks to many."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (size // 8,)})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.getvalue())
        for _ in range(size // 2**20):
            member.write(bytes(2**20))
    return path


def test_bombs_are_not_unpacked(tmp_path):
    path = bomb(tmp_path / "bomb.npz", 2**29)
    assert path.stat().st_size < 2**20
    for read in (bp.load, read_table, read_arrays):
        with pytest.raises(bp.InputError, match=r"would unpack to 0\.5 GiB"):
            read(path)


def test_a_header_that_lies_about_its_size(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**50,)})
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(64))
    with pytest.raises(bp.InputError, match="damaged"):
        read_arrays(tmp_path / "lie.npz")


def test_names_that_lead_out_of_an_archive_stay_names(tmp_path):
    """Members are read by name and never written anywhere."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    with zipfile.ZipFile(tmp_path / "names.npz", "w") as archive:
        archive.writestr("../../outside.npy", buffer.getvalue())
    assert list(read_arrays(tmp_path / "names.npz")) == ["../../outside"]
    assert not (tmp_path.parent.parent / "outside.npy").exists()


@pytest.fixture
def run(tmp_path):
    (tmp_path / "u.csv").write_text("x,value\n0,0\n1,1\n")
    (tmp_path / "p.toml").write_text(
        'title = "t"\n[domain]\nx = [0, 1]\n[fields.u]\nhidden = [3]\n'
        '[[sensors]]\nquantity = "u"\ndata = "u.csv"\nnoise = 0.1\n'
    )
    return start(tmp_path / "p.toml", tmp_path / "run").folder


def test_the_run_itself_is_fine(run):
    assert open_run(run).problem_file.title == "t"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("problem", "../../p.toml"),
        ("problem", "/etc/passwd"),
        ("hashes", {"../../../etc/passwd": "0"}),
        ("renamed", {"u.csv": "/etc/passwd"}),
        ("renamed", {"u.csv": "../../u.csv"}),
        ("renamed", ["u.csv"]),
        ("hashes", 3),
        ("problem", None),
        ("problem", ""),
        ("changes", 5),
        ("versions", "new"),
        ("inference", "run"),
    ],
)
def test_a_manifest_that_leads_elsewhere_is_refused(key, value, run):
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {key: value}))
    with pytest.raises(bp.InputError, match=r"outside its folder|damaged"):
        open_run(run)


@pytest.mark.parametrize("text", ["[" * 100_000, "3", '"format"', "{", "[]"])
def test_a_manifest_that_is_none_is_a_sentence(text, run):
    (run / "manifest.json").write_text(text)
    for read in (open_run, bp.load):
        with pytest.raises(bp.InputError, match="the file is damaged"):
            read(run)


def test_a_manifest_that_names_no_versions_is_enough(run):
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["versions"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "stage-0").mkdir()
    said = []
    open_run(run)._check_versions(said.append)
    assert "versions have changed" in said[0]


def test_a_link_in_place_of_the_data_is_seen(run):
    (run / "problem" / "u.csv").unlink()
    (run / "problem" / "u.csv").symlink_to("/etc/hostname")
    with pytest.raises(bp.InputError, match="has changed since the run was started"):
        open_run(run)


def test_a_file_where_a_folder_should_be(run):
    shutil.rmtree(run / "problem")
    (run / "problem").write_text("")
    with pytest.raises(bp.InputError, match="has changed"):
        open_run(run)
