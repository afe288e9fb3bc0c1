"""What may happen to a run on a cluster: workers and coordinators are killed, the scheduler is lost, a worker is slow or
computes differently. What was done is kept, and the draws are the same in the end."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from on_workers import METHOD, PROBLEM, infer, kill_one, pids, same, until_two

import bpinn as bp
from bpinn.cluster import connection, opened

pytest.importorskip("distributed")
KILLED = Path(__file__).with_name("killed_program.py")
DASK = [sys.executable, "-m", "dask"]
TOML = """
title = "Decay"
[domain]
t = [0, 1]
[fields.u]
surrogate = "mlp"
hidden = [4]
[unknowns]
k = { prior = "normal", mean = 1.0, sd = 0.5 }
[equations]
law = "u_t + k*u"
[[sensors]]
quantity = "u"
at = { t = [0.0, 0.5, 1.0] }
values = [1.0, 0.6, 0.4]
noise = 0.1
[[physics]]
equation = "law"
points = 5
tolerance = 0.1
[inference]
method = "hmc"
num_warmup = 30
num_draws = 40
num_leapfrog = 3
chains = 2
"""


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes for the whole module."""
    said = []
    with opened("local:2", said.append) as found:
        found.said = said
        yield found


@pytest.fixture(scope="module")
def here(cluster):
    """The run in threads of this process."""
    return bp.infer(PROBLEM, METHOD, seed=3, chains=3, progress=False)


def when(moment, act):
    """A progress function that acts once, when every chain has done so many steps; it notes that it has."""

    def watch(progress):
        if not watch.done and min(chain.done for chain in progress.chains) >= moment:
            watch.done = True
            act()

    watch.done = False
    return watch


def ended(processes, seconds):
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not alive


# --- workers ---


@pytest.mark.parametrize("stored", [False, True])
def test_a_killed_worker(cluster, here, tmp_path, blocks_of, stored):
    blocks_of(4)
    until_two(cluster)
    kill = when(36, lambda: kill_one(cluster))
    same(infer(cluster, progress=kill, out=tmp_path / "run" if stored else None), here)
    assert kill.done


def test_workers_that_come_later_are_admitted(cluster):
    """The one that Dask started for the killed one."""
    until_two(cluster)
    verdicts = cluster.client.run(connection._reader(cluster.resource))
    assert [*verdicts.values()] == ["", ""]


def test_a_worker_that_stands_still(cluster, here, blocks_of):
    """Chains wait for it where they must, and nothing is lost."""
    blocks_of(4)
    until_two(cluster)
    number = next(iter(pids(cluster).values()))
    timers = []

    def stop():
        os.kill(number, signal.SIGSTOP)
        timers.append(threading.Timer(1.5, os.kill, (number, signal.SIGCONT)))
        timers[0].start()

    pause = when(10, stop)
    try:
        same(infer(cluster, progress=pause), here)
    finally:
        for timer in timers:
            timer.join()
    assert pause.done


def test_a_worker_that_computes_differently_is_not_used(cluster, here, blocks_of, tmp_path):
    """It joins a running cluster with other flags of its compiler."""
    blocks_of(5)
    until_two(cluster)
    command = [*DASK, "worker", cluster.client.scheduler.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_max_isa=SSE4_2"
    there = connection._environment() | {"XLA_FLAGS": flags}
    with open(tmp_path / "log", "wb") as log:
        where = {"stdout": log, "stderr": log, "cwd": tmp_path}
        process = subprocess.Popen([*command, "--name", "other"], env=there, start_new_session=True, **where)
    try:
        deadline = time.monotonic() + 300
        while not cluster.refused:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ((address, why),) = cluster.refused.items()
        assert why.startswith("XLA_FLAGS is ")
        assert why.endswith("install the same versions and set the same flags")
        assert cluster.said[-1] == f"cluster: worker {address} is not used: {why}"
        assert address in cluster.client.nthreads()
        assert len(cluster.workers) == 2
        places = set()
        watch = lambda progress: places.update(chain.place for chain in progress.chains)
        same(infer(cluster, progress=watch), here)
        assert places - {""} <= set(cluster.workers)
    finally:
        process.kill()
        process.wait()
        cluster.refused.clear()


@pytest.mark.slow
def test_twenty_random_kills(cluster, tmp_path, blocks_of):
    blocks_of(2)
    rng = np.random.default_rng(5)
    method = bp.HMC(num_warmup=40, num_draws=60, num_leapfrog=3)
    here = bp.infer(PROBLEM, method, seed=8, chains=3, progress=False)
    kills = 0
    while kills < 20:
        moments = set(rng.integers(3, 120, 2).tolist())
        count = 0

        def kill(progress, moments=moments):
            nonlocal count, kills
            count += 1
            if count in moments:
                until_two(cluster)
                kill_one(cluster, int(rng.integers(2)))
                kills += 1

        out = tmp_path / str(kills) if rng.integers(2) else None
        same(bp.infer(PROBLEM, method, seed=8, chains=3, progress=kill, cluster=cluster, out=out), here)
        until_two(cluster)


# --- the scheduler ---


def test_a_lost_scheduler(here, tmp_path, blocks_of):
    """It dies with its worker: a sentence says so, and the same call resumes the run, here without a cluster."""
    blocks_of(5)
    file, processes = tmp_path / "scheduler.json", []
    with open(tmp_path / "log", "wb") as log:
        options = {"stdout": log, "stderr": log, "start_new_session": True, "env": connection._environment()}
        for command in (
            ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
            ["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--no-dashboard"],
        ):
            processes.append(subprocess.Popen([*DASK, *command], cwd=tmp_path, **options))
            deadline = time.monotonic() + 120
            while not file.exists():
                assert processes[0].poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
    try:
        lose = when(36, processes[0].kill)
        with pytest.raises(bp.InputError, match="the connection to the scheduler was lost"):
            infer(str(file), progress=lose, out=tmp_path / "run")
        assert lose.done
    finally:
        for process in processes:
            process.kill()
            process.wait()
    kept = len(list((tmp_path / "run").rglob("0*.npz")))
    assert kept >= 3 * 36 // 5
    same(infer(None, out=tmp_path / "run"), here)


# --- the coordinator ---


def killed(tmp_path, fatal, name):
    """Run a problem file on workers of its own, in a process that dies at its ``fatal``-th write: its folder."""
    file, folder = tmp_path / "problem.toml", tmp_path / name
    file.write_text(TOML)
    arguments = ["run", str(file), "--out", str(folder), "--cluster", "local:2", "--quiet", "--no-report"]
    process = subprocess.Popen([sys.executable, str(KILLED), str(fatal), *arguments], start_new_session=True)
    started = psutil.Process(process.pid)
    workers = []
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            workers = started.children(recursive=True) or workers
        time.sleep(0.1)
    assert process.wait(600) == -signal.SIGKILL
    assert workers
    assert not (folder / "result.npz").exists()
    return folder, workers


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of the problem file that nobody kills, in threads of this process."""
    from bpinn.problem_file import read_problem

    file = tmp_path_factory.mktemp("whole") / "problem.toml"
    file.write_text(TOML)
    read = read_problem(file)
    return bp.infer(read.problem, read.method, seed=read.seed, chains=read.chains, progress=False)


def test_a_killed_coordinator(cluster, whole, tmp_path, program):
    """What it had stored is resumed on another cluster."""
    folder, workers = killed(tmp_path, 30, "run")
    assert list(folder.rglob("0*.npz"))
    resumed = program("resume", folder, "--quiet", "--no-report", "--cluster", cluster.client.scheduler.address)
    assert resumed.returncode in (0, 3), resumed.stderr
    same(bp.load(folder), whole)
    assert ended(workers, 60)


@pytest.mark.slow
def test_five_killed_coordinators(cluster, whole, tmp_path, program):
    """At random writes; odd ones are resumed by threads of one process."""
    for run, fatal in enumerate(np.random.default_rng(1).integers(6, 60, 5).tolist()):
        folder, _ = killed(tmp_path, fatal, f"run-{run}")
        where = [] if run % 2 else ["--cluster", cluster.client.scheduler.address]
        resumed = program("resume", folder, "--quiet", "--no-report", *where)
        assert resumed.returncode in (0, 3), resumed.stderr
        same(bp.load(folder), whole)
