"""What a cluster costs: worker processes against threads of one process, on the same machine.

    python benchmarks/cluster.py [--workers 2] [--chains 8] [--transitions 6000] [--repeats 3] [--simulations 200]

Prints the bytes that come back and go out for each block, tasks per second and the latency of the scheduler; HMC on the
1D inverse problem against that of as many threads (compilation left out, interleaved, draws compared bit for bit);
what that means for up to 1,000 workers; and simulation-based calibration with one worker against all of them. Times
are by the clock and of processors, summed over all processes: on a machine that does other work, only those mean
something.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import cloudpickle
import numpy as np
import psutil

import bpinn as bp
from bpinn.cluster import Cluster, opened
from bpinn.cluster.chains import TASK_SECONDS, TASKS_A_SECOND, Workers
from bpinn.cluster.worker import on_host

FIT = bp.LastLayer(num_steps=2000, num_draws=100)
MORE_WORKERS = (1, 10, 100, 1000)


class Spent(NamedTuple):
    """Seconds by the clock, and of processors: in this process, in those that it has started, and in one of them."""

    clock: float
    here: float
    there: float
    most: float  # of the busiest

    @property
    def processors(self) -> float:
        return self.here + self.there

    def __str__(self) -> str:
        return f"{self.clock:.2f} s ({self.processors:.2f} s of processors)"


def spent(function: Callable[[], object]) -> Spent:
    def processors() -> list[float]:
        times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
        return [sum(os.times()[:2]), *(t.user + t.system for t in times)]

    started, before = time.perf_counter(), processors()
    function()
    clock = time.perf_counter() - started
    here, *there = (b - a for a, b in zip(before, processors(), strict=True))
    return Spent(clock, here, sum(there), max(there, default=0.0))


def latency(cluster: Cluster, tasks: int = 500) -> tuple[float, float]:
    """Milliseconds of one task from submit to result, and tasks per second if many are submitted at once."""
    one = [spent(lambda i=i: cluster.result(cluster.submit(abs, -1, name=f"one-{i}"))).clock for i in range(50)]
    together = spent(lambda: cluster.results([cluster.submit(abs, -1, name=f"many-{i}") for i in range(tasks)]))
    return 1e3 * float(np.median(one)), tasks / together.clock


def traffic(run: Callable[..., bp.Result], cluster: Cluster) -> tuple[int, float, float]:
    """Number of tasks of blocks, and mean bytes that come back and go out for each."""
    answers, requests = [], []
    deliver, submit = Workers._delivered, cluster.submit

    def weighed(self: Workers, running: object) -> int:
        block = self.cluster.result(running.answer)  # type: ignore[attr-defined]
        answers.append(len(cloudpickle.dumps((on_host(block.record), block.state))))
        return deliver(self, running)  # type: ignore[arg-type]

    def sending(function: Callable[..., object], *arguments: object, **options: object) -> object:
        sent = [a for a in arguments if not hasattr(a, "add_done_callback")]
        requests.append(len(cloudpickle.dumps((function, sent))))
        return submit(function, *arguments, **options)  # type: ignore[arg-type]

    Workers._delivered, cluster.submit = weighed, sending  # type: ignore[method-assign,assignment]
    try:
        run(cluster)
    finally:
        Workers._delivered = deliver  # type: ignore[method-assign]
        del cluster.submit
    return len(answers), float(np.mean(answers)), sum(requests) / len(answers)


def model(wait: float, cost: float, out: float, stream: float) -> None:
    """What more workers would do, each with a chain.

    ``wait`` and ``cost`` are seconds for each task, ``out`` bytes; ``stream`` is bytes for each second of sampling.
    """
    print("workers  seconds a task  tasks a second  kB a second  this process busy  workers busy")
    for workers in MORE_WORKERS:
        task = max(TASK_SECONDS, workers / TASKS_A_SECOND)
        rate = workers / (task + wait)
        row = f"{workers:7} {task:15.0f} {rate:15.1f} {rate * (out + stream * task) / 1e3:12.0f}"
        print(f"{row} {100 * rate * cost:17.1f}% {100 * task / (task + wait):12.1f}%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--transitions", type=int, default=6000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--simulations", type=int, default=200)
    given = parser.parse_args()
    problem = bp.paper.inverse_reaction_1d(noise=0.1, seed=0).problem
    method = bp.HMC(num_warmup=given.transitions // 2, num_draws=given.transitions // 2)

    def run(cluster: Cluster | None = None) -> bp.Result:
        cores = given.workers if cluster is None else None
        how = {"seed": 0, "chains": given.chains, "progress": False, "cores": cores, "cluster": cluster}
        return bp.infer(problem, method, **how)  # type: ignore[arg-type]

    started = time.perf_counter()
    with opened(f"local:{given.workers}", print) as cluster:
        print(f"{given.workers} workers, ready after {time.perf_counter() - started:.1f} s")
        one, many = latency(cluster)
        print(f"a task takes {one:.1f} ms from submit to result; {many:.0f} empty tasks per second")
        there, here = run(cluster), run()  # compiles
        print(f"draws are {'identical' if np.array_equal(there.z, here.z) else 'DIFFERENT'} bit for bit")
        blocks, back, out = traffic(run, cluster)
        print(f"{blocks} tasks of blocks; for each {out / 1e3:.1f} kB go out and {back / 1e3:.1f} kB come back")
        print(f"the draws are {there.z.nbytes / 1e6:.1f} MB")
        times = [(spent(run), spent(lambda: run(cluster))) for _ in range(given.repeats)]
        for threads, workers in times:
            ratio = f"{workers.clock / threads.clock:.3f} ({workers.processors / threads.processors:.3f})"
            print(f"  threads {threads}, workers {workers}, ratio {ratio}")
        for name, kind in (("clock", "time"), ("processors", "processor time")):
            ratios = [getattr(workers, name) / getattr(threads, name) for threads, workers in times]
            spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
            print(f"workers take {np.median(ratios):.3f} of the {kind} of threads ({spread})")
        cost = float(np.median([workers.here for _, workers in times])) / blocks
        print(f"this process needs {1e3 * cost:.1f} ms of a processor for each task of a block, draws included")
        stream = back * blocks / float(np.median([threads.processors for threads, _ in times]))
        print(f"{stream / 1e3:.0f} kB come back for each second of a chain")
        model(2 * one / 1e3, cost, out, stream)
        several = sbc(problem, cluster, given.simulations)
    with opened("local:1", print) as cluster:
        alone = sbc(problem, cluster, given.simulations)
    faster = f"{alone.clock / several.clock:.2f} times as fast, {alone.most / several.most:.2f} by processor time"
    print(f"{given.simulations} simulations: {alone} on one worker, {several} on {given.workers}: {faster}")
    print(f"(the busiest worker: {alone.most:.2f} s of a processor alone, {several.most:.2f} s of {given.workers})")


def sbc(problem: bp.Problem, cluster: Cluster, simulations: int) -> Spent:
    """Time of a calibration, after each worker has compiled."""

    def run(count: int, seed: int) -> None:
        bp.calibration.sbc(problem, FIT, simulations=count, seed=seed, progress=False, cluster=cluster)

    run(10, 1000)
    return spent(lambda: run(simulations, 0))


if __name__ == "__main__":
    main()
