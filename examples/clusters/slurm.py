"""Runs a problem file on the nodes of a SLURM cluster, with dask-jobqueue (pip install dask-jobqueue).

    python examples/clusters/slurm.py reaction/problem.toml --jobs 4 --cores 16 --queue short --out reaction/slurm

Start it on the login node, or as a small job of its own. It submits jobs, each with one worker process for every core,
and uses workers as they come. If it is killed, or its time is over, the same command resumes the run. ``--here``
starts the workers on this machine instead, to try it out.
"""

import argparse
import sys
from pathlib import Path

from dask_jobqueue import SLURMCluster
from dask_jobqueue.local import LocalCluster

import bpinn as bp
from bpinn.problem_file import read_problem


def main(argv: list[str] | None = None) -> bp.Result:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run, on a disk of this machine")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cores", type=int, default=4, help="of each job")
    parser.add_argument("--memory", default="8GB", help="of each job")
    parser.add_argument("--queue")
    parser.add_argument("--walltime", default="04:00:00")
    parser.add_argument("--chains", type=int, help="by default those of the file")
    parser.add_argument("--here", action="store_true")
    given = parser.parse_args(argv)
    found = read_problem(given.file)
    # One thread for each process: a block of a chain runs on one core.
    shared = {"cores": given.cores, "processes": given.cores, "memory": given.memory, "python": sys.executable}
    if given.here:
        cluster = LocalCluster(**shared)
    else:
        cluster = SLURMCluster(**shared, queue=given.queue, walltime=given.walltime)
    with cluster:
        cluster.scale(jobs=given.jobs)
        chains = found.chains if given.chains is None else given.chains
        result = bp.infer(found.problem, found.method, seed=found.seed, chains=chains, out=given.out, cluster=cluster)
    print(result.summary())
    return result


if __name__ == "__main__":
    main()
