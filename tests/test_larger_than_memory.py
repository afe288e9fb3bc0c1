"""Readings larger than memory: what is made of them for a run is kept in files, and nothing else changes."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import bpinn as bp
from bpinn import arrays
from bpinn.posterior import Posterior

MEGABYTE = 2**20


def curve(count=20_000, **options):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 1.0, count)
    sensors = {
        "u": bp.Sensors("u", {"x": x}, np.sin(6 * x) + 0.3 * rng.standard_normal(count), 0.3),
        "v": bp.Sensors(bp.Average("u", over={"x": (0.9 * x, 0.9 * x + 0.1)}), values=x, noise=0.2 + x, **options),
    }
    return bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(5,))}, sensors)


@pytest.fixture
def small(monkeypatch):
    """From 10 kB on arrays are kept in files."""
    return lambda: monkeypatch.setattr(arrays, "LARGE", 10_000)


def file_pages():
    """Bytes of files that nobody else can open, mapped into this process."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "(deleted)" in line]
    return sum(int(end, 16) - int(start, 16) for start, end in (line[0].split("-") for line in lines))


@pytest.mark.parametrize("likelihood", ["normal", "student_t"])
def test_the_data_are_the_same_in_files(small, likelihood):
    posterior = Posterior(curve(likelihood=likelihood)).in_batches(700)
    before = file_pages()
    small()
    filed = Posterior(curve(likelihood=likelihood)).in_batches(700)
    assert file_pages() - before > 20_000 * 4 * 10  # of batches and of chunks: places, values, noise, weights
    assert jax.tree.structure(filed.data) == jax.tree.structure(posterior.data)
    for there, here in zip(jax.tree.leaves(filed.data), jax.tree.leaves(posterior.data), strict=True):
        assert (there.shape, there.dtype) == (here.shape, here.dtype)
        np.testing.assert_array_equal(there, here)
    z = posterior.sample_prior(jax.random.key(0), 1)[0]
    assert float(filed.log_density(z)) == float(posterior.log_density(z))


@pytest.mark.parametrize(
    "method",
    [
        bp.SGHMC(batch=500, steps=3, num_warmup=3, num_draws=4, init_steps=30, chains=1),
        bp.VI(batch=500, num_steps=30, num_draws=5, init_steps=30, chains=1),
        bp.PINN(batch=500, num_steps=30),
        bp.LastLayer(batch=500, num_steps=30, num_draws=5),
    ],
    ids=lambda method: type(method).__name__,
)
def test_draws_are_the_same(small, method):
    here = bp.infer(curve(), method, seed=0, chains=1, progress=False)
    small()
    np.testing.assert_array_equal(bp.infer(curve(), method, seed=0, chains=1, progress=False).z, here.z)


def test_files_go_with_their_arrays(small):
    small()
    gc.collect()
    before = file_pages()
    posterior = Posterior(curve())
    assert file_pages() > before
    del posterior
    gc.collect()
    assert file_pages() == before


PROGRAM = """
import sys, threading, time
import numpy as np
import bpinn as bp
from bpinn import arrays

arrays.LARGE = int(sys.argv[2])
x, values = (np.load(f"{sys.argv[1]}/{name}.npy", mmap_mode="r") for name in ("x", "values"))
most, at_work = 0, True

def watch():
    global most
    while at_work:
        with open("/proc/self/status") as file:
            most = max(most, *(int(line.split()[1]) for line in file if line.startswith("RssAnon")))
        time.sleep(0.02)

watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
field = bp.KarhunenLoeve(bp.Matern32(length=0.1), terms=40)
problem = bp.Problem({"x": (0.0, 1.0)}, {"u": field}, {"u": bp.Sensors("u", {"x": x}, values, 0.3)})
method = bp.SGHMC(batch=1000, steps=3, num_warmup=2, num_draws=4, init_steps=20, chains=1)
result = bp.infer(problem, method, seed=0, progress=False, cores=1)
at_work = False
watcher.join()
print(most // 1024, float(result.z.sum()))
"""


def megabytes_and_sum(folder, count, large):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 1.0, count).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "values.npy", np.sin(6 * x))
    command = [sys.executable, "-c", PROGRAM, str(folder), str(large)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ)
    assert done.returncode == 0, done.stderr
    megabytes, total = done.stdout.split()
    return int(megabytes), total


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
def test_memory_does_not_grow_with_the_readings(tmp_path):
    """Readings in a memory-mapped file whose basis takes 160 bytes each, as batches and again in chunks.

    Counted are the pages that the system could not drop: those of files it reads again when it needs them.
    """
    few, _ = megabytes_and_sum(tmp_path, 20_000, MEGABYTE)
    many, total = megabytes_and_sum(tmp_path, 200_000, MEGABYTE)
    in_memory, same = megabytes_and_sum(tmp_path, 200_000, 2**40)
    basis = 2 * 180_000 * 160 / MEGABYTE
    assert many - few < basis / 2
    assert in_memory - few > basis
    assert total == same
