"""What a cluster costs: worker processes against threads of one process, on the same machine.

    python benchmarks/cluster.py [--workers 2] [--chains 8] [--repeats 3] [--simulations 20]

Prints the bytes that come back and go out for each block, tasks per second and the latency of the scheduler, the time
of HMC on the 1D inverse problem against that of as many threads (compilation left out, interleaved, draws compared bit
for bit), and simulation-based calibration with one worker against all of them.
"""

import argparse
import time
from collections.abc import Callable

import cloudpickle
import numpy as np

import bpinn as bp
from bpinn.cluster import Cluster, opened
from bpinn.cluster.chains import Workers
from bpinn.cluster.worker import on_host

METHOD = bp.HMC(num_warmup=300, num_draws=300)
FIT = bp.LastLayer(num_steps=2000, num_draws=100)


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def latency(cluster: Cluster, tasks: int = 200) -> tuple[float, float]:
    """Milliseconds of one task from submit to result, and tasks per second if many are submitted at once."""
    one = [seconds(lambda i=i: cluster.result(cluster.submit(abs, -1, name=f"one-{i}"))) for i in range(50)]
    together = seconds(lambda: cluster.results([cluster.submit(abs, -1, name=f"many-{i}") for i in range(tasks)]))
    return 1e3 * float(np.median(one)), tasks / together


def traffic(run: Callable[..., bp.Result], cluster: Cluster, **options: object) -> tuple[int, float, float]:
    """Number of blocks, and mean bytes that come back for a block: as answers, and of it all if it is stored."""
    answers, deliver = [], Workers._delivered

    def weighed(self: Workers, running: object) -> int:
        block = self.cluster.result(running.answer)  # type: ignore[attr-defined]
        answers.append(len(cloudpickle.dumps(on_host(block.record))) + len(cloudpickle.dumps(block.state)))
        return deliver(self, running)  # type: ignore[arg-type]

    Workers._delivered = weighed  # type: ignore[method-assign,assignment]
    try:
        run(cluster=cluster, **options)
    finally:
        Workers._delivered = deliver  # type: ignore[method-assign]
    return len(answers), float(np.mean(answers)), float(np.sum(answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--simulations", type=int, default=20)
    given = parser.parse_args()
    problem = bp.paper.inverse_reaction_1d(noise=0.1, seed=0).problem

    def run(cluster: Cluster | None = None, **options: object) -> bp.Result:
        cores = given.workers if cluster is None else None
        how = {"seed": 0, "chains": given.chains, "progress": False, "cores": cores, "cluster": cluster, **options}
        return bp.infer(problem, METHOD, **how)  # type: ignore[arg-type]

    started = time.perf_counter()
    with opened(f"local:{given.workers}", print) as cluster:
        print(f"{given.workers} workers, ready after {time.perf_counter() - started:.1f} s")
        one, many = latency(cluster)
        print(f"a task takes {one:.1f} ms from submit to result; {many:.0f} empty tasks per second")
        there, here = run(cluster), run()  # compiles
        print(f"draws are {'identical' if np.array_equal(there.z, here.z) else 'DIFFERENT'} bit for bit")
        blocks, each, total = traffic(run, cluster)
        print(f"{blocks} blocks; {each / 1e3:.1f} kB come back for each, {total / 1e6:.1f} MB in all before the draws")
        print(f"the draws are {there.z.nbytes / 1e6:.1f} MB")
        times = [(seconds(run), seconds(lambda: run(cluster))) for _ in range(given.repeats)]
        for threads, workers in times:
            print(f"  threads {threads:.2f} s, workers {workers:.2f} s, ratio {workers / threads:.3f}")
        ratios = [workers / threads for threads, workers in times]
        print(f"workers take {np.median(ratios):.3f} of the time of threads ({min(ratios):.3f} to {max(ratios):.3f})")
        several = sbc(problem, cluster, given.simulations)
    with opened("local:1", print) as cluster:
        alone = sbc(problem, cluster, given.simulations)
    ratio = f"{alone / several:.2f} times as fast"
    print(f"{given.simulations} simulations: {alone:.1f} s on one worker, {several:.1f} s on {given.workers}: {ratio}")


def sbc(problem: bp.Problem, cluster: Cluster, simulations: int) -> float:
    """Seconds of a calibration, after each worker has compiled."""

    def run(count: int, seed: int) -> None:
        bp.calibration.sbc(problem, FIT, simulations=count, seed=seed, progress=False, cluster=cluster)

    run(10, 1000)
    return seconds(lambda: run(simulations, 0))


if __name__ == "__main__":
    main()
