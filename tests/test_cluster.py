"""Chains, simulations and sweeps on worker processes: the same draws as here, whatever happens to a worker."""

import io
import os
import signal
import sys
import time

import jax
import numpy as np
import pytest
from on_workers import METHOD, PROBLEM, infer, pids, same

import bpinn as bp
from bpinn.cluster import arithmetic, connection, each, opened
from bpinn.cluster.chains import Workers
from bpinn.engine.advance import Program, Request
from bpinn.problem_file import read_problem
from bpinn.progress import Display
from bpinn.sweep import sweep
from bpinn.sweep.plan import plan

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes for the whole module."""
    said = []
    with opened("local:2", said.append) as found:
        found.said = said
        yield found


@pytest.fixture(scope="module")
def here(cluster):
    """The run in threads of this process; after the cluster, so that no JAX thread exists when that starts."""
    return bp.infer(PROBLEM, METHOD, seed=3, chains=3, progress=False)


def test_draws_are_those_of_threads(cluster, here, blocks_of):
    blocks_of(5)
    places, shown = set(), []

    def watch(progress):
        places.update(chain.place for chain in progress.chains)
        shown.append(progress)

    same(infer(cluster, progress=watch), here)
    used = places - {""}  # on a busy machine one worker may have done everything before the other began
    assert used
    assert used <= set(pids(cluster))
    display = Display(io.StringIO())
    number = len({chain.place for chain in shown[-1].chains} - {""})
    first_line = display._lines_of(shown[-1], time.perf_counter())[0][0]
    assert first_line == f"3 chains on {number} worker{'s' if number > 1 else ''}"
    assert not cluster.refused


def test_tasks_of_several_blocks(cluster, here, blocks_of, monkeypatch):
    """Half of what is left until chains wait for each other, if that does not take long."""
    blocks_of(1)
    monkeypatch.setattr("bpinn.cluster.chains.TASK_SECONDS", 1e9)
    counts, submit = [], Workers.submit

    def counted(self, program, request, deliver):
        counts.append(request.count)
        return submit(self, program, request, deliver)

    monkeypatch.setattr(Workers, "submit", counted)
    same(infer(cluster), here)
    assert max(counts) == METHOD.num_draws // 2
    scheduler = Workers(cluster)
    monkeypatch.setattr("bpinn.cluster.chains.TASK_SECONDS", 1.0)
    scheduler.at_work = 2
    assert [scheduler.at_once(s, left) for s, left in ((0.0, 9), (0.1, 40), (0.1, 6), (3.0, 6), (0.1, 1))] == [
        1, 10, 3, 1, 1,
    ]  # fmt: skip
    scheduler.at_work = 1000
    assert scheduler.at_once(1.0, 400) == 20  # a task of 20 s: 50 of them end in a second


def test_every_worker_is_ready_before_the_first_block(cluster):
    """It has compiled, and XLA has one thread there, as the worker has."""

    def state():
        from bpinn.cluster import worker

        return set(worker._compiled), os.environ["PJRT_NPROC"]

    scheduler, program = Workers(cluster), Program(bp.Posterior(PROBLEM), METHOD, 0, seed=11)
    before = cluster.client.run(state)
    scheduler.prepare(program, Request(0, 0, None, None, 0, 1))
    after = cluster.client.run(state)
    assert [len(after[address][0] - before[address][0]) for address in before] == [1, 1]
    assert {threads for _, threads in after.values()} == {"1"}


def test_dask_knows_how_large_a_block_is(here):
    from dask.sizeof import sizeof

    program = Program(bp.Posterior(PROBLEM), METHOD, 0, seed=0)
    block = program.advance(Request(0, 0, None, None, 30, 20))
    assert block.record.z.nbytes == 20 * program.model.dim * 4
    assert block.record.z.nbytes < sizeof(block) < 20 * block.record.z.nbytes


def test_a_client_of_the_user_stays_connected(cluster, here):
    same(infer(cluster.client), here)
    assert cluster.client.status == "running"
    same(infer(cluster.client.scheduler.address, chains=3), here)


def test_only_what_reviews_need_comes_back(cluster, blocks_of, monkeypatch):
    """Between blocks neither draws nor states do, except for a state once in a segment."""
    blocks_of(3)
    monkeypatch.setattr("bpinn.cluster.chains.SEGMENT", 4)
    answers, deliver = [], Workers._delivered

    def watched(self, running):
        answers.append((running.age, self.cluster.result(running.answer)))
        return deliver(self, running)

    monkeypatch.setattr(Workers, "_delivered", watched)
    infer(cluster)
    assert all(block.record.z is None for _, block in answers)
    assert {age for age, block in answers if block.state is not None} <= {3, 4}
    assert max(age for age, _ in answers) == 4


def test_a_worker_compiles_once(cluster):
    """Runs that differ in data and seed use the same compiled blocks; worker processes count their traces."""

    def traces():
        from bpinn.engine import advance

        return advance.traces

    infer(cluster)
    before = cluster.client.run(traces)
    infer(cluster, seed=4)
    assert cluster.client.run(traces) == before


def test_stored_blocks_and_a_resumed_coordinator(cluster, here, tmp_path, blocks_of):
    """A run in a folder, of which the coordinator dies: another one resumes it, on the cluster or here."""
    blocks_of(5)
    count = 0

    def die(progress):
        nonlocal count
        count += 1
        if count == 12:
            raise RuntimeError("the coordinator dies")

    for name in ("there", "then-here"):
        count = 0
        with pytest.raises(RuntimeError, match="dies"):
            infer(cluster, out=tmp_path / name, progress=die)
    same(infer(cluster, out=tmp_path / "there"), here)
    same(infer(None, out=tmp_path / "then-here"), here)
    same(bp.load(tmp_path / "there"), here)


def test_ctrl_c_keeps_what_is_done(cluster, blocks_of):
    blocks_of(4)

    def stop(progress):
        if min(chain.done for chain in progress.chains) >= 40 and not stop.done:
            stop.done = True
            os.kill(os.getpid(), signal.SIGINT)

    stop.done = False
    result = infer(cluster, progress=stop)
    assert result.interrupted
    assert 8 <= result.z.shape[1] < 24
    assert np.all(np.isfinite(result.z))


def test_two_stages_in_double_precision(cluster):
    """A fit, and what starts where it ended; the precision of this thread goes along."""
    method = bp.VI(num_steps=100, num_draws=10, init_steps=50)
    with jax.enable_x64(True), opened(cluster.client, cluster.said.append) as precise:
        there, here = (
            bp.infer(PROBLEM, method, seed=0, chains=1, progress=False, cluster=where) for where in (precise, None)
        )
    assert there.z.dtype == np.float64
    same(there, here)


def test_other_arithmetic_is_refused(cluster, monkeypatch):
    """The coordinator has another version than its workers: all of them are refused in a sentence."""
    found = arithmetic.description()
    monkeypatch.setattr(arithmetic, "description", lambda: found | {"jax": "0.0.1"})
    with pytest.raises(
        bp.InputError, match=r"none of its 2 workers computes as this process does; .* jax is .* there and 0.0.1"
    ):
        infer(cluster.client)
    monkeypatch.setattr(arithmetic, "description", lambda: found | {"network": "0" * 12})
    with pytest.raises(bp.InputError, match=r"a fixed computation gives other numbers \(network\); draws would not be"):
        infer(cluster.client)


def test_a_description_names_what_differs():
    found = arithmetic.description()
    assert found == arithmetic.description()
    assert arithmetic.differences(found, found) == ""
    other = found | {"processor": "x86_64 avx2", "linear algebra": "0"}
    assert arithmetic.differences(found, other).startswith("processor is x86_64 avx2 there and ")
    with jax.enable_x64(True):
        assert arithmetic.description()["network"] != found["network"]


def test_what_a_block_raises_is_raised_here(cluster):
    def bad(item):
        raise bp.InputError(f"item {item} is wrong")

    with pytest.raises(bp.InputError, match="item 1 is wrong"):
        list(each(cluster, bad, [1]))


def test_simulations_are_those_of_one_process(cluster, tmp_path):
    options = {"simulations": 10, "draws": 9, "progress": False}
    method = bp.LastLayer(num_steps=30, num_draws=10)
    here = bp.calibration.sbc(PROBLEM, method, **options)
    there = bp.calibration.sbc(PROBLEM, method, **options, cluster=cluster, out=tmp_path / "sbc")
    np.testing.assert_array_equal(there.draws, here.draws)
    np.testing.assert_array_equal(there.truths, here.truths)
    assert there.verdicts == here.verdicts
    assert len(list((tmp_path / "sbc").glob("simulation-*.npz"))) == 10
    again = bp.calibration.sbc(PROBLEM, method, **options, out=tmp_path / "sbc")  # from its files
    np.testing.assert_array_equal(again.draws, here.draws)


# --- what can be a cluster ---


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("local:0", "'local:0' must be local: and a number of processes from 1 to 1024"),
        ("local:two", "must be local: and a number"),
        ("nowhere.json", "'nowhere.json' is neither an address nor an existing file"),
        ("", "got ''; expected an address such as"),
        (7, "got 7; expected an address such as"),
    ],
)
def test_wrong_clusters(given, words):
    with pytest.raises(bp.InputError, match=words):
        infer(given)


def test_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.2)
    with pytest.raises(bp.InputError, match=r"there is no scheduler at tcp://127\.0\.0\.1:9 "):
        infer("tcp://127.0.0.1:9")
    (tmp_path / "file.json").write_text("{}")
    with pytest.raises(bp.InputError, match="is not a scheduler file"):
        infer(str(tmp_path / "file.json"))
    with pytest.raises(bp.InputError, match="cores= counts threads of this process"):
        infer("local:2", cores=2)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(bp.InputError, match=r"pip install 'bpinn\[dask\]'"):
        infer("local:2")


# --- sweeps ---

TOML = """
title = "Decay"
[domain]
t = [0, 2]
[fields.u]
surrogate = "kl"
kernel = { kind = "squared_exponential", length = 1.0 }
terms = 5
[unknowns]
k = { prior = "normal", mean = 1.0, sd = 0.5 }
[equations]
law = "u_t + k*u"
[[sensors]]
quantity = "u"
data = "cup-1.csv"
noise = 0.05
[[physics]]
equation = "law"
points = 8
tolerance = 0.05
[inference]
method = "last-layer"
num_steps = 50
num_draws = 40
chains = 1
"""


@pytest.fixture
def cups(tmp_path):
    t = np.linspace(0.0, 2.0, 7)
    for cup, k in ((1, 0.8), (2, 1.0), (10, 1.2)):
        rows = "\n".join(f"{a},{np.exp(-k * a)}" for a in t)
        (tmp_path / f"cup-{cup}.csv").write_text(f"t,value\n{rows}\n")
    (tmp_path / "problem.toml").write_text(TOML)
    return tmp_path


def test_a_sweep_over_data_and_seeds(cups, cluster, program, capsys):
    """In a cluster and one after another: the same table; then nothing is left to do."""
    there = program("sweep", cups / "problem.toml", "--over", "data=cup-*.csv", "--seeds", 2, "--out", cups / "here")
    assert there.returncode == 0, there.stderr
    assert "6 of 6: cup-10-seed-1" in there.stderr
    assert "| data | k | verdict |" in there.stdout
    names = [line.split(",")[0] for line in (cups / "here" / "table.csv").read_text().splitlines()]
    assert names == ["data", "cup-1", "cup-1", "cup-2", "cup-2", "cup-10", "cup-10"]  # in the order of their numbers
    assert "data:image/png" in (cups / "here" / "report.html").read_text()
    found = sweep(
        cups / "problem.toml", ["data=cup-*.csv"], seeds=2, out=cups / "there", cluster=cluster, progress=False
    )

    def numbers(folder):
        rows = [line.split(",") for line in (cups / folder / "table.csv").read_text().splitlines()]
        return [row[:5] for row in rows]

    assert numbers("there") == numbers("here")
    means = [row.numbers["k"]["mean"] for row in found.rows]
    assert means[0] < means[2] < means[4]
    again = program("sweep", cups / "problem.toml", "--over", "data=cup-*.csv", "--seeds", 2, "--out", cups / "there")
    assert "6 of 6 runs are already finished" in again.stderr
    assert bp.load(cups / "there" / "runs" / "cup-2-seed-1").z.shape[1] == 40


def test_a_stopped_sweep_continues(cups, monkeypatch):
    from bpinn.run_folder.runs import FileRun

    go, count = FileRun.go, []

    def stop_second(self, *arguments):
        count.append(self)
        if len(count) == 2:
            raise KeyboardInterrupt
        return go(self, *arguments)

    monkeypatch.setattr(FileRun, "go", stop_second)
    with pytest.raises(KeyboardInterrupt, match="1 of 3 runs are finished and kept"):
        sweep(cups / "problem.toml", ["data=cup-*.csv"], out=cups / "out", progress=False)
    found = sweep(cups / "problem.toml", ["data=cup-*.csv"], out=cups / "out", progress=False)
    assert len(found.rows) == 3


def test_plans(cups):
    file = cups / "problem.toml"
    two = plan(file, ["data=cup-?.csv", "sensors.0.noise=0.05,0.1"], 1, [], False)
    assert [m.name for m in two.members] == [f"cup-{c}_{n}-seed-0" for c in (1, 2) for n in (0.05, 0.1)]
    assert [m.seed for m in plan(file, [], 3, ["inference.seed=7"], False).members] == [7, 8, 9]
    kernels = plan(file, ["fields.u.terms=4,5"], 1, [], False)
    assert [m.changes[0] for m in kernels.members] == ["fields.u.terms=4", "fields.u.terms=5"]


def test_a_sweep_over_groups_of_one_file(cups):
    """Every sensor that reads a group reads the same one; other conditions stay."""
    (cups / "cups.csv").write_text(
        "cup,run no.,t,value\n"
        + "".join(
            f"{c},{r},{t},{(7 if c == 7 and r == 1 else 1) + t / 2}\n"
            for c in ("A", 7)
            for r in (1, 2)
            for t in (0, 1, 2)
        )
    )
    file = cups / "problem.toml"
    text = TOML.replace("cup-1.csv", "cups.csv").replace(
        "noise = 0.05", 'noise = 0.05\nwhere = { cup = "A", "run no." = 1 }', 1
    )
    file.write_text(text + '[[sensors]]\nname = "v"\nquantity = "u_t"\nat = { t = 0.0 }\nvalues = -1.0\nnoise = 0.1\n')
    found = plan(file, ["where.cup=*"], 1, [], False)
    assert [m.name for m in found.members] == ["A-seed-0", "7-seed-0"]
    assert found.members[1].changes[0] == 'sensors.0.where."cup"="7"'
    assert [m.name for m in plan(file, ["where.run no.=2"], 1, [], False).members] == ["2-seed-0"]
    both = plan(file, ["where.cup=A,7", "where.run no.=*"], 1, [], False).members
    assert [m.values for m in both] == [("A", "1"), ("A", "2"), ("7", "1"), ("7", "2")]
    read = read_problem(file, both[2].changes).problem.sensors["u"]
    np.testing.assert_array_equal(read.values, [7.0, 7.5, 8.0])
    with (cups / "cups.csv").open("a") as more:
        more.write("B,2,0,1\nB,2,1,1.5\n")
    assert [m.values for m in plan(file, ["where.cup=*"], 1, [], False).members] == [("A",), ("7",)]  # B has no run 1
    file.write_text(file.read_text().replace('"run no." = 1', '"run no." = 2'))
    assert [m.values for m in plan(file, ["where.cup=*"], 1, [], False).members] == [("A",), ("7",), ("B",)]
    with pytest.raises(bp.InputError, match=r"no row of cups\.csv has cup = C; it has A, 7, B"):
        plan(file, ["where.cup=C"], 1, [], False)
    with pytest.raises(bp.InputError, match=r'no \[\[sensors\]\] of the file has where = { "cap" = ... }; add it'):
        plan(file, ["where.cap=*"], 1, [], False)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        (["data"], "expected KEY=VALUES"),
        (["data=none-*.csv"], "no file in .* matches 'none-"),
        (["data=cup-*.csv", "data=cup-1*.csv"], "'data' is given twice"),
        (["sensors.0.noise=-1,0.1"], "noise"),
        (["sensors.9.data=cup-*.csv"], "'9' is not a number from 0 to 0"),
    ],
)
def test_wrong_sweeps(cups, over, words):
    with pytest.raises(bp.InputError, match=words):
        sweep(cups / "problem.toml", over, out=cups / "out", progress=False)
    assert not (cups / "out").exists()


def test_a_folder_of_another_sweep_is_refused(cups):
    (cups / "out").mkdir()
    (cups / "out" / "letter.txt").write_text("")
    with pytest.raises(bp.InputError, match="exists, and is not a sweep"):
        sweep(cups / "problem.toml", [], out=cups / "out", progress=False)
    text = (cups / "problem.toml").read_text()
    sweep(cups / "problem.toml", [], out=cups / "one", progress=False)
    (cups / "problem.toml").write_text(text.replace("0.05", "0.06"))
    with pytest.raises(bp.InputError, match="holds a different sweep"):
        sweep(cups / "problem.toml", [], out=cups / "one", progress=False)
    two = '[[sensors]]\nquantity = "u"\ndata = "cup-2.csv"\nnoise = 0.1\n'
    (cups / "problem.toml").write_text(text + two)
    with pytest.raises(bp.InputError, match=r"its sensors read different files; .* sensors.1.data \(cup-2.csv\)"):
        sweep(cups / "problem.toml", ["data=cup-*.csv"], out=cups / "two", progress=False)
