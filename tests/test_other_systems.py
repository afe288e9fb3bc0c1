"""Systems that lack what Linux has: modules and functions are taken away, and everything still runs."""

import importlib
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from test_sampling import make_problem

import bpinn as bp
from bpinn import native
from bpinn.engine import scheduler

WITHOUT = """
import sys
for missing in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[missing] = None  # importing it fails, as on Windows
import os
for missing in ("sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, missing):
        delattr(os, missing)  # as on macOS
import tempfile
import numpy as np
import bpinn as bp, bpinn.cli
problem = bp.Problem(
    domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=(4,))},
    sensors={"u": bp.Sensors("u", {"x": np.linspace(0, 1, 5)}, np.zeros(5), 0.1)},
)
method = bp.HMC(num_warmup=20, num_draws=8, num_leapfrog=3)
with tempfile.TemporaryDirectory() as folder:
    first = bp.infer(problem, method, seed=0, chains=2, progress=False, out=folder + "/run")
    again = bp.infer(problem, method, seed=0, chains=2, progress=False, out=folder + "/run")
    loaded = bp.load(folder + "/run")
assert first.z.shape == (2, 8, 13)
print("ran", float(np.sum(first.z)))
"""


def run_without(**environment):
    command = [sys.executable, "-c", WITHOUT]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | environment)


def test_it_runs_without_modules_of_unix():
    """A lock by flock is not to be had then; filelock has another, which is what Windows uses."""
    done = run_without(BPINN_NATIVE="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ran")


def test_cores_where_the_system_does_not_say_which_may_be_used(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert scheduler.available_cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert scheduler.available_cores() == 1


@pytest.mark.parametrize(("name", "value"), [("machine", "arm64"), ("machine", "aarch64"), ("system", "Windows")])
def test_the_native_kernel_is_left_out_where_it_cannot_be_had(monkeypatch, name, value):
    native.library.cache_clear()
    monkeypatch.setattr(native.platform, name, lambda: value)
    try:
        assert native.library() is None
        problem = make_problem(hidden=(4,))
        posterior = bp.Posterior(problem, native=True)
        z = posterior.sample_prior(jax.random.key(0), 1)[0]
        plain = bp.Posterior(problem).log_density(z)
        assert float(posterior.log_density(z)) == pytest.approx(float(plain), rel=1e-5)
    finally:
        monkeypatch.undo()
        native.library.cache_clear()


def test_files_are_written_where_folders_cannot_be_opened(monkeypatch, tmp_path):
    """Windows does not open a folder, so its name cannot be synced."""
    files = importlib.import_module("bpinn.run_folder.files")
    monkeypatch.setattr(files.os, "open", lambda *_: (_ for _ in ()).throw(PermissionError("a folder")))
    monkeypatch.setattr(files.os, "name", "nt")
    files.write_file(tmp_path / "a.npz", {"x": np.arange(3)})
    monkeypatch.undo()
    assert files.read_arrays(tmp_path / "a.npz")["x"].tolist() == [0, 1, 2]


def test_a_folder_is_held_by_one_process(tmp_path):
    from bpinn.run_folder.files import only_one

    held = pytest.raises(bp.InputError, match="another process is running in this folder")
    with only_one(tmp_path), held, only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass
